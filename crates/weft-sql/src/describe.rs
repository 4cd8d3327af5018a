//! Words for what a plan or a table has.

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::array_value_to_string;
use weft_store::{Op, Predicate, Scalar};

use crate::hex::hex_digits;
use crate::pushdown::scalar_value;

/// A condition on a column of a type as people write it.
pub(crate) fn condition(column: &str, data_type: &DataType, predicate: &Predicate) -> String {
    let constant = |value: &Scalar| value_in_words(value, data_type);
    match predicate {
        Predicate::Compare(op, value) => {
            let op = match op {
                Op::Eq => "=",
                Op::NotEq => "<>",
                Op::Lt => "<",
                Op::LtEq => "<=",
                Op::Gt => ">",
                Op::GtEq => ">=",
            };
            format!("{column} {op} {}", constant(value))
        }
        Predicate::In(values) => {
            let values: Vec<String> = values.iter().map(constant).collect();
            format!("{column} IN ({})", values.join(", "))
        }
        Predicate::IsNull => format!("{column} IS NULL"),
        Predicate::IsNotNull => format!("{column} IS NOT NULL"),
        Predicate::StartsWith(prefix) => {
            format!("{column} LIKE '{}%'", String::from_utf8_lossy(prefix))
        }
    }
}

/// A value of a column of a type as people write it.
pub(crate) fn value_in_words(value: &Scalar, data_type: &DataType) -> String {
    of_type(value, data_type).unwrap_or_else(|| constant(value))
}

/// A date, time or decimal, which are numbers in the store.
fn of_type(value: &Scalar, data_type: &DataType) -> Option<String> {
    if !(data_type.is_temporal() || data_type.is_decimal()) {
        return None;
    }
    let array = scalar_value(value, data_type)?.to_array().ok()?;
    let text = array_value_to_string(&array, 0).ok()?;
    Some(if data_type.is_decimal() { text } else { format!("'{text}'") })
}

/// A value as the store has it.
fn constant(value: &Scalar) -> String {
    match value {
        Scalar::Null => "NULL".to_owned(),
        Scalar::Boolean(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::UInt(value) => value.to_string(),
        Scalar::Int128(value) => value.to_string(),
        Scalar::Float32(value) => value.to_string(),
        Scalar::Float64(value) => value.to_string(),
        Scalar::Bytes(value) => match std::str::from_utf8(value) {
            Ok(text) => format!("'{text}'"),
            Err(_) => format!("X'{}'", hex_digits(value)),
        },
        Scalar::Interval { months, days, nanoseconds } => {
            format!("INTERVAL '{months} months {days} days {nanoseconds} ns'")
        }
        Scalar::List(values) => format!("[{}]", list(values)),
        Scalar::Struct(values) => format!("({})", list(values)),
    }
}

fn list(values: &[Scalar]) -> String {
    values.iter().map(constant).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_people_write_them() {
        let shown = |data_type: &DataType, value: Scalar| {
            condition("c", data_type, &Predicate::Compare(Op::Lt, value))
        };
        assert_eq!(shown(&DataType::Date32, Scalar::Int(9204)), "c < '1995-03-15'");
        assert_eq!(shown(&DataType::Decimal128(15, 2), Scalar::Int128(5)), "c < 0.05");
        assert_eq!(shown(&DataType::Int64, Scalar::Int(5)), "c < 5");
        let text = Scalar::Bytes(b"a".to_vec());
        assert_eq!(shown(&DataType::Utf8View, text), "c < 'a'");
    }
}
