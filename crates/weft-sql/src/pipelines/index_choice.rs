//! Whether a join looks its rows up in an index of one of its inputs, and in which: that input is a scan of a table, with
//! conditions and columns that are picked, and the columns that it is joined by come first in an index, beside others that
//! a condition makes constant.
//!
//! The lookup is chosen where it takes less time than scanning that input: what a scan reads and decodes against what is
//! read at random, of the index and of the blocks that the rows lie in, as far as they are not in memory.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinSide, JoinType, Result as DfResult, ScalarValue};
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use weft_exec::join::Nulls;
use weft_exec::source::IndexJoinKind;
use weft_store::{ColumnResidence, IndexDefinition, Op, Predicate, Scalar};

use super::compare::have_one_order;
use super::expressions::Expr;
use super::join::{JoinColumn, Joining};
use super::translate::{Translator, column_of, passed};
use super::worth::Worth;
use crate::access_path::IndexUse;
use crate::plan_node::Plan;
use crate::pushdown::{Condition, scalar_value};
use crate::scan::ScanExec;

/// Time in ns that a row takes in a scan for each of its columns, and to be looked for in a hash table.
const SCANNED_VALUE_NS: f64 = 1.0;
const PROBED_ROW_NS: f64 = 4.0;
/// Time in ns that looking up a key takes, and fetching a value of a row that is found.
const LOOKED_UP_KEY_NS: f64 = 1_000.0;
const FETCHED_VALUE_NS: f64 = 2_000.0;
/// Time in ns that telling a row from an entry of an index takes.
const ENTRY_NS: f64 = 200.0;
/// Time in ns that reading takes, for each byte, and for each request where many are in flight.
const READ_BYTE_NS: f64 = 0.5;
const READ_REQUEST_NS: f64 = 5_000.0;
/// Bytes of a node of an index, and about how many keys one has.
const NODE_BYTES: f64 = 8_192.0;
const NODE_KEYS: f64 = 300.0;

/// A scan of a table, and what is done to its rows before they are joined.
pub(super) struct Inner<'a> {
    pub(super) scan: &'a ScanExec,
    /// Which column of the scan each column is.
    pub(super) columns: Vec<usize>,
    /// Conditions on the columns of the scan.
    pub(super) filters: Vec<Expr>,
}

/// A column of an index as a join looks it up.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KeyPart {
    /// A key of the join, by its number.
    Key(usize),
    /// A value that a condition says.
    Constant(ScalarValue),
}

/// The first columns of an index, and the types that it has them in.
type KeyParts = Vec<(KeyPart, DataType)>;

/// An index that a join looks up in.
pub(super) struct IndexChoice<'a> {
    pub(super) inner: Inner<'a>,
    /// The input that is looked up in.
    pub(super) inner_side: JoinSide,
    pub(super) kind: IndexJoinKind,
    /// The index's name.
    pub(super) index: String,
    /// Its first columns.
    pub(super) parts: KeyParts,
    /// Keys of the join that are none of them.
    pub(super) rest: Vec<usize>,
    /// The columns of the scan that are fetched.
    pub(super) fetched: Vec<usize>,
}

