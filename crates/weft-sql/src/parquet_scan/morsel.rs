//! A piece of a row group as it is read: all columns together, or first those that decide which rows are wanted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{concat, filter};
use datafusion::arrow::datatypes::Schema;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use parquet::arrow::arrow_reader::RowSelection;
use weft_exec::arrow::Entries;
use weft_exec::pace::Pace;
use weft_exec::pipeline::{Morsel, Tuples};
use weft_exec::source::batches::BatchTuples;
use weft_parquet::{ColumnsReader, Grant, OpenFile, Piece};
use weft_store::ColumnFilter;

use super::condition::Evaluation;
use super::file::{TableFile, failed};
use super::source::Shared;

/// Of so many rows, one at most may be left for the others to be skipped while the other columns are decoded.
const SKIPPED_SHARE: usize = 4;

/// Bytes of a value of a column that is decoded first, about.
const VALUE_BYTES: u64 = 16;

/// Of the memory limit, the part that the columns that are decoded first may have.
const FIRST_PART: u64 = 32;

/// A piece being read.
pub(super) struct PieceMorsel {
    shared: Arc<Shared>,
    number: usize,
    stage: Stage,
    /// The entries of the dictionaries of the last rows, by column.
    dictionaries: Vec<Option<Arc<Entries>>>,
    grant: Option<Grant>,
}

enum Stage {
    New,
    /// All columns that are wanted.
    All(Columns),
    /// The others, of rows of which some columns are there.
    Rest(Rest),
    Done,
}

/// Columns of a piece, by their places among those that the scan wants.
struct Columns {
    places: Vec<usize>,
    /// Those of the file that they are made of.
    columns: Vec<usize>,
    /// Without columns of the file, rows are counted.
    reader: Option<ColumnsReader>,
    rows_left: usize,
    /// The values of the dictionaries of the last rows, by place.
    values: Vec<Option<ArrayRef>>,
}

struct Rest {
    others: Columns,
    places: Vec<usize>,
    first: Vec<ArrayRef>,
    /// Which rows are wanted, if the others were not skipped.
    wanted: Option<BooleanBuffer>,
    /// Rows that have been given away, of so many.
    at: usize,
    rows: usize,
}

impl Columns {
    fn new(
        shared: &Shared,
        file: &TableFile,
        open: &OpenFile,
        piece: &Piece,
        places: Vec<usize>,
    ) -> weft_exec::Result<Columns> {
        let columns = file.columns(&places);
        let (rows, counts) = (shared.batch_rows, &shared.counts);
        let reader = match columns.is_empty() {
            true => None,
            false => {
                let reader = ColumnsReader::new(open, piece, &columns, rows, counts);
                Some(reader.map_err(failed)?)
            }
        };
        Ok(Columns { places, columns, reader, rows_left: piece.rows, values: Vec::new() })
    }

    /// The next rows: how many, and their columns.
    async fn next(
        &mut self,
        file: &TableFile,
        batch_rows: usize,
    ) -> weft_exec::Result<Option<(usize, Vec<ArrayRef>)>> {
        let batch = match &mut self.reader {
            Some(reader) => reader.next().await.map_err(failed)?,
            None => self.counted(batch_rows)?,
        };
        let Some(batch) = batch else { return Ok(None) };
        let arrays = file.arrays(&self.places, &self.columns, &batch, &mut self.values)?;
        Ok(Some((batch.num_rows(), arrays)))
    }

    /// Rows without columns.
    fn counted(&mut self, batch_rows: usize) -> weft_exec::Result<Option<RecordBatch>> {
        let rows = self.rows_left.min(batch_rows);
        self.rows_left -= rows;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        Ok((rows > 0).then_some(batch))
    }
}

impl PieceMorsel {
    /// The piece of this number.
    pub(super) fn new(shared: &Arc<Shared>, number: usize) -> PieceMorsel {
        let (shared, dictionaries) = (Arc::clone(shared), Vec::new());
        PieceMorsel { shared, number, stage: Stage::New, dictionaries, grant: None }
    }

