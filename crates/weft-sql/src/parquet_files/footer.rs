//! The footer of a Parquet file, made sound: offsets lie within the file, statistics say what is true of all values, and an
//! Arrow schema that cannot be decoded, or does not fit, is left out. Of columns that share a name, those behind the first have others.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::common::{DataFusionError, HashMap, Result as DfResult, exec_datafusion_err};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::cache::cache_manager::{
    CachedFileMetadataEntry, FileMetadata, FileMetadataCache,
};
use datafusion::object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema, parquet_to_arrow_schema};
use parquet::basic::{LogicalType, Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, PageIndexPolicy, ParquetMetaData,
    ParquetMetaDataBuilder, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type as SchemaType};

use weft_remote::name_of_location;

use super::guard::caught;
use crate::enums::ENUM;
use crate::postgres::POSTGRES_TYPE;
use crate::uuids::WITHIN;

/// A column chunk that expands by more than this factor, and beyond the memory limit, is refused.
const EXPANSION_MAX: u64 = 1_000;

/// A footer that has been made sound, in the cache of footers.
struct SoundFooter(Arc<ParquetMetaData>);

impl FileMetadata for SoundFooter {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory_size(&self) -> usize {
        self.0.memory_size()
    }

    fn extra_info(&self) -> HashMap<String, String> {
        HashMap::default()
    }
}

/// Footers that have been made sound, as long as their files do not change.
#[derive(Clone)]
pub(crate) struct Footers {
    cache: Arc<FileMetadataCache>,
    /// The memory limit, if there is one.
    limit_bytes: Option<u64>,
}

impl fmt::Debug for Footers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Footers")
    }
}

impl Footers {
    /// Those in `cache`. Files whose footers promise more than the memory limit for next to nothing are refused.
    pub(super) fn new(cache: Arc<FileMetadataCache>, limit_bytes: Option<u64>) -> Footers {
        Footers { cache, limit_bytes }
    }

    /// The footer of a file, if it is there and the file has not changed.
    pub(crate) fn known(&self, object: &ObjectMeta) -> Option<Arc<ParquetMetaData>> {
        let cached = self.cache.get(&object.location).filter(|known| known.is_valid_for(object))?;
        let footer = cached.file_metadata.as_any().downcast_ref::<SoundFooter>()?;
        Some(Arc::clone(&footer.0))
    }

    /// Makes the footer sound that was read of a file, and keeps it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn add(
        &self,
        object: &ObjectMeta,
        metadata: ParquetMetaData,
    ) -> Result<Arc<ParquetMetaData>, String> {
        let sound = || sound(metadata, object.size, self.limit_bytes);
        let footer = catch_unwind(AssertUnwindSafe(sound))
            .unwrap_or_else(|_| Err("its footer is damaged".to_owned()))?;
        let footer = Arc::new(footer);
        let kept = Arc::new(SoundFooter(Arc::clone(&footer)));
        self.cache.put(&object.location, CachedFileMetadataEntry::new(object.clone(), kept));
        Ok(footer)
    }

    /// The footer of a file, read if it is not there.
    ///
    /// # Errors
    /// For a file that cannot be read, or is damaged: the message names it.
    pub(super) async fn of(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> DfResult<Arc<ParquetMetaData>> {
        if let Some(footer) = self.known(object) {
            return Ok(footer);
        }
        let name = name_of_location(&object.location);
        if object.size < 12 {
            return Err(exec_datafusion_err!(
                "cannot read '{name}': it is no Parquet file, as it has only {} bytes",
                object.size
            ));
        }
        let read = DFParquetMetadata::new(store.as_ref(), object)
            .with_page_index_policy(Some(PageIndexPolicy::Optional));
        let metadata = caught(&name, read.fetch_metadata()).await?;
        let metadata = Arc::try_unwrap(metadata).unwrap_or_else(|shared| (*shared).clone());
        self.add(object, metadata)
            .map_err(|problem| exec_datafusion_err!("cannot read '{name}': {problem}"))
    }
}

