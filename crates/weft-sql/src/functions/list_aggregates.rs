//! Aggregate functions of the elements of lists: `list_sum(l)` is `sum` of the elements of each list, and so is
//! `list_aggregate(l, 'sum')`, which becomes it before planning.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, new_empty_array};
use datafusion::arrow::compute::{interleave, nullif};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, EmitTo, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};

use super::elements::Lists;
use super::scalar::{Argument, Call, Rows, list_of};
use crate::null_arguments::other_type;

/// What follows `list_` in the name of a function of lists, and the aggregate function of the elements.
const FUNCTIONS: [(&str, &str); 34] = [
    ("any_value", "any_value"),
    ("approx_count_distinct", "approx_distinct"),
    ("avg", "avg"),
    ("mean", "avg"),
    ("bit_and", "bit_and"),
    ("bit_or", "bit_or"),
    ("bit_xor", "bit_xor"),
    ("bool_and", "bool_and"),
    ("bool_or", "bool_or"),
    ("count", "count"),
    ("entropy", "entropy"),
    ("histogram", "histogram"),
    ("kurtosis", "kurtosis"),
    ("kurtosis_pop", "kurtosis_pop"),
    ("mad", "mad"),
    ("max", "max"),
    ("median", "median"),
    ("min", "min"),
    ("mode", "mode"),
    ("product", "product"),
    ("quantile", "quantile_disc"),
    ("quantile_cont", "percentile_cont"),
    ("quantile_disc", "quantile_disc"),
    ("skewness", "skewness"),
    ("stddev", "stddev"),
    ("stddev_pop", "stddev_pop"),
    ("stddev_samp", "stddev"),
    ("string_agg", "string_agg"),
    ("sum", "sum"),
    ("favg", "favg"),
    ("fsum", "fsum"),
    ("var_pop", "var_pop"),
    ("var_samp", "var"),
    ("variance", "var"),
];

/// A function of lists for each aggregate function that `find` knows.
pub(crate) fn list_aggregates(
    find: impl Fn(&str) -> Option<Arc<AggregateUDF>>,
) -> Vec<Arc<ScalarUDF>> {
    let function = |(name, aggregate): &(&str, &str)| {
        let function = find(aggregate)?;
        let aliases = match *name {
            "min" | "max" => vec![format!("array_{name}")],
            _ => Vec::new(),
        };
        let signature = Signature::user_defined(Volatility::Immutable);
        let of_lists = OfLists { name: format!("list_{name}"), aliases, function, signature };
        Some(Arc::new(ScalarUDF::from(of_lists)))
    };
    FUNCTIONS.iter().filter_map(function).collect()
}

/// An aggregate function of the elements of each list.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfLists {
    name: String,
    aliases: Vec<String>,
    function: Arc<AggregateUDF>,
    signature: Signature,
}

impl OfLists {
    /// The fields of the function's arguments: an element, and what follows the list.
    fn fields(&self, types: &[DataType]) -> DfResult<Vec<FieldRef>> {
        let item = Call { name: &self.name, types }.item(0)?;
        // As for the aggregate function itself, before types are coerced.
        let other = other_type(self.function.name(), std::slice::from_ref(&item));
        let item = other.unwrap_or(item);
        let types = std::iter::once(&item).chain(&types[1..]);
        let field = |(at, data_type): (usize, &DataType)| {
            Arc::new(Field::new(format!("argument_{at}"), data_type.clone(), true))
        };
        let fields: Vec<FieldRef> = types.enumerate().map(field).collect();
        fields_with_udf(&fields, self.function.as_ref())
    }

    /// The results for the lists of some rows.
    fn results(&self, lists: &Lists<'_>, rows: usize, args: AccumulatorArgs) -> DfResult<ArrayRef> {
        let constants = |count: usize| -> DfResult<Vec<ArrayRef>> {
            let literals = args.exprs[1..].iter();
            let literals = literals.filter_map(|expr| expr.downcast_ref::<Literal>());
            literals.map(|literal| literal.value().to_array_of_size(count)).collect()
        };
        if self.function.groups_accumulator_supported(args.clone()) {
            // Some functions take it for granted that each group has values: lists without have a result of their own.
            let filled: Vec<usize> = (0..rows).filter(|&row| !lists.span(row).is_empty()).collect();
            let of_group =
                |(group, &row): (usize, &usize)| std::iter::repeat_n(group, lists.span(row).len());
            let groups: Vec<usize> = filled.iter().enumerate().flat_map(of_group).collect();
            let mut values = vec![Arc::clone(&lists.values)];
            values.extend(constants(groups.len())?);
            let empty = self.function.accumulator(args.clone())?.evaluate()?.to_array()?;
            let mut accumulator = self.function.create_groups_accumulator(args)?;
            accumulator.update_batch(&values, &groups, None, filled.len())?;
            let results = accumulator.evaluate(EmitTo::All)?;
            let mut places = vec![(1, 0); rows];
            filled.iter().enumerate().for_each(|(group, &row)| places[row] = (0, group));
            return Ok(interleave(&[&results, &empty], &places)?);
        }
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            let range = lists.span(row);
            let mut values = vec![lists.values.slice(range.start, range.len())];
            values.extend(constants(range.len())?);
            let mut accumulator = self.function.accumulator(args.clone())?;
            accumulator.update_batch(&values)?;
            results.push(accumulator.evaluate()?);
        }
        match results.is_empty() {
            true => Ok(new_empty_array(args.return_field.data_type())),
            false => ScalarValue::iter_to_array(results),
        }
    }
}

impl ScalarUDFImpl for OfLists {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let mut types: Vec<DataType> =
            self.fields(types)?.iter().map(|field| field.data_type().clone()).collect();
        types[0] = list_of(types[0].clone());
        Ok(types)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok(self.function.return_field(&self.fields(types)?)?.data_type().clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(&self.name, self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let fields = self.fields(&types)?;
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("argument_0", 0))];
        for (at, value) in args.args.iter().enumerate().skip(1) {
            match value {
                ColumnarValue::Scalar(value) => exprs.push(Arc::new(Literal::new(value.clone()))),
                ColumnarValue::Array(_) => {
                    return plan_err!("argument {} of {} has to be constant", at + 1, self.name);
                }
            }
        }
        let schema = Schema::new(fields.clone());
        let accumulator = AccumulatorArgs {
            return_field: self.function.return_field(&fields)?,
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: &self.name,
            is_distinct: false,
            exprs: &exprs,
            expr_fields: &fields,
        };
        let list = Argument::new(&args.args[0])?;
        let is_constant = list.is_constant;
        let count = if is_constant { 1 } else { args.number_rows };
        let result = args.return_field.data_type();
        let rows = Rows { name: &self.name, arguments: vec![list], count, result };
        let lists = Lists::new(&rows, 0)?;
        let results = self.results(&lists, count, accumulator)?;
        let unknown: BooleanArray =
            (0..count).map(|row| Some(lists.range(row).is_none())).collect();
        let results = nullif(&results, &unknown)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?)),
            false => Ok(ColumnarValue::Array(results)),
        }
    }
}
