//! Relations that a program hands to a session: batches that it has in memory, and readers that give batches one after
//! the other. Statements of the session find them by their names, as they find tables.
//!
//! Batches in memory are cut into pieces of a batch's rows, which the partitions of a plan share; nothing is copied. A
//! reader may block, and run code of another language: it is read on a thread of its own, which no other statement waits for.

use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::{
    RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::future::{BoxFuture, ready};

use crate::error::{ErrorKind, Result, SqlError};
use crate::plan_node::plan_node;
use crate::types::stored_type;

/// Rows from which on batches in memory are divided among partitions.
const PARTITION_ROWS_MIN: usize = 65_536;

/// Batches of a reader that wait for the plan, at most.
const BATCHES_MAX: usize = 2;

/// Batches, one after the other. To be read on a thread that may block.
pub type BatchReader = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// What is known of a source's rows before they are read. Numbers may be estimates: joins are ordered by them, and no answer depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStatistics {
    /// Rows.
    pub rows: Option<u64>,
    /// Distinct values of each column, by its number. Columns behind the last number are not known.
    pub distinct_values: Vec<Option<u64>>,
}

impl SourceStatistics {
    /// The same for DataFusion, of the columns of these numbers.
    fn of_columns(&self, schema: &Schema, columns: impl Iterator<Item = usize>) -> Statistics {
        let number = |known: Option<u64>| match known.map(usize::try_from) {
            Some(Ok(number)) => Precision::Inexact(number),
            _ => Precision::Absent,
        };
        let mut statistics = Statistics::new_unknown(schema);
        statistics.num_rows = number(self.rows);
        for (of_column, column) in statistics.column_statistics.iter_mut().zip(columns) {
            of_column.distinct_count = number(self.distinct_values.get(column).copied().flatten());
        }
        statistics
    }
}

/// Something that can be read as record batches.
pub trait BatchSource: Send + Sync {
    /// The columns.
    fn schema(&self) -> SchemaRef;

    /// Begins to read these columns, by number. Each batch has them in this order.
    ///
    /// # Errors
    /// If it cannot be read, or not once more.
    fn open(&self, columns: &[usize]) -> Result<BatchReader>;

    /// What is known of the rows when a statement is planned: nothing, if the source does not say. To be had without reading rows.
    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}

/// A relation of a session. Clones are the same one.
#[derive(Clone)]
pub struct Relation {
    rows: Rows,
    /// The columns as they come.
    given: SchemaRef,
    /// The columns as SQL sees them: with types that tables have.
    seen: SchemaRef,
}

#[derive(Clone)]
enum Rows {
    InMemory(Arc<[RecordBatch]>),
    Reader(Arc<dyn BatchSource>),
}

impl Relation {
    /// The rows of batches, which have this schema.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] if two columns have one name.
    pub fn of_batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Relation> {
        Relation::new(schema, Rows::InMemory(batches.into()))
    }

    /// As [`Relation::of_batches`], of rows of the database's own: texts that are marked as JSON, UUIDs or enumerations are that.
    ///
    /// # Errors
    /// As for [`Relation::of_batches`].
    pub(crate) fn of_rows(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Relation> {
        let relation = Relation::of_batches(Arc::clone(&schema), batches)?;
        let fields = relation.seen.fields().iter().zip(schema.fields());
        let fields = fields
            .map(|(seen, given)| seen.as_ref().clone().with_metadata(given.metadata().clone()));
        Ok(Relation { seen: Arc::new(Schema::new(fields.collect::<Vec<_>>())), ..relation })
    }

    /// What a source gives, each time that it is opened.
    ///
    /// # Errors
    /// As for [`Relation::of_batches`].
    pub fn of_source(source: Arc<dyn BatchSource>) -> Result<Relation> {
        Relation::new(source.schema(), Rows::Reader(source))
    }

    fn new(given: SchemaRef, rows: Rows) -> Result<Relation> {
        let fields: Vec<Field> = given
            .fields()
            .iter()
            .map(|field| {
                Field::new(field.name(), seen_type(field.data_type()), field.is_nullable())
            })
            .collect();
        for (number, field) in fields.iter().enumerate() {
            if fields[..number].iter().any(|other| other.name() == field.name()) {
                let message = format!("the relation has two columns named {}", field.name());
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .with_hint("give its columns different names"));
            }
        }
        Ok(Relation { rows, given, seen: Arc::new(Schema::new(fields)) })
    }

