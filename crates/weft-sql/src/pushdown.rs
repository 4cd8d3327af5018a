//! Conditions that a scan can evaluate on encoded blocks, and how likely they are to hold.
//!
//! A filter is pushed down only if its translation is exact, so that nothing has to be filtered again.

use std::collections::BTreeMap;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};
use weft_store::{Op, Predicate, Scalar, Zone};

/// A condition on the column with this number.
pub(crate) type Condition = (usize, Predicate);

/// Longest IN list that goes to the scan.
const IN_LIST_MAX: usize = 1_000;

/// Share of rows that satisfy a condition of which nothing is known.
const UNKNOWN_SHARE: f64 = 0.1;

/// The least share of the rows of a range, as a part of what it would be if both of its ends had nothing to do with each other.
const RANGE_SHARE: f64 = 0.01;

/// The conditions that hold exactly when `filter` does; nothing if a scan cannot evaluate it.
pub(crate) fn translate(filter: &Expr, schema: &Schema) -> Option<Vec<Condition>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut both = translate(left, schema)?;
            both.extend(translate(right, schema)?);
            Some(both)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (column, mut values) = equal_values(left, schema)?;
            let (other, more) = equal_values(right, schema)?;
            values.extend(more);
            let is_list = column == other && values.len() <= IN_LIST_MAX;
            is_list.then(|| vec![(column, Predicate::In(values))])
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let op = comparison(*op)?;
            let (column, value, op) = match column_of(left, schema) {
                Some(column) => (column, right, op),
                None => (column_of(right, schema)?, left, mirrored(op)),
            };
            let value = constant(value, schema.field(column).data_type())?;
            Some(vec![(column, Predicate::Compare(op, value))])
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let column = column_of(expr, schema)?;
            let data_type = schema.field(column).data_type();
            Some(vec![
                (column, Predicate::Compare(Op::GtEq, constant(low, data_type)?)),
                (column, Predicate::Compare(Op::LtEq, constant(high, data_type)?)),
            ])
        }
        Expr::InList(InList { expr, list, negated: false }) if list.len() <= IN_LIST_MAX => {
            let column = column_of(expr, schema)?;
            let data_type = schema.field(column).data_type();
            let values: Option<Vec<Scalar>> =
                list.iter().map(|value| constant(value, data_type)).collect();
            Some(vec![(column, Predicate::In(values?))])
        }
        Expr::IsNull(expr) => Some(vec![(any_column(expr, schema)?, Predicate::IsNull)]),
        Expr::IsNotNull(expr) => Some(vec![(any_column(expr, schema)?, Predicate::IsNotNull)]),
        Expr::Like(like) => prefix(like, schema),
        Expr::Column(_) => boolean(filter, true, schema),
        Expr::Not(inner) => boolean(inner, false, schema),
        // What the optimizer makes of conditions that are always true, or never.
        Expr::Literal(ScalarValue::Boolean(Some(true)), _) => Some(Vec::new()),
        Expr::Literal(ScalarValue::Boolean(_) | ScalarValue::Null, _) => {
            let column = schema.fields().iter().position(|field| is_ordered(field.data_type()))?;
            Some(vec![(column, Predicate::Compare(Op::Eq, Scalar::Null))])
        }
        _ => None,
    }
}

/// The column and the values that it is equal to one of, if a condition says nothing else: short lists are written so.
fn equal_values(filter: &Expr, schema: &Schema) -> Option<(usize, Vec<Scalar>)> {
    match <[Condition; 1]>::try_from(translate(filter, schema)?).ok()? {
        [(column, Predicate::Compare(Op::Eq, value))] => Some((column, vec![value])),
        [(column, Predicate::In(values))] => Some((column, values)),
        _ => None,
    }
}

fn boolean(expr: &Expr, value: bool, schema: &Schema) -> Option<Vec<Condition>> {
    let column = column_of(expr, schema)?;
    let is_boolean = *schema.field(column).data_type() == DataType::Boolean;
    is_boolean.then(|| vec![(column, Predicate::Compare(Op::Eq, Scalar::Boolean(value)))])
}

