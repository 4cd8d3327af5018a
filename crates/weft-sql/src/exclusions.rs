//! `EXCLUDE CURRENT ROW | GROUP | TIES | NO OTHERS` of window frames, which neither the grammar nor DataFusion has.
//!
//! The words are left out of a statement's tokens, and a *mark* comes among the keys of the partition: a function without
//! arguments, so that the frame is known by it wherever the window goes. Pipelines take it away from the keys again, and leave
//! the rows out. Whoever evaluates it instead, which DataFusion's operators do, is told that they cannot.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, not_impl_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::sql::sqlparser::ast::{self, WindowSpec, WindowType};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use weft_exec::window::Exclusion;

use crate::grammar::is;
use crate::text::tokenize;

/// The exclusions, the words of each behind EXCLUDE, and its mark.
const MARKS: [(Exclusion, &str, &str); 3] = [
    (Exclusion::CurrentRow, "CURRENT ROW", "exclude_current_row"),
    (Exclusion::Group, "GROUP", "exclude_group"),
    (Exclusion::Ties, "TIES", "exclude_ties"),
];

/// Functions that look at no frame.
const WITHOUT_FRAMES: [&str; 8] =
    ["cume_dist", "dense_rank", "lag", "lead", "ntile", "percent_rank", "rank", "row_number"];

/// Words that a frame begins with.
const UNITS: [&str; 3] = ["groups", "range", "rows"];

/// Puts marks in place of the words.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    // From the last one on, so that places stay.
    let mut end = tokens.len();
    while let Some(at) = tokens[..end].iter().rposition(|token| is(token, "exclude")) {
        end = at;
        let Some((words, mark)) = excluded(tokens, at) else { continue };
        let Some(place) = Place::of(tokens, at) else { continue };
        let span = tokens[at].span;
        tokens.drain(at..=words);
        let Some(mark) = mark else { continue };
        let text = match place {
            Place::Key(_) => format!(" {mark}(),"),
            Place::Keys(_) => format!("PARTITION BY {mark}() "),
        };
        let (Place::Key(place) | Place::Keys(place)) = place;
        let mark = tokenize(&text).unwrap_or_default();
        let mark = mark.into_iter().map(|token| TokenWithSpan { token: token.token, span });
        tokens.splice(place..place, mark);
    }
}

/// The place of the last word behind EXCLUDE, and the mark; no mark of NO OTHERS.
fn excluded(tokens: &[TokenWithSpan], at: usize) -> Option<(usize, Option<&'static str>)> {
    let behind = (at + 1..tokens.len()).filter(|at| is_significant(&tokens[*at]));
    let places: Vec<usize> = behind.take(3).collect();
    let marks = MARKS.iter().map(|(_, words, mark)| (*words, Some(*mark)));
    marks.chain([("NO OTHERS", None)]).find_map(|(words, mark)| {
        let words: Vec<&str> = words.split(' ').collect();
        let are_there = words.iter().zip(&places).all(|(word, place)| is(&tokens[*place], word));
        let closes = places.get(words.len()).is_some_and(|at| tokens[*at].token == Token::RParen);
        (are_there && closes).then(|| (places[words.len() - 1], mark))
    })
}

