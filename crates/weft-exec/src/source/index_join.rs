//! The index-nested-loop join, asynchronous as Umbra's (section 5): outer tuples that another pipeline has stored are looked up
//! in an index of the inner table, whose rows are fetched by their ids.
//!
//! A morsel is some outer tuples, 128 unless another number is asked for, and a coroutine: it encodes their keys, looks them up
//! beside each other, fetches the rows with all reads in flight, and puts the join's condition to the pairs. As many
//! of a worker's coroutines run at once as it may have reads in flight, and hand what they find to the pipeline's
//! program. What a tuple matches comes in rounds of bounded size. With the blocking driver the same code is the
//! synchronous join.
//!
//! Where code is generated (`compile.rs`), a coroutine's keys are made and looked up by a generated coroutine.
//!
//! Tuples that come out have the address of the outer tuple as their first column, from which the program loads what it
//! needs of it, and then, for pairs, the columns of the inner row, or for marks whether there is a match.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, MutableBuffer};
use arrow_schema::{DataType, Schema};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::Holder;
use weft_store::{KeyColumn, KeyLookup, KeyLookups, KeyMatches, Unknowns};

use super::batches::BatchTuples;
use crate::arrow::ColumnBuilder;
use crate::compile::{KeyField, ProbeShape, ProbeTier};
use crate::error::{ExecError, Result};
use crate::interpret::{Advance, Interpreter};
use crate::lane::Lane;
use crate::pace::Pace;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::profile::{Fact, Facts};
use crate::program::{Program, Register, Step};
use crate::query::Context;
use crate::selection::Selected;
use crate::sink::Stored;
use crate::spill::frozen::Frozen;
use crate::spill::reader::Reader;
use crate::tuple::Field;
use crate::vector::VECTOR_ROWS_MAX;

/// Outer tuples of a coroutine, unless another number is asked for: as few as make its start cheap beside them (Umbra, section 5).
pub const OUTER_TUPLES: usize = 128;

/// Memory that is about what a coroutine has of the inner table at once, and the part of the budget that a worker's may have.
const COROUTINE_BYTES: u64 = 256 << 10;
const BUDGET_SHARE_DIVISOR: u64 = 16;

/// Coroutines of a worker that go through tuples on disk: each has pages of them in memory.
const ON_DISK_DEPTH: usize = 2;
/// Pages on disk that are a morsel.
const MORSEL_PAGES: usize = 16;

/// What becomes of the outer tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexJoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and with nulls for an inner row the tuples that have no match.
    Left,
    /// Tuples that have a match.
    Semi,
    /// Tuples that have none.
    Anti,
    /// Tuples that have none, as NOT IN means it: none if there is a null among the keys of inner rows, and none with a null of their own
    /// unless there are no inner rows.
    NotIn,
    /// All tuples, and whether they have a match.
    Mark,
}

impl IndexJoinKind {
    fn has_pairs(self) -> bool {
        matches!(self, IndexJoinKind::Inner | IndexJoinKind::Left)
    }
}

/// How keys are made of outer tuples.
#[derive(Clone, Debug)]
pub struct OuterKeys {
    /// Its one input is the tuples' addresses.
    pub program: Arc<Program>,
    /// The registers of the keys' columns, and the types that the index has them in.
    pub columns: Vec<(Register, DataType)>,
}

impl OuterKeys {
    /// The field of tuples that a register is loaded from, if nothing else makes it.
    fn field(&self, register: Register) -> Option<Field> {
        self.program.steps.iter().find_map(|step| match step {
            Step::Load { layout, field, out, .. } if *out == register => {
                Some(layout.fields()[*field])
            }
            _ => None,
        })
    }
}

/// Looks up outer tuples in an index.
#[derive(Debug)]
pub struct IndexJoin {
    shared: Arc<Shared>,
    plan: OnceLock<Plan>,
}