fn prefix(like: &Like, schema: &Schema) -> Option<Vec<Condition>> {
    if like.negated || like.case_insensitive || like.escape_char.is_some() {
        return None;
    }
    let column = column_of(&like.expr, schema)?;
    let Scalar::Bytes(pattern) = constant(&like.pattern, schema.field(column).data_type())? else {
        return None;
    };
    let prefix = pattern.strip_suffix(b"%")?;
    let plain = !prefix.iter().any(|byte| matches!(byte, b'%' | b'_' | b'\\'));
    plain.then(|| vec![(column, Predicate::StartsWith(prefix.to_vec()))])
}

fn comparison(op: Operator) -> Option<Op> {
    Some(match op {
        Operator::Eq => Op::Eq,
        Operator::NotEq => Op::NotEq,
        Operator::Lt => Op::Lt,
        Operator::LtEq => Op::LtEq,
        Operator::Gt => Op::Gt,
        Operator::GtEq => Op::GtEq,
        _ => return None,
    })
}

/// The comparison with its sides exchanged.
fn mirrored(op: Op) -> Op {
    match op {
        Op::Lt => Op::Gt,
        Op::LtEq => Op::GtEq,
        Op::Gt => Op::Lt,
        Op::GtEq => Op::LtEq,
        Op::Eq | Op::NotEq => op,
    }
}

/// The number of a column whose values have an order.
fn column_of(expr: &Expr, schema: &Schema) -> Option<usize> {
    let column = any_column(expr, schema)?;
    is_ordered(schema.field(column).data_type()).then_some(column)
}

fn any_column(expr: &Expr, schema: &Schema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of(&column.name).ok(),
        _ => None,
    }
}

fn is_ordered(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Float32
                | DataType::Float64
                | DataType::Utf8View
                | DataType::BinaryView
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
                | DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
        )
}

fn constant(expr: &Expr, data_type: &DataType) -> Option<Scalar> {
    match expr {
        Expr::Literal(value, _) => scalar(value, data_type),
        _ => None,
    }
}

/// A value as the store has it, if it is of the column's type.
fn scalar(value: &ScalarValue, data_type: &DataType) -> Option<Scalar> {
    let same_type = value.data_type() == *data_type
        || matches!(
            (value, data_type),
            (ScalarValue::Utf8(_) | ScalarValue::LargeUtf8(_), DataType::Utf8View)
                | (ScalarValue::Binary(_) | ScalarValue::LargeBinary(_), DataType::BinaryView)
        );
    if !same_type {
        return None;
    }
    if value.is_null() {
        return Some(Scalar::Null);
    }
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Scalar::Boolean(*value),
        ScalarValue::Int8(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::Int16(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::Int32(Some(value))
        | ScalarValue::Date32(Some(value))
        | ScalarValue::Time32Second(Some(value))
        | ScalarValue::Time32Millisecond(Some(value))
        | ScalarValue::Decimal32(Some(value), ..) => Scalar::Int((*value).into()),
        ScalarValue::Int64(Some(value))
        | ScalarValue::Date64(Some(value))
        | ScalarValue::Time64Microsecond(Some(value))
        | ScalarValue::Time64Nanosecond(Some(value))
        | ScalarValue::TimestampSecond(Some(value), _)
        | ScalarValue::TimestampMillisecond(Some(value), _)
        | ScalarValue::TimestampMicrosecond(Some(value), _)
        | ScalarValue::TimestampNanosecond(Some(value), _)
        | ScalarValue::Decimal64(Some(value), ..) => Scalar::Int(*value),
        ScalarValue::UInt8(Some(value)) => Scalar::UInt((*value).into()),
        ScalarValue::UInt16(Some(value)) => Scalar::UInt((*value).into()),
        ScalarValue::UInt32(Some(value)) => Scalar::UInt((*value).into()),
        ScalarValue::UInt64(Some(value)) => Scalar::UInt(*value),
        ScalarValue::Float32(Some(value)) => Scalar::Float32(*value),
        ScalarValue::Float64(Some(value)) => Scalar::Float64(*value),
        ScalarValue::Decimal128(Some(value), ..) => Scalar::Int128(*value),
        ScalarValue::Utf8(Some(value))
        | ScalarValue::LargeUtf8(Some(value))
        | ScalarValue::Utf8View(Some(value)) => Scalar::Bytes(value.clone().into_bytes()),
        ScalarValue::Binary(Some(value))
        | ScalarValue::LargeBinary(Some(value))
        | ScalarValue::BinaryView(Some(value)) => Scalar::Bytes(value.clone()),
        _ => return None,
    })
}

