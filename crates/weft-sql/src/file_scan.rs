//! Files that Weft reads by itself (crate `weft-files`), as tables and leaves of plans.
//!
//! A thread finds the pieces of the files, one after the other, and others decode them; the rows come as one stream, in the order of
//! the files, whoever is ready first. Pieces that wait for the reader are as many as there are threads.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use weft_files::{FileReader, FilesError, ReadPlan, TypesFrom};

use crate::control::{Control, units_of_files};
use crate::error::SqlError;
use crate::plan_node::plan_node;
use crate::table::ScanContext;

/// Bytes of a piece: few enough that a core's cache holds it with what it becomes.
const PIECE_BYTES_MAX: u64 = 1 << 20;
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Of the memory limit, the part that a piece may have.
const PIECE_PART: u64 = 256;

/// A table in files.
#[derive(Debug)]
pub(crate) struct FilesTable {
    reader: Arc<dyn FileReader>,
    /// Where the files are, in their order.
    paths: Arc<[PathBuf]>,
    files: Files,
}

/// What files are called, and who reads them.
#[derive(Clone, Debug)]
struct Files {
    /// In plans.
    label: Arc<str>,
    /// Among what the statement knows of files.
    key: Arc<str>,
    context: ScanContext,
}

impl FilesTable {
    /// The table of `reader`, called so in plans, and by `key` among what the statement knows of files.
    pub(crate) fn new(
        reader: Arc<dyn FileReader>,
        (label, paths): (String, Arc<[PathBuf]>),
        key: &str,
        context: ScanContext,
    ) -> FilesTable {
        context.control.files.note_read();
        let files = Files { label: label.into(), key: key.into(), context };
        FilesTable { reader, paths, files }
    }

    /// What reads the files, and where these are.
    pub(crate) fn reader(&self) -> (&Arc<dyn FileReader>, &Arc<[PathBuf]>) {
        (&self.reader, &self.paths)
    }
}

impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    // Written out as `async_trait` would, to be ready at once.
    fn scan<'a, 'b, 'c, 'd, 'f>(
        &'a self,
        _: &'b dyn Session,
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
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema().fields().len()).collect(),
        };
        let made = FilesExec::new(Arc::clone(&self.reader), self.files.clone(), projection);
        Box::pin(std::future::ready(made.map(|exec| Arc::new(exec) as Arc<dyn ExecutionPlan>)))
    }
}

/// Reads files.
#[derive(Debug)]
pub(crate) struct FilesExec {
    reader: Arc<dyn FileReader>,
    files: Files,
    projection: Vec<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FilesExec {
    fn new(
        reader: Arc<dyn FileReader>,
        files: Files,
        projection: Vec<usize>,
    ) -> DfResult<FilesExec> {
        let schema = Arc::new(reader.schema().project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(FilesExec { reader, files, projection, properties: Arc::new(properties), metrics })
    }

    /// What is read, in words.
    pub(crate) fn label(&self) -> &str {
        &self.files.label
    }
}

impl DisplayAs for FilesExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if kind == DisplayFormatType::TreeRender {
            return writeln!(f, "files={}", self.files.label);
        }
        let schema = self.reader.schema();
        let name = |column: &usize| schema.field(*column).name().as_str();
        let columns: Vec<&str> = self.projection.iter().map(name).collect();
        write!(f, "WeftFiles: {}, columns=[{}]", self.files.label, columns.join(", "))?;
        match self.reader.types_from() {
            TypesFrom::Sample => write!(f, ", types from a sample"),
            TypesFrom::Certain => Ok(()),
        }
    }
}

