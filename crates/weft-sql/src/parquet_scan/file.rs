//! A file of a scan: how its columns become those of the table, and what is to be read of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int32Type, Schema, SchemaRef, UInt16Type,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result as DfResult, exec_datafusion_err};
use datafusion::datasource::physical_plan::parquet::{
    Int96Coercer, apply_file_schema_type_coercions,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::collect_columns;
use futures::FutureExt;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{Encoding, PageType, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use weft_exec::ExecError;
use weft_parquet::{Handle, OpenFile, Piece, ReadCounts, ReadError, read_metadata};
use weft_remote::{Place, name_of_location};
use weft_rt::io::File;

use super::node::{ScanFile, ScanOf};
use super::pieces::{Cut, pieces};
use super::prune::pruned;
use crate::error::SqlError;
use crate::parquet_files::{INT96_UNIT, arrow_schema, of_panic};
use crate::plan_node::Expr;

/// Bytes of the dictionary of a chunk of texts that is kept as one, at most, compressed.
const DICTIONARY_BYTES_MAX: i64 = 64 << 10;

/// Digits of a decimal of 64 bits.
const DIGITS_I64: u8 = 18;

/// How a column of the table comes from those of a file.
#[derive(Debug)]
enum Access {
    /// As it is, by its number in the file.
    Column(usize),
    /// Computed from one column, or from none, by an expression over a batch of this column alone.
    Computed(Option<usize>, Expr),
}

/// A file whose footer has been read.
#[derive(Debug)]
pub(super) struct TableFile {
    name: Arc<str>,
    of: ScanFile,
    metadata: ArrowReaderMetadata,
    /// For each column that the scan wants.
    access: Vec<Access>,
}

/// A file as a scan has opened it.
pub(super) struct Opened {
    pub(super) file: TableFile,
    pub(super) pieces: Vec<Piece>,
    /// Row groups of the file, and those that nothing is read of.
    pub(super) groups: u64,
    pub(super) groups_pruned: u64,
}

/// Why a scan fails, for the pipeline.
pub(super) fn failed(error: ReadError) -> ExecError {
    match error {
        ReadError::Memory(source) => {
            ExecError::Memory { operator: "a scan of Parquet files".to_owned(), source }
        }
        ReadError::Remote(source) => foreign(SqlError::from(source).into()),
        other => foreign(exec_datafusion_err!("{other}")),
    }
}

/// An error of DataFusion, for the pipeline.
pub(super) fn foreign(error: DataFusionError) -> ExecError {
    ExecError::Function(Box::new(error))
}

/// Opens a file of which these columns of the table are wanted, and rows that `predicate` may hold of. On a worker.
///
/// # Errors
/// For a file that cannot be read, or is damaged, or whose columns cannot become those of the table.
pub(super) async fn open(
    scan: &ScanOf,
    file: &ScanFile,
    wanted: &[usize],
    predicate: Option<&Expr>,
    cut: Cut,
    counts: &ReadCounts,
) -> Result<Opened, ExecError> {
    let name: Arc<str> = name_of_location(&file.object.location).into();
    let opened = open_named(Arc::clone(&name), scan, file, wanted, predicate, cut, counts);
    // What looks at indexes and statistics may take them for granted.
    match AssertUnwindSafe(opened).catch_unwind().await {
        Ok(opened) => opened,
        Err(panic) => Err(foreign(of_panic(&name, panic.as_ref()))),
    }
}

async fn open_named(
    name: Arc<str>,
    scan: &ScanOf,
    file: &ScanFile,
    wanted: &[usize],
    predicate: Option<&Expr>,
    cut: Cut,
    counts: &ReadCounts,
) -> Result<Opened, ExecError> {
    let about = |error: &dyn std::fmt::Display| {
        foreign(exec_datafusion_err!("cannot read '{name}': {error}"))
    };
    let handle = open_handle(file, &name)?;
    let metadata = match scan.footers.known(&file.object) {
        Some(metadata) => metadata,
        None => {
            let read = read_metadata(&handle, &name, file.object.size, counts).await;
            scan.footers.add(&file.object, read.map_err(failed)?).map_err(|error| about(&error))?
        }
    };
    let physical = physical_schema(scan, &metadata).map_err(|error| about(&error))?;
    let adapt = Adapt::new(scan, &physical).map_err(foreign)?;
    let predicate =
        predicate.map(|predicate| adapt.expr(predicate)).transpose().map_err(foreign)?;
    let access: DfResult<Vec<Access>> = wanted.iter().map(|column| adapt.column(*column)).collect();
    let access = access.map_err(foreign)?;
    let columns: Vec<usize> = columns_of(access.iter());
    let direct = access.iter().filter_map(|access| match access {
        Access::Column(column) => Some(*column),
        Access::Computed(..) => None,
    });
    let computed = columns_of(access.iter().filter(|of| matches!(of, Access::Computed(..))));
    let direct: Vec<usize> = direct.filter(|column| !computed.contains(column)).collect();
    let options = ArrowReaderOptions::new();
    let options = options.with_schema(Arc::new(as_read(&physical, &metadata, &direct)));
    let metadata =
        ArrowReaderMetadata::try_new(metadata, options).map_err(|error| about(&error))?;
    let bytes = file.object.size;
    let open =
        OpenFile { name: Arc::clone(&name), file: handle, bytes, metadata: metadata.clone() };
    let access_plan =
        pruned(&open, &physical, predicate.as_ref(), scan.pruning, counts).await.map_err(failed)?;
    let groups = access_plan.len() as u64;
    let left = access_plan.iter().filter(|access| access.should_scan()).count() as u64;
    let pieces = pieces(metadata.metadata(), access_plan, &columns, cut);
    let file = TableFile { name, of: file.clone(), metadata, access };
    Ok(Opened { file, pieces, groups, groups_pruned: groups - left })
}

fn open_handle(file: &ScanFile, name: &str) -> Result<Handle, ExecError> {
    let failure = |source| failed(ReadError::Io { name: name.to_owned(), source });
    match &file.place {
        Place::Local(path) => File::open_cached(path).map(Handle::Local).map_err(failure),
        Place::Remote(file) => Ok(Handle::Remote(file.clone())),
    }
}

/// The schema that the decoder gives a file's columns, for the table.
fn physical_schema(
    scan: &ScanOf,
    metadata: &ParquetMetaData,
) -> parquet::errors::Result<SchemaRef> {
    let mut physical = Arc::new(arrow_schema(metadata)?);
    if let Some(coerced) = apply_file_schema_type_coercions(&scan.table, &physical) {
        physical = Arc::new(coerced);
    }
    let descriptor = metadata.file_metadata().schema_descr();
    if let Some(coerced) = Int96Coercer::new(descriptor, &physical, &INT96_UNIT).coerce() {
        physical = Arc::new(coerced);
    }
    Ok(physical)
}

/// Expressions over the table as expressions over a file.
struct Adapt<'a> {
    scan: &'a ScanOf,
    adapter: Arc<dyn datafusion::physical_expr_adapter::PhysicalExprAdapter>,
    physical: &'a SchemaRef,
}

impl Adapt<'_> {
    fn new<'a>(scan: &'a ScanOf, physical: &'a SchemaRef) -> DfResult<Adapt<'a>> {
        let adapter = scan.adapters.create(Arc::clone(&scan.table), Arc::clone(physical))?;
        Ok(Adapt { scan, adapter, physical })
    }

    fn expr(&self, expr: &Expr) -> DfResult<Expr> {
        let rewritten = self.adapter.rewrite(Arc::clone(expr))?;
        PhysicalExprSimplifier::new(self.physical).simplify(rewritten)
    }

    fn column(&self, column: usize) -> DfResult<Access> {
        let name = self.scan.table.field(column).name();
        let expr = self.expr(&(Arc::new(Column::new(name, column)) as Expr))?;
        if let Some(column) = expr.downcast_ref::<Column>() {
            return Ok(Access::Column(column.index()));
        }
        let first = collect_columns(&expr).into_iter().next().map(|column| column.index());
        let alone = expr.transform(|expr| {
            Ok(match expr.downcast_ref::<Column>() {
                Some(column) => Transformed::yes(Arc::new(Column::new(column.name(), 0)) as Expr),
                None => Transformed::no(expr),
            })
        })?;
        Ok(Access::Computed(first, alone.data))
    }
}

