//! `SELECT 1 UNION ALL SELECT 2 …`, which programs write with thousands of queries: rows of constants become one list of
//! rows. As queries, each would be an operator with a partition of its own.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result as DfResult};
use datafusion::logical_expr::{Expr, LogicalPlan, Union, Values};
use datafusion::optimizer::AnalyzerRule;

/// Rows of constants next to each other that become one list, at least.
const ROWS_MIN: usize = 16;

/// Puts lists in place of constants. To be applied after types were coerced, when all queries of a union have the same.
#[derive(Debug)]
pub(crate) struct ConstantUnions;

impl AnalyzerRule for ConstantUnions {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let rewritten = plan.transform_down_with_subqueries(|plan| match plan {
            LogicalPlan::Union(union) => Ok(rewrite(union)),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "constant_unions"
    }
}

fn rewrite(union: Union) -> Transformed<LogicalPlan> {
    let mut queries = Vec::new();
    flatten(&union.inputs, &union.schema, &mut queries);
    let mut inputs: Vec<Arc<LogicalPlan>> = Vec::with_capacity(queries.len());
    let mut changed = false;
    let is_constant = |query: &Arc<LogicalPlan>| constants(query).is_some();
    for run in queries.chunk_by(|one, next| is_constant(one) == is_constant(next)) {
        if run.len() < ROWS_MIN || !is_constant(&run[0]) {
            inputs.extend(run.iter().cloned());
            continue;
        }
        let rows = run.iter().filter_map(constants).map(<[Expr]>::to_vec).collect();
        let values = Values { schema: Arc::clone(&union.schema), values: rows };
        inputs.push(Arc::new(LogicalPlan::Values(values)));
        changed = true;
    }
    if !changed {
        return Transformed::no(LogicalPlan::Union(union));
    }
    let plan = match inputs.as_slice() {
        [only] => only.as_ref().clone(),
        _ => LogicalPlan::Union(Union { inputs, schema: union.schema }),
    };
    Transformed::new(plan, true, TreeNodeRecursion::Continue)
}

/// The queries of a union and of those that lie in it, in their order.
fn flatten(inputs: &[Arc<LogicalPlan>], schema: &DFSchemaRef, queries: &mut Vec<Arc<LogicalPlan>>) {
    for input in inputs {
        match input.as_ref() {
            LogicalPlan::Union(inner) if have_one_type(&inner.schema, schema) => {
                flatten(&inner.inputs, schema, queries);
            }
            _ => queries.push(Arc::clone(input)),
        }
    }
}

fn have_one_type(one: &DFSchemaRef, other: &DFSchemaRef) -> bool {
    one.fields().len() == other.fields().len()
        && one
            .fields()
            .iter()
            .zip(other.fields())
            .all(|(one, other)| one.data_type() == other.data_type())
}

/// The columns of a query that has one row of constants.
fn constants(query: &Arc<LogicalPlan>) -> Option<&[Expr]> {
    let LogicalPlan::Projection(projection) = query.as_ref() else { return None };
    let LogicalPlan::EmptyRelation(empty) = projection.input.as_ref() else { return None };
    let all = empty.produce_one_row && projection.expr.iter().all(is_constant);
    all.then_some(&projection.expr)
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Alias(alias) => is_constant(&alias.expr),
        // What cannot be cast fails when its row is computed, if it is.
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Literal(value, _) => value.cast_to(cast.field.data_type()).is_ok(),
            _ => false,
        },
        _ => false,
    }
}
