//! Functions of lists that choose elements or put lists together, as DuckDB has them.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, StructArray, UInt64Array,
};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::{Chosen, Lists, choose, keys, list_array, offset};
use super::list_types::{
    flatten_types, list_to_list, lists_to_list, two_lists_to_list, unnamed_fields,
};
use super::scalar::{Call, Kind, Rows, Scalar, Types, item_of, list_of};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["list_intersect", "array_intersect"], two_lists_to_list, intersect),
        Scalar::function(&["list_distinct", "array_distinct"], list_to_list, distinct),
        Scalar::function(&["list_reverse", "array_reverse"], list_to_list, reverse),
        Scalar::function(&["list_pop_back", "array_pop_back"], list_to_list, pop_back),
        Scalar::function(&["list_pop_front", "array_pop_front"], list_to_list, pop_front),
        Scalar::function(&["list_select", "array_select"], select_types, select),
        Scalar::function(&["list_where", "array_where"], where_types, where_true),
        Scalar::function(&["list_resize", "array_resize"], resize_types, resize),
        Scalar::function(
            &["list_concat", "list_cat", "array_concat", "array_cat"],
            lists_to_list,
            concat_lists,
        ),
        Scalar::function(
            &["list_append", "array_append", "array_push_back", "list_push_back"],
            |call| appended(call, 0),
            |rows| append(rows, 0, true),
        ),
        Scalar::function(
            &["list_prepend", "array_prepend"],
            |call| appended(call, 1),
            |rows| append(rows, 1, false),
        ),
        Scalar::function(
            &["array_push_front", "list_push_front"],
            |call| appended(call, 0),
            |rows| append(rows, 0, false),
        ),
        Scalar::function(&["list_zip", "array_zip"], zip_types, zip),
        Scalar::function(&["flatten", "list_flatten", "array_flatten"], flatten_types, flatten),
    ]
}

fn reverse(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    choose(rows, |_, range, chosen| {
        chosen.extend(range.rev());
        Ok(true)
    })
}

fn pop_back(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    choose(rows, |_, range, chosen| {
        chosen.extend(range.start..range.end.saturating_sub(1).max(range.start));
        Ok(true)
    })
}

fn pop_front(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    choose(rows, |_, range, chosen| {
        chosen.extend(range.skip(1));
        Ok(true)
    })
}

/// Values that are not NULL, each once, in the order in which they come first.
fn distinct(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let keys = keys(&lists.values)?;
    let nulls = lists.values.logical_nulls();
    choose(rows, |_, range, chosen| {
        let mut seen = HashSet::new();
        let is_known = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
        chosen.extend(range.filter(is_known).filter(|&place| seen.insert(keys.row(place))));
        Ok(true)
    })
}

/// The distinct elements of the first list that are in the second one as well.
fn intersect(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let (left, right) = (Lists::new(rows, 0)?, Lists::new(rows, 1)?);
    let both = concat(&[&left.values, &right.values])?;
    let (keys, nulls) = (keys(&both)?, both.logical_nulls());
    let is_known = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
    choose(rows, |row, range, chosen| {
        let Some(others) = right.range(row) else { return Ok(false) };
        let others = others.map(|place| keys.row(left.values.len() + place));
        let mut others: HashSet<_> = others.collect();
        chosen.extend(range.filter(is_known).filter(|&place| others.remove(&keys.row(place))));
        Ok(true)
    })
}

fn select_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let (list, places) = (list_of(call.item(0)?), list_of(call.item(1)?));
    let arguments = match item_of(&places)?.data_type() {
        item if item.is_integer() || item.is_null() => vec![list.clone(), list_of(DataType::Int64)],
        _ => return plan_err!("the places of {} are integers", call.name),
    };
    Ok(Types { arguments, result: list })
}