    async fn advance(&mut self) -> weft_exec::Result<Option<BatchTuples>> {
        let shared = Arc::clone(&self.shared);
        let (number, piece) = &shared.pieces[self.number];
        let file = &shared.files[*number];
        loop {
            match &mut self.stage {
                Stage::New => {
                    self.stage = self.begin(&shared, file, piece).await?;
                }
                Stage::All(columns) => {
                    if let Some((rows, arrays)) = columns.next(file, shared.batch_rows).await? {
                        let output = in_order(&shared.output, &[(&columns.places, &arrays)]);
                        return self.tuples(output, rows, None).await.map(Some);
                    }
                    self.end();
                }
                Stage::Rest(rest) => {
                    if let Some((rows, arrays)) = rest.others.next(file, shared.batch_rows).await? {
                        let (start, all) = (rest.at, rest.rows);
                        rest.at += rows;
                        if rest.at > all {
                            return Err(file.wrong_rows(piece, rest.at));
                        }
                        let first: Vec<ArrayRef> =
                            rest.first.iter().map(|array| array.slice(start, rows)).collect();
                        let wanted = rest.wanted.as_ref().map(|bits| bits.slice(start, rows));
                        let of = [(&rest.places, &first), (&rest.others.places, &arrays)];
                        let output = in_order(&shared.output, &of);
                        return self.tuples(output, rows, wanted).await.map(Some);
                    }
                    if rest.at != rest.rows {
                        return Err(file.wrong_rows(piece, rest.at));
                    }
                    self.end();
                }
                Stage::Done => return Ok(None),
            }
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Done;
        self.grant = None;
        self.shared.tell(0);
    }

    async fn begin(
        &mut self,
        shared: &Shared,
        file: &TableFile,
        piece: &Piece,
    ) -> weft_exec::Result<Stage> {
        let first = first_places(shared, piece);
        let output = distinct(&shared.output);
        let others: Vec<usize> =
            output.iter().filter(|place| !first.contains(place)).copied().collect();
        // Where nothing is left to be decoded later, rows are filtered where they go.
        let filters = !first.is_empty() && !file.columns(&others).is_empty();
        let read = if filters { [&first[..], &others].concat() } else { output.clone() };
        let bytes = piece.bytes(file.metadata(), &file.columns(&read));
        self.grant = Some(shared.in_flight.reserve(bytes).await.map_err(failed)?);
        let open = file.handle()?;
        shared.rows.fetch_add(piece.rows as u64, Ordering::Relaxed);
        if !filters {
            return Ok(Stage::All(Columns::new(shared, file, &open, piece, output)?));
        }
        let mut filtering = Filtering::new(shared, &first);
        let mut columns = Columns::new(shared, file, &open, piece, first)?;
        let mut pace = Pace::default();
        while let Some((rows, arrays)) = columns.next(file, shared.batch_rows).await? {
            filtering.add(rows, &columns.places, arrays);
            shared.tell(0);
            pace.keep().await;
        }
        let Columns { places, .. } = columns;
        filtering.finish(shared, file, &open, piece, places, others)
    }

    async fn tuples(
        &mut self,
        arrays: Vec<ArrayRef>,
        rows: usize,
        wanted: Option<BooleanBuffer>,
    ) -> weft_exec::Result<BatchTuples> {
        // Others before these had as much, and are gone, or soon will be.
        self.shared.context.ledger.note_freed(slice_bytes(&arrays));
        self.shared.tell(rows);
        let (lanes, dictionaries) = (&self.shared.lanes, &mut self.dictionaries);
        let tuples = BatchTuples::of_arrays(arrays, rows, lanes, dictionaries).await?;
        Ok(tuples.with_selected(wanted))
    }
}

impl Morsel for PieceMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, weft_exec::Result<Option<Box<dyn Tuples>>>> {
        async {
            let tuples = self.advance().await?;
            Ok(tuples.map(|tuples| Box::new(tuples) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// All pieces, in the order of the files and of their rows.
pub(super) struct InOrder {
    shared: Arc<Shared>,
    piece: PieceMorsel,
}

impl InOrder {
    /// From the first piece on.
    pub(super) fn new(shared: &Arc<Shared>) -> InOrder {
        InOrder { shared: Arc::clone(shared), piece: PieceMorsel::new(shared, 0) }
    }
}

impl Morsel for InOrder {
    fn next(&mut self) -> LocalBoxFuture<'_, weft_exec::Result<Option<Box<dyn Tuples>>>> {
        async {
            while self.piece.number < self.shared.pieces.len() {
                if let Some(tuples) = self.piece.advance().await? {
                    return Ok(Some(Box::new(tuples) as Box<dyn Tuples>));
                }
                self.piece = PieceMorsel::new(&self.shared, self.piece.number + 1);
            }
            Ok(None)
        }
        .boxed_local()
    }
}

/// The places of the columns that are decoded first: none if no filter is worth it, or they would take too much memory.
fn first_places(shared: &Shared, piece: &Piece) -> Vec<usize> {
    let of_condition = shared.condition.iter().filter(|condition| condition.of.is_worth_it());
    let of_condition = of_condition.flat_map(|condition| condition.places.iter());
    let asked = shared.asked.iter().filter(|asked| asked.of.is_worth_it());
    let asked = asked.flat_map(|asked| asked.places.iter());
    let mut places: Vec<usize> = of_condition.chain(asked).copied().collect();
    places.sort_unstable();
    places.dedup();
    let bytes = (piece.rows as u64).saturating_mul(VALUE_BYTES * places.len() as u64);
    if bytes > shared.context.ledger.limit() / FIRST_PART {
        places.clear();
    }
    places
}

fn distinct(places: &[usize]) -> Vec<usize> {
    let mut distinct: Vec<usize> = Vec::with_capacity(places.len());
    for place in places {
        if !distinct.contains(place) {
            distinct.push(*place);
        }
    }
    distinct
}

/// The columns of `output`, each from whichever of the groups has it.
fn in_order(output: &[usize], groups: &[(&Vec<usize>, &Vec<ArrayRef>)]) -> Vec<ArrayRef> {
    let column = |place: &usize| {
        let of_group = |(places, arrays): &(&Vec<usize>, &Vec<ArrayRef>)| {
            let at = places.iter().position(|known| known == place)?;
            Some(Arc::clone(&arrays[at]))
        };
        groups.iter().find_map(of_group).expect("all columns were read")
    };
    output.iter().map(column).collect()
}

/// About what values take whose arrays may be parts of larger ones.
fn slice_bytes(arrays: &[ArrayRef]) -> u64 {
    let bytes = arrays.iter().map(|array| {
        array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    });
    bytes.sum::<usize>() as u64
}

/// The columns that are decoded first, and the rows that they leave.
struct Filtering<'a> {
    shared: &'a Shared,
    evaluation: Option<(Evaluation, &'a [usize])>,
    /// Which of the columns are given away, too.
    is_output: Vec<bool>,
    batches: Vec<Vec<ArrayRef>>,
    wanted: BooleanBufferBuilder,
}

impl<'a> Filtering<'a> {
    fn new(shared: &'a Shared, first: &[usize]) -> Filtering<'a> {
        let condition = shared.condition.as_ref().filter(|condition| condition.of.is_worth_it());
        let evaluation = condition.map(|condition| {
            (condition.of.evaluation(&shared.context), condition.places.as_slice())
        });
        let is_output = first.iter().map(|place| shared.output.contains(place)).collect();
        let (batches, wanted) = (Vec::new(), BooleanBufferBuilder::new(0));
        Filtering { shared, evaluation, is_output, batches, wanted }
    }

    /// Adds rows: their columns at these places.
    fn add(&mut self, rows: usize, places: &[usize], arrays: Vec<ArrayRef>) {
        let at = |place: &usize| places.iter().position(|known| known == place);
        let mut wanted: Option<BooleanBuffer> = None;
        let mut narrow = |bits: Option<BooleanBuffer>| {
            wanted = match (wanted.take(), bits) {
                (Some(a), Some(b)) => Some(&a & &b),
                (a, b) => a.or(b),
            };
        };
        if let Some((evaluation, of)) = &mut self.evaluation {
            let columns = of.iter().map(|place| at(place).map(|at| Arc::clone(&arrays[at])));
            let columns: Option<Vec<ArrayRef>> = columns.collect();
            narrow(columns.and_then(|columns| evaluation.wanted(&columns, rows)));
        }
        for asked in self.shared.asked.iter().filter(|asked| asked.of.is_worth_it()) {
            let column = asked.places.first().and_then(at);
            narrow(column.and_then(|at| asked.of.wanted(&arrays[at], rows)));
        }
        match wanted {
            Some(bits) => self.wanted.append_buffer(&bits),
            None => self.wanted.append_n(rows, true),
        }
        self.batches.push(arrays);
    }

    /// Goes on with the other columns of the rows that are left.
    fn finish(
        mut self,
        shared: &Shared,
        file: &TableFile,
        open: &OpenFile,
        piece: &Piece,
        places: Vec<usize>,
        others: Vec<usize>,
    ) -> weft_exec::Result<Stage> {
        let wanted = self.wanted.finish();
        let (rows, left) = (wanted.len(), wanted.count_set_bits());
        if rows != piece.rows {
            return Err(file.wrong_rows(piece, rows));
        }
        if left == 0 {
            shared.rows_skipped.fetch_add(rows as u64, Ordering::Relaxed);
            return Ok(Stage::All(Columns {
                places: Vec::new(),
                columns: Vec::new(),
                reader: None,
                rows_left: 0,
                values: Vec::new(),
            }));
        }
        let skips = left * SKIPPED_SHARE <= rows;
        let (mut first, mut of_first) = (Vec::new(), Vec::new());
        for (column, place) in places.iter().enumerate().filter(|(at, _)| self.is_output[*at]) {
            let mut parts = Vec::with_capacity(self.batches.len());
            let mut start = 0;
            for batch in &self.batches {
                let array = &batch[column];
                let bits = wanted.slice(start, array.len());
                start += array.len();
                parts.push(match skips {
                    true => filter(array, &BooleanArray::new(bits, None))?,
                    false => Arc::clone(array),
                });
            }
            let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
            first.push(concat(&parts)?);
            of_first.push(*place);
        }
        self.batches.clear();
        let mut of_others = piece.clone();
        if skips {
            shared.rows_skipped.fetch_add((rows - left) as u64, Ordering::Relaxed);
            let selection = RowSelection::from_boolean_buffer(wanted.clone());
            of_others.selection = Some(match &piece.selection {
                Some(before) => before.and_then(&selection),
                None => selection,
            });
            of_others.rows = left;
        }
        let others = Columns::new(shared, file, open, &of_others, others)?;
        let wanted = (!skips && left < rows).then_some(wanted);
        let rows = of_others.rows;
        Ok(Stage::Rest(Rest { others, places: of_first, first, wanted, at: 0, rows }))
    }
}
