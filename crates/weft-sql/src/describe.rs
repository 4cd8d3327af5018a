//! Words for what a plan or a table has.

use weft_store::{Op, Predicate, Scalar};

use crate::hex::hex_digits;

/// A condition on a column as people write it.
pub(crate) fn condition(column: &str, predicate: &Predicate) -> String {
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

/// A value as the store has it: dates, times and decimals are numbers there.
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
