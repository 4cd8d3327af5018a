//! Plans become pipelines, from the leaves on: each node goes on with the open pipelines of its inputs, or ends them in
//! a pipeline breaker and begins a new one.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result as DfResult, internal_err, not_impl_err};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use weft_exec::program::{Program, REGISTERS_MAX};
use weft_exec::query::Query;
use weft_exec::sink::{Output, Results};

use super::asks::Asks;
use super::description::{Description, sql};
use super::expressions::{Expr, Expressions};
use super::input::InputExec;
use super::open::{Closed, Open, Window};
use super::shared::SharedPlans;
use super::source::{self, Stream};
use super::term::{Term, in_register};
use super::{aggregate, join, logic, scalar, shared, sort, window};
use crate::parquet_scan::ParquetScanExec;
use crate::plan_node::Plan;
use crate::scan::ScanExec;

/// Nodes that change nothing but how rows are passed on.
const PASSING: [&str; 9] = [
    "BufferExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "HeldRowsExec",
    "OutputRequirementExec",
    "OwnedRowsExec",
    "PromisesExec",
    "RepartitionExec",
];

/// The input of a node that changes nothing.
pub(super) fn passed(plan: &Plan) -> Option<&Plan> {
    PASSING.contains(&plan.name()).then(|| plan.children().first().copied()).flatten()
}

/// True if a plan is rows of files, or of DataFusion's, as they come.
fn is_input(plan: &Plan) -> bool {
    passed(plan).map_or_else(|| plan.is::<InputExec>() || plan.is::<ParquetScanExec>(), is_input)
}

/// How many partitions a plan has.
fn partitions(plan: &Plan) -> usize {
    plan.properties().output_partitioning().partition_count()
}

/// The number of the column that an expression is.
pub(super) fn column_of(expr: &Expr) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// A query, and where its results arrive.
pub(super) struct Translated {
    pub(super) query: Query,
    pub(super) results: Results,
    pub(super) descriptions: Vec<Description>,
}

/// Translates a plan whose nodes all have pipelines. `inputs` are the streams that stand for its [`InputExec`]s.
///
/// # Errors
/// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) if a pipeline has too many
/// registers; and if a node has no pipelines, or is not what its inputs are for.
pub(super) fn translate(plan: &Plan, inputs: Vec<Vec<Stream>>) -> DfResult<Translated> {
    let inputs = inputs.into_iter().map(Some).collect();
    let mut translator =
        Translator { inputs, closed: Closed::default(), shared: SharedPlans::of(plan) };
    let open = translator.node(plan)?;
    let mut open = translator.in_order(open, plan)?;
    // What comes as one stream, such as the rows of files, leaves in its order.
    open.order.request();
    let registers =
        |open: &mut Open, term: &Term| (in_register(&mut open.program, term), term.lane);
    open.begin_sink();
    let terms = std::mem::take(&mut open.columns);
    let columns = terms.iter().map(|term| registers(&mut open, term)).collect();
    let (output, results) = Output::new(plan.schema(), columns);
    open.close(Box::new(output), "result", &mut translator.closed);
    let (pipelines, descriptions) = translator.closed.finish();
    pipelines.iter().try_for_each(|pipeline| check_size(&pipeline.program))?;
    Ok(Translated { query: Query { pipelines }, results, descriptions })
}

/// Refuses programs that cannot be run.
///
/// # Errors
/// As [`translate`].
pub(super) fn check_size(program: &Program) -> DfResult<()> {
    if program.is_too_large() {
        return not_impl_err!("expressions with more than {REGISTERS_MAX} values on the way");
    }
    Ok(())
}

/// What has been translated so far.
pub(super) struct Translator {
    inputs: Vec<Option<Vec<Stream>>>,
    pub(super) closed: Closed,
    pub(super) shared: SharedPlans,
}

impl Translator {
    /// The rows of a plan, a column for each field of its schema.
    ///
    /// # Errors
    /// If it has no pipelines.
    pub(super) fn node(&mut self, plan: &Plan) -> DfResult<Open> {
        self.asked(plan, Asks::default())
    }

    /// As [`Translator::node`]; rows may be left out that `asks` drop.
    ///
    /// # Errors
    /// If it has no pipelines.
    pub(super) fn asked(&mut self, plan: &Plan, asks: Asks) -> DfResult<Open> {
        match shared::shared(self, plan) {
            Some(open) => {
                let mut open = open?;
                if plan.fetch().is_none() {
                    asks.ask(&mut open);
                }
                Ok(open)
            }
            None => self.alone(plan, asks),
        }
    }

