//! Compiled code beside the interpreter: what a compiler of programs promises, and the *tier* of a pipeline, which decides
//! when its program is compiled and which of its runs are executed compiled.
//!
//! A *run* is a part of a program's steps, one after the other, of which a compiler makes one function over a vector. The
//! interpreter begins at once. Runs are measured, a few vectors each; where tuples are left for so long that compiling pays, the
//! program is compiled on a thread of its own, and all workers take the code at their next vector. Each run is then measured both
//! ways, and goes on the faster way: a compiler that generates scalar code loses where kernels use vector instructions.
//!
//! The interpreter is the reference. Code that meets an error says so and leaves the vector to the interpreter, which finds the
//! same error again, with its text.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use weft_rt::background;
use weft_store::ProbeCode;

use crate::program::{Operand, Program, Register, Step};
use crate::registers::Registers;

mod probe;

pub(crate) use probe::ProbeTier;
pub use probe::{KeyField, ProbeShape};

/// Makes code of programs.
pub trait Compiler: fmt::Debug + Send + Sync {
    /// The runs that it has code for, in order. They do not overlap.
    fn runs(&self, program: &Program) -> Vec<Range<usize>>;

    /// Compiles the runs of a program. `reads` are the registers that the pipeline's sink reads, if they are known. `None` if
    /// there is nothing to compile, or no memory for code.
    fn compile(&self, program: &Program, reads: Option<&[Register]>) -> Option<Arc<dyn Code>>;

    /// About how long it takes to compile so many steps, as far as was measured.
    fn expected(&self, steps: usize) -> Duration;

    /// The runs of a program, the code that they become, and that of the processor, in lines of text.
    fn explain(&self, program: &Program, reads: Option<&[Register]>) -> Vec<String>;

    /// Code that looks tuples up in an index: a coroutine. `None` if it cannot be made, or there is no memory for it.
    fn probe(&self, shape: &ProbeShape) -> Option<Arc<dyn ProbeCode>>;

    /// The code of a probe, as by [`Compiler::explain`].
    fn explain_probe(&self, shape: &ProbeShape) -> Vec<String>;
}

/// Compiled runs of one program.
pub trait Code: fmt::Debug + Send + Sync {
    /// Executes the `run`th of [`Compiler::runs`] on the selected tuples. False if it did not: a tuple has an error, or a
    /// register lacks values. Nothing that the run reads has been changed then, nor has the selection.
    fn execute(&self, run: usize, registers: &mut Registers, scratch: &mut Scratch) -> bool;

    /// Bytes of machine code.
    fn bytes(&self) -> u64;

    /// How long it took to compile, all of it; zero for what was compiled before.
    fn took(&self) -> Duration;
}

/// Memory of a worker that code writes to before it is looked at: truth values and selections.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A byte for each row and register whose nulls the code computes.
    pub bytes: Vec<u8>,
    /// Rows that a filter keeps.
    pub rows: Vec<u16>,
}

/// When programs are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompileMode {
    /// When it pays, as far as was measured.
    Auto,
    /// Before their pipelines begin; all runs are executed compiled.
    Always,
    /// Never. The default, as the interpreter is ahead where most rows are selected.
    #[default]
    Never,
}

impl CompileMode {
    /// All modes.
    pub const ALL: [CompileMode; 3] = [CompileMode::Auto, CompileMode::Always, CompileMode::Never];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CompileMode::Auto => "auto",
            CompileMode::Always => "always",
            CompileMode::Never => "never",
        }
    }
}

/// What compiles the programs of a query, and when.
#[derive(Clone, Debug)]
pub struct Compiling {
    /// The compiler.
    pub compiler: Arc<dyn Compiler>,
    /// When.
    pub mode: CompileMode,
}

/// What was compiled of a pipeline, and what it executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compilation {
    /// Runs of the program, and how many of them were executed compiled in the end.
    pub runs: usize,
    /// See [`Compilation::runs`].
    pub runs_compiled: usize,
    /// True if there was code.
    pub is_compiled: bool,
    /// How long it took to compile.
    pub took: Duration,
    /// Bytes of machine code.
    pub bytes: u64,
    /// Executions of runs over a vector, and those of them that were compiled.
    pub batches: u64,
    /// See [`Compilation::batches`].
    pub batches_compiled: u64,
}

/// The tier of a pipeline: shared by its workers.
#[derive(Debug)]
pub struct Tier {
    compiling: Compiling,
    program: Arc<Program>,
    reads: Option<Vec<Register>>,
    runs: Vec<Run>,
    code: OnceLock<Option<Arc<dyn Code>>>,
    is_asked: AtomicBool,
    /// Tuples of the source that are left, as far as is known.
    left: AtomicU64,
}

