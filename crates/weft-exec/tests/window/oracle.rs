//! What window functions give, row by row, in the plainest way.

use std::cmp::Ordering;
use std::ops::Range;

use weft_exec::aggregate::Moment;
use weft_exec::program::Constant;
use weft_exec::window::{Aggregate, Bound, Distance, Exclusion, Frame, Given, Kind, Shift};

/// A row of the tests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: u64,
    pub(crate) group: Option<i32>,
    pub(crate) key: Option<i64>,
    pub(crate) number: Option<i64>,
    pub(crate) float: Option<f64>,
    pub(crate) text: Option<String>,
    pub(crate) truth: Option<bool>,
}

/// How rows are ordered within partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyOrder {
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

impl KeyOrder {
    pub(crate) fn compare(self, a: Option<i64>, b: Option<i64>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self.descending => b.cmp(&a),
            (Some(a), Some(b)) => a.cmp(&b),
            (None, None) => Ordering::Equal,
            (None, _) if self.nulls_first => Ordering::Less,
            (_, None) if !self.nulls_first => Ordering::Less,
            _ => Ordering::Greater,
        }
    }
}

/// A column of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    Nothing,
    Number,
    Float,
    Text,
    Truth,
}

/// The value of a column in words; nothing if it is null.
fn value(row: &Row, argument: Argument) -> Option<String> {
    match argument {
        Argument::Nothing => Some(String::new()),
        Argument::Number => row.number.map(|number| number.to_string()),
        Argument::Float => row.float.map(|float| format!("{float:?}")),
        Argument::Text => row.text.clone(),
        Argument::Truth => row.truth.map(|truth| truth.to_string()),
    }
}

/// The results of a function for the rows of a partition, in words.
pub(crate) fn results(
    kind: &Kind,
    argument: Argument,
    rows: &[Row],
    order: KeyOrder,
) -> Vec<Option<String>> {
    (0..rows.len()).map(|at| result(kind, argument, rows, order, at)).collect()
}

fn result(
    kind: &Kind,
    argument: Argument,
    rows: &[Row],
    order: KeyOrder,
    at: usize,
) -> Option<String> {
    let peers = peers(rows, at);
    let count = rows.len();
    match kind {
        Kind::RowNumber => Some((at + 1).to_string()),
        Kind::Rank => Some((peers.start + 1).to_string()),
        Kind::DenseRank => {
            let mut keys: Vec<_> = rows[..=at].iter().map(|row| row.key).collect();
            keys.dedup();
            Some(keys.len().to_string())
        }
        Kind::Ntile(parts) => {
            let Given::Constant(parts) = parts else { panic!("the oracle knows constants only") };
            let (parts, mut seen) = (*parts as usize, 0);
            let part = (0..parts).find(|part| {
                seen += count / parts + usize::from(*part < count % parts);
                at < seen
            });
            part.map(|part| (part + 1).to_string())
        }
        Kind::PercentRank => {
            let others = (count - 1).max(1) as f64;
            Some(format!("{:?}", peers.start as f64 / others))
        }
        Kind::CumeDist => Some(format!("{:?}", peers.end as f64 / count as f64)),
        Kind::Shift(Shift { back, is_ahead, ignores_nulls, default }) => {
            let back = match back {
                Given::Constant(rows) => *rows,
                Given::Field(_) => rows[at].number?,
            };
            let back = if *is_ahead { back.saturating_neg() } else { back };
            let counts =
                |row: &usize| back != 0 && *ignores_nulls && value(&rows[*row], argument).is_none();
            let places: Vec<usize> = (0..count).filter(|row| *row == at || !counts(row)).collect();
            let own = places.iter().position(|row| *row == at)? as i64;
            let place = own.checked_sub(back).and_then(|place| usize::try_from(place).ok());
            let other = place.and_then(|place| places.get(place));
            match (other, default) {
                (Some(other), _) => value(&rows[*other], argument),
                (None, Some(Given::Field(_))) => rows[at].key.map(|key| key.to_string()),
                (None, Some(Given::Constant(Constant::I64(default)))) => Some(default.to_string()),
                (None, Some(Given::Constant(Constant::Str(default)))) => {
                    Some(String::from_utf8(default.to_vec()).unwrap())
                }
                (None, _) => None,
            }
        }
        Kind::Nth { row, ignores_nulls, frame } => {
            let Given::Constant(row) = row else { panic!("the oracle knows constants only") };
            let mut places = self::frame(frame, rows, order, at);
            places.retain(|row| !ignores_nulls || value(&rows[*row], argument).is_some());
            if *row < 0 {
                places.reverse();
            }
            let place = usize::try_from(row.unsigned_abs()).unwrap().checked_sub(1)?;
            value(&rows[*places.get(place)?], argument)
        }
        Kind::Aggregate(aggregate, frame) => {
            let places = self::frame(frame, rows, order, at);
            let rows: Vec<&Row> = places.into_iter().map(|row| &rows[row]).collect();
            self::aggregate(*aggregate, argument, &rows)
        }
        Kind::Foreign(foreign, frame) => {
            let places = self::frame(frame, rows, order, at);
            let numbers = places.into_iter().map(|row| rows[row].number);
            let value = match format!("{foreign:?}").contains("removes: true") {
                true => numbers.map(added).sum(),
                false => numbers.fold(0, followed),
            };
            Some(value.to_string())
        }
        Kind::Partitionwise(_) => Some(count.to_string()),
    }
}

