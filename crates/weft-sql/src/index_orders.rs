//! The first rows of an order, and the least and greatest values of a column, from the ends of an index.
//!
//! `ORDER BY … LIMIT n` needs no more rows than n where an index has them in that order, or against it: its first n entries, or its
//! last, of the rows that satisfy the conditions. The sort stays above, and has n rows to sort. `min` and `max` of a column are in the
//! first and the last entry in the same way. A range of the index has to have just the rows that satisfy the conditions.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use weft_store::{IndexColumn, IndexDefinition, IndexEnds, Statistics, Table};

use crate::access_path::{ExactRange, IndexUse, exact_range, looked_up_cost};
use crate::index_scan::IndexScanExec;
use crate::physical_rule::PhysicalRule;
use crate::plan_node::Plan;
use crate::pushdown::Condition;
use crate::scan::ScanExec;
use crate::table::ScanContext;

/// Has first rows, and least and greatest values, come from the ends of indexes.
pub(crate) const INDEX_ORDERS: PhysicalRule = PhysicalRule {
    name: "index_orders",
    rewrite: |plan| {
        let rewritten = plan.transform_up(|node| {
            Ok(match first_rows(&node)?.or(extremes(&node)?) {
                Some(by_index) => Transformed::yes(by_index),
                None => Transformed::no(node),
            })
        })?;
        Ok(rewritten.data)
    },
};

/// A column of an order, by its number: whether large values come first, and NULLs before all values.
#[derive(Clone, Copy, Debug)]
struct Key {
    column: usize,
    is_descending: bool,
    nulls_first: bool,
}

/// What is wanted of the rows of a leaf.
enum Wanted {
    /// So many rows that come first in an order.
    First(Vec<Key>, usize),
    /// A row with the least value of a column, and one with the greatest.
    Extremes(usize),
}

impl Wanted {
    /// The same in terms of other columns, if all of these are among them.
    fn mapped(&self, of: impl Fn(usize) -> Option<usize>) -> Option<Wanted> {
        Some(match self {
            Wanted::First(keys, count) => {
                let key = |key: &Key| Some(Key { column: of(key.column)?, ..*key });
                Wanted::First(keys.iter().map(key).collect::<Option<_>>()?, *count)
            }
            Wanted::Extremes(column) => Wanted::Extremes(of(*column)?),
        })
    }
}

/// A sort of no more rows than it keeps.
fn first_rows(node: &Plan) -> DfResult<Option<Plan>> {
    let Some((sort, count)) =
        node.downcast_ref::<SortExec>().and_then(|sort| Some((sort, sort.fetch()?)))
    else {
        return Ok(None);
    };
    let key = |of: &datafusion::physical_expr::PhysicalSortExpr| {
        let column = column_of(&of.expr)?;
        let (is_descending, nulls_first) = (of.options.descending, of.options.nulls_first);
        Some(Key { column, is_descending, nulls_first })
    };
    let Some(keys) = sort.expr().iter().map(key).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    on_top(node, sort.input(), &Wanted::First(keys, count))
}

/// The least and greatest values of a column, of no more rows than have them.
fn extremes(node: &Plan) -> DfResult<Option<Plan>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let begins = matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
    );
    let is_whole = aggregate.group_expr().is_empty()
        && aggregate.filter_expr().iter().all(Option::is_none)
        && !aggregate.aggr_expr().is_empty();
    if !begins || !is_whole {
        return Ok(None);
    }
    let columns = aggregate.aggr_expr().iter().map(|call| {
        let is_extreme = matches!(call.fun().name(), "min" | "max");
        match call.expressions().as_slice() {
            [value] if is_extreme => column_of(value),
            _ => None,
        }
    });
    let Some(columns) = columns.collect::<Option<Vec<usize>>>() else { return Ok(None) };
    if columns.iter().any(|column| *column != columns[0]) {
        return Ok(None);
    }
    on_top(node, aggregate.input(), &Wanted::Extremes(columns[0]))
}

fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// The node over an input that gives no more than the rows that are wanted.
fn on_top(node: &Plan, input: &Plan, wanted: &Wanted) -> DfResult<Option<Plan>> {
    match by_index(input, wanted)? {
        Some(input) => {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Some(Arc::clone(node).replace_children(vec![input], options)?))
        }
        None => Ok(None),
    }
}

/// The input of a node that passes its rows on as they are, which few rows do not need.
fn passed_on(plan: &Plan) -> Option<&Plan> {
    match plan.children()[..] {
        [input] if plan.is::<CooperativeExec>() || plan.is::<RepartitionExec>() => Some(input),
        _ => None,
    }
}

/// Whether a plan gives the rows of a lookup in an index as they are.
fn is_lookup(plan: &Plan) -> bool {
    match passed_on(plan) {
        Some(input) => is_lookup(input),
        None => plan.is::<IndexScanExec>(),
    }
}

/// The plan of no more than the rows that are wanted, if an index has them at its ends.
fn by_index(plan: &Plan, wanted: &Wanted) -> DfResult<Option<Plan>> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = wanted.mapped(|column| column_of(&projection.expr().get(column)?.expr));
        return below.map_or(Ok(None), |below| on_top(plan, projection.input(), &below));
    }
    if let Some(input) = passed_on(plan) {
        return by_index(input, wanted);
    }
    // It puts the conditions of the lookup to the rows, all of which satisfy them.
    if let Some(filter) = plan.downcast_ref::<FilterExec>()
        && is_lookup(filter.input())
        && plan.fetch().is_none()
    {
        let below = match filter.projection() {
            Some(projection) => wanted.mapped(|column| projection.get(column).copied()),
            None => wanted.mapped(Some),
        };
        return below.map_or(Ok(None), |below| on_top(plan, filter.input(), &below));
    }
    let Some(leaf) = Leaf::of(plan) else { return Ok(None) };
    Ok(leaf.by_index(wanted))
}

