//! Patterns of LIKE with an escape character of their own, and of SIMILAR TO.
//!
//! DataFusion escapes by a backslash only, and takes a pattern of SIMILAR TO for a regular expression that may match anywhere.
//! Here a pattern is translated before it is planned: for LIKE into one with backslashes, for SIMILAR TO into a regular
//! expression that matches the whole text. One that is no constant is translated for each row by a function, which
//! PostgreSQL has as well.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::StringViewArray;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, ValueWithSpan};

use crate::error::{ErrorKind, SqlError};
use crate::functions::call;

/// What escapes where nothing else is said.
const BACKSLASH: char = '\\';

/// Translates the pattern of a LIKE with an escape character, or of a SIMILAR TO.
///
/// # Errors
/// [`ErrorKind::Semantic`] for a bad pattern or escape character.
pub(crate) fn rewrite(expr: &mut Expr) -> ControlFlow<SqlError> {
    match expr {
        Expr::Like { any: false, pattern, escape_char, .. }
        | Expr::ILike { any: false, pattern, escape_char, .. } => {
            if let Some(escape) = escape_char.take() {
                translate(Translation::Like, pattern, escape)?;
            }
        }
        Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
            let escape = escape_char.take();
            let escape = escape.unwrap_or_else(|| string(BACKSLASH.to_string()).into());
            translate(Translation::Similar, pattern, escape)?;
            let op = match negated {
                true => BinaryOperator::PGRegexNotMatch,
                false => BinaryOperator::PGRegexMatch,
            };
            let matched = Expr::BinaryOp { left: text.clone(), op, right: pattern.clone() };
            *expr = Expr::Nested(Box::new(matched));
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

/// Writes `x LIKE ANY (a, b)` out as `x LIKE a OR x LIKE b`.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for patterns that are not written one by one.
pub(crate) fn write_out(expr: &mut Expr) -> ControlFlow<SqlError> {
    let (Expr::Like { any: true, pattern, .. } | Expr::ILike { any: true, pattern, .. }) = &*expr
    else {
        return ControlFlow::Continue(());
    };
    let Some(patterns) = listed(pattern).filter(|patterns| !patterns.is_empty()) else {
        let problem = "LIKE ANY of patterns that are not written one by one";
        return ControlFlow::Break(SqlError::not_supported(problem).with_hint(
            "write x LIKE ANY ('a%', 'b%'), or EXISTS (SELECT 1 FROM unnest(list) AS p(p) WHERE x LIKE p)",
        ));
    };
    let one = |one: &Expr| {
        let mut like = expr.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut like {
            (*any, **pattern) = (false, one.clone());
        }
        like
    };
    let either = patterns.iter().map(one).reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::Or,
        right: Box::new(right),
    });
    if let Some(either) = either {
        *expr = Expr::Nested(Box::new(either));
    }
    ControlFlow::Continue(())
}

/// Patterns that are written one by one, in parentheses or as a list.
fn listed(patterns: &Expr) -> Option<Vec<Expr>> {
    match patterns {
        Expr::Tuple(patterns) => Some(patterns.clone()),
        Expr::Array(list) => Some(list.elem.clone()),
        Expr::Nested(inner) => match inner.as_ref() {
            list @ (Expr::Array(_) | Expr::Nested(_)) => listed(list),
            pattern @ (Expr::Value(_) | Expr::BinaryOp { .. }) => Some(vec![pattern.clone()]),
            _ => None,
        },
        _ => None,
    }
}

/// Translates a constant, and puts a call of a function around any other pattern.
fn translate(
    translation: Translation,
    pattern: &mut Expr,
    escape: ValueWithSpan,
) -> ControlFlow<SqlError> {
    let translated = match (text_of(pattern), escape.value.clone().into_string()) {
        (Some(text), Some(escape)) => match translation.translate(&text, &escape) {
            Ok(translated) => Expr::Value(string(translated).into()),
            Err(problem) => {
                return ControlFlow::Break(SqlError::new(ErrorKind::Semantic, problem));
            }
        },
        _ => call(translation.name(), [pattern.clone(), Expr::Value(escape)]),
    };
    *pattern = translated;
    ControlFlow::Continue(())
}

