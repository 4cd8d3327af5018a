//! Functions of lists of numbers as vectors: products and distances, as DuckDB has them.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::{Chosen, Lists};
use super::scalar::{Call, Rows, Scalar, Types, list_of};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(
            &["list_dot_product", "list_inner_product", "array_dot_product", "array_inner_product"],
            number,
            |rows| compute(rows, |left, right| Some(dot(left, right))),
        ),
        Scalar::function(
            &[
                "list_negative_inner_product",
                "list_negative_dot_product",
                "array_negative_inner_product",
                "array_negative_dot_product",
            ],
            number,
            |rows| compute(rows, |left, right| Some(-dot(left, right))),
        ),
        Scalar::function(&["list_distance", "array_distance"], number, |rows| {
            compute(rows, |left, right| {
                let squares = left.iter().zip(right).map(|(left, right)| (left - right).powi(2));
                Some(squares.sum::<f64>().sqrt())
            })
        }),
        Scalar::function(&["list_cosine_similarity", "array_cosine_similarity"], number, |rows| {
            compute(rows, cosine)
        }),
        Scalar::function(&["list_cosine_distance", "array_cosine_distance"], number, |rows| {
            compute(rows, |left, right| cosine(left, right).map(|cosine| 1.0 - cosine))
        }),
        Scalar::function(
            &["array_cross_product", "list_cross_product"],
            |call| Ok(Types { result: list_of(DataType::Float64), ..number(call)? }),
            cross_product,
        ),
    ]
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// The cosine of the angle between two vectors, nothing for those without dimensions.
fn cosine(left: &[f64], right: &[f64]) -> Option<f64> {
    let lengths = (dot(left, left) * dot(right, right)).sqrt();
    (!left.is_empty()).then(|| (dot(left, right) / lengths).clamp(-1.0, 1.0))
}

fn number(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    for argument in 0..2 {
        let item = call.item(argument)?;
        if !item.is_numeric() && !item.is_null() {
            return plan_err!("{} takes two lists of numbers, not {}", call.name, call.given());
        }
    }
    let list = list_of(DataType::Float64);
    Ok(Types { arguments: vec![list.clone(), list], result: DataType::Float64 })
}

/// Two vectors in each row.
fn pairs(
    rows: &Rows<'_>,
    mut take: impl FnMut(Option<(&[f64], &[f64])>) -> DfResult<()>,
) -> DfResult<()> {
    let lists = [Lists::new(rows, 0)?, Lists::new(rows, 1)?];
    let values = [&lists[0], &lists[1]].map(|list| cast(&list.values, &DataType::Float64));
    let [left, right] = values;
    let (left, right) = (left?, right?);
    let numbers = [left.as_primitive::<Float64Type>(), right.as_primitive::<Float64Type>()];
    for row in 0..rows.count {
        let (Some(left), Some(right)) = (lists[0].range(row), lists[1].range(row)) else {
            take(None)?;
            continue;
        };
        if left.len() != right.len() {
            let (left, right) = (left.len(), right.len());
            return exec_err!("{}: one list has {left} elements, the other {right}", rows.name);
        }
        for (numbers, range) in numbers.iter().zip([&left, &right]) {
            if numbers.null_count() > 0 && range.clone().any(|place| numbers.is_null(place)) {
                return exec_err!("{}: an element of a list is NULL", rows.name);
            }
        }
        take(Some((&numbers[0].values()[left], &numbers[1].values()[right])))?;
    }
    Ok(())
}

fn compute(rows: &Rows<'_>, compute: fn(&[f64], &[f64]) -> Option<f64>) -> DfResult<ArrayRef> {
    let mut results = Vec::with_capacity(rows.count);
    pairs(rows, |pair| {
        results.push(pair.and_then(|(left, right)| compute(left, right)));
        Ok(())
    })?;
    Ok(Arc::new(Float64Array::from(results)))
}

/// The product of two vectors in space.
fn cross_product(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let (mut numbers, mut results) = (Vec::new(), Chosen::default());
    pairs(rows, |pair| {
        if let Some((left, right)) = pair {
            let ([x, y, z], [u, v, w]) = (left, right) else {
                return exec_err!("{}: a list has {} elements, not 3", rows.name, left.len());
            };
            for number in [y * w - z * v, z * u - x * w, x * v - y * u] {
                results.push(numbers.len());
                numbers.push(number);
            }
        }
        results.end(pair.is_some())
    })?;
    let numbers: ArrayRef = Arc::new(Float64Array::from(numbers));
    results.finish(&numbers, rows.result)
}
