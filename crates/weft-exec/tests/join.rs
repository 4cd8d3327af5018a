//! Joins of random tables against a nested loop: all kinds, lanes of keys, meanings of null, residual conditions, vector
//! sizes, workers and partition modes; by hashes that are good, and by hashes so bad that most of them collide.

mod tables;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tables::{Each, Rows, Side, Texts, runtime};
use weft_exec::join::{
    Asked, AskedRows, Build, Join, Key, Kind, Nulls, Probe, Remainder, Residual, Wanted, Which,
};
use weft_exec::lane::Bool;
use weft_exec::pipeline::{Flow, Pipeline};
use weft_exec::program::{Comparison, Operand, Program, Register, Step};
use weft_exec::query::{Context, PartitionMode, Query};
use weft_exec::registers::Registers;
use weft_exec::selection::Selection;
use weft_exec::tuple::Layout;
use weft_exec::{ExecError, Lane, Result};
use weft_rt::memory::Ledger;

/// A join to be run, and what it is run with.
struct Case {
    build: Arc<Side>,
    probe: Arc<Side>,
    nulls: Vec<Nulls>,
    /// Keys that a filter is asked about before the probe, if that may drop rows.
    asked: Vec<usize>,
    kind: Kind,
    marks_build: bool,
    has_residual: bool,
    vector_rows: usize,
    mode: PartitionMode,
    texts: Arc<Texts>,
}

/// What a join gives: numbers of the probe side's row and of the build side's, and the mark.
type Row = (i64, Option<i64>, Option<bool>);

impl Case {
    fn random(random: &mut fastrand::Rng) -> Case {
        let keys = [1, 1, 1, 2, 3][random.usize(..5)];
        let lanes: Vec<Lane> =
            (0..keys).map(|_| Lane::ALL[random.usize(..Lane::ALL.len())]).collect();
        let domain = [1, 3, 20, 100][random.usize(..4)];
        let hash_mask = [u64::MAX, u64::MAX, 0xf000_0000_0000_0fff, 0][random.usize(..4)];
        let side = |random: &mut fastrand::Rng| {
            let rows = [0, 1, 40, 300][random.usize(..4)];
            Arc::new(Side::random(random, rows, &lanes, domain, hash_mask))
        };
        let (build, probe) = (side(random), side(random));
        let meanings = [Nulls::Never, Nulls::Equal, Nulls::Unknown];
        let same = meanings[random.usize(..3)];
        let is_mixed = random.u8(..) < 64;
        let nulls =
            (0..keys).map(|_| if is_mixed { meanings[random.usize(..3)] } else { same }).collect();
        let kinds =
            [Kind::Inner, Kind::Outer, Kind::Semi, Kind::Anti, Kind::Mark { out: Register(0) }];
        let marks_build = random.u8(..) < 64;
        let kind = if marks_build && random.bool() {
            Kind::Nothing
        } else {
            kinds[random.usize(..kinds.len())]
        };
        // Not all keys once in their order: their hash would be the tuples', which is another one here.
        let asked = if keys == 1 { vec![0, 0] } else { vec![random.usize(..keys)] };
        Case {
            build,
            probe,
            nulls,
            asked,
            kind,
            marks_build,
            has_residual: random.u8(..) < 80,
            vector_rows: [1, 7, 2048][random.usize(..3)],
            mode: [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never]
                [random.usize(..3)],
            texts: Arc::new(Texts::new(domain)),
        }
    }

    /// What a pair is, apart from the residual condition: `None` if that is unknown.
    fn compare(&self, probe: usize, build: usize) -> Option<bool> {
        let mut is_unknown = false;
        for (key, nulls) in self.nulls.iter().enumerate() {
            let pair = (self.probe.keys[key][probe], self.build.keys[key][build]);
            match (pair, nulls) {
                ((Some(a), Some(b)), _) if a == b => {}
                ((None, None), Nulls::Equal) => {}
                ((None, _) | (_, None), Nulls::Unknown) => is_unknown = true,
                _ => return Some(false),
            }
        }
        if is_unknown { None } else { Some(true) }
    }

