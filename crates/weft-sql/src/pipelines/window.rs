//! Window functions: the rows are sorted by partition and order, if they have one, and functions over the same
//! partitions are evaluated together.

use std::sync::Arc;

use datafusion::common::{Result as DfResult, internal_err, not_impl_err};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::InputOrderMode;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowExpr};
use weft_exec::Lane;
use weft_exec::sort::{Order, Sort};
use weft_exec::window::WindowRows;

use super::asks::Asks;
use super::expressions::{Expr, Expressions};
use super::open::{InOrder, Open};
use super::shared::SharedPlans;
use super::sort;
use super::stored::{Stored, StoredTerm};
use super::term::Term;
use super::translate::{Translator, column_of, passed};
use super::window_function::{self, Fields};
use crate::exclusions;
use crate::plan_node::Plan;

/// A window function of a plan.
pub(super) type Call = Arc<dyn WindowExpr>;

/// The window functions that a node evaluates, if it does.
pub(super) fn calls(plan: &Plan) -> Option<&[Call]> {
    if let Some(node) = plan.downcast_ref::<WindowAggExec>() {
        return Some(node.window_expr());
    }
    plan.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr)
}

/// What the rows of a function's partition agree in.
pub(super) fn partition(call: &Call) -> Vec<Expr> {
    let keys = call.partition_by().iter();
    keys.filter(|key| exclusions::exclusion(key).is_none()).cloned().collect()
}

/// True if frames of a plan leave rows out.
pub(super) fn has_exclusions(plan: &Plan) -> bool {
    excluding(plan).is_some() || plan.children().into_iter().any(has_exclusions)
}

/// The key of a node's partitions that says what frames leave out.
fn excluding(plan: &Plan) -> Option<&Expr> {
    let mut keys = calls(plan)?.iter().flat_map(|call| call.partition_by());
    keys.find(|key| exclusions::exclusion(key).is_some())
}

/// Checks that no frames leave rows out in what DataFusion executes of a plan, which cannot do it.
///
/// # Errors
/// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented)
pub(super) fn check_evaluated(plan: &Plan) -> DfResult<()> {
    if let Some(reason) = excluding(plan).and_then(exclusions::reason) {
        return not_impl_err!("{reason}");
    }
    plan.children().into_iter().try_for_each(check_evaluated)
}

/// Why a node with window functions has no pipelines.
pub(super) fn unsupported(plan: &Plan) -> Option<String> {
    let node = plan.downcast_ref::<BoundedWindowAggExec>();
    if node.is_some_and(|node| node.input_order_mode != InputOrderMode::Sorted) {
        return Some("partitions that rows are not sorted by".to_owned());
    }
    let input = plan.children().first().copied()?;
    sort::unsupported(input.properties().output_ordering()?, &input.schema())
}

/// The rows of a node and of those right below it that have the same partitions, with the results behind the columns.
///
/// # Errors
/// Those of the functions' arguments.
pub(super) fn window(translator: &mut Translator, plan: &Plan, asks: &Asks) -> DfResult<Open> {
    let Together { calls, input } = Together::of(plan, &translator.shared)?;
    let (input, ordering) = unsorted(&input);
    let partition = partition(&calls[0]);
    // Whole partitions may be left out.
    let width = input.schema().fields().len();
    let below = asks.below(|column| {
        let is_column = |key: &Expr| column_of(key) == Some(column);
        (column < width && partition.iter().any(is_column)).then_some(column)
    });
    let here = asks.rest(&[&below]);
    let open = translator.asked(&input, below.across())?;
    let mut open = translator.unwindowed(open)?;
    open.begin_sink();
    let schema = input.schema();
    let mut stored = Stored::default();
    let columns: Vec<StoredTerm> = open.columns.iter().map(|term| stored.add(term)).collect();
    let mut code = Expressions::new(&mut open.program, &open.columns, &schema);
    let mut keys = Vec::new();
    for key in unmarked(ordering.iter().flatten()) {
        let mut fields = Fields { code: &mut code, stored: &mut stored };
        let (term, options) = sort::ordered(fields.code, key)?;
        keys.push(sort::key(&term, fields.field(&term), options));
    }
    let mut fields = Fields { code: &mut code, stored: &mut stored };
    let by: DfResult<Vec<usize>> = partition.iter().map(|key| fields.of(key)).collect();
    let by = by?;
    let mut functions = Vec::new();
    for call in &calls {
        functions.push(window_function::function(call, &mut fields)?);
    }
    let (layout, fields) = stored.finish();
    let bits = open.program.register(Lane::U64);
    let sort = Sort::of("a window", Order::new(layout.clone(), keys), fields, bits);
    let names: Vec<&str> = calls.iter().map(window_function::name).collect();
    let label = format!("window {}", names.join(", "));
    let lanes: Vec<Lane> =
        [Lane::U64].into_iter().chain(functions.iter().map(|function| function.result)).collect();
    let source = Box::new(WindowRows::new(&sort, by, functions));
    let order = InOrder::OnRequest(source.is_ordered());
    let after = open.close(Box::new(sort), "window", &mut translator.closed);
    let plan_schema = plan.schema();
    let mut tuples = None;
    let mut open = Open::new(source, label, &lanes, |registers| {
        tuples = registers.first().copied();
        let results = registers.iter().zip(&lanes).skip(1);
        let fields = plan_schema.fields().iter().skip(width);
        let terms = results.zip(fields).map(|((register, lane), field)| {
            Term::new(*register, *lane, field.data_type(), field.is_nullable())
        });
        terms.collect()
    })
    .after(&after);
    let Some(tuples) = tuples else { return internal_err!("rows have addresses") };
    let results = std::mem::take(&mut open.columns);
    let loaded = columns.iter().map(|term| term.load(&mut open.program, tuples, &layout));
    open.columns = loaded.chain(results).collect();
    open.order = order;
    here.ask(&mut open);
    Ok(open)
}

