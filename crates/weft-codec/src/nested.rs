//! Lists and structs: blocks within the block, whose values they hold.
//!
//! A list is the ends of all lists (u32, as those of strings) and its items in blocks of
//! [`MAX_ROWS`](crate::MAX_ROWS), the last of fewer; a struct is a block per field. Blocks within blocks
//! are not compressed, since the outermost one is as a whole, and lie at most [`MAX_NESTING`] deep.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray, cast::AsArray};
use arrow_array::{FixedSizeListArray, LargeListArray, ListArray, MapArray, UInt32Array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

use crate::block::Block;
use crate::encode::{self, Options, State};
use crate::encoding::Encoding;
use crate::error::{Error, Result, damaged};
use crate::reader::{Reader, put, put_child};
use crate::rows::Rows;
use crate::scalar::Scalar;
use crate::{MAX_ROWS, MAX_VALUES, ints, strings};

/// Lists and structs lie at most this deep within each other.
pub(crate) const MAX_NESTING: u8 = 8;

/// How many values the lists and structs of one block may still hold.
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(MAX_VALUES)
    }

    fn take(&mut self, values: usize) -> Result<()> {
        self.0 = self.0.checked_sub(values).ok_or(Error::TooManyValues)?;
        Ok(())
    }
}

/// Appends a list node. What lies under a null list is left out.
pub(crate) fn encode_list(
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    options: &Options,
    state: &mut State,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (offsets, items) = list_parts(array);
    let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let length = |row: usize| if valid(row) { offsets[row + 1] - offsets[row] } else { 0 };
    let total = (0..array.len()).map(length).sum();
    state.budget.take(total)?;

    let (first, last) = (offsets[0], offsets[array.len()]);
    let mut items = items.slice(first, last - first);
    if total < items.len() {
        let mut mask = vec![false; items.len()];
        for row in (0..array.len()).filter(|&row| valid(row)) {
            mask[offsets[row] - first..offsets[row + 1] - first].fill(true);
        }
        items = arrow_select::filter::filter(&items, &mask.into()).expect("a bit per item");
    }
    out.push(Encoding::List as u8);
    put_child(out, &strings::encode_ends((0..array.len()).map(length), options.cascade_depth));
    put(out, total.div_ceil(MAX_ROWS).max(1) as u32);
    for start in (0..total.max(1)).step_by(MAX_ROWS) {
        let items = items.slice(start, (total - start).min(MAX_ROWS));
        put_child(out, &encode::encode_nested(&items, options, state)?);
    }
    Ok(())
}

/// Where each list begins and the last one ends, and the items.
fn list_parts(array: &dyn Array) -> (Vec<usize>, ArrayRef) {
    if let Some(list) = array.as_list_opt::<i32>() {
        return (
            list.value_offsets().iter().map(|&at| at as usize).collect(),
            list.values().clone(),
        );
    }
    if let Some(list) = array.as_list_opt::<i64>() {
        return (
            list.value_offsets().iter().map(|&at| at as usize).collect(),
            list.values().clone(),
        );
    }
    if let Some(map) = array.as_map_opt() {
        let entries: ArrayRef = Arc::new(map.entries().clone());
        return (map.value_offsets().iter().map(|&at| at as usize).collect(), entries);
    }
    let list = array.as_fixed_size_list();
    let len = list.value_length() as usize;
    ((0..=list.len()).map(|row| row * len).collect(), list.values().clone())
}

/// Appends a struct node.
pub(crate) fn encode_struct(
    array: &StructArray,
    options: &Options,
    state: &mut State,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.push(Encoding::Struct as u8);
    put(out, array.num_columns() as u32);
    for column in array.columns() {
        state.budget.take(column.len())?;
        put_child(out, &encode::encode_nested(column, options, state)?);
    }
    Ok(())
}

/// A list payload: the node of the ends, and the blocks of the items.
pub(crate) struct List<'a> {
    pub(crate) ends: &'a [u8],
    pub(crate) blocks: Vec<Block<'a>>,
}

/// The blocks that are left in a payload, after their number.
fn blocks<'a>(mut reader: Reader<'a>, nesting: u8) -> Result<Vec<Block<'a>>> {
    let len = reader.length()?;
    let mut blocks = Vec::new();
    for _ in 0..len {
        blocks.push(Block::open_nested(reader.child()?, nesting + 1)?);
    }
    reader.end()?;
    Ok(blocks)
}