impl<'a> Inner<'a> {
    /// The scan that a plan is, if it is one whose rows are looked at each on its own.
    fn of(plan: &'a Plan) -> Option<Inner<'a>> {
        if let Some(scan) = plan.downcast_ref::<ScanExec>() {
            let is_whole = !scan.has_limit() && !scan.has_row_ids();
            let columns = (0..scan.projection().len()).collect();
            return is_whole.then(|| Inner { scan, columns, filters: Vec::new() });
        }
        if plan.fetch().is_some() {
            return None;
        }
        if let Some(input) = passed(plan) {
            return Inner::of(input);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let mut inner = Inner::of(filter.input())?;
            if is_volatile(filter.predicate()) {
                return None;
            }
            inner.filters.push(inner.moved(filter.predicate()).ok()?);
            if let Some(projection) = filter.projection() {
                inner.columns = projection.iter().map(|column| inner.columns[*column]).collect();
            }
            return Some(inner);
        }
        let projection = plan.downcast_ref::<ProjectionExec>()?;
        let inner = Inner::of(projection.input())?;
        let column = |expr: &Expr| Some(inner.columns[column_of(expr)?]);
        let columns: Option<Vec<usize>> =
            projection.expr().iter().map(|expr| column(&expr.expr)).collect();
        Some(Inner { columns: columns?, ..inner })
    }

    /// An expression over the columns as one over those of the scan.
    fn moved(&self, expr: &Expr) -> DfResult<Expr> {
        let moved = Arc::clone(expr).transform_up(|expr: Expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let moved = Column::new(column.name(), self.columns[column.index()]);
            Ok(Transformed::yes(Arc::new(moved) as Expr))
        });
        Ok(moved?.data)
    }

    /// The column of the table that a key is.
    fn table_column(&self, key: &Expr) -> Option<usize> {
        let key = match key.downcast_ref::<CastExpr>() {
            Some(cast) => {
                let column = cast.expr();
                let number = self.columns[column_of(column)?];
                let schema = self.scan.table().arrow_schema();
                let from = schema.field(self.scan.projection()[number]).data_type();
                is_widened(from, cast.cast_type()).then_some(column)?
            }
            None => key,
        };
        Some(self.scan.projection()[self.columns[column_of(key)?]])
    }
}

/// True if each value of one type of integers is one of another.
fn is_widened(from: &DataType, to: &DataType) -> bool {
    let (Some(narrow), Some(wide)) = (from.primitive_width(), to.primitive_width()) else {
        return false;
    };
    from.is_integer()
        && to.is_integer()
        && match (from.is_signed_integer(), to.is_signed_integer()) {
            (true, false) => false,
            (false, true) => narrow < wide,
            _ => narrow <= wide,
        }
}

/// True if values of one type are equal to values of the other where the index has the same key for them, once integers
/// were cast.
fn has_same_keys(outer: &DataType, index: &DataType) -> bool {
    if outer.is_integer() && index.is_integer() {
        return true;
    }
    let is_exact = !outer.is_floating() && !matches!(outer, DataType::Decimal128(..));
    outer == index && !outer.is_floating() && !outer.is_nested()
        || is_exact && have_one_order(outer, index)
}

/// The index that a join looks up in, if it does.
pub(super) fn choose<'a>(
    translator: &Translator,
    joining: &Joining<'a>,
) -> Option<IndexChoice<'a>> {
    if joining.keys.is_empty() || joining.nulls == Nulls::Equal {
        return None;
    }
    let sides = [JoinSide::Right, JoinSide::Left];
    let choices = sides.into_iter().filter_map(|side| on_side(translator, joining, side));
    let best = choices.min_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, choice)| choice)
}

/// What becomes of the rows of the other input where this one is looked up in.
fn kind(join_type: JoinType, inner: JoinSide) -> Option<IndexJoinKind> {
    Some(match (join_type, inner) {
        (JoinType::Inner, _) => IndexJoinKind::Inner,
        (JoinType::Left, JoinSide::Right) | (JoinType::Right, JoinSide::Left) => {
            IndexJoinKind::Left
        }
        (JoinType::LeftSemi, JoinSide::Right) | (JoinType::RightSemi, JoinSide::Left) => {
            IndexJoinKind::Semi
        }
        (JoinType::LeftAnti, JoinSide::Right) | (JoinType::RightAnti, JoinSide::Left) => {
            IndexJoinKind::Anti
        }
        (JoinType::LeftMark, JoinSide::Right) | (JoinType::RightMark, JoinSide::Left) => {
            IndexJoinKind::Mark
        }
        _ => return None,
    })
}

