//! Filters that somebody asks: what a build side is to make, how it makes it, and the step that asks.
//!
//! A [`Wanted`] is known before there is a join: whoever translates a plan hands it to the pipelines that ask, and to the
//! join whose build side makes the filter. It is made only if somebody said what is wanted of it.

use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weft_rt::memory::{Ledger, Reservation};

use super::filter::{Bloom, Bounds, Filter, Rows, each};
use super::key_set::{Integer, MakingKeys, is_integer};
use super::words::Words;
use super::{Key, Nulls};
use crate::kernels::hash;
use crate::lane::for_short_integer;
use crate::program::Register;
use crate::registers::Registers;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::materializer::PARTITIONS;
use crate::tuple::{Field, Layout, Page};

/// Tuples after which it is known whether asking is worth it.
const TRIAL_ROWS: u64 = 64 << 10;
/// Of so many tuples, one at least must be dropped for asking to be worth it.
const DROPPED_SHARE: u64 = 5;

/// A filter over some keys of a join, which is there when the build side is finished.
#[derive(Debug)]
pub struct Wanted {
    keys: Vec<usize>,
    rows: AtomicBool,
    bounds: AtomicBool,
    filter: OnceLock<Filter>,
    /// The filter's.
    memory: OnceLock<Reservation>,
}

impl Wanted {
    /// Over these keys, by their numbers in the join. Nothing is wanted of it yet.
    pub fn new(keys: Vec<usize>) -> Wanted {
        let (rows, bounds) = (false.into(), false.into());
        Wanted { keys, rows, bounds, filter: OnceLock::new(), memory: OnceLock::new() }
    }

    /// The keys, by their numbers in the join.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }

    /// Somebody will ask about rows.
    pub fn want_rows(&self) {
        self.rows.store(true, Ordering::Relaxed);
    }

    /// Somebody will ask by bounds.
    pub fn want_bounds(&self) {
        self.bounds.store(true, Ordering::Relaxed);
    }

    /// The filter; `None` while the build side is not finished, and if it makes none: nobody asks, or there is no memory.
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.get()
    }
}

/// What a step that asks has seen.
#[derive(Debug, Default)]
pub struct AskedRows {
    rows_in: AtomicU64,
    rows_out: AtomicU64,
}

impl AskedRows {
    /// Tuples about which the filter was asked, and those that it let through.
    pub fn get(&self) -> (u64, u64) {
        (self.rows_in.load(Ordering::Relaxed), self.rows_out.load(Ordering::Relaxed))
    }

    /// Counts tuples; false if the filter drops too few of them: less than one of `share`.
    pub(crate) fn count(&self, rows_in: usize, rows_out: usize, share: u64) -> bool {
        let add = |counter: &AtomicU64, rows: usize| {
            counter.fetch_add(rows as u64, Ordering::Relaxed) + rows as u64
        };
        // What comes out is counted first: another worker's tuples then never look dropped that are not.
        let (rows_out, rows_in) = (add(&self.rows_out, rows_out), add(&self.rows_in, rows_in));
        rows_in < TRIAL_ROWS || rows_in.saturating_sub(rows_out) * share >= rows_in
    }
}

/// A filter as one pipeline asks it. Once it is known to drop too few tuples, it is not asked any more.
#[derive(Debug)]
pub struct Asked {
    wanted: Arc<Wanted>,
    rows: Arc<AskedRows>,
    is_off: AtomicBool,
}

impl Asked {
    /// Asks about rows.
    pub fn new(wanted: Arc<Wanted>) -> Asked {
        wanted.want_rows();
        Asked { wanted, rows: Arc::default(), is_off: false.into() }
    }

    /// To see later how many tuples were dropped.
    pub fn rows(&self) -> Arc<AskedRows> {
        self.rows.clone()
    }

    /// Keeps the selected tuples that may have a match. `out` is for their hashes.
    pub(crate) fn keep(&self, registers: &mut Registers, keys: &[Register], out: Register) {
        if self.is_off.load(Ordering::Relaxed) {
            return;
        }
        let Some(filter) = self.wanted.filter() else { return };
        let before = registers.selection.count();
        filter.keep(registers, keys, out);
        if !self.rows.count(before, registers.selection.count(), DROPPED_SHARE) {
            self.is_off.store(true, Ordering::Relaxed);
        }
    }
}