/// The footer with what is wrong in it corrected where the file can be read without it.
fn sound(
    metadata: ParquetMetaData,
    file_bytes: u64,
    limit_bytes: Option<u64>,
) -> Result<ParquetMetaData, String> {
    let file = sound_file(metadata.file_metadata(), metadata.row_groups())?;
    let floats: Vec<bool> = (0..file.schema_descr().num_columns())
        .map(|column| is_float(&file.schema_descr().column(column)))
        .collect();
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let columns = group.columns().iter().enumerate().map(|(column, chunk)| {
            sound_chunk(chunk, floats[column], file_bytes, limit_bytes)
                .map_err(|problem| format!("row group {number}, column {column}: {problem}"))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let group = group.clone().into_builder().set_column_metadata(columns).build();
        groups.push(group.map_err(|error| error.to_string())?);
    }
    let mut pages = metadata.column_index().cloned();
    for group in pages.iter_mut().flatten() {
        for (page_index, is_float) in group.iter_mut().zip(&floats) {
            if *is_float {
                *page_index = ColumnIndexMetaData::NONE;
            }
        }
    }
    let builder = ParquetMetaDataBuilder::new(file).set_row_groups(groups);
    let builder = builder.set_offset_index(metadata.offset_index().cloned());
    Ok(builder.set_column_index(pages).build())
}

/// What the footer says of the file as a whole: its rows are those of its row groups.
fn sound_file(file: &FileMetaData, groups: &[RowGroupMetaData]) -> Result<FileMetaData, String> {
    let mut rows = 0i64;
    for group in groups {
        let sum = rows.checked_add(group.num_rows()).filter(|_| group.num_rows() >= 0);
        rows = sum.ok_or("its row groups have an impossible number of rows")?;
    }
    let apart = columns_apart(file.schema_descr()).map_err(|error| error.to_string())?;
    let is_renamed = apart.is_some();
    let descriptor = apart.unwrap_or_else(|| file.schema_descr_ptr());
    let arrow = |metadata: Option<&Vec<KeyValue>>| -> Result<Schema, String> {
        catch_unwind(AssertUnwindSafe(|| parquet_to_arrow_schema(&descriptor, metadata)))
            .map_err(|_| "its schema is damaged".to_owned())?
            .map_err(|error| error.to_string())
    };
    let mut pairs = file.key_value_metadata().cloned();
    match arrow(pairs.as_ref()) {
        Ok(schema) => {
            let plain = plain_schema(&schema);
            if is_renamed || plain.fields() != schema.fields() {
                set_arrow_schema(&mut pairs, Some(encode_arrow_schema(&plain)));
            }
        }
        Err(_) => {
            set_arrow_schema(&mut pairs, None);
            arrow(pairs.as_ref())?;
        }
    }
    Ok(FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        pairs,
        descriptor,
        file.column_orders().cloned(),
    ))
}

/// The schema with another name for each column whose name another one before it has; `None` if there is no such column.
fn columns_apart(schema: &SchemaDescriptor) -> ParquetResult<Option<SchemaDescPtr>> {
    let fields = schema.root_schema().get_fields();
    let mut seen = HashSet::new();
    let is_new: Vec<bool> = fields.iter().map(|field| seen.insert(field.name())).collect();
    if !is_new.contains(&false) {
        return Ok(None);
    }
    let mut taken: HashSet<String> = seen.into_iter().map(str::to_owned).collect();
    let apart = fields.iter().zip(is_new).map(|(field, is_new)| match is_new {
        true => Ok(Arc::clone(field)),
        false => {
            let name = (1_usize..).map(|number| format!("{}_{number}", field.name()));
            let name = name.into_iter().find(|name| taken.insert(name.clone()));
            renamed(field, &name.unwrap_or_default()).map(Arc::new)
        }
    });
    let fields = apart.collect::<ParquetResult<Vec<_>>>()?;
    let root = SchemaType::group_type_builder(schema.root_schema().name()).with_fields(fields);
    Ok(Some(Arc::new(SchemaDescriptor::new(Arc::new(root.build()?)))))
}

/// The type of a column under another name.
fn renamed(column: &SchemaType, name: &str) -> ParquetResult<SchemaType> {
    let info = column.get_basic_info();
    let (logical, id) = (info.logical_type_ref().cloned(), info.has_id().then(|| info.id()));
    match column {
        SchemaType::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            SchemaType::primitive_type_builder(name, *physical_type)
                .with_repetition(info.repetition())
                .with_converted_type(info.converted_type())
                .with_logical_type(logical)
                .with_length(*type_length)
                .with_precision(*precision)
                .with_scale(*scale)
                .with_id(id)
                .build()
        }
        SchemaType::GroupType { fields, .. } => SchemaType::group_type_builder(name)
            .with_repetition(info.repetition())
            .with_converted_type(info.converted_type())
            .with_logical_type(logical)
            .with_fields(fields.clone())
            .with_id(id)
            .build(),
    }
}

