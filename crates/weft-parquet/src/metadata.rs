//! What a file says of itself: its footer, its page index, its Bloom filters.

use std::ops::Range;

use bytes::Bytes;
use futures::future::try_join_all;
use parquet::DecodeResult;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use weft_remote::RemoteFile;

use crate::columns::OpenFile;
use crate::error::{ReadError, Result, caught};
use crate::fetch::{ReadCounts, fetch};
use crate::handle::{Coalescing, Handle, REMOTE};

/// Bytes of the smallest file: two marks and the length of the footer.
const FILE_BYTES_MIN: u64 = 12;

/// Bytes of a Bloom filter that is read, at most.
const BLOOM_BYTES_MAX: u64 = 16 << 20;

/// Reads the footer of a file of so many bytes, and its page index if it has one. Of a local file, on a worker.
///
/// # Errors
/// [`ReadError`] for a file that cannot be read, or is damaged.
pub async fn read_metadata(
    file: &Handle,
    name: &str,
    file_bytes: u64,
    counts: &ReadCounts,
) -> Result<ParquetMetaData> {
    let mut reader = Reading::new(name, file_bytes, file.coalescing())?;
    loop {
        let bytes = fetch(file, name, &reader.wanted, counts).await?;
        if let Some(metadata) = reader.push(bytes)? {
            return Ok(metadata);
        }
    }
}

/// The same of a file elsewhere, for any executor.
///
/// # Errors
/// [`ReadError`] for a file that cannot be read, or is damaged.
pub async fn read_remote_metadata(file: &RemoteFile) -> Result<ParquetMetaData> {
    let mut reader = Reading::new(file.name(), file.bytes(), REMOTE)?;
    loop {
        let bytes =
            try_join_all(reader.wanted.iter().map(|range| file.read(range.clone()))).await?;
        if let Some(metadata) = reader.push(bytes)? {
            return Ok(metadata);
        }
    }
}

/// What is being read of the end of a file.
struct Reading<'a> {
    name: &'a str,
    file_bytes: u64,
    decoder: ParquetMetaDataPushDecoder,
    /// The ranges that come next.
    wanted: Vec<Range<u64>>,
}

impl Reading<'_> {
    fn new(name: &str, file_bytes: u64, how: Coalescing) -> Result<Reading<'_>> {
        if file_bytes < FILE_BYTES_MIN {
            let problem = format!("it is no Parquet file, as it has only {file_bytes} bytes");
            return Err(ReadError::damaged(name, problem));
        }
        let decoder = caught(name, || ParquetMetaDataPushDecoder::try_new(file_bytes))?
            .with_page_index_policy(PageIndexPolicy::Optional);
        let tail = file_bytes.saturating_sub(how.tail_bytes)..file_bytes;
        Ok(Reading { name, file_bytes, decoder, wanted: Vec::from([tail]) })
    }

    /// Takes the bytes of the ranges; the metadata once it is whole.
    fn push(&mut self, bytes: Vec<Bytes>) -> Result<Option<ParquetMetaData>> {
        let (name, decoder) = (self.name, &mut self.decoder);
        caught(name, || decoder.push_ranges(std::mem::take(&mut self.wanted), bytes))?;
        match caught(name, || decoder.try_decode())? {
            DecodeResult::Data(metadata) => return Ok(Some(metadata)),
            DecodeResult::NeedsData(ranges) if !ranges.is_empty() => self.wanted = ranges,
            _ => return Err(ReadError::damaged(name, "its footer has no end")),
        }
        if self.wanted.iter().any(|range| range.end > self.file_bytes) {
            return Err(ReadError::damaged(name, "its footer names bytes behind its end"));
        }
        Ok(None)
    }
}

/// Reads the Bloom filters of some columns of a row group, by the numbers of leaves; `None` for those that have none, or a damaged one. On a
/// worker.
///
/// # Errors
/// [`ReadError::Io`] and [`ReadError::Remote`] if the bytes cannot be had.
pub async fn bloom_filters(
    file: &OpenFile,
    row_group: usize,
    leaves: &[usize],
    counts: &ReadCounts,
) -> Result<Vec<Option<Sbbf>>> {
    let OpenFile { name, file, bytes: file_bytes, metadata } = file;
    let range = |leaf: &usize| -> Range<u64> {
        let chunk = metadata.metadata().row_group(row_group).column(*leaf);
        let start = chunk.bloom_filter_offset().and_then(|start| u64::try_from(start).ok());
        let len = chunk.bloom_filter_length().and_then(|len| u64::try_from(len).ok());
        match (start, len) {
            (Some(start), Some(len)) if len <= BLOOM_BYTES_MAX => {
                let end = start.saturating_add(len);
                if end <= *file_bytes { start..end } else { 0..0 }
            }
            _ => 0..0,
        }
    };
    let ranges: Vec<Range<u64>> = leaves.iter().map(range).collect();
    let bytes = fetch(file, name, &ranges, counts).await?;
    let filter = |bytes: &Bytes| -> Option<Sbbf> {
        caught(name, || Sbbf::from_bytes(bytes)).ok().filter(|_| !bytes.is_empty())
    };
    Ok(bytes.iter().map(filter).collect())
}
