//! The interpreter: runs a program a step at a time, each over all tuples that are selected (MonetDB/X100; Spilly's
//! fallback of its compiler).
//!
//! A worker has one for each pipeline that it works on. Tuples are loaded into its registers; [`Interpreter::advance`]
//! then runs the steps and stops wherever a batch of tuples has come through all of them. A step that expands makes
//! several batches of what was loaded: it is pushed on a stack when it has more than one, and taken up again when its
//! batch, and whatever later steps made of it, has gone to the sink.
//!
//! Steps of a pipeline that take long let others run in between: before them, and in the middle of calls (`calls.rs`) and of steps
//! that expand.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compile::{Tier, Tiered, Way};
use crate::error::Result;
use crate::expand::Expansion;
use crate::kernels::{self, filter};
use crate::pace::{Pace, TURN};
use crate::pipeline::{Flow, LocalSink};
use crate::profile::{Meter, PartName, timed_in};
use crate::program::{Program, Register, Step};
use crate::query::Context;
use crate::registers::Registers;
use crate::selection::Selection;

use call_clock::call_time;
use calls::Speed;

/// Runs a program. One worker's.
pub struct Interpreter {
    program: Arc<Program>,
    registers: Registers,
    /// For each step, where to go on if no tuple is selected: the middle or end of its scope, or the end of the
    /// program.
    skips: Vec<usize>,
    /// The states of those steps that expand.
    expansions: Vec<Option<Box<dyn Expansion>>>,
    /// Steps that have more batches, the last of them first.
    pending: Vec<usize>,
    /// Where tuples are that have not come through the steps from there on, or are to be made by the one there.
    next: Option<usize>,
    /// They have not come to the first step either.
    is_new: bool,
    /// What they wait for there.
    awaited: Awaited,
    /// They have waited there.
    has_waited: bool,
    /// Open ones, and behind them those that were, whose memory is used again.
    scopes: Vec<Scope>,
    open: usize,
    /// Tells the parts of the pipeline apart, if somebody wants to know.
    meter: Option<Meter>,
    /// When the steps went on that run now, if others are let run between them.
    turn: Option<Instant>,
    /// For each step that calls a function, how fast it was.
    speeds: Vec<Speed>,
    /// Executes runs of steps compiled, if there is a tier that does.
    tiered: Option<Tiered>,
}

/// Steps after which it is looked how long they have taken: a step of ours is some microseconds.
const STEPS_AT_ONCE: usize = 8;

/// What a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// That others were let run.
    Rest,
    /// That tuples are put aside.
    Aside,
    /// The first batch of what becomes of the tuples, or the next.
    First,
    Next,
    /// What a function gives.
    Call,
}

/// How far running the steps has led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Tuples have come through, and are selected in the registers.
    Tuples,
    /// None have, but there may be more.
    Nothing,
    /// A step waits: [`Interpreter::wait`] is to be awaited first.
    Waits,
    /// There are none left.
    Ended,
}

/// An open scope.
#[derive(Default)]
struct Scope {
    /// What was selected before.
    outer: Selection,
    /// What of it is selected after [`Step::Else`].
    otherwise: Selection,
}

impl Interpreter {
    /// An interpreter without tuples. Called when the pipelines that this one depends on have ended.
    ///
    /// # Panics
    /// If scopes of the program do not nest, or a step that expands is in one.
    pub fn new(program: Arc<Program>, context: &Context) -> Interpreter {
        let expansions = program
            .steps
            .iter()
            .map(|step| match step {
                Step::Expand(expand) => Some(expand.expansion(context)),
                _ => None,
            })
            .collect();
        Interpreter {
            registers: Registers::new(&program),
            skips: skips(&program.steps),
            expansions,
            pending: Vec::new(),
            next: None,
            is_new: false,
            awaited: Awaited::Rest,
            has_waited: false,
            scopes: Vec::new(),
            open: 0,
            meter: None,
            turn: None,
            speeds: vec![Speed::default(); program.steps.len()],
            tiered: None,
            program,
        }
    }

    /// The same for the program of a pipeline: it is measured if somebody wants to know, and lets others run.
    pub(crate) fn of_pipeline(self, context: &Context) -> Interpreter {
        let meter = context.profile().map(Meter::new);
        Interpreter { meter, turn: Some(Instant::now()), ..self }
    }