fn set_arrow_schema(pairs: &mut Option<Vec<KeyValue>>, encoded: Option<String>) {
    if let Some(pairs) = pairs {
        pairs.retain(|pair| pair.key != ARROW_SCHEMA_META_KEY);
        pairs.extend(encoded.map(|text| KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), text)));
    }
}

/// The schema without dictionaries and run ends: a dictionary may hold a null, which its readers take for a value. Types that only
/// Weft knows are left out, as anything may be in the file.
fn plain_schema(schema: &Schema) -> Schema {
    let fields: Fields = schema.fields().iter().map(plain_field).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn plain_field(field: &Arc<Field>) -> Arc<Field> {
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => (**values).clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    };
    let mut metadata = field.metadata().clone();
    metadata.remove(POSTGRES_TYPE);
    metadata.remove(WITHIN);
    metadata.remove(ENUM);
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_metadata(metadata))
}

fn is_float(column: &parquet::schema::types::ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE)
        || matches!(column.logical_type_ref(), Some(LogicalType::Float16))
}

/// A column chunk whose pages lie within the file, and whose bounds hold of all its values.
fn sound_chunk(
    chunk: &ColumnChunkMetaData,
    is_float: bool,
    file_bytes: u64,
    limit_bytes: Option<u64>,
) -> Result<ColumnChunkMetaData, String> {
    let mut builder = chunk.clone().into_builder();
    let dictionary = chunk.dictionary_page_offset().filter(|offset| *offset != 0);
    builder = builder.set_dictionary_page_offset(dictionary);
    let start = dictionary.unwrap_or(chunk.data_page_offset());
    let is_within = match (u64::try_from(start), u64::try_from(chunk.compressed_size())) {
        (Ok(start), Ok(len)) => start.checked_add(len).is_some_and(|end| end <= file_bytes),
        _ => false,
    };
    if !is_within {
        return Err(format!(
            "its {} bytes at offset {start} do not lie within the file's {file_bytes}",
            chunk.compressed_size()
        ));
    }
    let compressed = chunk.compressed_size().unsigned_abs();
    let expanded = u64::try_from(chunk.uncompressed_size()).map_err(|_| "its size is negative")?;
    if limit_bytes.is_some_and(|limit| expanded > limit)
        && expanded / compressed.max(1) > EXPANSION_MAX
    {
        return Err(format!(
            "its {compressed} bytes become {expanded} when they are decompressed, more than memory_limit"
        ));
    }
    if is_float && let Some(statistics) = chunk.statistics() {
        builder = builder.set_statistics(of_floats(statistics));
    }
    builder.build().map_err(|error| error.to_string())
}

/// Statistics of floating-point numbers with the bounds that hold if there is a NaN among them, which is greater than all
/// other numbers and which writers leave out: the lower one. Of 16-bit numbers, which are compared as bytes, there is none.
fn of_floats(statistics: &Statistics) -> Statistics {
    let nulls = statistics.null_count_opt();
    match statistics {
        Statistics::Float(of) => {
            let min = of.min_opt().copied().filter(|min| !min.is_nan());
            Statistics::Float(ValueStatistics::new(min, None, None, nulls, false))
        }
        Statistics::Double(of) => {
            let min = of.min_opt().copied().filter(|min| !min.is_nan());
            Statistics::Double(ValueStatistics::new(min, None, None, nulls, false))
        }
        Statistics::FixedLenByteArray(_) => {
            Statistics::FixedLenByteArray(ValueStatistics::new(None, None, None, nulls, false))
        }
        other => other.clone(),
    }
}

/// The Arrow schema of a footer.
///
/// # Errors
/// Those of the conversion.
pub(crate) fn arrow_schema(metadata: &ParquetMetaData) -> ParquetResult<Schema> {
    let file = metadata.file_metadata();
    parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata())
}

/// An error of the Parquet crate, about a file.
pub(super) fn about(name: &str, error: &dyn std::fmt::Display) -> DataFusionError {
    exec_datafusion_err!("cannot read '{name}': {error}")
}
