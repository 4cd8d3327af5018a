//! Scalar functions: each is a name, a function that says which types it takes and gives, and a function that computes
//! an array of results from its arguments.
//!
//! Arguments are cast to the types that the first function asks for. A constant argument is an array of one value and
//! stays so: [`Argument::at`] finds the value that stands for a row.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayAccessor, ArrayRef, StringViewArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue, internal_datafusion_err, plan_err};
use datafusion::functions::unicode::expr_fn::character_length;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};

use crate::types::{ZONE, type_name};

/// Types of a call's arguments, and of its result.
pub(crate) struct Types {
    pub(crate) arguments: Vec<DataType>,
    pub(crate) result: DataType,
}

type TypesOf = fn(&Call<'_>) -> DfResult<Types>;
type Compute = fn(&Rows<'_>) -> DfResult<ArrayRef>;

/// A scalar function.
#[derive(Debug)]
pub(crate) struct Scalar {
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
    types: TypesOf,
    compute: Compute,
}

impl Scalar {
    /// A function without side effects, under its name and others.
    pub(crate) fn function(
        names: &'static [&'static str],
        types: TypesOf,
        compute: Compute,
    ) -> Arc<ScalarUDF> {
        let aliases = names[1..].iter().map(|&alias| alias.to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        let function = Scalar { name: names[0], aliases, signature, types, compute };
        Arc::new(ScalarUDF::from(function))
    }

    fn types(&self, types: &[DataType]) -> DfResult<Types> {
        (self.types)(&Call { name: self.name, types })
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Scalar {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok(self.types(types)?.arguments)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok(self.types(types)?.result)
    }

    /// The length of a text is the function for which pipelines have a step.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        match &args[..] {
            [text] if self.name == "length" && context.get_data_type(text)?.is_string() => {
                let characters = character_length(text.clone());
                Ok(ExprSimplifyResult::Simplified(cast(characters, DataType::Int64)))
            }
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let once = args.args.iter().all(is_constant);
        let arguments = args.args.iter().map(Argument::new).collect::<DfResult<_>>()?;
        let count = if once { 1 } else { args.number_rows };
        let result = args.return_field.data_type();
        let values = (self.compute)(&Rows { name: self.name, arguments, count, result })?;
        match once {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

/// A timestamp without a zone.
pub(crate) const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
/// An interval.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// A time of day.
pub(crate) const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

/// A timestamp with a zone.
pub(crate) fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into()))
}

/// What an argument may be, and what it is cast to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// VARCHAR.
    Text,
    /// BLOB, or VARCHAR as its bytes.
    Bytes,
    /// Any integer, as BIGINT.
    Integer,
    /// Any number, as DOUBLE.
    Double,
    Boolean,
    /// DATE, or TIMESTAMP of any unit, as microseconds.
    Timestamp,
    Interval,
    /// Any type, as it is; text as VARCHAR.
    Any,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Text => "VARCHAR",
            Kind::Bytes => "BLOB",
            Kind::Integer => "BIGINT",
            Kind::Double => "DOUBLE",
            Kind::Boolean => "BOOLEAN",
            Kind::Timestamp => "TIMESTAMP",
            Kind::Interval => "INTERVAL",
            Kind::Any => "ANY",
        }
    }

    /// The type that an argument of this type is cast to; nothing if it is of another kind.
    fn accept(self, given: &DataType) -> Option<DataType> {
        let given = match given {
            DataType::Dictionary(_, values) => values,
            other => other,
        };
        let is_null = given.is_null();
        let (fits, to) = match self {
            Kind::Text => (given.is_string(), DataType::Utf8View),
            Kind::Bytes => (given.is_binary() || given.is_string(), DataType::BinaryView),
            Kind::Integer => (given.is_integer(), DataType::Int64),
            Kind::Double => (given.is_numeric(), DataType::Float64),
            Kind::Boolean => (*given == DataType::Boolean, DataType::Boolean),
            Kind::Timestamp => (is_moment(given), moment_type(given)),
            Kind::Interval => {
                (matches!(given, DataType::Interval(_) | DataType::Duration(_)), INTERVAL)
            }
            Kind::Any if given.is_string() => (true, DataType::Utf8View),
            Kind::Any => (true, given.clone()),
        };
        (fits || is_null).then_some(to)
    }
}

/// True of dates and timestamps.
pub(crate) fn is_moment(given: &DataType) -> bool {
    matches!(given, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

/// The timestamp in microseconds that a date or timestamp becomes, with its zone.
pub(crate) fn moment_type(given: &DataType) -> DataType {
    match given {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        _ => TIMESTAMP,
    }
}

/// A call of a function, whose types are to be found.
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) types: &'a [DataType],
}

