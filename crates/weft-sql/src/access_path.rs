//! Access paths: which index a scan's conditions are looked up in, and which ranges of its keys they are.
//!
//! An index serves conditions on the columns that its key begins with: values that these are equal to, and behind them a
//! range of one more column. What it finds satisfies at least those; all conditions are put to the rows once more.

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::Schema;
use weft_store::{IndexDefinition, KeyRange, Op, Predicate, Scalar, Statistics, Table};

use crate::pushdown::{Condition, scalar_value, share};

/// Ranges that are looked up, at most.
const RANGES_MAX: usize = 1_000;

/// Rows that are scanned in the time that one is fetched by an index, and in the time that an entry of one is read.
const SCANNED_PER_FETCHED: f64 = 2_000.0;
const SCANNED_PER_ENTRY: f64 = 50.0;

/// When indexes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IndexUse {
    /// Where that takes less time than a scan.
    #[default]
    Auto,
    /// Wherever one serves a condition.
    Always,
    /// Nowhere.
    Never,
}

impl IndexUse {
    pub(crate) const ALL: [IndexUse; 3] = [IndexUse::Auto, IndexUse::Always, IndexUse::Never];

    pub(crate) fn name(self) -> &'static str {
        match self {
            IndexUse::Auto => "auto",
            IndexUse::Always => "always",
            IndexUse::Never => "never",
        }
    }
}

/// A way to the rows of a table by one of its indexes.
#[derive(Clone, Debug)]
pub(crate) struct AccessPath {
    /// The index's name.
    pub(crate) index: String,
    /// None of which overlaps another.
    pub(crate) ranges: Vec<KeyRange>,
    /// About how many rows they have.
    pub(crate) rows: f64,
    /// The conditions that it serves.
    pub(crate) served: Vec<Condition>,
}

/// About how long it takes to have so many rows with these columns by an index, in rows that are scanned meanwhile.
pub(crate) fn looked_up_cost(table: &Table, index: &str, rows: f64, columns: &[usize]) -> f64 {
    match table.is_covered(index, columns) {
        Ok(true) => rows * SCANNED_PER_ENTRY,
        _ => rows * SCANNED_PER_FETCHED,
    }
}

/// The access path that takes less time than a scan with these conditions, or the best one if indexes are always used. The columns of
/// `projection` are wanted of the rows.
pub(crate) fn choose(
    table: &Table,
    learned: Option<&Statistics>,
    (projection, conditions): (&[usize], &[Condition]),
    index_use: IndexUse,
) -> Option<AccessPath> {
    if index_use == IndexUse::Never || conditions.is_empty() {
        return None;
    }
    let conditioned = conditions.iter().map(|(column, _)| *column);
    let columns: Vec<usize> = projection.iter().copied().chain(conditioned).collect();
    let paths = table.indexes().filter_map(|index| path(table, index, learned, conditions));
    let cost = |path: &AccessPath| looked_up_cost(table, &path.index, path.rows, &columns);
    let costs = paths.map(|path| (cost(&path), path));
    let (cost, best) = costs.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let (_, scanned) = table.rows_within(conditions);
    (cost <= scanned as f64 || index_use == IndexUse::Always).then_some(best)
}

/// A range of the keys of an index that has just the rows which satisfy all conditions.
pub(crate) struct ExactRange {
    pub(crate) path: AccessPath,
    /// How many columns have the same value in all of these rows, from the first one on.
    pub(crate) equal: usize,
}

