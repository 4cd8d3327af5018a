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

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    BlockCall, Function, InstBuilder, JumpTableData, MemFlagsData, UserFuncName, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use weft_exec::compile::{KeyField, ProbeShape};
use weft_rt::{YieldNow, yield_now};
use weft_store::{NO_ROW, ProbeCode, ProbeRound, Probed};

use crate::coroutine::{
    Callee, FRAME_ALIGN, Found, Frame, Functions, PANICKED, READY, Resume, SUSPENDED, call_of,
    note_panic, resume_panic, signature,
};
use crate::native::Pages;

/// Descents of a coroutine that are in flight.
pub(crate) const WINDOW: usize = 32;
/// Polls of descents after which the worker may look at the device and at other tasks.
const POLLS_PER_TURN: i64 = 512;

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

fn flags() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// The ramp: writes the frame and goes on to the resume function.
pub(crate) fn ramp_function(config: TargetFrontendConfig, call: CallConv) -> Function {
    let name = UserFuncName::user(0, 3);
    let mut function = Function::with_name_signature(name, signature(call, 8));
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let parameters = b.block_params(entry).to_vec();
    let (memory, task, resume) = (parameters[0], parameters[1], parameters[2]);
    let zero = b.ins().iconst(types::I64, 0);
    let words = [
        (frame::RESUME, resume),
        (frame::STATE, parameters[4]),
        (frame::NEXT, parameters[5]),
        (frame::KEYS, parameters[6]),
        (frame::LIVE, zero),
        (frame::FOUND, zero),
        (frame::STORED, zero),
        (frame::ROWS_MAX, parameters[7]),
    ];
    for (offset, value) in words {
        b.ins().store(flags(), value, memory, offset);
    }
    for number in 0..parameter::COUNT {
        let word = b.ins().load(types::I64, flags(), parameters[3], 8 * number);
        b.ins().store(flags(), word, memory, frame::PARAMETERS + 8 * number);
    }
    let resumes = b.import_signature(signature(call, 2));
    let said = call_of(&mut b, resumes, resume, &[memory, task]);
    b.ins().return_(&[said]);
    b.seal_all_blocks();
    b.finalize(config);
    function
}

/// What lives in registers between waits.
struct Variables {
    next: Variable,
    live: Variable,
    found: Variable,
    stored: Variable,
    /// What of a turn over the slots: the slot, whether one of them can go on at once, and polls since the resume function was called.
    slot: Variable,
    goes_on: Variable,
    polls: Variable,
    answer: Variable,
}

/// Makes a resume function.
struct Resuming<'f, 'c> {
    b: FunctionBuilder<'f>,
    call: CallConv,
    memory: Value,
    task: Value,
    of: Variables,
    keys: &'c Option<Vec<KeyField>>,
}

/// The resume function: makes keys if the state says so, and goes on with descents.
pub(crate) fn resume_function(
    shape: &ProbeShape,
    config: TargetFrontendConfig,
    call: CallConv,
) -> Function {
    let name = UserFuncName::user(0, 4);
    let mut function = Function::with_name_signature(name, signature(call, 2));
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let (memory, task) = (b.block_params(entry)[0], b.block_params(entry)[1]);
    let [next, live, found, stored, slot, goes_on, polls, answer] =
        [(); 8].map(|()| b.declare_var(types::I64));
    let of = Variables { next, live, found, stored, slot, goes_on, polls, answer };
    let mut resuming = Resuming { b, call, memory, task, of, keys: &shape.keys };
    resuming.body();
    resuming.b.seal_all_blocks();
    resuming.b.finalize(config);
    function
}

impl Resuming<'_, '_> {
    fn constant(&mut self, value: i64) -> Value {
        self.b.ins().iconst(types::I64, value)
    }

    /// A word of the frame.
    fn word(&mut self, offset: i32) -> Value {
        self.b.ins().load(types::I64, flags(), self.memory, offset)
    }

    fn parameter(&mut self, number: i32) -> Value {
        let constant = flags().with_readonly().with_can_move();
        let offset = frame::PARAMETERS + 8 * number;
        self.b.ins().load(types::I64, constant, self.memory, offset)
    }

    fn set(&mut self, offset: i32, value: Value) {
        self.b.ins().store(flags(), value, self.memory, offset);
    }

    fn add(&mut self, variable: Variable, value: i64) {
        let now = self.b.use_var(variable);
        let then = self.b.ins().iadd_imm_s(now, value);
        self.b.def_var(variable, then);
    }

