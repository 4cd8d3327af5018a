//! The code of a probe: the ramp, which writes the frame, and the resume function, which makes keys and awaits their descents.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    BlockCall, Function, InstBuilder, JumpTableData, MemFlagsData, UserFuncName, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use weft_exec::compile::{KeyField, ProbeShape};
use weft_store::NO_ROW;

use super::{
    DESCENDS, ENDED, ORDER_PANICKED, RESTS, SLOT_HEADER_BYTES, VALUE, WAITS, frame, parameter,
};
use crate::coroutine::{PANICKED, READY, SUSPENDED, call_of, signature};

/// Polls of descents after which the worker may look at the device and at other tasks.
const POLLS_PER_TURN: i64 = 512;

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
