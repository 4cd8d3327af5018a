//! The generated coroutine of an index-nested-loop join: it makes the keys of its outer tuples and looks them up in the index.
//!
//! One coroutine has all tuples of a morsel, 128 unless another number is asked for, as a coroutine for each would cost more than it
//! hides (asynchronous I/O with coroutines in a code-generating DBMS, ADMS 2022, section 5). Its code begins with a loop over the tuples:
//! integers are loaded from where the tuple has them, turned into the index's form and stored beside each other; tuples with a
//! NULL are passed over. A Rust function puts the keys in order. Then comes the loop that awaits the descents ([`ProbeRound::find`],
//! an asynchronous Rust function). It has [`WINDOW`] of them in flight, each in a slot of the frame, so that nodes come from memory and from
//! the device for several keys at once: a slot whose descent has ended takes the next key, and what is found is stored beside the key's
//! number. When no descent can go on, the state is written to the frame and the coroutine suspends; the resume function polls all slots.
//!
//! Keys of other types are made by the interpreter; the code then consists of the second loop alone.

mod code;
#[cfg(test)]
mod tests;

use std::alloc::Layout;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use weft_exec::compile::ProbeShape;
use weft_rt::{YieldNow, yield_now};
use weft_store::{ProbeCode, ProbeRound, Probed};

use crate::coroutine::{
    Callee, FRAME_ALIGN, Found, Frame, Functions, PANICKED, Resume, SUSPENDED, note_panic,
    resume_panic,
};
use crate::native::Pages;

pub(crate) use code::{ramp_function, resume_function};

/// Descents of a coroutine that are in flight.
pub(crate) const WINDOW: usize = 32;

/// Where things lie in a frame, in bytes.
mod frame {
    pub(super) const RESUME: i32 = 0;
    pub(super) const STATE: i32 = 8;
    /// What lives across waits: the next key, the different keys, descents in flight, rows found, rows stored.
    pub(super) const NEXT: i32 = 16;
    pub(super) const KEYS: i32 = 24;
    pub(super) const LIVE: i32 = 32;
    pub(super) const FOUND: i32 = 40;
    pub(super) const STORED: i32 = 48;
    pub(super) const ROWS_MAX: i32 = 56;
    /// What a descent gives.
    pub(super) const RESULT: i32 = 64;
    /// Parameters.
    pub(super) const PARAMETERS: i32 = 80;
    /// Where the slots begin.
    pub(super) const SLOTS: usize = 192;
}

/// What puts keys in order: it is given the round, the words of keys, numbers of their tuples, how many they are, and where the number of rows
/// of a round belongs; and says how many different keys there are, or [`ORDER_PANICKED`].
type Order = unsafe extern "C" fn(*const u8, *const u64, *const u32, u64, *mut u64) -> u64;

/// What a coroutine works on.
struct Inputs<'a> {
    tuples: &'a [u64],
    /// The first key, and the number of different ones if they are made; else the words of a key.
    first: usize,
    keys: Option<usize>,
    key_words: usize,
    rows_max: usize,
    paused: &'a Cell<bool>,
    order: Order,
    round: *const u8,
}

/// Parameters of a coroutine, as they lie in its frame.
#[repr(C)]
struct Parameters {
    tuples: *const u64,
    tuple_count: u64,
    words: *mut u64,
    numbers: *mut u32,
    rows: *mut [u64; 2],
    functions: *const Functions,
    environment: *const u8,
    paused: *const u8,
    order: Order,
    round: *const u8,
    slot_bytes: u64,
    slots_end: u64,
}

/// Numbers of the parameters.
mod parameter {
    pub(super) const TUPLES: i32 = 0;
    pub(super) const TUPLE_COUNT: i32 = 1;
    pub(super) const WORDS: i32 = 2;
    pub(super) const NUMBERS: i32 = 3;
    pub(super) const ROWS: i32 = 4;
    pub(super) const FUNCTIONS: i32 = 5;
    pub(super) const ENVIRONMENT: i32 = 6;
    pub(super) const PAUSED: i32 = 7;
    pub(super) const ORDER: i32 = 8;
    pub(super) const ROUND: i32 = 9;
    pub(super) const SLOT_BYTES: i32 = 10;
    pub(super) const SLOTS_END: i32 = 11;
    pub(super) const COUNT: i32 = 12;
}

/// Bytes of a slot before the future: the number of its key and 1, or 0 if there is no future.
const SLOT_HEADER_BYTES: usize = 16;

/// States of a frame: keys are to be made; they are made; descents are in flight; it has ended.
const MAKES_KEYS: u64 = 0;
const DESCENDS: u64 = 1;
const WAITS: u64 = 2;
const ENDED: u64 = 3;