/// A float with few digits, times something so that it lies between two of these only by chance.
pub(crate) fn in_short(value: f64) -> String {
    format!("{:.3}", value * 1.234_567 + 0.0)
}

/// What a row adds to a sum that also counts.
pub(crate) fn added(number: Option<i64>) -> i64 {
    number.unwrap_or(5000) + (1 << 20)
}

/// What becomes of numbers if one more follows them.
pub(crate) fn followed(before: i64, number: Option<i64>) -> i64 {
    before.wrapping_mul(31).wrapping_add(added(number))
}

fn aggregate(aggregate: Aggregate, argument: Argument, rows: &[&Row]) -> Option<String> {
    let known: Vec<&&Row> = rows.iter().filter(|row| value(row, argument).is_some()).collect();
    if aggregate == Aggregate::Count {
        return Some(known.len().to_string());
    }
    if known.is_empty() {
        return None;
    }
    let numbers = || known.iter().filter_map(|row| row.number);
    let floats = || known.iter().filter_map(|row| row.float);
    let texts = || known.iter().filter_map(|row| row.text.clone());
    let mut truths = known.iter().filter_map(|row| row.truth);
    match (aggregate, argument) {
        (Aggregate::Sum, Argument::Number) => Some(numbers().sum::<i64>().to_string()),
        (Aggregate::Sum, _) => Some(format!("{:?}", floats().sum::<f64>())),
        (Aggregate::Average { .. }, _) => {
            Some(format!("{:?}", floats().sum::<f64>() / known.len() as f64))
        }
        (Aggregate::Min, Argument::Number) => numbers().min().map(|number| number.to_string()),
        (Aggregate::Min, _) => texts().min(),
        (Aggregate::Max, Argument::Number) => numbers().max().map(|number| number.to_string()),
        (Aggregate::Max, _) => texts().max(),
        (Aggregate::All, _) => Some(truths.all(|truth| truth).to_string()),
        (Aggregate::Any, _) => Some(truths.any(|truth| truth).to_string()),
        (Aggregate::Moment(moment), _) => {
            let (count, mean) = (known.len() as f64, floats().sum::<f64>() / known.len() as f64);
            let squares = floats().map(|float| (float - mean).powi(2)).sum::<f64>();
            let of = if moment == Moment::VariancePopulation { count } else { count - 1.0 };
            // To so many digits: sums of squares differ in the last ones.
            (of > 0.0).then(|| in_short(squares / of))
        }
        (Aggregate::Count, _) => None,
    }
}

