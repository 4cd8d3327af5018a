//! Functions of Weft's own: those that DataFusion has for fewer types, or with another type.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, downcast_integer_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::bitwise::bitwise_not;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::at_time_zone::at_time_zone;
use crate::date_trunc::DateTrunc;
use crate::one_argument::compute_one;
use crate::types::{ZONE, field_type_name, type_name};

/// All of them.
pub(crate) fn own_functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        at_time_zone(),
        Arc::new(ScalarUDF::from(BitwiseNot::new())),
        Arc::new(ScalarUDF::from(DateTrunc::new())),
        Arc::new(ScalarUDF::from(Now::new())),
        Arc::new(ScalarUDF::from(OctetLength::new())),
        Arc::new(ScalarUDF::from(TypeOf::new())),
    ]
}

/// `now()`: when the statement started, with a time zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    signature: Signature,
    aliases: [String; 1],
}

impl Now {
    fn new() -> Now {
        let signature = Signature::nullary(Volatility::Stable);
        Now { signature, aliases: ["current_timestamp".to_owned()] }
    }
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())))
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        let Some(start) = context.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let micros = Some(start.timestamp_micros());
        let literal = ScalarValue::TimestampMicrosecond(micros, Some(ZONE.into()));
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(literal, None)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        internal_err!("now() was not replaced by the start of the statement")
    }
}

/// `~x`: an integer with all bits the other way.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BitwiseNot {
    signature: Signature,
}

impl BitwiseNot {
    fn new() -> BitwiseNot {
        BitwiseNot { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for BitwiseNot {
    fn name(&self) -> &str {
        "bitwise_not"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [integer] if integer.is_integer() => Ok(integer.clone()),
            [DataType::Null] => Ok(DataType::Int64),
            [other] => plan_err!("~ takes an integer, not {}", type_name(other)),
            _ => plan_err!("~ has one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |values| {
            downcast_integer_array!(
                values => Ok(Arc::new(bitwise_not(values)?)),
                _ => Ok(cast(values, &DataType::Int64)?)
            )
        })
    }
}

/// `octet_length(x)`: the number of bytes of text or of a BLOB.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OctetLength {
    signature: Signature,
}

impl OctetLength {
    fn new() -> OctetLength {
        OctetLength { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OctetLength {
    fn name(&self) -> &str {
        "octet_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type] if data_type.is_string() || data_type.is_binary() => Ok(DataType::Int64),
            [DataType::Null] => Ok(DataType::Int64),
            [other] => {
                plan_err!("octet_length takes VARCHAR or BLOB, not {}", type_name(other))
            }
            _ => plan_err!("octet_length has one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        if args.args.iter().all(|value| value.data_type() == DataType::Null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::Int64(None)));
        }
        let lengths = |values: &ArrayRef| Ok(cast(&length(values)?, &DataType::Int64)?);
        compute_one(self.name(), &args.args, lengths)
    }
}

/// `typeof(x)`: the name of the type of an expression.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

impl TypeOf {
    fn new() -> TypeOf {
        TypeOf { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Some(field) = args.arg_fields.first() else {
            return plan_err!("typeof has one argument");
        };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(field_type_name(field)))))
    }
}