/// Said by resume functions, beside what those of callees say: descents can go on, but others are to run first.
const RESTS: u64 = 3;

/// Said by what puts keys in order, when it has panicked.
const ORDER_PANICKED: u64 = u64::MAX;

/// The byte before a value of a column that may be null.
const VALUE: i64 = 1;

/// A ramp: the frame, the context, the resume function, the parameters, the state to begin in, the first key and their number.
type Ramp =
    unsafe extern "C" fn(*mut u8, *mut u8, Resume, *const Parameters, u64, u64, u64, u64) -> u64;

/// The code of a probe.
#[derive(Debug)]
pub(crate) struct ProbeFunctions {
    pub(crate) pages: Pages,
    ramp: Ramp,
    resume: Resume,
}

impl ProbeFunctions {
    /// Functions of these pages, at these places.
    pub(crate) fn new(pages: Pages, starts: &[usize]) -> ProbeFunctions {
        // SAFETY: there are functions of these types. They are called only while the pages are there: `ProbeFunctions` has both.
        let (ramp, resume) = unsafe {
            (
                std::mem::transmute::<*const u8, Ramp>(pages.address(starts[0])),
                std::mem::transmute::<*const u8, Resume>(pages.address(starts[1])),
            )
        };
        ProbeFunctions { pages, ramp, resume }
    }
}

/// The code of a probe of this shape.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) functions: Arc<ProbeFunctions>,
    pub(crate) shape: ProbeShape,
    pub(crate) took: Duration,
}

impl ProbeCode for Probe {
    fn key_bytes(&self) -> Option<usize> {
        self.shape.key_bytes()
    }

    fn probe<'a>(
        &'a self,
        round: &'a ProbeRound<'a>,
        first: usize,
    ) -> Pin<Box<dyn Future<Output = Probed> + 'a>> {
        Box::pin(async move {
            let callee = Callee::new(|number| round.find(number));
            let inputs = Inputs {
                tuples: round.tuples(),
                first,
                keys: round.keys(),
                key_words: round.key_words(),
                rows_max: round.rows_max(),
                paused: round.paused(),
                order,
                round: (&raw const *round).cast(),
            };
            Probing::new(&self.functions, &callee, &inputs).await
        })
    }

    fn bytes(&self) -> u64 {
        self.functions.pages.bytes()
    }

    fn took(&self) -> Duration {
        self.took
    }
}

/// A generated coroutine that probes.
struct Probing<'a> {
    code: &'a ProbeFunctions,
    /// There until the future is dropped.
    frame: Option<Frame>,
    discard: unsafe fn(*mut u8),
    slot_bytes: usize,
    parameters: Parameters,
    first: usize,
    /// The number of different keys, if they are made.
    keys: Option<usize>,
    rows_max: usize,
    is_begun: bool,
    rest: Option<YieldNow>,
    /// Rows that were found. The code writes to its memory, and to that of keys and numbers of tuples.
    rows: Vec<[u64; 2]>,
    _words: Vec<u64>,
    _numbers: Vec<u32>,
}

/// Where a future lies in a slot, and the bytes of the slot.
fn slot_bytes(future: Layout) -> usize {
    assert!(future.align() <= SLOT_HEADER_BYTES, "a future of alignment {}", future.align());
    (SLOT_HEADER_BYTES + future.size()).next_multiple_of(SLOT_HEADER_BYTES)
}

impl<'a> Probing<'a> {
    /// A coroutine that makes keys of tuples, or finds them made, and awaits `callee` for each from the first on.
    fn new<F>(
        code: &'a ProbeFunctions,
        callee: &'a Callee<'a, F>,
        inputs: &Inputs<'a>,
    ) -> Probing<'a> {
        let &Inputs { tuples, first, keys, key_words, rows_max, paused, order, round } = inputs;
        let makes_keys = if keys.is_none() { tuples.len() } else { 0 };
        let mut words = vec![0; makes_keys * key_words];
        let mut numbers = vec![0; makes_keys];
        let mut rows: Vec<[u64; 2]> =
            Vec::with_capacity(keys.map_or(tuples.len(), |keys| keys - first));
        let slot_bytes = slot_bytes(callee.slot());
        let bytes = frame::SLOTS + WINDOW * slot_bytes;
        let layout = Layout::from_size_align(bytes, FRAME_ALIGN).expect("a frame's layout");
        let frame = Frame::new(layout.pad_to_align());
        for slot in 0..WINDOW {
            let header = frame.memory().wrapping_add(frame::SLOTS + slot * slot_bytes);
            // SAFETY: the frame has room for it, aligned.
            unsafe { header.cast::<u64>().write(0) }
        }
        let parameters = Parameters {
            tuples: tuples.as_ptr(),
            tuple_count: tuples.len() as u64,
            words: words.as_mut_ptr(),
            numbers: numbers.as_mut_ptr(),
            rows: rows.as_mut_ptr(),
            functions: callee.functions(),
            environment: callee.environment(),
            paused: paused.as_ptr().cast(),
            order,
            round,
            slot_bytes: slot_bytes as u64,
            slots_end: bytes as u64,
        };
        Probing {
            code,
            frame: Some(frame),
            discard: callee.discard(),
            slot_bytes,
            parameters,
            first,
            keys,
            rows_max,
            is_begun: false,
            rest: None,
            rows,
            _words: words,
            _numbers: numbers,
        }
    }

    fn memory(&self) -> *mut u8 {
        self.frame.as_ref().map_or(std::ptr::null_mut(), Frame::memory)
    }

    /// A word of the frame, once the coroutine has begun.
    fn word(&self, offset: i32) -> u64 {
        // SAFETY: the ramp has written it.
        unsafe { self.memory().wrapping_add(offset as usize).cast::<u64>().read() }
    }
}