    /// What the residual condition says of two rows.
    fn is_true(&self, probe: usize, build: usize) -> bool {
        match (self.probe.sizes[probe], self.build.sizes[build]) {
            (Some(a), Some(b)) => !self.has_residual || a < b,
            _ => !self.has_residual,
        }
    }

    /// The answer, and which of the build side's rows have matched.
    fn expected(&self) -> (Vec<Row>, Vec<bool>) {
        let (mut rows, mut matched) = (Vec::new(), vec![false; self.build.rows()]);
        for probe in 0..self.probe.rows() {
            let number = self.probe.numbers[probe];
            let (mut matches, mut is_unknown) = (Vec::new(), false);
            for (build, matched) in matched.iter_mut().enumerate() {
                if !self.is_true(probe, build) {
                    continue;
                }
                match self.compare(probe, build) {
                    Some(true) => {
                        *matched = true;
                        matches.push(self.build.numbers[build]);
                    }
                    Some(false) => {}
                    None => is_unknown = true,
                }
            }
            let has_match = !matches.is_empty();
            match self.kind {
                Kind::Inner | Kind::Outer => {
                    rows.extend(matches.iter().map(|build| (number, Some(*build), None)));
                    if self.kind == Kind::Outer && !has_match {
                        rows.push((number, None, None));
                    }
                }
                Kind::Semi if has_match => rows.push((number, None, None)),
                Kind::Anti if !has_match && !is_unknown => rows.push((number, None, None)),
                Kind::Mark { .. } => {
                    let mark = if has_match || !is_unknown { Some(has_match) } else { None };
                    rows.push((number, None, mark));
                }
                Kind::Semi | Kind::Anti | Kind::Nothing => {}
            }
        }
        (rows, matched)
    }

    fn describe(&self) -> String {
        format!(
            "{:?} {:?} build {} probe {} keys {:?} marks {} residual {} vectors {} {:?}",
            self.kind,
            self.nulls,
            self.build.rows(),
            self.probe.rows(),
            self.build.lanes,
            self.marks_build,
            self.has_residual,
            self.vector_rows,
            self.mode
        )
    }
}

impl Case {
    fn join(&self, filters: Vec<Arc<Wanted>>) -> Arc<Join> {
        let layout = Arc::new(Layout::new(&self.build.fields()));
        let keys = self.nulls.iter().enumerate();
        let keys = keys.map(|(field, nulls)| Key { field, nulls: *nulls }).collect();
        Arc::new(Join::new(layout, keys, self.marks_build, filters))
    }

    /// Asks a filter before anything else is done.
    fn ask(&self, program: &mut Program, wanted: Arc<Wanted>) -> Arc<AskedRows> {
        let keys = self.asked.iter().map(|key| program.inputs[*key]).collect();
        let hash = program.register(Lane::U64);
        let filter = Arc::new(Asked::new(wanted));
        let rows = filter.rows();
        program.steps.insert(0, Step::MayMatch { keys, hash, filter });
        rows
    }