/// A run, and what was measured of it.
#[derive(Debug)]
struct Run {
    steps: Range<usize>,
    interpreted: Measured,
    compiled: Measured,
    /// One of [`UNDECIDED`], [`COMPILED`] and [`INTERPRETED`].
    verdict: AtomicU8,
    /// Vectors, measured or not, in total and compiled.
    batches: AtomicU64,
    batches_compiled: AtomicU64,
}

const UNDECIDED: u8 = 0;
const COMPILED: u8 = 1;
const INTERPRETED: u8 = 2;

#[derive(Debug, Default)]
struct Measured {
    batches: AtomicU64,
    rows: AtomicU64,
    ns: AtomicU64,
}

/// Vectors of which one is measured until there is code.
const MEASURED_ONE_IN: u64 = 4;
/// Vectors that are measured each way before a run is decided.
const TRIALS: u64 = 6;
/// The part of the time of interpreted runs that compiling is expected to save, in percent, before that was measured.
const SAVED_PERCENT: u64 = 25;
/// Compiled runs must be faster by this part, in percent, to be preferred.
const FASTER_PERCENT: u64 = 3;

impl Measured {
    fn note(&self, rows: usize, ns: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Picoseconds for a row.
    fn row_ps(&self) -> u64 {
        let rows = self.rows.load(Ordering::Relaxed).max(1);
        (u128::from(self.ns.load(Ordering::Relaxed)) * 1000 / u128::from(rows)) as u64
    }
}

impl Tier {
    /// The tier of a program whose sink reads these registers; `None` if nothing of it is ever compiled.
    pub fn new(
        compiling: &Compiling,
        program: &Arc<Program>,
        reads: Option<Vec<Register>>,
    ) -> Option<Arc<Tier>> {
        if compiling.mode == CompileMode::Never {
            return None;
        }
        let run = |steps| Run {
            steps,
            interpreted: Measured::default(),
            compiled: Measured::default(),
            verdict: AtomicU8::new(UNDECIDED),
            batches: AtomicU64::new(0),
            batches_compiled: AtomicU64::new(0),
        };
        let runs: Vec<Run> = compiling.compiler.runs(program).into_iter().map(run).collect();
        if runs.is_empty() {
            return None;
        }
        let tier = Tier {
            compiling: compiling.clone(),
            program: program.clone(),
            reads,
            runs,
            code: OnceLock::new(),
            is_asked: AtomicBool::new(false),
            left: AtomicU64::new(0),
        };
        if compiling.mode == CompileMode::Always {
            tier.compile();
        }
        Some(Arc::new(tier))
    }

    /// So many tuples of the source are left; 0 if that is not known.
    pub(crate) fn note_left(&self, tuples: u64) {
        self.left.store(tuples, Ordering::Relaxed);
    }

    /// What was compiled and executed.
    pub fn compilation(&self) -> Compilation {
        let code = self.code.get().and_then(Option::as_ref);
        let count = |of: fn(&Run) -> &AtomicU64| {
            self.runs.iter().map(|run| of(run).load(Ordering::Relaxed)).sum()
        };
        let is_always = self.compiling.mode == CompileMode::Always;
        let is_compiled = |run: &&Run| {
            code.is_some() && (is_always || run.verdict.load(Ordering::Relaxed) == COMPILED)
        };
        Compilation {
            runs: self.runs.len(),
            runs_compiled: self.runs.iter().filter(is_compiled).count(),
            is_compiled: code.is_some(),
            took: code.map_or(Duration::ZERO, |code| code.took()),
            bytes: code.map_or(0, |code| code.bytes()),
            batches: count(|run| &run.batches),
            batches_compiled: count(|run| &run.batches_compiled),
        }
    }

    fn compile(&self) {
        self.code
            .get_or_init(|| self.compiling.compiler.compile(&self.program, self.reads.as_deref()));
    }

    /// Has the program compiled on another thread if that is expected to pay.
    fn consider(self: &Arc<Tier>) {
        if self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let (mut saved_ns, mut steps) = (0, 0);
        for run in &self.runs {
            let rows = run.interpreted.rows.load(Ordering::Relaxed) * MEASURED_ONE_IN;
            // As many as have come come again if nothing is known of the rest.
            let left = match self.left.load(Ordering::Relaxed) {
                0 => rows,
                left => left,
            };
            saved_ns += run.interpreted.row_ps() * left / 1000 * SAVED_PERCENT / 100;
            steps += run.steps.len();
        }
        if u128::from(saved_ns) < self.compiling.compiler.expected(steps).as_nanos() {
            return;
        }
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            let tier = self.clone();
            if let Err(error) = background::spawn("weft-compile", move || tier.compile()) {
                log::warn!("no thread to compile on, queries are interpreted: {error}");
            }
        }
    }
}

/// A worker's view of a tier.
pub(crate) struct Tiered {
    tier: Arc<Tier>,
    /// For each step, the run that it begins.
    begins: Vec<Option<u32>>,
    scratch: Scratch,
    began: Option<Instant>,
}