/// The kind of a join where nulls keep it unknown whether there is a match: the usual one if there are no nulls; else NOT IN of all rows of
/// a table by one key, which the index has in the type of the outer one: a cast would make nulls of other values.
fn kind_with_unknown(
    kind: IndexJoinKind,
    joining: &Joining<'_>,
    (inner, inner_side): (&Inner<'_>, JoinSide),
    outer_schema: &Schema,
) -> Option<IndexJoinKind> {
    let [(left, right)] = joining.keys else { return None };
    let (outer, key) = if inner_side == JoinSide::Left { (right, left) } else { (left, right) };
    let column = inner.table_column(key)?;
    let schema = inner.scan.table().arrow_schema();
    let field = schema.field(column);
    if !field.is_nullable() && !outer.nullable(outer_schema).ok()? {
        return Some(kind);
    }
    let is_whole = joining.filter.is_none()
        && inner.filters.is_empty()
        && inner.scan.conditions().is_empty()
        && outer.data_type(outer_schema).is_ok_and(|found| found == *field.data_type());
    (is_whole && kind == IndexJoinKind::Anti).then_some(IndexJoinKind::NotIn)
}

/// The best index of one of the inputs, and the time in ns that looking up takes beyond that of a scan.
fn on_side<'a>(
    translator: &Translator,
    joining: &Joining<'a>,
    inner_side: JoinSide,
) -> Option<(f64, IndexChoice<'a>)> {
    let kind = kind(joining.join_type, inner_side)?;
    let (outer_plan, inner_plan) = match inner_side {
        JoinSide::Left => (joining.right, joining.left),
        _ => (joining.left, joining.right),
    };
    let inner = Inner::of(inner_plan)?;
    let index_use = inner.scan.context().index_join;
    if index_use == IndexUse::Never || is_shared(translator, inner_plan) {
        return None;
    }
    let outer_schema = outer_plan.schema();
    let kind = match joining.nulls {
        Nulls::Unknown => kind_with_unknown(kind, joining, (&inner, inner_side), &outer_schema)?,
        _ => kind,
    };
    let table = inner.scan.table().clone();
    let indexes = table.indexes().filter_map(|index| {
        let (parts, rest) = parts(index, joining, &inner, inner_side, &outer_schema)?;
        let is_whole = index.is_unique && parts.len() == index.columns.len();
        Some((index, parts, rest, is_whole))
    });
    let best = indexes.max_by_key(|(_, parts, _, is_whole)| (*is_whole, parts.len()));
    let (index, parts, rest, is_whole) = best?;
    let fetched = fetched(joining, &inner, inner_side, &rest);
    let index = index.name.clone();
    let choice = IndexChoice { inner, inner_side, kind, index, parts, rest, fetched };
    let outer_rows = Worth::default().rows(outer_plan);
    let gain = choice.scanned_ns() - choice.looked_up_ns(outer_rows, is_whole);
    (gain > 0.0 || index_use == IndexUse::Always).then_some((-gain, choice))
}

/// True if a part of a plan that is looked up in would be computed for others, too.
fn is_shared(translator: &Translator, plan: &Plan) -> bool {
    translator.shared.is_shared(plan)
        || plan.children().into_iter().any(|input| is_shared(translator, input))
}

/// How a join looks up in an index, and the keys that it is not looked up by; `None` if none is.
fn parts(
    index: &IndexDefinition,
    joining: &Joining<'_>,
    inner: &Inner<'_>,
    inner_side: JoinSide,
    outer_schema: &Schema,
) -> Option<(KeyParts, Vec<usize>)> {
    let schema = inner.scan.table().arrow_schema();
    let mut parts = Vec::new();
    for of in &index.columns {
        let data_type = schema.field(of.column).data_type();
        let key = joining.keys.iter().position(|(left, right)| {
            let (outer, key) = match inner_side {
                JoinSide::Left => (right, left),
                _ => (left, right),
            };
            let outer_type = outer.data_type(outer_schema);
            inner.table_column(key) == Some(of.column)
                && outer_type.is_ok_and(|outer_type| has_same_keys(&outer_type, data_type))
        });
        let part = match key {
            Some(key) => KeyPart::Key(key),
            None => match constant(inner.scan, of.column, data_type) {
                Some(value) => KeyPart::Constant(value),
                None => break,
            },
        };
        parts.push((part, data_type.clone()));
    }
    let is_looked_up = |key: &usize| parts.iter().any(|(part, _)| *part == KeyPart::Key(*key));
    let rest: Vec<usize> = (0..joining.keys.len()).filter(|key| !is_looked_up(key)).collect();
    (rest.len() < joining.keys.len()).then_some((parts, rest))
}

