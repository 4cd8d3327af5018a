//! Probes of indexes by generated coroutines: what one is made of, and the *tier* of a join's probes, which decides which
//! of them run so.
//!
//! As runs of steps (`compile.rs`), probes begin without code where it is not asked for at once, and are measured both ways.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weft_rt::background;
use weft_store::ProbeCode;

use super::{COMPILED, CompileMode, Compiling, INTERPRETED, Measured, TRIALS, UNDECIDED};

/// What the code of a probe depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProbeShape {
    /// The columns of the keys, that the code makes of tuples; `None` if it finds them made.
    pub keys: Option<Vec<KeyField>>,
}

/// An integer in a tuple, and how the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyField {
    /// Bytes from the tuple's address.
    pub offset: usize,
    /// The byte of the tuple that has its null bit, and the bit in it, if it may be null: the tuple has no key then.
    pub null: Option<(usize, u8)>,
    /// Bytes of the integer: 1, 2, 4 or 8.
    pub bytes: usize,
    /// Whether it may be negative.
    pub is_signed: bool,
    /// Whether the index's column may be null: the key has a byte for that.
    pub has_null_byte: bool,
    /// Whether large values come first in the index.
    pub is_descending: bool,
}

impl ProbeShape {
    /// Bytes of a key that the code makes.
    pub fn key_bytes(&self) -> Option<usize> {
        let bytes = |field: &KeyField| field.bytes + usize::from(field.has_null_byte);
        self.keys.as_ref().map(|keys| keys.iter().map(bytes).sum())
    }
}

/// Whether probes of a join run by code: shared by its workers.
#[derive(Debug)]
pub(crate) struct ProbeTier {
    mode: CompileMode,
    code: OnceLock<Option<Arc<dyn ProbeCode>>>,
    by_code: Measured,
    interpreted: Measured,
    verdict: AtomicU8,
    coroutines: AtomicU64,
}

/// What compiling a probe is expected to take, in steps of a program.
const PROBE_STEPS: usize = 12;
/// What a key is expected to take less by code, before that was measured.
const SAVED_NS: u64 = 50;

impl ProbeTier {
    /// The tier of a join that looks up so many tuples; `None` if code would not pay.
    pub(crate) fn new(
        compiling: &Compiling,
        shape: ProbeShape,
        tuples: u64,
    ) -> Option<Arc<ProbeTier>> {
        let expected = compiling.compiler.expected(PROBE_STEPS).as_nanos();
        match compiling.mode {
            CompileMode::Never => return None,
            CompileMode::Auto if u128::from(tuples * SAVED_NS) < expected => return None,
            CompileMode::Auto | CompileMode::Always => {}
        }
        let tier = Arc::new(ProbeTier {
            mode: compiling.mode,
            code: OnceLock::new(),
            by_code: Measured::default(),
            interpreted: Measured::default(),
            verdict: AtomicU8::new(UNDECIDED),
            coroutines: AtomicU64::new(0),
        });
        let (for_thread, compiler) = (tier.clone(), compiling.compiler.clone());
        let compile = move || _ = for_thread.code.get_or_init(|| compiler.probe(&shape));
        if compiling.mode == CompileMode::Always {
            compile();
        } else if let Err(error) = background::spawn("weft-compile", compile) {
            log::warn!("no thread to compile on, an index join is interpreted: {error}");
        }
        Some(tier)
    }

    /// The code that the next coroutine is to run by, and whether it is to be measured.
    pub(crate) fn next(&self) -> (Option<Arc<dyn ProbeCode>>, bool) {
        let Some(code) = self.code() else { return (None, false) };
        if self.mode == CompileMode::Always {
            return (Some(code.clone()), false);
        }
        match self.verdict.load(Ordering::Relaxed) {
            COMPILED => (Some(code.clone()), false),
            INTERPRETED => (None, false),
            _ => {
                let number = self.coroutines.fetch_add(1, Ordering::Relaxed);
                (number.is_multiple_of(2).then(|| code.clone()), true)
            }
        }
    }

    /// A coroutine has looked up so many tuples.
    pub(crate) fn note(&self, is_by_code: bool, tuples: usize, took: Duration) {
        let measured = if is_by_code { &self.by_code } else { &self.interpreted };
        measured.note(tuples, took.as_nanos() as u64);
        if self.by_code.batches() >= TRIALS && self.interpreted.batches() >= TRIALS {
            let is_slower = self.by_code.row_ps() > self.interpreted.row_ps();
            let verdict = if is_slower { INTERPRETED } else { COMPILED };
            self.verdict.store(verdict, Ordering::Relaxed);
        }
    }

    /// The code, if there is some.
    pub(crate) fn code(&self) -> Option<&Arc<dyn ProbeCode>> {
        self.code.get().and_then(Option::as_ref)
    }
}
