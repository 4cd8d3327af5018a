//! Some columns of some rows of a row group, batch by batch.

use std::fmt;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::ParquetMetaData;

use crate::error::{ReadError, Result, caught};
use crate::fetch::{ReadCounts, fetch};
use crate::handle::Handle;

/// Rows of a row group: all, or those of a selection over all.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The row group, by its number in the file.
    pub row_group: usize,
    /// Which of its rows.
    pub selection: Option<RowSelection>,
    /// How many rows that are.
    pub rows: usize,
}

/// A file whose metadata is known.
#[derive(Clone)]
pub struct OpenFile {
    /// The file's name, for messages.
    pub name: Arc<str>,
    /// The file, open for reads of any offset and length.
    pub file: Handle,
    /// Its size.
    pub bytes: u64,
    /// Its metadata, and the types that its columns are read as.
    pub metadata: ArrowReaderMetadata,
}

/// Reads columns of a piece. Lives on one worker.
pub struct ColumnsReader {
    file: OpenFile,
    piece: Piece,
    /// Numbers of the columns in the file's Arrow schema.
    columns: Vec<usize>,
    batch_rows: usize,
    decoder: ParquetPushDecoder,
    /// Decodes what has been fetched.
    rows: Option<ParquetRecordBatchReader>,
    counts: Arc<ReadCounts>,
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OpenFile({})", self.name)
    }
}

impl fmt::Debug for ColumnsReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ColumnsReader({}, {:?})", self.file.name, self.columns)
    }
}

impl Piece {
    /// Bytes of the file that columns of the piece take, about: by the chunks that they lie in, as a part of their rows.
    pub fn bytes(&self, metadata: &ParquetMetaData, columns: &[usize]) -> u64 {
        let group = metadata.row_group(self.row_group);
        let schema = metadata.file_metadata().schema_descr();
        let chunks = group.columns().iter().enumerate();
        let wanted =
            chunks.filter(|(leaf, _)| columns.contains(&schema.get_column_root_idx(*leaf)));
        let bytes: u64 = wanted.map(|(_, chunk)| chunk.byte_range().1).sum();
        let rows = u64::try_from(group.num_rows()).unwrap_or_default().max(1);
        // Without an index of pages a chunk is read as a whole.
        match metadata.offset_index() {
            Some(_) if self.selection.is_some() => {
                (u128::from(bytes) * self.rows as u128 / u128::from(rows)) as u64
            }
            _ => bytes,
        }
    }
}

impl ColumnsReader {
    /// Reads these columns, numbers of the file's Arrow schema in ascending order, in batches of so many rows.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if the metadata does not fit together.
    pub fn new(
        file: &OpenFile,
        piece: &Piece,
        columns: &[usize],
        batch_rows: usize,
        counts: &Arc<ReadCounts>,
    ) -> Result<ColumnsReader> {
        let build = || {
            let mask =
                ProjectionMask::roots(file.metadata.parquet_schema(), columns.iter().copied());
            let mut builder = ParquetPushDecoderBuilder::new_with_metadata(file.metadata.clone())
                .with_row_groups(vec![piece.row_group])
                .with_batch_size(batch_rows)
                .with_projection(mask);
            if let Some(selection) = &piece.selection {
                builder = builder.with_row_selection(selection.clone());
            }
            builder.build()
        };
        let decoder = caught(&file.name, build)
            .map_err(|error| error.at(&format!("row group {}", piece.row_group)))?;
        Ok(ColumnsReader {
            file: file.clone(),
            piece: piece.clone(),
            columns: columns.to_vec(),
            batch_rows,
            decoder,
            rows: None,
            counts: counts.clone(),
        })
    }

    /// The next batch; `None` after the last. On a worker.
    ///
    /// # Errors
    /// [`ReadError`] for bytes that cannot be read, or are damaged: it names the file, the row group and the column.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self.step().await {
            Err(error @ ReadError::Damaged { .. }) => Err(self.located(error).await),
            other => other,
        }
    }

    /// Has the bytes read that the next batch needs. On a worker.
    ///
    /// # Errors
    /// As [`ColumnsReader::next`].
    async fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = &mut self.rows {
                if let Some(batch) = caught(&self.file.name, || rows.next().transpose())? {
                    return Ok(Some(batch));
                }
                self.rows = None;
            }
            match caught(&self.file.name, || self.decoder.try_next_reader())? {
                DecodeResult::Data(rows) => self.rows = Some(rows),
                DecodeResult::Finished => return Ok(None),
                DecodeResult::NeedsData(ranges) => {
                    let OpenFile { name, file, bytes, .. } = &self.file;
                    if ranges.iter().any(|range| range.end > *bytes) {
                        return Err(ReadError::damaged(name, "its pages lie behind its end"));
                    }
                    let bytes = fetch(file, name, &ranges, &self.counts).await?;
                    caught(name, || self.decoder.push_ranges(ranges, bytes))?;
                }
            }
        }
    }

    /// An error with the row group and the column where it is, if it is in one column alone.
    async fn located(&self, error: ReadError) -> ReadError {
        let group = format!("row group {}", self.piece.row_group);
        for column in &self.columns {
            let Some(field) = self.file.metadata.schema().fields().get(*column) else { continue };
            let place = format!("{group}, column {}", field.name());
            let (piece, counts) = (&self.piece, &self.counts);
            let alone = ColumnsReader::new(&self.file, piece, &[*column], self.batch_rows, counts);
            let Ok(mut alone) = alone else { continue };
            loop {
                match alone.step().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(found @ ReadError::Damaged { .. }) => return found.at(&place),
                    Err(other) => return other,
                }
            }
        }
        error.at(&group)
    }
}