/// A filter that a build side is making, when it has all of its tuples.
pub(crate) struct Making {
    wanted: Arc<Wanted>,
    rows: Option<MakingRows>,
    /// Where the keys are, and their nulls.
    fields: Vec<(Field, Nulls)>,
    /// They are all of the join's keys, whose hash is the tuple's.
    is_whole: bool,
    memory: Option<Reservation>,
    /// Memory of the parts that it is made in, but for the one that is left.
    parts: Option<Reservation>,
}

/// Who adds tuples to a filter while somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nobody,
    /// Those that add tuples of other partitions.
    OtherPartitions,
    Anybody,
}

/// What a filter has of rows.
enum MakingRows {
    Bloom(Bloom),
    Keys(MakingKeys),
}

impl Making {
    /// Those that somebody asks.
    pub fn all(wanted: &[Arc<Wanted>], keys: &[Key], layout: &Layout) -> Vec<Making> {
        let is_asked = |wanted: &&Arc<Wanted>| {
            wanted.rows.load(Ordering::Relaxed) || wanted.bounds.load(Ordering::Relaxed)
        };
        let making = |wanted: &Arc<Wanted>| {
            let is_whole = wanted.keys.iter().copied().eq(0..keys.len());
            let field = |key: &usize| (*layout.field(keys[*key].field), keys[*key].nulls);
            let fields = wanted.keys.iter().map(field).collect();
            let (rows, memory, parts) = (None, None, None);
            Making { wanted: wanted.clone(), rows, fields, is_whole, memory, parts }
        };
        wanted.iter().filter(is_asked).map(making).collect()
    }

    /// The keys whose bounds are wanted, by their numbers in the join.
    pub fn bounded(&self) -> &[usize] {
        let has_bounds =
            self.wanted.bounds.load(Ordering::Relaxed) || self.only_integer().is_some();
        if has_bounds { &self.wanted.keys } else { &[] }
    }

    /// The only key, if it is an integer, and null matches nothing.
    fn only_integer(&self) -> Option<&Field> {
        match &self.fields[..] {
            [(field, nulls)] if is_integer(field.lane) && *nulls != Nulls::Equal => Some(field),
            _ => None,
        }
    }

    /// Begins with what is wanted of rows: of a build side with so many different tuples, whose keys have these bounds,
    /// as far as they are known, by so many workers. Nothing is made if there is not enough memory.
    pub fn begin(
        &mut self,
        distinct: usize,
        workers: usize,
        bounds: &[Option<Bounds>],
        ledger: &Ledger,
    ) {
        if self.wanted.rows.load(Ordering::Relaxed)
            && let Some((rows, memory)) = self.rows_for(distinct, workers, bounds, ledger)
        {
            (self.rows, self.memory) = (Some(rows), Some(memory));
        }
    }

    fn rows_for(
        &mut self,
        distinct: usize,
        workers: usize,
        bounds: &[Option<Bounds>],
        ledger: &Ledger,
    ) -> Option<(MakingRows, Reservation)> {
        let of_words = |words: usize| ledger.try_reserve(Words::bytes(words) as u64);
        let bounds = self.only_integer().and_then(|_| bounds[self.wanted.keys[0]].as_ref());
        let of_keys = bounds.and_then(|bounds| {
            let (least, greatest) = bounds.integers()?;
            Some((least, MakingKeys::words_for(least, greatest, distinct)?))
        });
        if let Some((least, words)) = of_keys {
            let memory = of_words(words)?;
            let parts = MakingKeys::parts_for(words, distinct, workers);
            let bytes = (parts - 1) as u64 * Words::bytes(words) as u64;
            self.parts = ledger.try_reserve(bytes);
            let parts = if self.parts.is_some() { parts } else { 1 };
            let keys = MakingKeys::new(least, words, parts).ok()?;
            return Some((MakingRows::Keys(keys), memory));
        }
        let words = Bloom::words_for(distinct);
        let memory = of_words(words)?;
        Some((MakingRows::Bloom(Bloom::new(words).ok()?), memory))
    }