/// Puts keys in order: what the code calls when it has made them. Gives the number of different ones, and puts that of the rows of a round into
/// `rows_max`. No panic goes through the code.
///
/// # Safety
/// `round` is a [`ProbeRound`]; there are `count` numbers and the words of as many keys, and `rows_max` may be written to.
unsafe extern "C" fn order(
    round: *const u8,
    words: *const u64,
    numbers: *const u32,
    count: u64,
    rows_max: *mut u64,
) -> u64 {
    let count = count as usize;
    // SAFETY: as the caller promises.
    let (round, words, numbers) = unsafe {
        let round = &*round.cast::<ProbeRound<'_>>();
        let words = std::slice::from_raw_parts(words, count * round.key_words());
        (round, words, std::slice::from_raw_parts(numbers, count))
    };
    let ordered = catch_unwind(AssertUnwindSafe(|| round.order(words, numbers)));
    // SAFETY: as the caller promises.
    unsafe { rows_max.write(round.rows_max() as u64) }
    ordered.map_or_else(
        |panic| {
            note_panic(panic);
            ORDER_PANICKED
        },
        |keys| keys as u64,
    )
}

impl Future for Probing<'_> {
    type Output = Probed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Probed> {
        let probing = &mut *self;
        probing.rest = None;
        let task: *mut u8 = (&raw mut *context).cast();
        let memory = probing.memory();
        let said = match probing.is_begun {
            // SAFETY: the frame has room for what ramps write and for the callee's futures; what parameters point to lives as long as this
            // future, and has room for the keys of all tuples and a row of each. The frame does not move: it is memory of its own.
            false => unsafe {
                probing.is_begun = true;
                let state = if probing.keys.is_none() { MAKES_KEYS } else { DESCENDS };
                (probing.code.ramp)(
                    memory,
                    task,
                    probing.code.resume,
                    &probing.parameters,
                    state,
                    probing.first as u64,
                    probing.keys.unwrap_or(0) as u64,
                    probing.rows_max as u64,
                )
            },
            // SAFETY: the ramp was called for the frame, whose first word is the resume function.
            true => unsafe {
                let resume = memory.wrapping_add(frame::RESUME as usize).cast::<Resume>().read();
                resume(memory, task)
            },
        };
        match said {
            SUSPENDED => Poll::Pending,
            RESTS => {
                let rest = probing.rest.insert(yield_now());
                // It is pending once, and has the worker poll this coroutine again.
                if Pin::new(rest).poll(context).is_ready() {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
            PANICKED => resume_panic(),
            _ => {
                let (next, stored) = (probing.word(frame::NEXT), probing.word(frame::STORED));
                let mut rows = std::mem::take(&mut probing.rows);
                assert!(stored as usize <= rows.capacity(), "a row of each key at most");
                // SAFETY: the code has written so many.
                unsafe { rows.set_len(stored as usize) }
                Poll::Ready(Probed { next: next as usize, rows })
            }
        }
    }
}

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        for slot in 0..WINDOW {
            let header = self.memory().wrapping_add(frame::SLOTS + slot * self.slot_bytes);
            // SAFETY: headers were written when the frame was made; where one is not 0 there is a future behind it.
            unsafe {
                if header.cast::<u64>().read() != 0 {
                    (self.discard)(header.wrapping_add(SLOT_HEADER_BYTES));
                }
            }
        }
        if let Some(frame) = self.frame.take() {
            frame.give_back();
        }
    }
}

const _: () = assert!(size_of::<Found>() == 16);
const _: () = assert!(size_of::<Parameters>() == 8 * parameter::COUNT as usize);
const _: () = assert!(frame::PARAMETERS as usize + size_of::<Parameters>() <= frame::SLOTS);