/// Elements at places, of which the first is 1.
fn select(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let places = Lists::new(rows, 1)?;
    let numbers = places.values.as_primitive::<Int64Type>();
    choose(rows, |row, range, chosen| {
        let Some(wanted) = places.range(row) else { return Ok(false) };
        for at in wanted {
            if numbers.is_null(at) {
                return exec_err!("{}: a place in the second list is NULL", rows.name);
            }
            let place = usize::try_from(numbers.value(at)).ok().and_then(|at| at.checked_sub(1));
            chosen.push(place.filter(|place| *place < range.len()).map(|at| range.start + at));
        }
        Ok(true)
    })
}

fn where_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let list = list_of(call.item(0)?);
    match call.item(1)? {
        DataType::Boolean | DataType::Null => {}
        _ => return plan_err!("the second list of {} is of truths", call.name),
    }
    Ok(Types { arguments: vec![list.clone(), list_of(DataType::Boolean)], result: list })
}

/// Elements at whose places the second list is true.
fn where_true(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let mask = Lists::new(rows, 1)?;
    let truths = mask.values.as_boolean();
    choose(rows, |row, range, chosen| {
        let Some(wanted) = mask.range(row) else { return Ok(false) };
        for (at, truth) in wanted.enumerate() {
            if truths.is_null(truth) {
                return exec_err!("{}: a truth in the second list is NULL", rows.name);
            }
            if truths.value(truth) {
                chosen.push((at < range.len()).then_some(range.start + at));
            }
        }
        Ok(true)
    })
}

fn resize_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 3)?;
    let item = match call.types.get(2) {
        Some(filling) => call.common(&call.item(0)?, filling)?,
        None => call.item(0)?,
    };
    let list = list_of(item.clone());
    let count = Call { name: call.name, types: &call.types[1..2] }.takes(&[Kind::Integer])?;
    let mut arguments = vec![list.clone(), count[0].clone()];
    arguments.extend(call.types.get(2).map(|_| item));
    Ok(Types { arguments, result: list })
}

/// Most elements that a list is filled up to.
const RESIZED_MAX: usize = 1 << 24;

/// As many elements as asked for, the missing ones NULL or a value.
fn resize(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let counts = rows.column::<Int64Array>(1)?;
    let filling = rows.arguments.get(2);
    let values = match filling {
        Some(filling) => concat(&[&lists.values, &filling.values])?,
        None => Arc::clone(&lists.values),
    };
    let mut chosen = Chosen::default();
    for row in 0..rows.count {
        let Some(range) = lists.range(row) else {
            chosen.end(false)?;
            continue;
        };
        let count = counts.get(row).unwrap_or_default();
        let Some(count) = usize::try_from(count).ok().filter(|count| *count <= RESIZED_MAX) else {
            return exec_err!(
                "{}: a list cannot have {count} elements, but 0 to {RESIZED_MAX}",
                rows.name
            );
        };
        let filled = filling.map(|filling| lists.values.len() + filling.at(row));
        chosen.extend(range.clone().take(count));
        (range.len()..count).for_each(|_| chosen.push(filled));
        chosen.end(true)?;
    }
    chosen.finish(&values, rows.result)
}

/// The lists one after the other; those that are NULL are left out.
fn concat_lists(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let lists: Vec<Lists<'_>> =
        (0..rows.arguments.len()).map(|at| Lists::new(rows, at)).collect::<DfResult<_>>()?;
    let values: Vec<&dyn Array> = lists.iter().map(|list| list.values.as_ref()).collect();
    let values = concat(&values)?;
    let mut chosen = Chosen::default();
    for row in 0..rows.count {
        let (mut first, mut is_known) = (0, false);
        for list in &lists {
            if let Some(range) = list.range(row) {
                chosen.extend(first + range.start..first + range.end);
                is_known = true;
            }
            first += list.values.len();
        }
        chosen.end(is_known)?;
    }
    chosen.finish(&values, rows.result)
}