/// Functions that one operator evaluates.
struct Together {
    /// In the order of their columns.
    calls: Vec<Call>,
    /// The rows that they are evaluated over.
    input: Plan,
}

impl Together {
    /// Those of a node, and of the nodes below it as long as these have the same partitions, whose rows come in the same
    /// order.
    fn of(plan: &Plan, shared: &SharedPlans) -> DfResult<Together> {
        let (Some(calls), Some(input)) = (calls(plan), plan.children().first().copied()) else {
            return internal_err!("{} evaluates no window functions", plan.name());
        };
        let mut together = Together { calls: calls.to_vec(), input: input.clone() };
        while let Some((calls, input)) = together.next(shared) {
            together.calls.splice(0..0, calls);
            together.input = input;
        }
        Ok(together)
    }

    /// The calls of the next node below, and its input, if they are to be evaluated together with these.
    fn next(&self, shared: &SharedPlans) -> Option<(Vec<Call>, Plan)> {
        let mut node = below(&self.input);
        if let Some(sort) = node.downcast_ref::<SortExec>()
            && node.fetch().is_none()
            && comes_sorted(below(sort.input()), sort.expr())
        {
            node = below(sort.input());
        }
        if shared.is_shared(node) {
            return None;
        }
        let (more, input) = (calls(node)?, node.children().first().copied()?);
        let width = input.schema().fields().len();
        let is_over_input = |call: &Call| {
            window_function::columns(call)
                .is_some_and(|columns| columns.into_iter().all(|column| column < width))
        };
        let have_same_partitions =
            have_same(&self::partition(&more[0]), &self::partition(&self.calls[0]));
        (have_same_partitions && self.calls.iter().all(is_over_input))
            .then(|| (more.to_vec(), input.clone()))
    }
}

/// The first node of a plan that does not just pass on rows.
fn below(plan: &Plan) -> &Plan {
    let mut node = plan;
    while let Some(input) = passed(node)
        && node.fetch().is_none()
    {
        node = input;
    }
    node
}

/// True if a node's window functions have their rows in this order anyway, but for marks.
fn comes_sorted(plan: &Plan, wanted: &LexOrdering) -> bool {
    let Some(input) = calls(plan).and_then(|_| plan.children().first().copied()) else {
        return false;
    };
    let ordering = unsorted(input).1;
    let mut known = unmarked(ordering.iter().flatten());
    unmarked(wanted).all(|key| known.next() == Some(key))
}

/// The keys of an order that are no marks.
fn unmarked<'a>(
    ordering: impl IntoIterator<Item = &'a PhysicalSortExpr>,
) -> impl Iterator<Item = &'a PhysicalSortExpr> {
    ordering.into_iter().filter(|key| exclusions::exclusion(&key.expr).is_none())
}

fn have_same(some: &[Expr], others: &[Expr]) -> bool {
    some.iter().all(|key| others.contains(key)) && others.iter().all(|key| some.contains(key))
}

/// A plan without sorting its rows, and the order that it promises.
fn unsorted(plan: &Plan) -> (Plan, Option<LexOrdering>) {
    let mut node = plan;
    while node.fetch().is_none() {
        let (input, ordering) = if let Some(sort) = node.downcast_ref::<SortExec>() {
            (sort.input(), sort.expr())
        } else if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
            (merge.input(), merge.expr())
        } else if let Some(input) = passed(node) {
            node = input;
            continue;
        } else {
            break;
        };
        return (unsorted(input).0, Some(ordering.clone()));
    }
    (plan.clone(), plan.properties().output_ordering().cloned())
}
