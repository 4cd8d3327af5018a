//! Files of Parquet of a size: the columns of a row group are encoded by a task each, which tells how many bytes it has. A row group
//! ends with its rows, or with the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::TableParquetOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::datasource::file_format::write::{SharedBuffer, get_writer_schema};
use datafusion::datasource::physical_plan::FileSinkConfig;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory,
    ArrowWriterOptions, compute_leaves,
};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::{CountedWriter, Lane, joined};

/// Batches on the way to the task of a column.
const BATCHES_AHEAD: usize = 2;

/// Of the size of a file, the part that it may lack. A row group would have to be small to make it more exact.
const SHORT_PART: u64 = 8;

/// How rows become Parquet.
#[derive(Clone)]
pub(super) struct ParquetFiles {
    schema: SchemaRef,
    properties: Arc<WriterProperties>,
    skips_arrow_schema: bool,
}

impl ParquetFiles {
    pub(super) fn new(
        config: &FileSinkConfig,
        options: &TableParquetOptions,
    ) -> DfResult<ParquetFiles> {
        let mut options = options.clone();
        let skips_arrow_schema = options.global.skip_arrow_metadata;
        if !skips_arrow_schema {
            options.arrow_schema(config.output_schema());
        }
        let properties = Arc::new(WriterPropertiesBuilder::try_from(&options)?.build());
        Ok(ParquetFiles { schema: get_writer_schema(config), properties, skips_arrow_schema })
    }

    /// Writes the files of a lane, and gives the number of their rows.
    ///
    /// # Errors
    /// If there is no memory for a row group, or a file cannot be written.
    pub(super) async fn write(self, mut lane: Lane) -> DfResult<u64> {
        let group_rows_max = self.properties.max_row_group_row_count().unwrap_or(usize::MAX);
        let mut rows = 0;
        let mut open = Some(ParquetFile::begin(&self, &mut lane)?);
        while let Some(batch) = lane.batches.recv().await {
            let mut start = 0;
            while start < batch.num_rows() {
                let mut file = match open.take() {
                    Some(file) => file,
                    None => ParquetFile::begin(&self, &mut lane)?,
                };
                let left = group_rows_max - file.group_rows();
                let count = left.min(batch.num_rows() - start);
                file.write(&batch.slice(start, count), &lane).await?;
                (start, rows) = (start + count, rows + count as u64);
                if file.bytes() >= lane.file_bytes {
                    file.end_group().await?;
                    // What is being encoded may take less than its columns think.
                    if file.written_bytes() >= lane.file_bytes - lane.file_bytes / SHORT_PART {
                        file.finish().await?;
                        continue;
                    }
                } else if count == left {
                    file.end_group().await?;
                }
                open = Some(file);
            }
        }
        if let Some(file) = open {
            file.finish().await?;
        }
        Ok(rows)
    }
}

/// A file that is being written.
struct ParquetFile {
    schema: SchemaRef,
    factory: ArrowRowGroupWriterFactory,
    writer: SerializedFileWriter<SharedBuffer>,
    /// Bytes of the writer that are not yet written.
    buffer: SharedBuffer,
    output: CountedWriter,
    groups: usize,
    group: Option<RowGroup>,
}

/// A row group whose columns are being encoded.
struct RowGroup {
    rows: usize,
    columns: Vec<Column>,
}

struct Column {
    sender: Sender<ArrowLeafColumn>,
    /// What it has, about, as it will be written.
    bytes: Arc<AtomicU64>,
    task: SpawnedTask<DfResult<(ArrowColumnChunk, MemoryReservation)>>,
}

impl ParquetFile {
    fn begin(files: &ParquetFiles, lane: &mut Lane) -> DfResult<ParquetFile> {
        let buffer = SharedBuffer::new(0);
        let options = ArrowWriterOptions::new()
            .with_properties(files.properties.as_ref().clone())
            .with_skip_arrow_metadata(files.skips_arrow_schema);
        let schema = Arc::clone(&files.schema);
        let writer = ArrowWriter::try_new_with_options(buffer.clone(), schema, options)?;
        let (writer, factory) = writer.into_serialized_writer()?;
        let output = lane.next_file();
        let schema = Arc::clone(&files.schema);
        Ok(ParquetFile { schema, factory, writer, buffer, output, groups: 0, group: None })
    }

