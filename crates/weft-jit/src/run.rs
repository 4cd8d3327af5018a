//! Runs: parts of programs that have code, and their shapes.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

use weft_exec::lane::Lane;
use weft_exec::program::{Arithmetic, Constant, Operand, Program, Register, Step};

/// Most registers of a run, and most constants: the arguments of its function lie on the stack.
const REGISTERS_MAX: usize = 96;

/// A part of a program, as its shape and what the shape leaves open.
#[derive(Clone, Debug)]
pub struct Run {
    /// What code is made of.
    pub shape: Shape,
    /// The program's register for each register of the shape.
    pub registers: Vec<Register>,
    /// The constants, in the order in which steps have them, as 16 bytes each.
    pub constants: Vec<i128>,
    /// The steps of the program.
    pub steps: Range<usize>,
}

/// Steps with registers numbered from 0 in the order in which they appear, and without the values of constants.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The lane of each register.
    pub lanes: Vec<Lane>,
    /// The steps. Constants are zeros of their lanes.
    pub steps: Vec<Step>,
    /// Registers that are read and not written before, and whether their values are read, or only whether they are null.
    pub inputs: Vec<(Register, bool)>,
    /// Registers that steps or sinks outside of the run may read.
    pub outputs: Vec<Register>,
    /// Registers that [`Step::Assign`] writes and nothing in the run has written before: rows that are not assigned keep what they have.
    pub kept: Vec<Register>,
}

impl Shape {
    /// The lane of an operand.
    pub fn lane(&self, operand: &Operand) -> Lane {
        match operand {
            Operand::Register(register) => self.lanes[register.index()],
            Operand::Constant(constant) => constant.lane(),
        }
    }

    /// True if the last step is a filter that narrows the selection for good.
    pub fn filters(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Filter { .. }))
    }

    /// Equal for shapes that have the same code.
    pub fn key(&self) -> String {
        let mut key = String::new();
        let Shape { lanes, steps, inputs, outputs, kept } = self;
        let written = write!(key, "{lanes:?}{steps:?}{inputs:?}{outputs:?}{kept:?}");
        debug_assert!(written.is_ok(), "writing to a string never fails");
        key
    }
}

/// The runs of a program.
pub fn ranges(program: &Program) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < program.steps.len() {
        let end = end_of_run(program, at);
        if end > at && program.steps[at..end].iter().any(computes) {
            ranges.push(at..end);
        }
        at = end.max(at + 1);
    }
    ranges
}

/// True for a step that is more than a copy.
fn computes(step: &Step) -> bool {
    !matches!(
        step,
        Step::Fill { .. } | Step::Assign { .. } | Step::Filter { .. } | Step::Begin { .. }
    ) && !matches!(step, Step::Else | Step::End)
}

/// Where the run that begins at a step ends: at a filter for good, before the first step without code, and before whatever reads a
/// register that the run assigns and has not written as a whole.
fn end_of_run(program: &Program, start: usize) -> usize {
    let mut at = start;
    let mut count = 0;
    while let Some(step) = program.steps.get(at) {
        let end = match step {
            Step::Begin { .. } => end_of_scope(program, at),
            Step::Else | Step::End => break,
            _ => at + 1,
        };
        let steps = &program.steps[at..end];
        count += steps.len();
        if count > REGISTERS_MAX / 3 || !steps.iter().all(|step| has_code(program, step)) {
            break;
        }
        if reads_kept(&program.steps[start..end]) {
            break;
        }
        at = end;
        if matches!(step, Step::Filter { .. }) {
            break;
        }
    }
    at
}

/// The step after the end of a scope.
fn end_of_scope(program: &Program, begin: usize) -> usize {
    let mut open = 0;
    for (at, step) in program.steps.iter().enumerate().skip(begin) {
        match step {
            Step::Begin { .. } => open += 1,
            Step::End => open -= 1,
            _ => {}
        }
        if open == 0 {
            return at + 1;
        }
    }
    unreachable!("scopes nest")
}