    fn body(&mut self) {
        let [makes, descends] = [(); 2].map(|()| self.b.create_block());
        let ended = self.b.create_block();
        let of_words = [
            (self.of.next, frame::NEXT),
            (self.of.live, frame::LIVE),
            (self.of.found, frame::FOUND),
            (self.of.stored, frame::STORED),
        ];
        for (variable, offset) in of_words {
            let word = self.word(offset);
            self.b.def_var(variable, word);
        }
        let zero = self.constant(0);
        self.b.def_var(self.of.polls, zero);
        self.b.def_var(self.of.answer, zero);
        let state = self.b.ins().load(types::I32, flags(), self.memory, frame::STATE);
        let targets = {
            let pool = &mut self.b.func.dfg.value_lists;
            [makes, descends, descends].map(|block| BlockCall::new(block, [], pool))
        };
        let otherwise = BlockCall::new(ended, [], &mut self.b.func.dfg.value_lists);
        let table = self.b.create_jump_table(JumpTableData::new(otherwise, &targets));
        self.b.ins().br_table(state, table);
        self.b.switch_to_block(makes);
        if let Some(keys) = self.keys {
            self.make_keys(keys);
        }
        self.b.ins().jump(descends, &[]);
        self.b.switch_to_block(descends);
        self.descend();
        self.b.switch_to_block(ended);
        let said = self.constant(READY as i64);
        self.b.ins().return_(&[said]);
    }

    /// The loop over tuples that makes their keys, and the call that puts them in order.
    fn make_keys(&mut self, keys: &[KeyField]) {
        let [header, tuple, next, made] = [(); 4].map(|()| self.b.create_block());
        let [at, count] = [(); 2].map(|()| self.b.declare_var(types::I64));
        let zero = self.constant(0);
        self.b.def_var(at, zero);
        self.b.def_var(count, zero);
        self.b.ins().jump(header, &[]);

        self.b.switch_to_block(header);
        let (number, tuples) = (self.b.use_var(at), self.parameter(parameter::TUPLE_COUNT));
        let goes_on = self.b.ins().icmp(IntCC::UnsignedLessThan, number, tuples);
        self.b.ins().brif(goes_on, tuple, &[], made, &[]);

        self.b.switch_to_block(tuple);
        let addresses = self.parameter(parameter::TUPLES);
        let offset = self.b.ins().ishl_imm_s(number, 3);
        let place = self.b.ins().iadd(addresses, offset);
        let address = self.b.ins().load(types::I64, flags(), place, 0);
        for (byte, bit) in keys.iter().filter_map(|key| key.null) {
            let has_value = self.b.create_block();
            let bits = self.b.ins().uload8(types::I64, flags(), address, byte as i32);
            let is_null = self.b.ins().band_imm_s(bits, i64::from(bit));
            self.b.ins().brif(is_null, next, &[], has_value, &[]);
            self.b.switch_to_block(has_value);
        }
        let bytes: usize = keys.iter().map(|key| key.bytes + usize::from(key.has_null_byte)).sum();
        let stride = 8 * bytes.div_ceil(8).max(1);
        let (written, words) = (self.b.use_var(count), self.parameter(parameter::WORDS));
        let offset = self.b.ins().imul_imm_s(written, stride as i64);
        let key = self.b.ins().iadd(words, offset);
        let mut to = 0;
        for field in keys {
            to = self.append(field, address, key, to);
        }
        let numbers = self.parameter(parameter::NUMBERS);
        let offset = self.b.ins().ishl_imm_s(written, 2);
        let place = self.b.ins().iadd(numbers, offset);
        let short = self.b.ins().ireduce(types::I32, number);
        self.b.ins().store(flags(), short, place, 0);
        self.add(count, 1);
        self.b.ins().jump(next, &[]);

        self.b.switch_to_block(next);
        self.add(at, 1);
        self.b.ins().jump(header, &[]);

        self.b.switch_to_block(made);
        let [order, round] = [parameter::ORDER, parameter::ROUND].map(|of| self.parameter(of));
        let [words, numbers] = [parameter::WORDS, parameter::NUMBERS].map(|of| self.parameter(of));
        let rows_max = self.b.ins().iadd_imm_s(self.memory, i64::from(frame::ROWS_MAX));
        let of_order = self.b.import_signature(signature(self.call, 5));
        let written = self.b.use_var(count);
        let arguments = [round, words, numbers, written, rows_max];
        let different = call_of(&mut self.b, of_order, order, &arguments);
        let [panics, ordered] = [(); 2].map(|()| self.b.create_block());
        let has_panicked = self.b.ins().icmp_imm_s(IntCC::Equal, different, ORDER_PANICKED as i64);
        self.b.ins().brif(has_panicked, panics, &[], ordered, &[]);
        self.b.switch_to_block(panics);
        self.leave(ENDED, PANICKED);
        self.b.switch_to_block(ordered);
        self.set(frame::KEYS, different);
        let state = self.constant(DESCENDS as i64);
        self.set(frame::STATE, state);
    }

