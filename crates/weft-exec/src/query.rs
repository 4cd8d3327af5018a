//! Queries: pipelines in the order of their dependencies, run by the workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use weft_rt::cancel::CancelToken;
use weft_rt::memory::Ledger;
use weft_rt::progress::Progress;
use weft_rt::{Runtime, Share};

use crate::compile::Compiling;
use crate::drive::drive;
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::parallel::CancelRest;
use crate::pipeline::Pipeline;
use crate::profile::{Measuring, PartName, Profile};
use crate::spill::{Settled, Spilling, Turn};
use crate::tasks::Tasks;
use crate::vector::VECTOR_ROWS_MAX;
use crate::work::Expected;

/// What all operators of a query share.
#[derive(Clone)]
pub struct Context {
    /// The workers.
    pub runtime: Arc<Runtime>,
    /// How many of them, 1 to all: the first ones.
    pub workers: usize,
    /// The part of each worker's time that the query gets, with whatever else has the same share.
    pub share: Share,
    /// The memory budget.
    pub ledger: Ledger,
    /// Ends the query.
    pub cancel: CancelToken,
    /// Counts what it does.
    pub progress: Arc<Progress>,
    /// Most tuples in a vector, 1 to [`VECTOR_ROWS_MAX`].
    pub vector_rows: usize,
    /// Morsel coroutines of a worker that wait for devices at once.
    pub io_depth: usize,
    /// When materialized tuples are partitioned.
    pub partition: PartitionMode,
    /// Where operators spill to that outgrow memory; nowhere if none: they fail then.
    pub spilling: Option<Arc<Spilling>>,
    /// What compiles its programs; nothing if all are interpreted.
    pub compiling: Option<Compiling>,
    /// When they may have much memory, which all queries of a statement share.
    pub turn: Arc<Turn>,
    /// What each pipeline does, if it is to be measured: as many as the query has pipelines, or none.
    pub profiles: Arc<[Arc<Profile>]>,
    /// What the tasks are measured for that are started with this.
    pub(crate) measuring: Option<Measuring>,
    /// The tasks of the query.
    pub(crate) tasks: Arc<Tasks>,
}

/// When an operator scatters what it materializes over partitions (Spilly, sections 4.2 and 6.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionMode {
    /// When its pages have grown past a threshold.
    #[default]
    Adaptive,
    /// From the first tuple on, and both sides of a join, which meet partition by partition; to be measured against.
    Always,
    /// Only to be spilled; to be measured against.
    Never,
}

impl PartitionMode {
    /// All modes.
    pub const ALL: [PartitionMode; 3] =
        [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PartitionMode::Adaptive => "adaptive",
            PartitionMode::Always => "always",
            PartitionMode::Never => "never",
        }
    }
}

impl Context {
    /// All workers, a share of its own, full vectors, adaptive partitioning, nobody to cancel it, nowhere to spill to.
    pub fn new(runtime: Arc<Runtime>, ledger: Ledger) -> Context {
        Context {
            workers: runtime.workers(),
            share: Share::new(),
            runtime,
            ledger,
            cancel: CancelToken::new(),
            progress: Arc::new(Progress::new()),
            vector_rows: VECTOR_ROWS_MAX,
            io_depth: weft_rt::IO_DEPTH_DEFAULT,
            partition: PartitionMode::default(),
            spilling: None,
            compiling: None,
            turn: Arc::default(),
            profiles: Arc::default(),
            measuring: None,
            tasks: Arc::default(),
        }
    }

    /// The same for what works for a part of the pipeline only.
    pub(crate) fn of_part(&self, part: PartName) -> Context {
        let measuring = self.measuring.clone();
        let measuring = measuring.map(|of| Measuring { part: Some(part), ..of });
        Context { measuring, ..self.clone() }
    }

    /// What measures the pipeline that this is for, if somebody wants to know.
    pub(crate) fn profile(&self) -> Option<&Arc<Profile>> {
        self.measuring.as_ref().map(|measuring| &measuring.profile)
    }
}

/// A query, ready to be run once.
#[derive(Debug)]
pub struct Query {
    /// Every pipeline comes after those that it depends on.
    pub pipelines: Vec<Pipeline>,
}

/// Memory for each worker of a pipeline that will keep tuples, and the part of the budget that may be left free for all
/// such pipelines.
const COMING_BYTES: u64 = 1 << 20;
const COMING: u64 = 16;

/// A worker's part of the budget for each pipeline that runs at once with others.
const RUNNING_BYTES: u64 = 16 << 20;

/// A pipeline that was not started.
struct Waiting {
    pipeline: Pipeline,
    /// So many others come before.
    left: usize,
}

/// Pipelines that may run at once. With little memory each would have so little that it writes nearly empty pages, and what comes next
/// need not have been made before it is wanted.
fn at_once(context: &Context) -> usize {
    (context.ledger.limit() / RUNNING_BYTES / context.workers as u64).max(1) as usize
}

/// The first pipeline that waits for no other.
fn first_ready(waiting: &mut BTreeMap<usize, Waiting>) -> Option<(usize, Pipeline)> {
    let number = *waiting.iter().find(|(_, waiting)| waiting.left == 0)?.0;
    waiting.remove(&number).map(|Waiting { pipeline, .. }| (number, pipeline))
}

