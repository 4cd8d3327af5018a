//! The sink of a join's build side: tuples are materialized, then put into the chains of a directory that is as large as
//! the sketch of their hashes says (Spilly, section 4.5).
//!
//! Where tuples are partitioned, a worker takes all tuples of a partition, and the range of the directory that they lead
//! into is its own for that time: its loops are plain stores. Other tuples, and those of partitions so large that workers
//! share them, go in by compare-and-exchange.
//!
//! When memory is short, partitions of tuples go to disk (`tuple/pressure`). What has been spilled of once is on disk as a
//! whole when the build is finished (`expel`), and no filter is made then.
//!
//! Tuples of a grace join go into no chains here, but into those of their partitions when these are joined (`grace`).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::{MemoryError, Reservation};
use weft_rt::yield_now;

use super::chains::Chains;
use super::directory::Directory;
use super::expel::{Promised, Remaining, expel};
use super::filter::Bounds;
use super::grace::{self, Partitioned};
use super::spilled::Spilled;
use super::wanted::{Beside, Making};
use super::words::Words;
use super::{BUILD, Join, Key, Nulls, Table, Whole};
use crate::error::{ExecError, Result};
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::spill::Settled;
use crate::spill::any_page::AnyPage;
use crate::tuple::budget::patiently;
use crate::tuple::{Field, Materialized, Materializer, Page};

/// Up to so many tuples, the worker that ends the pipeline puts them into chains itself.
const TUPLES_ALONE: usize = 16 << 10;
/// Bytes of a directory for each tuple, about.
const DIRECTORY_BYTES: usize = 16;

/// Materializes the build side of a join.
#[derive(Debug)]
pub struct Build {
    join: Arc<Join>,
    hash: Register,
    fields: Vec<Register>,
}

impl Build {
    /// Stores `fields` in the order of the join's layout, under the hash of the keys.
    pub fn new(join: Arc<Join>, hash: Register, fields: Vec<Register>) -> Build {
        assert_eq!(fields.len(), join.layout.fields().len(), "a register for each field");
        Build { join, hash, fields }
    }
}

impl Sink for Build {
    fn reads(&self) -> Option<Vec<Register>> {
        Some(self.fields.iter().copied().chain([self.hash]).collect())
    }

    fn local(&self, context: &Context, _worker: usize) -> Result<Box<dyn LocalSink>> {
        let Build { join, hash, fields } = self;
        let (ledger, mode) = (&context.ledger, context.partition);
        let mut materializer = Materializer::new(join.layout.clone(), BUILD, ledger, mode, true);
        if let Some(spills) = join.spills(context) {
            materializer = materializer.spilling(spills).expecting(DIRECTORY_BYTES);
        }
        let partition_bits = join.partition_bits(context);
        materializer = match materializer.partitions() {
            1 => materializer.partitioned_later(partition_bits),
            _ => materializer.partitioned(partition_bits),
        };
        let unknown = join.keys.iter().filter(|key| key.nulls == Nulls::Unknown);
        let needed = join.keys.iter().filter(|key| !join.is_preserved && key.nulls == Nulls::Never);
        Ok(Box::new(LocalBuild {
            join: join.clone(),
            materializer,
            hash: *hash,
            fields: fields.clone(),
            not_null: needed.map(|key| fields[key.field]).collect(),
            unknown: unknown.map(|key| fields[key.field]).collect(),
        }))
    }

    fn keeps_tuples(&self) -> bool {
        true
    }

    fn facts(&self) -> Facts {
        self.join.facts()
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let join = &self.join;
            let tuples = Materialized::gather(join.take_parts()).await;
            let tuples = tuples.unwrap_or_else(|| Materialized {
                layout: join.layout.clone(),
                pages: Vec::new(),
                spilled: Vec::new(),
                sketch: None,
                reservation: context.ledger.empty(),
            });
            finish(join, tuples, context).await
        })
    }
}

struct LocalBuild {
    join: Arc<Join>,
    materializer: Materializer,
    hash: Register,
    fields: Vec<Register>,
    /// Tuples with a null here match nothing, and nobody wants them.
    not_null: Vec<Register>,
    /// A null here makes it unknown whether a tuple matches.
    unknown: Vec<Register>,
}

