//! Cranelift's intermediate code of a shape: a loop over the selected rows, in whose body each step adds a few instructions.
//!
//! A register of the shape is a variable. Whether it has a value is known as little as possible at run time: the code for vectors
//! without nulls has nothing of it, and in the other one it is mostly that some inputs have values ([`Valid`]).

use std::collections::HashSet;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AbiParam, Block, Function, InstBuilder, MemFlagsData as MemFlags, SigRef, Signature, Type,
    UserFuncName, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use weft_exec::lane::Lane;
use weft_exec::program::{CastFailure, Comparison, Operand, Overflow, Register, Step};

use crate::helpers::Helper;
use crate::run::Shape;

/// Where the words of a function's argument are, each of 8 bytes. Inputs and outputs follow, two words each: the values and the
/// validity of an input, the values and the bytes for the validity of an output.
pub(crate) mod words {
    pub(crate) const COUNT: usize = 0;
    pub(crate) const SELECTED: usize = 1;
    pub(crate) const KEPT: usize = 2;
    pub(crate) const CONSTANTS: usize = 3;
    pub(crate) const HELPERS: usize = 4;
    pub(crate) const COLUMNS: usize = 5;
}

/// What a function gives for a vector with an error.
pub(crate) const FAILED: i64 = -1;

/// Whether an output has values: where all of these inputs have, by their numbers, and where the code says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputValidity {
    pub(crate) inputs: Vec<usize>,
    pub(crate) is_computed: bool,
}

/// When a register has a value: where all inputs in the set have, and the variable is 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Valid {
    inputs: u128,
    computed: Option<Variable>,
}

/// Makes the function of a shape; `has_nulls` if inputs may be null. Gives also when outputs have values.
pub(crate) fn function(
    shape: &Shape,
    has_nulls: bool,
    config: TargetFrontendConfig,
    call: CallConv,
) -> (Function, Vec<OutputValidity>) {
    let mut signature = Signature::new(call);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    let mut function = Function::with_name_signature(UserFuncName::user(0, 0), signature);
    let mut context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut function, &mut context);
    let validity = Emit::new(builder, shape, has_nulls, call).run(config);
    (function, validity)
}

/// A scope that is open.
struct Scope {
    otherwise: Option<Block>,
    end: Block,
}

pub(crate) struct Emit<'a> {
    pub(crate) b: FunctionBuilder<'a>,
    shape: &'a Shape,
    has_nulls: bool,
    call: CallConv,
    /// The function's argument.
    arguments: Value,
    row: Value,
    values: Vec<Variable>,
    valid: Vec<Valid>,
    /// Of each input: whether it has a value in the row.
    input_valid: Vec<Value>,
    /// Registers that are written more than once.
    assigned: HashSet<Register>,
    /// Constants that were loaded.
    constants: usize,
    /// 1 if a row has an error.
    failed: Variable,
    scopes: Vec<Scope>,
    signatures: Vec<(Helper, SigRef)>,
}

/// The type of a lane's values.
pub(crate) fn type_of(lane: Lane) -> Type {
    match lane {
        Lane::Bool | Lane::I8 | Lane::U8 => types::I8,
        Lane::I16 | Lane::U16 => types::I16,
        Lane::I32 | Lane::U32 => types::I32,
        Lane::I64 | Lane::U64 => types::I64,
        Lane::I128 => types::I128,
        // Strings are never loaded, only asked for whether they are null.
        Lane::Str => types::I8,
        Lane::F32 => types::F32,
        Lane::F64 => types::F64,
    }
}

/// True for lanes of signed integers.
pub(crate) fn is_signed(lane: Lane) -> bool {
    matches!(lane, Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 | Lane::I128)
}

/// Of memory that does not change while the function runs.
fn constant_memory() -> MemFlags {
    MemFlags::trusted().with_readonly().with_can_move()
}