fn peers(rows: &[Row], at: usize) -> Range<usize> {
    let is_other = |row: &Row| row.key != rows[at].key;
    let start = rows[..at].iter().rposition(is_other).map_or(0, |row| row + 1);
    let end = rows[at..].iter().position(is_other).map_or(rows.len(), |rows| at + rows);
    start..end
}

/// The rows that lie in a frame are looked for one by one.
fn frame(frame: &Frame, rows: &[Row], order: KeyOrder, at: usize) -> Vec<usize> {
    if let Frame::Excluding(exclusion, frame) = frame {
        let peers = peers(rows, at);
        let mut kept = self::frame(frame, rows, order, at);
        kept.retain(|row| match exclusion {
            Exclusion::CurrentRow => *row != at,
            Exclusion::Group => !peers.contains(row),
            Exclusion::Ties => *row == at || !peers.contains(row),
        });
        return kept;
    }
    (0..rows.len())
        .filter(|other| match frame {
            Frame::Rows(start, end) => is_within(start, end, *other as i64 - at as i64),
            Frame::Groups(start, end) => {
                let group = |row: usize| {
                    let mut keys: Vec<_> = rows[..=row].iter().map(|row| row.key).collect();
                    keys.dedup();
                    keys.len() as i64
                };
                is_within(start, end, group(*other) - group(at))
            }
            Frame::Range { start, end, .. } => {
                is_in_range(&constant(start), &constant(end), rows, order, at, *other)
            }
            Frame::Excluding(..) => unreachable!("the frame is a whole one"),
        })
        .collect()
}

fn is_within(start: &Bound<u64>, end: &Bound<u64>, distance: i64) -> bool {
    let is_behind_start = match start {
        Bound::Unbounded => true,
        Bound::Preceding(rows) => distance >= -(*rows as i64),
        Bound::CurrentRow => distance >= 0,
        Bound::Following(rows) => distance >= *rows as i64,
    };
    is_behind_start
        && match end {
            Bound::Unbounded => true,
            Bound::Preceding(rows) => distance <= -(*rows as i64),
            Bound::CurrentRow => distance <= 0,
            Bound::Following(rows) => distance <= *rows as i64,
        }
}

fn constant(bound: &Bound<Distance>) -> Bound<i128> {
    let number = |distance: &Distance| match distance {
        Distance::Constant(constant) => constant.integer().unwrap(),
        Distance::Field(_) => panic!("the oracle knows constants only"),
    };
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Preceding(distance) => Bound::Preceding(number(distance)),
        Bound::CurrentRow => Bound::CurrentRow,
        Bound::Following(distance) => Bound::Following(number(distance)),
    }
}

fn is_in_range(
    start: &Bound<i128>,
    end: &Bound<i128>,
    rows: &[Row],
    order: KeyOrder,
    at: usize,
    other: usize,
) -> bool {
    let (own, key) = (rows[at].key, rows[other].key);
    let by_order = order.compare(key, own);
    let sign = if order.descending { -1 } else { 1 };
    let distance = own.zip(key).map(|(own, key)| (i128::from(key) - i128::from(own)) * sign);
    // Where one of both is null, they are peers, or ends that are so far away lie between them.
    let reaches = |wanted: i128, is_start: bool| match distance {
        Some(distance) if is_start => distance >= wanted,
        Some(distance) => distance <= wanted,
        None if own.is_none() && key.is_none() => true,
        None if is_start => by_order == Ordering::Greater,
        None => by_order == Ordering::Less,
    };
    let is_behind_start = match start {
        Bound::Unbounded => true,
        Bound::Preceding(distance) => reaches(-distance, true),
        Bound::CurrentRow => by_order != Ordering::Less,
        Bound::Following(distance) => reaches(*distance, true),
    };
    is_behind_start
        && match end {
            Bound::Unbounded => true,
            Bound::Preceding(distance) => reaches(-distance, false),
            Bound::CurrentRow => by_order != Ordering::Greater,
            Bound::Following(distance) => reaches(*distance, false),
        }
}
