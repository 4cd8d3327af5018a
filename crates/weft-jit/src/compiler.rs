//! The compiler: makes code of programs, keeps it by the shapes of their runs, and shows it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, ir};
use weft_exec::compile::{Code, Compiler, ProbeShape, Scratch};
use weft_exec::program::{Program, Register};
use weft_exec::registers::Registers;
use weft_rt::memory::{Cache, Ledger};
use weft_store::ProbeCode;

use crate::call::{Function, Slot, execute};
use crate::emit::{self, OutputValidity};
use crate::native::{Pages, note_for_perf};
use crate::probe::{self, Probe, ProbeFunctions};
use crate::run::{Run, Shape, ranges, run};

/// Compiles programs for the processor that the process runs on.
pub struct JitCompiler {
    isa: OwnedTargetIsa,
    ledger: Ledger,
    kept: Mutex<Kept>,
    /// What has been compiled so far: steps, and how long that took.
    steps: AtomicU64,
    took_ns: AtomicU64,
}

/// Code by the keys of shapes.
#[derive(Default)]
struct Kept {
    code: HashMap<String, Arc<RunCode>>,
    probes: HashMap<ProbeShape, Arc<ProbeFunctions>>,
    bytes: u64,
}

/// The code of a shape.
#[derive(Debug)]
pub(crate) struct RunCode {
    pages: Pages,
    pub(crate) without_nulls: Function,
    pub(crate) with_nulls: Function,
    pub(crate) validity_without_nulls: Vec<OutputValidity>,
    pub(crate) validity_with_nulls: Vec<OutputValidity>,
}

/// Code that no pipeline uses takes no more than the budget divided by this number.
const KEPT_DIVISOR: u64 = 128;

/// How long it takes to compile a program without steps, and a step, before that was measured.
const PROGRAM_COST: Duration = Duration::from_micros(200);
const STEP_COST: Duration = Duration::from_micros(60);