impl<'a> Emit<'a> {
    fn new(
        mut b: FunctionBuilder<'a>,
        shape: &'a Shape,
        has_nulls: bool,
        call: CallConv,
    ) -> Emit<'a> {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let arguments = b.block_params(entry)[0];
        let values = shape.lanes.iter().map(|lane| b.declare_var(type_of(*lane))).collect();
        let failed = b.declare_var(types::I8);
        let mut assigned = HashSet::new();
        for step in &shape.steps {
            if let Step::Assign { out, .. } = step {
                assigned.insert(*out);
            }
        }
        Emit {
            b,
            shape,
            has_nulls,
            call,
            arguments,
            row: arguments,
            values,
            valid: vec![Valid::default(); shape.lanes.len()],
            input_valid: Vec::new(),
            assigned,
            constants: 0,
            failed,
            scopes: Vec::new(),
            signatures: Vec::new(),
        }
    }

    fn run(mut self, config: TargetFrontendConfig) -> Vec<OutputValidity> {
        let (number, kept) = (self.b.declare_var(types::I64), self.b.declare_var(types::I64));
        let (header, body, done) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let zero = self.b.ins().iconst(types::I64, 0);
        let none = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(number, zero);
        self.b.def_var(kept, zero);
        self.b.def_var(self.failed, none);
        self.b.ins().jump(header, &[]);

        self.b.switch_to_block(header);
        let (at, count) = (self.b.use_var(number), self.word(words::COUNT));
        let goes_on = self.b.ins().icmp(IntCC::UnsignedLessThan, at, count);
        self.b.ins().brif(goes_on, body, &[], done, &[]);

        self.b.switch_to_block(body);
        let selected = self.word(words::SELECTED);
        let place = self.address(selected, at, 2);
        self.row = self.b.ins().uload16(types::I64, constant_memory(), place, 0);
        self.load_inputs();
        let (steps, condition) = match self.shape.steps.split_last() {
            Some((Step::Filter { condition }, before)) => (before, Some(*condition)),
            _ => (&self.shape.steps[..], None),
        };
        for (at, step) in steps.iter().enumerate() {
            self.step(at, step);
        }
        let validity = self.store_outputs();
        let next = match condition {
            Some(condition) => {
                let rows = self.word(words::KEPT);
                let before = self.b.use_var(kept);
                let place = self.address(rows, before, 2);
                let row = self.row;
                self.b.ins().istore16(MemFlags::trusted(), row, place, 0);
                let is_kept = self.truth(condition);
                let is_kept = self.b.ins().uextend(types::I64, is_kept);
                self.b.ins().iadd(before, is_kept)
            }
            None => self.b.use_var(kept),
        };
        self.b.def_var(kept, next);
        let at = self.b.use_var(number);
        let at = self.b.ins().iadd_imm_s(at, 1);
        self.b.def_var(number, at);
        self.b.ins().jump(header, &[]);

        self.b.switch_to_block(done);
        let failed = self.b.use_var(self.failed);
        let (kept, code) = (self.b.use_var(kept), self.b.ins().iconst(types::I64, FAILED));
        let result = self.b.ins().select(failed, code, kept);
        self.b.ins().return_(&[result]);
        self.b.seal_all_blocks();
        self.b.finalize(config);
        validity
    }

    /// A word of the argument.
    fn word(&mut self, number: usize) -> Value {
        self.b.ins().load(types::I64, constant_memory(), self.arguments, 8 * number as i32)
    }

    /// The address of a value of `width` bytes.
    fn address(&mut self, base: Value, row: Value, width: usize) -> Value {
        let shift = i64::from(width.trailing_zeros());
        let offset = self.b.ins().ishl_imm_s(row, shift);
        self.b.ins().iadd(base, offset)
    }

    fn input_words(number: usize) -> usize {
        words::COLUMNS + 2 * number
    }

    fn output_words(&self, number: usize) -> usize {
        Emit::input_words(self.shape.inputs.len() + self.shape.kept.len()) + 2 * number
    }

    /// Loads the function's inputs: registers that steps read, and registers that are kept.
    fn load_inputs(&mut self) {
        let shape = self.shape;
        let kept = shape.kept.iter().map(|register| (*register, true));
        for (number, (register, has_values)) in shape.inputs.iter().copied().chain(kept).enumerate()
        {
            let is_kept = number >= shape.inputs.len();
            let lane = shape.lanes[register.index()];
            let flags = if is_kept { MemFlags::trusted() } else { constant_memory() };
            if has_values {
                let base = self.word(Emit::input_words(number));
                let place = self.address(base, self.row, lane.width());
                let value = self.b.ins().load(type_of(lane), flags, place, 0);
                self.b.def_var(self.values[register.index()], value);
            }
            let is_valid = match self.has_nulls {
                true => {
                    let base = self.word(Emit::input_words(number) + 1);
                    let byte = self.b.ins().ushr_imm_s(self.row, 3);
                    let place = self.b.ins().iadd(base, byte);
                    let bits = self.b.ins().load(types::I8, constant_memory(), place, 0);
                    let bit = self.b.ins().ireduce(types::I8, self.row);
                    let bit = self.b.ins().band_imm_s(bit, 7);
                    let bits = self.b.ins().ushr(bits, bit);
                    self.b.ins().band_imm_s(bits, 1)
                }
                false => self.b.ins().iconst(types::I8, 1),
            };
            self.input_valid.push(is_valid);
            let valid = &mut self.valid[register.index()];
            if is_kept {
                let variable = self.b.declare_var(types::I8);
                self.b.def_var(variable, is_valid);
                valid.computed = Some(variable);
            } else if self.has_nulls {
                valid.inputs = 1 << number;
            }
        }
        // Registers with several writers are computed whatever the order in which these come.
        let mut assigned: Vec<Register> = self.assigned.iter().copied().collect();
        assigned.sort();
        for register in assigned {
            if self.valid[register.index()].computed.is_none() {
                let variable = self.b.declare_var(types::I8);
                self.valid[register.index()] = Valid { inputs: 0, computed: Some(variable) };
            }
        }
    }

    fn store_outputs(&mut self) -> Vec<OutputValidity> {
        let shape = self.shape;
        let mut validity = Vec::new();
        for (number, register) in shape.outputs.iter().enumerate() {
            let lane = shape.lanes[register.index()];
            let value = self.b.use_var(self.values[register.index()]);
            let base = self.word(self.output_words(number));
            let place = self.address(base, self.row, lane.width());
            self.b.ins().store(MemFlags::trusted(), value, place, 0);
            let Valid { inputs, computed } = self.valid[register.index()];
            if let Some(computed) = computed {
                let is_valid = self.b.use_var(computed);
                let base = self.word(self.output_words(number) + 1);
                let place = self.b.ins().iadd(base, self.row);
                self.b.ins().store(MemFlags::trusted(), is_valid, place, 0);
            }
            let inputs = (0..128).filter(|input| inputs >> input & 1 == 1).collect();
            validity.push(OutputValidity { inputs, is_computed: computed.is_some() });
        }
        validity
    }

    /// The value of an operand.
    fn operand(&mut self, operand: &Operand) -> Value {
        match operand {
            Operand::Register(register) => self.value(*register),
            Operand::Constant(constant) => self.constant(constant.lane()),
        }
    }

    /// The next constant.
    fn constant(&mut self, lane: Lane) -> Value {
        let base = self.word(words::CONSTANTS);
        let offset = 16 * self.constants as i32;
        self.constants += 1;
        self.b.ins().load(type_of(lane), constant_memory(), base, offset)
    }

    /// The value of a register.
    fn value(&mut self, register: Register) -> Value {
        self.b.use_var(self.values[register.index()])
    }

    /// When an operand has a value.
    fn valid_of(&self, operand: &Operand) -> Valid {
        match operand {
            Operand::Register(register) => self.valid[register.index()],
            Operand::Constant(_) => Valid::default(),
        }
    }

    /// Whether there is a value, as 0 or 1; `None` if there always is.
    fn is_valid(&mut self, valid: Valid) -> Option<Value> {
        let mut all = valid.computed.map(|variable| self.b.use_var(variable));
        for input in 0..self.input_valid.len() {
            if valid.inputs >> input & 1 == 1 {
                let is_valid = self.input_valid[input];
                all = Some(match all {
                    Some(all) => self.b.ins().band(all, is_valid),
                    None => is_valid,
                });
            }
        }
        all
    }

    /// Whether a tuple has a value, as an integer: 1 if it always has one.
    fn is_valid_or_one(&mut self, valid: Valid) -> Value {
        match self.is_valid(valid) {
            Some(is_valid) => is_valid,
            None => self.b.ins().iconst(types::I8, 1),
        }
    }

    /// Where both have values.
    fn both(&mut self, a: Valid, b: Valid) -> Valid {
        let inputs = a.inputs | b.inputs;
        let computed = match (a.computed, b.computed) {
            (Some(a), Some(b)) => {
                let (a, b) = (self.b.use_var(a), self.b.use_var(b));
                let both = self.b.ins().band(a, b);
                Some(self.computed(both))
            }
            (a, b) => a.or(b),
        };
        Valid { inputs, computed }
    }

    /// A variable for whether there is a value.
    fn computed(&mut self, is_valid: Value) -> Variable {
        let variable = self.b.declare_var(types::I8);
        self.b.def_var(variable, is_valid);
        variable
    }

    /// Writes a register.
    fn define(&mut self, out: Register, value: Value, valid: Valid) {
        self.b.def_var(self.values[out.index()], value);
        if !self.assigned.contains(&out) {
            // Assigned variables change, and this register does not with them.
            let computed = valid.computed.map(|variable| {
                let is_valid = self.b.use_var(variable);
                self.computed(is_valid)
            });
            self.valid[out.index()] = Valid { computed, ..valid };
            return;
        }
        let is_valid = self.is_valid_or_one(valid);
        if let Some(variable) = self.valid[out.index()].computed {
            self.b.def_var(variable, is_valid);
        }
    }

    /// Notes an error where `fails` is 1 and there is a value.
    fn fail(&mut self, fails: Value, valid: Valid) {
        let fails = match self.is_valid(valid) {
            Some(is_valid) => self.b.ins().band(fails, is_valid),
            None => fails,
        };
        let failed = self.b.use_var(self.failed);
        let failed = self.b.ins().bor(failed, fails);
        self.b.def_var(self.failed, failed);
    }

    /// 1 where a truth value is true, and not null.
    fn truth(&mut self, condition: Register) -> Value {
        let value = self.value(condition);
        match self.is_valid(self.valid[condition.index()]) {
            Some(is_valid) => self.b.ins().band(value, is_valid),
            None => value,
        }
    }

    /// Calls a function of this crate's.
    pub(crate) fn call(&mut self, helper: Helper, arguments: &[Value]) -> Vec<Value> {
        let known = self.signatures.iter().find(|(known, _)| *known == helper);
        let signature = match known {
            Some((_, signature)) => *signature,
            None => {
                let signature = self.b.import_signature(helper.signature(self.call));
                self.signatures.push((helper, signature));
                signature
            }
        };
        let table = self.word(words::HELPERS);
        let offset = 8 * helper as i32;
        let address = self.b.ins().load(types::I64, constant_memory(), table, offset);
        let call = self.b.ins().call_indirect(signature, address, arguments);
        self.b.inst_results(call).to_vec()
    }

    fn step(&mut self, at: usize, step: &Step) {
        match step {
            Step::Arithmetic { op, a, b, out, overflow } => {
                let valid = self.both(self.valid_of(a), self.valid_of(b));
                let lane = self.shape.lanes[out.index()];
                let (a, b) = (self.operand(a), self.operand(b));
                let (value, fails) = self.arithmetic(*op, lane, a, b, *overflow);
                self.define_checked(*out, value, fails, valid);
            }
            Step::Negate { a, out, overflow } => {
                let valid = self.valid[a.index()];
                let lane = self.shape.lanes[out.index()];
                let a = self.value(*a);
                let (value, fails) = self.negate(lane, a, *overflow);
                self.define_checked(*out, value, fails, valid);
            }
            Step::Canonical { a, out } => {
                let valid = self.valid[a.index()];
                let lane = self.shape.lanes[out.index()];
                let a = self.value(*a);
                let value = self.canonical(lane, a);
                self.define(*out, value, valid);
            }
            Step::Rescale { a, digits, out, overflow } => {
                let valid = self.valid[a.index()];
                let lanes = (self.shape.lanes[a.index()], self.shape.lanes[out.index()]);
                let a = self.value(*a);
                let (value, fails) = self.rescale(lanes, a, *digits);
                let fails = fails.filter(|_| *overflow == Overflow::Error);
                self.define_checked(*out, value, fails, valid);
            }
            Step::Digits { a, digits } => {
                let valid = self.valid[a.index()];
                let lane = self.shape.lanes[a.index()];
                let a = self.value(*a);
                if let Some(fails) = self.has_more_digits(lane, a, *digits) {
                    self.fail(fails, valid);
                }
            }
            Step::Compare { op, a, b, out } => self.compare(*op, a, b, *out),
            Step::And { a, b, out } => self.logic(true, *a, *b, *out),
            Step::Or { a, b, out } => self.logic(false, *a, *b, *out),
            Step::Not { a, out } => {
                let valid = self.valid[a.index()];
                let value = self.value(*a);
                let value = self.b.ins().bxor_imm_s(value, 1);
                self.define(*out, value, valid);
            }
            Step::IsNull { a, negated, out } => {
                let is_valid = self.is_valid_or_one(self.valid[a.index()]);
                let value = if *negated { is_valid } else { self.b.ins().bxor_imm_s(is_valid, 1) };
                self.define(*out, value, Valid::default());
            }
            Step::Cast { a, out, failure } => {
                let valid = self.valid[a.index()];
                let (from, into) = (self.shape.lanes[a.index()], self.shape.lanes[out.index()]);
                let a = self.value(*a);
                let (value, fails) = self.cast(from, into, a);
                match (fails, failure) {
                    (Some(fails), CastFailure::Null) => {
                        let fits = self.b.ins().bxor_imm_s(fails, 1);
                        let fits = Valid { inputs: 0, computed: Some(self.computed(fits)) };
                        let valid = self.both(valid, fits);
                        self.define(*out, value, valid);
                    }
                    (fails, _) => self.define_checked(*out, value, fails, valid),
                }
            }
            Step::Fill { value: Some(constant), out } => {
                let value = self.constant(constant.lane());
                self.define(*out, value, Valid::default());
            }
            Step::Fill { value: None, out } => {
                let value = self.zero(self.shape.lanes[out.index()]);
                let never = self.b.ins().iconst(types::I8, 0);
                let valid = Valid { inputs: 0, computed: Some(self.computed(never)) };
                self.define(*out, value, valid);
            }
            Step::Assign { a, out } => {
                let valid = self.valid_of(a);
                let value = self.operand(a);
                self.define(*out, value, valid);
            }
            Step::Filter { condition } => {
                let is_kept = self.truth(*condition);
                let goes_on = self.b.create_block();
                let end = self.scopes.last().map_or(goes_on, |scope| scope.end);
                self.b.ins().brif(is_kept, goes_on, &[], end, &[]);
                self.b.switch_to_block(goes_on);
            }
            Step::Begin { condition, when } => self.begin(at, *condition, *when),
            Step::Else => {
                let scope = self.scopes.last_mut().expect("a scope");
                let (end, otherwise) = (scope.end, scope.otherwise.take().expect("one ELSE"));
                self.b.ins().jump(end, &[]);
                self.b.switch_to_block(otherwise);
            }
            Step::End => {
                let end = self.scopes.pop().expect("a scope").end;
                self.b.ins().jump(end, &[]);
                self.b.switch_to_block(end);
            }
            step => unreachable!("{step:?} has no code"),
        }
    }

    fn begin(&mut self, at: usize, condition: Register, when: bool) {
        let is_true = self.truth(condition);
        let (then, end) = (self.b.create_block(), self.b.create_block());
        let otherwise = has_else(&self.shape.steps[at..]).then(|| self.b.create_block());
        let other = otherwise.unwrap_or(end);
        let (if_true, if_not) = if when { (then, other) } else { (other, then) };
        self.b.ins().brif(is_true, if_true, &[], if_not, &[]);
        self.b.switch_to_block(then);
        self.scopes.push(Scope { otherwise, end });
    }

    fn define_checked(&mut self, out: Register, value: Value, fails: Option<Value>, valid: Valid) {
        if let Some(fails) = fails {
            self.fail(fails, valid);
        }
        self.define(out, value, valid);
    }

    pub(crate) fn zero(&mut self, lane: Lane) -> Value {
        match lane {
            Lane::F32 => self.b.ins().f32const(0.0),
            Lane::F64 => self.b.ins().f64const(0.0),
            Lane::I128 => self.wide(0),
            lane => self.b.ins().iconst(type_of(lane), 0),
        }
    }

    /// An integer of 128 bits.
    pub(crate) fn wide(&mut self, number: i128) -> Value {
        let low = self.b.ins().iconst(types::I64, number as i64);
        let high = self.b.ins().iconst(types::I64, (number >> 64) as i64);
        self.b.ins().iconcat(low, high)
    }

    /// AND or OR.
    fn logic(&mut self, is_and: bool, a: Register, b: Register, out: Register) {
        let (valid_a, valid_b) = (self.valid[a.index()], self.valid[b.index()]);
        let (a, b) = (self.value(a), self.value(b));
        let (is_valid_a, is_valid_b) = (self.is_valid(valid_a), self.is_valid(valid_b));
        if is_valid_a.is_none() && is_valid_b.is_none() {
            let value = match is_and {
                true => self.b.ins().band(a, b),
                false => self.b.ins().bor(a, b),
            };
            return self.define(out, value, Valid::default());
        }
        let (x, y) = (self.is_valid_or_one(valid_a), self.is_valid_or_one(valid_b));
        // Either decides alone where it has the value that does.
        let (p, q) = match is_and {
            true => (self.b.ins().bxor_imm_s(a, 1), self.b.ins().bxor_imm_s(b, 1)),
            false => (a, b),
        };
        let (p, q) = (self.b.ins().band(x, p), self.b.ins().band(y, q));
        let decided = self.b.ins().bor(p, q);
        let both = self.b.ins().band(x, y);
        let is_valid = self.b.ins().bor(both, decided);
        let value = match is_and {
            true => self.b.ins().bxor_imm_s(decided, 1),
            false => decided,
        };
        let valid = Valid { inputs: 0, computed: Some(self.computed(is_valid)) };
        self.define(out, value, valid);
    }

    fn compare(&mut self, op: Comparison, a: &Operand, b: &Operand, out: Register) {
        let lane = self.shape.lane(a);
        let (valid_a, valid_b) = (self.valid_of(a), self.valid_of(b));
        let (x, y) = (self.operand(a), self.operand(b));
        let value = match op {
            Comparison::Equal | Comparison::NotDistinct => self.same(lane, x, y),
            Comparison::NotEqual | Comparison::Distinct => {
                let same = self.same(lane, x, y);
                self.b.ins().bxor_imm_s(same, 1)
            }
            Comparison::Less => self.less(lane, x, y),
            Comparison::Greater => self.less(lane, y, x),
            Comparison::LessOrEqual => {
                let more = self.less(lane, y, x);
                self.b.ins().bxor_imm_s(more, 1)
            }
            Comparison::GreaterOrEqual => {
                let less = self.less(lane, x, y);
                self.b.ins().bxor_imm_s(less, 1)
            }
        };
        if !matches!(op, Comparison::Distinct | Comparison::NotDistinct) {
            let valid = self.both(valid_a, valid_b);
            return self.define(out, value, valid);
        }
        if self.is_valid(valid_a).is_none() && self.is_valid(valid_b).is_none() {
            return self.define(out, value, Valid::default());
        }
        let (p, q) = (self.is_valid_or_one(valid_a), self.is_valid_or_one(valid_b));
        let both = self.b.ins().band(p, q);
        let value = self.b.ins().band(value, both);
        // What is left: one is null, or both are.
        let known = match op {
            Comparison::Distinct => self.b.ins().bxor(p, q),
            _ => {
                let any = self.b.ins().bor(p, q);
                self.b.ins().bxor_imm_s(any, 1)
            }
        };
        let value = self.b.ins().bor(value, known);
        self.define(out, value, Valid::default());
    }

    fn same(&mut self, lane: Lane, a: Value, b: Value) -> Value {
        if !matches!(lane, Lane::F32 | Lane::F64) {
            return self.b.ins().icmp(IntCC::Equal, a, b);
        }
        let equal = self.b.ins().fcmp(FloatCC::Equal, a, b);
        let (p, q) = (self.is_nan(a), self.is_nan(b));
        let nan = self.b.ins().band(p, q);
        self.b.ins().bor(equal, nan)
    }

    fn less(&mut self, lane: Lane, a: Value, b: Value) -> Value {
        match lane {
            Lane::F32 | Lane::F64 => {
                let less = self.b.ins().fcmp(FloatCC::LessThan, a, b);
                let (p, q) = (self.b.ins().fcmp(FloatCC::Ordered, a, a), self.is_nan(b));
                let before_nan = self.b.ins().band(p, q);
                self.b.ins().bor(less, before_nan)
            }
            lane if is_signed(lane) => self.b.ins().icmp(IntCC::SignedLessThan, a, b),
            _ => self.b.ins().icmp(IntCC::UnsignedLessThan, a, b),
        }
    }

    pub(crate) fn is_nan(&mut self, a: Value) -> Value {
        self.b.ins().fcmp(FloatCC::Unordered, a, a)
    }
}

/// True if the scope that begins with these steps has a second half.
fn has_else(steps: &[Step]) -> bool {
    let mut open = 0;
    for step in steps {
        match step {
            Step::Begin { .. } => open += 1,
            Step::End => open -= 1,
            Step::Else if open == 1 => return true,
            _ => {}
        }
        if open == 0 {
            return false;
        }
    }
    false
}