fn is_significant(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

/// Where a mark is inserted.
enum Place {
    /// Before the first key of the partition.
    Key(usize),
    /// Before the order or the frame of a window whose partition has no keys.
    Keys(usize),
}

impl Place {
    /// That of the window whose frame ends before a token.
    fn of(tokens: &[TokenWithSpan], end: usize) -> Option<Place> {
        let (mut depth, mut own) = (0, Vec::new());
        let opens = (0..end).rev().find(|at| {
            match tokens[*at].token {
                Token::RParen => depth += 1,
                Token::LParen if depth == 0 => return true,
                Token::LParen => depth -= 1,
                _ if depth == 0 && is_significant(&tokens[*at]) => own.push(*at),
                _ => {}
            }
            false
        })?;
        own.reverse();
        let before = tokens[..opens].iter().rfind(|token| is_significant(token))?;
        let is_word = |at: &usize, words: &[&str]| words.iter().any(|word| is(&tokens[*at], word));
        let has_frame = own.iter().any(|at| is_word(at, &UNITS));
        if !has_frame || !is(before, "over") && !is(before, "as") {
            return None;
        }
        // A name may come first.
        let keys = own.iter().take(2).position(|at| is_word(at, &["partition"]));
        match keys {
            Some(partition) => Some(Place::Key(own.get(partition + 1)? + 1)),
            None => own
                .iter()
                .find(|at| is_word(at, &["order"]) || is_word(at, &UNITS))
                .map(|at| Place::Keys(*at)),
        }
    }
}

/// Takes the marks out of the keys of a window's partition.
pub(crate) fn take_marks(spec: &mut WindowSpec) -> Vec<ast::Expr> {
    spec.partition_by.extract_if(.., |key| is_named(key)).collect()
}

/// True of a mark.
fn is_named(key: &ast::Expr) -> bool {
    let ast::Expr::Function(function) = key else { return false };
    let name = function.name.to_string();
    MARKS.iter().any(|(_, _, mark)| *mark == name)
}

/// Takes marks away from the windows of functions that look at no frame.
pub(crate) fn forget_frames(function: &mut ast::Function) {
    let name = function.name.to_string().to_lowercase();
    if let Some(WindowType::WindowSpec(spec)) = &mut function.over
        && WITHOUT_FRAMES.contains(&name.as_str())
    {
        take_marks(spec);
    }
}

/// The text of an expression, with what its marks stand for.
pub(crate) fn as_written(text: String) -> String {
    let mut text = text;
    for (_, words, mark) in MARKS {
        while let Some(start) = text.find(&format!("{mark}()")) {
            let end = start + mark.len() + "()".len();
            let before = text[..start].strip_suffix("PARTITION BY ");
            let (before, behind) = match (text[end..].strip_prefix(", "), before) {
                (None, Some(before)) => (before, text[end..].trim_start()),
                (Some(behind), _) => (&text[..start], behind),
                (None, None) => (text[..start].trim_end_matches(", "), &text[end..]),
            };
            let mut depth = 0;
            let closes = behind.char_indices().find(|(_, char)| {
                depth += match char {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                depth < 0
            });
            let (frame, rest) = behind.split_at(closes.map_or(behind.len(), |(at, _)| at));
            text = format!("{before}{frame} EXCLUDE {words}{rest}");
        }
    }
    text
}

/// The marks.
pub(crate) fn marks() -> impl Iterator<Item = Arc<ScalarUDF>> {
    MARKS.into_iter().map(|(exclusion, words, mark)| {
        let signature = Signature::nullary(Volatility::Volatile);
        Arc::new(ScalarUDF::from(Mark { exclusion, words, mark, signature }))
    })
}

/// True of the name of a mark.
pub(crate) fn is_mark_name(function: &str) -> bool {
    MARKS.iter().any(|(_, _, mark)| *mark == function)
}

/// True of an expression that is different each time that it is evaluated. Marks are not evaluated at all, and say that they
/// are only so that nobody computes one for several windows.
pub(crate) fn is_volatile(expr: &Expr) -> DfResult<bool> {
    use datafusion::common::tree_node::TreeNode;
    expr.exists(|part| {
        let is_mark = matches!(part, Expr::ScalarFunction(call) if is_mark_name(call.func.name()));
        Ok(!is_mark && part.is_volatile_node())
    })
}

/// What the frame of a window leaves out that has this key of its partition, if it is a mark.
pub(crate) fn exclusion(key: &Arc<dyn PhysicalExpr>) -> Option<Exclusion> {
    let function = key.downcast_ref::<ScalarFunctionExpr>()?;
    Some(function.fun().inner().downcast_ref::<Mark>()?.exclusion)
}

#[derive(Debug)]
struct Mark {
    exclusion: Exclusion,
    words: &'static str,
    mark: &'static str,
    signature: Signature,
}

impl PartialEq for Mark {
    fn eq(&self, other: &Mark) -> bool {
        self.mark == other.mark
    }
}

impl Eq for Mark {}

impl std::hash::Hash for Mark {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.mark.hash(state);
    }
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        self.mark
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        not_impl_err!("{}", only_by_pipelines(self.words))
    }
}