/// How the interpreter goes on at the beginning of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With the step after the run, which was executed.
    Executed(usize),
    /// With the run's steps, up to this one, after which [`Tiered::measured`] is called.
    Measured(usize, usize),
    /// With the next step.
    Interpreted,
}

impl Tiered {
    pub(crate) fn new(tier: Arc<Tier>) -> Tiered {
        let mut begins = vec![None; tier.program.steps.len()];
        for (number, run) in tier.runs.iter().enumerate() {
            begins[run.steps.start] = Some(number as u32);
        }
        Tiered { tier, begins, scratch: Scratch::default(), began: None }
    }

    /// Tuples come to a step.
    pub(crate) fn reach(&mut self, step: usize, registers: &mut Registers) -> Way {
        let Some(number) = self.begins[step] else { return Way::Interpreted };
        let number = number as usize;
        let run = &self.tier.runs[number];
        let batch = run.batches.fetch_add(1, Ordering::Relaxed);
        let Some(code) = self.tier.code.get() else {
            if !batch.is_multiple_of(MEASURED_ONE_IN) {
                return Way::Interpreted;
            }
            self.began = Some(Instant::now());
            return Way::Measured(number, run.steps.end);
        };
        let Some(code) = code else { return Way::Interpreted };
        let verdict = match self.tier.compiling.mode {
            CompileMode::Always => COMPILED,
            _ => run.verdict.load(Ordering::Relaxed),
        };
        match verdict {
            INTERPRETED => return Way::Interpreted,
            UNDECIDED if !batch.is_multiple_of(2) => {
                self.began = Some(Instant::now());
                return Way::Measured(number, run.steps.end);
            }
            _ => {}
        }
        let (rows, began) =
            (registers.selection.count(), (verdict == UNDECIDED).then(Instant::now));
        let is_executed = code.execute(number, registers, &mut self.scratch);
        if let Some(began) = began {
            run.compiled
                .note(if is_executed { rows } else { 0 }, began.elapsed().as_nanos() as u64);
        }
        if !is_executed {
            return Way::Interpreted;
        }
        run.batches_compiled.fetch_add(1, Ordering::Relaxed);
        Way::Executed(run.steps.end)
    }

    /// A run was interpreted for so many tuples, and is measured.
    pub(crate) fn measured(&mut self, run: usize, rows: usize) {
        let Some(began) = self.began.take() else { return };
        let measured = &self.tier.runs[run];
        measured.interpreted.note(rows, began.elapsed().as_nanos() as u64);
        if self.tier.code.get().is_none() {
            self.tier.consider();
            return;
        }
        let (compiled, interpreted) = (&measured.compiled, &measured.interpreted);
        if compiled.batches() >= TRIALS && interpreted.batches() >= TRIALS {
            let is_faster = compiled.row_ps() * (100 + FASTER_PERCENT) < interpreted.row_ps() * 100;
            let verdict = if is_faster { COMPILED } else { INTERPRETED };
            measured.verdict.store(verdict, Ordering::Relaxed);
        }
    }
}

impl Step {
    /// Calls `read` with each register that the step reads. False if the step may read others, too.
    pub fn reads(&self, mut read: impl FnMut(Register)) -> bool {
        let of_operand = |operand: &Operand, read: &mut dyn FnMut(Register)| {
            if let Operand::Register(register) = operand {
                read(*register);
            }
        };
        match self {
            Step::Arithmetic { a, b, .. } | Step::Compare { a, b, .. } => {
                of_operand(a, &mut read);
                of_operand(b, &mut read);
            }
            Step::Assign { a, .. } => of_operand(a, &mut read),
            Step::Negate { a, .. }
            | Step::Canonical { a, .. }
            | Step::Rescale { a, .. }
            | Step::Digits { a, .. }
            | Step::Not { a, .. }
            | Step::IsNull { a, .. }
            | Step::Cast { a, .. }
            | Step::Like { a, .. }
            | Step::In { a, .. }
            | Step::Substring { a, .. }
            | Step::Length { a, .. }
            | Step::Extract { a, .. } => read(*a),
            Step::And { a, b, .. } | Step::Or { a, b, .. } => {
                read(*a);
                read(*b);
            }
            Step::Filter { condition } | Step::Begin { condition, .. } => read(*condition),
            Step::Call { inputs, .. } => inputs.iter().for_each(|input| read(*input)),
            Step::Hash { keys, .. } | Step::MayMatch { keys, .. } => {
                keys.iter().for_each(|key| read(*key));
            }
            Step::Load { tuples, .. } => read(*tuples),
            Step::Fill { .. } | Step::Else | Step::End => {}
            Step::Expand(expand) => match expand.reads() {
                Some(registers) => registers.into_iter().for_each(read),
                None => return false,
            },
        }
        true
    }
}
