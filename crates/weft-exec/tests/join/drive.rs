//! The pipelines of a join, and what they leave.

use std::sync::{Arc, Mutex};

use weft_exec::join::{
    Asked, AskedRows, Build, Join, Key, Kind, Probe, Remainder, Residual, Wanted, Which,
};
use weft_exec::lane::Bool;
use weft_exec::pipeline::{Flow, Pipeline};
use weft_exec::program::{Comparison, Operand, Program, Register, Step};
use weft_exec::query::{Context, Query};
use weft_exec::registers::Registers;
use weft_exec::tuple::{Layout, Storage};
use weft_exec::{Lane, Result};

use crate::case::{Case, Row};
use crate::tables::{Each, Rows};

impl Case {
    pub(crate) fn join(&self, filters: Vec<Arc<Wanted>>) -> Arc<Join> {
        let layout = Arc::new(Layout::compact(&self.build.fields()));
        let keys = self.nulls.iter().enumerate();
        let keys = keys.map(|(field, nulls)| Key { field, nulls: *nulls }).collect();
        Arc::new(Join::new(layout, keys, self.marks_build, filters))
    }

    /// What is known of the probe side's registers: of keys as on the build side, and of the number.
    fn storage(&self, keys: &[Register], number: Register) -> Vec<(Register, bool, Storage)> {
        let fields = self.probe.fields();
        let registers = keys.iter().chain([&number]);
        registers
            .zip(fields)
            .map(|(register, (_, nullable, storage))| (*register, nullable, storage))
            .collect()
    }

    /// Asks a filter before anything else is done.
    pub(crate) fn ask(&self, program: &mut Program, wanted: Arc<Wanted>) -> Arc<AskedRows> {
        let keys = self.asked.iter().map(|key| program.inputs[*key]).collect();
        let hash = program.register(Lane::U64);
        let filter = Arc::new(Asked::new(wanted));
        let rows = filter.rows();
        program.steps.insert(0, Step::MayMatch { keys, hash, filter });
        rows
    }

    pub(crate) fn build_pipeline(&self, join: &Arc<Join>) -> Pipeline {
        let mut program = Program::default();
        let mut fields = self.build.inputs(&mut program);
        let hash = fields.pop().expect("the last one");
        Pipeline {
            source: Box::new(Rows::new(&self.build, &self.texts)),
            program,
            sink: Box::new(Build::new(join.clone(), hash, fields)),
            after: Vec::new(),
        }
    }

    /// The pipeline of the probe side. `take` is called with what comes through: the registers of the probe side's
    /// number, the build side's, and the mark.
    pub(crate) fn probe_pipeline<F>(&self, join: &Arc<Join>, take: F) -> Pipeline
    where
        F: Fn(&Registers, [Register; 3]) -> Flow + Send + Sync + 'static,
    {
        let mut program = Program::default();
        let keys = self.probe.inputs(&mut program);
        let (keys, others) = keys.split_at(self.nulls.len());
        let [number, size, hash] = *others else { panic!("three more") };
        let lanes = [Lane::I64, Lane::U64, Lane::I64, Lane::Bool];
        let [carried, tuples, build, mark] = lanes.map(|lane| program.register(lane));
        let expands = self.kind.expands();
        let probe = Probe {
            join: join.clone(),
            hash,
            keys: keys.to_vec(),
            kind: match self.kind {
                Kind::Mark { .. } => Kind::Mark { out: mark },
                kind => kind,
            },
            carried: if expands { vec![(number, carried)] } else { Vec::new() },
            kept: if expands { Vec::new() } else { vec![number] },
            storage: self.storage(keys, number),
            tuples: expands.then_some(tuples),
            marks_build: self.marks_build,
            residual: self.has_residual.then(|| residual(join, size)),
        };
        program.steps.push(Step::Expand(Arc::new(probe)));
        if expands {
            program.steps.push(load(join, 1, tuples, build));
        }
        let at = [if expands { carried } else { number }, build, mark];
        Pipeline {
            source: Box::new(Rows::new(&self.probe, &self.texts)),
            program,
            sink: Box::new(Each(Arc::new(move |registers: &Registers| take(registers, at)))),
            after: vec![0],
        }
    }
}

/// Loads a field, counted from the last one of the build side.
fn load(join: &Join, from_last: usize, tuples: Register, out: Register) -> Step {
    let layout = join.layout().clone();
    let field = layout.fields().len() - 1 - from_last;
    Step::Load { tuples, layout, field, out }
}

/// The probe side's size is less than the build side's.
fn residual(join: &Join, size: Register) -> Arc<Residual> {
    let mut program = Program::default();
    let lanes = [Lane::I32, Lane::U64, Lane::I32, Lane::Bool];
    let [a, tuples, b, condition] = lanes.map(|lane| program.register(lane));
    program.steps = vec![
        load(join, 0, tuples, b),
        Step::Compare {
            op: Comparison::Less,
            a: Operand::Register(a),
            b: Operand::Register(b),
            out: condition,
        },
        Step::Filter { condition },
    ];
    Arc::new(Residual { program: Arc::new(program), inputs: vec![(size, a)], tuples })
}

/// Goes through the build side, and takes numbers, with marks if there are any.
pub(crate) fn remainder_pipeline(
    join: &Arc<Join>,
    which: Which,
    rows: &Found<(i64, Option<bool>)>,
) -> Pipeline {
    let mut program = Program::default();
    let tuples = program.input(Lane::U64);
    let mark = (which == Which::All).then(|| program.input(Lane::Bool));
    let number = program.register(Lane::I64);
    program.steps.push(load(join, 1, tuples, number));
    let rows = rows.clone();
    let take = move |registers: &Registers| {
        let mut rows = rows.lock().unwrap();
        registers.selected().for_each(|row| {
            let mark = mark.map(|mark| registers.values::<Bool>(mark)[row].get());
            rows.push((registers.values::<i64>(number)[row], mark));
        });
        Flow::More
    };
    Pipeline {
        source: Box::new(Remainder::new(join.clone(), which)),
        program,
        sink: Box::new(Each(Arc::new(take))),
        after: vec![1],
    }
}

/// What a sink has taken.
pub(crate) type Found<T> = Arc<Mutex<Vec<T>>>;

pub(crate) fn taken<T: Ord>(found: &Found<T>) -> Vec<T> {
    sorted(std::mem::take(&mut *found.lock().unwrap()))
}

/// A sink's function that takes the rows of a probe.
pub(crate) fn take_rows(
    kind: Kind,
    found: &Found<Row>,
) -> impl Fn(&Registers, [Register; 3]) -> Flow + Send + Sync + 'static {
    let found = found.clone();
    move |registers, [number, build, mark]| {
        let mut found = found.lock().unwrap();
        registers.selected().for_each(|row| {
            let build = kind.expands().then(|| registers.vector(build).value(row)).flatten();
            let number = registers.vector(number).value(row).expect("numbers are not null");
            let is_mark = matches!(kind, Kind::Mark { .. });
            let mark = is_mark.then(|| registers.vector(mark).value::<Bool>(row)).flatten();
            found.push((number, build, mark.map(Bool::get)));
        });
        Flow::More
    }
}

pub(crate) fn run(pipelines: Vec<Pipeline>, context: &Context) -> Result<()> {
    futures::executor::block_on(Query { pipelines }.run(context))
}

pub(crate) fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort_unstable();
    rows
}
