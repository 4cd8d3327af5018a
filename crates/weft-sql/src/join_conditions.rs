//! Joins whose grammar differs from the one of DataFusion: it takes a join without a condition for a cross join, and the name
//! of a kind of join that it does not know for an alias.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, Spanned, TableAlias, TableFactor, TableWithJoins,
};

use crate::error::{ErrorKind, Position, SqlError};

/// Words before JOIN that other databases know.
const KINDS: [&str; 4] = ["any", "asof", "positional", "paste"];

/// Refuses joins that lack their condition; those within the tables apart.
///
/// # Errors
/// [`ErrorKind::Syntax`], and [`ErrorKind::NotSupported`] if the kind of join is not known.
pub(crate) fn check(table: &TableWithJoins) -> ControlFlow<SqlError> {
    let mut left = &table.relation;
    for join in &table.joins {
        if lacks_condition(&join.join_operator) {
            return ControlFlow::Break(match kind(left) {
                Some(kind) => SqlError::not_supported(format!("{kind} JOIN")),
                None => lacking(join),
            });
        }
        left = &join.relation;
    }
    ControlFlow::Continue(())
}

fn lacks_condition(operator: &JoinOperator) -> bool {
    use JoinOperator::{
        Anti, FullOuter, Inner, Left, LeftAnti, LeftOuter, LeftSemi, Right, RightAnti, RightOuter,
        RightSemi, Semi,
    };
    match operator {
        JoinOperator::Join(on)
        | Inner(on)
        | Left(on)
        | LeftOuter(on)
        | Right(on)
        | RightOuter(on)
        | FullOuter(on)
        | Semi(on)
        | LeftSemi(on)
        | RightSemi(on)
        | Anti(on)
        | LeftAnti(on)
        | RightAnti(on) => matches!(on, JoinConstraint::None),
        _ => false,
    }
}

/// The word before JOIN that was taken for the table's alias.
fn kind(table: &TableFactor) -> Option<String> {
    let (TableFactor::Table { alias, .. }
    | TableFactor::Derived { alias, .. }
    | TableFactor::TableFunction { alias, .. }
    | TableFactor::Function { alias, .. }
    | TableFactor::NestedJoin { alias, .. }
    | TableFactor::UNNEST { alias, .. }) = table
    else {
        return None;
    };
    let TableAlias { explicit: false, name, columns, .. } = alias.as_ref()? else { return None };
    let is_kind = KINDS.iter().any(|kind| name.value.eq_ignore_ascii_case(kind));
    let is_found = name.quote_style.is_none() && columns.is_empty() && is_kind;
    is_found.then(|| name.value.to_ascii_uppercase())
}

fn lacking(join: &Join) -> SqlError {
    let message = "syntax error: a JOIN without ON or USING";
    let error = SqlError::new(ErrorKind::Syntax, message)
        .with_hint("name the condition of the join, or write CROSS JOIN for all pairs of rows");
    let start = join.relation.span().start;
    match start.line {
        0 => error,
        line => error.with_position(Position { line, column: start.column }),
    }
}