impl LocalSink for LocalBuild {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        Box::pin(async move {
            for register in &self.not_null {
                if registers.vector(*register).validity.has_nulls() {
                    let vector = registers.take(*register);
                    registers.selection.retain(|row| vector.validity.is_valid(row));
                    registers.put(*register, vector);
                }
            }
            for register in &self.unknown {
                let validity = &registers.vector(*register).validity;
                if validity.has_nulls() {
                    let mut has_null = false;
                    registers.selected().for_each(|row| has_null |= !validity.is_valid(row));
                    self.join.has_null.fetch_or(has_null, Ordering::Relaxed);
                }
            }
            self.materializer.store(registers, self.hash, &self.fields).await?;
            Ok(Flow::More)
        })
    }

    fn end(mut self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.materializer.settle().await?;
            self.join.add(self.materializer.finish());
            Ok(())
        })
    }
}

/// Pages that a worker takes at once.
#[derive(Clone, Debug)]
struct Unit {
    pages: Range<usize>,
    /// Nobody else has to do with the chains of their tuples meanwhile.
    is_alone: bool,
}

/// What workers fill.
struct Filling {
    tuples: Materialized,
    chains: Chains,
    /// Tuples are put into them, and not into those of their partitions later.
    is_chained: bool,
    filters: Vec<Making>,
    /// The fields of the keys whose bounds are wanted, and the keys' numbers.
    bounded: Vec<(usize, Field)>,
    /// No range of the directory is one worker's.
    is_shared: bool,
    /// Of the directory and filters.
    reservation: Reservation,
}

async fn finish(join: &Arc<Join>, tuples: Materialized, context: &Context) -> Result<()> {
    let partition_bits = join.partition_bits(context);
    let whole =
        Whole { is_empty: tuples.tuples() == 0, has_null: join.has_null.load(Ordering::Relaxed) };
    let remaining = match join.spills(context) {
        Some(spills) => {
            let is_grace = grace::is_wanted(join, context);
            expel(spills, tuples, partition_bits, is_grace, context).await?
        }
        None => {
            let entries = Directory::entries_for(distinct(&tuples));
            let memory = reserve(context, Directory::bytes(entries) as u64).await?;
            let promised = Promised::default();
            Remaining { tuples, spilled: Vec::new(), promised, entries, partitions: None, memory }
        }
    };
    let Remaining { mut tuples, spilled, promised, entries, partitions, memory } = remaining;
    let skipped_bits = if spilled.is_empty() { 0 } else { partition_bits };
    let directory = Directory::new(entries, skipped_bits).map_err(|_| {
        let requested_bytes = Directory::bytes(entries) as u64;
        memory_error(requested_bytes, context)
    })?;
    let field = |key: &Key| join.layout.field(key.field);
    let mut filters = Vec::new();
    if spilled.is_empty() {
        filters = Making::all(&join.filters, &join.keys, &join.layout);
    }
    let is_bounded = |key: &usize| filters.iter().any(|filter| filter.bounded().contains(key));
    let bounded = (0..join.keys.len()).filter(is_bounded);
    let bounded = bounded.map(|key| (key, *field(&join.keys[key]))).collect();
    let (count, distinct) = (tuples.tuples(), distinct(&tuples));
    tuples.spilled.clear();
    let chains = Chains::new(join, directory);
    let (is_shared, is_chained) = (skipped_bits > 0, partitions.is_none());
    let filling =
        Filling { tuples, chains, is_chained, filters, bounded, is_shared, reservation: memory };
    let (mut filling, bounds) = fill(filling, count, context).await?;
    let mut of_keys = vec![None; join.keys.len()];
    let bounded = filling.bounded.iter().zip(bounds);
    bounded.for_each(|((key, _), bounds)| of_keys[*key] = Some(bounds));
    // Filters are of use, but nobody needs them.
    let workers = if count <= TUPLES_ALONE { 1 } else { context.workers };
    for filter in &mut filling.filters {
        filter.begin(distinct, workers, &of_keys, &context.ledger);
    }
    let filling = make_filters(filling, count, context).await?;
    let Filling { mut tuples, chains, filters, mut reservation, .. } = filling;
    let filter_bytes: u64 = filters.iter().map(Making::bytes).sum();
    filters.into_iter().for_each(|filter| filter.finish(&of_keys));
    let spills = join.spills(context);
    let is_hybrid = !spilled.is_empty() || partitions.is_some();
    if let Some(spills) = spills.as_ref().filter(|_| is_hybrid) {
        let keeps_marks = join.keeps_marks();
        let partitions = (partition_bits, spilled);
        let spilled =
            Spilled::new(spills.clone(), partitions, promised, keeps_marks, context).await?;
        assert!(join.spilled.set(Arc::new(spilled)).is_ok(), "a build side is finished once");
    }
    if let Some(entries) = partitions {
        let pages = std::mem::take(&mut tuples.pages);
        let partitioned = Partitioned::new(pages, entries, context.ledger.clone());
        assert!(join.partitioned.set(partitioned).is_ok(), "a build side is finished once");
    }
    reservation.merge(tuples.reservation);
    let settled_bytes = reservation.bytes() + filter_bytes;
    let settled = spills.map(|spills| Settled::new(&spills.spilling, settled_bytes));
    let pages = tuples.pages.into_iter().map(|stored| AnyPage::Stored(stored.page)).collect();
    let (directory, unknown) = chains.finish();
    let table = Table { directory, pages, unknown, whole, reservation, _settled: settled };
    assert!(join.table.set(table).is_ok(), "a build side is finished once");
    join.tasks.get_or_init(|| context.tasks.clone());
    Ok(())
}