    /// The columns as SQL sees them.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.seen)
    }

    /// The rows of batches in memory.
    fn rows(&self) -> Option<usize> {
        match &self.rows {
            Rows::InMemory(batches) => Some(batches.iter().map(RecordBatch::num_rows).sum()),
            Rows::Reader(_) => None,
        }
    }

    fn statistics(&self) -> SourceStatistics {
        match &self.rows {
            Rows::InMemory(_) => SourceStatistics {
                rows: self.rows().map(|rows| rows as u64),
                ..SourceStatistics::default()
            },
            Rows::Reader(source) => source.statistics(),
        }
    }
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match &self.rows {
            Rows::InMemory(_) => "rows in memory",
            Rows::Reader(_) => "reader",
        };
        write!(f, "Relation({how}, {})", self.seen)
    }
}

/// The type that SQL sees: one that tables have.
fn seen_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Float16 => DataType::Float32,
        DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::FixedSizeBinary(_) => DataType::BinaryView,
        DataType::Dictionary(_, values) => seen_type(values),
        DataType::RunEndEncoded(_, values) => seen_type(values.data_type()),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(seen_field).collect()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => DataType::List(seen_field(item)),
        other => stored_type(other),
    }
}

fn seen_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), seen_type(field.data_type()), field.is_nullable()))
}

/// The batch with the types that SQL sees.
fn converted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast_with_options(column, field.data_type(), &options),
        })
        .collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// A relation as DataFusion sees it.
#[derive(Debug)]
pub(crate) struct RelationTable {
    name: String,
    relation: Relation,
}

impl RelationTable {
    pub(crate) fn new(name: &str, relation: Relation) -> RelationTable {
        RelationTable { name: name.to_owned(), relation }
    }
}

impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        self.relation.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn statistics(&self) -> Option<Statistics> {
        let columns = 0..self.relation.seen.fields().len();
        Some(self.relation.statistics().of_columns(&self.relation.seen, columns))
    }

    // Written out as `async_trait` would.
    fn scan<'a, 'b, 'c, 'd, 'f>(
        &'a self,
        state: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, DfResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        'b: 'f,
        'c: 'f,
        'd: 'f,
        Self: 'f,
    {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.relation.seen.fields().len()).collect(),
        };
        let partitions = state.config().target_partitions();
        let scan = RelationExec::new(self.name.clone(), self.relation.clone(), columns, partitions);
        Box::pin(ready(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>)))
    }
}

/// Reads columns of a relation.
#[derive(Debug)]
struct RelationExec {
    name: String,
    relation: Relation,
    columns: Vec<usize>,
    /// The columns as they come.
    given: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl RelationExec {
    fn new(
        name: String,
        relation: Relation,
        columns: Vec<usize>,
        partitions_max: usize,
    ) -> DfResult<RelationExec> {
        let partitions = match relation.rows() {
            Some(rows) => (rows / PARTITION_ROWS_MIN).clamp(1, partitions_max.max(1)),
            None => 1,
        };
        let schema = Arc::new(relation.seen.project(&columns)?);
        let given = Arc::new(relation.given.project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(RelationExec { name, relation, columns, given, properties: Arc::new(properties) })
    }

    /// The pieces of batches in memory that a partition has: those whose numbers it is the remainder of.
    fn pieces(
        &self,
        batches: &Arc<[RecordBatch]>,
        partition: usize,
        batch_rows: usize,
    ) -> impl Iterator<Item = DfResult<RecordBatch>> + Send + 'static {
        let partitions = self.properties.partitioning.partition_count();
        let pieces: Vec<(usize, usize)> = batches
            .iter()
            .enumerate()
            .flat_map(|(number, batch)| {
                (0..batch.num_rows()).step_by(batch_rows).map(move |start| (number, start))
            })
            .enumerate()
            .filter(|(number, _)| number % partitions == partition)
            .map(|(_, piece)| piece)
            .collect();
        let (batches, columns, schema) = (Arc::clone(batches), self.columns.clone(), self.schema());
        pieces.into_iter().map(move |(number, start)| {
            let batch = &batches[number];
            let piece = batch.slice(start, batch_rows.min(batch.num_rows() - start));
            Ok(converted(&piece.project(&columns)?, &schema)?)
        })
    }
}

impl DisplayAs for RelationExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> =
            schema.fields().iter().map(|field| field.name().as_str()).collect();
        match kind {
            DisplayFormatType::TreeRender => writeln!(f, "relation={}", self.name),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "RelationScan: {}, columns=[{}]", self.name, columns.join(", "))
            }
        }
    }
}

