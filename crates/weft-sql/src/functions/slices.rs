//! Parts of lists and texts: the elements, or characters, from one place to another, or one of them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray, UInt64Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::{Lists, choose};
use super::list_types::as_list;
use super::scalar::{Call, Kind, Rows, Scalar, Types, list_of};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(
            &["list_extract", "array_extract", "list_element"],
            element_types,
            element,
        ),
        Scalar::function(&["list_slice", "array_slice"], slice_types, slice),
    ]
}

fn element_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let place = Call { name: call.name, types: &call.types[1..] }.takes(&[Kind::Integer])?;
    let (value, result) = match &call.types[0] {
        text if text.is_string() => (DataType::Utf8View, DataType::Utf8View),
        _ => (list_of(call.item(0)?), call.item(0)?),
    };
    Ok(Types { arguments: vec![value, place[0].clone()], result })
}

/// The element, or character, at a place, which counts from 1, or from the end if it is negative.
fn element(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let numbers = rows.column::<Int64Array>(1)?;
    let at = |number: i64, length: usize| sliced(length, number, number, 1).first().copied();
    if rows.arguments[0].values.data_type().is_string() {
        let texts = rows.column::<StringViewArray>(0)?;
        return rows.each::<String, StringViewArray>(|row| {
            let (Some(text), Some(number)) = (texts.get(row), numbers.get(row)) else {
                return Ok(None);
            };
            let place = at(number, text.chars().count()).filter(|_| number != 0);
            let char = place.and_then(|place| text.chars().nth(place));
            Ok(Some(char.map(String::from).unwrap_or_default()))
        });
    }
    let lists = Lists::new(rows, 0)?;
    let place = |row: usize| {
        let (range, number) = (lists.range(row)?, numbers.get(row).filter(|number| *number != 0)?);
        at(number, range.len()).map(|place| (range.start + place) as u64)
    };
    let places: UInt64Array = (0..rows.count).map(place).collect();
    Ok(take(&lists.values, &places, None)?)
}

fn slice_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(3, 4)?;
    let value = match &call.types[0] {
        text if text.is_string() => DataType::Utf8View,
        list => match as_list(list) {
            Some(list) => list,
            None => {
                return plan_err!("{} takes a list or VARCHAR, not {}", call.name, call.given());
            }
        },
    };
    let bounds = Call { name: call.name, types: &call.types[1..] };
    let mut arguments = vec![value.clone()];
    arguments.extend(bounds.takes_some(&[Kind::Integer; 3], 1)?);
    Ok(Types { arguments, result: value })
}

/// The elements, or characters, from one place to another, with steps between them.
fn slice(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let first = rows.column::<Int64Array>(1)?;
    let last = rows.column::<Int64Array>(2)?;
    let steps = rows.optional::<Int64Array>(3)?;
    let places = |row: usize, length: usize| -> DfResult<Option<Vec<usize>>> {
        let step = match &steps {
            Some(steps) => steps.get(row),
            None => Some(1),
        };
        let (Some(first), Some(last), Some(step)) = (first.get(row), last.get(row), step) else {
            return Ok(None);
        };
        if step == 0 {
            return exec_err!("{}: the step of a slice cannot be 0", rows.name);
        }
        Ok(Some(sliced(length, first, last, step)))
    };
    if *rows.result == DataType::Utf8View {
        let texts = rows.column::<StringViewArray>(0)?;
        return rows.each::<String, StringViewArray>(|row| {
            let Some(text) = texts.get(row) else { return Ok(None) };
            let chars: Vec<char> = text.chars().collect();
            let places = places(row, chars.len())?;
            Ok(places.map(|places| places.into_iter().map(|place| chars[place]).collect()))
        });
    }
    choose(rows, |row, range, chosen| {
        let places = places(row, range.len())?;
        let is_known = places.is_some();
        chosen.extend(places.unwrap_or_default().into_iter().map(|place| range.start + place));
        Ok(is_known)
    })
}

/// The places of a slice of so many elements: bounds count from 1, or from the end if they are negative.
fn sliced(length: usize, first: i64, last: i64, step: i64) -> Vec<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let from_start =
        |bound: i64| if bound < 0 { length + bound.max(-length - 1) + 1 } else { bound };
    let (first, last) = (from_start(first), from_start(last));
    let mut places = Vec::new();
    let mut at = if step > 0 { first.max(1) } else { first.min(length) };
    let (low, high) = if step > 0 { (1, last.min(length)) } else { (last.max(1), length) };
    while (low..=high).contains(&at) {
        places.push(usize::try_from(at - 1).unwrap_or_default());
        at = at.saturating_add(step);
    }
    places
}
