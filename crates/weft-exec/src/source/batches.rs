//! Arrow record batches in memory.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::BooleanBuffer;
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::MorselQueue;
use weft_rt::progress::Progress;

use crate::apart;
use crate::arrow::{ArrowColumn, Entries};
use crate::error::Result;
use crate::lane::Lane;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::vector::VECTOR_ROWS_MAX;

/// Rows of a morsel.
const MORSEL_ROWS: usize = 64 << 10;

/// Record batches, cut into morsels that the workers share.
#[derive(Debug)]
pub struct Batches {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    batches: Vec<RecordBatch>,
    lanes: Arc<[Lane]>,
    /// Which rows of which batch each morsel has.
    morsels: Vec<(usize, usize, usize)>,
    queue: MorselQueue,
    progress: std::sync::OnceLock<Arc<Progress>>,
}

impl Batches {
    /// The rows of `batches`, a column for each of `lanes`; see [`ArrowColumn::new`].
    pub fn new(batches: Vec<RecordBatch>, lanes: Vec<Lane>) -> Batches {
        let mut morsels = Vec::new();
        for (number, batch) in batches.iter().enumerate() {
            for start in (0..batch.num_rows()).step_by(MORSEL_ROWS) {
                morsels.push((number, start, MORSEL_ROWS.min(batch.num_rows() - start)));
            }
        }
        let queue = MorselQueue::new(morsels.len() as u64, 1);
        let progress = std::sync::OnceLock::new();
        let lanes = lanes.into();
        Batches { shared: Arc::new(Shared { batches, lanes, morsels, queue, progress }) }
    }
}

impl Source for Batches {
    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        context.progress.add_total(self.shared.morsels.len() as u64);
        self.shared.progress.get_or_init(|| context.progress.clone());
        async { Ok(()) }.boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let number = self.shared.queue.next()?.start as usize;
        Some(Box::new(BatchMorsel { shared: self.shared.clone(), number, is_read: false }))
    }
}

struct BatchMorsel {
    shared: Arc<Shared>,
    number: usize,
    is_read: bool,
}

impl Morsel for BatchMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let Shared { batches, lanes, morsels, progress, .. } = &*self.shared;
        if std::mem::replace(&mut self.is_read, true) {
            if let Some(progress) = progress.get() {
                progress.add_done(1);
            }
            return async { Ok(None) }.boxed_local();
        }
        let (batch, start, rows) = morsels[self.number];
        let batch = batches[batch].slice(start, rows);
        if let Some(progress) = progress.get() {
            progress.add_rows(rows as u64);
        }
        async {
            Ok(Some(
                Box::new(BatchTuples::of(batch, lanes, &mut Vec::new()).await?) as Box<dyn Tuples>
            ))
        }
        .boxed_local()
    }
}

/// A record batch to be loaded vector by vector.
#[derive(Debug)]
pub struct BatchTuples {
    rows: usize,
    columns: Vec<ArrowColumn>,
    selected: Option<BooleanBuffer>,
}

impl BatchTuples {
    /// The rows of `batch`, a column for each of `lanes`.
    ///
    /// # Errors
    /// As [`ArrowColumn::new`].
    ///
    /// # Panics
    /// If there are not as many columns as lanes.
    pub fn new(batch: &RecordBatch, lanes: &[Lane]) -> Result<BatchTuples> {
        BatchTuples::following(batch, lanes, &mut Vec::new())
    }

    /// The same for a batch that may have dictionaries of the one before: their entries by column, for which it leaves its own.
    ///
    /// # Errors
    /// As [`BatchTuples::new`].
    ///
    /// # Panics
    /// As [`BatchTuples::new`].
    pub fn following(
        batch: &RecordBatch,
        lanes: &[Lane],
        dictionaries: &mut Vec<Option<Arc<Entries>>>,
    ) -> Result<BatchTuples> {
        BatchTuples::of_columns(batch.columns(), batch.num_rows(), lanes, dictionaries)
    }

    fn of_columns(
        columns: &[ArrayRef],
        rows: usize,
        lanes: &[Lane],
        dictionaries: &mut Vec<Option<Arc<Entries>>>,
    ) -> Result<BatchTuples> {
        assert_eq!(columns.len(), lanes.len(), "columns and lanes");
        dictionaries.resize_with(lanes.len(), || None);
        let columns = columns.iter().zip(lanes).zip(dictionaries);
        let column = |((array, lane), dictionary): ((_, &Lane), &mut Option<Arc<Entries>>)| {
            let column = ArrowColumn::following(array, *lane, dictionary.as_ref())?;
            *dictionary = column.entries().cloned();
            Ok(column)
        };
        let columns = columns.map(column).collect::<Result<_>>()?;
        Ok(BatchTuples { rows, columns, selected: None })
    }

    /// As [`BatchTuples::following`], [apart](crate::apart) if it takes long.
    ///
    /// # Errors
    /// As [`BatchTuples::new`].
    ///
    /// # Panics
    /// As [`BatchTuples::new`].
    pub(crate) async fn of(
        batch: RecordBatch,
        lanes: &Arc<[Lane]>,
        dictionaries: &mut Vec<Option<Arc<Entries>>>,
    ) -> Result<BatchTuples> {
        let rows = batch.num_rows();
        let (_, columns, _) = batch.into_parts();
        BatchTuples::of_arrays(columns, rows, lanes, dictionaries).await
    }

    /// As [`BatchTuples::following`] of `rows` values of each of these arrays, on a thread of its own if that takes long.
    ///
    /// # Errors
    /// As [`BatchTuples::new`].
    ///
    /// # Panics
    /// As [`BatchTuples::new`].
    pub async fn of_arrays(
        columns: Vec<ArrayRef>,
        rows: usize,
        lanes: &Arc<[Lane]>,
        dictionaries: &mut Vec<Option<Arc<Entries>>>,
    ) -> Result<BatchTuples> {
        if !columns.iter().any(ArrowColumn::takes_long) {
            return BatchTuples::of_columns(&columns, rows, lanes, dictionaries);
        }
        let (lanes, mut known) = (lanes.clone(), std::mem::take(dictionaries));
        let prepare = move || {
            let tuples = BatchTuples::of_columns(&columns, rows, &lanes, &mut known);
            (tuples, known)
        };
        let (tuples, known) = apart::run(prepare).await;
        *dictionaries = known;
        tuples
    }

    /// Only those rows whose bits are set, if bits are given.
    pub fn with_selected(self, selected: Option<BooleanBuffer>) -> BatchTuples {
        BatchTuples { selected, ..self }
    }
}

impl Tuples for BatchTuples {
    fn rows(&self) -> usize {
        self.rows
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        debug_assert_eq!(inputs.len(), self.columns.len());
        for (column, register) in self.columns.iter().zip(inputs) {
            column.load(start, rows, registers.vector_mut(*register))?;
        }
        if let Some(selected) = &self.selected {
            let mut words = [0; VECTOR_ROWS_MAX / 64];
            let selected = selected.slice(start, rows);
            words
                .iter_mut()
                .zip(selected.bit_chunks().iter_padded())
                .for_each(|(word, bits)| *word = bits);
            registers.selection.retain_bits(&words);
        }
        Ok(())
    }
}