/// What is wrong where DataFusion's operators would have to leave rows out of frames.
fn only_by_pipelines(words: &str) -> String {
    format!(
        "EXCLUDE {words} in the frame of a window, which only Weft's pipelines evaluate: they do with \
         engine = 'auto' or 'weft', unless DataFusion has to execute the window because of its types"
    )
}

/// The same for the key of a window's partition, if it is a mark.
pub(crate) fn reason(key: &Arc<dyn PhysicalExpr>) -> Option<String> {
    let exclusion = exclusion(key)?;
    let (_, words, _) = MARKS.iter().find(|(of, ..)| *of == exclusion)?;
    Some(only_by_pipelines(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        crate::text::rewritten(sql, rewrite)
    }

    #[test]
    fn marks_come_among_the_keys_of_the_partition() {
        for (sql, marked) in [
            (
                "sum(x) OVER (ORDER BY a ROWS 2 PRECEDING EXCLUDE TIES)",
                "sum(x) OVER (PARTITION BY exclude_ties() ORDER BY a ROWS 2 PRECEDING )",
            ),
            (
                "sum(x) over (partition by (a), b groups current row exclude current  row ) + 1",
                "sum(x) over (partition by exclude_current_row(), (a), b groups current row ) + 1",
            ),
            (
                "WINDOW v AS (w RANGE CURRENT ROW EXCLUDE GROUP)",
                "WINDOW v AS (w PARTITION BY exclude_group() RANGE CURRENT ROW )",
            ),
            (
                "f(a) OVER (ROWS 1 PRECEDING EXCLUDE NO OTHERS), \
                 g(b) OVER (ORDER BY f(c) OVER (ROWS 1 PRECEDING EXCLUDE TIES) ROWS 1 PRECEDING EXCLUDE GROUP)",
                "f(a) OVER (ROWS 1 PRECEDING ), g(b) OVER (PARTITION BY exclude_group() ORDER BY f(c) OVER \
                 (PARTITION BY exclude_ties() ROWS 1 PRECEDING ) ROWS 1 PRECEDING )",
            ),
        ] {
            assert_eq!(rewritten(sql), marked);
        }
    }

    #[test]
    fn other_words_stay() {
        for sql in [
            "SELECT exclude ties FROM t",
            "SELECT * EXCLUDE (ties) FROM t",
            "(SELECT rows FROM t exclude ties)",
            "sum(x) OVER (ORDER BY exclude ROWS 1 PRECEDING)",
            "sum(x) OVER (ORDER BY a EXCLUDE TIES)",
            "sum(x) OVER (ROWS 1 PRECEDING EXCLUDE OTHERS)",
            "sum(x) OVER (ROWS 1 PRECEDING EXCLUDE TIES, GROUP)",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }

    #[test]
    fn texts_are_as_they_were_written() {
        for (text, written) in [
            (
                "sum(x) OVER (PARTITION BY exclude_ties() ORDER BY f(a) ROWS 2 PRECEDING) + 1",
                "sum(x) OVER (ORDER BY f(a) ROWS 2 PRECEDING EXCLUDE TIES) + 1",
            ),
            (
                "sum(x) OVER (PARTITION BY exclude_group(), a ROWS 2 PRECEDING)",
                "sum(x) OVER (PARTITION BY a ROWS 2 PRECEDING EXCLUDE GROUP)",
            ),
            ("sum(x)", "sum(x)"),
        ] {
            assert_eq!(as_written(text.to_owned()), written);
        }
    }
}
