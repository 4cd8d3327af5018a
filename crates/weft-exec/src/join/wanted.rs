//! Filters that somebody asks: what a build side is to make, how it makes it, and the step that asks.
//!
//! A [`Wanted`] is known before there is a join: whoever translates a plan hands it to the pipelines that ask, and to the
//! join whose build side makes the filter. It is made only if somebody said what is wanted of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::Key;
use super::filter::{Bloom, Bounds, Filter};
use crate::kernels::hash;
use crate::program::Register;
use crate::registers::Registers;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::{Field, Layout, Page};

/// Tuples after which it is known whether asking is worth it.
const TRIAL_ROWS: u64 = 64 << 10;
/// Of so many tuples, one at least must be dropped for asking to be worth it.
const DROPPED_SHARE: u64 = 5;

/// A filter over some keys of a join, which is there when the build side is finished.
#[derive(Debug)]
pub struct Wanted {
    keys: Vec<usize>,
    hashes: AtomicBool,
    bounds: AtomicBool,
    filter: OnceLock<Filter>,
}

impl Wanted {
    /// Over these keys, by their numbers in the join. Nothing is wanted of it yet.
    pub fn new(keys: Vec<usize>) -> Wanted {
        Wanted { keys, hashes: false.into(), bounds: false.into(), filter: OnceLock::new() }
    }

    /// The keys, by their numbers in the join.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }

    /// Somebody will ask by hashes.
    pub fn want_hashes(&self) {
        self.hashes.store(true, Ordering::Relaxed);
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
    /// Asks by hashes.
    pub fn new(wanted: Arc<Wanted>) -> Asked {
        wanted.want_hashes();
        Asked { wanted, rows: Arc::default(), is_off: false.into() }
    }

    /// To see later how many tuples were dropped.
    pub fn rows(&self) -> Arc<AskedRows> {
        self.rows.clone()
    }

    /// Keeps the selected tuples that may have a match. Their hashes are put into `out`.
    pub(crate) fn keep(&self, registers: &mut Registers, keys: &[Register], out: Register) {
        if self.is_off.load(Ordering::Relaxed) {
            return;
        }
        let Some(filter) = self.wanted.filter() else { return };
        hash::run(registers, keys, out);
        let before = registers.selection.count();
        let (hashes, selection) = registers.with_selection(out);
        filter.may_match(hashes.values(), selection);
        if !self.rows.count(before, registers.selection.count(), DROPPED_SHARE) {
            self.is_off.store(true, Ordering::Relaxed);
        }
    }
}

/// A filter that a build side is making.
pub(crate) struct Making {
    wanted: Arc<Wanted>,
    bloom: Option<Bloom>,
    /// Where the keys are; none if they are all of the join's keys, whose hash is the tuple's.
    fields: Vec<Field>,
}

impl Making {
    /// Those that somebody asks, of a build side with so many different tuples.
    pub fn all(
        wanted: &[Arc<Wanted>],
        keys: &[Key],
        layout: &Layout,
        distinct: usize,
    ) -> Vec<Making> {
        let is_asked = |wanted: &&Arc<Wanted>| {
            wanted.hashes.load(Ordering::Relaxed) || wanted.bounds.load(Ordering::Relaxed)
        };
        let making = |wanted: &Arc<Wanted>| {
            let is_whole = wanted.keys.iter().copied().eq(0..keys.len());
            let field = |key: &usize| *layout.field(keys[*key].field);
            let fields =
                if is_whole { Vec::new() } else { wanted.keys.iter().map(field).collect() };
            let has_hashes = wanted.hashes.load(Ordering::Relaxed);
            let bloom = has_hashes.then(|| Bloom::new(Bloom::words_for(distinct)));
            Making { wanted: wanted.clone(), bloom, fields }
        };
        wanted.iter().filter(is_asked).map(making).collect()
    }

    /// Bytes of those that somebody asks.
    pub fn bytes(wanted: &[Arc<Wanted>], distinct: usize) -> u64 {
        let blooms = wanted.iter().filter(|wanted| wanted.hashes.load(Ordering::Relaxed)).count();
        (blooms * Bloom::words_for(distinct) * size_of::<u64>()) as u64
    }

    /// The keys whose bounds are wanted, by their numbers in the join.
    pub fn bounded(&self) -> &[usize] {
        let has_bounds = self.wanted.bounds.load(Ordering::Relaxed);
        if has_bounds { &self.wanted.keys } else { &[] }
    }

    /// Adds the tuples of a page that can match: those for which `counts` is true.
    pub fn add(&self, page: &Page, counts: impl Fn(*const u8) -> bool) {
        let Some(bloom) = &self.bloom else { return };
        let tuples = (0..page.tuples()).map(|number| page.tuple(number).cast_const());
        if self.fields.is_empty() {
            for tuple in tuples.filter(|tuple| counts(*tuple)) {
                // SAFETY: the tuple is initialized.
                bloom.add(unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() });
            }
            return;
        }
        let hashes = hash::of_fields(page, &self.fields);
        for (_, hash) in tuples.zip(hashes).filter(|(tuple, _)| counts(*tuple)) {
            bloom.add(hash);
        }
    }

    /// Hands the filter over; `bounds` are those of the join's keys, as far as they are known.
    pub fn finish(self, bounds: &[Option<Bounds>]) {
        let bounds = self.bounded().iter().filter_map(|key| bounds[*key].clone()).collect();
        let is_first = self.wanted.filter.set(Filter::new(self.bloom, bounds)).is_ok();
        debug_assert!(is_first, "a filter is made once");
    }
}
