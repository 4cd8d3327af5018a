//! Generated coroutines: functions that wait, made by Cranelift, as Rust futures.
//!
//! A [`MultiGet`] calls an asynchronous Rust function for each of many keys, one after the other, and stores what comes out: the
//! probe of an index. Its code is two functions (asynchronous I/O with coroutines in a code-generating DBMS, ADMS 2022, section 4):
//! a *ramp*, which writes the parameters into a frame and goes on to the *resume function*, which switches on the frame's state. The
//! frame is laid out here (`frame`): what lives across a wait, and a slot in which the awaited future lies. Nothing is
//! allocated per call.
//!
//! An asynchronous function is awaited through small functions that are made for it ([`Callee`]): `start` puts its future into the slot
//! and polls it, `poll` polls it again; both move its result out and drop it once it is ready. `discard` drops it where it waits. Wakers are Rust's, so that the
//! executor does not know the difference.
//!
//! A future that is dropped while it waits drops what it awaits. Frames come from a pool of each worker.

use std::alloc::Layout;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Function, InstBuilder, JumpTableData, MemFlagsData, Signature, UserFuncName, Value,
    types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use weft_rt::memory::Ledger;

use crate::compiler::{isa, made};
use crate::native::{Pages, note_for_perf};

/// Where things lie in a frame, in bytes.
mod frame {
    pub(super) const RESUME: i32 = 0;
    pub(super) const STATE: i32 = 8;
    /// The number of the key at hand, which lives across waits.
    pub(super) const AT: i32 = 16;
    /// Parameters.
    pub(super) const KEYS: i32 = 24;
    pub(super) const RESULTS: i32 = 32;
    pub(super) const COUNT: i32 = 40;
    pub(super) const CALLEE: i32 = 48;
    pub(super) const ENVIRONMENT: i32 = 56;
    /// The future that is awaited.
    pub(super) const SLOT: i32 = 64;
}

/// States of a frame.
const BEGINS: u64 = 0;
const WAITS: u64 = 1;
const ENDED: u64 = 2;

/// What functions of a callee and resume functions say.
pub(crate) const SUSPENDED: u64 = 0;
pub(crate) const READY: u64 = 1;
pub(crate) const PANICKED: u64 = 2;

thread_local! {
    /// What the callee has panicked with, until the future goes on with it.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// Words of a result.
pub const RESULT_WORDS: usize = 2;

/// What a call gives: words, such as whether there is a value, and the value.
pub type Found = [u64; RESULT_WORDS];

/// The functions through which generated code awaits an asynchronous function, in the order in which it loads them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Functions {
    start: unsafe extern "C" fn(*mut u8, *mut u8, *const u8, u64, *mut Found) -> u64,
    poll: unsafe extern "C" fn(*mut u8, *mut u8, *mut Found) -> u64,
}

/// An asynchronous function that generated code awaits: what `call` gives for a key.
#[derive(Debug)]
pub struct Callee<'e, F> {
    functions: Functions,
    discard: unsafe fn(*mut u8),
    slot: Layout,
    call: F,
    environment: PhantomData<&'e F>,
}

impl<F> Callee<'_, F> {
    /// What generated code reaches it through.
    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// What functions are given to call it.
    pub(crate) fn environment(&self) -> *const u8 {
        (&raw const self.call).cast()
    }

    /// The layout of its future.
    pub(crate) fn slot(&self) -> Layout {
        self.slot
    }

    /// What drops its future where it waits.
    pub(crate) fn discard(&self) -> unsafe fn(*mut u8) {
        self.discard
    }
}

impl<'e, F, G> Callee<'e, F>
where
    F: Fn(u64) -> G + 'e,
    G: Future<Output = Found> + 'e,
{
    /// Awaits what `call` gives.
    pub fn new(call: F) -> Callee<'e, F> {
        Callee {
            functions: Functions { start: start::<F, G>, poll: poll::<G> },
            discard: discard::<G>,
            slot: Layout::new::<G>(),
            call,
            environment: PhantomData,
        }
    }
}