/// The blocks of the fields of a struct node.
pub(crate) fn fields(node: &[u8], nesting: u8) -> Result<Vec<Block<'_>>> {
    let (encoding, reader) = Encoding::open(node, 0)?;
    if encoding != Encoding::Struct {
        return Err(encoding.misplaced("structs"));
    }
    blocks(reader, nesting)
}

impl<'a> List<'a> {
    pub(crate) fn open(node: &'a [u8], nesting: u8) -> Result<Self> {
        let (encoding, mut reader) = Encoding::open(node, 0)?;
        if encoding != Encoding::List {
            return Err(encoding.misplaced("lists"));
        }
        let ends = reader.child()?;
        let blocks = blocks(reader, nesting)?;
        let Some((last, before)) = blocks.split_last() else {
            return Err(damaged("list", "no blocks"));
        };
        if before.iter().any(|block| block.rows() != MAX_ROWS) {
            return Err(damaged("list", "a block that is not full before the last"));
        }
        if before.iter().any(|block| block.physical() != last.physical()) {
            return Err(damaged("list", "items of several types"));
        }
        Ok(Self { ends, blocks })
    }

    /// Items of all lists.
    fn items(&self) -> usize {
        self.blocks.iter().map(Block::rows).sum()
    }

    /// Where the lists to read end, and their items as `data_type`.
    fn read(
        &self,
        rows: Rows,
        data_type: &DataType,
        budget: &mut Budget,
    ) -> Result<(Vec<i32>, ArrayRef)> {
        let items = self.items();
        budget.take(items)?;
        let ends = ints::decode::<u32>(self.ends, rows.of(), 1)?;
        let sound = ends.is_sorted() && ends.last().map_or(0, |&end| end as usize) == items;
        if !sound {
            return Err(damaged("list", format!("lists do not hold all of {items} items")));
        }
        let of_range: Vec<u32>;
        let rows = match rows {
            Rows::All(_) => {
                let read = |block: &Block| block.read(Rows::All(block.rows()), data_type, budget);
                let read: Vec<ArrayRef> = self.blocks.iter().map(read).collect::<Result<_>>()?;
                return Ok((ends.iter().map(|&end| end as i32).collect(), concat(&read)?));
            }
            Rows::Range { start, len, .. } => {
                of_range = (start as u32..(start + len) as u32).collect();
                &of_range
            }
            Rows::Picked { rows, .. } => rows,
        };
        let mut picked: Vec<Vec<u32>> = vec![Vec::new(); self.blocks.len()];
        let mut out = Vec::with_capacity(rows.len());
        let mut len = 0;
        for &row in rows {
            let (start, end) = strings::bounds(&ends, row as usize);
            for item in start..end {
                picked[item / MAX_ROWS].push((item % MAX_ROWS) as u32);
            }
            len += (end - start) as i32;
            out.push(len);
        }
        let mut read = Vec::new();
        for (i, (block, picked)) in self.blocks.iter().zip(&picked).enumerate() {
            // One is read even if nothing is, for the type.
            if !picked.is_empty() || i == 0 {
                read.push(block.read(Rows::picked(block.rows(), picked), data_type, budget)?);
            }
        }
        Ok((out, concat(&read)?))
    }

    /// The items of the list in row `row` of `rows`.
    pub(crate) fn value(&self, row: usize, rows: usize, budget: &mut Budget) -> Result<Scalar> {
        let (start, end) = strings::range(self.ends, row, rows, self.items(), 1)?;
        budget.take(end - start)?;
        let item = |item: usize| self.blocks[item / MAX_ROWS].value_of(item % MAX_ROWS, budget);
        Ok(Scalar::List((start..end).map(item).collect::<Result<_>>()?))
    }
}

