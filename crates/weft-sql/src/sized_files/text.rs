//! Files of CSV and JSON of a size: batches become text on several threads, and the pieces are written in order.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use async_compression::tokio::write::{BzEncoder, GzipEncoder, XzEncoder, ZstdEncoder};
use bytes::Bytes;
use datafusion::common::file_options::csv_writer::CsvWriterOptions;
use datafusion::common::file_options::json_writer::JsonWriterOptions;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::runtime::SpawnedTask;
use datafusion::datasource::file_format::csv::CsvSerializer;
use datafusion::datasource::file_format::json::JsonSerializer;
use datafusion::datasource::file_format::write::{BatchSerializer, get_writer_schema};
use datafusion::datasource::physical_plan::FileSinkConfig;
use datafusion::error::{DataFusionError, Result as DfResult};
use futures::StreamExt;
use futures::stream;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{CountedWriter, Lane, joined};

/// Rows of a piece of text before the bytes of a row are known.
const FIRST_ROWS: usize = 1024;

/// Of the size of a file, the part that a piece of text has at most: files are that much too long at most.
const PIECE_PART: u64 = 16;

/// How rows become text.
#[derive(Clone)]
pub(super) struct TextFiles {
    serializer: Arc<dyn BatchSerializer>,
    /// What each file begins with.
    header: Bytes,
    compression: CompressionTypeVariant,
}

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

impl TextFiles {
    pub(super) fn csv(config: &FileSinkConfig, options: &CsvWriterOptions) -> DfResult<TextFiles> {
        let builder = options.writer_options.clone();
        let has_header = builder.header();
        let serializer = CsvSerializer::new().with_builder(builder).with_header(has_header);
        let header = match has_header {
            true => {
                serializer.serialize(RecordBatch::new_empty(get_writer_schema(config)), true)?
            }
            false => Bytes::new(),
        };
        let compression = options.compression;
        Ok(TextFiles { serializer: Arc::new(serializer), header, compression })
    }

    pub(super) fn json(options: &JsonWriterOptions) -> TextFiles {
        let (serializer, compression) = (Arc::new(JsonSerializer::new()), options.compression);
        TextFiles { serializer, header: Bytes::new(), compression }
    }

    /// Writes the files of a lane, and gives the number of their rows.
    ///
    /// # Errors
    /// If a value has no text, or a file cannot be written.
    pub(super) async fn write(self, mut lane: Lane) -> DfResult<u64> {
        let (_, no_batches) = tokio::sync::mpsc::channel(1);
        let batches = std::mem::replace(&mut lane.batches, no_batches);
        let batches = stream::unfold(batches, |mut batches| async {
            batches.recv().await.map(|batch| (batch, batches))
        });
        let piece_rows = Arc::new(AtomicUsize::new(FIRST_ROWS));
        let piece_rows_now = Arc::clone(&piece_rows);
        let slices = batches.flat_map(move |batch| {
            let rows_max = piece_rows_now.load(Ordering::Relaxed);
            let starts = (0..batch.num_rows()).step_by(rows_max);
            let slices =
                starts.map(move |start| batch.slice(start, rows_max.min(batch.num_rows() - start)));
            stream::iter(slices)
        });
        let serializer = Arc::clone(&self.serializer);
        let pieces = slices.map(move |slice| {
            let serializer = Arc::clone(&serializer);
            SpawnedTask::spawn(async move {
                Ok::<_, DataFusionError>((slice.num_rows(), serializer.serialize(slice, false)?))
            })
        });
        let mut pieces = pin!(pieces.buffered(lane.threads()));
        let mut rows = 0;
        let mut file = Some(self.begin(&mut lane).await?);
        while let Some(piece) = pieces.next().await {
            let (piece_row_count, text) = piece.map_err(joined)??;
            let open = match file.take() {
                Some(open) => open,
                None => self.begin(&mut lane).await?,
            };
            let (mut writer, bytes) = open;
            writer.write_all(&text).await?;
            rows += piece_row_count as u64;
            let row_bytes = (text.len() as u64).div_ceil(piece_row_count.max(1) as u64).max(1);
            let rows_max = (lane.file_bytes / PIECE_PART / row_bytes).max(1);
            piece_rows.store(usize::try_from(rows_max).unwrap_or(usize::MAX), Ordering::Relaxed);
            if bytes.load(Ordering::Relaxed) >= lane.file_bytes {
                writer.shutdown().await?;
            } else {
                file = Some((writer, bytes));
            }
        }
        if let Some((mut writer, _)) = file {
            writer.shutdown().await?;
        }
        Ok(rows)
    }

    /// Begins a file, and gives it with the count of its bytes as they are written, compressed.
    async fn begin(&self, lane: &mut Lane) -> DfResult<(Writer, Arc<AtomicU64>)> {
        let counted = lane.next_file();
        let bytes = Arc::clone(&counted.bytes);
        let mut writer = compressed(counted, self.compression);
        writer.write_all(&self.header).await?;
        Ok((writer, bytes))
    }
}

fn compressed(writer: CountedWriter, compression: CompressionTypeVariant) -> Writer {
    match compression {
        CompressionTypeVariant::UNCOMPRESSED => Box::new(writer),
        CompressionTypeVariant::GZIP => Box::new(GzipEncoder::new(writer)),
        CompressionTypeVariant::BZIP2 => Box::new(BzEncoder::new(writer)),
        CompressionTypeVariant::XZ => Box::new(XzEncoder::new(writer)),
        CompressionTypeVariant::ZSTD => Box::new(ZstdEncoder::new(writer)),
    }
}