/// The range of an index that has just the rows which satisfy these conditions, if one has; without those that have NULL in the first
/// column with several values if `excludes_null` is set.
pub(crate) fn exact_range(
    table: &Table,
    index: &IndexDefinition,
    learned: Option<&Statistics>,
    conditions: &[Condition],
    excludes_null: bool,
) -> Option<ExactRange> {
    let schema = table.arrow_schema();
    let found = match conditions {
        [] => {
            let (index, ranges) = (index.name.clone(), vec![KeyRange::default()]);
            AccessPath { index, ranges, rows: table.rows() as f64, served: Vec::new() }
        }
        _ => path(table, index, learned, conditions)?,
    };
    let ([range], true) = (&found.ranges[..], found.served.len() == conditions.len()) else {
        return None;
    };
    let equal = index.columns.iter().map_while(|of| equal_values(conditions, of.column, &schema));
    let values: Vec<ArrayRef> =
        equal.map(|(_, values)| values.first().cloned()).collect::<Option<_>>()?;
    let (mut range, equal) = (range.clone(), values.len());
    // A bound leaves out NULL, which lies at one end of the keys.
    let leaves_null_out = excludes_null || conditions.len() > equal;
    let next = index.columns.get(equal);
    if let Some(of) = next.filter(|_| leaves_null_out)
        && schema.field(of.column).is_nullable()
    {
        let null = new_null_array(schema.field(of.column).data_type(), 1);
        let nulls = table.key_prefix(&index.name, &[values.as_slice(), &[null]].concat()).ok()?;
        let nulls = KeyRange::beginning_with(nulls);
        match of.nulls_first {
            true => range.low = range.low.max(nulls.high),
            false => {
                let highs = [range.high, nulls.low];
                range.high = highs.into_iter().flatten().min();
            }
        }
    }
    // A unique index does not have rows with NULL in their keys.
    let is_complete = |(number, of): (usize, &weft_store::IndexColumn)| {
        !schema.field(of.column).is_nullable()
            || number < equal
            || number == equal && leaves_null_out
    };
    if index.is_unique && !index.columns.iter().enumerate().all(is_complete) {
        return None;
    }
    Some(ExactRange { path: AccessPath { ranges: vec![range], ..found }, equal })
}

fn path(
    table: &Table,
    index: &IndexDefinition,
    learned: Option<&Statistics>,
    conditions: &[Condition],
) -> Option<AccessPath> {
    let schema = table.arrow_schema();
    let mut prefixes: Vec<Vec<ArrayRef>> = vec![Vec::new()];
    let mut served = Vec::new();
    let mut kept = 1.0;
    let mut columns = index.columns.iter();
    let mut last = None;
    for of in columns.by_ref() {
        let Some((condition, values)) = equal_values(conditions, of.column, &schema) else {
            last = Some(of);
            break;
        };
        if prefixes.len() * values.len() > RANGES_MAX {
            last = Some(of);
            break;
        }
        let longer = prefixes.iter().flat_map(|prefix| {
            values.iter().map(|value| [prefix.as_slice(), std::slice::from_ref(value)].concat())
        });
        prefixes = longer.collect();
        kept *= share_of(table, learned, condition, values.len());
        served.push(condition.clone());
    }
    let prefix = |values: &[ArrayRef]| match values {
        [] => Some(Vec::new()),
        values => table.key_prefix(&index.name, values).ok(),
    };
    let mut ranges = Vec::with_capacity(prefixes.len());
    let bounds = last.map(|of| Bounds::of(conditions, of.column, &schema)).unwrap_or_default();
    for values in &prefixes {
        let range = match values.is_empty() {
            true => KeyRange::default(),
            false => KeyRange::beginning_with(prefix(values)?),
        };
        ranges.push(match last.filter(|_| !bounds.is_empty()) {
            Some(of) => bounds.narrow(range, of.is_descending, |value| {
                prefix(&[values.as_slice(), std::slice::from_ref(value)].concat())
            })?,
            None => range,
        });
    }
    for condition in bounds.conditions() {
        kept *= share_of(table, learned, condition, 1);
        served.push(condition.clone());
    }
    if served.is_empty() {
        return None;
    }
    // Values that occur twice in a list.
    ranges.sort_unstable_by(|a, b| a.low.cmp(&b.low));
    ranges.dedup();
    let is_whole_key = index.is_unique && last.is_none();
    let rows = kept * table.rows() as f64;
    let rows = if is_whole_key { rows.min(ranges.len() as f64) } else { rows.max(1.0) };
    Some(AccessPath { index: index.name.clone(), ranges, rows, served })
}