/// Puts the future of a call into a slot and polls it, as [`poll`] does.
///
/// # Safety
/// `slot` has room for the future and nothing in it; `context` is a task's context, `call` the function, and `result` may be written to.
unsafe extern "C" fn start<F, G>(
    slot: *mut u8,
    context: *mut u8,
    call: *const u8,
    key: u64,
    result: *mut Found,
) -> u64
where
    F: Fn(u64) -> G,
    G: Future<Output = Found>,
{
    // SAFETY: as the caller promises. A call of an `async fn` only makes the future; what else panics here ends the process.
    unsafe {
        slot.cast::<G>().write((*call.cast::<F>())(key));
        poll::<G>(slot, context, result)
    }
}

/// Polls the future in a slot. When it is ready, or panics, it is dropped, and the slot is empty; its result goes to `result`.
///
/// # Safety
/// `start` was called for the slot, which has not moved since and is not empty; `context` is a task's context, and `result` may be
/// written to.
unsafe extern "C" fn poll<G: Future<Output = Found>>(
    slot: *mut u8,
    context: *mut u8,
    result: *mut Found,
) -> u64 {
    // No panic goes through generated code.
    let polled = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as the caller promises. The future stays where it is until it is dropped, as pinned ones must.
        let (future, context) =
            unsafe { (Pin::new_unchecked(&mut *slot.cast::<G>()), &mut *context.cast()) };
        future.poll(context)
    }));
    if matches!(polled, Ok(Poll::Pending)) {
        return SUSPENDED;
    }
    // SAFETY: as the caller promises; the coroutine does not poll the future any more.
    unsafe { slot.cast::<G>().drop_in_place() };
    match polled {
        Ok(Poll::Ready(found)) => {
            // SAFETY: as the caller promises.
            unsafe { result.write(found) };
            READY
        }
        Ok(Poll::Pending) => SUSPENDED,
        Err(panic) => {
            note_panic(panic);
            PANICKED
        }
    }
}

/// Drops the future in a slot.
///
/// # Safety
/// `start` was called for the slot, which is not empty.
unsafe fn discard<G: Future<Output = Found>>(slot: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { slot.cast::<G>().drop_in_place() }
}

/// A ramp: the frame, the context, the resume function, and parameters in the order of the frame.
type Ramp = unsafe extern "C" fn(
    *mut u8,
    *mut u8,
    Resume,
    *const u64,
    *mut Found,
    u64,
    *const Functions,
    *const u8,
) -> u64;
/// A resume function: the frame and the context.
pub(crate) type Resume = unsafe extern "C" fn(*mut u8, *mut u8) -> u64;

/// The code of a loop of calls, for all callees.
#[derive(Debug)]
pub struct MultiGet {
    pages: Pages,
    ramp: Ramp,
    resume: Resume,
}

impl MultiGet {
    /// Makes the code. `None` if there is none for the processor, or no memory.
    pub fn new(ledger: &Ledger) -> Option<Arc<MultiGet>> {
        let isa = isa().ok()?;
        let (config, call) = (isa.frontend_config(), isa.default_call_conv());
        let ramp = made(&*isa, ramp_function(config, call), false)?.bytes;
        let resume = made(&*isa, resume_function(config, call), false)?.bytes;
        let (pages, starts) = Pages::new(&[&ramp, &resume], ledger)?;
        let named = [
            (starts[0], ramp.len(), "weft::multi_get_ramp".to_owned()),
            (starts[1], resume.len(), "weft::multi_get_resume".to_owned()),
        ];
        note_for_perf(&pages, &named);
        // SAFETY: there are functions of these types. They are called only while the pages are there: `MultiGet` has both.
        let (ramp, resume) = unsafe {
            (
                std::mem::transmute::<*const u8, Ramp>(pages.address(starts[0])),
                std::mem::transmute::<*const u8, Resume>(pages.address(starts[1])),
            )
        };
        Some(Arc::new(MultiGet { pages, ramp, resume }))
    }

