//! Reads of files that the `parquet` crate writes.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::file::properties::WriterProperties;
use weft_rt::io::File;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

use crate::{
    ColumnsReader, Handle, InFlight, OpenFile, Piece, ReadCounts, ReadError, Result, bloom_filters,
    read_metadata,
};

const ROWS: usize = 5_000;
const GROUP_ROWS: usize = 2_000;

/// Writes a file with a number and a text in each row, and Bloom filters of the texts.
fn write(path: &Path) {
    let numbers: ArrayRef = Arc::new((0..ROWS as i64).map(Some).collect::<Int64Array>());
    let texts = (0..ROWS).map(|row| (row % 7 != 0).then(|| format!("text {row}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(50)
        .set_bloom_filter_enabled(true)
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// What `work` gives for the open file, on a worker.
fn on_a_worker<T: Send + 'static, F: Future<Output = Result<T>> + 'static>(
    path: &Path,
    work: impl FnOnce(OpenFile, Arc<ReadCounts>) -> F + Send + 'static,
) -> Result<T> {
    let runtime = Runtime::new(&RuntimeOptions { workers: 1, ..Default::default() }).unwrap();
    let path = path.to_owned();
    let read = move || async move {
        let counts = Arc::new(ReadCounts::default());
        let name: Arc<str> = path.to_string_lossy().into();
        let file = File::open_cached(&path).unwrap();
        let bytes = file.size().unwrap();
        let file = Handle::Local(file);
        let metadata = Arc::new(read_metadata(&file, &name, bytes, &counts).await?);
        let options = ArrowReaderOptions::new();
        let metadata = ArrowReaderMetadata::try_new(metadata, options).unwrap();
        work(OpenFile { name, file, bytes, metadata }, counts).await
    };
    runtime.block_on(read).unwrap()
}

async fn numbers(mut reader: ColumnsReader) -> Result<Vec<i64>> {
    let mut numbers = Vec::new();
    while let Some(batch) = reader.next().await? {
        numbers.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    Ok(numbers)
}

#[test]
fn a_piece_has_the_rows_of_its_selection_and_reads_only_their_pages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write(&path);
    let read = |selection: Option<RowSelection>| {
        on_a_worker(&path, move |file, counts| async move {
            let before = counts.bytes();
            let rows = selection.as_ref().map_or(GROUP_ROWS, RowSelection::row_count);
            let piece = Piece { row_group: 1, selection, rows };
            let reader = ColumnsReader::new(&file, &piece, &[0], 64, &counts)?;
            let numbers = numbers(reader).await?;
            Ok((numbers, counts.bytes() - before))
        })
        .unwrap()
    };
    let (all, all_bytes) = read(None);
    assert_eq!(all, (2_000..4_000).collect::<Vec<i64>>());
    let ranges = [10..20, 1_990..2_000].into_iter();
    let selection = RowSelection::from_consecutive_ranges(ranges, GROUP_ROWS);
    let (some, _) = read(Some(selection));
    assert_eq!(some, (2_010..2_020).chain(3_990..4_000).collect::<Vec<i64>>());
    let selection = RowSelection::from_consecutive_ranges(std::iter::once(10..20), GROUP_ROWS);
    let (some, some_bytes) = read(Some(selection));
    assert_eq!(some, (2_010..2_020).collect::<Vec<i64>>());
    assert!(some_bytes < all_bytes, "{some_bytes} of {all_bytes} bytes");
}

#[test]
fn bloom_filters_say_which_texts_there_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write(&path);
    let has = on_a_worker(&path, |file, counts| async move {
        let read = bloom_filters(&file, 0, &[1], &counts).await?;
        let filter = read[0].as_ref().expect("the column has a filter");
        Ok(["text 5", "text 1999", "text 3000", "none"].map(|text| filter.check(&text)))
    });
    assert_eq!(has.unwrap(), [true, true, false, false]);
}

#[test]
fn a_reader_that_is_dropped_leaves_its_requests_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write(&path);
    let rows = on_a_worker(&path, |file, counts| async move {
        let piece = Piece { row_group: 0, selection: None, rows: GROUP_ROWS };
        for batches in 0..3 {
            let mut reader = ColumnsReader::new(&file, &piece, &[0, 1], 100, &counts)?;
            {
                let mut next = std::pin::pin!(reader.next());
                // Polled once, it may have asked for bytes.
                let _ = futures::poll!(next.as_mut());
            }
            for _ in 0..batches {
                assert!(reader.next().await?.is_some());
            }
        }
        let reader = ColumnsReader::new(&file, &piece, &[0], 100, &counts)?;
        Ok(numbers(reader).await?.len())
    });
    assert_eq!(rows.unwrap(), GROUP_ROWS);
}

#[test]
fn errors_name_the_row_group_and_the_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write(&path);
    let range = on_a_worker(&path, |file, _| async move {
        Ok(file.metadata.metadata().row_group(1).column(1).byte_range())
    });
    let (start, len) = range.unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[start as usize..(start + len) as usize].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let error = on_a_worker(&path, |file, counts| async move {
        let piece = Piece { row_group: 1, selection: None, rows: GROUP_ROWS };
        let mut reader = ColumnsReader::new(&file, &piece, &[0, 1], 1_000, &counts)?;
        while reader.next().await?.is_some() {}
        Ok(())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("t.parquet': row group 1, column t: "), "{text}");
}

#[test]
fn a_scan_goes_on_without_memory_one_piece_at_a_time() {
    let runtime = Runtime::new(&RuntimeOptions { workers: 1, ..Default::default() }).unwrap();
    let read = || async {
        let ledger = Ledger::new(1 << 20);
        let in_flight = InFlight::new(&ledger, 1);
        let others = ledger.try_reserve(1 << 20).expect("all of the memory");
        let first = in_flight.reserve(100).await.unwrap();
        let mut second = Box::pin(in_flight.reserve(100));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        drop(second.await.unwrap());
        drop(others);
        let huge = in_flight.reserve(u64::MAX / 2).await.unwrap();
        assert_eq!(ledger.used(), 0);
        drop(huge);
    };
    runtime.block_on(read).unwrap();
}