#[derive(Debug)]
struct Shared {
    outer: Arc<OnceLock<Stored>>,
    keys: OuterKeys,
    kind: IndexJoinKind,
    lookup: Arc<KeyLookup>,
    /// Types and lanes of the columns that are fetched.
    inner: Vec<(DataType, Lane)>,
    /// Puts the join's condition to pairs: its inputs are the columns of a pair.
    residual: Option<Arc<Program>>,
    /// Outer tuples of a coroutine, at most.
    tuples_max: usize,
    opened: OnceLock<Opened>,
    /// Whether keys are looked up by generated code, once the source is open.
    tier: OnceLock<Option<Arc<ProbeTier>>>,
    /// What NOT IN has to know of the inner rows, once a coroutine has asked.
    unknowns: OnceLock<Unknowns>,
}

/// What the query gives.
struct Opened {
    context: Context,
    /// Interpreters that are not in use.
    for_keys: Mutex<Vec<Interpreter>>,
    for_residual: Mutex<Vec<Interpreter>>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opened")
    }
}

/// The morsels.
#[derive(Debug)]
struct Plan {
    /// For each page in memory, how many tuples it and those before it have.
    ends: Vec<usize>,
    next: AtomicUsize,
    on_disk: usize,
    next_on_disk: AtomicUsize,
}

impl IndexJoin {
    /// Joins the tuples that are in `outer` when the source is opened by `lookup`, whose columns are of the types and
    /// lanes in `inner`.
    ///
    /// # Panics
    /// If a coroutine is to have no outer tuples, or more than a vector has.
    pub fn new(
        outer: Arc<OnceLock<Stored>>,
        keys: OuterKeys,
        kind: IndexJoinKind,
        lookup: Arc<KeyLookup>,
        inner: Vec<(DataType, Lane)>,
        residual: Option<Arc<Program>>,
        tuples_max: usize,
    ) -> IndexJoin {
        assert!((1..=VECTOR_ROWS_MAX).contains(&tuples_max), "{tuples_max} tuples of a coroutine");
        let shared = Shared {
            outer,
            keys,
            kind,
            lookup,
            inner,
            residual,
            tuples_max,
            opened: OnceLock::new(),
            tier: OnceLock::new(),
            unknowns: OnceLock::new(),
        };
        IndexJoin { shared: Arc::new(shared), plan: OnceLock::new() }
    }
}

impl Source for IndexJoin {
    fn tuples(&self) -> u64 {
        self.shared.outer.get().map_or(0, Stored::tuples) as u64
    }

    fn facts(&self) -> Facts {
        let stats = self.shared.lookup.stats();
        let mut facts = vec![
            Fact::count("outer tuples", self.tuples()),
            Fact::count("keys looked up", stats.keys),
            Fact::count("rows found", stats.found),
            Fact::count("rows fetched", stats.fetched),
        ];
        if let Some(Some(tier)) = self.shared.tier.get()
            && let Some(code) = tier.code()
        {
            let share = 100 * stats.keys_by_code / stats.keys.max(1);
            facts.push(Fact::percent("keys by generated coroutines", share));
            facts.push(Fact::bytes("their code", code.bytes()));
        }
        facts
    }