fn concat(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    if let [array] = arrays {
        return Ok(array.clone());
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    arrow_select::concat::concat(&arrays).map_err(unsound)
}

/// The error for arrays that Arrow refuses: a null where there may be none, for example.
fn unsound(error: ArrowError) -> Error {
    damaged("nested", error.to_string())
}

/// The lists of a node as `data_type`, which is one of Arrow's types of lists.
pub(crate) fn read_list(
    block: &Block,
    rows: Rows,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
    budget: &mut Budget,
) -> Result<ArrayRef> {
    let list = List::open(block.node(), block.nesting())?;
    let (DataType::List(item)
    | DataType::LargeList(item)
    | DataType::FixedSizeList(item, _)
    | DataType::Map(item, _)) = data_type
    else {
        return Err(block.wrong_type(data_type));
    };
    let (ends, items) = list.read(rows, item.data_type(), budget)?;
    let item = item.clone();
    if let DataType::FixedSizeList(_, len) = data_type {
        return fixed_size_list(item, *len, &ends, items, nulls);
    }
    let offsets: ScalarBuffer<i32> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let offsets = OffsetBuffer::new(offsets);
    Ok(match data_type {
        DataType::LargeList(_) => {
            let offsets: ScalarBuffer<i64> = offsets.iter().map(|&at| at.into()).collect();
            let offsets = OffsetBuffer::new(offsets);
            Arc::new(LargeListArray::try_new(item, offsets, items, nulls).map_err(unsound)?)
        }
        DataType::Map(_, sorted) => {
            let Some(entries) = items.as_struct_opt() else {
                return Err(block.wrong_type(data_type));
            };
            let map = MapArray::try_new(item, offsets, entries.clone(), nulls, *sorted);
            Arc::new(map.map_err(unsound)?)
        }
        _ => Arc::new(ListArray::try_new(item, offsets, items, nulls).map_err(unsound)?),
    })
}

/// Lists of `len` items each; null ones, which have none, get nulls.
fn fixed_size_list(
    item: FieldRef,
    len: i32,
    ends: &[i32],
    mut items: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let mut start = 0;
    for (row, &end) in ends.iter().enumerate() {
        let held = end - std::mem::replace(&mut start, end);
        if held != if valid(row) { len } else { 0 } {
            return Err(damaged("list", format!("a list of {held} items instead of {len}")));
        }
    }
    if nulls.is_some() {
        let mut at = 0..;
        let indexes = (0..ends.len())
            .flat_map(|row| (0..len).map(move |_| row))
            .map(|row| valid(row).then(|| at.next().unwrap_or_default()));
        let indexes: UInt32Array = indexes.collect();
        items = arrow_select::take::take(&items, &indexes, None).map_err(unsound)?;
    }
    let list = FixedSizeListArray::try_new_with_length(item, len, items, nulls, ends.len());
    Ok(Arc::new(list.map_err(unsound)?))
}

/// The structs of a node as `data_type`.
pub(crate) fn read_struct(
    block: &Block,
    rows: Rows,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
    budget: &mut Budget,
) -> Result<ArrayRef> {
    let blocks = fields(block.node(), block.nesting())?;
    let DataType::Struct(fields) = data_type else { return Err(block.wrong_type(data_type)) };
    if fields.len() != blocks.len() {
        return Err(block.wrong_type(data_type));
    }
    let mut columns = Vec::with_capacity(blocks.len());
    for (field, block) in fields.iter().zip(&blocks) {
        budget.take(block.rows())?;
        if block.rows() != rows.of() {
            return Err(damaged("struct", format!("a field of {} rows", block.rows())));
        }
        columns.push(block.read(rows, field.data_type(), budget)?);
    }
    let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, rows.len());
    Ok(Arc::new(array.map_err(unsound)?))
}

/// The fields of the struct in row `row`.
pub(crate) fn struct_value(block: &Block, row: usize, budget: &mut Budget) -> Result<Scalar> {
    let fields = fields(block.node(), block.nesting())?;
    budget.take(fields.len())?;
    let value = |field: &Block| field.value_of(row, budget);
    Ok(Scalar::Struct(fields.iter().map(value).collect::<Result<_>>()?))
}

/// The Arrow type of a block of lists.
pub(crate) fn list_type(block: &Block) -> Result<DataType> {
    let list = List::open(block.node(), block.nesting())?;
    Ok(DataType::List(Arc::new(Field::new_list_field(list.blocks[0].data_type()?, true))))
}

/// The Arrow type of a block of structs, whose fields are named by their numbers.
pub(crate) fn struct_type(block: &Block) -> Result<DataType> {
    let fields = fields(block.node(), block.nesting())?;
    let field =
        |(i, field): (usize, &Block)| Ok(Field::new(i.to_string(), field.data_type()?, true));
    Ok(DataType::Struct(fields.iter().enumerate().map(field).collect::<Result<_>>()?))
}