impl ExecutionPlan for RelationExec {
    fn name(&self) -> &str {
        "RelationScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    plan_node!(leaf);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let batch_rows = context.session_config().batch_size().max(1);
        let schema = self.schema();
        let source = match &self.relation.rows {
            Rows::InMemory(batches) => {
                let pieces = futures::stream::iter(self.pieces(batches, partition, batch_rows));
                return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, pieces)));
            }
            Rows::Reader(source) => Arc::clone(source),
        };
        let (columns, given) = (self.columns.clone(), Arc::clone(&self.given));
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&schema), BATCHES_MAX);
        let sender = builder.tx();
        let name = self.name.clone();
        builder.spawn_blocking(move || {
            for batch in source.open(&columns).map_err(DataFusionError::from)? {
                let batch = batch.map_err(|error| DataFusionError::from(failed(&name, &error)))?;
                check(&name, &given, &batch)?;
                for start in (0..batch.num_rows()).step_by(batch_rows) {
                    let piece = batch.slice(start, batch_rows.min(batch.num_rows() - start));
                    if sender.blocking_send(Ok(converted(&piece, &schema)?)).is_err() {
                        // Nobody reads the plan any more.
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        Ok(builder.build())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &datafusion::physical_plan::statistics::StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        let columns = self.columns.iter().copied();
        let mut statistics = self.relation.statistics().of_columns(&self.schema(), columns);
        if let Some(rows) = self.relation.rows() {
            statistics.num_rows = match args.partition() {
                None => Precision::Exact(rows),
                Some(_) => {
                    Precision::Inexact(rows / self.properties.partitioning.partition_count())
                }
            };
        }
        Ok(Arc::new(statistics))
    }
}

/// A reader has failed.
fn failed(name: &str, error: &ArrowError) -> SqlError {
    let text = error.to_string();
    let text = text.strip_prefix("C Data interface error: ").unwrap_or(&text);
    SqlError::new(ErrorKind::Data, format!("cannot read the rows of {name}: {text}"))
}

/// Refuses a batch that has not the columns that its reader has promised.
fn check(name: &str, given: &SchemaRef, batch: &RecordBatch) -> Result<()> {
    let types = |schema: &Schema| -> Vec<DataType> {
        schema.fields().iter().map(|field| field.data_type().clone()).collect()
    };
    if types(given) == types(&batch.schema()) {
        return Ok(());
    }
    let message =
        format!("the reader of {name} gives batches that have not the columns of its schema");
    Err(SqlError::new(ErrorKind::Data, message))
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int64Array, StringArray};
    use arrow::datatypes::Int8Type;

    use super::*;

    #[test]
    fn types_become_those_of_tables() {
        let dictionary: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
        let batch = RecordBatch::try_from_iter([
            ("d", Arc::new(dictionary) as ArrayRef),
            ("s", Arc::new(StringArray::from(vec!["x", "y", "z"])) as ArrayRef),
            ("n", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
        ])
        .unwrap();
        let relation = Relation::of_batches(batch.schema(), vec![batch.clone()]).unwrap();
        let converted = converted(&batch, &relation.schema()).unwrap();
        let types: Vec<_> =
            converted.columns().iter().map(|column| column.data_type().clone()).collect();
        assert_eq!(types, [DataType::Utf8View, DataType::Utf8View, DataType::Int64]);
        let (from, to) = (batch.column(2).to_data(), converted.column(2).to_data());
        assert_eq!(from.buffers()[0].as_ptr(), to.buffers()[0].as_ptr());
    }

    #[test]
    fn names_of_columns_occur_once() {
        let field = Field::new("a", DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![field.clone(), field]));
        assert!(Relation::of_batches(schema, Vec::new()).is_err());
    }
}