    fn probe(&self) -> Option<ProbeShape> {
        Some(self.shared.shape())
    }

    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        let stored = self.shared.outer.get();
        let tuples = self.tuples();
        let mut in_memory = 0;
        let pages = stored.map_or(&[][..], |stored| &stored.memory.pages);
        let ends = pages.iter().map(|stored| {
            in_memory += stored.page.tuples();
            in_memory
        });
        let plan = Plan {
            ends: ends.collect(),
            next: AtomicUsize::new(0),
            on_disk: stored.map_or(0, |stored| stored.spilled.len()),
            next_on_disk: AtomicUsize::new(0),
        };
        self.plan.get_or_init(|| plan);
        self.shared.opened.get_or_init(|| Opened {
            context: context.clone(),
            for_keys: Mutex::default(),
            for_residual: Mutex::default(),
        });
        let tier = || {
            let compiling = context.compiling.as_ref()?;
            ProbeTier::new(compiling, self.shared.shape(), tuples)
        };
        self.shared.tier.get_or_init(tier);
        async { Ok(()) }.boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let plan = self.plan.get().expect("the source was opened");
        let shared = &self.shared;
        if let Some(tuples) = plan.next_in_memory(shared.tuples_max) {
            let stored = shared.outer.get()?;
            let addresses = plan.addresses(stored, tuples);
            return Some(Box::new(MemoryMorsel { join: Joining::new(shared, addresses) }));
        }
        let first = plan.next_on_disk.fetch_add(MORSEL_PAGES, Ordering::Relaxed);
        if first >= plan.on_disk {
            return None;
        }
        let stored = shared.outer.get()?;
        let spills = stored.spills.clone()?;
        let (memory, holder) = (spills.ledger.empty(), spills.ledger.holder());
        let pages = stored.spilled[first..plan.on_disk.min(first + MORSEL_PAGES)].to_vec();
        let reader = Reader::new("the outer side of an index join", spills, pages, memory);
        let shared = shared.clone();
        Some(Box::new(DiskMorsel { shared, reader, at: None, _holder: holder }))
    }

    fn depth(&self, context: &Context) -> usize {
        let budget = context.ledger.limit() / BUDGET_SHARE_DIVISOR / context.workers as u64;
        let at_once = usize::try_from(budget / COROUTINE_BYTES).unwrap_or(usize::MAX);
        // With one, the driver would not let others run while it waits.
        at_once.min(context.io_depth).max(2)
    }

    fn share(&self, _: &Context) -> usize {
        let plan = self.plan.get().expect("the source was opened");
        let in_memory = plan.ends.last().copied().unwrap_or(0);
        let has_more_in_memory = plan.next.load(Ordering::Relaxed) < in_memory;
        if has_more_in_memory { usize::MAX } else { ON_DISK_DEPTH }
    }
}

impl Plan {
    /// The numbers of the next tuples that are in memory.
    fn next_in_memory(&self, tuples_max: usize) -> Option<Range<usize>> {
        let all = self.ends.last().copied().unwrap_or(0);
        if self.next.load(Ordering::Relaxed) >= all {
            return None;
        }
        let start = self.next.fetch_add(tuples_max, Ordering::Relaxed);
        (start < all).then(|| start..all.min(start + tuples_max))
    }

    /// The addresses of tuples by their numbers.
    fn addresses(&self, stored: &Stored, tuples: Range<usize>) -> Vec<u64> {
        let mut page = self.ends.partition_point(|end| *end <= tuples.start);
        let mut addresses = Vec::with_capacity(tuples.len());
        for tuple in tuples {
            while self.ends[page] <= tuple {
                page += 1;
            }
            let first = if page == 0 { 0 } else { self.ends[page - 1] };
            addresses.push(stored.memory.pages[page].page.tuple(tuple - first) as u64);
        }
        addresses
    }
}

/// Outer tuples that lie in memory.
struct MemoryMorsel {
    join: Joining,
}

impl Morsel for MemoryMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let joined = self.join.next().await?;
            Ok(joined.map(|batch| Box::new(batch) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// Outer tuples that come back from disk.
struct DiskMorsel {
    shared: Arc<Shared>,
    reader: Reader,
    /// The page at hand, its tuples that are still to come, and those on their way.
    at: Option<(Arc<Frozen>, Range<usize>, Joining)>,
    /// What it has read comes free again: who waits for memory may wait for this.
    _holder: Holder,
}

impl Morsel for DiskMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            loop {
                if let Some((page, left, join)) = &mut self.at {
                    if let Some(batch) = join.next().await? {
                        let page = page.clone();
                        return Ok(
                            Some(Box::new(OfPage { batch, _page: page }) as Box<dyn Tuples>),
                        );
                    }
                    if left.start < left.end {
                        let some = left.start..left.end.min(left.start + self.shared.tuples_max);
                        left.start = some.end;
                        let addresses = some.map(|number| page.tuple(number) as u64).collect();
                        *join = Joining::new(&self.shared, addresses);
                        continue;
                    }
                }
                self.at = None;
                let Some(page) = self.reader.next().await? else { return Ok(None) };
                let left = 0..page.tuples();
                self.at = Some((Arc::new(page), left, Joining::new(&self.shared, Vec::new())));
            }
        }
        .boxed_local()
    }
}