impl JitCompiler {
    /// A compiler whose code counts in a budget. `None`, with a line in the log, where there is no code for the processor.
    pub fn new(ledger: &Ledger) -> Option<Arc<JitCompiler>> {
        let isa = match isa() {
            Ok(isa) => isa,
            Err(reason) => {
                log::info!(
                    "pipelines are interpreted, no code can be made for this processor: {reason}"
                );
                return None;
            }
        };
        let compiler = Arc::new(JitCompiler {
            isa,
            ledger: ledger.clone(),
            kept: Mutex::default(),
            steps: AtomicU64::new(0),
            took_ns: AtomicU64::new(0),
        });
        let weak: Weak<JitCompiler> = Arc::downgrade(&compiler);
        ledger.add_cache(weak);
        Some(compiler)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of code that is kept.
    pub fn kept_bytes(&self) -> u64 {
        self.kept().bytes
    }

    /// The code of a shape, and whether it was made now.
    fn code(&self, shape: &Shape) -> Option<(Arc<RunCode>, bool)> {
        let key = shape.key();
        if let Some(code) = self.kept().code.get(&key) {
            return Some((code.clone(), false));
        }
        let began = Instant::now();
        let code = Arc::new(self.compile_shape(shape)?);
        self.steps.fetch_add(shape.steps.len() as u64, Ordering::Relaxed);
        self.took_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let mut kept = self.kept();
        let gone = self.make_room(&mut kept);
        kept.bytes += code.pages.bytes();
        kept.code.insert(key, code.clone());
        drop(kept);
        drop(gone);
        Some((code, true))
    }

    fn compile_shape(&self, shape: &Shape) -> Option<RunCode> {
        let (without, validity_without_nulls) = self.function(shape, false, false)?;
        let (with, validity_with_nulls) = self.function(shape, true, false)?;
        let (pages, starts) = Pages::new(&[&without.bytes, &with.bytes], &self.ledger)?;
        let name = format!("weft::run_{:016x}", foldable_hash(&shape.key()));
        note_for_perf(
            &pages,
            &[
                (starts[0], without.bytes.len(), name.clone()),
                (starts[1], with.bytes.len(), format!("{name}_with_nulls")),
            ],
        );
        let [without_nulls, with_nulls] = [starts[0], starts[1]].map(|start| {
            // SAFETY: there is a function of this type, made of the shape. It is called only while the pages are there: `RunCode` has
            // both.
            unsafe { std::mem::transmute::<*const u8, Function>(pages.address(start)) }
        });
        Some(RunCode {
            pages,
            without_nulls,
            with_nulls,
            validity_without_nulls,
            validity_with_nulls,
        })
    }

    /// One of the two functions of a shape.
    fn function(
        &self,
        shape: &Shape,
        has_nulls: bool,
        is_shown: bool,
    ) -> Option<(Made, Vec<OutputValidity>)> {
        let (function, validity) = emit::function(
            shape,
            has_nulls,
            self.isa.frontend_config(),
            self.isa.default_call_conv(),
        );
        Some((made(&*self.isa, function, is_shown)?, validity))
    }

    /// The functions of a probe, and whether they were made now.
    fn probe_functions(&self, shape: &ProbeShape) -> Option<(Arc<ProbeFunctions>, bool)> {
        if let Some(functions) = self.kept().probes.get(shape) {
            return Some((functions.clone(), false));
        }
        let [ramp, resume] = self.made_probe(shape, false);
        let (ramp, resume) = (ramp?.bytes, resume?.bytes);
        let (pages, starts) = Pages::new(&[&ramp, &resume], &self.ledger)?;
        let named = [
            (starts[0], ramp.len(), "weft::probe_ramp".to_owned()),
            (starts[1], resume.len(), "weft::probe_resume".to_owned()),
        ];
        note_for_perf(&pages, &named);
        let functions = Arc::new(ProbeFunctions::new(pages, &starts));
        let gone = {
            let mut kept = self.kept();
            let gone = self.make_room(&mut kept);
            kept.bytes += functions.pages.bytes();
            kept.probes.insert(shape.clone(), functions.clone());
            gone
        };
        drop(gone);
        Some((functions, true))
    }

    /// The ramp and the resume function of a probe.
    pub(crate) fn made_probe(&self, shape: &ProbeShape, is_shown: bool) -> [Option<Made>; 2] {
        let (config, call) = (self.isa.frontend_config(), self.isa.default_call_conv());
        let functions =
            [probe::ramp_function(config, call), probe::resume_function(shape, config, call)];
        functions.map(|function| made(&*self.isa, function, is_shown))
    }

    /// All code that is kept, if it is too much.
    fn make_room(&self, kept: &mut Kept) -> Option<Kept> {
        let most = self.ledger.limit() / KEPT_DIVISOR;
        (kept.bytes > most).then(|| std::mem::take(kept))
    }

    fn runs_of(&self, program: &Program, reads: Option<&[Register]>) -> Vec<Run> {
        ranges(program).into_iter().map(|steps| run(program, steps, reads)).collect()
    }
}

/// A function's machine code, and if it is to be shown, the intermediate one and the processor's, in text.
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    texts: Option<(String, String)>,
}

/// Compiles a function that refers to nothing outside of it.
pub(crate) fn made(isa: &dyn TargetIsa, function: ir::Function, is_shown: bool) -> Option<Made> {
    let intermediate = is_shown.then(|| function.display().to_string());
    let mut context = Context::for_function(function);
    context.set_disasm(is_shown);
    match context.compile(isa, &mut ControlPlane::default()) {
        Ok(code) => {
            debug_assert!(code.buffer.relocs().is_empty(), "code refers to nothing outside");
            let texts = intermediate.map(|text| (text, code.vcode.clone().unwrap_or_default()));
            Some(Made { bytes: code.code_buffer().to_vec(), texts })
        }
        Err(error) => {
            log::error!("a pipeline is interpreted, its code cannot be made: {}", error.inner);
            None
        }
    }
}

/// The processor, and how code is made for it.
pub(crate) fn isa() -> Result<OwnedTargetIsa, String> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err("it is neither x86-64 nor AArch64".to_owned());
    }
    let mut flags = settings::builder();
    let verifies = if cfg!(debug_assertions) { "true" } else { "false" };
    let values = [("opt_level", "speed"), ("enable_verifier", verifies), ("unwind_info", "false")];
    for (name, value) in values {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let builder = cranelift_native::builder().map_err(str::to_owned)?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}

/// A number for a text, the same in each process.
fn foldable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl fmt::Debug for JitCompiler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JitCompiler").field("isa", &self.isa.name()).finish_non_exhaustive()
    }
}

impl Cache for JitCompiler {
    fn give_back(&self, _: u64) {
        let gone = std::mem::take(&mut *self.kept());
        drop(gone);
    }
}

