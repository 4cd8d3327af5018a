//! Functions of lists that take a function of their elements: `list_transform`, `list_filter` and `list_reduce`.
//!
//! The body of the function is evaluated for the elements of all lists at once; that of `list_reduce` for the first
//! elements of all lists, then for the second ones, and so on. Columns in it are repeated for each element.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, Int64Array, ListArray, UInt32Array, UInt64Array};
use datafusion::arrow::compute::{
    cast, filter, interleave, prep_null_mask_filter, take, take_arrays,
};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_SCALE, DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use super::elements::{list_array, offset};
use super::list_types::as_list;
use super::scalar::{item_of, list_of};
use crate::types::type_name;

/// The functions.
pub(crate) fn lambda_functions() -> impl Iterator<Item = Arc<HigherOrderUDF>> {
    [Kind::Transform, Kind::Filter, Kind::Reduce].into_iter().map(|kind| {
        let aliases = kind.names()[1..].iter().map(|&name| name.to_owned()).collect();
        let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
        Arc::new(HigherOrderUDF::new_from_impl(OfElements { kind, aliases, signature }))
    })
}

/// True of the names of functions that take a function.
pub(crate) fn takes_lambda(name: &str) -> bool {
    let kinds = [Kind::Transform, Kind::Filter, Kind::Reduce];
    kinds.iter().any(|kind| kind.names().contains(&name))
        || matches!(name, "array_any_match" | "array_first")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A list of the results for the elements.
    Transform,
    /// The elements for which the result is true.
    Filter,
    /// The result for the first two elements, for that and the third one, and so on.
    Reduce,
}

impl Kind {
    fn names(self) -> &'static [&'static str] {
        match self {
            Kind::Transform => {
                &["list_transform", "array_transform", "list_apply", "array_apply", "apply"]
            }
            Kind::Filter => &["list_filter", "array_filter", "filter"],
            Kind::Reduce => &["list_reduce", "array_reduce", "reduce"],
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfElements {
    kind: Kind,
    aliases: Vec<String>,
    signature: HigherOrderSignature,
}

/// A list, a function of elements, and, of `list_reduce`, what to begin with.
struct Parts<'a, V, L> {
    list: &'a V,
    lambda: &'a L,
    initial: Option<&'a V>,
}

impl OfElements {
    fn parts<'a, V, L>(&self, args: &'a [ValueOrLambda<V, L>]) -> DfResult<Parts<'a, V, L>> {
        match args {
            [ValueOrLambda::Value(list), ValueOrLambda::Lambda(lambda)] => {
                Ok(Parts { list, lambda, initial: None })
            }
            [
                ValueOrLambda::Value(list),
                ValueOrLambda::Lambda(lambda),
                ValueOrLambda::Value(initial),
            ] if self.kind == Kind::Reduce => Ok(Parts { list, lambda, initial: Some(initial) }),
            _ => plan_err!(
                "{} takes a list and a function of its elements: {}",
                self.name(),
                match self.kind {
                    Kind::Reduce => "list_reduce(l, lambda a, x: a + x)",
                    Kind::Filter => "list_filter(l, lambda x: x > 1)",
                    Kind::Transform => "list_transform(l, lambda x: x + 1)",
                }
            ),
        }
    }

    /// The type that the values between two steps of `list_reduce` have.
    fn type_between(&self, parts: &Parts<'_, FieldRef, FieldRef>) -> DfResult<DataType> {
        let first = match parts.initial {
            Some(initial) => initial.data_type().clone(),
            None => item_of(parts.list.data_type())?.data_type().clone(),
        };
        match parts.lambda.data_type() {
            DataType::Null => Ok(first),
            other => Ok(other.clone()),
        }
    }
}

impl HigherOrderUDFImpl for OfElements {
    fn name(&self) -> &str {
        self.kind.names()[0]
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let Some(first) = types.first() else {
            return plan_err!("{} takes a list and a function of its elements", self.name());
        };
        let Some(list) = as_list(first) else {
            return plan_err!("{} takes a list, not {}", self.name(), type_name(first));
        };
        Ok(std::iter::once(list).chain(types[1..].iter().cloned()).collect())
    }

