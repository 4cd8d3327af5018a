//! Parts of a plan that occur more than once, as those of a common table expression do: they run once, and their rows are
//! stored for all who read them.
//!
//! The largest ones are shared, if it is worth the while (`worth`), whatever their nodes are, and also where one wants fewer
//! columns than another (`same`). Nobody's filters drop rows of what others read, too: whoever reads asks behind the stored rows.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::common::Result as DfResult;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use weft_exec::Lane;
use weft_exec::program::Step;
use weft_exec::sink::{Store, Stored as StoredRows};
use weft_exec::source::StoredTuples;
use weft_exec::tuple::Layout;

use super::asks::Asks;
use super::input::InputExec;
use super::open::Open;
use super::same::{Same, address, fingerprint, picks_columns};
use super::stored::{Stored, StoredTerm};
use super::translate::{Translator, passed};
use super::worth::Worth;
use crate::parquet_scan::ParquetScanExec;
use crate::plan_node::Plan;
use crate::scan::ScanExec;

/// Most parts of a plan that are compared with each other.
const COMPARED_MAX: usize = 256;

/// What occurs more than once in a plan.
#[derive(Debug, Default)]
pub(super) struct SharedPlans {
    plans: Vec<SharedPlan>,
    /// Which of them nodes are, by their addresses, and which of its columns theirs are.
    uses: HashMap<usize, (usize, Vec<usize>)>,
}

#[derive(Debug)]
struct SharedPlan {
    /// The one with the most columns.
    plan: Plan,
    rows: Option<SharedRows>,
}

/// The rows of a plan, once it was translated.
#[derive(Clone, Debug)]
struct SharedRows {
    stored: Arc<OnceLock<StoredRows>>,
    layout: Arc<Layout>,
    columns: Vec<StoredTerm>,
    /// The pipelines that store them.
    after: Vec<usize>,
}

impl SharedPlans {
    /// Those of a plan.
    pub(super) fn of(plan: &Plan) -> SharedPlans {
        let mut fingerprints = HashMap::new();
        fingerprint(plan, &mut fingerprints);
        let mut search = Search::new(plan, fingerprints);
        if search.counts.values().all(|count| *count < 2) {
            return SharedPlans::default();
        }
        // First which there are, and who of those that are the same has the most columns; then who reads them. What lies
        // in a plan that another one stands for is not looked at.
        search.widest(plan);
        let mut plans = SharedPlans::default();
        plans.plans.extend(
            search.found.iter().map(|(_, plan)| SharedPlan { plan: plan.clone(), rows: None }),
        );
        plans.collect(plan, &mut search);
        let mut readers = vec![0; plans.plans.len()];
        plans.uses.values().for_each(|(number, _)| readers[*number] += 1);
        plans.uses.retain(|_, (number, _)| readers[*number] > 1);
        plans
    }

    fn collect(&mut self, plan: &Plan, search: &mut Search) {
        if search.is_candidate(plan)
            && let Some((number, columns)) = search.holder(plan)
        {
            self.uses.insert(address(plan), (number, columns));
            if address(&self.plans[number].plan) != address(plan) {
                return;
            }
        }
        plan.children().into_iter().for_each(|child| self.collect(child, search));
    }

    /// True if a node's rows are stored for others, too.
    pub(super) fn is_shared(&self, plan: &Plan) -> bool {
        self.uses.contains_key(&address(plan))
    }
}

/// What is known of a plan's parts while those that are the same are looked for.
struct Search {
    same: Same,
    worth: Worth,
    fingerprints: HashMap<usize, u64>,
    /// How many nodes have a fingerprint.
    counts: HashMap<u64, usize>,
    /// Parts that are different, each with its fingerprint.
    found: Vec<(u64, Plan)>,
}

impl Search {
    fn new(plan: &Plan, fingerprints: HashMap<usize, u64>) -> Search {
        let mut counts = HashMap::new();
        count(plan, &fingerprints, &mut counts);
        let is_any_repeated = counts.values().any(|count| *count > 1);
        let same = if is_any_repeated { Same::of(plan) } else { Same::default() };
        Search { same, worth: Worth::default(), fingerprints, counts, found: Vec::new() }
    }

    fn fingerprint(&self, plan: &Plan) -> u64 {
        self.fingerprints.get(&address(plan)).copied().unwrap_or_default()
    }

    /// True for nodes that may occur more than once, and do something.
    fn is_candidate(&self, plan: &Plan) -> bool {
        does_something(plan)
            && self.counts.get(&self.fingerprint(plan)).is_some_and(|count| *count > 1)
    }

