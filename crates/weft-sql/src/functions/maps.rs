//! Functions of maps that DataFusion lacks, or has with other results for NULLs and keys that come twice.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, MapArray, StructArray, UInt64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::{Chosen, Lists, keys, offset};
use super::scalar::{Call, Rows, Scalar, Types, gives, item_of, list_of};
use crate::types::type_name;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["map_from_entries"], from_entries_types, from_entries),
        Scalar::function(&["map_from_lists"], map_types, map),
        Scalar::function(&["map_concat"], concat_types, concat_maps),
        Scalar::function(&["map_extract", "element_at"], extract_types, extract),
        Scalar::function(
            &["map_extract_value"],
            |call| {
                let types = extract_types(call)?;
                let result = item_of(&types.result)?.data_type().clone();
                Ok(Types { result, ..types })
            },
            extract_value,
        ),
        Scalar::function(
            &["map_contains"],
            |call| Ok(Types { result: DataType::Boolean, ..extract_types(call)? }),
            |rows| contains(rows, 0),
        ),
        Scalar::function(&["map_contains_value"], contains_value_types, |rows| contains(rows, 1)),
        Scalar::function(
            &["map_keys"],
            |call| {
                let (key, _) = entry_types(call, 0)?;
                gives(Ok(call.types.to_vec()), list_of(key))
            },
            |rows| part(rows, Some(0)),
        ),
        Scalar::function(
            &["map_values"],
            |call| {
                let (_, value) = entry_types(call, 0)?;
                gives(Ok(call.types.to_vec()), list_of(value))
            },
            |rows| part(rows, Some(1)),
        ),
        Scalar::function(
            &["map_entries"],
            |call| {
                let (key, value) = entry_types(call, 0)?;
                let fields = vec![Field::new("key", key, true), Field::new("value", value, true)];
                gives(Ok(call.types.to_vec()), list_of(DataType::Struct(fields.into())))
            },
            |rows| part(rows, None),
        ),
    ]
}

/// The types of keys and values of an argument that has to be a map.
fn entry_types(call: &Call<'_>, argument: usize) -> DfResult<(DataType, DataType)> {
    match call.types.get(argument) {
        Some(DataType::Map(entries, _)) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                Ok((fields[0].data_type().clone(), fields[1].data_type().clone()))
            }
            other => plan_err!("{}: a map of {}", call.name, type_name(other)),
        },
        _ => plan_err!("{} takes a MAP, not {}", call.name, call.given()),
    }
}

/// The type of a map.
fn map_of(key: DataType, value: DataType) -> DataType {
    let fields = vec![Field::new("key", key, false), Field::new("value", value, true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)), false)
}

/// The field of the entries of a map.
fn entries_of(map: &DataType) -> DfResult<&FieldRef> {
    match map {
        DataType::Map(entries, _) => Ok(entries),
        other => plan_err!("{} is not a map", type_name(other)),
    }
}

/// What a function is called in SQL.
fn name_of<'a>(rows: &'a Rows<'_>) -> &'a str {
    rows.name.trim_end_matches("_from_lists")
}

/// Maps with entries of these keys and values, which end at these places.
///
/// # Errors
/// If a key is NULL, or comes twice in a map.
fn maps(
    rows: &Rows<'_>,
    keys_and_values: [ArrayRef; 2],
    ends: &[i32],
    known: Vec<bool>,
) -> DfResult<ArrayRef> {
    let entries = Arc::clone(entries_of(rows.result)?);
    let DataType::Struct(fields) = entries.data_type().clone() else {
        return plan_err!("{}: a map without entries", rows.name);
    };
    let [map_keys, values] = keys_and_values;
    if map_keys.logical_null_count() > 0 {
        return exec_err!("{}: a key of a map is NULL", name_of(rows));
    }
    let compared = keys(&map_keys)?;
    let mut start = 0;
    for &end in ends {
        let end = usize::try_from(end).unwrap_or_default();
        let mut seen = std::collections::HashSet::new();
        if !(start..end).all(|place| seen.insert(compared.row(place))) {
            return exec_err!("{}: a key comes twice in a map", name_of(rows));
        }
        start = end;
    }
    let structs = StructArray::try_new(fields, vec![map_keys, values], None)?;
    let offsets: ScalarBuffer<i32> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let nulls = NullBuffer::from(known);
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    let map = MapArray::try_new(entries, OffsetBuffer::new(offsets), structs, nulls, false)?;
    Ok(Arc::new(map))
}