impl Query {
    /// Runs all pipelines, those that do not depend on each other at the same time if there is memory for that, else those that come
    /// first; on any executor. When it returns, well or not, none of the query's tasks is left, and each pipeline was dropped when it had ended. If this future
    /// is dropped instead, the query is cancelled, and its tasks end soon.
    ///
    /// # Errors
    /// The first that a pipeline has; [`ExecError::Cancelled`]; [`ExecError::Join`] for a panic.
    ///
    /// # Panics
    /// If a pipeline comes before one that it depends on, if vectors are to have no rows or too many, if there are to be no workers or
    /// more than there are, or if only some pipelines are to be measured.
    pub async fn run(self, context: &Context) -> Result<()> {
        let vector_rows = context.vector_rows;
        assert!((1..=VECTOR_ROWS_MAX).contains(&vector_rows), "vectors of {vector_rows} rows");
        let workers = context.runtime.workers();
        assert!((1..=workers).contains(&context.workers), "{} of {workers}", context.workers);
        let (cancel, tasks) = (context.cancel.child(), Arc::default());
        let context = Context { cancel, tasks, ..context.clone() };
        let profiles = context.profiles.len();
        assert!(profiles == 0 || profiles == self.pipelines.len(), "a profile for each pipeline");
        let rest = CancelRest::new(&context.cancel);
        let result = self.run_pipelines(&context).await;
        let steps = context.ledger.steps_to_trim_blocks();
        if steps > 0 {
            let ledger = context.ledger.clone();
            let trimming = move || async move {
                let mut pace = Pace::default();
                // No more, though others may free blocks meanwhile.
                for _ in 0..steps {
                    ledger.trim_blocks();
                    pace.keep().await;
                }
                Ok(())
            };
            // If the query is cancelled, blocks that are free stay for the next one.
            context.on_a_worker(trimming).await.ok();
        }
        if result.is_ok() {
            rest.disarm();
        } else {
            drop(rest);
        }
        context.tasks.all_ended().await;
        result
    }

    async fn run_pipelines(self, context: &Context) -> Result<()> {
        let mut coming = coming(&self.pipelines, context);
        let expected = expected(&self.pipelines);
        for Expected { units, units_at_end } in &expected {
            context.progress.add_total(units + units_at_end);
        }
        let mut dependents: Vec<Vec<usize>> = self.pipelines.iter().map(|_| Vec::new()).collect();
        let mut waiting = BTreeMap::new();
        self.pipelines.iter().for_each(|pipeline| pipeline.program.announce());
        for (number, pipeline) in self.pipelines.into_iter().enumerate() {
            for before in &pipeline.after {
                assert!(*before < number, "pipeline {number} comes before pipeline {before}");
                dependents[*before].push(number);
            }
            let left = pipeline.after.len();
            waiting.insert(number, Waiting { pipeline, left });
        }
        let mut running = FuturesUnordered::new();
        let mut error = None;
        loop {
            while error.is_none()
                && running.len() < at_once(context)
                && let Some((number, pipeline)) = first_ready(&mut waiting)
            {
                coming[number] = None;
                running.push(start(number, pipeline, expected[number], context));
            }
            let Some((number, result)) = running.next().await else { break };
            if let Err(news) = result {
                // The others are cancelled because of the first failure: that is the news.
                if matches!(error, None | Some(ExecError::Cancelled)) {
                    error = Some(news);
                }
                context.cancel.cancel();
            }
            if error.is_some() {
                continue;
            }
            // What the next ones take, caches included, need not lie where this one's memory was.
            context.ledger.trim();
            for dependent in &dependents[number] {
                waiting.entry(*dependent).and_modify(|waiting| waiting.left -= 1);
            }
        }
        error.map_or(Ok(()), Err)
    }
}

/// For each pipeline that will keep tuples, memory for some of them, which others leave free until it is started.
fn coming(pipelines: &[Pipeline], context: &Context) -> Vec<Option<Settled>> {
    let count = pipelines.iter().filter(|pipeline| pipeline.sink.keeps_tuples()).count();
    let limit_bytes = context.ledger.limit() / COMING / count.max(1) as u64;
    let bytes = (COMING_BYTES * context.workers as u64).min(limit_bytes);
    let coming = |pipeline: &Pipeline| {
        let spilling = context.spilling.as_ref().filter(|_| pipeline.sink.keeps_tuples())?;
        Some(Settled::for_later(spilling, bytes))
    };
    pipelines.iter().map(coming).collect()
}

/// Of what a pipeline with unknown tuples gets from those before it, about the part that comes through these; and of what it has to do, the part
/// that comes after its last tuple, if it keeps them.
const COMES_THROUGH: u64 = 2;
const AT_END: u64 = 4;

/// How much each pipeline will have to do, as far as that can be told.
fn expected(pipelines: &[Pipeline]) -> Vec<Expected> {
    let mut expected: Vec<Expected> = Vec::with_capacity(pipelines.len());
    for pipeline in pipelines {
        let before = pipeline.after.iter().map(|before| expected[*before].units).max();
        let units = match (pipeline.source.units(), before) {
            // It is known when it is open.
            (0, None) => 0,
            (0, Some(before)) => before.div_ceil(COMES_THROUGH).max(1),
            (units, _) => units,
        };
        let units_at_end = if pipeline.sink.keeps_tuples() { 1 + units / AT_END } else { 1 };
        expected.push(Expected { units, units_at_end });
    }
    expected
}

/// Starts a pipeline; gives its number when it has ended.
fn start(
    number: usize,
    pipeline: Pipeline,
    expected: Expected,
    context: &Context,
) -> impl Future<Output = (usize, Result<()>)> + use<> {
    let profile = context.profiles.get(number).cloned();
    let measuring = profile.map(|profile| Measuring { profile, part: None });
    let context = Context { measuring, ..context.clone() };
    let (pipeline, for_task) = (Arc::new(pipeline), context.clone());
    let task = context.spawn(move || async move { drive(pipeline, expected, &for_task).await });
    async move { (number, task.await.map_err(ExecError::Join).flatten()) }
}
