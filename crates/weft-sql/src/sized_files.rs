//! COPY TO with FILE_SIZE_BYTES: a sink in the place of DataFusion's, which goes on to the next file once one has so many bytes.
//!
//! DataFusion divides the rows among *lanes*, as it does without a size: one, one per thread, or one per directory of a partition. A lane
//! writes its files one after the other, a task of its own (`parquet.rs`, `text.rs`), and knows the bytes of the file that it writes,
//! those of rows that are still being encoded included. So only what the encoders hold makes a file differ from the size: a few batches.

mod parquet;
mod text;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use datafusion_datasource::write::demux::DemuxedStreamReceiver;
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self, Receiver};

use parquet::ParquetFiles;
use text::TextFiles;

/// The plan with files of about `file_bytes` in the place of files of any size.
///
/// # Errors
/// If the options of Parquet do not go together.
pub(crate) fn with_size(
    plan: Arc<dyn ExecutionPlan>,
    file_bytes: u64,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_down(|node| {
        let Some(exec) = node.downcast_ref::<DataSinkExec>() else {
            return Ok(Transformed::no(node));
        };
        let Some((config, format)) = format_of(exec.sink())? else {
            return Ok(Transformed::no(node));
        };
        let sink = SizedFiles { config, format, file_bytes };
        let (input, order) = (Arc::clone(exec.input()), exec.sort_order().clone());
        Ok(Transformed::yes(Arc::new(DataSinkExec::new(input, Arc::new(sink), order)) as _))
    })?;
    Ok(changed.data)
}

/// How the files of a sink of DataFusion's are written, if it is a sink whose files can be divided.
fn format_of(sink: &dyn DataSink) -> DfResult<Option<(FileSinkConfig, Format)>> {
    if let Some(sink) = sink.downcast_ref::<ParquetSink>() {
        let files = ParquetFiles::new(sink.config(), sink.parquet_options())?;
        return Ok(Some((sink.config().clone(), Format::Parquet(files))));
    }
    if let Some(sink) = sink.downcast_ref::<CsvSink>() {
        let files = TextFiles::csv(sink.config(), sink.writer_options())?;
        return Ok(Some((sink.config().clone(), Format::Text(files))));
    }
    if let Some(sink) = sink.downcast_ref::<JsonSink>() {
        let files = TextFiles::json(sink.writer_options());
        return Ok(Some((sink.config().clone(), Format::Text(files))));
    }
    Ok(None)
}

/// How rows become bytes.
#[derive(Clone)]
enum Format {
    Parquet(ParquetFiles),
    Text(TextFiles),
}

/// The sink.
struct SizedFiles {
    config: FileSinkConfig,
    format: Format,
    file_bytes: u64,
}

impl fmt::Debug for SizedFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SizedFiles({} bytes)", self.file_bytes)
    }
}

impl DisplayAs for SizedFiles {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "files of {} bytes in {}", self.file_bytes, self.config.original_url)
    }
}

#[async_trait]
impl DataSink for SizedFiles {
    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> DfResult<u64> {
        FileSink::write_all(self, data, context).await
    }
}

#[async_trait]
impl FileSink for SizedFiles {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        context: &Arc<TaskContext>,
        demux_task: SpawnedTask<DfResult<()>>,
        mut lanes: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> DfResult<u64> {
        let mut writing = JoinSet::new();
        let (mut rows, mut has_lanes, mut is_open) = (0, false, true);
        while is_open || !writing.is_empty() {
            // A lane that fails ends the statement, whether others are still to come or not.
            tokio::select! {
                lane = lanes.recv(), if is_open => match lane {
                    Some((path, batches)) => {
                        has_lanes = true;
                        self.begin(&mut writing, context, &store, path, batches);
                    }
                    None => {
                        is_open = false;
                        // Without rows there is one file, which tells the columns.
                        if !has_lanes && self.config.table_partition_cols.is_empty() {
                            let name = format!("rows.{}", self.config.file_extension);
                            let path = self.config.table_paths[0].prefix().clone().join(name);
                            let (_, batches) = mpsc::channel(1);
                            self.begin(&mut writing, context, &store, path, batches);
                        }
                    }
                },
                Some(written) = writing.join_next(), if !writing.is_empty() => {
                    rows += written.map_err(joined)??;
                }
            }
        }
        demux_task.join_unwind().await.map_err(joined)??;
        Ok(rows)
    }
}

impl SizedFiles {
    /// Starts the task of a lane.
    fn begin(
        &self,
        writing: &mut JoinSet<DfResult<u64>>,
        context: &Arc<TaskContext>,
        store: &Arc<dyn ObjectStore>,
        path: Path,
        batches: Receiver<RecordBatch>,
    ) {
        let lane = Lane {
            batches,
            path,
            files: 0,
            file_bytes: self.file_bytes,
            store: Arc::clone(store),
            context: Arc::clone(context),
        };
        match self.format.clone() {
            Format::Parquet(files) => writing.spawn(files.write(lane)),
            Format::Text(files) => writing.spawn(files.write(lane)),
        };
    }
}

/// The rows that go into files one after the other.
struct Lane {
    batches: Receiver<RecordBatch>,
    /// The name that DataFusion has for all of them as one file.
    path: Path,
    /// Files that were begun.
    files: usize,
    file_bytes: u64,
    store: Arc<dyn ObjectStore>,
    context: Arc<TaskContext>,
}

impl Lane {
    /// Begins the next file. The names of a lane's files sort in the order of the rows.
    fn next_file(&mut self) -> CountedWriter {
        let number = self.files;
        self.files += 1;
        let path = self.path.as_ref();
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
        let path = Path::from(format!("{directory}/{stem}_{number:08}.{extension}"));
        let options = &self.context.session_config().options().execution;
        let buffer_bytes = options.objectstore_writer_buffer_size;
        CountedWriter {
            inner: BufWriter::with_capacity(Arc::clone(&self.store), path, buffer_bytes),
            bytes: Arc::default(),
        }
    }

    /// Threads that may encode at once.
    fn threads(&self) -> usize {
        self.context.session_config().target_partitions().max(1)
    }
}

/// Writes a file and counts its bytes.
struct CountedWriter {
    inner: BufWriter,
    bytes: Arc<AtomicU64>,
}

impl AsyncWrite for CountedWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// The error of a task that did not end by itself.
fn joined(error: tokio::task::JoinError) -> DataFusionError {
    DataFusionError::ExecutionJoin(Box::new(error))
}
