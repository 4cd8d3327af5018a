//! Greatest lengths: `VARCHAR(n)`, `CHAR(n)`, `VARBINARY(n)` and the like.
//!
//! A column's limit is kept in the catalog and every row that is written is checked (`assign.rs`).
//! CHAR(n) is VARCHAR(n): nothing is padded, nothing cut; CHAR alone is CHAR(1), as in the standard. A cast to
//! VARCHAR(n) cuts, as the standard has it. Where a limit could not be kept, it is refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, CastKind, CharLengthUnits, CharacterLength, DataType as SqlType, Expr,
    StructField, VisitMut, VisitorMut,
};

use crate::error::{ErrorKind, Result, SqlError};
use crate::functions::call;

/// Greatest limit, in characters or bytes.
const LENGTH_MAX: u64 = 1 << 30;

/// What a type says about the length of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    None,
    Characters(u64),
    Bytes(u64),
}

/// The greatest length of a column of this type, in characters of text or bytes.
///
/// # Errors
/// [`ErrorKind::Semantic`] for impossible lengths, [`ErrorKind::NotSupported`] where one cannot be kept:
/// inside lists and structs, and of text in bytes.
pub(crate) fn column_limit(sql_type: &SqlType) -> Result<Option<u32>> {
    refuse_nested(sql_type)?;
    match limit(sql_type)? {
        Limit::None => Ok(None),
        Limit::Characters(length) | Limit::Bytes(length) => match u32::try_from(length) {
            Ok(length) if (1..=LENGTH_MAX).contains(&u64::from(length)) => Ok(Some(length)),
            _ => Err(impossible(sql_type)),
        },
    }
}

/// Makes casts to types with a length cut what is longer.
///
/// # Errors
/// As [`column_limit`], and for casts that cannot cut.
pub(crate) fn rewrite_casts<T: VisitMut>(node: &mut T) -> Result<()> {
    match node.visit(&mut Casts) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn limit(sql_type: &SqlType) -> Result<Limit> {
    let length = match sql_type {
        SqlType::Char(length) | SqlType::Character(length) => {
            let one = CharacterLength::IntegerLength { length: 1, unit: None };
            Some(length.unwrap_or(one))
        }
        SqlType::Varchar(length)
        | SqlType::Nvarchar(length)
        | SqlType::CharVarying(length)
        | SqlType::CharacterVarying(length) => *length,
        SqlType::String(Some(length)) => return Ok(Limit::Characters(*length)),
        SqlType::Binary(Some(length))
        | SqlType::Blob(Some(length))
        | SqlType::Bytes(Some(length)) => return Ok(Limit::Bytes(*length)),
        SqlType::Varbinary(Some(length)) => {
            return Ok(match length {
                ast::BinaryLength::IntegerLength { length } => Limit::Bytes(*length),
                ast::BinaryLength::Max => Limit::None,
            });
        }
        _ => None,
    };
    match length {
        None | Some(CharacterLength::Max) => Ok(Limit::None),
        Some(CharacterLength::IntegerLength { unit: Some(CharLengthUnits::Octets), .. }) => {
            Err(SqlError::not_supported(format!("{sql_type}: a length of text in bytes"))
                .with_hint("give the length in characters"))
        }
        Some(CharacterLength::IntegerLength { length, .. }) => Ok(Limit::Characters(length)),
    }
}

fn impossible(sql_type: &SqlType) -> SqlError {
    SqlError::new(
        ErrorKind::Semantic,
        format!("{sql_type} is impossible: the length is from 1 to {LENGTH_MAX}"),
    )
    .with_hint("VARCHAR and BLOB without a length hold values of any")
}

/// Refuses lengths inside lists and structs.
fn refuse_nested(sql_type: &SqlType) -> Result<()> {
    let inner: Vec<&SqlType> = match sql_type {
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(inner)
            | ArrayElemTypeDef::SquareBracket(inner, _)
            | ArrayElemTypeDef::Parenthesis(inner),
        ) => vec![inner],
        SqlType::Struct(fields, _) => {
            fields.iter().map(|field: &StructField| &field.field_type).collect()
        }
        _ => return Ok(()),
    };
    for inner in inner {
        if limit(inner)? != Limit::None {
            return Err(SqlError::not_supported(format!("{inner} inside a list or struct"))
                .with_hint("leave the length out there: VARCHAR or BLOB"));
        }
        refuse_nested(inner)?;
    }
    Ok(())
}

struct Casts;

impl VisitorMut for Casts {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let data_type = match expr {
            Expr::Cast { data_type, .. }
            | Expr::TypedString(ast::TypedString { data_type, .. }) => data_type,
            _ => return ControlFlow::Continue(()),
        };
        let length = match cast_limit(data_type) {
            Ok(None) => return ControlFlow::Continue(()),
            Ok(Some(length)) => length,
            Err(error) => return ControlFlow::Break(error),
        };
        match expr {
            Expr::Cast { data_type, .. } => *data_type = SqlType::Varchar(None),
            Expr::TypedString(ast::TypedString { value, .. }) => {
                *expr = Expr::Cast {
                    kind: CastKind::Cast,
                    expr: Box::new(Expr::Value(value.clone())),
                    data_type: SqlType::Varchar(None),
                    array: false,
                    format: None,
                };
            }
            _ => {}
        }
        let text = std::mem::replace(expr, Expr::value(ast::Value::Null));
        *expr = first_characters(text, length);
        ControlFlow::Continue(())
    }
}

/// How many characters a cast to this type leaves.
fn cast_limit(sql_type: &SqlType) -> Result<Option<u32>> {
    if let SqlType::Char(None) | SqlType::Character(None) = sql_type {
        return Err(SqlError::new(
            ErrorKind::Semantic,
            format!("a cast to {sql_type} leaves one character of a text"),
        )
        .with_hint("write VARCHAR for all of it, or CHAR(1) for one"));
    }
    let length = column_limit(sql_type)?;
    match limit(sql_type)? {
        Limit::Bytes(_) => Err(SqlError::not_supported(format!("a cast to {sql_type}"))
            .with_hint("leave the length out: BLOB")),
        _ => Ok(length),
    }
}

/// `substr(text, 1, length)`
fn first_characters(text: Expr, length: u32) -> Expr {
    let number = |number: String| Expr::value(ast::Value::Number(number, false));
    call("substr", [text, number("1".to_owned()), number(length.to_string())])
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    fn limit_of(name: &str) -> Result<Option<u32>> {
        let mut parser = Parser::new(&DIALECT).try_with_sql(name).unwrap();
        column_limit(&parser.parse_data_type().unwrap())
    }

    #[test]
    fn reads_lengths() {
        for (name, expected) in [
            ("VARCHAR", None),
            ("VARCHAR(10)", Some(10)),
            ("CHARACTER VARYING(7)", Some(7)),
            ("CHAR", Some(1)),
            ("CHAR(3)", Some(3)),
            ("VARBINARY(16)", Some(16)),
            ("BLOB", None),
            ("INTEGER", None),
            ("VARCHAR[]", None),
        ] {
            assert_eq!(limit_of(name).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn refuses_what_cannot_be_kept() {
        for name in ["VARCHAR(0)", "VARCHAR(5000000000)", "VARCHAR(5)[]", "VARCHAR(3 OCTETS)"] {
            assert!(limit_of(name).is_err(), "{name}");
        }
    }
}