/// Tuples whose outer ones lie on a page that has come back.
struct OfPage {
    batch: BatchTuples,
    _page: Arc<Frozen>,
}

impl Tuples for OfPage {
    fn rows(&self) -> usize {
        self.batch.rows()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut crate::registers::Registers,
    ) -> Result<()> {
        self.batch.load(start, rows, inputs, registers)
    }
}

/// Some outer tuples on their way through the index.
struct Joining {
    shared: Arc<Shared>,
    /// The tuples.
    addresses: Vec<u64>,
    /// Once their keys were made.
    lookups: Option<KeyLookups>,
    /// Which of them have a match, where that counts.
    matched: Vec<bool>,
    /// Whether generated code looks them up, and how long making keys took, if their lookup is measured.
    measured: Option<(bool, Duration)>,
    has_ended: bool,
}

impl Joining {
    fn new(shared: &Arc<Shared>, addresses: Vec<u64>) -> Joining {
        let (lookups, has_ended) = (None, addresses.is_empty());
        let matched = match shared.kind {
            IndexJoinKind::Inner => Vec::new(),
            _ => vec![false; addresses.len()],
        };
        let (shared, measured) = (shared.clone(), None);
        Joining { shared, addresses, lookups, matched, measured, has_ended }
    }

    /// Begins to look up the keys.
    fn begin(&mut self, opened: &Opened) -> Result<KeyLookups> {
        let shared = &self.shared;
        let tier = shared.tier.get().and_then(Option::as_ref);
        let (code, is_measured) = tier.map_or((None, false), |tier| tier.next());
        let began = is_measured.then(Instant::now);
        let is_by_code = code.is_some();
        let lookups = match code {
            Some(code) if code.key_bytes().is_some() => {
                let columns = shared.keys.columns.len();
                shared.lookup.begin_tuples(self.addresses.clone(), columns, code)
            }
            code => shared.lookup.begin(&shared.keys_of(&self.addresses, opened)?, code)?,
        };
        self.measured = began.map(|began| (is_by_code, began.elapsed()));
        Ok(lookups)
    }

    /// All keys have been looked up.
    fn note_measured(&mut self) {
        let tier = self.shared.tier.get().and_then(Option::as_ref);
        if let (Some((is_by_code, took)), Some(tier)) = (self.measured.take(), tier)
            && let Some(lookups) = &self.lookups
        {
            tier.note(is_by_code, self.addresses.len(), took + lookups.descending());
        }
    }