/// About how many different hashes tuples have.
pub(super) fn distinct(tuples: &Materialized) -> usize {
    let count = tuples.tuples();
    tuples.sketch.as_ref().map_or(count, |sketch| (sketch.estimate() as usize).min(count))
}

async fn reserve(context: &Context, bytes: u64) -> Result<Reservation> {
    let ledger = context.ledger.clone();
    let granted = move || async move {
        patiently(BUILD, &ledger, bytes, ledger.reserve_or_spill(bytes)).await
    };
    context.on_a_worker(granted).await
}

fn memory_error(requested_bytes: u64, context: &Context) -> ExecError {
    let source = MemoryError::TooLarge { requested_bytes, limit_bytes: context.ledger.limit() };
    ExecError::Memory { operator: BUILD.into(), source }
}

/// Puts all tuples into chains, if they are to be there, and finds bounds of their keys.
async fn fill(filling: Filling, count: usize, context: &Context) -> Result<(Filling, Vec<Bounds>)> {
    if !filling.is_chained && filling.bounded.is_empty() {
        return Ok((filling, Vec::new()));
    }
    if count <= TUPLES_ALONE {
        let mut bounds = filling.no_bounds();
        for stored in &filling.tuples.pages {
            filling.add::<true>(&stored.page, &mut bounds);
            yield_now().await;
        }
        return Ok((filling, bounds));
    }
    let divided = filling.divided(count, context.workers);
    let filling = Arc::new(filling);
    touch(&filling, context).await?;
    let mut bounds = filling.no_bounds();
    for units in divided {
        for part in run(&filling, units, context).await? {
            bounds.iter_mut().zip(part).for_each(|(bounds, other)| bounds.join(other));
        }
    }
    let filling = Arc::into_inner(filling).expect("the workers have ended");
    Ok((filling, bounds))
}

/// Adds all tuples to the filters, whose bounds are known.
async fn make_filters(filling: Filling, count: usize, context: &Context) -> Result<Filling> {
    if !filling.filters.iter().any(Making::is_of_rows) {
        return Ok(filling);
    }
    if count <= TUPLES_ALONE {
        for page in 0..filling.tuples.pages.len() {
            filling.filter_page(page, 0, Beside::Nobody);
            yield_now().await;
        }
        return Ok(filling);
    }
    let divided = filling.divided(count, context.workers);
    let filling = Arc::new(filling);
    touch(&filling, context).await?;
    for units in divided {
        let (filling, count, units) = (filling.clone(), units.len(), Arc::new(units));
        let work = move |worker, unit: usize| {
            let (filling, units) = (filling.clone(), units.clone());
            async move {
                let Unit { pages, is_alone } = units[unit].clone();
                let beside = if is_alone { Beside::OtherPartitions } else { Beside::Anybody };
                for page in pages {
                    filling.filter_page(page, worker, beside);
                    yield_now().await;
                }
                Ok(())
            }
        };
        context.run_morsels(count, work).await?;
    }
    for number in 0..filling.filters.len() {
        let (steps, filling) = (filling.filters[number].steps(), filling.clone());
        if steps == 0 {
            continue;
        }
        let work = move |_, step| {
            filling.filters[number].join(step);
            async { Ok(()) }
        };
        context.run_morsels(steps, work).await?;
    }
    Ok(Arc::into_inner(filling).expect("the workers have ended"))
}

/// Has the memory come that tuples are going to lead to here and there.
async fn touch(filling: &Arc<Filling>, context: &Context) -> Result<()> {
    let pages: usize = filling.words().map(Words::huge_pages).sum();
    if pages <= 1 {
        return Ok(());
    }
    let filling = filling.clone();
    let work = move |_, page| {
        filling.touch(page);
        async { Ok(()) }
    };
    context.run_morsels(pages, work).await
}