impl Compiler for JitCompiler {
    fn runs(&self, program: &Program) -> Vec<Range<usize>> {
        ranges(program)
    }

    fn compile(&self, program: &Program, reads: Option<&[Register]>) -> Option<Arc<dyn Code>> {
        let (mut runs, mut bytes, mut took) = (Vec::new(), 0, Duration::ZERO);
        for run in self.runs_of(program, reads) {
            let began = Instant::now();
            let (code, is_new) = self.code(&run.shape)?;
            bytes += code.pages.bytes();
            if is_new {
                took += began.elapsed();
            }
            let constants = run.constants.iter().copied().map(Slot).collect();
            runs.push(Bound { code, run, constants });
        }
        (!runs.is_empty()).then(|| Arc::new(ProgramCode { runs, bytes, took }) as Arc<dyn Code>)
    }

    fn expected(&self, steps: usize) -> Duration {
        let (known, took_ns) =
            (self.steps.load(Ordering::Relaxed), self.took_ns.load(Ordering::Relaxed));
        let step = match known {
            0 => STEP_COST,
            known => Duration::from_nanos(took_ns / known),
        };
        PROGRAM_COST + step * u32::try_from(steps).unwrap_or(u32::MAX)
    }

    fn explain(&self, program: &Program, reads: Option<&[Register]>) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, run) in self.runs_of(program, reads).iter().enumerate() {
            let Range { start, end } = run.steps;
            lines.push(format!("run {number}: steps {start} to {}", end - 1));
            for (step, at) in program.steps[run.steps.clone()].iter().zip(start..) {
                lines.push(format!("  {at}: {step:?}"));
            }
            for (has_nulls, of) in [(false, "no nulls"), (true, "nulls")] {
                let Some((Made { bytes, texts: Some((code, machine)) }, _)) =
                    self.function(&run.shape, has_nulls, true)
                else {
                    continue;
                };
                lines.push(format!("  code for vectors with {of}:"));
                lines.extend(code.lines().map(|line| format!("    {line}")));
                lines.push(format!("  {} bytes of {} for them:", bytes.len(), self.isa.name()));
                lines.extend(machine.lines().map(|line| format!("    {line}")));
            }
        }
        lines
    }

    fn probe(&self, shape: &ProbeShape) -> Option<Arc<dyn ProbeCode>> {
        let began = Instant::now();
        let (functions, is_new) = self.probe_functions(shape)?;
        let took = if is_new { began.elapsed() } else { Duration::ZERO };
        Some(Arc::new(Probe { functions, shape: shape.clone(), took }))
    }

    fn explain_probe(&self, shape: &ProbeShape) -> Vec<String> {
        let keys = match &shape.keys {
            Some(keys) => format!("keys of {} integers made by it", keys.len()),
            None => "keys made by the interpreter".to_owned(),
        };
        let mut lines = vec![format!(
            "coroutine that looks up in the index, {} descents at a time, {keys}",
            probe::WINDOW
        )];
        let [ramp, resume] = self.made_probe(shape, true);
        lines.extend(shown(ramp, "its ramp", self.isa.name()));
        lines.extend(shown(resume, "its resume function", self.isa.name()));
        lines
    }
}

/// The two texts of a function, in lines.
fn shown(made: Option<Made>, name: &str, isa: &str) -> Vec<String> {
    let Some(Made { bytes, texts: Some((code, machine)) }) = made else { return Vec::new() };
    let mut lines = vec![format!("  {name}:")];
    lines.extend(code.lines().map(|line| format!("    {line}")));
    lines.push(format!("  {} bytes of {isa} for it:", bytes.len()));
    lines.extend(machine.lines().map(|line| format!("    {line}")));
    lines
}

/// The code of a program.
#[derive(Debug)]
struct ProgramCode {
    runs: Vec<Bound>,
    bytes: u64,
    took: Duration,
}

/// A run with its code.
#[derive(Debug)]
struct Bound {
    code: Arc<RunCode>,
    run: Run,
    constants: Vec<Slot>,
}

impl Code for ProgramCode {
    fn execute(&self, run: usize, registers: &mut Registers, scratch: &mut Scratch) -> bool {
        let Bound { code, run, constants } = &self.runs[run];
        execute(code, run, constants, registers, scratch)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn took(&self) -> Duration {
        self.took
    }
}