/// True if a register is read that is assigned before anything has written it as a whole: if the run fails in the middle, it has
/// lost what the interpreter would read.
fn reads_kept(steps: &[Step]) -> bool {
    let mut written = Vec::new();
    let mut kept = Vec::new();
    for step in steps {
        if let Some(out) = output(step) {
            match step {
                Step::Assign { .. } if !written.contains(&out) => kept.push(out),
                _ => written.push(out),
            }
        }
    }
    let mut reads = false;
    for step in steps {
        step.reads(|register| reads |= kept.contains(&register));
    }
    reads
}

/// The register that a step writes.
pub(crate) fn output(step: &Step) -> Option<Register> {
    match step {
        Step::Arithmetic { out, .. }
        | Step::Negate { out, .. }
        | Step::Canonical { out, .. }
        | Step::Rescale { out, .. }
        | Step::Compare { out, .. }
        | Step::And { out, .. }
        | Step::Or { out, .. }
        | Step::Not { out, .. }
        | Step::IsNull { out, .. }
        | Step::Cast { out, .. }
        | Step::Fill { out, .. }
        | Step::Assign { out, .. } => Some(*out),
        _ => None,
    }
}

/// True if a step has code.
fn has_code(program: &Program, step: &Step) -> bool {
    let lane = |register: &Register| program.registers[register.index()];
    match step {
        Step::Arithmetic { op: Arithmetic::Remainder, out, .. } => {
            !matches!(lane(out), Lane::F32 | Lane::F64)
        }
        Step::Arithmetic { .. }
        | Step::Negate { .. }
        | Step::Canonical { .. }
        | Step::And { .. }
        | Step::Or { .. }
        | Step::Not { .. }
        | Step::IsNull { .. }
        | Step::Filter { .. }
        | Step::Begin { .. }
        | Step::Else
        | Step::End => true,
        Step::Rescale { digits, .. } => digits.unsigned_abs() <= 38,
        Step::Digits { .. } => true,
        Step::Compare { a, .. } => program.lane(a) != Lane::Str,
        Step::Cast { a, out, .. } => {
            // Floats as integers of 128 bits, which no instruction makes.
            !(matches!(lane(a), Lane::F32 | Lane::F64) && lane(out) == Lane::I128)
        }
        Step::Fill { out, .. } | Step::Assign { out, .. } => lane(out) != Lane::Str,
        _ => false,
    }
}

/// The run at some steps of a program. `reads` are the registers that the sink reads, if they are known.
pub fn run(program: &Program, steps: Range<usize>, reads: Option<&[Register]>) -> Run {
    let mut naming =
        Naming { program, names: HashMap::new(), registers: Vec::new(), constants: Vec::new() };
    let renamed: Vec<Step> =
        program.steps[steps.clone()].iter().map(|step| naming.step(step)).collect();
    let Naming { registers, constants, .. } = naming;
    let lanes: Vec<Lane> =
        registers.iter().map(|register| program.registers[register.index()]).collect();
    let mut shape = Shape { lanes, steps: renamed, ..Shape::default() };
    let mut written: Vec<Register> = Vec::new();
    for step in &shape.steps {
        let values = !matches!(step, Step::IsNull { .. });
        step.reads(|register| {
            if written.contains(&register) {
                return;
            }
            match shape.inputs.iter_mut().find(|(input, _)| *input == register) {
                Some((_, reads_values)) => *reads_values |= values,
                None => shape.inputs.push((register, values)),
            }
        });
        if let Some(out) = output(step)
            && !written.contains(&out)
        {
            if matches!(step, Step::Assign { .. }) {
                shape.kept.push(out);
            }
            written.push(out);
        }
    }
    let read_elsewhere = read_outside(program, &steps, reads);
    shape.outputs = written
        .into_iter()
        .filter(|out| {
            let of_program = registers[out.index()];
            shape.kept.contains(out)
                || read_elsewhere.as_ref().is_none_or(|read| read.contains(&of_program))
        })
        .collect();
    Run { shape, registers, constants, steps }
}

/// The registers that something outside of some steps reads; `None` if that may be any.
fn read_outside(
    program: &Program,
    steps: &Range<usize>,
    reads: Option<&[Register]>,
) -> Option<Vec<Register>> {
    let mut read = reads?.to_vec();
    for (number, step) in program.steps.iter().enumerate() {
        if !steps.contains(&number) && !step.reads(|register| read.push(register)) {
            return None;
        }
    }
    Some(read)
}

