//! The sink of a join's build side: tuples are materialized, then put into the chains of a directory that is as large as
//! the sketch of their hashes says (Spilly, section 4.5).
//!
//! Where tuples are partitioned, a worker takes all tuples of a partition, and the range of the directory that they lead
//! into is its own for that time: its loops are plain stores. Other tuples, and those of partitions so large that workers
//! share them, go in by compare-and-exchange.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::{MemoryError, Reservation};
use weft_rt::{prefetch_line, yield_now};

use super::directory::{Directory, Link, Tag, push, unchain};
use super::filter::Bounds;
use super::wanted::Making;
use super::{Join, Key, Nulls, Table};
use crate::error::{ExecError, Result};
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::tuple::budget::patiently;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::{Field, Materialized, Materializer, Page};

/// What errors call it.
const OPERATOR: &str = "the build side of a hash join";
/// Up to so many tuples, the worker that ends the pipeline puts them into chains itself.
const TUPLES_ALONE: usize = 16 << 10;
/// Tuples whose entries are fetched ahead.
const AHEAD: usize = 32;

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
    fn local(&self, context: &Context, _worker: usize) -> Result<Box<dyn LocalSink>> {
        let Build { join, hash, fields } = self;
        let (ledger, mode) = (&context.ledger, context.partition);
        let materializer = Materializer::new(join.layout.clone(), OPERATOR, ledger, mode, true);
        let needed = join.keys.iter().filter(|key| !join.is_preserved && key.nulls == Nulls::Never);
        Ok(Box::new(LocalBuild {
            join: join.clone(),
            materializer,
            hash: *hash,
            fields: fields.clone(),
            not_null: needed.map(|key| fields[key.field]).collect(),
        }))
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let join = &self.join;
            let tuples = Materialized::gather(join.take_parts()).unwrap_or_else(|| Materialized {
                layout: join.layout.clone(),
                pages: Vec::new(),
                spilled: Vec::new(),
                sketch: None,
                reservation: context.ledger.empty(),
            });
            let table = finish(join, tuples, context).await?;
            join.table.set(table).expect("a build side is finished once");
            Ok(())
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
            self.materializer.store(registers, self.hash, &self.fields).await?;
            Ok(Flow::More)
        })
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.join.add(self.materializer.finish());
            Ok(())
        })
    }
}

/// Pages that a worker takes at once.
#[derive(Debug)]
struct Unit {
    pages: Range<usize>,
    /// Nobody else has to do with the chains of their tuples meanwhile.
    is_alone: bool,
}

/// What workers fill.
struct Filling {
    tuples: Materialized,
    directory: Directory,
    filters: Vec<Making>,
    /// The fields of the keys whose bounds are wanted, and the keys' numbers.
    bounded: Vec<(usize, Field)>,
    /// What makes a tuple one that nothing is found by.
    nulls: Vec<(usize, u8)>,
    has_unknown: bool,
    unknown: AtomicU64,
    reservation: Reservation,
}

async fn finish(join: &Arc<Join>, tuples: Materialized, context: &Context) -> Result<Table> {
    let count = tuples.tuples();
    let distinct = match &tuples.sketch {
        Some(sketch) => (sketch.estimate() as usize).min(count),
        None => count,
    };
    let entries = Directory::entries_for(distinct);
    let bytes = Directory::bytes(entries) as u64;
    let reservation = reserve(context, bytes).await?;
    let directory = Directory::new(entries).map_err(|_| {
        let limit_bytes = context.ledger.limit();
        memory(MemoryError::TooLarge { requested_bytes: bytes, limit_bytes })
    })?;
    let field = |key: &Key| join.layout.field(key.field);
    let plain = join.keys.iter().filter(|key| key.nulls != Nulls::Equal);
    let nulls = plain.filter_map(|key| field(key).null_place()).collect();
    let filters = Making::all(&join.filters, &join.keys, &join.layout);
    let is_bounded = |key: &usize| filters.iter().any(|filter| filter.bounded().contains(key));
    let bounded = (0..join.keys.len()).filter(is_bounded);
    let bounded = bounded.map(|key| (key, *field(&join.keys[key]))).collect();
    let filling = Filling {
        tuples,
        directory,
        filters,
        bounded,
        nulls,
        has_unknown: join.has_unknown(),
        unknown: AtomicU64::new(0),
        reservation,
    };
    let (mut filling, bounds) = fill(filling, count, context).await?;
    let mut of_keys = vec![None; join.keys.len()];
    let bounded = filling.bounded.iter().zip(bounds);
    bounded.for_each(|((key, _), bounds)| of_keys[*key] = Some(bounds));
    // Filters are of use, but nobody needs them.
    for filter in &mut filling.filters {
        let memory = filter.begin(distinct, &of_keys, &context.ledger);
        memory.into_iter().for_each(|memory| filling.reservation.merge(memory));
    }
    let filling = make_filters(filling, count, context).await?;
    let Filling { tuples, directory, filters, unknown, reservation, .. } = filling;
    filters.into_iter().for_each(|filter| filter.finish(&of_keys));
    Ok(Table { directory, tuples, unknown: Link::of(unknown.into_inner()), reservation })
}

