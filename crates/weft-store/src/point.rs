//! One row by its key in a unique index: the way of point queries.
//!
//! [`Table::resident_row`] runs on any thread and waits for nothing: it finds rows whose index, directory and blocks are in memory.
//! [`Table::row_by_key`] runs on a worker, and waits for what is not there.

use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
use arrow_array::types::{
    Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, Float32Array, Float64Array, PrimitiveArray,
    new_null_array,
};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{DataType, TimeUnit};
use futures::FutureExt;
use weft_codec::{Block as Decoder, Scalar};
use weft_index::{EntryBytes, PrefixCursor, Resident};

use crate::error::{Result, StoreError};
use crate::fetch::{fetch, retain_live};
use crate::index::definition::Covering;
use crate::index::join::shown;
use crate::index::version::IndexVersion;
use crate::page_io::count;
use crate::pages::PageKind;
use crate::row_group::{Block, RowGroup};
use crate::schema::scan_type;
use crate::segment::Loaded;
use crate::table::Table;

/// A row that a key has led to.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedRow {
    /// The row's id.
    pub id: u64,
    /// Its values: an array of one value for each column that was asked for.
    pub values: Vec<ArrayRef>,
}

/// What is known of a row without waiting.
#[derive(Clone, Debug)]
pub enum ResidentRow {
    /// It is there.
    Row(KeyedRow),
    /// There is no such row.
    NoRow,
    /// Something is not in memory: [`Table::row_by_key`] finds the row.
    Unknown,
}

impl Table {
    /// The row with a key of a unique index, of which [`Table::key_prefix`] made `key` with a value for each column: its values in
    /// the columns of `projection`, as far as they can be had without waiting. On any thread.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`]; [`StoreError::Request`] if there is no such column; [`StoreError::Damaged`].
    pub fn resident_row(
        &self,
        index: &str,
        key: &[u8],
        projection: &[usize],
    ) -> Result<ResidentRow> {
        self.check_columns(projection)?;
        let index = self.index(index)?;
        let covering = index.definition().covering(self.schema(), projection).transpose()?;
        let own = index.overlay.as_ref().and_then(|overlay| overlay.own.as_ref());
        if index.opened().is_none() || own.is_some_and(|own| own.opened().is_none()) {
            return Ok(ResidentRow::Unknown);
        }
        // Nothing is waited for once the trees are open.
        let Some(layers) = index.layers(&self.version, &self.access).now_or_never() else {
            return Ok(ResidentRow::Unknown);
        };
        let mut included = Vec::new();
        for layer in layers? {
            let in_tree = match layer.opened.tree.get_resident_entry(key, &mut included) {
                Resident::Unknown => return Ok(ResidentRow::Unknown),
                Resident::Row(row) => Some(row).filter(|row| layer.shows(*row)),
                Resident::NoRow => None,
            };
            let row = in_tree.or_else(|| {
                let past = layer.past_entry(key)?;
                included.clear();
                included.extend_from_slice(&past.included);
                Some(past.row)
            });
            let Some(row) = row else { continue };
            let found = match &covering {
                None => self.resident_values(row, projection)?,
                Some(covering) => self.resident_entry(row, covering, (key, &included), index)?,
            };
            match found {
                ResidentRow::NoRow => {}
                found => return Ok(found),
            }
        }
        Ok(ResidentRow::NoRow)
    }

    /// The row with a key of a unique index, as [`Table::resident_row`], on a worker; `None` if there is none.
    ///
    /// # Errors
    /// As [`Table::resident_row`]; [`StoreError::Index`]; what went wrong with a file.
    pub async fn row_by_key(
        &self,
        index: &str,
        key: &[u8],
        projection: &[usize],
    ) -> Result<Option<KeyedRow>> {
        self.check_columns(projection)?;
        let (version, access) = (&*self.version, &*self.access);
        let index = self.index(index)?;
        if let Some(covering) = index.definition().covering(self.schema(), projection) {
            return self.row_by_entry(index, key, &covering?).await;
        }
        let found = index.find(&[key], version, access).await?;
        let mut rows: Vec<u64> = found.into_iter().flatten().collect();
        retain_live(version, access, &mut rows).await?;
        let Some(id) = rows.first().copied() else { return Ok(None) };
        let values = fetch(version, access, &rows, projection, 1).await?;
        Ok(Some(KeyedRow { id, values }))
    }