/// The value that a condition says a column is equal to.
fn constant(scan: &ScanExec, column: usize, data_type: &DataType) -> Option<ScalarValue> {
    let is_exact = !data_type.is_floating();
    let mut of_column = scan.conditions().iter().filter(|(of, _)| *of == column && is_exact);
    of_column.find_map(|(_, condition)| match condition {
        Predicate::Compare(Op::Eq, value) if *value != Scalar::Null => {
            scalar_value(value, data_type).filter(|value| value.data_type() == *data_type)
        }
        _ => None,
    })
}

/// The columns of the scan that are wanted of the rows that are found.
fn fetched(
    joining: &Joining<'_>,
    inner: &Inner<'_>,
    inner_side: JoinSide,
    rest: &[usize],
) -> Vec<usize> {
    let of_inner = |column: &JoinColumn| match (column, inner_side) {
        (JoinColumn::Left(column), JoinSide::Left)
        | (JoinColumn::Right(column), JoinSide::Right) => Some(inner.columns[*column]),
        _ => None,
    };
    let filtered = joining.filter_columns().unwrap_or_default();
    let wanted = joining.columns();
    let mut fetched: Vec<usize> = wanted.iter().chain(&filtered).filter_map(of_inner).collect();
    for filter in &inner.filters {
        fetched.extend(collect_columns(filter).iter().map(Column::index));
    }
    for key in rest {
        let (left, right) = &joining.keys[*key];
        let key = if inner_side == JoinSide::Left { left } else { right };
        fetched.extend(collect_columns(key).iter().map(|column| inner.columns[column.index()]));
    }
    fetched.sort_unstable();
    fetched.dedup();
    fetched
}

