//! Sorted lists.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::{Chosen, Lists, keys};
use super::scalar::{Call, Kind, Rows, Scalar, Types, list_of};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["list_sort", "array_sort"], sort_types, |rows| sort(rows, false, true)),
        Scalar::function(&["list_reverse_sort", "array_reverse_sort"], sort_types, |rows| {
            sort(rows, true, true)
        }),
        Scalar::function(
            &["list_grade_up", "array_grade_up", "grade_up"],
            |call| Ok(Types { result: list_of(DataType::Int64), ..sort_types(call)? }),
            |rows| sort(rows, false, false),
        ),
    ]
}

fn sort_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 3)?;
    let list = list_of(call.item(0)?);
    let words = Call { name: call.name, types: &call.types[1..] };
    let mut arguments = vec![list.clone()];
    arguments.extend(words.takes_some(&[Kind::Text; 2], 2)?);
    Ok(Types { arguments, result: list })
}

/// Sorted elements, or their places. The order is that of ORDER BY: NULL comes last unless asked for otherwise.
fn sort(rows: &Rows<'_>, is_reverse: bool, gives_elements: bool) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let keys = keys(&lists.values)?;
    let nulls = lists.values.logical_nulls();
    let is_null = |place: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(place));
    let (order, null_order) = (rows.constant_text(1)?, rows.constant_text(2)?);
    // Only the order of NULLs can be told to a reverse sort.
    let (order, null_order) = if is_reverse { (Some("DESC"), order) } else { (order, null_order) };
    let is_descending = match order.map(str::to_uppercase).as_deref() {
        None | Some("ASC" | "DEFAULT") => false,
        Some("DESC") => true,
        Some(other) => {
            return exec_err!("{}: the order is 'ASC' or 'DESC', not '{other}'", rows.name);
        }
    };
    let nulls_first = match null_order.map(str::to_uppercase).as_deref() {
        None | Some("NULLS LAST") => false,
        Some("NULLS FIRST") => true,
        Some(other) => {
            return exec_err!("{}: write 'NULLS FIRST' or 'NULLS LAST', not '{other}'", rows.name);
        }
    };
    let compare = |left: usize, right: usize| match (is_null(left), is_null(right)) {
        (true, true) => Ordering::Equal,
        (true, false) if nulls_first => Ordering::Less,
        (false, true) if !nulls_first => Ordering::Less,
        (true, false) | (false, true) => Ordering::Greater,
        (false, false) if is_descending => keys.row(right).cmp(&keys.row(left)),
        (false, false) => keys.row(left).cmp(&keys.row(right)),
    };
    let mut sorted = Chosen::default();
    let mut numbers = Vec::new();
    for row in 0..rows.count {
        let range = lists.range(row);
        let mut places: Vec<usize> = range.clone().unwrap_or_default().collect();
        places.sort_by(|&left, &right| compare(left, right));
        let first = range.as_ref().map_or(0, |range| range.start);
        numbers.extend(places.iter().map(|place| (place - first) as i64 + 1));
        sorted.extend(places);
        sorted.end(range.is_some())?;
    }
    match gives_elements {
        true => sorted.finish(&lists.values, rows.result),
        false => sorted.finish_with(Arc::new(Int64Array::from(numbers)), rows.result),
    }
}