    /// As [`Table::row_by_key`], of an index whose entries have all values that are asked for.
    async fn row_by_entry(
        &self,
        index: &IndexVersion,
        key: &[u8],
        covering: &Covering,
    ) -> Result<Option<KeyedRow>> {
        let (version, access) = (&*self.version, &*self.access);
        let failed = |source| index.definition().error(&version.schema, source);
        for layer in index.layers(version, access).await? {
            let mut cursors = [PrefixCursor::new(key)];
            let found = layer.opened.tree.multi_prefix_entries(&mut cursors, 1, 1).await;
            let (found, entries) = found.map_err(failed)?;
            let (mut found, mut entries) = shown(found, &entries, |row| layer.shows(row));
            layer.add_past(&cursors, &mut found, Some(&mut entries));
            for (number, (_, row)) in found.iter().enumerate() {
                let mut live = vec![*row];
                retain_live(version, access, &mut live).await?;
                if !live.is_empty() {
                    let values = covering.decode(&entries, &[number]).map_err(failed)?;
                    return Ok(Some(KeyedRow { id: *row, values }));
                }
            }
        }
        Ok(None)
    }

    /// The values of a row by its entry in an index.
    fn resident_entry(
        &self,
        row_id: u64,
        covering: &Covering,
        (key, included): (&[u8], &[u8]),
        index: &IndexVersion,
    ) -> Result<ResidentRow> {
        match self.is_live(row_id) {
            None => return Ok(ResidentRow::Unknown),
            Some(false) => return Ok(ResidentRow::NoRow),
            Some(true) => {}
        }
        let mut entries = EntryBytes::new();
        entries.push(key, included);
        let values = covering.decode(&entries, &[0]);
        let values = values.map_err(|source| index.definition().error(self.schema(), source))?;
        Ok(ResidentRow::Row(KeyedRow { id: row_id, values }))
    }

    /// Whether the table has a row of this id, which is not deleted; `None` if that is not known without waiting.
    pub(crate) fn is_live(&self, row_id: u64) -> Option<bool> {
        let segments = self.version.segments.iter().map(|segment| segment.known());
        let segments: Vec<&Loaded> = segments.collect::<Option<_>>()?;
        let Some(group) = group_of(&segments, row_id) else { return Some(false) };
        Some(group.has_live(row_id))
    }

    fn resident_values(&self, row_id: u64, projection: &[usize]) -> Result<ResidentRow> {
        let segments = self.version.segments.iter().map(|segment| segment.known());
        let Some(segments) = segments.collect::<Option<Vec<&Loaded>>>() else {
            return Ok(ResidentRow::Unknown);
        };
        let Some(group) = group_of(&segments, row_id) else {
            return Ok(ResidentRow::NoRow);
        };
        let Some(row) = group.place_of(row_id).filter(|_| group.has_live(row_id)) else {
            return Ok(ResidentRow::NoRow);
        };
        let mut values = Vec::with_capacity(projection.len());
        for column in projection {
            let chunk = &group.chunks[*column];
            let block = &chunk.blocks[(row / chunk.block_rows) as usize];
            let within = (row % chunk.block_rows) as usize;
            match self.resident_value(group, block, within, *column)? {
                Some(value) => values.push(value),
                None => return Ok(ResidentRow::Unknown),
            }
        }
        let source = &self.access.source;
        for stats in [source.stats(), source.total()] {
            count(&stats.hits, projection.len() as u64);
        }
        Ok(ResidentRow::Row(KeyedRow { id: row_id, values }))
    }

    /// A value of a block; `None` if the block is not in memory as one page, or decompressed.
    fn resident_value(
        &self,
        group: &RowGroup,
        block: &Block,
        row: usize,
        column: usize,
    ) -> Result<Option<ArrayRef>> {
        let (source, version, stored) = (&self.access.source, &self.version, &block.stored);
        let data_type = scan_type(&version.schema.columns[column].data_type);
        let in_column = |error: StoreError| {
            let (table, column) = (&version.schema.name, &version.schema.columns[column].name);
            error.at(format!("table {table}, column {column}"))
        };
        let undecodable = |error| in_column(source.undecodable(stored, error));
        if let Some(kept) = source.decompressed().get(stored) {
            return value_at(&kept, row, &data_type).map(Some).map_err(undecodable);
        }
        if block.page_count() != 1 {
            return Ok(None);
        }
        let Some(page) = source.pool().try_fix(&group.pages, block.first_page as usize) else {
            return Ok(None);
        };
        let checked = stored.check(PageKind::Block, [&*page].into_iter());
        checked.map_err(|error| in_column(source.damaged(stored, error.0)))?;
        let bytes = &page.payload()[..stored.bytes as usize];
        let decoder = Decoder::open(bytes).map_err(undecodable)?;
        let value = value_at(&decoder, row, &data_type).map_err(undecodable)?;
        if decoder.is_compressed() {
            source.decompressed().keep(stored, decoder.into_owned());
        }
        Ok(Some(value))
    }
}