impl IndexChoice<'_> {
    /// The conditions of the scan, but for those that say what columns of the key are looked up by.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let table = self.inner.scan.table();
        let index = table.indexes().find(|index| index.name == self.index);
        let columns = index.map_or(&[][..], |index| &index.columns);
        let is_looked_up = |(column, predicate): &&Condition| {
            let schema = table.arrow_schema();
            let mut parts = columns.iter().zip(&self.parts);
            parts.any(|(of, (part, _))| match (part, predicate) {
                (KeyPart::Constant(value), Predicate::Compare(Op::Eq, equal)) => {
                    let data_type = schema.field(*column).data_type();
                    of.column == *column && scalar_value(equal, data_type).as_ref() == Some(value)
                }
                _ => false,
            })
        };
        let conditions = self.inner.scan.conditions().iter();
        conditions.filter(|condition| !is_looked_up(condition)).cloned().collect()
    }

    /// The columns of the table that are read of the rows that are found.
    fn read_columns(&self) -> Vec<usize> {
        let scan = self.inner.scan;
        let mut columns: Vec<usize> =
            self.fetched.iter().map(|column| scan.projection()[*column]).collect();
        columns.extend(self.conditions().iter().map(|(column, _)| *column));
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// About how long it takes to scan the table, and to look for its rows in a hash table, in ns.
    fn scanned_ns(&self) -> f64 {
        let scan = self.inner.scan;
        let mut columns = self.read_columns();
        columns.extend(scan.projection());
        columns.sort_unstable();
        columns.dedup();
        let all = scan.table().rows().max(1) as f64;
        let (_, rows) = scan.table().rows_within(scan.conditions());
        let ColumnResidence { bytes, cached, .. } = scan.table().residence(&columns);
        let cold_bytes = bytes as f64 * (1.0 - cached) * rows as f64 / all;
        rows as f64 * (columns.len() as f64 * SCANNED_VALUE_NS + PROBED_ROW_NS)
            + cold_bytes * READ_BYTE_NS
    }

    /// About how long it takes to look up so many rows and to fetch what they match, in ns.
    fn looked_up_ns(&self, outer_rows: f64, is_whole: bool) -> f64 {
        let table = self.inner.scan.table();
        let all = table.rows().max(1) as f64;
        let rows = outer_rows * if is_whole { 1.0 } else { self.rows_of_key(all) };
        let residence = table.index_residence(&self.index).ok().flatten();
        let height = (all.ln() / NODE_KEYS.ln()).ceil().max(1.0);
        let (cached, _) = residence.unwrap_or((0.0, 0));
        let nodes = (all / NODE_KEYS).max(1.0);
        let cold_nodes = distinct(nodes, outer_rows) * (1.0 - cached);
        let columns = self.read_columns();
        let looked_up_ns = outer_rows * LOOKED_UP_KEY_NS * height.max(1.0) / 2.0;
        if table.is_covered(&self.index, &columns).unwrap_or(false) {
            return looked_up_ns
                + rows * ENTRY_NS
                + cold_nodes * (READ_REQUEST_NS + NODE_BYTES * READ_BYTE_NS);
        }
        let ColumnResidence { bytes, blocks, cached } = table.residence(&columns);
        let blocks = (blocks as f64).max(1.0);
        let visited = distinct(blocks, rows * columns.len() as f64);
        let cold_blocks = visited * (1.0 - cached);
        let requests = cold_nodes + cold_blocks;
        let read_bytes = cold_nodes * NODE_BYTES + cold_blocks * bytes as f64 / blocks;
        looked_up_ns
            + rows * columns.len() as f64 * FETCHED_VALUE_NS
            + requests * READ_REQUEST_NS
            + read_bytes * READ_BYTE_NS
    }

    /// About how many rows have one key.
    fn rows_of_key(&self, all: f64) -> f64 {
        let scan = self.inner.scan;
        let definition = scan.table().indexes().find(|index| index.name == self.index);
        let columns = definition.map_or(&[][..], |definition| &definition.columns);
        let known = columns.iter().take(self.parts.len());
        let known: Vec<f64> =
            known.filter_map(|of| scan.distinct(of.column)).map(|of| of as f64).collect();
        match known.is_empty() {
            true => all.sqrt(),
            false => all / known.iter().product::<f64>().clamp(1.0, all),
        }
    }
}

/// About how many of some things are met when one of them is met so many times.
fn distinct(things: f64, times: f64) -> f64 {
    things * (1.0 - (-times / things).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_widened_where_no_value_is_lost() {
        assert!(is_widened(&DataType::Int32, &DataType::Int64));
        assert!(is_widened(&DataType::UInt32, &DataType::Int64));
        assert!(!is_widened(&DataType::UInt64, &DataType::Int64));
        assert!(!is_widened(&DataType::Int32, &DataType::UInt64));
        assert!(!is_widened(&DataType::Int64, &DataType::Int32));
        assert!(!is_widened(&DataType::Int32, &DataType::Float64));
    }

    #[test]
    fn equal_values_have_equal_keys() {
        assert!(has_same_keys(&DataType::Utf8, &DataType::Utf8View));
        assert!(has_same_keys(&DataType::Int64, &DataType::Int32));
        assert!(!has_same_keys(&DataType::Float64, &DataType::Float64));
        assert!(!has_same_keys(&DataType::Decimal128(9, 2), &DataType::Decimal128(9, 3)));
        assert!(!has_same_keys(&DataType::Date32, &DataType::Int32));
    }

    #[test]
    fn few_things_are_met_at_most_once_each() {
        assert!(distinct(10.0, 1_000.0) > 9.9);
        assert!((distinct(1e9, 100.0) - 100.0).abs() < 0.1);
    }
}