    /// The next tuples that come of them; `None` when all have.
    async fn next(&mut self) -> Result<Option<BatchTuples>> {
        if self.has_ended {
            return Ok(None);
        }
        let shared = self.shared.clone();
        let opened = shared.opened.get().expect("the source was opened");
        if self.lookups.is_none() {
            self.lookups = Some(self.begin(opened)?);
        }
        let mut pace = Pace::default();
        while let Some(lookups) = &mut self.lookups
            && let Some(found) = lookups.next().await?
        {
            if opened.context.cancel.is_cancelled() {
                return Err(ExecError::Cancelled);
            }
            let needs_pairs = shared.kind.has_pairs() || shared.residual.is_some();
            let pairs = match needs_pairs {
                true => Some(shared.pairs(&self.addresses, &found)?),
                false => None,
            };
            let kept = match (&shared.residual, &pairs) {
                (Some(residual), Some(pairs)) => {
                    Some(opened.kept(residual, pairs, &mut pace).await?)
                }
                _ => None,
            };
            if !self.matched.is_empty() {
                let is_kept = |pair: usize| kept.as_ref().is_none_or(|kept| kept.value(pair));
                for (pair, key) in found.keys.iter().enumerate() {
                    self.matched[*key as usize] |= is_kept(pair);
                }
            }
            let has_any = kept.as_ref().is_none_or(|kept| kept.count_set_bits() > 0);
            if shared.kind.has_pairs()
                && has_any
                && let Some(pairs) = pairs
            {
                return Ok(Some(pairs.with_selected(kept)));
            }
            pace.keep().await;
        }
        self.has_ended = true;
        self.note_measured();
        let wants = match shared.kind {
            IndexJoinKind::Inner => return Ok(None),
            IndexJoinKind::Mark => {
                let marks = BooleanArray::from(std::mem::take(&mut self.matched));
                let addresses = std::mem::take(&mut self.addresses);
                let lanes = [Lane::U64, Lane::Bool];
                return Ok(Some(tuples_of(addresses, vec![Arc::new(marks)], &lanes)?));
            }
            IndexJoinKind::Semi => true,
            IndexJoinKind::NotIn => {
                let unknowns = shared.unknowns().await?;
                let tuples = self.addresses.len();
                let have_keys = self.lookups.as_ref().map(|of| of.have_keys(tuples));
                let is_unknown = |tuple: usize| {
                    let has_null = have_keys.as_ref().is_some_and(|have| !have.value(tuple));
                    unknowns.has_rows && (unknowns.has_null || has_null)
                };
                let tuples = self.matched.iter_mut().enumerate();
                tuples.for_each(|(tuple, matched)| *matched |= is_unknown(tuple));
                false
            }
            IndexJoinKind::Left | IndexJoinKind::Anti => false,
        };
        let of_tuples = self.addresses.iter().zip(&self.matched);
        let wanted = of_tuples.filter(|(_, matched)| **matched == wants);
        let addresses: Vec<u64> = wanted.map(|(address, _)| *address).collect();
        if addresses.is_empty() {
            return Ok(None);
        }
        let inner: Vec<ArrayRef> = match shared.kind.has_pairs() {
            true => {
                let null =
                    |(data_type, _): &(DataType, Lane)| new_null_array(data_type, addresses.len());
                shared.inner.iter().map(null).collect()
            }
            false => Vec::new(),
        };
        Ok(Some(shared.tuples(addresses, inner)?))
    }
}

impl Shared {
    /// What code depends on that looks up the tuples: it makes keys that are integers.
    fn shape(&self) -> ProbeShape {
        let columns = self.keys.columns.iter().zip(self.lookup.key_columns());
        let field = |((register, data_type), column): (&(Register, DataType), &KeyColumn)| {
            let is_integer = data_type.is_integer()
                || matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
            let field = self.keys.field(*register)?;
            let fits = is_integer
                && column.data_type == *data_type
                && field.lane == Lane::of(data_type)
                && field.register_lane == field.lane;
            fits.then(|| KeyField {
                offset: field.offset,
                null: field.null_place(),
                bytes: field.lane.width(),
                is_signed: !data_type.is_unsigned_integer(),
                has_null_byte: column.is_nullable,
                is_descending: column.is_descending,
            })
        };
        ProbeShape { keys: columns.map(field).collect() }
    }

    /// The keys of outer tuples, an array for each column.
    fn keys_of(&self, addresses: &[u64], opened: &Opened) -> Result<Vec<ArrayRef>> {
        let mut interpreter = opened.take(&opened.for_keys, &self.keys.program);
        interpreter.begin(addresses.len());
        let input = self.keys.program.inputs[0];
        let tuples = interpreter.registers_mut().vector_mut(input);
        tuples.validity.set_all();
        tuples.values_mut::<u64>()[..addresses.len()].copy_from_slice(addresses);
        interpreter.advance()?;
        let registers = interpreter.registers();
        let key = |(register, data_type): &(Register, DataType)| {
            let vector = registers.vector(*register);
            let mut builder = ColumnBuilder::new(data_type, vector.lane());
            builder.append(vector, Selected::All(addresses.len()));
            builder.finish()
        };
        let keys = self.keys.columns.iter().map(key).collect();
        put_back(&opened.for_keys, interpreter);
        keys
    }