/// The columns of a file that some are made of, ascending.
fn columns_of<'a>(access: impl Iterator<Item = &'a Access>) -> Vec<usize> {
    let column = |access: &Access| match access {
        Access::Column(column) => Some(*column),
        Access::Computed(column, _) => *column,
    };
    let mut columns: Vec<usize> = access.filter_map(column).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The schema with types that vectors are loaded from without a copy, in which the columns `direct` are read: decimals of 64 bits, and
/// dictionaries of few texts.
fn as_read(physical: &Schema, metadata: &ParquetMetaData, direct: &[usize]) -> Schema {
    let descriptor = metadata.file_metadata().schema_descr();
    let mut fields: Vec<FieldRef> = physical.fields().iter().cloned().collect();
    for leaf in 0..descriptor.num_columns() {
        let (root, column) = (descriptor.get_column_root_idx(leaf), descriptor.column(leaf));
        if column.path().parts().len() != 1 || column.max_rep_level() > 0 || !direct.contains(&root)
        {
            continue;
        }
        let Some(field) = fields.get_mut(root) else { continue };
        let is_number = matches!(column.physical_type(), Type::INT32 | Type::INT64);
        let data_type = match field.data_type() {
            DataType::Decimal128(digits, scale) if is_number && *digits <= DIGITS_I64 => {
                DataType::Decimal64(*digits, *scale)
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
                if metadata.row_groups().iter().all(|group| has_few_texts(group.column(leaf))) =>
            {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            _ => continue,
        };
        *field = Arc::new(Field::clone(field).with_data_type(data_type));
    }
    Schema::new_with_metadata(fields, physical.metadata().clone())
}

/// True if all values of a chunk are in a small dictionary.
fn has_few_texts(chunk: &ColumnChunkMetaData) -> bool {
    let Some(start) = chunk.dictionary_page_offset() else { return chunk.num_values() == 0 };
    let bytes = chunk.data_page_offset().saturating_sub(start);
    let is_dictionary =
        |encoding| matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
    let are_all = match (chunk.page_encoding_stats_mask(), chunk.page_encoding_stats()) {
        (Some(mask), _) => mask.encodings().all(is_dictionary),
        (None, Some(pages)) => pages.iter().all(|pages| {
            let is_data = matches!(pages.page_type, PageType::DATA_PAGE | PageType::DATA_PAGE_V2);
            !is_data || is_dictionary(pages.encoding)
        }),
        // Levels have encodings of their own among these.
        (None, None) => !chunk.encodings().any(|encoding| {
            matches!(
                encoding,
                Encoding::PLAIN
                    | Encoding::DELTA_BINARY_PACKED
                    | Encoding::DELTA_LENGTH_BYTE_ARRAY
                    | Encoding::DELTA_BYTE_ARRAY
                    | Encoding::BYTE_STREAM_SPLIT
            )
        }),
    };
    are_all && (1..=DICTIONARY_BYTES_MAX).contains(&bytes)
}

impl TableFile {
    /// The file, open for a morsel.
    ///
    /// # Errors
    /// If the system does not open it.
    pub(super) fn handle(&self) -> Result<OpenFile, ExecError> {
        let file = open_handle(&self.of, &self.name)?;
        let (name, metadata) = (Arc::clone(&self.name), self.metadata.clone());
        Ok(OpenFile { name, file, bytes: self.of.object.size, metadata })
    }

    /// The error of a row group that has not as many rows as its footer says.
    pub(super) fn wrong_rows(&self, piece: &Piece, rows: usize) -> ExecError {
        let Piece { row_group, rows: told, .. } = piece;
        foreign(exec_datafusion_err!(
            "cannot read '{}': row group {row_group} is damaged: it has {rows} rows where {told} should be",
            self.name
        ))
    }

    /// The file's metadata.
    pub(super) fn metadata(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// The columns of the file that those at these places of the scan's are made of, ascending.
    pub(super) fn columns(&self, places: &[usize]) -> Vec<usize> {
        columns_of(places.iter().map(|place| &self.access[*place]))
    }

    /// The columns at these places, of a batch that has these columns of the file. `values` are those of the dictionaries of the
    /// batch before, by place: dictionaries with the same ones share them.
    ///
    /// # Errors
    /// If a value does not fit into the table's type.
    pub(super) fn arrays(
        &self,
        places: &[usize],
        columns: &[usize],
        batch: &RecordBatch,
        values: &mut Vec<Option<ArrayRef>>,
    ) -> Result<Vec<ArrayRef>, ExecError> {
        values.resize(places.len(), None);
        let of_file = |column: usize| {
            let at = columns.iter().position(|known| *known == column);
            batch.column(at.expect("the batch has the columns that are asked for"))
        };
        let array = |(place, values): (&usize, &mut Option<ArrayRef>)| match &self.access[*place] {
            Access::Column(column) => narrow_keys(of_file(*column), values),
            Access::Computed(column, expr) => {
                let (fields, arrays) = match column {
                    Some(column) => {
                        let array = of_file(*column);
                        let field = self.metadata.schema().fields()[*column].clone();
                        (vec![field], vec![Arc::clone(array)])
                    }
                    None => (Vec::new(), Vec::new()),
                };
                let rows = batch.num_rows();
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::new(Schema::new(fields));
                let alone = RecordBatch::try_new_with_options(schema, arrays, &options)?;
                let value = expr.evaluate(&alone).and_then(|value| value.into_array(rows));
                value.map_err(|error| self.about(error))
            }
        };
        places.iter().zip(values).map(array).collect()
    }

    fn about(&self, error: DataFusionError) -> ExecError {
        foreign(exec_datafusion_err!("cannot read '{}': {}", self.name, error.find_root()))
    }
}

/// A dictionary with keys of 16 bits, as vectors have them, and the array of values that others before it have, if they are the same;
/// other arrays as they are.
fn narrow_keys(array: &ArrayRef, known: &mut Option<ArrayRef>) -> Result<ArrayRef, ExecError> {
    let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() else {
        return Ok(Arc::clone(array));
    };
    let values = dictionary.values();
    if values.is_empty() || values.len() > usize::from(u16::MAX) {
        return Ok(Arc::clone(array));
    }
    let keys = dictionary.keys().unary::<_, UInt16Type>(|key| key as u16);
    let is_same = |known: &&mut ArrayRef| known.to_data().ptr_eq(&values.to_data());
    let values = match known.as_mut().filter(is_same) {
        Some(known) => Arc::clone(known),
        None => Arc::clone(known.insert(Arc::clone(values))),
    };
    Ok(Arc::new(DictionaryArray::try_new(keys, values)?))
}
