//! Writes a table's page files, once: parts are generated on all cores and written in order.
//!
//! Worker `k` of `n` makes parts `k`, `k + n`, `k + 2n`, … and hands each over through a channel with
//! room for one; the calling thread takes them in turn, seals and writes them. So at most two parts
//! per worker are in memory, and no part waits for a round of others. A run that was stopped or killed
//! continues after its last whole part, and the files come out the same to the byte.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::answers::{Answers, PromoParts, RowSums};
use super::error::TpchError;
use super::layout::Table;
use super::page_file::{PageTable, TableSpec};
use super::part_pages::{PartPages, RowSource, expected_rows, part_count};
use super::stripe_writer::{StripeWriter, lock_directories};

/// How to generate.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerateOptions {
    /// Threads that make rows; the number of cores if `None`.
    pub threads: Option<NonZero<usize>>,
    /// Parts to divide the table into; chosen by its size if `None`. A run can be continued only with
    /// the number it was begun with.
    pub parts: Option<NonZero<u32>>,
}

/// How far a generation is. All that it counts is safely on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The table being written.
    pub table: Table,
    /// Rows written, those of earlier runs included.
    pub rows_done: u64,
    /// Rows there will be; about right for lineitem until all are done.
    pub rows_expected: u64,
    /// Parts written.
    pub parts_done: u32,
    /// Parts in all.
    pub parts: u32,
}

/// Generates the table that `spec` describes, unless it is there, and opens it. Reference answers are
/// computed on the way and stored beside it.
///
/// `progress` is called at the start and after each part; when it breaks, the work done so far stays,
/// and the next run continues.
///
/// # Errors
/// [`TpchError`] if the spec is impossible, another process generates there, a foreign or damaged file
/// is in the way, the disk is full, or `progress` broke ([`TpchError::Stopped`]). A table that is not
/// whole is never left under its final name.
pub fn generate(
    spec: &TableSpec,
    options: GenerateOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PageTable, TpchError> {
    spec.validate()?;
    match PageTable::open(spec) {
        Err(TpchError::Missing { .. } | TpchError::Incomplete { .. }) => {}
        done_or_error => return done_or_error,
    }
    let _locks = lock_directories(spec)?;
    let parts = match options.parts {
        Some(parts) => parts.get(),
        None => part_count(spec.table, spec.scale_factor),
    };
    let mut writer = StripeWriter::open(spec, parts)?;
    let first = writer.parts_done();
    let mut answers = RowSums::default();
    if first < parts {
        write_parts(spec, parts, options.threads, &mut writer, &mut answers, progress)?;
    }
    writer.finish()?;
    if first == 0 {
        Answers::store_sums(spec, answers)?;
    }
    PageTable::open(spec)
}

/// A part as a worker hands it over.
type MadePart = Result<(PartPages, RowSums), TpchError>;

fn write_parts(
    spec: &TableSpec,
    parts: u32,
    threads: Option<NonZero<usize>>,
    writer: &mut StripeWriter<'_>,
    answers: &mut RowSums,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), TpchError> {
    let mut report = |writer: &StripeWriter<'_>| {
        let (rows_done, parts_done) = (writer.rows(), writer.parts_done());
        let rows_expected = match expected_rows(spec.table, spec.scale_factor) {
            rows if parts_done < parts => rows.max(rows_done),
            _ => rows_done,
        };
        let table = spec.table;
        match progress(Progress { table, rows_done, rows_expected, parts_done, parts }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(TpchError::Stopped { table: table.name(), parts_done, parts })
            }
        }
    };
    report(writer)?;
    let first = writer.parts_done();
    let workers = worker_count(threads).min((parts - first) as usize);
    let maker = PartMaker::new(spec);
    std::thread::scope(|scope| {
        let made: Vec<Receiver<MadePart>> = (0..workers)
            .map(|worker| {
                let (sender, receiver) = sync_channel(1);
                let numbers = (first..parts).skip(worker).step_by(workers);
                let maker = &maker;
                scope.spawn(move || maker.run(numbers, parts, &sender));
                receiver
            })
            .collect();
        for number in 0..(parts - first) as usize {
            let part = made[number % workers].recv().expect("a worker sends all its parts");
            let (mut pages, sums) = part?;
            writer.append(&mut pages)?;
            answers.plus(sums)?;
            report(writer)?;
        }
        Ok(())
        // An error drops the receivers, and the workers stop at their next part.
    })
}

/// The number of worker threads: as asked, or one per core.
pub(super) fn worker_count(threads: Option<NonZero<usize>>) -> usize {
    threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

/// Makes the parts of one table.
struct PartMaker<'a> {
    spec: &'a TableSpec,
    source: RowSource,
    promo: PromoParts,
}

impl<'a> PartMaker<'a> {
    fn new(spec: &'a TableSpec) -> PartMaker<'a> {
        let source = match spec.table {
            Table::Part => RowSource::with_comments(spec.scale_factor),
            _ => RowSource::without_comments(spec.scale_factor),
        };
        let promo = match spec.table {
            Table::LineitemQ14 => PromoParts::of(&source),
            _ => PromoParts::default(),
        };
        PartMaker { spec, source, promo }
    }

    fn run(&self, numbers: impl Iterator<Item = u32>, parts: u32, sender: &SyncSender<MadePart>) {
        for number in numbers {
            if sender.send(self.make((number, parts))).is_err() {
                return;
            }
        }
    }

    fn make(&self, part: (u32, u32)) -> MadePart {
        let (source, class) = (&self.source, self.spec.class);
        let mut sums = RowSums::default();
        let mut outcome = Ok(());
        let pages = match self.spec.table {
            Table::LineitemQ1 => PartPages::of_q1(source, class, part, |tuple| {
                if outcome.is_ok() {
                    outcome = sums.add_q1(tuple);
                }
            }),
            Table::LineitemQ14 => PartPages::of_q14(source, class, part, |tuple| {
                sums.add_q14(tuple, &self.promo);
            }),
            Table::Part => PartPages::of_part(source, class, part),
        };
        outcome.map(|()| (pages, sums))
    }
}