/// A value of the store as DataFusion has it.
pub(crate) fn scalar_value(value: &Scalar, data_type: &DataType) -> Option<ScalarValue> {
    let plain = match value {
        // Zones have none of the last three.
        Scalar::Null | Scalar::Interval { .. } | Scalar::List(_) | Scalar::Struct(_) => {
            return None;
        }
        Scalar::Boolean(value) => ScalarValue::Boolean(Some(*value)),
        Scalar::Int(value) => ScalarValue::Int64(Some(*value)),
        Scalar::UInt(value) => ScalarValue::UInt64(Some(*value)),
        Scalar::Int128(value) => {
            return match data_type {
                DataType::Decimal128(precision, scale) => {
                    Some(ScalarValue::Decimal128(Some(*value), *precision, *scale))
                }
                _ => None,
            };
        }
        Scalar::Float32(value) => ScalarValue::Float32(Some(*value)),
        Scalar::Float64(value) => ScalarValue::Float64(Some(*value)),
        Scalar::Bytes(value) => match data_type {
            DataType::Utf8View => {
                ScalarValue::Utf8View(Some(String::from_utf8(value.clone()).ok()?))
            }
            _ => ScalarValue::BinaryView(Some(value.clone())),
        },
    };
    match data_type {
        // Arrow casts between these and integers of their width only.
        DataType::Date32 | DataType::Time32(_) => {
            plain.cast_to(&DataType::Int32).ok()?.cast_to(data_type).ok()
        }
        DataType::Decimal32(precision, scale) => match value {
            Scalar::Int(value) => {
                Some(ScalarValue::Decimal32(Some((*value).try_into().ok()?), *precision, *scale))
            }
            _ => None,
        },
        DataType::Decimal64(precision, scale) => match value {
            Scalar::Int(value) => Some(ScalarValue::Decimal64(Some(*value), *precision, *scale)),
            _ => None,
        },
        _ => plain.cast_to(data_type).ok(),
    }
}