    /// Bytes of code.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// Calls `callee` with each of `keys`, one after the other, and puts what it gives into `results`.
    ///
    /// # Panics
    /// If there are not as many results as keys.
    pub fn call<'a, 'e: 'a, F>(
        self: &Arc<MultiGet>,
        callee: &'a Callee<'e, F>,
        keys: &'a [u64],
        results: &'a mut [Found],
    ) -> Calls<'a> {
        assert_eq!(keys.len(), results.len(), "a result for each key");
        let (layout, at) = layout(callee.slot);
        Calls {
            code: self.clone(),
            frame: Some(Frame::new(layout)),
            functions: &callee.functions,
            discard: callee.discard,
            slot: at,
            environment: (&raw const callee.call).cast(),
            keys,
            results,
            is_begun: false,
        }
    }
}

/// The layout of a frame with a slot of this layout, and where the slot is.
fn layout(slot: Layout) -> (Layout, usize) {
    let fixed = Layout::new::<[u64; frame::SLOT as usize / 8]>();
    let (layout, at) = fixed.extend(slot).unwrap_or((fixed, 0));
    assert!(
        slot.align() <= FRAME_ALIGN && at == frame::SLOT as usize,
        "a future of alignment {}",
        slot.align()
    );
    (layout.align_to(FRAME_ALIGN).unwrap_or(layout).pad_to_align(), at)
}

/// What frames, and the slots in them, are aligned to.
pub(crate) const FRAME_ALIGN: usize = 64;

/// Frames that a worker keeps for the next coroutines, and how many bytes they may have together.
const POOLED: usize = 256;
const POOLED_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static POOL: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Memory of a frame.
pub(crate) struct Frame {
    memory: NonNull<u8>,
    layout: Layout,
}

impl Frame {
    /// A frame of the worker's pool, or a new one.
    pub(crate) fn new(layout: Layout) -> Frame {
        let pooled = POOL.with_borrow_mut(|pool| {
            let at = pool.iter().rposition(|frame| frame.layout == layout)?;
            Some(pool.swap_remove(at))
        });
        pooled.unwrap_or_else(|| {
            // SAFETY: a frame has bytes.
            let memory = unsafe { std::alloc::alloc(layout) };
            let Some(memory) = NonNull::new(memory) else { std::alloc::handle_alloc_error(layout) };
            Frame { memory, layout }
        })
    }

    /// Where it lies.
    pub(crate) fn memory(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Gives the frame to the pool of the worker that it is on.
    pub(crate) fn give_back(self) {
        // While a thread ends its pool may be gone.
        let mut frame = Some(self);
        POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut()
                && pool.len() < POOLED
                && let Some(given) = &frame
                && bytes_of(&pool) + given.layout.size() <= POOLED_BYTES_MAX
            {
                pool.extend(frame.take());
            }
        })
        .ok();
    }
}

/// Bytes of frames.
fn bytes_of(frames: &[Frame]) -> usize {
    frames.iter().map(|frame| frame.layout.size()).sum()
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// A generated coroutine: calls with many keys.
pub struct Calls<'a> {
    code: Arc<MultiGet>,
    /// There until the future is dropped.
    frame: Option<Frame>,
    functions: &'a Functions,
    discard: unsafe fn(*mut u8),
    slot: usize,
    environment: *const u8,
    keys: &'a [u64],
    results: &'a mut [Found],
    is_begun: bool,
}

impl Calls<'_> {
    /// The frame's memory.
    fn memory(&self) -> *mut u8 {
        self.frame.as_ref().map_or(std::ptr::null_mut(), |frame| frame.memory.as_ptr())
    }

    fn state(&self) -> u64 {
        if !self.is_begun {
            return BEGINS;
        }
        // SAFETY: the ramp has written it.
        unsafe { self.memory().wrapping_add(frame::STATE as usize).cast::<u64>().read() }
    }
}