fn string(text: String) -> Value {
    Value::SingleQuotedString(text)
}

/// The text of a constant.
fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => value.value.clone().into_string(),
        _ => None,
    }
}

/// The functions: `like_escape` and `similar_to_escape`.
pub(crate) fn pattern_functions() -> [Arc<ScalarUDF>; 2] {
    let text = || DataType::Utf8View;
    let two = || TypeSignature::Exact(vec![text(), text()]);
    let one_or_two = vec![TypeSignature::Exact(vec![text()]), two()];
    [(Translation::Like, vec![two()]), (Translation::Similar, one_or_two)].map(
        |(translation, signatures)| {
            let signature = Signature::one_of(signatures, Volatility::Immutable);
            Arc::new(ScalarUDF::from(Escaped { translation, signature }))
        },
    )
}

/// The pattern that is made of a pattern and its escape character.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Escaped {
    translation: Translation,
    signature: Signature,
}

impl ScalarUDFImpl for Escaped {
    fn name(&self) -> &str {
        self.translation.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let mut values = args.args;
        if values.len() == 1 {
            let escape = ScalarValue::Utf8View(Some(BACKSLASH.to_string()));
            values.push(ColumnarValue::Scalar(escape));
        }
        let arrays = ColumnarValue::values_to_arrays(&values)?;
        let [patterns, escapes] = &arrays[..] else {
            return internal_err!("{} has two arguments", self.name());
        };
        let pairs = patterns.as_string_view().iter().zip(escapes.as_string_view());
        let translated = pairs.map(|pair| match pair {
            (Some(pattern), Some(escape)) => match self.translation.translate(pattern, escape) {
                Ok(translated) => Ok(Some(translated)),
                Err(problem) => exec_err!("{problem}"),
            },
            _ => Ok(None),
        });
        let translated = translated.collect::<DfResult<StringViewArray>>()?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&translated, 0)?),
            false => ColumnarValue::Array(Arc::new(translated)),
        })
    }
}

/// What a pattern is translated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Translation {
    /// LIKE with backslashes.
    Like,
    /// A regular expression.
    Similar,
}

impl Translation {
    /// The name of the function.
    fn name(self) -> &'static str {
        match self {
            Translation::Like => "like_escape",
            Translation::Similar => "similar_to_escape",
        }
    }

    /// The pattern, or what is wrong with it or with the escape character; an empty one escapes nothing.
    fn translate(self, pattern: &str, escape: &str) -> Result<String, String> {
        let mut escapes = escape.chars();
        let character = escapes.next();
        if escapes.next().is_some() {
            return Err(format!("an escape character is one character, not '{escape}'"));
        }
        match self {
            Translation::Like => like(pattern, character),
            Translation::Similar => similar(pattern, character),
        }
    }
}

/// The character after an escape character.
fn escaped(characters: &mut impl Iterator<Item = char>) -> Result<char, String> {
    let problem = || "a pattern must not end with its escape character".to_owned();
    characters.next().ok_or_else(problem)
}

/// A pattern of LIKE with backslashes.
fn like(pattern: &str, escape: Option<char>) -> Result<String, String> {
    let mut written = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let (character, is_plain) = match Some(character) == escape {
            true => (escaped(&mut characters)?, true),
            false => (character, false),
        };
        if character == BACKSLASH || is_plain && matches!(character, '%' | '_') {
            written.push(BACKSLASH);
        }
        written.push(character);
    }
    Ok(written)
}