    /// As [`Translator::asked`], whether or not the plan occurs more than once.
    ///
    /// # Errors
    /// If it has no pipelines.
    pub(super) fn alone(&mut self, plan: &Plan, asks: Asks) -> DfResult<Open> {
        // Which rows are the first ones depends on all of them.
        let asks = if plan.fetch().is_some() { Asks::default() } else { asks };
        let has_own_fetch = plan.is::<SortExec>()
            || plan.is::<GlobalLimitExec>()
            || plan.is::<LocalLimitExec>()
            || plan.is::<ScanExec>();
        let open = self.unlimited(plan, asks)?;
        debug_assert_eq!(open.columns.len(), plan.schema().fields().len(), "{}", plan.name());
        match plan.fetch() {
            Some(fetch) if !has_own_fetch && !plan.is::<InputExec>() => {
                let window = Window { skip: 0, fetch: Some(fetch as u64) };
                self.limited(open, plan, window)
            }
            _ => Ok(open),
        }
    }

    /// As [`Translator::node`], all of its rows.
    fn unlimited(&mut self, plan: &Plan, asks: Asks) -> DfResult<Open> {
        let schema = plan.schema();
        if let Some(input) = passed(plan) {
            return self.asked(input, asks);
        }
        if let Some(scan) = plan.downcast_ref::<ScanExec>() {
            let mut open = source::table(scan, &schema, &asks);
            asks.ask(&mut open);
            return Ok(open);
        }
        if let Some(input) = plan.downcast_ref::<InputExec>() {
            let mut open = self.input(input)?;
            asks.ask(&mut open);
            return Ok(open);
        }
        if let Some(scan) = plan.downcast_ref::<ParquetScanExec>() {
            let mut open = source::parquet(scan, &schema, &asks)?;
            asks.ask(&mut open);
            return Ok(open);
        }
        if plan.is::<EmptyExec>() {
            return Ok(source::nothing(&schema));
        }
        if plan.is::<PlaceholderRowExec>() {
            return source::one_row(&schema);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            return self.filter(filter, &asks);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            return self.projection(projection, &asks);
        }
        if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
            let open = self.node(limit.input())?;
            let fetch = limit.fetch().map(|fetch| fetch as u64);
            return self.limited(open, limit.input(), Window { skip: limit.skip() as u64, fetch });
        }
        if let Some(limit) = plan.downcast_ref::<LocalLimitExec>() {
            let open = self.node(limit.input())?;
            let is_ordered = limit.input().properties().output_ordering().is_some();
            if is_ordered && partitions(limit.input()) > 1 {
                // The first rows of each partition are not those of all: whoever is above takes these.
                return Ok(open);
            }
            let window = Window { skip: 0, fetch: Some(limit.fetch() as u64) };
            return self.limited(open, limit.input(), window);
        }
        if let Some(union) = plan.downcast_ref::<UnionExec>() {
            return self.union(union.inputs(), &asks);
        }
        if let Some(union) = plan.downcast_ref::<InterleaveExec>() {
            return self.union(union.inputs(), &asks);
        }
        if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
            return self.merge(merge, &schema, asks);
        }
        if let Some(node) = plan.downcast_ref::<SortExec>() {
            let open = self.asked(node.input(), asks.across())?;
            // The first rows of each partition are not those of all: whoever is above takes these.
            let is_whole = !node.preserve_partitioning() || partitions(node.input()) == 1;
            let fetch = node.fetch().filter(|_| is_whole);
            return sort::sort(self, open, &schema, node.expr(), fetch);
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            return aggregate::aggregate(self, aggregate, &asks);
        }
        if window::calls(plan).is_some() {
            return window::window(self, plan, &asks);
        }
        if let Some(joining) = join::joining(plan) {
            return join::join(self, &joining, &asks);
        }
        if let Some(node) = plan.downcast_ref::<ScalarSubqueryExec>() {
            return scalar::scalar(self, node, asks);
        }
        internal_err!("there are no pipelines for {}", plan.name())
    }

    /// The rows of all partitions in their order. Partitions are one here, and what is the same all over each of them need not be the same
    /// in all: sorts of partitions leave such keys out, so their order, and which rows are their first, do not count.
    fn merge(
        &mut self,
        merge: &SortPreservingMergeExec,
        schema: &SchemaRef,
        asks: Asks,
    ) -> DfResult<Open> {
        let mut input = merge.input();
        while let Some(below) = passed(input).filter(|_| input.fetch().is_none()) {
            input = below;
        }
        if let Some(sort) = input.downcast_ref::<SortExec>() {
            let asks = if sort.fetch().is_some() { Asks::default() } else { asks.across() };
            let open = self.asked(sort.input(), asks)?;
            let fetch = merge.fetch().or(sort.fetch());
            return sort::sort(self, open, schema, merge.expr(), fetch);
        }
        let mut open = self.asked(merge.input(), asks.across())?;
        let promised = merge.input().properties().output_ordering();
        let is_promised = promised.is_some_and(|promised| {
            promised.len() >= merge.expr().len()
                && promised.iter().zip(merge.expr()).all(|(promised, key)| promised == key)
        });
        if (is_promised || partitions(merge.input()) == 1) && open.order.request() {
            return Ok(open);
        }
        sort::sort(self, open, schema, merge.expr(), None)
    }

    /// The rows that stand for what DataFusion executes.
    fn input(&mut self, input: &InputExec) -> DfResult<Open> {
        match self.inputs.get_mut(input.number()).and_then(Option::take) {
            Some(streams) => {
                Ok(source::streams(streams, &input.schema(), input.is_one(), input.of()))
            }
            None => internal_err!("input {} is read twice, or there is none", input.number()),
        }
    }

    fn filter(&mut self, filter: &FilterExec, asks: &Asks) -> DfResult<Open> {
        let projection = filter.projection().as_ref();
        let below = asks.below(|column| match projection {
            Some(projection) => projection.get(column).copied(),
            None => Some(column),
        });
        let open = self.asked(filter.input(), below)?;
        let mut open = self.unwindowed(open)?;
        let (schema, start) = (filter.input().schema(), open.steps());
        let mut code = Expressions::new(&mut open.program, &open.columns, &schema);
        logic::filter(&mut code, filter.predicate())?;
        open.label(start, format!("filter {}", sql(filter.predicate())));
        if let Some(projection) = filter.projection() {
            open.columns = projection.iter().map(|column| open.columns[*column].clone()).collect();
        }
        Ok(open)
    }

    fn projection(&mut self, projection: &ProjectionExec, asks: &Asks) -> DfResult<Open> {
        let exprs: Vec<Expr> = projection.expr().iter().map(|expr| expr.expr.clone()).collect();
        let below = asks.below(|column| column_of(&exprs[column]));
        let here = asks.rest(&[&below]);
        let open = self.asked(projection.input(), below)?;
        let mut open = self.project(open, &projection.input().schema(), &exprs)?;
        here.ask(&mut open);
        Ok(open)
    }

    /// Goes on with expressions as columns.
    pub(super) fn project(
        &mut self,
        open: Open,
        schema: &SchemaRef,
        exprs: &[Expr],
    ) -> DfResult<Open> {
        let is_trivial = |expr: &Expr| column_of(expr).is_some() || expr.is::<Literal>();
        let computes = !exprs.iter().all(is_trivial);
        // What is left out is not computed.
        let mut open = if computes { self.unwindowed(open)? } else { open };
        let start = open.steps();
        let mut code = Expressions::new(&mut open.program, &open.columns, schema);
        let columns: DfResult<Vec<Term>> = exprs.iter().map(|expr| code.term(expr)).collect();
        open.columns = columns?;
        if computes {
            open.label(start, "project");
        }
        Ok(open)
    }

    fn union(&mut self, inputs: &[Plan], asks: &Asks) -> DfResult<Open> {
        let opens: DfResult<Vec<Open>> = inputs
            .iter()
            .map(|input| {
                let open = self.asked(input, asks.clone())?;
                self.unwindowed(open)
            })
            .collect();
        Ok(Open::union(opens?, false))
    }

    /// Lets only some of the rows of `plan` through.
    fn limited(&mut self, open: Open, plan: &Plan, window: Window) -> DfResult<Open> {
        let mut open = self.in_order(open, plan)?;
        if is_input(plan) {
            // The first rows of a file, if it is read as one stream.
            open.order.request();
        }
        open.window = Some(match open.window {
            None => window,
            Some(inner) => inner.within(window),
        });
        Ok(open)
    }

    /// The same rows, without a window: they are gathered if there is one.
    pub(super) fn unwindowed(&mut self, open: Open) -> DfResult<Open> {
        match open.window {
            None => Ok(open),
            Some(_) => Ok(sort::gather(self, open)),
        }
    }

    /// The rows of `plan` in the order that it promises.
    pub(super) fn in_order(&mut self, mut open: Open, plan: &Plan) -> DfResult<Open> {
        let ordering: Option<&LexOrdering> = plan.properties().output_ordering();
        match ordering {
            Some(ordering) if !open.order.request() => {
                let open = self.unwindowed(open)?;
                sort::sort(self, open, &plan.schema(), ordering, None)
            }
            _ => Ok(open),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::DataFusionError;
    use weft_exec::Lane;

    use super::*;

    #[test]
    fn programs_that_are_too_large_are_not_run() {
        let mut program = Program::default();
        (0..REGISTERS_MAX).for_each(|_| {
            program.register(Lane::Bool);
        });
        assert!(check_size(&program).is_ok());
        program.register(Lane::Bool);
        assert!(matches!(check_size(&program), Err(DataFusionError::NotImplemented(_))));
    }
}