impl Future for Calls<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let calls = &mut *self;
        let context: *mut u8 = (&raw mut *context).cast();
        let memory = calls.memory();
        let said = match calls.state() {
            // SAFETY: the frame has room for what ramps write and for the callee's future; keys, results and the callee live as long as
            // this future. The frame does not move: it is memory of its own.
            BEGINS => unsafe {
                calls.is_begun = true;
                (calls.code.ramp)(
                    memory,
                    context,
                    calls.code.resume,
                    calls.keys.as_ptr(),
                    calls.results.as_mut_ptr(),
                    calls.keys.len() as u64,
                    calls.functions,
                    calls.environment,
                )
            },
            // SAFETY: the ramp was called for the frame, whose first word is the resume function.
            WAITS => unsafe {
                let resume = memory.wrapping_add(frame::RESUME as usize).cast::<Resume>().read();
                resume(memory, context)
            },
            _ => READY,
        };
        match said {
            SUSPENDED => Poll::Pending,
            PANICKED => resume_panic(),
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        if self.state() == WAITS {
            // SAFETY: where it waits there is a future in the slot.
            unsafe { (self.discard)(self.memory().wrapping_add(self.slot)) }
        }
        if let Some(frame) = self.frame.take() {
            frame.give_back();
        }
    }
}

/// Keeps a panic until the coroutine's future goes on with it ([`resume_panic`]).
pub(crate) fn note_panic(panic: Box<dyn Any + Send>) {
    PANIC.set(Some(panic));
}

/// Goes on with the panic that a callee has panicked with.
pub(crate) fn resume_panic() -> ! {
    match PANIC.take() {
        Some(panic) => resume_unwind(panic),
        None => unreachable!("a panic has a payload"),
    }
}