fn from_entries_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    match call.item(0)? {
        DataType::Struct(fields) if fields.len() == 2 => {
            let result = map_of(fields[0].data_type().clone(), fields[1].data_type().clone());
            gives(Ok(vec![list_of(DataType::Struct(fields))]), result)
        }
        _ => {
            plan_err!("{} takes a list of structs with two fields, not {}", call.name, call.given())
        }
    }
}

fn from_entries(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let structs = lists.values.as_struct();
    let (mut places, mut ends, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows.count {
        let range = lists.range(row);
        known.push(range.is_some());
        places.extend(range.unwrap_or_default().map(|place| place as u64));
        ends.push(offset(places.len())?);
    }
    let places = UInt64Array::from(places);
    let [left, right] = [0, 1].map(|at| take(structs.column(at), &places, None));
    maps(rows, [left?, right?], &ends, known)
}

fn map_types(call: &Call<'_>) -> DfResult<Types> {
    if call.types.is_empty() {
        return gives(Ok(Vec::new()), map_of(DataType::Null, DataType::Null));
    }
    call.has(2, 2)?;
    let (key, value) = (call.item(0)?, call.item(1)?);
    gives(Ok(vec![list_of(key.clone()), list_of(value.clone())]), map_of(key, value))
}

/// A map of a list of keys and one of values; NULL if one of them is.
fn map(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    if rows.arguments.is_empty() {
        let nothing = || datafusion::arrow::array::new_empty_array(&DataType::Null);
        return maps(rows, [nothing(), nothing()], &vec![0; rows.count], vec![true; rows.count]);
    }
    let lists = [Lists::new(rows, 0)?, Lists::new(rows, 1)?];
    let (mut places, mut ends, mut known) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new());
    for row in 0..rows.count {
        let ranges = (lists[0].range(row), lists[1].range(row));
        known.push(matches!(ranges, (Some(_), Some(_))));
        if let (Some(left), Some(right)) = ranges {
            if left.len() != right.len() {
                let (left, right) = (left.len(), right.len());
                return exec_err!("{}: {left} keys, but {right} values", name_of(rows));
            }
            places[0].extend(left.map(|place| place as u64));
            places[1].extend(right.map(|place| place as u64));
        }
        ends.push(offset(places[0].len())?);
    }
    let [left, right] = places.map(UInt64Array::from);
    let left = take(&lists[0].values, &left, None)?;
    let right = take(&lists[1].values, &right, None)?;
    maps(rows, [left, right], &ends, known)
}

fn concat_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, usize::MAX)?;
    let (mut key, mut value) = (DataType::Null, DataType::Null);
    for argument in 0..call.types.len() {
        let types = entry_types(call, argument)?;
        key = call.common(&key, &types.0)?;
        value = call.common(&value, &types.1)?;
    }
    let map = map_of(key, value);
    gives(Ok(vec![map.clone(); call.types.len()]), map)
}

/// The entries of all maps; of two with one key the later one's value, in the earlier one's place.
fn concat_maps(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let arguments: Vec<&MapArray> =
        rows.arguments.iter().map(|argument| argument.values.as_map()).collect();
    let column = |at: usize| {
        let columns: Vec<&dyn Array> =
            arguments.iter().map(|map| map.entries().column(at).as_ref()).collect();
        concat(&columns)
    };
    let (all_keys, all_values) = (column(0)?, column(1)?);
    let compared = keys(&all_keys)?;
    let (mut of_keys, mut of_values) = (Vec::<u64>::new(), Vec::<u64>::new());
    let (mut ends, mut known) = (Vec::new(), Vec::new());
    for row in 0..rows.count {
        let (mut first, mut is_known) = (0, false);
        let mut places = HashMap::new();
        for (argument, map) in rows.arguments.iter().zip(&arguments) {
            if let Some(at) = argument.known(row) {
                is_known = true;
                for place in map_range(map, at) {
                    let place = first + place;
                    let here = *places.entry(compared.row(place)).or_insert(of_keys.len());
                    if here == of_keys.len() {
                        of_keys.push(place as u64);
                        of_values.push(place as u64);
                    }
                    of_values[here] = place as u64;
                }
            }
            first += map.entries().len();
        }
        ends.push(offset(of_keys.len())?);
        known.push(is_known);
    }
    let left = take(&all_keys, &UInt64Array::from(of_keys), None)?;
    let right = take(&all_values, &UInt64Array::from(of_values), None)?;
    maps(rows, [left, right], &ends, known)
}