impl ExecutionPlan for FilesExec {
    fn name(&self) -> &str {
        "WeftFiles"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    plan_node!(leaf);

    fn reset_state(self: Arc<Self>) -> DfResult<Arc<dyn ExecutionPlan>> {
        let (reader, projection) = (Arc::clone(&self.reader), self.projection.clone());
        Ok(Arc::new(FilesExec::new(reader, self.files.clone(), projection)?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let control = &self.files.context.control;
        let limit = control.memory_limit().unwrap_or(u64::MAX);
        let piece_bytes = (limit / PIECE_PART).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize;
        let batch_rows = context.session_config().batch_size();
        let plan = ReadPlan { projection: self.projection.clone(), piece_bytes, batch_rows };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let reading = Reading { reader: Arc::clone(&self.reader), files: self.files.clone(), plan };
        let batches = batches(reading).inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &datafusion::physical_plan::statistics::StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        let mut found = Statistics::new_unknown(&self.schema());
        found.total_byte_size =
            Precision::Inexact(usize::try_from(self.reader.bytes()).unwrap_or(usize::MAX));
        Ok(Arc::new(found))
    }
}

/// Files that are about to be read.
struct Reading {
    reader: Arc<dyn FileReader>,
    files: Files,
    plan: ReadPlan,
}

/// A piece that is being decoded.
type Decoding = SpawnedTask<weft_files::Result<Vec<RecordBatch>>>;

/// The rows, in the order of the files.
fn batches(reading: Reading) -> impl futures::Stream<Item = DfResult<RecordBatch>> + Send {
    let files = reading.files.clone();
    let begun = stream::once(async move {
        let (sender, receiver) = mpsc::channel(reading.files.context.threads.max(1));
        let finder = SpawnedTask::spawn_blocking(move || find_pieces(&reading, &sender));
        (receiver, finder)
    });
    begun.flat_map(move |begun| {
        let files = files.clone();
        stream::unfold((begun, files), |((mut receiver, finder), files)| async move {
            let decoding: weft_files::Result<Decoding> = receiver.recv().await?;
            let decoded = match decoding {
                Ok(decoding) => {
                    decoding.await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))
                }
                Err(error) => Ok(Err(error)),
            };
            let batches = match decoded {
                Ok(Ok(batches)) => {
                    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
                    files.context.control.progress.add_rows(rows as u64);
                    batches.into_iter().map(Ok).collect()
                }
                Ok(Err(error)) => {
                    if matches!(error, FilesError::Misfit { .. }) {
                        files.context.control.files.note_misfit(&files.key);
                    }
                    receiver.close();
                    vec![Err(DataFusionError::from(SqlError::from(error)))]
                }
                Err(error) => vec![Err(error)],
            };
            Some((stream::iter(batches), ((receiver, finder), files)))
        })
        .flatten()
    })
}

/// Finds the pieces and has them decoded, until there are no more or nobody wants them.
fn find_pieces(reading: &Reading, sender: &mpsc::Sender<weft_files::Result<Decoding>>) {
    let control: &Control = &reading.files.context.control;
    let mut units = Units::default();
    let mut pieces = match reading.reader.open(&reading.plan) {
        Ok(pieces) => pieces,
        Err(error) => {
            note_unwanted(sender.blocking_send(Err(error)).is_ok());
            return;
        }
    };
    loop {
        let found = match pieces.next_piece() {
            Ok(None) => return,
            Ok(Some(piece)) => {
                units.add(control, piece.bytes() as u64);
                Ok(SpawnedTask::spawn_blocking(move || piece.decode()))
            }
            Err(error) => Err(error),
        };
        let is_last = found.is_err();
        let is_wanted = sender.blocking_send(found).is_ok();
        note_unwanted(is_wanted);
        if is_last || !is_wanted || control.token.is_cancelled() {
            return;
        }
    }
}

fn note_unwanted(is_wanted: bool) {
    if !is_wanted {
        log::debug!("nobody wants more rows of the files");
    }
}

/// Counts bytes that were read as units of progress.
#[derive(Default)]
struct Units {
    bytes: u64,
}

impl Units {
    fn add(&mut self, control: &Control, bytes: u64) {
        let before = units_of_files(self.bytes);
        self.bytes += bytes;
        control.progress.add_bytes_read(bytes);
        control.progress.add_done(units_of_files(self.bytes) - before);
    }
}