pub(crate) fn signature(call: CallConv, parameters: usize) -> Signature {
    let mut signature = Signature::new(call);
    signature.params.extend((0..parameters).map(|_| AbiParam::new(types::I64)));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

/// The ramp: writes the frame and goes on to the resume function.
fn ramp_function(config: TargetFrontendConfig, call: CallConv) -> Function {
    let name = UserFuncName::user(0, 1);
    let mut function = Function::with_name_signature(name, signature(call, 8));
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let parameters = b.block_params(entry).to_vec();
    let (memory, task, resume) = (parameters[0], parameters[1], parameters[2]);
    let flags = MemFlagsData::trusted();
    let begins = b.ins().iconst(types::I64, BEGINS as i64);
    let zero = b.ins().iconst(types::I64, 0);
    let words = [
        (frame::RESUME, resume),
        (frame::STATE, begins),
        (frame::AT, zero),
        (frame::KEYS, parameters[3]),
        (frame::RESULTS, parameters[4]),
        (frame::COUNT, parameters[5]),
        (frame::CALLEE, parameters[6]),
        (frame::ENVIRONMENT, parameters[7]),
    ];
    for (offset, value) in words {
        b.ins().store(flags, value, memory, offset);
    }
    let resumes = b.import_signature(signature(call, 2));
    let called = b.ins().call_indirect(resumes, resume, &[memory, task]);
    let said = b.inst_results(called)[0];
    b.ins().return_(&[said]);
    b.seal_all_blocks();
    b.finalize(config);
    function
}

/// The resume function: a loop over the keys, entered where the state says.
fn resume_function(config: TargetFrontendConfig, call: CallConv) -> Function {
    let name = UserFuncName::user(0, 2);
    let mut function = Function::with_name_signature(name, signature(call, 2));
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let [entry, header, starts, resumes, found, suspends, ended] =
        [(); 7].map(|()| b.create_block());
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let (memory, task) = (b.block_params(entry)[0], b.block_params(entry)[1]);
    let (at, answer) = (b.declare_var(types::I64), b.declare_var(types::I64));
    let flags = MemFlagsData::trusted();
    let constant = flags.with_readonly().with_can_move();
    let load =
        |b: &mut FunctionBuilder<'_>, offset| b.ins().load(types::I64, constant, memory, offset);
    let first = b.ins().load(types::I64, flags, memory, frame::AT);
    b.def_var(at, first);
    let state = b.ins().load(types::I32, flags, memory, frame::STATE);
    let targets = {
        let pool = &mut b.func.dfg.value_lists;
        [header, resumes].map(|block| cranelift_codegen::ir::BlockCall::new(block, [], pool))
    };
    let otherwise = cranelift_codegen::ir::BlockCall::new(ended, [], &mut b.func.dfg.value_lists);
    let table = b.create_jump_table(JumpTableData::new(otherwise, &targets));
    b.ins().br_table(state, table);

    b.switch_to_block(header);
    let (number, count) = (b.use_var(at), load(&mut b, frame::COUNT));
    let goes_on = b.ins().icmp(IntCC::UnsignedLessThan, number, count);
    b.ins().brif(goes_on, starts, &[], ended, &[]);

    let slot = |b: &mut FunctionBuilder<'_>| b.ins().iadd_imm_s(memory, i64::from(frame::SLOT));
    let callee = |b: &mut FunctionBuilder<'_>, number: i32| {
        let functions = load(b, frame::CALLEE);
        b.ins().load(types::I64, constant, functions, 8 * number)
    };
    let result = |b: &mut FunctionBuilder<'_>, number| {
        let results = load(b, frame::RESULTS);
        let offset = b.ins().imul_imm_s(number, size_of::<Found>() as i64);
        b.ins().iadd(results, offset)
    };
    b.switch_to_block(starts);
    let keys = load(&mut b, frame::KEYS);
    let offset = b.ins().ishl_imm_s(number, 3);
    let place = b.ins().iadd(keys, offset);
    let key = b.ins().load(types::I64, flags, place, 0);
    let start = callee(&mut b, 0);
    let (environment, room) = (load(&mut b, frame::ENVIRONMENT), slot(&mut b));
    let place = result(&mut b, number);
    let of_start = b.import_signature(signature(call, 5));
    let said = call_of(&mut b, of_start, start, &[room, task, environment, key, place]);
    b.def_var(answer, said);
    let is_ready = b.ins().icmp_imm_s(IntCC::Equal, said, READY as i64);
    b.ins().brif(is_ready, found, &[], suspends, &[]);

    b.switch_to_block(resumes);
    let poll = callee(&mut b, 1);
    let room = slot(&mut b);
    let number = b.use_var(at);
    let place = result(&mut b, number);
    let of_poll = b.import_signature(signature(call, 3));
    let said = call_of(&mut b, of_poll, poll, &[room, task, place]);
    b.def_var(answer, said);
    let is_ready = b.ins().icmp_imm_s(IntCC::Equal, said, READY as i64);
    b.ins().brif(is_ready, found, &[], suspends, &[]);

    b.switch_to_block(found);
    let number = b.use_var(at);
    let next = b.ins().iadd_imm_s(number, 1);
    b.def_var(at, next);
    b.ins().jump(header, &[]);

    // Everything that lives across the wait is in the frame then.
    b.switch_to_block(suspends);
    let number = b.use_var(at);
    b.ins().store(flags, number, memory, frame::AT);
    let said = b.use_var(answer);
    let [waits, ended_state] = [WAITS, ENDED].map(|state| b.ins().iconst(types::I64, state as i64));
    let has_panicked = b.ins().icmp_imm_s(IntCC::Equal, said, PANICKED as i64);
    let state = b.ins().select(has_panicked, ended_state, waits);
    b.ins().store(flags, state, memory, frame::STATE);
    b.ins().return_(&[said]);

    b.switch_to_block(ended);
    let [state, said] = [ENDED, READY].map(|word| b.ins().iconst(types::I64, word as i64));
    b.ins().store(flags, state, memory, frame::STATE);
    b.ins().return_(&[said]);
    b.seal_all_blocks();
    b.finalize(config);
    function
}

pub(crate) fn call_of(
    b: &mut FunctionBuilder<'_>,
    signature: cranelift_codegen::ir::SigRef,
    function: Value,
    arguments: &[Value],
) -> Value {
    let called = b.ins().call_indirect(signature, function, arguments);
    b.inst_results(called)[0]
}