    /// The interpreter with runs of steps executed as the program's `tier` decides.
    pub fn with_tier(self, tier: Option<Arc<Tier>>) -> Interpreter {
        Interpreter { tiered: tier.map(Tiered::new), ..self }
    }

    /// From now on its steps let others run, or never wait.
    pub(crate) fn let_others_run(&mut self, lets_run: bool) {
        self.turn = lets_run.then(Instant::now);
    }

    /// What measures it, if somebody wants to know.
    pub(crate) fn meter(&mut self) -> Option<&mut Meter> {
        self.meter.as_mut()
    }

    /// What it runs.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The registers.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The registers, for tuples to be loaded into after [`Interpreter::begin`].
    pub fn registers_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }

    /// Begins with the next `rows` tuples and forgets the ones before. The caller then loads them.
    ///
    /// # Panics
    /// If they are more than [`VECTOR_ROWS_MAX`](crate::VECTOR_ROWS_MAX).
    pub fn begin(&mut self, rows: usize) {
        self.registers.begin(rows);
        self.pending.clear();
        self.open = 0;
        (self.next, self.is_new, self.has_waited) = (Some(0), true, false);
    }

    /// Runs the steps until tuples have come through all of them, which are then selected in the registers. False if
    /// there are none left, and the next are to be loaded.
    ///
    /// # Errors
    /// What a step gives. The tuples are lost then.
    ///
    /// # Panics
    /// If a step waits: some do where others are let run.
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            match self.advance_once()? {
                Advance::Tuples => return Ok(true),
                Advance::Nothing => {}
                Advance::Waits => unreachable!("nobody is here to wait"),
                Advance::Ended => return Ok(false),
            }
        }
    }

    /// Runs the steps once, on what was loaded or on the next batch of a step that expands: for those who let others
    /// run in between, however few tuples come through.
    ///
    /// # Errors
    /// What a step gives. The tuples are lost then.
    pub fn advance_once(&mut self) -> Result<Advance> {
        let start = if let Some(step) = self.next.take() {
            let rows = self.registers.selection.count();
            if let Some(meter) = &mut self.meter {
                match (std::mem::take(&mut self.is_new), self.has_waited) {
                    (true, _) => meter.begin(rows),
                    (false, true) => meter.go_on(),
                    (false, false) => meter.resume(step),
                }
            }
            self.has_waited = false;
            step
        } else if let Some(step) = self.pending.pop() {
            if let Some(meter) = &mut self.meter {
                meter.resume(step);
            }
            let expansion = self.expansions[step].as_mut().expect("a step that expands");
            if self.turn.is_some() && expansion.takes_long() {
                (self.next, self.awaited) = (Some(step), Awaited::Next);
                if let Some(meter) = &mut self.meter {
                    meter.stop();
                }
                return Ok(Advance::Waits);
            }
            if expansion.next(&mut self.registers)? {
                self.pending.push(step);
            }
            step + 1
        } else {
            return Ok(Advance::Ended);
        };
        self.turn = self.turn.map(|_| Instant::now());
        self.run_steps(start)?;
        let (rows, waits) = (self.registers.selection.count(), self.next.is_some());
        if let Some(meter) = &mut self.meter {
            if waits { meter.stop() } else { meter.end(rows) }
        }
        Ok(match rows {
            _ if waits => Advance::Waits,
            0 => Advance::Nothing,
            _ => Advance::Tuples,
        })
    }

    /// Waits for the step that [`Advance::Waits`] was about, which may make a batch, or lets others run before it.
    ///
    /// # Errors
    /// What the step gives. The tuples are lost then.
    pub async fn wait(&mut self, pace: &mut Pace) -> Result<()> {
        let Some(step) = self.next else { return Ok(()) };
        self.has_waited = true;
        let part = self.part_of(step);
        let (waited, ran) = match self.awaited {
            Awaited::Rest => {
                pace.rest().await;
                return Ok(());
            }
            Awaited::Aside => {
                let (expansion, registers) = self.expansion(step);
                timed_in(part, expansion.put_aside(registers)).await
            }
            Awaited::First | Awaited::Next => {
                let is_first = self.awaited == Awaited::First;
                self.next = Some(step + 1);
                let (expansion, registers) = self.expansion(step);
                let batch = match is_first {
                    true => expansion.begin_in_turns(registers, pace),
                    false => expansion.next_in_turns(registers, pace),
                };
                let (has_more, ran) = timed_in(part, batch).await;
                if let Ok(true) = has_more {
                    self.pending.push(step);
                }
                (has_more.map(|_| ()), ran)
            }
            Awaited::Call => {
                let Step::Call { function, inputs, out } = &self.program.steps[step] else {
                    unreachable!("no call")
                };
                let (registers, speed) = (&mut self.registers, &mut self.speeds[step]);
                self.next = Some(step + 1);
                let called = async {
                    pace.rest().await;
                    calls::run_in_turns(registers, function, inputs, *out, speed, pace).await
                };
                timed_in(part, called).await
            }
        };
        self.ran_step(step, ran);
        waited
    }

    /// No tuples will come any more to a step that may have put some aside; gives how many it has.
    ///
    /// # Errors
    /// What the step gives.
    pub async fn hand_over(&mut self, step: usize) -> Result<u64> {
        let part = self.part_of(step);
        let (handed_over, ran) = timed_in(part, self.expansion(step).0.hand_over()).await;
        self.ran_step(step, ran);
        handed_over
    }

    /// Begins with the next tuples that a step has put aside; false if there are none left.
    ///
    /// # Errors
    /// What the step gives.
    pub async fn serve(&mut self, step: usize) -> Result<bool> {
        debug_assert!(self.pending.is_empty() && self.open == 0, "all others have come through");
        let part = self.part_of(step);
        let (expansion, registers) = self.expansion(step);
        let (is_loaded, ran) = timed_in(part, expansion.serve(registers)).await;
        let is_loaded = is_loaded?;
        self.ran_step(step, ran);
        self.next = is_loaded.then_some(step);
        Ok(is_loaded)
    }

    /// The part of the pipeline that a step belongs to, if somebody wants to know.
    fn part_of(&self, step: usize) -> Option<PartName> {
        self.meter.as_ref().map(|meter| meter.part_of(step))
    }

    fn ran_step(&mut self, step: usize, ran: Duration) {
        if let Some(meter) = &mut self.meter {
            meter.ran_step(step, ran);
        }
    }

    /// A step that expands.
    fn expansion(&mut self, step: usize) -> (&mut dyn Expansion, &mut Registers) {
        let expansion = self.expansions[step].as_mut().expect("a step that expands");
        (&mut **expansion, &mut self.registers)
    }

    /// Runs the steps on the tuples that were loaded and hands `sink` each batch that comes through. [`Flow::Enough`]
    /// as soon as the sink wants no more.
    ///
    /// # Errors
    /// What a step or the sink gives.
    pub async fn run(&mut self, sink: &mut dyn LocalSink) -> Result<Flow> {
        while self.advance()? {
            if sink.push(&mut self.registers).await? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// Runs the steps from `at` on, to the end or until nothing is selected.
    fn run_steps(&mut self, mut at: usize) -> Result<()> {
        let program = Arc::clone(&self.program);
        while let Some(step) = program.steps.get(at) {
            if self.registers.selection.count() == 0 && !matches!(step, Step::Else | Step::End) {
                at = self.skips[at];
                continue;
            }
            if let Some(meter) = &mut self.meter {
                meter.reach(at, self.registers.selection.count());
            }
            if let Some(tiered) = &mut self.tiered {
                let rows = self.registers.selection.count();
                let end = match tiered.reach(at, &mut self.registers) {
                    Way::Interpreted => None,
                    Way::Executed(end) => Some(end),
                    Way::Measured(run, end) => {
                        self.interpret_run(at..end)?;
                        if let Some(tiered) = &mut self.tiered {
                            tiered.measured(run, rows);
                        }
                        Some(end)
                    }
                };
                if let Some(end) = end {
                    if let Some(meter) = &mut self.meter {
                        (at + 1..end).for_each(|step| meter.reach(step, rows));
                    }
                    at = end;
                    if at < program.steps.len() && self.is_turn_over() {
                        (self.next, self.awaited) = (Some(at), Awaited::Rest);
                        return Ok(());
                    }
                    continue;
                }
            }
            match step {
                Step::Expand(_) => {
                    let expansion = self.expansions[at].as_mut().expect("a step that expands");
                    if expansion.puts_aside(&self.registers) {
                        (self.next, self.awaited) = (Some(at), Awaited::Aside);
                        return Ok(());
                    }
                    if self.turn.is_some() && expansion.takes_long() {
                        (self.next, self.awaited) = (Some(at), Awaited::First);
                        return Ok(());
                    }
                    if expansion.begin(&mut self.registers)? {
                        self.pending.push(at);
                    }
                }
                Step::Call { inputs, .. } => {
                    let units = calls::units(&self.registers, inputs);
                    if let Some(since) = self.turn
                        && !self.speeds[at].fits(units, (2 * TURN).saturating_sub(since.elapsed()))
                    {
                        (self.next, self.awaited) = (Some(at), Awaited::Call);
                        return Ok(());
                    }
                    let before = self.turn.map(|_| call_time());
                    kernels::run(step, &mut self.registers)?;
                    if let Some(before) = before {
                        self.speeds[at].note(units, call_time().saturating_sub(before));
                    }
                }
                step => self.run_step(at, step)?,
            }
            at += 1;
            if at.is_multiple_of(STEPS_AT_ONCE) && at < program.steps.len() && self.is_turn_over() {
                (self.next, self.awaited) = (Some(at), Awaited::Rest);
                return Ok(());
            }
        }
        Ok(())
    }

    /// True if others are to be let run now.
    fn is_turn_over(&self) -> bool {
        self.turn.is_some_and(|since| since.elapsed() >= TURN)
    }

    /// Runs a step that neither expands nor calls a function.
    fn run_step(&mut self, at: usize, step: &Step) -> Result<()> {
        match step {
            Step::Filter { condition } => filter::keep_true(&mut self.registers, *condition),
            Step::MayMatch { keys, hash, filter } => {
                filter.keep(&mut self.registers, keys, *hash);
            }
            Step::Begin { condition, when } => self.begin_scope(at, *condition, *when),
            Step::Else => {
                let scope = &mut self.scopes[self.open - 1];
                self.registers.selection.copy_from(&scope.otherwise);
            }
            Step::End => {
                self.open -= 1;
                let scope = &mut self.scopes[self.open];
                std::mem::swap(&mut self.registers.selection, &mut scope.outer);
            }
            step => kernels::run(step, &mut self.registers)?,
        }
        Ok(())
    }

    /// Runs all steps of a run, whose scopes begin and end in it.
    fn interpret_run(&mut self, run: Range<usize>) -> Result<()> {
        let program = Arc::clone(&self.program);
        let mut at = run.start;
        while at < run.end {
            let step = &program.steps[at];
            if self.registers.selection.count() == 0 && !matches!(step, Step::Else | Step::End) {
                // The end of a scope around the run lies behind it.
                at = self.skips[at];
                continue;
            }
            self.run_step(at, step)?;
            at += 1;
        }
        Ok(())
    }

    fn begin_scope(&mut self, at: usize, condition: Register, when: bool) {
        if self.scopes.len() == self.open {
            self.scopes.push(Scope::default());
        }
        let scope = &mut self.scopes[self.open];
        self.open += 1;
        scope.outer.copy_from(&self.registers.selection);
        // Where nothing is selected, the step after this one goes to the scope's middle, if it has one, or end.
        let middle = self.skips[at + 1];
        if matches!(self.program.steps[middle], Step::Else) {
            filter::keep(&mut self.registers, condition, !when);
            scope.otherwise.copy_from(&self.registers.selection);
            self.registers.selection.copy_from(&scope.outer);
        }
        filter::keep(&mut self.registers, condition, when);
    }
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Interpreter")
            .field("program", &self.program)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

/// Where each step is skipped to if nothing is selected. [`Step::Else`] and [`Step::End`] lead to themselves.
fn skips(steps: &[Step]) -> Vec<usize> {
    let mut skips = vec![steps.len(); steps.len()];
    // From the back: the middles and ends of the scopes that a step is in, and whether they are middles.
    let mut closing: Vec<(usize, bool)> = Vec::new();
    for (at, step) in steps.iter().enumerate().rev() {
        match step {
            Step::End => closing.push((at, false)),
            Step::Else => {
                let closed = closing.pop().expect("ELSE in a scope");
                assert!(!closed.1, "one ELSE in a scope");
                closing.push((at, true));
            }
            Step::Begin { .. } => {
                closing.pop().expect("a scope that ends");
            }
            Step::Expand(_) => assert!(closing.is_empty(), "a step that expands in a scope"),
            _ => {}
        }
        if let Some((closing, _)) = closing.last() {
            skips[at] = *closing;
        }
    }
    assert!(closing.is_empty(), "a scope that begins");
    skips
}

mod call_clock;
mod calls;
#[cfg(test)]
mod tests;