    /// Pairs of outer tuples and inner rows.
    fn pairs(&self, addresses: &[u64], found: &KeyMatches) -> Result<BatchTuples> {
        let tuples = found.keys.iter().map(|key| addresses[*key as usize]).collect();
        let rows = found.columns.first().map_or(0, |column| column.len());
        let is_same = found.rows.len() == rows && found.rows.iter().copied().eq(0..rows as u32);
        let inner: Result<Vec<ArrayRef>> = match is_same {
            true => Ok(found.columns.clone()),
            false => {
                let rows = UInt32Array::from(found.rows.clone());
                let take = |column: &ArrayRef| Ok(arrow_select::take::take(column, &rows, None)?);
                found.columns.iter().map(take).collect()
            }
        };
        self.tuples(tuples, inner?)
    }

    /// Tuples of these columns.
    fn tuples(&self, addresses: Vec<u64>, inner: Vec<ArrayRef>) -> Result<BatchTuples> {
        let of_inner = self.inner.iter().map(|(_, lane)| *lane).take(inner.len());
        let lanes: Vec<Lane> = std::iter::once(Lane::U64).chain(of_inner).collect();
        tuples_of(addresses, inner, &lanes)
    }

    /// What NOT IN has to know of the inner rows.
    async fn unknowns(&self) -> Result<Unknowns> {
        if let Some(known) = self.unknowns.get() {
            return Ok(*known);
        }
        let found = self.lookup.unknowns().await?;
        Ok(*self.unknowns.get_or_init(|| found))
    }
}

/// Tuples of addresses and columns, in these lanes.
fn tuples_of(addresses: Vec<u64>, beside: Vec<ArrayRef>, lanes: &[Lane]) -> Result<BatchTuples> {
    let rows = RecordBatchOptions::new().with_row_count(Some(addresses.len()));
    let addresses = Arc::new(UInt64Array::from(addresses)) as ArrayRef;
    let columns: Vec<ArrayRef> = std::iter::once(addresses).chain(beside).collect();
    let field = |array: &ArrayRef| arrow_schema::Field::new("", array.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let batch = RecordBatch::try_new_with_options(Arc::new(schema), columns, &rows)?;
    BatchTuples::new(&batch, lanes)
}

impl Opened {
    /// An interpreter that is not in use.
    fn take(&self, from: &Mutex<Vec<Interpreter>>, program: &Arc<Program>) -> Interpreter {
        let idle = from.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| Interpreter::new(program.clone(), &self.context))
    }

    /// A bit for each pair, which is set if it satisfies the condition.
    async fn kept(
        &self,
        residual: &Arc<Program>,
        pairs: &BatchTuples,
        pace: &mut Pace,
    ) -> Result<BooleanBuffer> {
        let mut interpreter = self.take(&self.for_residual, residual);
        interpreter.let_others_run(true);
        let mut kept = BooleanBufferBuilder::new(pairs.rows());
        for start in (0..pairs.rows()).step_by(self.context.vector_rows) {
            let rows = self.context.vector_rows.min(pairs.rows() - start);
            interpreter.begin(rows);
            pairs.load(start, rows, &residual.inputs, interpreter.registers_mut())?;
            let mut of_vector = BooleanBufferBuilder::new_from_buffer(
                MutableBuffer::from_len_zeroed(rows.div_ceil(8)),
                rows,
            );
            loop {
                match interpreter.advance_once()? {
                    Advance::Tuples => {
                        let selected = interpreter.registers().selected();
                        selected.for_each(|pair| of_vector.set_bit(pair, true));
                    }
                    Advance::Nothing => {}
                    Advance::Waits => interpreter.wait(pace).await?,
                    Advance::Ended => break,
                }
            }
            kept.append_buffer(&of_vector.finish());
            pace.keep().await;
        }
        put_back(&self.for_residual, interpreter);
        Ok(kept.finish())
    }
}

fn put_back(to: &Mutex<Vec<Interpreter>>, interpreter: Interpreter) {
    to.lock().unwrap_or_else(PoisonError::into_inner).push(interpreter);
}
