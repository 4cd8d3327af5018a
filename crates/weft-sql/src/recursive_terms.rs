//! Recursive terms that are refused: those that read the recursion's last rows twice or in a subquery, of which only one gets
//! them, and those that have a row whatever they read, and so never end.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{LogicalPlan, RecursiveQuery};

use crate::error::{Result, SqlError};

/// Refuses recursive terms that cannot be executed.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported).
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    let checked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            check_term(query).map_err(DataFusionError::from)?;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    checked.map(|_| ()).map_err(SqlError::from)
}

fn check_term(query: &RecursiveQuery) -> Result<()> {
    let (name, term) = (&query.name, query.recursive_term.as_ref());
    let mut all = 0;
    term.apply_with_subqueries(|node| count(node, name, &mut all))?;
    let direct = direct_reads(term, name)?;
    if all > 1 || direct < all {
        let problem =
            format!("a recursive term that reads {name} in a subquery, or more than once");
        let hint = format!(
            "read {name} once, in FROM, and compute what the subquery would have as one more column of it"
        );
        return Err(SqlError::not_supported(problem).with_hint(hint));
    }
    let mut is_endless = false;
    term.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node
            && aggregate.group_expr.is_empty()
        {
            is_endless |= direct_reads(&aggregate.input, name)? > 0;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if is_endless {
        let problem = format!("an aggregate of {name} in its recursive term");
        let hint = "it has a row even of nothing, so that the recursion never ends: aggregate in the query that reads the result";
        return Err(SqlError::not_supported(problem).with_hint(hint));
    }
    Ok(())
}

/// How often a plan reads a table but for its subqueries.
fn direct_reads(plan: &LogicalPlan, name: &str) -> DfResult<usize> {
    let mut reads = 0;
    plan.apply(|node| count(node, name, &mut reads))?;
    Ok(reads)
}

fn count(node: &LogicalPlan, name: &str, reads: &mut usize) -> DfResult<TreeNodeRecursion> {
    if let LogicalPlan::TableScan(scan) = node
        && scan.table_name.table() == name
        && scan.table_name.schema().is_none()
    {
        *reads += 1;
    }
    Ok(TreeNodeRecursion::Continue)
}