/// Divides the pages: a partition each, if that is not so much that workers would wait for one.
fn units(tuples: &Materialized, count: usize, workers: usize) -> Vec<Unit> {
    let tuples_max = (count / (4 * workers)).max(TUPLES_ALONE);
    let mut units = Vec::new();
    let mut first = 0;
    for pages in tuples.pages.chunk_by(|a, b| a.partition == b.partition) {
        let range = first..first + pages.len();
        first = range.end;
        let tuples: usize = pages.iter().map(|stored| stored.page.tuples()).sum();
        if workers == 1 || pages[0].partition.is_some() && tuples <= tuples_max {
            units.push(Unit { pages: range, is_alone: true });
        } else {
            units.extend(range.map(|page| Unit { pages: page..page + 1, is_alone: false }));
        }
    }
    units
}

/// Adds the tuples of all units; gives what each worker has found the least and greatest.
async fn run(
    filling: &Arc<Filling>,
    units: Vec<Unit>,
    context: &Context,
) -> Result<Vec<Vec<Bounds>>> {
    let bounds = (0..context.workers).map(|_| Mutex::new(filling.no_bounds())).collect();
    let bounds: Arc<Vec<Mutex<Vec<Bounds>>>> = Arc::new(bounds);
    let (for_morsels, filling, count) = (bounds.clone(), filling.clone(), units.len());
    let units = Arc::new(units);
    let work = move |worker: usize, unit: usize| {
        let (filling, units, bounds) = (filling.clone(), units.clone(), for_morsels.clone());
        async move {
            for page in units[unit].pages.clone() {
                filling.add_page(page, units[unit].is_alone, &bounds[worker]);
                yield_now().await;
            }
            Ok(())
        }
    };
    context.run_morsels(count, work).await?;
    let take = |bounds: &Mutex<Vec<Bounds>>| std::mem::take(&mut *lock(bounds));
    Ok(bounds.iter().map(take).collect())
}

fn lock(bounds: &Mutex<Vec<Bounds>>) -> MutexGuard<'_, Vec<Bounds>> {
    bounds.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Filling {
    /// For each key whose bounds are wanted.
    fn no_bounds(&self) -> Vec<Bounds> {
        self.bounded.iter().map(|(_, field)| Bounds::new(field.register_lane)).collect()
    }

    /// Memory that is set at random places: that of the directory, and of the filters that have begun.
    fn words(&self) -> impl Iterator<Item = &Words> {
        let directory = self.is_chained.then(|| self.chains.words());
        directory.into_iter().chain(self.filters.iter().flat_map(Making::words))
    }

    /// Has one of its huge pages come.
    fn touch(&self, mut page: usize) {
        for words in self.words() {
            match page.checked_sub(words.huge_pages()) {
                Some(of_others) => page = of_others,
                None => return words.touch(page),
            }
        }
    }

    fn add_page(&self, page: usize, is_alone: bool, bounds: &Mutex<Vec<Bounds>>) {
        let page = &self.tuples.pages[page].page;
        if is_alone {
            self.add::<true>(page, &mut lock(bounds));
        } else {
            self.add::<false>(page, &mut lock(bounds));
        }
    }

    fn filter_page(&self, page: usize, worker: usize, beside: Beside) {
        let page = &self.tuples.pages[page].page;
        // SAFETY: tuples of a page are complete.
        let counts = |tuple| unsafe { !self.chains.has_null(tuple) };
        self.filters.iter().for_each(|filter| filter.add(page, worker, beside, counts));
    }

    /// The pages in two parts that are done one after the other, as [`units`]: those that others have to do with, and those of one
    /// worker.
    fn divided(&self, count: usize, workers: usize) -> [Vec<Unit>; 2] {
        let units = units(&self.tuples, count, workers).into_iter();
        let units = units.map(|unit| Unit { is_alone: unit.is_alone && !self.is_shared, ..unit });
        let (alone, shared) = units.partition(|unit| unit.is_alone);
        [shared, alone]
    }

    /// Adds the tuples of a page, `ALONE` if nobody else has to do with their chains.
    fn add<const ALONE: bool>(&self, page: &Page, bounds: &mut [Bounds]) {
        for (bounds, (_, field)) in bounds.iter_mut().zip(&self.bounded) {
            bounds.add(page, field);
        }
        if !self.is_chained {
            return;
        }
        // SAFETY: each page is taken by one worker, once; `ALONE` is the caller's.
        unsafe { self.chains.add::<ALONE>(page.tuples(), |number| page.tuple(number)) };
    }
}
