//! The walk of the rules that change the expressions of a plan.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result as DfResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Union};

/// Applies `rewrite` to every expression of a plan and of the subqueries in it, from the leaves up. It
/// gets the columns that the expression may use. Names stay, types may change: everything above learns
/// of it.
///
/// # Errors
/// Those of `rewrite`, and of types that do not fit any more.
pub(crate) fn rewrite_expressions(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> DfResult<Transformed<Expr>>,
) -> DfResult<LogicalPlan> {
    rewrite_nodes(plan, rewrite, |node| Ok(Transformed::no(node)))
}

/// As [`rewrite_expressions`]; each node is then given to `finish`, before those above it are looked at.
///
/// # Errors
/// Those of `rewrite` and `finish`, and of types that do not fit any more.
pub(crate) fn rewrite_nodes(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> DfResult<Transformed<Expr>>,
    finish: impl Fn(LogicalPlan) -> DfResult<Transformed<LogicalPlan>>,
) -> DfResult<LogicalPlan> {
    let any_changed = Cell::new(false);
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        let node = rewrite_node(plan, &rewrite, &any_changed)?;
        let finished = node.transform_data(&finish)?;
        any_changed.set(any_changed.get() || finished.transformed);
        Ok(finished)
    })?;
    Ok(rewritten.data)
}

fn rewrite_node(
    plan: LogicalPlan,
    rewrite: &impl Fn(Expr, &DFSchema) -> DfResult<Transformed<Expr>>,
    any_changed: &Cell<bool>,
) -> DfResult<Transformed<LogicalPlan>> {
    // The numbers of a LIMIT are not computed.
    if let LogicalPlan::Limit(_) | LogicalPlan::Union(_) | LogicalPlan::SubqueryAlias(_) = &plan {
        return recompute(Transformed::no(plan), any_changed);
    }
    let schema = known_columns(&plan);
    let names = NamePreserver::new(&plan);
    let mapped = plan.map_expressions(|expr| {
        // Wide tables have thousands of columns.
        if is_plain(&expr) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?;
    any_changed.set(any_changed.get() || mapped.transformed);
    recompute(mapped, any_changed)
}

/// The columns that the expressions of a node may use.
fn known_columns(plan: &LogicalPlan) -> DFSchemaRef {
    match (plan, plan.inputs().as_slice()) {
        (LogicalPlan::TableScan(scan), _) => Arc::clone(&scan.projected_schema),
        (_, [input]) => Arc::clone(input.schema()),
        (_, inputs) => Arc::new(merge_schema(inputs)),
    }
}

/// True of an expression that is the same for all rules.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Literal(..) => true,
        Expr::Alias(alias) => is_plain(&alias.expr),
        _ => false,
    }
}

/// Computes the columns of all nodes of a plan, and of the subqueries in it, anew.
///
/// # Errors
/// Those of types that do not fit any more.
pub(crate) fn recompute_all(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let any_changed = Cell::new(true);
    let recomputed =
        plan.transform_up_with_subqueries(|plan| recompute(Transformed::no(plan), &any_changed))?;
    Ok(recomputed.data)
}

/// Computes the columns of a node anew once anything below it, or beside, has changed.
fn recompute(
    plan: Transformed<LogicalPlan>,
    any_changed: &Cell<bool>,
) -> DfResult<Transformed<LogicalPlan>> {
    if !any_changed.get() {
        return Ok(plan);
    }
    plan.map_data(|plan| match plan {
        // DataFusion leaves the columns of a union as they were.
        LogicalPlan::Union(union) => Ok(LogicalPlan::Union(retype(union)?)),
        other => other.recompute_schema(),
    })
}

/// A union whose columns have the types of its first query, as before types are coerced.
///
/// # Errors
/// If the columns have the same names.
pub(crate) fn retype(union: Union) -> DfResult<Union> {
    let Some(first) = union.inputs.first() else { return Ok(union) };
    let fields = union.schema.iter().zip(first.schema().fields()).map(|((table, field), first)| {
        let retyped = field.as_ref().clone().with_data_type(first.data_type().clone());
        (table.cloned(), Arc::new(retyped))
    });
    let metadata = union.schema.metadata().clone();
    let schema = DFSchema::new_with_metadata(fields.collect(), metadata)?;
    Ok(Union { schema: Arc::new(schema), inputs: union.inputs })
}