    /// Appends an integer of a tuple to a key, `to` bytes of which are written; gives how many are then.
    fn append(&mut self, field: &KeyField, address: Value, key: Value, mut to: i32) -> i32 {
        // Keys are not aligned to their columns.
        let unaligned = MemFlagsData::new().with_notrap();
        if field.has_null_byte {
            let byte = self.b.ins().iconst(types::I8, VALUE);
            self.b.ins().store(unaligned, byte, key, to);
            to += 1;
        }
        let of = match field.bytes {
            1 => types::I8,
            2 => types::I16,
            4 => types::I32,
            _ => types::I64,
        };
        let mut value = self.b.ins().load(of, flags(), address, field.offset as i32);
        if field.is_signed {
            let top = self.b.ins().iconst(of, (1_u64 << (of.bits() - 1)) as i64);
            value = self.b.ins().bxor(value, top);
        }
        if field.is_descending {
            value = self.b.ins().bnot(value);
        }
        if of != types::I8 {
            value = self.b.ins().bswap(value);
        }
        self.b.ins().store(unaligned, value, key, to);
        to + field.bytes as i32
    }

    /// The loop that awaits descents, in turns over the slots.
    fn descend(&mut self) {
        let [turn, each, fills, begins, resumes, answered, ready] =
            [(); 7].map(|()| self.b.create_block());
        let [stores, next, turned, rests, waits, panics, pends, ends, goes_on, can_rest, not_ready] =
            [(); 11].map(|()| self.b.create_block());
        self.b.ins().jump(turn, &[]);

        self.b.switch_to_block(turn);
        let zero = self.constant(0);
        self.b.def_var(self.of.goes_on, zero);
        let first = self.b.ins().iadd_imm_s(self.memory, frame::SLOTS as i64);
        self.b.def_var(self.of.slot, first);
        self.b.ins().jump(each, &[]);

        self.b.switch_to_block(each);
        let slot = self.b.use_var(self.of.slot);
        let held = self.b.ins().load(types::I64, flags(), slot, 0);
        self.b.ins().brif(held, resumes, &[], fills, &[]);

        self.b.switch_to_block(fills);
        let (number, keys) = (self.b.use_var(self.of.next), self.word(frame::KEYS));
        let (found, rows_max) = (self.b.use_var(self.of.found), self.word(frame::ROWS_MAX));
        let has_key = self.b.ins().icmp(IntCC::UnsignedLessThan, number, keys);
        let has_room = self.b.ins().icmp(IntCC::UnsignedLessThan, found, rows_max);
        let begins_one = self.b.ins().band(has_key, has_room);
        self.b.ins().brif(begins_one, begins, &[], next, &[]);

        self.b.switch_to_block(begins);
        let slot = self.b.use_var(self.of.slot);
        let number = self.b.use_var(self.of.next);
        let after = self.b.ins().iadd_imm_s(number, 1);
        self.b.def_var(self.of.next, after);
        self.b.ins().store(flags(), after, slot, 0);
        self.add(self.of.live, 1);
        self.add(self.of.polls, 1);
        let functions = self.parameter(parameter::FUNCTIONS);
        let start = self.b.ins().load(types::I64, flags(), functions, 0);
        let environment = self.parameter(parameter::ENVIRONMENT);
        let [room, result] = self.room_and_result(slot);
        let of_start = self.b.import_signature(signature(self.call, 5));
        let arguments = [room, self.task, environment, number, result];
        let said = call_of(&mut self.b, of_start, start, &arguments);
        self.b.def_var(self.of.answer, said);
        self.b.ins().jump(answered, &[]);

        self.b.switch_to_block(resumes);
        self.add(self.of.polls, 1);
        let slot = self.b.use_var(self.of.slot);
        let functions = self.parameter(parameter::FUNCTIONS);
        let poll = self.b.ins().load(types::I64, flags(), functions, 8);
        let [room, result] = self.room_and_result(slot);
        let of_poll = self.b.import_signature(signature(self.call, 3));
        let said = call_of(&mut self.b, of_poll, poll, &[room, self.task, result]);
        self.b.def_var(self.of.answer, said);
        self.b.ins().jump(answered, &[]);

        self.b.switch_to_block(answered);
        let said = self.b.use_var(self.of.answer);
        let is_ready = self.b.ins().icmp_imm_s(IntCC::Equal, said, READY as i64);
        self.b.ins().brif(is_ready, ready, &[], not_ready, &[]);

        self.b.switch_to_block(not_ready);
        let has_panicked = self.b.ins().icmp_imm_s(IntCC::Equal, said, PANICKED as i64);
        self.b.ins().brif(has_panicked, panics, &[], pends, &[]);

        // The slot has no future any more, and takes another key.
        self.b.switch_to_block(ready);
        let slot = self.b.use_var(self.of.slot);
        let number = self.b.ins().load(types::I64, flags(), slot, 0);
        let number = self.b.ins().iadd_imm_s(number, -1);
        let zero = self.constant(0);
        self.b.ins().store(flags(), zero, slot, 0);
        self.add(self.of.live, -1);
        let (found, more) = (self.b.use_var(self.of.found), self.word(frame::RESULT));
        let found = self.b.ins().iadd(found, more);
        self.b.def_var(self.of.found, found);
        let row = self.word(frame::RESULT + 8);
        let has_row = self.b.ins().icmp_imm_s(IntCC::NotEqual, row, NO_ROW as i64);
        self.b.ins().brif(has_row, stores, &[], fills, &[]);

        self.b.switch_to_block(stores);
        let (stored, rows) = (self.b.use_var(self.of.stored), self.parameter(parameter::ROWS));
        let offset = self.b.ins().ishl_imm_s(stored, 4);
        let place = self.b.ins().iadd(rows, offset);
        self.b.ins().store(flags(), number, place, 0);
        self.b.ins().store(flags(), row, place, 8);
        self.add(self.of.stored, 1);
        self.b.ins().jump(fills, &[]);

        self.b.switch_to_block(pends);
        let paused = self.parameter(parameter::PAUSED);
        let has_paused = self.b.ins().uload8(types::I64, flags(), paused, 0);
        let zero = self.b.ins().iconst(types::I8, 0);
        self.b.ins().store(flags(), zero, paused, 0);
        let so_far = self.b.use_var(self.of.goes_on);
        let now = self.b.ins().bor(so_far, has_paused);
        self.b.def_var(self.of.goes_on, now);
        self.b.ins().jump(next, &[]);

        self.b.switch_to_block(next);
        let (slot, bytes) = (self.b.use_var(self.of.slot), self.parameter(parameter::SLOT_BYTES));
        let slot = self.b.ins().iadd(slot, bytes);
        self.b.def_var(self.of.slot, slot);
        let end = self.parameter(parameter::SLOTS_END);
        let end = self.b.ins().iadd(self.memory, end);
        let has_more = self.b.ins().icmp(IntCC::NotEqual, slot, end);
        self.b.ins().brif(has_more, each, &[], turned, &[]);

        self.b.switch_to_block(turned);
        let live = self.b.use_var(self.of.live);
        self.b.ins().brif(live, goes_on, &[], ends, &[]);
        self.b.switch_to_block(goes_on);
        let can_go_on = self.b.use_var(self.of.goes_on);
        self.b.ins().brif(can_go_on, can_rest, &[], waits, &[]);
        self.b.switch_to_block(can_rest);
        let polls = self.b.use_var(self.of.polls);
        let is_long =
            self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, polls, POLLS_PER_TURN);
        self.b.ins().brif(is_long, rests, &[], turn, &[]);

