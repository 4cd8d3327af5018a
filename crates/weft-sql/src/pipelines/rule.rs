//! The last rule of planning: finds the largest parts of a plan that have pipelines, and puts a node for each in its
//! place. Leaves that DataFusion executes feed them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use weft_exec::VECTOR_ROWS_MAX;
use weft_exec::spill::Spilling;
use weft_rt::Runtime;
use weft_rt::memory::Ledger;

use super::exec::{Machine, PipelinesExec};
use super::fallback::FallbackExec;
use super::input::InputExec;
use super::translate::passed;
use super::{aggregate, join, leaf, sort, window};
use crate::parquet_scan::ParquetScanExec;
use crate::plan_node::Plan;
use crate::scan::ScanExec;
use crate::statement_option::{StatementOption, Told};
use crate::table::ScanContext;

/// Says, among the options of a statement, that it is to be executed by pipelines.
#[derive(Clone, Debug)]
pub(crate) struct ByPipelines {
    pub(crate) context: ScanContext,
    /// Only if all of it can be: otherwise all of it is left to DataFusion.
    pub(crate) wholly: bool,
}

impl Told for ByPipelines {
    const NAME: &'static str = "weft";
}

/// Puts pipelines in place of whatever has them, if the statement is to be executed so.
pub(crate) struct Pipelines {
    runtime: Arc<Runtime>,
    ledger: Ledger,
    spilling: Arc<Spilling>,
}

impl Pipelines {
    /// Pipelines run by these workers within this budget, which spill there.
    pub(crate) fn new(runtime: Arc<Runtime>, ledger: Ledger, spilling: Arc<Spilling>) -> Pipelines {
        Pipelines { runtime, ledger, spilling }
    }
}

impl fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipelines")
    }
}

impl PhysicalOptimizerRule for Pipelines {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> DfResult<Plan> {
        let Some(StatementOption(ByPipelines { context, wholly })) =
            options.extensions.get::<StatementOption<ByPipelines>>()
        else {
            window::check_evaluated(&plan)?;
            return Ok(plan);
        };
        let needs_pipelines = window::has_exclusions(&plan);
        if needs_pipelines {
            context.control.note_needs_pipelines();
        }
        let (ledger, memory) = if context.control.is_measured() {
            let (ledger, tally) = self.ledger.tallied();
            (ledger, Some(tally))
        } else {
            (self.ledger.clone(), None)
        };
        let machine = Machine {
            runtime: Arc::clone(&self.runtime),
            ledger,
            memory,
            spilling: Arc::clone(&self.spilling),
            context: context.clone(),
            vector_rows: options.execution.batch_size.get().min(VECTOR_ROWS_MAX),
        };
        let carver = Carver { machine, options };
        // As much of what only pipelines can execute is left to them as can be.
        if *wholly && !(needs_pipelines && left_over(&plan).is_some()) {
            return carver.executed_wholly(&plan);
        }
        let plan = carver.executed(&plan)?;
        window::check_evaluated(&plan)?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "pipelines"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

struct Carver<'a> {
    machine: Machine,
    options: &'a ConfigOptions,
}

impl Carver<'_> {
    /// As [`Carver::executed`] if nothing but leaves is left over, and otherwise as it was.
    fn executed_wholly(&self, plan: &Plan) -> DfResult<Plan> {
        if is_statement(plan) {
            let children = plan.children().into_iter().map(|child| self.executed_wholly(child));
            return replaced(plan.clone(), children.collect::<DfResult<_>>()?);
        }
        if let Some(reason) = left_over(plan) {
            self.machine.context.control.note_left_over();
            return Ok(Arc::new(FallbackExec::new(plan.clone(), reason)));
        }
        if is_passed_through(plan) {
            return Ok(plan.clone());
        }
        // An order of each partition is none of all rows.
        let is_divided = plan.output_partitioning().partition_count() > 1;
        match is_divided && plan.output_ordering().is_some() {
            true => self.executed(&(Arc::new(CoalescePartitionsExec::new(plan.clone())) as Plan)),
            false => self.executed(plan),
        }
    }

    /// A plan for somebody who executes it as DataFusion does.
    fn executed(&self, plan: &Plan) -> DfResult<Plan> {
        let plan = aggregate::without_phases(plan)?;
        let Some(reason) = unsupported(&plan) else {
            let mut inputs = Vec::new();
            let part = self.part(&plan, &mut inputs)?;
            if !is_worth(&part) {
                return self.without_pipelines(&plan);
            }
            return match PipelinesExec::new(part, inputs, self.machine.clone()) {
                // Some reasons are only found while it is translated.
                Err(DataFusionError::NotImplemented(reason)) => {
                    Ok(Arc::new(FallbackExec::new(plan, reason)))
                }
                exec => Ok(Arc::new(exec?)),
            };
        };
        let children: DfResult<Vec<Plan>> =
            plan.children().into_iter().map(|child| self.executed(child)).collect();
        let is_leaf = plan.children().is_empty();
        let plan = replaced(plan, children?)?;
        Ok(if is_leaf || is_statement(&plan) {
            plan
        } else {
            Arc::new(FallbackExec::new(plan, reason))
        })
    }