    /// The parameters of the function: an element and its place; of `list_reduce`, the result so far comes first, whose
    /// type is found by trying until the function gives the type that it takes.
    fn lambda_parameters(
        &self,
        step: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> DfResult<LambdaParametersProgress> {
        let Parts { list, lambda, initial } = self.parts(fields)?;
        let item = item_of(list.data_type())?.data_type().clone();
        let parameter = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        let element = parameter("element", item.clone());
        let place = parameter("place", DataType::Int64);
        if self.kind != Kind::Reduce {
            return Ok(LambdaParametersProgress::Complete(vec![vec![element, place]]));
        }
        let first = initial.map_or(item.clone(), |initial| initial.data_type().clone());
        let known = lambda.as_ref().map(|result| result.data_type().clone());
        let grows = known.as_ref().is_some_and(|result| grows(step, result, [&first, &item]));
        let between = match known.filter(|result| !result.is_null()) {
            // A product of decimals has more digits with each step.
            Some(_) if grows => DataType::Float64,
            Some(result) => result,
            None => first,
        };
        let parameters = vec![parameter("result", between), element, place];
        match step {
            0 if lambda.is_none() => Ok(LambdaParametersProgress::Partial(vec![Some(parameters)])),
            // Types that grow with each step, as decimals do, end at their most digits.
            1..STEPS_MAX => Ok(LambdaParametersProgress::Partial(vec![Some(parameters)])),
            _ => Ok(LambdaParametersProgress::Complete(vec![parameters])),
        }
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> DfResult<FieldRef> {
        let parts = self.parts(args.arg_fields)?;
        let result = match self.kind {
            Kind::Transform => list_of(parts.lambda.data_type().clone()),
            Kind::Filter => parts.list.data_type().clone(),
            Kind::Reduce => self.type_between(&parts)?,
        };
        Ok(Arc::new(Field::new(self.name(), result, true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> DfResult<ColumnarValue> {
        let Parts { list, lambda, initial } = self.parts(&args.args)?;
        let list = list.to_array(args.number_rows)?;
        let elements = Elements::new(list.as_list::<i32>())?;
        let result = args.return_field.data_type();
        let values = match self.kind {
            Kind::Reduce => {
                let initial = initial.map(|initial| initial.to_array(args.number_rows));
                elements.reduce(lambda, initial.transpose()?, result)?
            }
            Kind::Transform => {
                let results = elements.evaluate(lambda)?;
                let results = cast(&results, item_of(result)?.data_type())?;
                list_array(
                    results,
                    &elements.ends(0..elements.rows.len())?,
                    &elements.known,
                    result,
                )?
            }
            Kind::Filter => elements.filter(lambda, result)?,
        };
        Ok(ColumnarValue::Array(values))
    }
}

/// True of a decimal that after so many steps has far more digits behind the point than what it was made of.
fn grows(step: usize, result: &DataType, parts: [&DataType; 2]) -> bool {
    let scale = |of: &DataType| match of {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let of_parts = parts.map(scale).into_iter().max().unwrap_or_default().max(1);
    let scale = scale(result);
    step > 1 && scale >= of_parts.saturating_mul(3)
        || step > 0 && scale.saturating_add(of_parts) > DECIMAL128_MAX_SCALE
}

/// Most steps in which the type of `list_reduce` is looked for.
const STEPS_MAX: usize = 48;

/// The elements of lists that are not NULL.
struct Elements {
    values: ArrayRef,
    /// The row of each element.
    rows: UInt32Array,
    /// Where the elements of each row begin.
    starts: Vec<usize>,
    lengths: Vec<usize>,
    known: Vec<bool>,
}

impl Elements {
    fn new(lists: &ListArray) -> DfResult<Elements> {
        let (mut chosen, mut rows, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lengths, mut known) = (Vec::new(), Vec::new());
        for row in 0..lists.len() {
            let bounds = [lists.value_offsets()[row], lists.value_offsets()[row + 1]];
            let [start, end] = bounds.map(|bound| usize::try_from(bound).unwrap_or_default());
            let range = if lists.is_valid(row) { start..end } else { 0..0 };
            starts.push(chosen.len());
            lengths.push(range.len());
            known.push(lists.is_valid(row));
            rows.extend(std::iter::repeat_n(u32::try_from(row).unwrap_or_default(), range.len()));
            chosen.extend(range.map(|place| place as u64));
        }
        let values = take(lists.values(), &UInt64Array::from(chosen), None)?;
        Ok(Elements { values, rows: rows.into(), starts, lengths, known })
    }

    /// The place of each element in its list, from 1 on.
    fn places(&self) -> ArrayRef {
        let places = self.lengths.iter().flat_map(|&length| 1..=length as i64);
        Arc::new(Int64Array::from_iter_values(places))
    }

    /// The function's results for all elements.
    fn evaluate(&self, lambda: &LambdaArgument) -> DfResult<ArrayRef> {
        let element = || Ok(Arc::clone(&self.values));
        let place = || Ok(self.places());
        let results = lambda.evaluate(&[&element, &place], |captures| {
            Ok(take_arrays(captures, &self.rows, None)?)
        })?;
        results.into_array(self.values.len())
    }

    /// Where the list of each row ends if of the elements these are left.
    fn ends(&self, kept: impl Iterator<Item = usize>) -> DfResult<Vec<i32>> {
        let (mut kept, mut count) = (kept.peekable(), 0);
        let end = |(start, length): (&usize, &usize)| {
            while kept.next_if(|&place| place < start + length).is_some() {
                count += 1;
            }
            offset(count)
        };
        self.starts.iter().zip(&self.lengths).map(end).collect()
    }

    fn filter(&self, lambda: &LambdaArgument, result: &DataType) -> DfResult<ArrayRef> {
        let truths = cast(&self.evaluate(lambda)?, &DataType::Boolean)?;
        let truths = match truths.null_count() {
            0 => truths.as_boolean().clone(),
            _ => prep_null_mask_filter(truths.as_boolean()),
        };
        let ends = self.ends(truths.values().set_indices())?;
        list_array(filter(&self.values, &truths)?, &ends, &self.known, result)
    }

    fn reduce(
        &self,
        lambda: &LambdaArgument,
        initial: Option<ArrayRef>,
        to: &DataType,
    ) -> DfResult<ArrayRef> {
        let first = usize::from(initial.is_none());
        let mut results = match initial {
            Some(initial) => cast(&initial, to)?,
            None => {
                let is_empty = |(&length, &known): (&usize, &bool)| known && length == 0;
                if self.lengths.iter().zip(&self.known).any(is_empty) {
                    return exec_err!(
                        "list_reduce: a list without elements needs a value to begin with: \
                         list_reduce(l, f, value)"
                    );
                }
                let firsts = self.starts.iter().zip(&self.known);
                let firsts: UInt64Array =
                    firsts.map(|(&start, &known)| known.then_some(start as u64)).collect();
                cast(&take(&self.values, &firsts, None)?, to)?
            }
        };
        for at in first..self.lengths.iter().copied().max().unwrap_or_default() {
            let left = (0..self.lengths.len()).filter(|&row| self.lengths[row] > at);
            let left: Vec<usize> = left.collect();
            let rows = UInt32Array::from_iter_values(left.iter().map(|&row| row as u32));
            let elements = left.iter().map(|&row| (self.starts[row] + at) as u64);
            let elements = take(&self.values, &UInt64Array::from_iter_values(elements), None)?;
            let so_far = take(&results, &rows, None)?;
            let places: ArrayRef = Arc::new(Int64Array::from_value(at as i64 + 1, left.len()));
            let step = lambda.evaluate(
                &[&|| Ok(Arc::clone(&so_far)), &|| Ok(Arc::clone(&elements)), &|| {
                    Ok(Arc::clone(&places))
                }],
                |captures| Ok(take_arrays(captures, &rows, None)?),
            )?;
            let step = cast(&step.into_array(left.len())?, to)?;
            let mut places: Vec<(usize, usize)> = (0..results.len()).map(|row| (0, row)).collect();
            left.iter().enumerate().for_each(|(place, &row)| places[row] = (1, place));
            results = interleave(&[&results, &step], &places)?;
        }
        let known = self.known.iter().enumerate();
        let known: UInt32Array = known.map(|(row, &known)| known.then_some(row as u32)).collect();
        Ok(take(&results, &known, None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_end_where_their_last_kept_element_does() {
        let lists =
            ListArray::from_iter_primitive::<datafusion::arrow::datatypes::Int64Type, _, _>([
                Some(vec![Some(1), Some(2)]),
                None,
                Some(vec![Some(3)]),
            ]);
        let elements = Elements::new(&lists).unwrap();
        assert_eq!(elements.ends([1, 2].into_iter()).unwrap(), [1, 1, 2]);
        assert_eq!(
            elements.places().as_primitive::<datafusion::arrow::datatypes::Int64Type>().values(),
            &[1, 2, 1]
        );
    }
}