/// The condition that a column is equal to one of some values, and these.
fn equal_values<'a>(
    conditions: &'a [Condition],
    column: usize,
    schema: &Schema,
) -> Option<(&'a Condition, Vec<ArrayRef>)> {
    conditions.iter().filter(|condition| condition.0 == column).find_map(|condition| {
        let values = match &condition.1 {
            Predicate::Compare(Op::Eq, value) => std::slice::from_ref(value),
            Predicate::In(values) => values.as_slice(),
            _ => return None,
        };
        // NULL is equal to nothing.
        let values = values.iter().filter(|value| **value != Scalar::Null);
        let values: Option<Vec<ArrayRef>> =
            values.map(|value| array_of(value, column, schema)).collect();
        values.filter(|values| !values.is_empty()).map(|values| (condition, values))
    })
}

/// One value as an array.
fn array_of(value: &Scalar, column: usize, schema: &Schema) -> Option<ArrayRef> {
    scalar_value(value, schema.field(column).data_type())?.to_array().ok()
}

/// What bounds the values of a column: from below, and from above, each with whether the bound itself is among them.
#[derive(Default)]
struct Bounds<'a> {
    low: Option<(&'a Condition, ArrayRef, bool)>,
    high: Option<(&'a Condition, ArrayRef, bool)>,
}

impl<'a> Bounds<'a> {
    fn of(conditions: &'a [Condition], column: usize, schema: &Schema) -> Bounds<'a> {
        let mut bounds = Bounds::default();
        // NaNs of both signs are one key, but not one value.
        if schema.field(column).data_type().is_floating() {
            return bounds;
        }
        for condition in conditions.iter().filter(|condition| condition.0 == column) {
            let Predicate::Compare(op, value) = &condition.1 else { continue };
            if *value == Scalar::Null {
                continue;
            }
            let Some(value) = array_of(value, column, schema) else { continue };
            match op {
                Op::Gt | Op::GtEq if bounds.low.is_none() => {
                    bounds.low = Some((condition, value, *op == Op::GtEq));
                }
                Op::Lt | Op::LtEq if bounds.high.is_none() => {
                    bounds.high = Some((condition, value, *op == Op::LtEq));
                }
                _ => {}
            }
        }
        bounds
    }

    fn is_empty(&self) -> bool {
        self.low.is_none() && self.high.is_none()
    }

    fn conditions(&self) -> impl Iterator<Item = &'a Condition> {
        self.low.iter().chain(&self.high).map(|(condition, ..)| *condition)
    }

    /// The part of a range within the bounds, whose keys `key` gives.
    fn narrow(
        &self,
        range: KeyRange,
        is_descending: bool,
        key: impl Fn(&ArrayRef) -> Option<Vec<u8>>,
    ) -> Option<KeyRange> {
        let mut range = range;
        let (first, last) =
            if is_descending { (&self.high, &self.low) } else { (&self.low, &self.high) };
        if let Some((_, value, is_among)) = first {
            let with_value = KeyRange::beginning_with(key(value)?);
            range.low = if *is_among { with_value.low } else { with_value.high };
        }
        if let Some((_, value, is_among)) = last {
            let with_value = KeyRange::beginning_with(key(value)?);
            range.high = if *is_among { with_value.high } else { with_value.low };
        }
        Some(range)
    }
}

/// About which share of the rows satisfies a condition, of `values` equal ones.
fn share_of(
    table: &Table,
    learned: Option<&Statistics>,
    (column, predicate): &Condition,
    values: usize,
) -> f64 {
    let is_equal = matches!(predicate, Predicate::Compare(Op::Eq, _) | Predicate::In(_));
    let distinct = learned.and_then(|learned| learned.distinct(*column)).filter(|_| is_equal);
    match distinct {
        Some(distinct) => (values as f64 / distinct.max(1) as f64).min(1.0),
        None => table.zone(*column).map_or(1.0, |zone| share(predicate, &zone, table.rows())),
    }
}
