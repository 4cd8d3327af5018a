//! Common table expressions with volatile functions are evaluated once, however many times a query reads them: all readers must see
//! the same values. So are recursive ones, as nothing can be pushed into them.
//!
//! DataFusion's planner puts a copy of the plan of such a query wherever its name is read. By a second name (`mark`), or by the table
//! that the steps of a recursion hand on, copies are found: a table of its own (`table`) takes their places, whose rows come from one
//! execution (`exec`) and are kept for all readers (`rows`). Other common table expressions stay where they are, as filters
//! are pushed into them; what of them occurs more than once is found later (`pipelines/shared.rs`).

mod exec;
mod mark;
mod rows;
mod table;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, SubqueryAlias, TableScan};

use crate::exclusions;
use crate::optimize::analyzed;
use crate::plan_walk::recompute_all;
pub(crate) use exec::OnceExec;
pub(crate) use mark::mark;
use table::OnceTable;

/// What copies of a plan are told by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The second name of a query.
    Mark(String),
    /// The address of the table that steps of a recursion hand on.
    Steps(usize),
}

impl Key {
    /// Of what has a name in a plan, if that may be a copy.
    fn of(alias: &SubqueryAlias) -> DfResult<Option<Key>> {
        let name = alias.alias.table();
        if mark::is_mark(name) {
            return Ok(Some(Key::Mark(name.to_owned())));
        }
        let LogicalPlan::RecursiveQuery(recursive) = alias.input.as_ref() else { return Ok(None) };
        let mut found = None;
        recursive.recursive_term.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && steps(scan).is_some_and(|name| name == recursive.name)
            {
                found = Some(Key::Steps(Arc::as_ptr(&scan.source).cast::<()>() as usize));
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }
}

/// The name of the recursion whose steps hand on a table.
fn steps(scan: &TableScan) -> Option<String> {
    let provider = source_as_provider(&scan.source).ok()?;
    Some(provider.downcast_ref::<CteWorkTable>()?.name().to_owned())
}

/// Puts tables in place of what must be evaluated once, though it is read several times.
///
/// # Errors
/// What is wrong with the plans of those.
pub(crate) fn evaluated_once(state: &SessionState, plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let mut readers = HashMap::new();
    count(&plan, &mut readers)?;
    readers.retain(|_, times| *times > 1);
    if readers.is_empty() {
        return Ok(plan);
    }
    Once { state, readers, tables: HashMap::new() }.replaced(plan)
}

/// Counts who reads what is to be evaluated once; what lies in one of those counts once.
fn count(plan: &LogicalPlan, readers: &mut HashMap<Key, usize>) -> DfResult<()> {
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::SubqueryAlias(alias) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let Some(key) = Key::of(alias)? else { return Ok(TreeNodeRecursion::Continue) };
        if let Some(times) = readers.get_mut(&key) {
            *times += 1;
            return Ok(TreeNodeRecursion::Jump);
        }
        if must_be_once(&key, &alias.input)? {
            readers.insert(key, 1);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// True for a plan that is different each time, or recursive, and depends on nothing around it.
fn must_be_once(key: &Key, plan: &LogicalPlan) -> DfResult<bool> {
    let mut is_volatile = false;
    let (mut recursions, mut all_steps) = (Vec::new(), Vec::new());
    plan.apply_with_subqueries(|node| {
        for expr in node.expressions() {
            is_volatile |= exclusions::is_volatile(&expr)?;
        }
        match node {
            LogicalPlan::RecursiveQuery(recursive) => recursions.push(recursive.name.clone()),
            LogicalPlan::TableScan(scan) => all_steps.extend(steps(scan)),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let is_complete = all_steps.iter().all(|name| recursions.contains(name))
        && plan.all_out_ref_exprs().is_empty();
    Ok(is_complete && (is_volatile || matches!(key, Key::Steps(_))))
}

struct Once<'a> {
    state: &'a SessionState,
    readers: HashMap<Key, usize>,
    tables: HashMap<Key, Arc<OnceTable>>,
}

impl Once<'_> {
    fn replaced(&mut self, plan: LogicalPlan) -> DfResult<LogicalPlan> {
        let replaced = plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::SubqueryAlias(alias) = &node else { return Ok(Transformed::no(node)) };
            let Some(key) = Key::of(alias)?.filter(|key| self.readers.contains_key(key)) else {
                return Ok(Transformed::no(node));
            };
            let source = provider_as_source(self.table(key, alias)?);
            let scan = LogicalPlanBuilder::scan(alias.alias.clone(), source, None)?.build()?;
            Ok(Transformed::new(scan, true, TreeNodeRecursion::Jump))
        })?;
        // What is read has its final types by now.
        recompute_all(replaced.data)
    }

    /// The table in place of a plan.
    fn table(&mut self, key: Key, alias: &SubqueryAlias) -> DfResult<Arc<OnceTable>> {
        if let Some(table) = self.tables.get(&key) {
            return Ok(Arc::clone(table));
        }
        // What it reads itself may be evaluated once, too.
        let input = self.replaced(alias.input.as_ref().clone())?;
        let named = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
        let plan = LogicalPlan::SubqueryAlias(named);
        // Its types are final only now.
        let plan = analyzed(self.state, plan, || {})?;
        let table = Arc::new(OnceTable::new(alias.alias.table(), plan));
        self.tables.insert(key, Arc::clone(&table));
        Ok(table)
    }
}
