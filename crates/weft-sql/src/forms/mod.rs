//! Forms of SQL that people know from DuckDB and that neither the parser nor DataFusion's planner has: each is put in terms of what
//! they have, at the earliest stage that knows enough.
//!
//! - *Tokens* ([`rewrite_tokens`]), before a statement is parsed: what is only another way to write something (`tokens/`).
//! - *The statement*, by `rewrite.rs`: what needs no knowledge of tables ([`intervals`], [`joins`], [`samples`], [`unnests`]).
//! - *The statement and the columns of its tables* ([`write_out`]): `*` with options and COLUMNS, names of items of the select list
//!   in other clauses, ORDER BY ALL, PIVOT and UNPIVOT.
//! - *The plan* ([`planned`]), before it is analyzed: ASOF JOIN, POSITIONAL JOIN, samples and UNNEST.
//! - *Values* ([`values`]) that are evaluated before a statement is planned: LIMIT of a subquery or a percentage, values of PIVOT.

pub(crate) mod intervals;
pub(crate) mod joins;
mod pivots;
pub(crate) mod samples;
mod summarize;
pub(crate) mod text_slices;
mod tokens;
pub(crate) mod unnests;
pub(crate) mod value_rows;
pub(crate) mod values;
mod with_columns;

use datafusion::common::Result as DfResult;
use datafusion::logical_expr::LogicalPlan;

pub(crate) use self::tokens::rewrite as rewrite_tokens;
pub(crate) use self::with_columns::{are_in, has_columns, write_out};

/// Puts what no plan of DataFusion's has in terms of what one may have, before it is analyzed.
///
/// # Errors
/// For what cannot be meant.
pub(crate) fn planned(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    unnests::planned(samples::planned(joins::planned(plan)?)?)
}
