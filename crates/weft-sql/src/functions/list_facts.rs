//! Functions that tell something of lists: what they contain, and how long they are.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, StringViewArray,
};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::{Lists, keys};
use super::list_types::{as_list, list_and_element, list_to_list, two_lists_to_truth};
use super::scalar::{Call, Kind, Rows, Scalar, Types, gives};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(
            &["list_contains", "array_contains", "list_has", "array_has"],
            list_and_element,
            contains,
        ),
        Scalar::function(
            &["list_position", "list_indexof", "array_position", "array_indexof"],
            |call| Ok(Types { result: DataType::Int32, ..list_and_element(call)? }),
            position,
        ),
        Scalar::function(&["list_has_any", "array_has_any"], two_lists_to_truth, has_any),
        Scalar::function(&["list_has_all", "array_has_all"], two_lists_to_truth, has_all),
        Scalar::function(
            &["list_unique", "array_unique"],
            |call| Ok(Types { result: DataType::Int64, ..list_to_list(call)? }),
            unique,
        ),
        Scalar::function(&["length", "len"], length_types, length),
        Scalar::function(&["array_length", "list_length"], array_length_types, array_length),
    ]
}

/// The place of the second argument in each list, from 0 on; nothing if the list is NULL.
fn places(rows: &Rows<'_>) -> DfResult<Vec<Option<Option<usize>>>> {
    let lists = Lists::new(rows, 0)?;
    let value = &rows.arguments[1];
    let keys = keys(&concat(&[&lists.values, &value.values])?)?;
    let place = |row| {
        let mut range = lists.range(row)?;
        let wanted = keys.row(lists.values.len() + value.at(row));
        Some(range.position(|place| keys.row(place) == wanted))
    };
    Ok((0..rows.count).map(place).collect())
}

fn contains(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let places = places(rows)?;
    rows.each::<bool, BooleanArray>(|row| {
        let is_known = rows.arguments[1].known(row).is_some();
        Ok(places[row].filter(|_| is_known).map(|place| place.is_some()))
    })
}

/// The place of the first such element, from 1 on. NULL is found, too.
fn position(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let places = places(rows)?;
    rows.each::<i32, Int32Array>(|row| {
        Ok(places[row].flatten().and_then(|place| i32::try_from(place + 1).ok()))
    })
}

fn has_any(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    of_two(rows, |left, right| right.iter().any(|key| left.contains(key)))
}

fn has_all(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    of_two(rows, |left, right| right.iter().all(|key| left.contains(key)))
}

/// A condition on the elements of two lists.
type OfBoth = fn(&HashSet<&[u8]>, &HashSet<&[u8]>) -> bool;

/// What holds of the elements of two lists; those that are NULL are left out.
fn of_two(rows: &Rows<'_>, holds: OfBoth) -> DfResult<ArrayRef> {
    let (left, right) = (Lists::new(rows, 0)?, Lists::new(rows, 1)?);
    let both = concat(&[&left.values, &right.values])?;
    let (keys, nulls) = (keys(&both)?, both.logical_nulls());
    let is_known = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
    let keys_of = |range: std::ops::Range<usize>| -> HashSet<&[u8]> {
        range.filter(is_known).map(|place| keys.row(place).data()).collect()
    };
    rows.each::<bool, BooleanArray>(|row| {
        let (Some(first), Some(second)) = (left.range(row), right.range(row)) else {
            return Ok(None);
        };
        let behind = left.values.len();
        Ok(Some(holds(&keys_of(first), &keys_of(behind + second.start..behind + second.end))))
    })
}

/// The number of distinct elements that are not NULL.
fn unique(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let keys = keys(&lists.values)?;
    let nulls = lists.values.logical_nulls();
    let is_known = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
    rows.each::<i64, Int64Array>(|row| {
        let Some(range) = lists.range(row) else { return Ok(None) };
        let distinct: HashSet<_> = range.filter(is_known).map(|place| keys.row(place)).collect();
        Ok(i64::try_from(distinct.len()).ok())
    })
}

fn length_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    let argument = match &call.types[0] {
        text if text.is_string() || text.is_null() => DataType::Utf8View,
        map @ DataType::Map(..) => map.clone(),
        other => match as_list(other) {
            Some(list) => list,
            None => {
                return plan_err!(
                    "{} takes VARCHAR, a list or a map, not {}: octet_length counts the bytes of a BLOB",
                    call.name,
                    call.given()
                );
            }
        },
    };
    gives(Ok(vec![argument]), DataType::Int64)
}

/// The number of characters of a text, elements of a list, entries of a map.
fn length(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let values = &rows.arguments[0].values;
    match values.data_type() {
        DataType::Utf8View => {
            let texts = rows.column::<StringViewArray>(0)?;
            rows.each::<i64, Int64Array>(|row| {
                Ok(texts.get(row).and_then(|text| i64::try_from(text.chars().count()).ok()))
            })
        }
        DataType::Map(..) => {
            let maps = values.as_map();
            rows.each::<i64, Int64Array>(|row| {
                let known = rows.arguments[0].known(row);
                Ok(known.map(|at| i64::from(maps.value_length(at))))
            })
        }
        _ => {
            let lists = Lists::new(rows, 0)?;
            rows.each::<i64, Int64Array>(|row| {
                Ok(lists.range(row).and_then(|range| i64::try_from(range.len()).ok()))
            })
        }
    }
}

fn array_length_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 2)?;
    let mut arguments = vec![super::scalar::list_of(call.item(0)?)];
    let dimension = Call { name: call.name, types: &call.types[1..] };
    arguments.extend(dimension.takes_some(&[Kind::Integer], 1)?);
    gives(Ok(arguments), DataType::Int64)
}

/// The number of elements of a list, or of the first list in it, and so on, in a dimension.
fn array_length(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let dimensions = rows.optional::<Int64Array>(1)?;
    let lists = rows.column::<ListArray>(0)?;
    rows.each::<i64, Int64Array>(|row| {
        let dimension = match &dimensions {
            Some(dimensions) => dimensions.get(row),
            None => Some(1),
        };
        let (Some(dimension), Some(mut elements)) = (dimension, lists.get(row)) else {
            return Ok(None);
        };
        if dimension < 1 {
            return exec_err!("{}: dimensions count from 1", rows.name);
        }
        for _ in 1..dimension {
            match elements.as_list_opt::<i32>().map(|inner| (inner.is_empty(), inner)) {
                Some((false, inner)) if inner.is_valid(0) => elements = inner.value(0),
                _ => return Ok(None),
            }
        }
        Ok(i64::try_from(elements.len()).ok())
    })
}
