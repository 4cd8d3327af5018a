//! Pipelines in words, for EXPLAIN.

use std::fmt;

use datafusion::physical_expr_common::physical_expr::fmt_sql;
use weft_exec::profile::Parts;

use super::expressions::Expr;

/// Characters of an expression that are shown, at most.
const SHOWN_MAX: usize = 60;

/// A pipeline in words.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// Where rows come from.
    pub(super) source: String,
    /// What is done to them.
    pub(super) steps: Vec<String>,
    /// Where they go.
    pub(super) sink: String,
    /// The numbers of the pipelines that end before.
    pub(super) after: Vec<usize>,
    /// Which steps of the program these are.
    pub(super) parts: Parts,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        for step in &self.steps {
            write!(f, " → {step}")?;
        }
        write!(f, " → {}", self.sink)
    }
}

/// An expression as SQL, or the beginning of it.
pub(super) fn sql(expr: &Expr) -> String {
    shortened(&fmt_sql(expr.as_ref()).to_string())
}

/// Expressions as SQL, with commas between them.
pub(super) fn list<'a>(exprs: impl Iterator<Item = &'a Expr>) -> String {
    let texts: Vec<String> = exprs.map(|expr| fmt_sql(expr.as_ref()).to_string()).collect();
    shortened(&texts.join(", "))
}

/// A text on one line, that is not too long.
pub(super) fn shortened(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = line.char_indices().nth(SHOWN_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shortened("a\nb"), "a b");
        let long = "é".repeat(SHOWN_MAX + 1);
        assert_eq!(shortened(&long), format!("{}…", "é".repeat(SHOWN_MAX)));
    }
}
