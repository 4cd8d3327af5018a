//! `hex` and `to_hex` of numbers, text and BLOBs.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::{Result as DfResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::one_argument::compute_one;
use crate::types::type_name;

/// Both functions.
pub(crate) fn hex_functions() -> [Arc<ScalarUDF>; 2] {
    let function = |name| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Hex { name, signature }))
    };
    [function(HEX), function("to_hex")]
}

/// Writes numbers in capitals, as DuckDB does; `to_hex` writes them as PostgreSQL does. Bytes are written in capitals.
const HEX: &str = "hex";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Hex {
    name: &'static str,
    signature: Signature,
}

impl Hex {
    fn hex(&self, values: &ArrayRef) -> DfResult<ArrayRef> {
        let number = |value: u64| match self.name {
            HEX => format!("{value:X}"),
            _ => format!("{value:x}"),
        };
        let texts: StringViewArray = match values.data_type() {
            DataType::UInt64 => {
                values.as_primitive::<UInt64Type>().iter().map(|value| value.map(number)).collect()
            }
            integer if integer.is_integer() => cast(values, &DataType::Int64)?
                .as_primitive::<Int64Type>()
                .iter()
                .map(|value| value.map(|value| number(value.cast_unsigned())))
                .collect(),
            text if text.is_string() => cast(values, &DataType::Utf8View)?
                .as_string_view()
                .iter()
                .map(|text| text.map(|text| hex_digits(text.as_bytes())))
                .collect(),
            _ => cast(values, &DataType::BinaryView)?
                .as_binary_view()
                .iter()
                .map(|blob| blob.map(hex_digits))
                .collect(),
        };
        Ok(Arc::new(texts))
    }
}

/// Two capital digits for each byte.
pub(crate) fn hex_digits(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

impl ScalarUDFImpl for Hex {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [value] if value.is_integer() || value.is_string() || value.is_binary() => {
                Ok(DataType::Utf8View)
            }
            [DataType::Null] => Ok(DataType::Utf8View),
            [other] => {
                let other = type_name(other);
                plan_err!("{} takes an integer, VARCHAR or BLOB, not {other}", self.name)
            }
            _ => plan_err!("{} has one argument", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name, &args.args, |values| self.hex(values))
    }
}