/// A value of a block as an array of one.
fn value_at(block: &Decoder<'_>, row: usize, data_type: &DataType) -> weft_codec::Result<ArrayRef> {
    if has_array(data_type)
        && let Some(value) = array_of(&block.value(row)?, data_type)
    {
        return Ok(value);
    }
    let mut selected = BooleanBufferBuilder::new(block.rows());
    selected.append_n(block.rows(), false);
    selected.set_bit(row, true);
    block.decode_selected(&selected.finish(), data_type)
}

/// The row group that has a row of this id, if one does.
fn group_of<'a>(segments: &[&'a Loaded], row_id: u64) -> Option<&'a RowGroup> {
    let ends_behind = |group: &RowGroup| group.end_row() > row_id;
    let ends_before = |segment: &&Loaded| !segment.groups.last().is_some_and(ends_behind);
    let segment: &'a Loaded = segments.get(segments.partition_point(ends_before))?;
    let number = segment.groups.partition_point(|group| !ends_behind(group));
    segment.groups.get(number).filter(|group| group.first_row <= row_id)
}

/// Whether [`array_of`] makes arrays of this type.
fn has_array(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Float32
                | DataType::Float64
                | DataType::Date32
                | DataType::Timestamp(TimeUnit::Microsecond, None)
                | DataType::Decimal128(..)
                | DataType::Utf8View
                | DataType::BinaryView
        )
}

/// A value as an array of one; `None` for types that [`has_array`] does not have, and values that are of another type.
fn array_of(value: &Scalar, data_type: &DataType) -> Option<ArrayRef> {
    fn integers<T: ArrowPrimitiveType>(value: impl TryInto<T::Native>) -> Option<ArrayRef> {
        Some(Arc::new(PrimitiveArray::<T>::from_value(value.try_into().ok()?, 1)))
    }
    Some(match (data_type, value) {
        (_, Scalar::Null) => new_null_array(data_type, 1),
        (DataType::Boolean, Scalar::Boolean(value)) => Arc::new(BooleanArray::from(vec![*value])),
        (DataType::Int8, Scalar::Int(value)) => integers::<Int8Type>(*value)?,
        (DataType::Int16, Scalar::Int(value)) => integers::<Int16Type>(*value)?,
        (DataType::Int32, Scalar::Int(value)) => integers::<Int32Type>(*value)?,
        (DataType::Int64, Scalar::Int(value)) => integers::<Int64Type>(*value)?,
        (DataType::UInt8, Scalar::UInt(value)) => integers::<UInt8Type>(*value)?,
        (DataType::UInt16, Scalar::UInt(value)) => integers::<UInt16Type>(*value)?,
        (DataType::UInt32, Scalar::UInt(value)) => integers::<UInt32Type>(*value)?,
        (DataType::UInt64, Scalar::UInt(value)) => integers::<UInt64Type>(*value)?,
        (DataType::Date32, Scalar::Int(value)) => integers::<Date32Type>(*value)?,
        (DataType::Timestamp(TimeUnit::Microsecond, None), Scalar::Int(value)) => {
            integers::<TimestampMicrosecondType>(*value)?
        }
        (DataType::Float32, Scalar::Float32(value)) => Arc::new(Float32Array::from(vec![*value])),
        (DataType::Float64, Scalar::Float64(value)) => Arc::new(Float64Array::from(vec![*value])),
        (DataType::Decimal128(..), Scalar::Int128(value)) => {
            let array = PrimitiveArray::<Decimal128Type>::from_value(*value, 1);
            Arc::new(array.with_data_type(data_type.clone()))
        }
        (DataType::Utf8View, Scalar::Bytes(bytes)) => {
            let mut builder = StringViewBuilder::with_capacity(1);
            builder.append_value(std::str::from_utf8(bytes).ok()?);
            Arc::new(builder.finish())
        }
        (DataType::BinaryView, Scalar::Bytes(bytes)) => {
            let mut builder = BinaryViewBuilder::with_capacity(1);
            builder.append_value(bytes);
            Arc::new(builder.finish())
        }
        _ => return None,
    })
}