async fn reserve(context: &Context, bytes: u64) -> Result<Reservation> {
    let ledger = context.ledger.clone();
    let granted = move || async move {
        patiently(OPERATOR, &ledger, bytes, ledger.reserve_or_spill(bytes)).await
    };
    context.on_a_worker(granted).await
}

fn memory(source: MemoryError) -> ExecError {
    ExecError::Memory { operator: OPERATOR.into(), source }
}

/// Puts all tuples into chains.
async fn fill(filling: Filling, count: usize, context: &Context) -> Result<(Filling, Vec<Bounds>)> {
    if count <= TUPLES_ALONE {
        let mut bounds = filling.no_bounds();
        for stored in &filling.tuples.pages {
            filling.add::<true>(&stored.page, &mut bounds);
            yield_now().await;
        }
        return Ok((filling, bounds));
    }
    let (alone, shared): (Vec<Unit>, Vec<Unit>) =
        units(&filling.tuples, count, context.runtime.workers())
            .into_iter()
            .partition(|unit| unit.is_alone);
    let filling = Arc::new(filling);
    let mut bounds = filling.no_bounds();
    for units in [shared, alone] {
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
            filling.filter_page(page);
            yield_now().await;
        }
        return Ok(filling);
    }
    let filling = Arc::new(filling);
    let for_morsels = filling.clone();
    let work = move |_, page| {
        for_morsels.filter_page(page);
        std::future::ready(Ok(()))
    };
    context.run_morsels(filling.tuples.pages.len(), work).await?;
    Ok(Arc::into_inner(filling).expect("the workers have ended"))
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
    let bounds = (0..context.runtime.workers()).map(|_| Mutex::new(filling.no_bounds())).collect();
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
        self.bounded.iter().map(|(_, field)| Bounds::new(field.lane)).collect()
    }

    fn add_page(&self, page: usize, is_alone: bool, bounds: &Mutex<Vec<Bounds>>) {
        let page = &self.tuples.pages[page].page;
        if is_alone {
            self.add::<true>(page, &mut lock(bounds));
        } else {
            self.add::<false>(page, &mut lock(bounds));
        }
    }

    fn filter_page(&self, page: usize) {
        let page = &self.tuples.pages[page].page;
        self.filters.iter().for_each(|filter| filter.add(page, |tuple| !self.has_null(tuple)));
    }

    /// Adds the tuples of a page, `ALONE` if nobody else has to do with their chains.
    fn add<const ALONE: bool>(&self, page: &Page, bounds: &mut [Bounds]) {
        for (bounds, (_, field)) in bounds.iter_mut().zip(&self.bounded) {
            bounds.add(page, field);
        }
        let entries = self.directory.entries();
        let count = page.tuples();
        // SAFETY: the tuple is initialized.
        let hash = |tuple: *mut u8| unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() };
        for number in 0..count {
            if number + AHEAD < count {
                prefetch_line(entries.head(hash(page.tuple(number + AHEAD))));
            }
            let tuple = page.tuple(number);
            let hash = hash(tuple);
            if self.has_null(tuple) {
                self.set_aside(tuple);
                continue;
            }
            // SAFETY: each page is taken by one worker, once; `ALONE` is the caller's.
            unsafe { push::<ALONE>(entries.head(hash), tuple as u64, Tag::of(hash)) };
        }
    }

    /// True if a key has a null that is not equal to null.
    #[inline(always)]
    fn has_null(&self, tuple: *const u8) -> bool {
        // SAFETY: the tuple is initialized.
        self.nulls.iter().any(|(byte, bit)| unsafe { tuple.add(*byte).read() } & bit != 0)
    }

    #[cold]
    fn set_aside(&self, tuple: *mut u8) {
        // SAFETY: each page is taken by one worker, once.
        unsafe {
            if self.has_unknown {
                push::<false>(&self.unknown, tuple as u64, Tag::NONE);
            } else {
                unchain(tuple as u64);
            }
        }
    }
}