impl Call<'_> {
    /// The types of arguments of these kinds.
    ///
    /// # Errors
    /// If there are more or fewer arguments, or one is of another kind.
    pub(crate) fn takes(&self, kinds: &[Kind]) -> DfResult<Vec<DataType>> {
        self.takes_some(kinds, 0)
    }

    /// As [`Call::takes`], but the last arguments, as many as `optional`, may be missing.
    pub(crate) fn takes_some(&self, kinds: &[Kind], optional: usize) -> DfResult<Vec<DataType>> {
        let given = self.types.len();
        if given > kinds.len() || given + optional < kinds.len() {
            return self.refuse(kinds);
        }
        let accepted: Option<Vec<DataType>> =
            kinds.iter().zip(self.types).map(|(kind, given)| kind.accept(given)).collect();
        match accepted {
            Some(types) => Ok(types),
            None => self.refuse(kinds),
        }
    }

    /// The types of any number of arguments of one kind, from `least` on.
    pub(crate) fn takes_any(&self, kind: Kind, least: usize) -> DfResult<Vec<DataType>> {
        let accepted: Option<Vec<DataType>> =
            self.types.iter().map(|given| kind.accept(given)).collect();
        match accepted {
            Some(types) if types.len() >= least => Ok(types),
            _ => plan_err!("{} takes {} and more, not ({})", self.name, kind.name(), self.given()),
        }
    }

    fn refuse<T>(&self, kinds: &[Kind]) -> DfResult<T> {
        let wanted: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        plan_err!("{} takes ({}), not ({})", self.name, wanted.join(", "), self.given())
    }

    /// The names of the types of the arguments.
    pub(crate) fn given(&self) -> String {
        let given: Vec<String> = self.types.iter().map(type_name).collect();
        given.join(", ")
    }
}

/// `types`, with the type of the result.
pub(crate) fn gives(arguments: DfResult<Vec<DataType>>, result: DataType) -> DfResult<Types> {
    Ok(Types { arguments: arguments?, result })
}

/// A list of values of a type.
pub(crate) fn list_of(item: DataType) -> DataType {
    DataType::new_list(item, true)
}

/// The field of the elements of a list, and what is not a list is an error.
pub(crate) fn item_of(list: &DataType) -> DfResult<&FieldRef> {
    match list {
        DataType::List(item) => Ok(item),
        other => plan_err!("{} is not a list", type_name(other)),
    }
}

/// An argument: an array with a value for each row, or with one for all.
pub(crate) struct Argument {
    pub(crate) values: ArrayRef,
    nulls: Option<NullBuffer>,
    pub(crate) is_constant: bool,
}

impl Argument {
    pub(crate) fn new(value: &ColumnarValue) -> DfResult<Argument> {
        let (values, is_constant) = match value {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let nulls = values.logical_nulls();
        Ok(Argument { values, nulls, is_constant })
    }

    /// The place of the value of a row.
    pub(crate) fn at(&self, row: usize) -> usize {
        if self.is_constant { 0 } else { row }
    }

    /// As [`Argument::at`], and nothing for NULL.
    pub(crate) fn known(&self, row: usize) -> Option<usize> {
        let at = self.at(row);
        match &self.nulls {
            Some(nulls) if nulls.is_null(at) => None,
            _ => Some(at),
        }
    }
}

/// The arguments of a function in some rows.
pub(crate) struct Rows<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) count: usize,
    pub(crate) result: &'a DataType,
}

impl Rows<'_> {
    /// An argument as an array of a type.
    pub(crate) fn column<A: 'static>(&self, argument: usize) -> DfResult<Column<'_, A>> {
        let argument = &self.arguments[argument];
        let values = argument.values.as_any().downcast_ref().ok_or_else(|| {
            let given = argument.values.data_type();
            internal_datafusion_err!("{}: an argument of type {given}", self.name)
        })?;
        Ok(Column { argument, values })
    }

    /// As [`Rows::column`], for an argument that may be missing.
    pub(crate) fn optional<A: 'static>(&self, argument: usize) -> DfResult<Option<Column<'_, A>>> {
        match argument < self.arguments.len() {
            true => self.column(argument).map(Some),
            false => Ok(None),
        }
    }

    /// An optional argument that is the same text for all rows.
    ///
    /// # Errors
    /// If it differs from row to row.
    pub(crate) fn constant_text(&self, argument: usize) -> DfResult<Option<&str>> {
        let Some(texts) = self.optional::<StringViewArray>(argument)? else { return Ok(None) };
        match self.arguments[argument].is_constant {
            true => Ok(texts.get(0)),
            false => plan_err!("argument {} of {} has to be constant", argument + 1, self.name),
        }
    }

    /// The result for each row.
    pub(crate) fn each<T, A: Array + FromIterator<Option<T>> + 'static>(
        &self,
        result: impl FnMut(usize) -> DfResult<Option<T>>,
    ) -> DfResult<ArrayRef> {
        Ok(Arc::new((0..self.count).map(result).collect::<DfResult<A>>()?))
    }
}

/// An argument as an array of a type.
pub(crate) struct Column<'a, A> {
    argument: &'a Argument,
    pub(crate) values: &'a A,
}

impl<'a, A> Column<'a, A>
where
    &'a A: ArrayAccessor,
{
    /// The value in a row, nothing if it is NULL.
    pub(crate) fn get(&self, row: usize) -> Option<<&'a A as ArrayAccessor>::Item> {
        self.argument.known(row).map(|at| self.values.value(at))
    }
}