    /// Finds the parts that occur more than once.
    fn widest(&mut self, plan: &Plan) {
        if self.is_candidate(plan) {
            let fingerprint = self.fingerprint(plan);
            for (known, widest) in &mut self.found {
                if *known != fingerprint {
                    continue;
                }
                if self.same.holds(widest, plan).is_some() {
                    return;
                }
                if self.same.holds(plan, widest).is_some() {
                    *widest = plan.clone();
                    return;
                }
            }
            if self.found.len() < COMPARED_MAX && self.worth.is_worth(plan) {
                self.found.push((fingerprint, plan.clone()));
            }
        }
        plan.children().into_iter().for_each(|child| self.widest(child));
    }

    /// The number of the plan that holds the rows of this one, and which columns they are.
    fn holder(&mut self, plan: &Plan) -> Option<(usize, Vec<usize>)> {
        let fingerprint = self.fingerprint(plan);
        self.found.iter().enumerate().find_map(|(number, (known, widest))| {
            if *known != fingerprint {
                return None;
            }
            if address(widest) == address(plan) {
                return Some((number, (0..plan.schema().fields().len()).collect()));
            }
            Some((number, self.same.holds(widest, plan)?))
        })
    }
}

/// Counts the nodes that do something by their fingerprints.
fn count(plan: &Plan, fingerprints: &HashMap<usize, u64>, counts: &mut HashMap<u64, usize>) {
    if does_something(plan)
        && let Some(fingerprint) = fingerprints.get(&address(plan))
    {
        *counts.entry(*fingerprint).or_default() += 1;
    }
    plan.children().into_iter().for_each(|child| count(child, fingerprints, counts));
}

/// True unless a node gives the rows of its inputs as they are, or those of a table. What is sorted loses its order where it is
/// stored, so only the first rows of an order count.
fn does_something(plan: &Plan) -> bool {
    if plan.fetch().is_some() {
        return !plan.is::<InputExec>() && !plan.is::<ParquetScanExec>();
    }
    let is_bare_scan =
        plan.downcast_ref::<ScanExec>().is_some_and(|scan| scan.conditions().is_empty());
    let is_leaf = plan.children().is_empty() && !plan.is::<ScanExec>();
    let is_passing = passed(plan).is_some()
        || picks_columns(plan)
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<UnionExec>()
        || plan.is::<InterleaveExec>();
    !is_bare_scan && !is_leaf && !is_passing
}

/// The rows of a node that occurs more than once; `None` if it does not.
///
/// # Errors
/// Those of its nodes.
pub(super) fn shared(translator: &mut Translator, plan: &Plan) -> Option<DfResult<Open>> {
    let (number, columns) = translator.shared.uses.get(&address(plan))?.clone();
    let rows = match translator.shared.plans[number].rows.clone() {
        Some(rows) => rows,
        None => {
            let whole = translator.shared.plans[number].plan.clone();
            // Nobody's filters may drop rows that others want.
            let open = translator.alone(&whole, Asks::default());
            match open.and_then(|open| store(translator, open)) {
                Ok(rows) => translator.shared.plans[number].rows.insert(rows).clone(),
                Err(error) => return Some(Err(error)),
            }
        }
    };
    Some(Ok(read(&rows, &columns)))
}

/// Stores the rows of a pipeline.
fn store(translator: &mut Translator, open: Open) -> DfResult<SharedRows> {
    let mut open = translator.unwindowed(open)?;
    open.begin_sink();
    let mut stored = Stored::default();
    let columns = open.columns.iter().map(|term| stored.add(term)).collect();
    let (layout, fields) = stored.finish();
    let hash = open.program.register(Lane::U64);
    open.program.steps.push(Step::Fill { value: None, out: hash });
    let sink = Store::new(layout.clone(), fields, hash);
    let stored = sink.stored();
    let after = open.close(Box::new(sink), "shared rows", &mut translator.closed);
    Ok(SharedRows { stored, layout, columns, after })
}

/// Reads some of their columns.
fn read(rows: &SharedRows, columns: &[usize]) -> Open {
    let source = Box::new(StoredTuples::new(rows.stored.clone()));
    let mut tuples = None;
    let mut open = Open::new(source, "shared rows", &[Lane::U64], |registers| {
        tuples = registers.first().copied();
        Vec::new()
    });
    if let Some(tuples) = tuples {
        let mut load = |term: &StoredTerm| term.load(&mut open.program, tuples, &rows.layout);
        open.columns = columns.iter().map(|column| load(&rows.columns[*column])).collect();
    }
    open.after(&rows.after)
}
