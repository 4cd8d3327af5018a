//! Filters of build sides on their way down the probe sides' plans, to where they are asked.
//!
//! A join whose probe side may lose rows without a match hands an [`Ask`] to the plan of that side. Nodes pass it on to
//! their inputs as long as its keys are columns of theirs: whatever rows an input gives less then have keys that the
//! join finds nothing for, and the rows with other keys stay as they are. Where some of the keys go on only, an ask
//! about these goes on, and the whole is asked before. A pipeline that asks waits for the build side, which is closed
//! before anything of the probe side is: pipelines never wait for each other.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weft_exec::Lane;
use weft_exec::join::{Asked, Nulls, Wanted};
use weft_exec::program::{CastFailure, Program, Register, Step};
use weft_exec::source::{AskedBounds, AskedColumn};

use super::open::Open;
use super::term::{Place, Term, in_lane, in_register};

/// The build side of a join whose filters may be asked.
#[derive(Debug)]
pub(super) struct Origin {
    /// The pipelines that materialize it.
    pipelines: Vec<usize>,
    /// The lanes that its keys are hashed in.
    lanes: Vec<Lane>,
    nulls: Nulls,
    /// The filters that were asked for.
    wanted: RefCell<Vec<Arc<Wanted>>>,
}

/// A filter that is to be asked.
#[derive(Clone, Debug)]
struct Ask {
    origin: Rc<Origin>,
    /// Numbers of the join's keys, ascending, and the columns that they are.
    keys: Vec<(usize, usize)>,
    /// Something is done with rows between here and the join's own look-up, which is as fast.
    is_worth: bool,
}

/// What a plan may be asked to leave out.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks(Vec<Ask>);

impl Origin {
    /// A build side with keys of these lanes.
    pub(super) fn new(pipelines: &[usize], lanes: Vec<Lane>, nulls: Nulls) -> Rc<Origin> {
        let (pipelines, wanted) = (pipelines.to_vec(), RefCell::default());
        Rc::new(Origin { pipelines, lanes, nulls, wanted })
    }

    /// The filters that were asked for, if the keys are hashed in these lanes.
    pub(super) fn filters(&self, lanes: &[Lane]) -> Vec<Arc<Wanted>> {
        if self.lanes == lanes { self.wanted.borrow().clone() } else { Vec::new() }
    }

    /// The filter over these keys.
    fn wanted(&self, keys: &[(usize, usize)]) -> Arc<Wanted> {
        let mut all = self.wanted.borrow_mut();
        let numbers: Vec<usize> = keys.iter().map(|(key, _)| *key).collect();
        if let Some(known) = all.iter().find(|known| known.keys() == numbers) {
            return known.clone();
        }
        let wanted = Arc::new(Wanted::new(numbers));
        all.push(wanted.clone());
        wanted
    }
}

impl Asks {
    /// Adds the filter of a build side; `column` says which column of the probe side a key is.
    pub(super) fn add(&mut self, origin: &Rc<Origin>, column: impl Fn(usize) -> Option<usize>) {
        let numbers = 0..origin.lanes.len();
        let keys: Vec<_> = numbers.filter_map(|key| Some((key, column(key)?))).collect();
        if !keys.is_empty() {
            self.0.push(Ask { origin: origin.clone(), keys, is_worth: false });
        }
    }

    /// What an input may be asked, where `column` says which of its columns a column is.
    pub(super) fn below(&self, column: impl Fn(usize) -> Option<usize>) -> Asks {
        let below = |ask: &Ask| {
            let passed = ask.keys.iter().filter_map(|(key, at)| Some((*key, column(*at)?)));
            let keys: Vec<_> = passed.collect();
            (!keys.is_empty()).then(|| Ask { keys, ..ask.clone() })
        };
        Asks(self.0.iter().filter_map(below).collect())
    }