/// A regular expression that matches the texts that a pattern of SIMILAR TO does.
fn similar(pattern: &str, escape: Option<char>) -> Result<String, String> {
    // The dot is any character, that which ends a line as well.
    let mut written = String::from("^(?s:");
    let mut open = 0_usize;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == escape => push_escaped(escaped(&mut characters)?, &mut written),
            '%' => written.push_str(".*"),
            '_' => written.push('.'),
            '[' => push_class(&mut characters, escape, &mut written)?,
            '(' => {
                open += 1;
                written.push_str("(?:");
            }
            ')' => {
                let problem = || "a pattern of SIMILAR TO has a ) without a (".to_owned();
                open = open.checked_sub(1).ok_or_else(problem)?;
                written.push(')');
            }
            '|' | '*' | '+' | '?' | '{' | '}' => written.push(character),
            other => push_plain(other, &mut written),
        }
    }
    if open > 0 {
        return Err("a pattern of SIMILAR TO has a ( without a )".to_owned());
    }
    written.push_str(")$");
    Ok(written)
}

/// What is escaped stands for itself, but for the letters of PostgreSQL's classes.
fn push_escaped(character: char, into: &mut String) {
    match character {
        'd' | 'D' | 's' | 'S' | 'w' | 'W' => into.extend([BACKSLASH, character]),
        other => push_plain(other, into),
    }
}

/// A character that stands for itself.
fn push_plain(character: char, into: &mut String) {
    if r"\.+*?()|[]{}^$#&-~".contains(character) {
        into.push(BACKSLASH);
    }
    into.push(character);
}

/// What is in brackets, after the first.
fn push_class(
    characters: &mut std::iter::Peekable<impl Iterator<Item = char>>,
    escape: Option<char>,
    into: &mut String,
) -> Result<(), String> {
    let problem = || "a pattern of SIMILAR TO has a [ without a ]".to_owned();
    into.push('[');
    if characters.next_if_eq(&'^').is_some() {
        into.push('^');
    }
    let mut is_first = true;
    loop {
        let character = characters.next().ok_or_else(problem)?;
        match character {
            _ if Some(character) == escape => push_escaped(escaped(characters)?, into),
            ']' if !is_first => break,
            '-' => into.push('-'),
            '[' if characters.next_if_eq(&':').is_some() => {
                into.push_str("[:");
                loop {
                    let character = characters.next().ok_or_else(problem)?;
                    into.push(character);
                    if character == ']' {
                        break;
                    }
                }
            }
            other => push_plain(other, into),
        }
        is_first = false;
    }
    into.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_like_get_backslashes() {
        let check = |pattern, escape, expected: &str| {
            assert_eq!(Translation::Like.translate(pattern, escape).as_deref(), Ok(expected));
        };
        check("10!%%", "!", r"10\%%");
        check("a!!b!_!c_", "!", r"a!b\_c_");
        check(r"a\b%", "!", r"a\\b%");
        check(r"a\%", "", r"a\\%");
        check(r"a\%", r"\", r"a\%");
        check("äßü%", "ß", "äü%");
        assert!(Translation::Like.translate("a!", "!").is_err());
        assert!(Translation::Like.translate("a", "!!").is_err());
    }

    #[test]
    fn patterns_of_similar_to_are_regular_expressions() {
        let check = |pattern, expected: &str| {
            let translated = Translation::Similar.translate(pattern, r"\");
            assert_eq!(translated, Ok(format!("^(?s:{expected})$")), "{pattern}");
        };
        check("a%_", "a.*.");
        check("(a|b){2,3}", "(?:a|b){2,3}");
        check("a{2,}", "a{2,}");
        check("^a.b$", r"\^a\.b\$");
        check(r"\%\_\d", r"%_\d");
        check("[^]a-z[:digit:]&[]+", r"[^\]a-z[:digit:]\&\[]+");
        for bad in ["(a", "a)|(b", "[a", "[]", "a\\"] {
            assert!(Translation::Similar.translate(bad, r"\").is_err(), "{bad}");
        }
    }
}