/// Gives registers their numbers in a shape, and takes constants out.
struct Naming<'a> {
    program: &'a Program,
    names: HashMap<Register, Register>,
    registers: Vec<Register>,
    constants: Vec<i128>,
}

impl Naming<'_> {
    fn register(&mut self, register: Register) -> Register {
        *self.names.entry(register).or_insert_with(|| {
            self.registers.push(register);
            Register(self.registers.len() as u16 - 1)
        })
    }

    fn operand(&mut self, operand: &Operand) -> Operand {
        match operand {
            Operand::Register(register) => Operand::Register(self.register(*register)),
            Operand::Constant(constant) => Operand::Constant(self.constant(constant)),
        }
    }

    fn constant(&mut self, constant: &Constant) -> Constant {
        self.constants.push(bits(constant));
        zero(constant.lane())
    }

    fn step(&mut self, step: &Step) -> Step {
        debug_assert!(has_code(self.program, step), "{step:?}");
        match step {
            Step::Arithmetic { op, a, b, out, overflow } => {
                let (a, b, out) = (self.operand(a), self.operand(b), self.register(*out));
                Step::Arithmetic { op: *op, a, b, out, overflow: *overflow }
            }
            Step::Negate { a, out, overflow } => {
                let (a, out) = (self.register(*a), self.register(*out));
                Step::Negate { a, out, overflow: *overflow }
            }
            Step::Canonical { a, out } => {
                Step::Canonical { a: self.register(*a), out: self.register(*out) }
            }
            Step::Rescale { a, digits, out, overflow } => {
                let (a, out) = (self.register(*a), self.register(*out));
                Step::Rescale { a, digits: *digits, out, overflow: *overflow }
            }
            Step::Digits { a, digits } => Step::Digits { a: self.register(*a), digits: *digits },
            Step::Compare { op, a, b, out } => {
                let (a, b, out) = (self.operand(a), self.operand(b), self.register(*out));
                Step::Compare { op: *op, a, b, out }
            }
            Step::And { a, b, out } => {
                Step::And { a: self.register(*a), b: self.register(*b), out: self.register(*out) }
            }
            Step::Or { a, b, out } => {
                Step::Or { a: self.register(*a), b: self.register(*b), out: self.register(*out) }
            }
            Step::Not { a, out } => Step::Not { a: self.register(*a), out: self.register(*out) },
            Step::IsNull { a, negated, out } => {
                let (a, out) = (self.register(*a), self.register(*out));
                Step::IsNull { a, negated: *negated, out }
            }
            Step::Cast { a, out, failure } => {
                let (a, out) = (self.register(*a), self.register(*out));
                Step::Cast { a, out, failure: *failure }
            }
            Step::Fill { value, out } => {
                let value = value.as_ref().map(|value| self.constant(value));
                Step::Fill { value, out: self.register(*out) }
            }
            Step::Assign { a, out } => {
                Step::Assign { a: self.operand(a), out: self.register(*out) }
            }
            Step::Filter { condition } => Step::Filter { condition: self.register(*condition) },
            Step::Begin { condition, when } => {
                Step::Begin { condition: self.register(*condition), when: *when }
            }
            other => other.clone(),
        }
    }
}

/// The bits of a constant; those of strings, which have no code, are nothing.
fn bits(constant: &Constant) -> i128 {
    match constant {
        Constant::Bool(value) => i128::from(*value),
        Constant::F32(value) => value.to_bits().into(),
        Constant::F64(value) => value.to_bits().into(),
        Constant::Str(_) => 0,
        other => other.integer().unwrap_or_default(),
    }
}

fn zero(lane: Lane) -> Constant {
    match lane {
        Lane::Bool => Constant::Bool(false),
        Lane::F32 => Constant::F32(0.0),
        Lane::F64 => Constant::F64(0.0),
        Lane::Str => Constant::Str([].into()),
        lane => Constant::of_integer(0, lane).unwrap_or(Constant::I64(0)),
    }
}