    fn group_rows(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.rows)
    }

    /// What the file would have if it ended here, about.
    fn bytes(&self) -> u64 {
        let columns = self.group.iter().flat_map(|group| &group.columns);
        let encoded = columns.map(|column| column.bytes.load(Ordering::Relaxed)).sum::<u64>();
        self.written_bytes() + encoded
    }

    /// What its row groups have that have ended.
    fn written_bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Hands rows to the columns' tasks.
    async fn write(&mut self, batch: &RecordBatch, lane: &Lane) -> DfResult<()> {
        if self.group.is_none() {
            let writers = self.factory.create_column_writers(self.groups)?;
            self.groups += 1;
            let columns = writers.into_iter().map(|writer| Column::new(writer, lane));
            self.group = Some(RowGroup { rows: 0, columns: columns.collect() });
        }
        let Some(group) = &mut self.group else { return Ok(()) };
        group.rows += batch.num_rows();
        let mut columns = group.columns.iter();
        for (array, field) in batch.columns().iter().zip(self.schema.fields()) {
            for leaf in compute_leaves(field, array)? {
                let column = columns.next();
                let sent = match column {
                    Some(column) => column.sender.send(leaf).await.is_ok(),
                    None => false,
                };
                if !sent {
                    // The task has failed, and tells why.
                    return self.end_group().await;
                }
            }
        }
        Ok(())
    }

    /// Puts the row group behind the row groups that are written.
    async fn end_group(&mut self) -> DfResult<()> {
        let Some(RowGroup { columns, .. }) = self.group.take() else { return Ok(()) };
        let mut tasks = Vec::with_capacity(columns.len());
        for Column { sender, task, .. } in columns {
            drop(sender);
            tasks.push(task);
        }
        let mut group = self.writer.next_row_group()?;
        for task in tasks {
            let (chunk, memory) = task.join_unwind().await.map_err(joined)??;
            chunk.append_to_row_group(&mut group)?;
            let mut buffer = self.buffer.buffer.lock().await;
            self.output.write_all(&buffer).await?;
            buffer.clear();
            drop(memory);
        }
        group.close()?;
        Ok(())
    }

    async fn finish(mut self) -> DfResult<()> {
        self.end_group().await?;
        self.writer.finish()?;
        let buffer = self.buffer.buffer.lock().await;
        self.output.write_all(&buffer).await?;
        self.output.shutdown().await?;
        Ok(())
    }
}

impl Column {
    fn new(writer: ArrowColumnWriter, lane: &Lane) -> Column {
        let (sender, leaves) = mpsc::channel(BATCHES_AHEAD);
        let bytes = Arc::new(AtomicU64::new(0));
        // The name that the pool knows.
        let consumer = MemoryConsumer::new("ParquetSink(ArrowColumnWriter)");
        let memory = consumer.register(lane.context.memory_pool());
        let task = SpawnedTask::spawn(encode(leaves, writer, memory, Arc::clone(&bytes)));
        Column { sender, bytes, task }
    }
}

/// Encodes a column of a row group, within memory of the budget.
async fn encode(
    mut leaves: Receiver<ArrowLeafColumn>,
    mut writer: ArrowColumnWriter,
    memory: MemoryReservation,
    bytes: Arc<AtomicU64>,
) -> DfResult<(ArrowColumnChunk, MemoryReservation)> {
    while let Some(leaf) = leaves.recv().await {
        writer.write(&leaf)?;
        memory.try_resize(writer.memory_size())?;
        bytes.store(writer.get_estimated_total_bytes() as u64, Ordering::Relaxed);
    }
    let chunk = writer.close().map_err(|error: ParquetError| DataFusionError::from(error))?;
    Ok((chunk, memory))
}