fn appended(call: &Call<'_>, list_at: usize) -> DfResult<Types> {
    call.has(2, 2)?;
    let item = call.common(&call.item(list_at)?, &call.types[1 - list_at])?;
    let list = list_of(item.clone());
    let arguments = if list_at == 0 { vec![list.clone(), item] } else { vec![item, list.clone()] };
    Ok(Types { arguments, result: list })
}

/// A list and a value; NULL is a list without elements.
fn append(rows: &Rows<'_>, list_at: usize, is_last: bool) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, list_at)?;
    let value = &rows.arguments[1 - list_at];
    let values = concat(&[&lists.values, &value.values])?;
    let mut chosen = Chosen::default();
    for row in 0..rows.count {
        let place = lists.values.len() + value.at(row);
        let range = lists.range(row).unwrap_or_default();
        if is_last {
            chosen.extend(range.chain([place]));
        } else {
            chosen.extend(std::iter::once(place).chain(range));
        }
        chosen.end(true)?;
    }
    chosen.finish(&values, rows.result)
}

fn zip_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, usize::MAX)?;
    let has_flag = call.types.len() > 1 && call.types.last() == Some(&DataType::Boolean);
    let lists = call.types.len() - usize::from(has_flag);
    let items: Vec<DataType> = (0..lists).map(|at| call.item(at)).collect::<DfResult<_>>()?;
    let fields = unnamed_fields(&items).into();
    let mut arguments: Vec<DataType> = items.into_iter().map(list_of).collect();
    arguments.extend(has_flag.then_some(DataType::Boolean));
    Ok(Types { arguments, result: list_of(DataType::Struct(fields)) })
}

/// Structs of the elements at each place, as many as the longest list has, or the shortest if the last argument is true.
fn zip(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let DataType::Struct(fields) = item_of(rows.result)?.data_type().clone() else {
        return exec_err!("{}: the result is not a list of structs", rows.name);
    };
    let lists: Vec<Lists<'_>> =
        (0..fields.len()).map(|at| Lists::new(rows, at)).collect::<DfResult<_>>()?;
    let truncates = rows.optional::<BooleanArray>(fields.len())?;
    let mut columns: Vec<Vec<Option<u64>>> = vec![Vec::new(); lists.len()];
    let mut ends = Vec::with_capacity(rows.count);
    for row in 0..rows.count {
        let ranges = lists.iter().map(|list| list.range(row).unwrap_or_default());
        let ranges: Vec<_> = ranges.collect();
        let lengths = ranges.iter().map(ExactSizeIterator::len);
        let truncates = truncates.as_ref().and_then(|truth| truth.get(row)).unwrap_or_default();
        let length = if truncates { lengths.min() } else { lengths.max() };
        let length = length.unwrap_or_default();
        for (column, range) in columns.iter_mut().zip(&ranges) {
            let place = |at| (at < range.len()).then_some((range.start + at) as u64);
            column.extend((0..length).map(place));
        }
        ends.push(offset(columns[0].len())?);
    }
    let columns = columns
        .into_iter()
        .zip(&lists)
        .map(|(places, list)| Ok(take(&list.values, &UInt64Array::from(places), None)?));
    let structs = StructArray::try_new(fields, columns.collect::<DfResult<_>>()?, None)?;
    list_array(Arc::new(structs), &ends, &vec![true; rows.count], rows.result)
}

/// The elements of the lists that are elements of a list.
fn flatten(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let inner = lists.values.as_list::<i32>();
    let mut chosen = Chosen::default();
    for row in 0..rows.count {
        let range = lists.range(row);
        for at in range.clone().unwrap_or_default().filter(|&at| inner.is_valid(at)) {
            let bounds = [inner.value_offsets()[at], inner.value_offsets()[at + 1]];
            let [start, end] = bounds.map(|bound| usize::try_from(bound).unwrap_or_default());
            chosen.extend(start..end);
        }
        chosen.end(range.is_some())?;
    }
    chosen.finish(inner.values(), rows.result)
}
