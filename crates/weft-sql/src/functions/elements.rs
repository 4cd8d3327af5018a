//! Lists as functions see them: where the elements of each row's list are, new lists of chosen elements, and keys by
//! which elements of any type are compared.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, Float32Array, Float64Array, ListArray, NullBufferBuilder, UInt64Array,
};
use datafusion::arrow::buffer::{OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::row::{RowConverter, Rows as RowKeys, SortField};
use datafusion::common::{Result as DfResult, exec_err, internal_datafusion_err, plan_err};

use super::scalar::{Argument, Rows, item_of};
use crate::floats::{canonical_32, canonical_64};
use crate::types::type_name;

/// The lists of an argument.
pub(crate) struct Lists<'a> {
    argument: &'a Argument,
    offsets: &'a [i32],
    /// The elements of all lists, one list after the other.
    pub(crate) values: ArrayRef,
}

impl<'a> Lists<'a> {
    pub(crate) fn new(rows: &'a Rows<'_>, argument: usize) -> DfResult<Lists<'a>> {
        let argument = &rows.arguments[argument];
        let Some(list) = argument.values.as_list_opt::<i32>() else {
            let given = argument.values.data_type();
            return Err(internal_datafusion_err!("{}: a list of type {given}", rows.name));
        };
        let offsets: &[i32] = list.offsets();
        // Of a slice of an array, the elements of other rows are left out.
        let (first, last) = (place(offsets[0]), place(offsets[offsets.len() - 1]));
        let values = list.values().slice(first, last - first);
        Ok(Lists { argument, offsets, values })
    }

    /// Where the elements of a row's list are, nothing if the list is NULL.
    pub(crate) fn range(&self, row: usize) -> Option<Range<usize>> {
        self.argument.known(row).map(|_| self.span(row))
    }

    /// As [`Lists::range`]; of a list that is NULL, where elements may lie that stand for nothing.
    pub(crate) fn span(&self, row: usize) -> Range<usize> {
        let (at, first) = (self.argument.at(row), place(self.offsets[0]));
        place(self.offsets[at]) - first..place(self.offsets[at + 1]) - first
    }
}

fn place(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or_default()
}

/// New lists, each of chosen elements of an array.
#[derive(Default)]
pub(crate) struct Chosen {
    places: Vec<Option<u64>>,
    ends: Vec<i32>,
    is_known: Vec<bool>,
}

impl Chosen {
    /// Adds an element to the list that is not finished yet; NULL for no place.
    pub(crate) fn push(&mut self, place: impl Into<Option<usize>>) {
        self.places.push(place.into().map(|place| place as u64));
    }

    /// Adds elements to the list that is not finished yet.
    pub(crate) fn extend(&mut self, places: impl IntoIterator<Item = usize>) {
        self.places.extend(places.into_iter().map(|place| Some(place as u64)));
    }

    /// Finishes a list, which is NULL if not `is_known`.
    ///
    /// # Errors
    /// If all lists together have too many elements.
    pub(crate) fn end(&mut self, is_known: bool) -> DfResult<()> {
        self.ends.push(offset(self.places.len())?);
        self.is_known.push(is_known);
        Ok(())
    }

    /// The lists of elements of this array, as a list type.
    pub(crate) fn finish(self, values: &ArrayRef, list: &DataType) -> DfResult<ArrayRef> {
        let elements = take(values, &UInt64Array::from(self.places), None)?;
        list_array(elements, &self.ends, &self.is_known, list)
    }

    /// The lists with these elements in place of the chosen ones.
    pub(crate) fn finish_with(self, elements: ArrayRef, list: &DataType) -> DfResult<ArrayRef> {
        list_array(elements, &self.ends, &self.is_known, list)
    }
}

/// Lists of elements of the lists of the first argument, which `choose` adds for a row and the places of its list.
pub(crate) fn choose(
    rows: &Rows<'_>,
    mut choose: impl FnMut(usize, Range<usize>, &mut Chosen) -> DfResult<bool>,
) -> DfResult<ArrayRef> {
    let lists = Lists::new(rows, 0)?;
    let mut chosen = Chosen::default();
    for row in 0..rows.count {
        let is_known = match lists.range(row) {
            Some(range) => choose(row, range, &mut chosen)?,
            None => false,
        };
        chosen.end(is_known)?;
    }
    chosen.finish(&lists.values, rows.result)
}

/// A list array of elements, where lists end, and which of them are not NULL.
pub(crate) fn list_array(
    elements: ArrayRef,
    ends: &[i32],
    is_known: &[bool],
    list: &DataType,
) -> DfResult<ArrayRef> {
    let item = Arc::clone(item_of(list)?);
    let offsets: ScalarBuffer<i32> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let mut nulls = NullBufferBuilder::new(is_known.len());
    is_known.iter().for_each(|&known| nulls.append(known));
    let offsets = OffsetBuffer::new(offsets);
    Ok(Arc::new(ListArray::try_new(item, offsets, elements, nulls.finish())?))
}

/// A number of elements as the offset of a list.
///
/// # Errors
/// If it is too large.
pub(crate) fn offset(elements: usize) -> DfResult<i32> {
    match i32::try_from(elements) {
        Ok(offset) => Ok(offset),
        Err(_) => exec_err!(
            "the lists of one batch of rows have more than {} elements: SET batch_size to less",
            i32::MAX
        ),
    }
}

/// Keys of elements: equal keys for equal elements, and less for less.
///
/// # Errors
/// If values of the type cannot be compared.
pub(crate) fn keys(values: &ArrayRef) -> DfResult<RowKeys> {
    let field = SortField::new(values.data_type().clone());
    if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
        return plan_err!("values of type {} cannot be compared", type_name(values.data_type()));
    }
    Ok(RowConverter::new(vec![field])?.convert_columns(&[canonical(values)])?)
}

/// Floats with one zero and one NaN.
fn canonical(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float64 => {
            let numbers: Float64Array = values.as_primitive::<Float64Type>().unary(canonical_64);
            Arc::new(numbers)
        }
        DataType::Float32 => {
            let numbers: Float32Array = values.as_primitive::<Float32Type>().unary(canonical_32);
            Arc::new(numbers)
        }
        _ => Arc::clone(values),
    }
}