    /// What is to be asked here: no input is asked about all of its keys.
    pub(super) fn rest(&self, inputs: &[&Asks]) -> Asks {
        let is_same = |ask: &Ask, other: &Ask| {
            Rc::ptr_eq(&ask.origin, &other.origin) && ask.keys.len() == other.keys.len()
        };
        let is_asked =
            |ask: &&Ask| inputs.iter().any(|asks| asks.0.iter().any(|a| is_same(ask, a)));
        Asks(self.0.iter().filter(|ask| !is_asked(ask)).cloned().collect())
    }

    /// The same, where something is done with the rows before they come to where the join looks them up.
    pub(super) fn across(mut self) -> Asks {
        self.0.iter_mut().for_each(|ask| ask.is_worth = true);
        self
    }

    /// Asks here, for every row.
    pub(super) fn ask(&self, open: &mut Open) {
        if open.window.is_some() {
            return;
        }
        for Ask { origin, keys, .. } in self.0.iter().filter(|ask| ask.is_worth) {
            let terms = keys.iter().map(|(key, column)| (&open.columns[*column], *key));
            if !terms.clone().all(|(term, key)| can_move(term, origin.lanes[key])) {
                continue;
            }
            let start = open.steps();
            let registers: Vec<Register> = terms
                .map(|(term, key)| moved(&mut open.program, term, origin.lanes[key]))
                .collect();
            let hash = open.program.register(Lane::U64);
            let asked = Asked::new(origin.wanted(keys));
            open.label(start, format!("filter by {}", in_words(&origin.pipelines)));
            let filter = Arc::new(asked);
            open.program.steps.push(Step::MayMatch { keys: registers, hash, filter });
            open.wait_for(&origin.pipelines);
        }
    }

    /// What a scan with columns of these lanes asks itself, and the pipelines that it waits for.
    pub(super) fn of_scan(&self, lanes: &[Lane]) -> OfScan {
        let mut of_scan = OfScan::default();
        for Ask { origin, keys, .. } in &self.0 {
            of_scan.after.extend_from_slice(&origin.pipelines);
            let whole = origin.wanted(keys);
            for (at, (key, column)) in keys.iter().enumerate() {
                if lanes[*column] == origin.lanes[*key] {
                    let wanted = origin.wanted(&[(*key, *column)]);
                    of_scan.filters.push(AskedColumn::new(*column, lanes[*column], wanted));
                }
                // Zones know nothing of nulls that match.
                if origin.nulls != Nulls::Equal {
                    let wanted = whole.clone();
                    of_scan.bounds.push(AskedBounds { column: *column, key: at, wanted });
                }
            }
        }
        of_scan
    }
}

/// Numbers of pipelines, for EXPLAIN.
pub(super) fn in_words(pipelines: &[usize]) -> String {
    let numbers: Vec<String> = pipelines.iter().map(usize::to_string).collect();
    numbers.join(", ")
}

/// What a scan asks itself.
#[derive(Debug, Default)]
pub(super) struct OfScan {
    pub(super) bounds: Vec<AskedBounds>,
    pub(super) filters: Vec<AskedColumn>,
    /// Pipelines that must have ended.
    pub(super) after: Vec<usize>,
}

/// True if a key can be hashed in the lane `to`: only decimals of one type have different lanes.
fn can_move(term: &Term, to: Lane) -> bool {
    match (term.lane, to) {
        (Lane::I64, Lane::I128) => true,
        (Lane::I128, Lane::I64) => !matches!(term.place, Place::Constant(_)),
        (from, to) => from == to,
    }
}

/// A key in the lane that it is hashed in; null where it has no place there, so that it is no key of the build side.
fn moved(program: &mut Program, term: &Term, lane: Lane) -> Register {
    if term.lane == Lane::I128
        && lane == Lane::I64
        && let Place::Register(a) = term.place
    {
        let out = program.register(lane);
        program.steps.push(Step::Cast { a, out, failure: CastFailure::Null });
        return out;
    }
    let term = in_lane(program, term.clone(), lane);
    in_register(program, &term)
}
