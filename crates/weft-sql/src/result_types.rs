//! The types of a query's columns as they come when it is executed.
//!
//! DataFusion plans a query first with the types of what is written: a CASE has the type of its first branch, a UNION
//! that of its first query. Only the analyzer coerces them. A schema that is kept, or shown, is that of the analyzed plan.

use arrow::datatypes::Schema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;

use crate::error::Result;
use crate::optimize::analyzed;
use crate::uuids::shown_schema;

/// The columns of a query with the types that its rows have.
///
/// # Errors
/// If its types cannot be coerced.
pub(crate) fn result_schema(state: &SessionState, plan: &LogicalPlan) -> Result<Schema> {
    Ok(shown_schema(analyzed(state, plan.clone(), || {})?.schema().as_arrow()))
}