    /// A plan that only passes on rows, down to those that do more.
    fn without_pipelines(&self, plan: &Plan) -> DfResult<Plan> {
        if passed(plan).is_none() {
            return if unsupported(plan).is_some() {
                self.executed(plan)
            } else {
                Ok(plan.clone())
            };
        }
        let children = plan.children().into_iter().map(|child| self.without_pipelines(child));
        replaced(plan.clone(), children.collect::<DfResult<_>>()?)
    }

    /// The plan down to where DataFusion executes, from where on it is among the inputs.
    fn part(&self, plan: &Plan, inputs: &mut Vec<Plan>) -> DfResult<Plan> {
        let plan = aggregate::without_phases(plan)?;
        if unsupported(&plan).is_some() {
            let ScanContext { threads, .. } = self.machine.context;
            let executed = match plan.children().is_empty() {
                true => leaf::divided(&plan, threads, self.machine.ledger.limit(), self.options)?,
                false => self.executed(&plan)?,
            };
            let is_one = executed.output_partitioning().partition_count() == 1;
            if let Some(scan) = ParquetScanExec::of(&plan, leaf::in_words(&plan), is_one) {
                return Ok(Arc::new(scan));
            }
            let input = InputExec::new(inputs.len(), &plan, &executed);
            inputs.push(executed);
            return Ok(Arc::new(input));
        }
        let children: DfResult<Vec<Plan>> =
            plan.children().into_iter().map(|child| self.part(child, inputs)).collect();
        replaced(plan, children?)
    }
}

/// True for what does something with the rows of the query below it.
fn is_statement(plan: &Plan) -> bool {
    plan.is::<AnalyzeExec>() || plan.is::<ExplainExec>() || plan.is::<DataSinkExec>()
}

/// Why the nodes of a plan that have no pipelines have none; `None` if all have. Leaves need none.
fn left_over(plan: &Plan) -> Option<String> {
    let mut reasons = Vec::new();
    find_left_over(plan, &mut reasons);
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Adds the reasons, each once.
fn find_left_over(plan: &Plan, reasons: &mut Vec<String>) {
    // What cannot be put together stays in its phases, which have no pipelines.
    let plan = aggregate::without_phases(plan).unwrap_or_else(|_| Arc::clone(plan));
    if plan.children().is_empty() {
        return;
    }
    if let Some(reason) = unsupported(&plan) {
        let name = plan.name();
        let reason = if reason.contains(name) { reason } else { format!("{name}: {reason}") };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    // Those of scalar subqueries are among the reasons of their node.
    let children = plan.children().into_iter().skip(usize::from(plan.is::<ScalarSubqueryExec>()));
    children.for_each(|child| find_left_over(child, reasons));
}

/// True if rows that DataFusion reads only pass through, each on its own: it does so in their order, without keeping any, and
/// whoever writes them gets them from all threads.
fn is_passed_through(plan: &Plan) -> bool {
    let passes = passed(plan).is_some()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<UnionExec>();
    let inputs = plan.children();
    match inputs.is_empty() {
        true => unsupported(plan).is_some(),
        false => passes && inputs.into_iter().all(is_passed_through),
    }
}

fn replaced(plan: Plan, children: Vec<Plan>) -> DfResult<Plan> {
    if children.is_empty() {
        return Ok(plan);
    }
    if plan.is::<InterleaveExec>() {
        // Of partitions that match, which pipelines do not have.
        return UnionExec::try_new(children);
    }
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// True if more is done than to pass on rows.
fn is_worth(part: &Plan) -> bool {
    match passed(part) {
        Some(input) => is_worth(input),
        None => !part.is::<InputExec>() && !part.is::<ScanExec>() && !part.is::<ParquetScanExec>(),
    }
}

/// Why a node has no pipelines; `None` if it has.
fn unsupported(plan: &Plan) -> Option<String> {
    if passed(plan).is_some() {
        return None;
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return aggregate::unsupported(aggregate);
    }
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return sort::unsupported(sort.expr(), &sort.input().schema());
    }
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        return sort::unsupported(merge.expr(), &merge.input().schema());
    }
    if window::calls(plan).is_some() {
        return window::unsupported(plan);
    }
    if plan.is::<HashJoinExec>() {
        return join::unsupported(plan);
    }
    if let Some(node) = plan.downcast_ref::<ScalarSubqueryExec>() {
        // DataFusion executes inputs at once, when the values are not there yet.
        return left_over(node.input()).map(|reason| format!("within it, {reason}"));
    }
    let has_pipelines = plan.is::<ScanExec>()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<UnionExec>()
        || plan.is::<InterleaveExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<EmptyExec>()
        || plan.is::<PlaceholderRowExec>();
    (!has_pipelines).then(|| format!("no pipelines for {}", plan.name()))
}
