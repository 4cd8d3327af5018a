//! Applies the rules for logical plans, Weft's and DataFusion's, as DataFusion's `Analyzer` and `Optimizer` do, but in time
//! that grows with the plan: they check a plan anew within each subquery, so that queries nested in each other take twice as long
//! for each level, and apply every rule to every node. Here a rule is applied if anything that it changes occurs (`plan_parts.rs`).

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::common::{DFSchemaRef, Result as DfResult, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, assert_expected_schema, check_subquery_expr};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::plan_parts::{Parts, changed_by};

/// The rule after which all that occurs is looked for anew.
const TYPE_COERCION: &str = "type_coercion";

/// A plan as it is executed, of one as it was written. `between` is called after each rule that was applied.
///
/// # Errors
/// Those of rules, and of plans that are none.
pub(crate) fn optimized(
    state: &SessionState,
    plan: LogicalPlan,
    between: impl Fn(),
) -> DfResult<LogicalPlan> {
    let analyzed = analyzed(state, plan, &between)?;
    apply_rules(state, analyzed, between)
}

/// A plan that means what SQL does.
///
/// # Errors
/// As [`optimized`].
pub(crate) fn analyzed(
    state: &SessionState,
    mut plan: LogicalPlan,
    between: impl Fn(),
) -> DfResult<LogicalPlan> {
    plan.schema().check_names()?;
    let mut parts = Parts::of(&plan)?;
    for rule in &state.analyzer().rules {
        if !parts.have(changed_by(rule.name())) {
            continue;
        }
        let analyzed = rule.analyze(plan, state.config_options());
        plan = analyzed.map_err(|error| error.context(rule.name()))?;
        if rule.name() == TYPE_COERCION {
            parts = Parts::of(&plan)?;
        }
        between();
    }
    check(&plan)?;
    Ok(plan)
}

/// Checks that columns have different names, and subqueries as many columns as their places have.
fn check(plan: &LogicalPlan) -> DfResult<()> {
    plan.schema().check_names()?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                check_subquery(node, expr)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn check_subquery(node: &LogicalPlan, expr: &Expr) -> DfResult<()> {
    let (what, subquery) = match expr {
        Expr::ScalarSubquery(subquery) => ("Scalar subquery", subquery),
        Expr::InSubquery(InSubquery { subquery, .. }) => ("InSubquery", subquery),
        Expr::SetComparison(SetComparison { subquery, .. }) => {
            ("Set comparison subquery", subquery)
        }
        Expr::Exists(exists) if !exists.subquery.outer_ref_columns.is_empty() => {
            return check_subquery_expr(node, &exists.subquery.subquery, expr);
        }
        _ => return Ok(()),
    };
    let schema = subquery.subquery.schema();
    let columns = schema.fields().len();
    if columns > 1 {
        let names = schema.field_names().join(", ");
        return plan_err!("{what} should only return one column, but found {columns}: {names}");
    }
    match subquery.outer_ref_columns.is_empty() {
        true => Ok(()),
        false => check_subquery_expr(node, &subquery.subquery, expr),
    }
}

/// Applies DataFusion's rules to an analyzed plan until nothing changes any more.
///
/// # Errors
/// As [`optimized`].
pub(crate) fn apply_rules(
    state: &SessionState,
    mut plan: LogicalPlan,
    between: impl Fn(),
) -> DfResult<LogicalPlan> {
    let options = state.config_options();
    let mut seen = HashSet::from([hash(&plan)]);
    for _ in 0..options.optimizer.max_passes {
        let mut parts = Parts::of(&plan)?;
        for rule in state.optimizers() {
            if !parts.have(changed_by(rule.name())) {
                continue;
            }
            let before = options.optimizer.skip_failed_rules.then(|| plan.clone());
            let applied = apply(rule.as_ref(), plan, state, parts.have(Parts::SUBQUERY));
            let failed = |error| format!("Optimizer rule '{}' failed: {error}", rule.name());
            match (applied, before) {
                (Ok(Transformed { data, transformed, .. }), _) => {
                    plan = data;
                    if transformed {
                        parts = Parts::of(&plan)?;
                    }
                }
                (Err(error), Some(before)) => {
                    log::warn!("{}", failed(error));
                    plan = before;
                }
                (Err(error), None) => {
                    let context = format!("Optimizer rule '{}' failed", rule.name());
                    return Err(error.context(context));
                }
            }
            between();
        }
        if !seen.insert(hash(&plan)) {
            break;
        }
    }
    check(&plan)?;
    Ok(plan)
}

fn hash(plan: &LogicalPlan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.hash(&mut hasher);
    hasher.finish()
}

/// Applies a rule to all nodes.
fn apply(
    rule: &dyn OptimizerRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
    has_subqueries: bool,
) -> DfResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(plan.schema());
    let applied = match rule.apply_order() {
        None => rule.rewrite(plan, config)?,
        Some(order) => {
            let mut nodes = Nodes { rule, config, order, has_subqueries, levels: Vec::new() };
            match has_subqueries {
                true => plan.rewrite_with_subqueries(&mut nodes)?,
                false => plan.rewrite(&mut nodes)?,
            }
        }
    };
    if applied.transformed {
        assert_expected_schema(&schema, &applied.data)?;
    }
    Ok(applied)
}

/// Applies a rule to one node after another. A node whose inputs get other columns learns of it, unless there are subqueries.
struct Nodes<'a> {
    rule: &'a dyn OptimizerRule,
    config: &'a dyn OptimizerConfig,
    order: ApplyOrder,
    has_subqueries: bool,
    /// The nodes that the walk is inside of.
    levels: Vec<Level>,
}

struct Level {
    /// The columns that the node had.
    schema: DFSchemaRef,
    is_changed: bool,
    /// An input has other columns than it had.
    inputs_differ: bool,
}

impl Nodes<'_> {
    /// Tells the node above what has become of one below it.
    fn leave(&mut self, level: &Level, node: &LogicalPlan) {
        let Some(above) = self.levels.last_mut() else { return };
        above.is_changed |= level.is_changed;
        above.inputs_differ |= level.is_changed
            && !Arc::ptr_eq(&level.schema, node.schema())
            && level.schema != *node.schema();
    }
}

impl TreeNodeRewriter for Nodes<'_> {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let schema = Arc::clone(node.schema());
        let node = match self.order {
            ApplyOrder::TopDown => self.rule.rewrite(node, self.config)?,
            ApplyOrder::BottomUp => Transformed::no(node),
        };
        if self.has_subqueries {
            return Ok(node);
        }
        let level = Level { schema, is_changed: node.transformed, inputs_differ: false };
        if node.tnr == TreeNodeRecursion::Stop {
            self.leave(&level, &node.data);
            return Ok(Transformed { tnr: TreeNodeRecursion::Jump, ..node });
        }
        self.levels.push(level);
        Ok(Transformed { tnr: TreeNodeRecursion::Continue, ..node })
    }

    fn f_up(&mut self, node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let level = if self.has_subqueries { None } else { self.levels.pop() };
        let node = match &level {
            Some(level) if level.inputs_differ => node.recompute_schema()?,
            _ => node,
        };
        let mut node = match self.order {
            ApplyOrder::TopDown => Transformed::no(node),
            ApplyOrder::BottomUp => self.rule.rewrite(node, self.config)?,
        };
        if let Some(mut level) = level {
            level.is_changed |= node.transformed;
            self.leave(&level, &node.data);
            node.tnr = TreeNodeRecursion::Continue;
        }
        Ok(node)
    }
}