        for (block, state, said) in
            [(rests, WAITS, RESTS), (waits, WAITS, SUSPENDED), (ends, ENDED, READY)]
        {
            self.b.switch_to_block(block);
            self.leave(state, said);
        }
        self.b.switch_to_block(panics);
        let slot = self.b.use_var(self.of.slot);
        let zero = self.constant(0);
        self.b.ins().store(flags(), zero, slot, 0);
        self.leave(ENDED, PANICKED);
    }

    /// Where the future of a slot lies, and where a descent puts what it gives.
    fn room_and_result(&mut self, slot: Value) -> [Value; 2] {
        let room = self.b.ins().iadd_imm_s(slot, SLOT_HEADER_BYTES as i64);
        let result = self.b.ins().iadd_imm_s(self.memory, i64::from(frame::RESULT));
        [room, result]
    }

    /// Writes what lives across a wait to the frame, and returns.
    fn leave(&mut self, state: u64, said: u64) {
        let state = self.constant(state as i64);
        self.set(frame::STATE, state);
        let words = [
            (frame::NEXT, self.of.next),
            (frame::LIVE, self.of.live),
            (frame::FOUND, self.of.found),
            (frame::STORED, self.of.stored),
        ];
        for (offset, variable) in words {
            let value = self.b.use_var(variable);
            self.set(offset, value);
        }
        let said = self.constant(said as i64);
        self.b.ins().return_(&[said]);
    }
}

const _: () = assert!(size_of::<Found>() == 16);
const _: () = assert!(size_of::<Parameters>() == 8 * parameter::COUNT as usize);
const _: () = assert!(frame::PARAMETERS as usize + size_of::<Parameters>() <= frame::SLOTS);
