//! What aggregates should be, computed as simply as possible.

use std::collections::{HashMap, HashSet};

use weft_exec::Lane;
use weft_exec::aggregate::{Aggregate, Function, Moment, Quantile};

use crate::rows::{Cell, Scalar, Table, identity};

/// The rows of each group, by the columns of its keys.
pub fn groups(
    table: &Table,
    keys: &[usize],
    selection: Option<usize>,
) -> Vec<(Vec<Cell>, Vec<usize>)> {
    let mut numbers = HashMap::new();
    let mut groups: Vec<(Vec<Cell>, Vec<usize>)> = Vec::new();
    for (number, row) in table.rows.iter().enumerate() {
        if selection.is_some_and(|column| row[column] != Some(Scalar::Bool(true))) {
            continue;
        }
        let cells: Vec<Cell> = keys.iter().map(|key| row[*key].clone()).collect();
        let at = *numbers.entry(identity(&cells)).or_insert_with(|| {
            groups.push((cells, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(number);
    }
    groups
}

/// The value of an aggregate over some rows.
pub fn value(table: &Table, aggregate: &Aggregate, rows: &[usize]) -> Cell {
    let column = |register: weft_exec::program::Register| register.index();
    let mut rows: Vec<&Vec<Cell>> = rows.iter().map(|row| &table.rows[*row]).collect();
    if let Some(filter) = aggregate.filter {
        rows.retain(|row| row[column(filter)] == Some(Scalar::Bool(true)));
    }
    let keeps_nulls = matches!(
        aggregate.function,
        Function::First { ignores_nulls: false } | Function::Last { ignores_nulls: false }
    );
    if !keeps_nulls {
        rows.retain(|row| {
            aggregate.arguments.iter().all(|argument| row[column(*argument)].is_some())
        });
    }
    if let Some(order) = aggregate.order {
        rows.sort_by_key(|row| row[column(order)].as_ref().map(Scalar::identity));
    }
    let mut cells: Vec<Cell> = match aggregate.arguments.first() {
        Some(argument) => rows.iter().map(|row| row[column(*argument)].clone()).collect(),
        None => vec![None; rows.len()],
    };
    if aggregate.is_distinct || matches!(aggregate.function, Function::ApproximateDistinct) {
        let mut seen = HashSet::new();
        cells.retain(|cell| seen.insert(cell.as_ref().map(Scalar::identity)));
    }
    let values = || cells.iter().flatten();
    let count = cells.len();
    let is_float = |lane| matches!(lane, Lane::F32 | Lane::F64);
    let as_result = |value: i128| {
        if is_float(aggregate.result) {
            Scalar::Float(value as f64)
        } else {
            Scalar::Integer(value)
        }
    };
    let argument_is_float = aggregate
        .arguments
        .first()
        .is_some_and(|argument| is_float(table.lanes[column(*argument)]));
    Some(match &aggregate.function {
        Function::Count | Function::ApproximateDistinct => Scalar::Integer(count as i128),
        _ if count == 0 => return None,
        Function::Sum if argument_is_float => Scalar::Float(values().map(Scalar::float).sum()),
        Function::Sum => as_result(values().map(Scalar::integer).sum()),
        Function::Product => Scalar::Float(values().map(Scalar::float).product()),
        Function::Average { digits } if is_float(aggregate.result) => {
            let sum: f64 = values().map(Scalar::float).sum();
            Scalar::Float(sum / count as f64 / 10f64.powi((*digits).into()))
        }
        Function::Average { digits } => {
            let sum: i128 = values().map(Scalar::integer).sum();
            let (sum, count) = (sum * 10i128.pow(digits.unsigned_abs().into()), count as i128);
            // To the nearest, halves away from zero.
            let half = if sum < 0 { -count } else { count };
            Scalar::Integer((2 * sum + half) / (2 * count))
        }
        Function::Min => values().min_by(|a, b| a.compare(b))?.clone(),
        Function::Max => values().max_by(|a, b| a.compare(b))?.clone(),
        Function::And => bits(aggregate.result, values(), |a, b| a & b),
        Function::Or => bits(aggregate.result, values(), |a, b| a | b),
        Function::Xor => bits(aggregate.result, values(), |a, b| a ^ b),
        Function::First { .. } => return cells[0].clone(),
        Function::Last { .. } => return cells[count - 1].clone(),
        Function::DiscreteQuantile(Quantile { fraction, is_descending }) => {
            let mut sorted: Vec<&Scalar> = values().collect();
            sorted.sort_by(|a, b| a.compare(b));
            if *is_descending {
                sorted.reverse();
            }
            let at = (count as f64 * fraction).ceil() as usize;
            sorted[at.max(1).min(count) - 1].clone()
        }
        Function::ContinuousQuantile(Quantile { fraction, is_descending }) => {
            let mut sorted: Vec<&Scalar> = values().collect();
            sorted.sort_by(|a, b| a.compare(b));
            if *is_descending {
                sorted.reverse();
            }
            let position = (count - 1) as f64 * fraction;
            let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
            if !is_float(aggregate.result) {
                assert_eq!(*fraction, 0.5, "integers are tested with the median only");
                return Some(Scalar::Integer((low.integer() + high.integer()) / 2));
            }
            let part = position.fract();
            let (low, high) = (low.float(), high.float());
            Scalar::Float(if part == 0.0 { low } else { low * (1.0 - part) + high * part })
        }
        Function::Texts { separator } => {
            let texts: Vec<&[u8]> = values()
                .map(|value| match value {
                    Scalar::Text(text) => text.as_slice(),
                    other => panic!("{other:?} is no text"),
                })
                .collect();
            Scalar::Text(texts.join(&separator[..]))
        }
        Function::Moment(moment) => {
            let pairs: Vec<(f64, f64)> = rows
                .iter()
                .map(|row| {
                    let at = |number: usize| row[column(aggregate.arguments[number])].as_ref();
                    let y = at(0).expect("not null").float();
                    (at(aggregate.arguments.len() - 1).expect("not null").float(), y)
                })
                .collect();
            Scalar::Float(self::moment(*moment, &pairs)?)
        }
        Function::External(_) => panic!("tested elsewhere"),
    })
}

fn bits<'a>(
    lane: Lane,
    values: impl Iterator<Item = &'a Scalar>,
    combine: impl Fn(i128, i128) -> i128,
) -> Scalar {
    let value = values.map(Scalar::integer).reduce(combine).expect("a value");
    if lane == Lane::Bool { Scalar::Bool(value != 0) } else { Scalar::Integer(value) }
}

fn moment(moment: Moment, pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let xx: f64 = pairs.iter().map(|pair| (pair.0 - x).powi(2)).sum();
    let yy: f64 = pairs.iter().map(|pair| (pair.1 - y).powi(2)).sum();
    let xy: f64 = pairs.iter().map(|pair| (pair.0 - x) * (pair.1 - y)).sum();
    let power = |of: i32| pairs.iter().map(|pair| (pair.0 - x).powi(of)).sum::<f64>();
    let sample = (count > 1.0).then_some(count - 1.0);
    Some(match moment {
        Moment::VariancePopulation => xx / count,
        Moment::DeviationPopulation => (xx / count).sqrt(),
        Moment::CovariancePopulation => xy / count,
        Moment::VarianceSample => xx / sample?,
        Moment::DeviationSample => (xx / sample?).sqrt(),
        Moment::CovarianceSample => xy / sample?,
        Moment::Correlation => {
            let scale = (xx * yy).sqrt();
            if scale == 0.0 || sample.is_none() {
                return None;
            }
            xy / scale
        }
        Moment::Skewness | Moment::KurtosisSample | Moment::KurtosisPopulation if xx == 0.0 => {
            return None;
        }
        Moment::Skewness => {
            let rest = (count > 2.0).then_some(count - 2.0)?;
            (count * (count - 1.0)).sqrt() / rest * (power(3) / count) / (xx / count).powf(1.5)
        }
        Moment::KurtosisPopulation => count * power(4) / (xx * xx) - 3.0,
        Moment::KurtosisSample => {
            let rest = (count > 3.0).then_some((count - 2.0) * (count - 3.0))?;
            let ratio = count * power(4) / (xx * xx);
            (count - 1.0) * ((count + 1.0) * ratio - 3.0 * (count - 1.0)) / rest
        }
    })
}