    /// Bytes of memory that the filter takes.
    pub fn bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, Reservation::bytes)
    }

    /// True if tuples are to be added.
    pub fn is_of_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// The memory of what is wanted of rows.
    pub fn words(&self) -> &[Words] {
        match &self.rows {
            Some(MakingRows::Bloom(bloom)) => slice::from_ref(bloom.words()),
            Some(MakingRows::Keys(keys)) => keys.words(),
            None => &[],
        }
    }

    /// Adds the tuples of a page that can match, those for which `counts` is true, at least. A worker adds one page at a time.
    pub fn add(
        &self,
        page: &Page,
        worker: usize,
        beside: Beside,
        counts: impl Fn(*const u8) -> bool,
    ) {
        match &self.rows {
            Some(MakingRows::Bloom(bloom)) => {
                let is_divided = self.is_whole && bloom.divides(PARTITIONS);
                match beside {
                    Beside::Nobody => self.add_hashes::<true>(bloom, page, counts),
                    Beside::OtherPartitions if is_divided => {
                        self.add_hashes::<true>(bloom, page, counts);
                    }
                    _ => self.add_hashes::<false>(bloom, page, counts),
                }
            }
            Some(MakingRows::Keys(keys)) => {
                let (field, part) = (&self.fields[0].0, keys.part(worker));
                let is_alone = keys.is_in_parts() || beside == Beside::Nobody;
                for_short_integer!(field.lane, T => {
                    if is_alone {
                        each(page, field, |_, key: T| keys.add::<true>(part, key.bits()));
                    } else {
                        each(page, field, |_, key: T| keys.add::<false>(part, key.bits()));
                    }
                }, else unreachable!("a set is of integers"));
            }
            None => {}
        }
    }

    fn add_hashes<const ALONE: bool>(
        &self,
        bloom: &Bloom,
        page: &Page,
        counts: impl Fn(*const u8) -> bool,
    ) {
        let tuples = (0..page.tuples()).map(|number| page.tuple(number).cast_const());
        if self.is_whole {
            for tuple in tuples.filter(|tuple| counts(*tuple)) {
                // SAFETY: the tuple is initialized.
                bloom.add::<ALONE>(unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() });
            }
            return;
        }
        let fields: Vec<Field> = self.fields.iter().map(|(field, _)| *field).collect();
        let hashes = hash::of_fields(page, &fields);
        for (_, hash) in tuples.zip(hashes).filter(|(tuple, _)| counts(*tuple)) {
            bloom.add::<ALONE>(hash);
        }
    }

    /// In how many steps it is joined from its parts, when all tuples were added.
    pub fn steps(&self) -> usize {
        match &self.rows {
            Some(MakingRows::Keys(keys)) => keys.steps(),
            _ => 0,
        }
    }

    /// Makes one of these steps.
    pub fn join(&self, step: usize) {
        if let Some(MakingRows::Keys(keys)) = &self.rows {
            keys.join(step);
        }
    }

    /// Hands the filter over, unless there was no memory for it; `bounds` are those of the join's keys, as far as they are
    /// known.
    pub fn finish(self, bounds: &[Option<Bounds>]) {
        if self.rows.is_none() && self.wanted.rows.load(Ordering::Relaxed) {
            return;
        }
        let bounds = self.bounded().iter().filter_map(|key| bounds[*key].clone()).collect();
        let rows = self.rows.map(|rows| match rows {
            MakingRows::Bloom(bloom) => Rows::Bloom(bloom),
            MakingRows::Keys(keys) => Rows::Keys(keys.finish()),
        });
        let is_first = self.wanted.filter.set(Filter::new(rows, bounds)).is_ok();
        debug_assert!(is_first, "a filter is made once");
        // Whoever asks may do so when the join is gone.
        self.memory.into_iter().for_each(|memory| drop(self.wanted.memory.set(memory)));
    }
}