/// The share of `rows` rows with this zone that satisfies a condition, guessed as if the values were
/// spread evenly.
pub(crate) fn share(predicate: &Predicate, zone: &Zone, rows: u64) -> f64 {
    if rows == 0 || !predicate.may_match(zone, rows) {
        return 0.0;
    }
    if predicate.must_match(zone, rows) {
        return 1.0;
    }
    let nulls = zone.null_count as f64 / rows as f64;
    let range = number(zone.min.as_ref()).zip(number(zone.max.as_ref()));
    let guessed = match predicate {
        Predicate::IsNull => return nulls,
        Predicate::IsNotNull => 1.0,
        Predicate::StartsWith(_) => UNKNOWN_SHARE,
        Predicate::In(values) => (equal_share(range) * values.len() as f64).min(1.0),
        Predicate::Compare(op, value) => {
            let below = range.zip(number(Some(value))).map(|((min, max), value)| {
                ((value - min) / (max - min).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
            });
            match op {
                Op::Eq => equal_share(range),
                Op::NotEq => 1.0 - equal_share(range),
                Op::Lt | Op::LtEq => below.unwrap_or(1.0 / 3.0),
                Op::Gt | Op::GtEq => below.map_or(1.0 / 3.0, |below| 1.0 - below),
            }
        }
    };
    guessed * (1.0 - nulls)
}

/// The share of rows that satisfy all conditions, guessed as if columns had nothing to do with each other. What bounds a column from
/// below and from above is one range. `share_of` guesses for one condition.
pub(crate) fn share_of_all(
    conditions: &[Condition],
    share_of: impl Fn(usize, &Predicate) -> f64,
) -> f64 {
    // By column, the least share of those that bound it from below, and of those that bound it from above.
    let mut ranges: BTreeMap<usize, [Option<f64>; 2]> = BTreeMap::new();
    let mut all = 1.0;
    for (column, predicate) in conditions {
        let share = share_of(*column, predicate);
        let side = match predicate {
            Predicate::Compare(Op::Gt | Op::GtEq, _) => 0,
            Predicate::Compare(Op::Lt | Op::LtEq, _) => 1,
            _ => {
                all *= share;
                continue;
            }
        };
        let least = &mut ranges.entry(*column).or_default()[side];
        *least = Some(least.map_or(share, |least| least.min(share)));
    }
    ranges.into_values().fold(all, |all, range| match range {
        // Of a range that nearly no row is in, it is not known how few there are.
        [Some(above), Some(below)] => all * (above + below - 1.0).max(above * below * RANGE_SHARE),
        [above, below] => all * above.or(below).unwrap_or(1.0),
    })
}

/// The share of one value among those of a range of integers.
fn equal_share(range: Option<(f64, f64)>) -> f64 {
    match range {
        Some((min, max)) if max > min => (1.0 / (max - min + 1.0)).min(UNKNOWN_SHARE),
        _ => UNKNOWN_SHARE,
    }
}

fn number(value: Option<&Scalar>) -> Option<f64> {
    match value? {
        Scalar::Int(value) => Some(*value as f64),
        Scalar::UInt(value) => Some(*value as f64),
        Scalar::Int128(value) => Some(*value as f64),
        Scalar::Float32(value) if value.is_finite() => Some((*value).into()),
        Scalar::Float64(value) if value.is_finite() => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn both_ends_of_a_range_are_one_condition() {
        let compare = |op| Predicate::Compare(op, Scalar::Int(0));
        let share_of = |_: usize, predicate: &Predicate| match predicate {
            Predicate::Compare(Op::GtEq, _) => 0.75,
            Predicate::Compare(Op::Lt, _) => 0.3,
            _ => 0.5,
        };
        let conditions = [(0, compare(Op::GtEq)), (0, compare(Op::Lt)), (1, compare(Op::Eq))];
        assert!((share_of_all(&conditions, share_of) - 0.025).abs() < 1e-9);
        let conditions = [(0, compare(Op::GtEq)), (1, compare(Op::Lt))];
        assert!((share_of_all(&conditions, share_of) - 0.225).abs() < 1e-9);
        let conditions = [(0, compare(Op::Lt)), (0, compare(Op::Lt))];
        assert!((share_of_all(&conditions, share_of) - 0.3).abs() < 1e-9);
        assert!((share_of_all(&[], share_of) - 1.0).abs() < 1e-9);
    }

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("i", DataType::Int32, true),
            Field::new("s", DataType::Utf8View, true),
            Field::new("b", DataType::Boolean, true),
            Field::new("d", DataType::Decimal128(10, 2), true),
            Field::new(
                "v",
                DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::DayTime),
                true,
            ),
        ])
    }

    fn check(filter: Expr, expected: Option<&[Condition]>) {
        let translated = translate(&filter, &schema());
        assert_eq!(translated.as_deref(), expected, "{filter}");
    }

    #[test]
    fn translates_exactly_or_not_at_all() {
        let less = |value| (0, Predicate::Compare(Op::Lt, Scalar::Int(value)));
        check(col("i").lt(lit(5_i32)), Some(&[less(5)]));
        check(lit(5_i32).gt(col("i")), Some(&[less(5)]));
        check(col("i").lt(lit(5_i64)), None);
        check(col("i").lt(col("i")), None);
        check(
            col("i").lt(lit(5_i32)).and(col("b")),
            Some(&[less(5), (2, Predicate::Compare(Op::Eq, Scalar::Boolean(true)))]),
        );
        check(col("i").lt(lit(5_i32)).or(col("b")), None);
        check(col("s").is_null(), Some(&[(1, Predicate::IsNull)]));
        check(col("s").like(lit("ab%")), Some(&[(1, Predicate::StartsWith(b"ab".into()))]));
        check(col("s").like(lit("a_b%")), None);
        check(col("s").like(lit("%ab%")), None);
        check(col("s").not_like(lit("ab%")), None);
        let decimal = ScalarValue::Decimal128(Some(150), 10, 2);
        check(
            col("d").eq(lit(decimal)),
            Some(&[(3, Predicate::Compare(Op::Eq, Scalar::Int128(150)))]),
        );
        check(col("d").eq(lit(ScalarValue::Decimal128(Some(15), 10, 1))), None);
        check(col("v").eq(lit(ScalarValue::IntervalDayTime(None))), None);
        check(
            col("i").in_list(vec![lit(1_i32), lit(2_i32)], false),
            Some(&[(0, Predicate::In(vec![Scalar::Int(1), Scalar::Int(2)]))]),
        );
        check(col("i").in_list(vec![lit(1_i32)], true), None);
        let equal = |value: i32| col("i").eq(lit(value));
        let listed = |values: &[i64]| {
            let values = values.iter().map(|value| Scalar::Int(*value)).collect();
            [(0, Predicate::In(values))]
        };
        check(equal(1).or(equal(2)).or(equal(3)), Some(&listed(&[1, 2, 3])));
        let more = col("i").in_list(vec![lit(4_i32), lit(5_i32)], false);
        check(equal(1).or(more), Some(&listed(&[1, 4, 5])));
        check(equal(1).or(col("s").eq(lit("x"))), None);
        check(equal(1).or(col("i").gt(lit(3_i32))), None);
        check(lit(true), Some(&[]));
        let never = (0, Predicate::Compare(Op::Eq, Scalar::Null));
        check(lit(false), Some(std::slice::from_ref(&never)));
        check(lit(ScalarValue::Boolean(None)), Some(&[never]));
    }

    #[test]
    fn guesses_shares() {
        let zone = Zone {
            min: Some(Scalar::Int(0)),
            max: Some(Scalar::Int(99)),
            null_count: 0,
            exact: true,
        };
        let share = |op, value| share(&Predicate::Compare(op, Scalar::Int(value)), &zone, 1_000);
        assert!((share(Op::Eq, 7) - 0.01).abs() < 1e-9);
        assert!((share(Op::Lt, 25) - 0.25).abs() < 0.01);
        assert_eq!(share(Op::Gt, 200), 0.0);
        assert_eq!(share(Op::LtEq, 200), 1.0);
    }

    #[test]
    fn values_come_back() {
        for value in [
            ScalarValue::Int8(Some(-3)),
            ScalarValue::UInt64(Some(u64::MAX)),
            ScalarValue::Date32(Some(-1)),
            ScalarValue::Time64Microsecond(Some(5)),
            ScalarValue::TimestampMicrosecond(Some(-5), Some("UTC".into())),
            ScalarValue::Decimal128(Some(-12), 5, 2),
            ScalarValue::Float64(Some(1.5)),
            ScalarValue::Utf8View(Some("ü".into())),
            ScalarValue::BinaryView(Some(vec![255])),
            ScalarValue::Boolean(Some(true)),
        ] {
            let data_type = value.data_type();
            let stored = scalar(&value, &data_type).unwrap();
            assert_eq!(scalar_value(&stored, &data_type), Some(value));
        }
    }
}
