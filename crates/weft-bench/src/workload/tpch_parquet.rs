//! TPC-H as Parquet files, one per table, written once: what databases load in the benchmarks.
//!
//! A part of a table becomes a row group. Worker `k` of `n` makes and encodes parts `k`, `k + n`, … and
//! hands each over through a channel with room for one; the calling thread writes them in turn.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::WorkloadError;
use super::suite::{Generated, TableSize};
use super::tpch_rows::{TpchSource, TpchTable};

/// Rows of a row group.
const ROWS_PER_PART: u64 = 160_000;

/// The path of a table's file.
pub fn path_of(directory: &Path, table: &str) -> PathBuf {
    directory.join(format!("{table}.parquet"))
}

/// True if no file is missing.
pub fn is_complete(directory: &Path) -> bool {
    TpchTable::ALL.iter().all(|table| path_of(directory, table.name()).exists())
}

/// The tables at a scale factor, smallest first.
pub fn tables(scale: f64) -> Vec<TableSize> {
    let size = |table: &TpchTable| TableSize {
        name: table.name(),
        rows: table.rows(scale),
        // There are between one and seven rows per order.
        is_exact: *table != TpchTable::Lineitem,
    };
    TpchTable::ALL.iter().map(size).collect()
}

/// Writes the files that are not there yet. Each appears when it is complete and durable.
///
/// # Errors
/// [`WorkloadError`] if a file cannot be written.
pub fn generate(
    directory: &Path,
    scale: f64,
    threads: usize,
    progress: &mut dyn FnMut(Generated),
) -> Result<(), WorkloadError> {
    let fail =
        |source| WorkloadError::File { action: "create", path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(fail)?;
    if is_complete(directory) {
        return Ok(());
    }
    let source = TpchSource::new(scale);
    let rows_expected = TpchTable::ALL.iter().map(|table| table.rows(scale)).sum();
    let mut rows_before = 0;
    for table in TpchTable::ALL {
        if !path_of(directory, table.name()).exists() {
            let mut report = |rows: u64| {
                let rows_done = rows_before + rows;
                progress(Generated { table: table.name(), rows_done, rows_expected });
            };
            write_table(&source, table, scale, directory, threads, &mut report)?;
        }
        rows_before += table.rows(scale);
    }
    Ok(())
}

/// Writes one table under a name of its own, and renames it.
fn write_table(
    source: &TpchSource,
    table: TpchTable,
    scale: f64,
    directory: &Path,
    threads: usize,
    report: &mut dyn FnMut(u64),
) -> Result<(), WorkloadError> {
    let path = path_of(directory, table.name());
    let partial = directory.join(format!(".{}.{}.partial", table.name(), std::process::id()));
    let written = File::create(&partial)
        .map_err(ParquetError::from)
        .and_then(|file| write_parts(source, table, scale, &file, threads, report))
        .and_then(|()| Ok(fs::rename(&partial, &path)?));
    written.map_err(|source| {
        // The error that matters is the first one.
        fs::remove_file(&partial).ok();
        WorkloadError::Parquet { path, source }
    })
}

/// An encoded row group.
struct Part {
    rows: u64,
    chunks: Vec<ArrowColumnChunk>,
}

fn write_parts(
    source: &TpchSource,
    table: TpchTable,
    scale: f64,
    file: &File,
    threads: usize,
    report: &mut dyn FnMut(u64),
) -> Result<(), ParquetError> {
    let schema = source.part(table, 0, u32::MAX >> 1)?.schema();
    let properties =
        Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let parquet_schema = ArrowSchemaConverter::new().convert(&schema)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut writer =
        SerializedFileWriter::new(&mut out, parquet_schema.root_schema_ptr(), properties)?;
    let encoder = Encoder {
        source,
        table,
        factory: ArrowRowGroupWriterFactory::new(&writer, schema.clone()),
        schema,
        parts: part_count(table, scale),
    };
    let parts = encoder.parts;
    let workers = threads.clamp(1, parts as usize);
    std::thread::scope(|scope| {
        let made: Vec<Receiver<Result<Part, ParquetError>>> = (0..workers)
            .map(|worker| {
                let (sender, receiver) = sync_channel(1);
                let encoder = &encoder;
                let numbers = (worker as u32..parts).step_by(workers);
                scope.spawn(move || encoder.run(numbers, &sender));
                receiver
            })
            .collect();
        let mut rows = 0;
        for number in 0..parts as usize {
            let part = made[number % workers].recv().expect("a worker sends all its parts")?;
            let mut row_group = writer.next_row_group()?;
            for chunk in part.chunks {
                chunk.append_to_row_group(&mut row_group)?;
            }
            row_group.close()?;
            rows += part.rows;
            report(rows);
        }
        // An error drops the receivers, and the workers stop at their next part.
        Ok::<(), ParquetError>(())
    })?;
    writer.close()?;
    out.flush()?;
    drop(out);
    Ok(file.sync_all()?)
}

/// Parts of a table; those of regions and nations cannot be had in parts.
fn part_count(table: TpchTable, scale: f64) -> u32 {
    (table.rows(scale) / ROWS_PER_PART).clamp(1, 1 << 30) as u32
}

/// Makes and encodes the parts of one table.
struct Encoder<'a> {
    source: &'a TpchSource,
    table: TpchTable,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    parts: u32,
}

impl Encoder<'_> {
    fn run(
        &self,
        numbers: impl Iterator<Item = u32>,
        sender: &SyncSender<Result<Part, ParquetError>>,
    ) {
        for number in numbers {
            let batch = self.source.part(self.table, number, self.parts);
            let part = batch
                .map_err(ParquetError::from)
                .and_then(|batch| self.encode(number as usize, &batch));
            if sender.send(part).is_err() {
                return;
            }
        }
    }

    fn encode(&self, row_group: usize, batch: &RecordBatch) -> Result<Part, ParquetError> {
        let writers = self.factory.create_column_writers(row_group)?;
        let columns = self.schema.fields().iter().zip(batch.columns());
        let chunks = writers.into_iter().zip(columns).map(|(mut writer, (field, array))| {
            for leaf in compute_leaves(field, array)? {
                writer.write(&leaf)?;
            }
            writer.close()
        });
        Ok(Part { rows: batch.num_rows() as u64, chunks: chunks.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::answer::text_rows;

    #[test]
    fn files_hold_the_rows_and_are_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut last = None;
        generate(directory.path(), 0.001, 2, &mut |progress| last = Some(progress)).unwrap();
        assert_eq!(last.unwrap().table, "lineitem");
        let source = TpchSource::new(0.001);
        for table in TpchTable::ALL {
            let file = File::open(path_of(directory.path(), table.name())).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let reader = reader.with_batch_size(1 << 20).build().unwrap();
            let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
            let expected = source.part(table, 0, 1).unwrap();
            let found = text_rows(&batches).unwrap();
            assert_eq!(found, text_rows(&[expected]).unwrap(), "{}", table.name());
        }
        let mut calls = 0;
        generate(directory.path(), 0.001, 2, &mut |_| calls += 1).unwrap();
        assert_eq!(calls, 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), TpchTable::ALL.len());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::write(&taken, "x").unwrap();
        let error = generate(&taken, 0.001, 1, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
    }
}