/// Where the entries of a map are.
fn map_range(map: &MapArray, at: usize) -> std::ops::Range<usize> {
    let bounds = [map.value_offsets()[at], map.value_offsets()[at + 1]];
    let [start, end] = bounds.map(|bound| usize::try_from(bound).unwrap_or_default());
    start..end
}

fn extract_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let (key, value) = entry_types(call, 0)?;
    let common = call.common(&key, &call.types[1])?;
    gives(Ok(vec![map_of(common.clone(), value.clone()), common]), list_of(value))
}

fn contains_value_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let (key, value) = entry_types(call, 0)?;
    let common = call.common(&value, &call.types[1])?;
    gives(Ok(vec![map_of(key, common.clone()), common]), DataType::Boolean)
}

/// The place of the entry in each row's map whose key (0) or value (1) is the second argument; nothing if the map is NULL.
fn found(rows: &Rows<'_>, side: usize) -> DfResult<Vec<Option<Option<usize>>>> {
    let (map, wanted) = (&rows.arguments[0], &rows.arguments[1]);
    let maps = map.values.as_map();
    let column = maps.entries().column(side);
    let compared = keys(&concat(&[column, &wanted.values])?)?;
    let place = |row| {
        let at = map.known(row)?;
        let Some(value) = wanted.known(row) else { return Some(None) };
        let value = compared.row(column.len() + value);
        Some(map_range(maps, at).find(|&place| compared.row(place) == value))
    };
    Ok((0..rows.count).map(place).collect())
}

/// A list of the value of a key, without elements if there is none.
fn extract(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let mut lists = Chosen::default();
    for place in found(rows, 0)? {
        lists.extend(place.flatten());
        lists.end(place.is_some())?;
    }
    lists.finish(rows.arguments[0].values.as_map().values(), rows.result)
}

/// The value of a key, NULL if there is none.
fn extract_value(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let places = found(rows, 0)?.into_iter();
    let places: UInt64Array = places.map(|place| place.flatten().map(|at| at as u64)).collect();
    Ok(take(rows.arguments[0].values.as_map().values(), &places, None)?)
}

fn contains(rows: &Rows<'_>, side: usize) -> DfResult<ArrayRef> {
    let places = found(rows, side)?;
    rows.each::<bool, BooleanArray>(|row| {
        let is_known = rows.arguments[1].known(row).is_some();
        Ok(places[row].filter(|_| is_known).map(|place| place.is_some()))
    })
}

/// A list of the keys, the values, or structs of both.
fn part(rows: &Rows<'_>, side: Option<usize>) -> DfResult<ArrayRef> {
    let map = &rows.arguments[0];
    let maps = map.values.as_map();
    let elements: ArrayRef = match side {
        Some(side) => Arc::clone(maps.entries().column(side)),
        None => {
            let DataType::Struct(fields) = item_of(rows.result)?.data_type().clone() else {
                return plan_err!("{}: a map without entries", rows.name);
            };
            let columns = maps.entries().columns().to_vec();
            Arc::new(StructArray::try_new(fields, columns, None)?)
        }
    };
    let mut lists = Chosen::default();
    for row in 0..rows.count {
        let at = map.known(row);
        lists.extend(at.map(|at| map_range(maps, at)).unwrap_or_default());
        lists.end(at.is_some())?;
    }
    lists.finish(&elements, rows.result)
}