/// A leaf that reads a table, in one way or the other.
struct Leaf<'a> {
    table: &'a Arc<Table>,
    learned: Option<&'a Statistics>,
    conditions: &'a [Condition],
    projection: &'a [usize],
    has_row_ids: bool,
    context: &'a ScanContext,
    /// About how long it takes, in rows that are scanned meanwhile.
    cost: f64,
}

impl<'a> Leaf<'a> {
    fn of(plan: &'a Plan) -> Option<Leaf<'a>> {
        if let Some(lookup) = plan.downcast_ref::<IndexScanExec>().filter(|of| !of.has_ends()) {
            return Some(Leaf {
                table: lookup.table(),
                learned: None,
                conditions: lookup.conditions(),
                projection: lookup.projection(),
                has_row_ids: lookup.has_row_ids(),
                context: lookup.context(),
                cost: looked_up_cost(
                    lookup.table(),
                    &lookup.path().index,
                    lookup.path().rows,
                    lookup.projection(),
                ),
            });
        }
        let scan = plan.downcast_ref::<ScanExec>().filter(|scan| !scan.has_limit())?;
        let (_, rows) = scan.table().rows_within(scan.conditions());
        Some(Leaf {
            table: scan.table(),
            learned: scan.learned(),
            conditions: scan.conditions(),
            projection: scan.projection(),
            has_row_ids: scan.has_row_ids(),
            context: scan.context(),
            cost: rows as f64,
        })
    }

    fn by_index(&self, wanted: &Wanted) -> Option<Plan> {
        if self.context.index_use == IndexUse::Never {
            return None;
        }
        let wanted = wanted.mapped(|column| self.projection.get(column).copied())?;
        let found = self.table.indexes().filter_map(|index| self.ends_of(index, &wanted));
        let costs = found.map(|(range, ends)| {
            let rows = ends.first.saturating_add(ends.last) as f64;
            let index = &range.path.index;
            (looked_up_cost(self.table, index, rows, self.projection), range, ends)
        });
        let (cost, range, ends) = costs.min_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
        if cost > self.cost && self.context.index_use != IndexUse::Always {
            return None;
        }
        let (table, context) = (Arc::clone(self.table), self.context.clone());
        let projection = self.projection.to_vec();
        let rows = IndexScanExec::new(table, range.path, projection, self.has_row_ids, context);
        Some(Arc::new(rows.with_conditions(self.conditions).with_ends(ends)))
    }

    /// The range of an index at whose ends the rows are, and at which ones.
    fn ends_of(&self, index: &IndexDefinition, wanted: &Wanted) -> Option<(ExactRange, IndexEnds)> {
        let excludes_null = matches!(wanted, Wanted::Extremes(_));
        let range = exact_range(self.table, index, self.learned, self.conditions, excludes_null)?;
        let columns = &index.columns;
        let used = match wanted {
            Wanted::First(keys, _) => range.equal + keys.len(),
            Wanted::Extremes(_) => range.equal + 1,
        };
        if !columns.iter().take(used).all(|of| self.is_ordered_alike(of.column)) {
            return None;
        }
        let ends = match wanted {
            Wanted::Extremes(column) => {
                let is_next = columns.get(range.equal).is_some_and(|of| of.column == *column);
                is_next.then_some(IndexEnds { first: 1, last: 1 })
            }
            Wanted::First(keys, count) => {
                let (equal, rest) = columns.split_at(range.equal);
                match self.is_backwards(equal, rest, keys)? {
                    true => Some(IndexEnds { first: 0, last: *count }),
                    false => Some(IndexEnds { first: *count, last: 0 }),
                }
            }
        };
        ends.map(|ends| (range, ends))
    }

    /// Whether keys order rows against the order of an index; `None` if the index orders them in another way. All rows have the same
    /// values in the columns `equal`.
    fn is_backwards(
        &self,
        equal: &[IndexColumn],
        rest: &[IndexColumn],
        keys: &[Key],
    ) -> Option<bool> {
        let mut rest = rest.iter();
        let mut is_backwards = None;
        for key in keys {
            if equal.iter().any(|of| of.column == key.column) {
                continue;
            }
            let of = rest.next().filter(|of| of.column == key.column)?;
            let turned = of.is_descending != key.is_descending;
            let are_nulls_turned = of.nulls_first != key.nulls_first;
            let has_nulls = self.table.schema().columns[key.column].nullable;
            if has_nulls && turned != are_nulls_turned
                || is_backwards.is_some_and(|before| before != turned)
            {
                return None;
            }
            is_backwards = Some(turned);
        }
        Some(is_backwards.unwrap_or(false))
    }

    /// Whether an index orders values of a column as sorts and aggregates do, and finds all that are equal.
    fn is_ordered_alike(&self, column: usize) -> bool {
        let schema = self.table.arrow_schema();
        let data_type = schema.field(column).data_type();
        data_type.is_integer()
            || matches!(
                data_type,
                DataType::Boolean
                    | DataType::Date32
                    | DataType::Timestamp(..)
                    | DataType::Decimal128(..)
                    | DataType::Utf8View
                    | DataType::BinaryView
            )
    }
}
