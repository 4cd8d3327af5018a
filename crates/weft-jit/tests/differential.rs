//! Random programs, interpreted and compiled: the same values, nulls, selections and errors, over vectors of several sizes, with
//! extremes of integers, NaN and both zeros, and decimals.

use std::sync::Arc;

use weft_exec::compile::{CompileMode, Compiling, Tier};
use weft_exec::interpret::Interpreter;
use weft_exec::lane::{Bool, Lane};
use weft_exec::program::{
    Arithmetic, CastFailure, Comparison, Constant, Operand, Overflow, Program, Register, Step,
};
use weft_exec::query::Context;
use weft_exec::registers::Registers;
use weft_exec::{Vector, for_lane};
use weft_jit::JitCompiler;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

const NUMBERS: [Lane; 12] = [
    Lane::Bool,
    Lane::I8,
    Lane::I16,
    Lane::I32,
    Lane::I64,
    Lane::U8,
    Lane::U16,
    Lane::U32,
    Lane::U64,
    Lane::I128,
    Lane::F32,
    Lane::F64,
];

fn context() -> Context {
    let options =
        RuntimeOptions { workers: 1, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
    Context::new(Arc::new(Runtime::new(&options).expect("a runtime")), Ledger::new(1 << 30))
}

/// Makes programs. What is known of a register is in which scopes it may be read.
struct Programs {
    random: fastrand::Rng,
    program: Program,
    /// Registers that may be read, all of which have been written for all rows.
    readable: Vec<Register>,
    /// Programs that seldom fail.
    is_tame: bool,
}

impl Programs {
    fn register(&mut self, lane: Lane) -> Option<Register> {
        let of_lane: Vec<Register> = self
            .readable
            .iter()
            .copied()
            .filter(|register| self.program.registers[register.index()] == lane)
            .collect();
        self.random.choice(of_lane)
    }

    fn constant(&mut self, lane: Lane) -> Constant {
        let random = &mut self.random;
        let number = value_of(random, self.is_tame);
        match lane {
            Lane::Bool => Constant::Bool(random.bool()),
            Lane::F32 => Constant::F32(float(random) as f32),
            Lane::F64 => Constant::F64(float(random)),
            lane => Constant::of_integer(number, lane)
                .unwrap_or_else(|| Constant::of_integer(7, lane).expect("fits all")),
        }
    }

    fn operand(&mut self, lane: Lane) -> Operand {
        match self.register(lane) {
            Some(register) if self.random.u8(..4) > 0 => Operand::Register(register),
            _ => Operand::Constant(self.constant(lane)),
        }
    }

    fn overflow(&mut self) -> Overflow {
        if self.random.bool() { Overflow::Error } else { Overflow::Impossible }
    }

    /// Adds a step; gives what it has written.
    fn step(&mut self, depth: usize) -> Option<Register> {
        let lanes = [Lane::I32, Lane::I64, Lane::U32, Lane::U64, Lane::I128, Lane::F32, Lane::F64];
        let (step, out) = match self.random.u8(..15) {
            0..=3 => {
                let lane = self.random.choice(lanes).expect("some");
                let mut op = self
                    .random
                    .choice([
                        Arithmetic::Add,
                        Arithmetic::Subtract,
                        Arithmetic::Multiply,
                        Arithmetic::Divide,
                        Arithmetic::Remainder,
                        Arithmetic::BitAnd,
                        Arithmetic::BitOr,
                        Arithmetic::BitXor,
                    ])
                    .expect("some");
                let is_bits =
                    matches!(op, Arithmetic::BitAnd | Arithmetic::BitOr | Arithmetic::BitXor);
                if matches!(lane, Lane::F32 | Lane::F64) && is_bits {
                    op = Arithmetic::Multiply;
                }
                let (a, b) = (self.operand(lane), self.operand(lane));
                let (out, overflow) = (self.program.register(lane), self.overflow());
                (Step::Arithmetic { op, a, b, out, overflow }, out)
            }
            4 => {
                let lane = self.random.choice(lanes).expect("some");
                let a = self.register(lane)?;
                let (out, overflow) = (self.program.register(lane), self.overflow());
                (Step::Negate { a, out, overflow }, out)
            }
            5 => {
                let lane = if self.random.bool() { Lane::F32 } else { Lane::F64 };
                let a = self.register(lane)?;
                let out = self.program.register(lane);
                (Step::Canonical { a, out }, out)
            }
            6 => {
                let pick = |random: &mut fastrand::Rng| {
                    if random.bool() { Lane::I64 } else { Lane::I128 }
                };
                let (from, into) = (pick(&mut self.random), pick(&mut self.random));
                let a = self.register(from)?;
                let digits =
                    if self.is_tame { self.random.i8(-6..=3) } else { self.random.i8(-38..=38) };
                let (out, overflow) = (self.program.register(into), self.overflow());
                (Step::Rescale { a, digits, out, overflow }, out)
            }
            7 => {
                let lane = if self.random.bool() { Lane::I64 } else { Lane::I128 };
                let a = self.register(lane)?;
                let digits = if self.is_tame { 18 } else { self.random.u8(1..=38) };
                self.program.steps.push(Step::Digits { a, digits });
                return None;
            }
            8..=9 => {
                let lane = self.random.choice(NUMBERS).expect("some");
                let op = self
                    .random
                    .choice([
                        Comparison::Equal,
                        Comparison::NotEqual,
                        Comparison::Less,
                        Comparison::LessOrEqual,
                        Comparison::Greater,
                        Comparison::GreaterOrEqual,
                        Comparison::NotDistinct,
                        Comparison::Distinct,
                    ])
                    .expect("some");
                let (a, b) = (self.operand(lane), self.operand(lane));
                let out = self.program.register(Lane::Bool);
                (Step::Compare { op, a, b, out }, out)
            }
            10 => {
                let (a, b) = (self.register(Lane::Bool)?, self.register(Lane::Bool)?);
                let out = self.program.register(Lane::Bool);
                match self.random.u8(..3) {
                    0 => (Step::And { a, b, out }, out),
                    1 => (Step::Or { a, b, out }, out),
                    _ => (Step::Not { a, out }, out),
                }
            }
            11 => {
                let a = self.random.choice(self.readable.clone())?;
                let (out, negated) = (self.program.register(Lane::Bool), self.random.bool());
                (Step::IsNull { a, negated, out }, out)
            }
            12 => {
                let (from, into) = (self.random.choice(NUMBERS)?, self.random.choice(NUMBERS)?);
                let a = self.register(from)?;
                let out = self.program.register(into);
                let failure = match self.is_tame || self.random.bool() {
                    true => CastFailure::Null,
                    false => CastFailure::Error,
                };
                (Step::Cast { a, out, failure }, out)
            }
            13 => {
                let lane = self.random.choice(NUMBERS)?;
                let value = if self.random.u8(..3) > 0 { Some(self.constant(lane)) } else { None };
                let out = self.program.register(lane);
                (Step::Fill { value, out }, out)
            }
            _ if depth < 3 => return self.scope(depth),
            _ => return None,
        };
        self.program.steps.push(step);
        Some(out)
    }

    /// CASE: a register that is filled, and assigned in both halves of a scope.
    fn scope(&mut self, depth: usize) -> Option<Register> {
        let condition = self.register(Lane::Bool)?;
        let lane = self.random.choice(NUMBERS)?;
        let out = self.program.register(lane);
        let value = if self.random.bool() { Some(self.constant(lane)) } else { None };
        self.program.steps.push(Step::Fill { value, out });
        let when = self.random.bool();
        self.program.steps.push(Step::Begin { condition, when });
        let halves = self.random.usize(1..=2);
        for half in 0..halves {
            if half == 1 {
                self.program.steps.push(Step::Else);
            }
            let known = self.readable.len();
            for _ in 0..self.random.usize(0..5) {
                if let Some(written) = self.step(depth + 1) {
                    self.readable.push(written);
                }
                if self.random.u8(..12) == 0
                    && let Some(condition) = self.register(Lane::Bool)
                {
                    self.program.steps.push(Step::Filter { condition });
                }
            }
            let a = self.operand(lane);
            self.program.steps.push(Step::Assign { a, out });
            // What was computed here is there for some rows only.
            self.readable.truncate(known);
        }
        self.program.steps.push(Step::End);
        Some(out)
    }
}

fn program(seed: u64) -> Program {
    let mut random = fastrand::Rng::with_seed(seed);
    let is_tame = random.u8(..4) > 0;
    let mut programs =
        Programs { random, program: Program::default(), readable: Vec::new(), is_tame };
    for lane in NUMBERS.into_iter().chain([Lane::I64, Lane::I128, Lane::Bool, Lane::F64]) {
        let input = programs.program.input(lane);
        programs.readable.push(input);
    }
    for _ in 0..programs.random.usize(1..30) {
        if let Some(written) = programs.step(0) {
            programs.readable.push(written);
        }
        if programs.random.u8(..10) == 0
            && let Some(condition) = programs.register(Lane::Bool)
        {
            programs.program.steps.push(Step::Filter { condition });
        }
    }
    programs.program
}

fn value_of(random: &mut fastrand::Rng, is_tame: bool) -> i128 {
    if is_tame {
        return random.i128(1..100);
    }
    let extremes = [
        0,
        1,
        -1,
        i128::from(i32::MIN),
        i128::from(i32::MAX),
        i128::from(i64::MIN),
        i128::from(i64::MAX),
        i128::from(u64::MAX),
        i128::MIN,
        i128::MAX,
        -128,
        255,
        65_535,
        1 << 70,
    ];
    match random.u8(..4) {
        0 => extremes[random.usize(..extremes.len())],
        1 => random.i128(..) >> random.u32(..128),
        _ => random.i128(-1000..1000),
    }
}

fn float(random: &mut fastrand::Rng) -> f64 {
    match random.u8(..10) {
        0 => f64::NAN,
        1 => 0.0,
        2 => -0.0,
        3 => f64::INFINITY,
        4 => -9.3e18,
        5 => 4_294_967_295.5,
        6 => -0.5,
        _ => (random.f64() - 0.5) * 1000.0,
    }
}

fn load(registers: &mut Registers, program: &Program, random: &mut fastrand::Rng, rows: usize) {
    let (has_nulls, is_tame) = (random.bool(), random.u8(..4) > 0);
    for input in &program.inputs {
        let vector = registers.vector_mut(*input);
        vector.validity.set_all();
        macro_rules! fill {
            ($type:ty, $value:expr) => {
                for out in &mut vector.values_mut::<$type>()[..rows] {
                    *out = $value;
                }
            };
        }
        match vector.lane() {
            Lane::Bool => fill!(Bool, Bool::from(random.bool())),
            Lane::I8 => fill!(i8, value_of(random, is_tame) as i8),
            Lane::I16 => fill!(i16, value_of(random, is_tame) as i16),
            Lane::I32 => fill!(i32, value_of(random, is_tame) as i32),
            Lane::I64 => fill!(i64, value_of(random, is_tame) as i64),
            Lane::U8 => fill!(u8, value_of(random, is_tame) as u8),
            Lane::U16 => fill!(u16, value_of(random, is_tame) as u16),
            Lane::U32 => fill!(u32, value_of(random, is_tame) as u32),
            Lane::U64 => fill!(u64, value_of(random, is_tame) as u64),
            Lane::I128 => fill!(i128, value_of(random, is_tame)),
            Lane::F32 => fill!(f32, float(random) as f32),
            Lane::F64 => fill!(f64, float(random)),
            Lane::Str => unreachable!("no strings"),
        }
        if has_nulls && random.bool() {
            for row in 0..rows {
                vector.validity.set(row, random.u8(..5) > 0);
            }
        }
    }
    if random.u8(..3) == 0 {
        let kept: Vec<u16> = (0..rows as u16).filter(|_| random.bool()).collect();
        registers.selection.set(kept);
    }
}

/// The values of the selected rows of a register, in words.
fn values(registers: &Registers, register: Register) -> Vec<(usize, Option<String>)> {
    let vector: &Vector = registers.vector(register);
    let mut values = Vec::new();
    registers.selected().for_each(|row| {
        let value =
            for_lane!(vector.lane(), T => vector.value::<T>(row).map(|value| format!("{value:?}")));
        values.push((row, value));
    });
    values
}

type Outcome = Result<Vec<Vec<(usize, Option<String>)>>, String>;

fn outcome(interpreter: &mut Interpreter, seed: u64, rows: usize, shown: &[Register]) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    interpreter.begin(rows);
    let program = interpreter.program().clone();
    load(interpreter.registers_mut(), &program, &mut random, rows);
    match interpreter.advance() {
        Ok(true) => {
            let registers = interpreter.registers();
            Ok(shown.iter().map(|register| values(registers, *register)).collect())
        }
        Ok(false) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Registers that a program writes outside of scopes: both back ends give them equal values for all rows that come through.
fn shown(program: &Program) -> Vec<Register> {
    let mut shown = program.inputs.clone();
    let mut open = 0;
    for step in &program.steps {
        match step {
            Step::Begin { .. } => open += 1,
            Step::End => open -= 1,
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
                if open == 0 =>
            {
                shown.push(*out);
            }
            _ => {}
        }
    }
    shown
}

#[test]
fn compiled_programs_do_what_interpreted_ones_do() {
    let fresh = fastrand::u64(..);
    let context = context();
    let compiler = JitCompiler::new(&context.ledger).expect("code for this processor");
    let compiling = Compiling { compiler, mode: CompileMode::Always };
    let (mut errors, mut filtered, mut batches) = (0, 0, 0);
    for seed in (0..300).chain((0..100).map(|number| fresh.wrapping_add(number))) {
        let program = Arc::new(program(seed));
        let shown = shown(&program);
        let reads = if seed % 2 == 0 { None } else { Some(shown.clone()) };
        let tier = Tier::new(&compiling, &program, reads);
        let mut interpreted = Interpreter::new(program.clone(), &context);
        let mut compiled = Interpreter::new(program.clone(), &context).with_tier(tier.clone());
        for (number, rows) in [1, 7, 1024, 2048, 7, 300].into_iter().enumerate() {
            let data = seed.wrapping_mul(31).wrapping_add(number as u64);
            let expected = outcome(&mut interpreted, data, rows, &shown);
            let actual = outcome(&mut compiled, data, rows, &shown);
            assert_eq!(actual, expected, "seed {seed}, {rows} rows, {program:?}");
            errors += u32::from(expected.is_err());
            filtered += u32::from(expected.is_ok_and(|values| values.is_empty()));
        }
        if let Some(tier) = tier {
            let compilation = tier.compilation();
            assert!(compilation.is_compiled, "seed {seed}");
            batches += compilation.batches_compiled;
        }
    }
    assert!(errors > 50 && filtered > 50 && batches > 500, "{errors} {filtered} {batches}");
}

#[test]
fn code_is_kept_by_shape_and_given_back() {
    let context = context();
    let compiler = JitCompiler::new(&context.ledger).expect("code for this processor");
    let before = context.ledger.used();
    let program = |constant: i64| {
        let mut program = Program::default();
        let (a, out) = (program.input(Lane::I64), program.register(Lane::I64));
        program.steps.push(Step::Arithmetic {
            op: Arithmetic::Add,
            a: Operand::Register(a),
            b: Operand::Constant(Constant::I64(constant)),
            out,
            overflow: Overflow::Error,
        });
        Arc::new(program)
    };
    let compiling = Compiling { compiler: compiler.clone(), mode: CompileMode::Always };
    let tiers: Vec<_> = (0..4)
        .map(|constant| Tier::new(&compiling, &program(constant), None).expect("a run"))
        .collect();
    assert!(context.ledger.used() > before, "code counts");
    let bytes = compiler.kept_bytes();
    assert_eq!(tiers.iter().filter(|tier| !tier.compilation().took.is_zero()).count(), 1);
    for (constant, tier) in tiers.iter().enumerate() {
        let mut interpreter =
            Interpreter::new(program(constant as i64), &context).with_tier(Some(tier.clone()));
        interpreter.begin(3);
        interpreter.registers_mut().vector_mut(Register(0)).values_mut::<i64>()[..3]
            .copy_from_slice(&[5, 6, 7]);
        assert!(interpreter.advance().expect("no step fails"));
        let out = &interpreter.registers().values::<i64>(Register(1))[..3];
        assert_eq!(out, [5, 6, 7].map(|value| value + constant as i64));
    }
    drop(tiers);
    assert_eq!(compiler.kept_bytes(), bytes, "code is kept for others of its shape");
    weft_rt::memory::Cache::give_back(&*compiler, 0);
    assert_eq!((compiler.kept_bytes(), context.ledger.used()), (0, before));
}

#[test]
fn code_is_shown() {
    use weft_exec::compile::Compiler;
    let context = context();
    let compiler = JitCompiler::new(&context.ledger).expect("code for this processor");
    let text = compiler.explain(&program(3), None).join("\n");
    assert!(text.contains("run 0: steps") && text.contains("function u0:0"), "{text}");
    assert!(text.contains("bytes of"), "{text}");
}

#[test]
fn long_programs_are_compiled_while_they_run() {
    let context = context();
    let compiler = JitCompiler::new(&context.ledger).expect("code for this processor");
    let compiling = Compiling { compiler, mode: CompileMode::Auto };
    let mut program = Program::default();
    let (a, b) = (program.input(Lane::I128), program.input(Lane::I128));
    let mut last = a;
    for op in [Arithmetic::Add, Arithmetic::Divide, Arithmetic::Subtract, Arithmetic::Remainder] {
        let out = program.register(Lane::I128);
        let (a, b) = (Operand::Register(last), Operand::Register(b));
        program.steps.push(Step::Arithmetic { op, a, b, out, overflow: Overflow::Error });
        last = out;
    }
    let program = Arc::new(program);
    let tier = Tier::new(&compiling, &program, Some(vec![last])).expect("a run");
    let mut reference = Interpreter::new(program.clone(), &context);
    let mut interpreter = Interpreter::new(program.clone(), &context).with_tier(Some(tier.clone()));
    let began = std::time::Instant::now();
    let mut after = 0;
    for number in 0.. {
        let run = |interpreter: &mut Interpreter| {
            let mut random = fastrand::Rng::with_seed(number);
            interpreter.begin(2048);
            for input in [a, b] {
                let vector = interpreter.registers_mut().vector_mut(input);
                let values = vector.values_mut::<i128>();
                values.iter_mut().for_each(|value| *value = random.i128(1..1_000_000));
            }
            assert!(interpreter.advance().expect("no step fails"));
            values(interpreter.registers(), last)
        };
        assert_eq!(run(&mut interpreter), run(&mut reference), "vector {number}");
        let compilation = tier.compilation();
        after += u32::from(compilation.is_compiled);
        if after == 40 {
            assert!(compilation.batches_compiled >= 6, "{compilation:?}");
            assert!(compilation.batches > compilation.batches_compiled, "{compilation:?}");
            assert!(!compilation.took.is_zero() && compilation.bytes > 0, "{compilation:?}");
            return;
        }
        assert!(began.elapsed().as_secs() < 120, "nothing was compiled: {compilation:?}");
    }
}