    fn build_pipeline(&self, join: &Arc<Join>) -> Pipeline {
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

    /// The pipeline of the probe side. `take` is called with what comes through: the registers of the probe side's number,
    /// the build side's, and the mark.
    fn probe_pipeline<F>(&self, join: &Arc<Join>, take: F) -> Pipeline
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
fn remainder_pipeline(
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
type Found<T> = Arc<Mutex<Vec<T>>>;

fn taken<T: Ord>(found: &Found<T>) -> Vec<T> {
    sorted(std::mem::take(&mut *found.lock().unwrap()))
}

/// A sink's function that takes the rows of a probe.
fn take_rows(
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

fn run(pipelines: Vec<Pipeline>, context: &Context) -> Result<()> {
    futures::executor::block_on(Query { pipelines }.run(context))
}

fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort_unstable();
    rows
}

fn check(case: &Case, workers: usize, seed: u64) {
    let ledger = Ledger::new(1 << 30);
    let mut context = Context::new(runtime(workers), ledger.clone());
    (context.partition, context.vector_rows) = (case.mode, case.vector_rows);
    let about = format!("seed {seed}, {workers} workers: {}", case.describe());
    let whole = Arc::new(Wanted::new((0..case.nulls.len()).collect()));
    whole.want_hashes();
    whole.want_bounds();
    let part = Arc::new(Wanted::new(case.asked.clone()));
    let join = case.join(vec![whole.clone(), part.clone()]);
    let rows: Found<Row> = Found::default();
    let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
    if matches!(case.kind, Kind::Inner | Kind::Semi | Kind::Nothing) {
        case.ask(&mut probe.program, part);
    }
    let mut pipelines = vec![case.build_pipeline(&join), probe];
    let remainders: Vec<(Which, Found<_>)> = match case.marks_build {
        true => [Which::Matched, Which::Unmatched, Which::All]
            .map(|which| (which, Found::default()))
            .into(),
        false => Vec::new(),
    };
    for (which, found) in &remainders {
        pipelines.push(remainder_pipeline(&join, *which, found));
    }
    run(pipelines, &context).expect("there is memory");
    let (expected, matched) = case.expected();
    assert_eq!(taken(&rows), sorted(expected), "{about}");
    for (which, found) in &remainders {
        let expected =
            case.build.numbers.iter().zip(&matched).filter_map(|(number, matched)| match which {
                Which::Matched => matched.then_some((*number, None)),
                Which::Unmatched => (!matched).then_some((*number, None)),
                Which::All => Some((*number, Some(*matched))),
            });
        assert_eq!(taken(found), sorted(expected.collect()), "{which:?}, {about}");
    }
    check_filter(case, &whole, &about);
    drop(join);
    assert_eq!(ledger.used(), 0, "{about}");
}

/// Rows that match get through the filter.
fn check_filter(case: &Case, wanted: &Wanted, about: &str) {
    let filter = wanted.filter().expect("asked for");
    for row in 0..case.probe.rows() {
        let matches = |build| case.compare(row, build) == Some(true);
        if !(0..case.build.rows()).any(matches) {
            continue;
        }
        let mut selection = Selection::default();
        selection.select_all(1);
        filter.may_match(&[case.probe.hash(row)], &mut selection);
        assert_eq!(selection.count(), 1, "row {row}, {about}");
        for key in 0..case.nulls.len() {
            if let Some(value) = case.probe.constant(key, row, &case.texts) {
                let overlaps = filter.may_overlap(key, &value, &value);
                assert!(overlaps, "key {key} of row {row}, {about}");
            }
        }
    }
}

#[test]
fn random_joins_agree_with_a_nested_loop() {
    let fresh = fastrand::u64(..);
    for (seed, cases) in [(1, 250), (2, 250), (fresh, 100)] {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..cases {
            let workers = [1, 2, 8][random.usize(..3)];
            check(&Case::random(&mut random), workers, seed);
        }
    }
}

#[test]
fn every_kind_with_every_lane() {
    let mut random = fastrand::Rng::with_seed(99);
    for lane in [Lane::Bool, Lane::I16, Lane::I64, Lane::I128, Lane::F32, Lane::F64, Lane::Str] {
        for nulls in [Nulls::Never, Nulls::Equal, Nulls::Unknown] {
            for kind in [
                Kind::Inner,
                Kind::Outer,
                Kind::Semi,
                Kind::Anti,
                Kind::Mark { out: Register(0) },
                Kind::Nothing,
            ] {
                let mut case = Case::random(&mut random);
                let side = |random: &mut fastrand::Rng| {
                    Arc::new(Side::random(random, 100, &[lane], 30, u64::MAX))
                };
                (case.build, case.probe) = (side(&mut random), side(&mut random));
                case.texts = Arc::new(Texts::new(30));
                (case.nulls, case.kind) = (vec![nulls], kind);
                case.asked = vec![0, 0];
                case.marks_build = case.marks_build || kind == Kind::Nothing;
                check(&case, 2, 99);
            }
        }
    }
}

/// A join of many rows by a key of 64 bits.
fn large(seed: u64, build: usize, probe: usize, domain: u32) -> Case {
    let mut random = fastrand::Rng::with_seed(seed);
    let lanes = [Lane::I64];
    Case {
        build: Arc::new(Side::random(&mut random, build, &lanes, domain, u64::MAX)),
        probe: Arc::new(Side::random(&mut random, probe, &lanes, domain, u64::MAX)),
        nulls: vec![Nulls::Never],
        asked: vec![0, 0],
        kind: Kind::Inner,
        marks_build: false,
        has_residual: false,
        vector_rows: 2048,
        mode: PartitionMode::Adaptive,
        texts: Arc::new(Texts::new(1)),
    }
}

#[test]
fn filters_are_asked_as_long_as_they_drop_rows() {
    // Almost all rows of the probe side match, or almost none.
    for (domain, is_asked_on) in [(100, false), (1 << 20, true)] {
        let case = large(8, 1000, 300_000, domain);
        let context = Context::new(runtime(1), Ledger::new(1 << 30));
        let [asked_for, not_asked_for] = [vec![0, 0], vec![0]].map(Wanted::new).map(Arc::new);
        let join = case.join(vec![asked_for.clone(), not_asked_for.clone()]);
        let rows: Found<Row> = Found::default();
        let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
        let asked = case.ask(&mut probe.program, asked_for);
        run(vec![case.build_pipeline(&join), probe], &context).expect("there is memory");
        let expected = tables::hash_join(&case.build, &case.probe);
        let expected = expected.into_iter().map(|(probe, build)| (probe, Some(build), None));
        assert_eq!(taken(&rows), sorted(expected.collect()));
        let (rows_in, rows_out) = asked.get();
        if is_asked_on {
            assert!(rows_in == 300_000 && rows_out < 10_000, "{rows_in} {rows_out}");
        } else {
            assert!((65_536..68_000).contains(&rows_in), "{rows_in}");
        }
        assert!(not_asked_for.filter().is_none());
    }
}

/// A filter that there is no memory for is not made, and lets all rows through.
#[test]
fn filters_are_done_without_for_lack_of_memory() {
    let case = large(9, 200_000, 1000, 1 << 20);
    let join = case.join(Vec::new());
    let ledger = Ledger::new(1 << 30);
    run(vec![case.build_pipeline(&join)], &Context::new(runtime(1), ledger)).expect("memory");
    // What the build side takes, and not half of what its filter takes.
    let limit = join.bytes().expect("finished") + (100 << 10);
    let wanted = Arc::new(Wanted::new(vec![0, 0]));
    let join = case.join(vec![wanted.clone()]);
    let rows: Found<Row> = Found::default();
    let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
    let asked = case.ask(&mut probe.program, wanted.clone());
    let context = Context::new(runtime(1), Ledger::new(limit));
    run(vec![case.build_pipeline(&join), probe], &context).expect("as much memory as it takes");
    let expected = tables::hash_join(&case.build, &case.probe);
    let expected = expected.into_iter().map(|(probe, build)| (probe, Some(build), None));
    assert_eq!(taken(&rows), sorted(expected.collect()));
    assert!(wanted.filter().is_none());
    assert_eq!(asked.get(), (0, 0));
}

/// Many tuples, so that they are partitioned on the way and go into the directory in parallel.
#[test]
fn large_joins() {
    for (seed, mode) in
        [(5, PartitionMode::Adaptive), (6, PartitionMode::Always), (7, PartitionMode::Never)]
    {
        for workers in [1, 2] {
            let mut case = large(seed, 120_000, 50_000, 100_000);
            (case.mode, case.marks_build) = (mode, true);
            let expected = tables::hash_join(&case.build, &case.probe);
            let ledger = Ledger::new(1 << 30);
            let mut context = Context::new(runtime(workers), ledger.clone());
            context.partition = mode;
            let join = case.join(Vec::new());
            let pairs = Found::default();
            let [matched, rest] = [Found::default(), Found::default()];
            let pipelines = vec![
                case.build_pipeline(&join),
                case.probe_pipeline(&join, take_rows(Kind::Inner, &pairs)),
                remainder_pipeline(&join, Which::Matched, &matched),
                remainder_pipeline(&join, Which::Unmatched, &rest),
            ];
            run(pipelines, &context).unwrap();
            let pairs = taken(&pairs).into_iter().map(|(probe, build, _)| (probe, build.unwrap()));
            assert!(pairs.eq(sorted(expected)), "{mode:?}, {workers} workers");
            assert_eq!(taken(&matched).len() + taken(&rest).len(), 120_000);
            assert_eq!(join.tuples(), Some(120_000));
            drop(join);
            assert_eq!(ledger.used(), 0);
        }
    }
}

/// One key, so often on either side that there are ten billion matches: they come batch by batch, and end when asked to.
#[test]
fn matches_of_a_skewed_key_come_lazily() {
    for workers in [1, 2] {
        let case = large(4, 100_000, 100_000, 1);
        let ledger = Ledger::new(1 << 30);
        let context = Context::new(runtime(workers), ledger.clone());
        let join = case.join(Vec::new());
        let left = Arc::new(AtomicI64::new(1_000_000));
        let for_sink = left.clone();
        let probe = case.probe_pipeline(&join, move |registers, _| {
            let rows = registers.selected().count() as i64;
            assert!(rows > 0 && rows <= 2048, "{rows} rows");
            match for_sink.fetch_sub(rows, Ordering::Relaxed) {
                ..0 => Flow::Enough,
                _ => Flow::More,
            }
        });
        run(vec![case.build_pipeline(&join), probe], &context).unwrap();
        let over = -left.load(Ordering::Relaxed);
        assert!((0..100_000).contains(&over), "{over} more");
        drop(join);
        assert_eq!(ledger.used(), 0);
    }
}

/// Runs the build side alone; gives the most memory that it took.
fn build_within(limit_bytes: u64, mode: PartitionMode, workers: usize) -> Result<u64> {
    let case = large(8, 100_000, 1, 100_000);
    let ledger = Ledger::new(limit_bytes);
    let mut context = Context::new(runtime(workers), ledger.clone());
    context.partition = mode;
    let join = case.join(Vec::new());
    let result = run(vec![case.build_pipeline(&join)], &context);
    assert!(result.is_err() || join.bytes() == Some(ledger.used()));
    drop(join);
    assert_eq!(ledger.used(), 0, "{limit_bytes} bytes");
    result.map(|()| ledger.peak())
}

#[test]
fn too_large_builds_say_so() {
    for mode in [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never] {
        let peak_bytes = build_within(1 << 30, mode, 1).unwrap();
        assert_eq!(build_within(peak_bytes, mode, 1).unwrap(), peak_bytes);
        // The last of them is for the directory, and has no room.
        let limits = [(0, 1), (0, 2), (10_000, 1), (10_000, 2), (1 << 20, 2), (peak_bytes - 1, 1)];
        for (limit_bytes, workers) in limits {
            let error = build_within(limit_bytes, mode, workers).expect_err("too large");
            assert!(matches!(&error, ExecError::Memory { .. }), "{error}");
            assert!(error.to_string().contains("hash join"), "{error}");
        }
    }
}

/// Cancelled after a while, wherever it is then: in the build, between, or in a probe without end.
#[test]
fn a_cancelled_join_gives_its_memory_back() {
    let mut random = fastrand::Rng::new();
    for round in 0..12 {
        let case = large(9, 50_000, 50_000, if round % 2 == 0 { 1 } else { 50_000 });
        let ledger = Ledger::new(1 << 30);
        let context = Context::new(runtime(2), ledger.clone());
        let join = case.join(Vec::new());
        let probe = case.probe_pipeline(&join, |_, _| Flow::More);
        let pipelines = vec![case.build_pipeline(&join), probe];
        let cancel = context.cancel.clone();
        let after = Duration::from_micros(random.u64(..20_000));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(after);
            cancel.cancel();
        });
        let result = run(pipelines, &context);
        canceller.join().unwrap();
        assert!(matches!(result, Ok(()) | Err(ExecError::Cancelled)), "{after:?}: {result:?}");
        assert!(result.is_err() || round % 2 == 1, "there is no end to it");
        drop(join);
        assert_eq!(ledger.used(), 0, "after {after:?}");
    }
}
