//! EXPLAIN and EXPLAIN ANALYZE: what a query is planned as, and what it has done. Pipelines are shown line by line
//! ([`pipelines::lines`]), what DataFusion executes as a tree of nodes, in which pipelines are one node each. The format
//! `tree` draws all nodes ([`tree`]). What other formats there are, and other options, is DataFusion's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::format::{ExplainFormat, ExplainStatementOptions, MetricType};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryPool, PeakRecordingPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Analyze, Explain};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use weft_exec::compile::{CompileMode, Compiling};
use weft_exec::profile::{LONG_TURN, Turns};

use crate::control::Control;
use crate::error::{Result, SqlError};
use crate::pipelines::{self, PipelinesExec, Totals};
use crate::plan_node::{Plan, sources};
use crate::run::{Run, Started, text_batch, text_rows, text_schema};
use crate::sizes::{grouped, human_bytes};
use crate::spill_files::task_context;
use crate::tree_explained::tree;

/// The columns of the result.
const COLUMNS: [&str; 2] = ["plan_type", "plan"];

/// What a row of the result says, and in which words.
type Row = (&'static str, Vec<String>);

/// True if nothing was asked for that only DataFusion knows.
pub(crate) fn is_plain(plan: &Explain, state: &SessionState) -> bool {
    let options = &state.config_options().explain;
    let shows_statistics = plan.show_statistics.unwrap_or(options.show_statistics);
    let is_partial = options.logical_plan_only || options.physical_plan_only;
    let is_more = plan.verbose || shows_statistics || options.show_schema;
    plan.explain_format == ExplainFormat::Indent && !is_partial && !is_more
}

/// True if the plan is to be drawn.
pub(crate) fn is_drawn(plan: &Explain) -> bool {
    plan.explain_format == ExplainFormat::Tree
}

/// As [`is_plain`].
pub(crate) fn is_plainly_analyzed(plan: &Analyze, state: &SessionState) -> bool {
    plan.format == ExplainFormat::Indent
        && !plan.verbose
        && plan.analyze_level.is_none()
        && plan.analyze_categories.is_none()
        && !state.config_options().explain.show_statistics
}

/// Has options of EXPLAIN say that code is to be shown: by a level of metrics, of which there are none without ANALYZE.
pub(crate) fn ask_for_code(options: &mut ExplainStatementOptions) {
    options.analyze_level = Some(MetricType::Dev);
}

/// True if [`ask_for_code`] was called, of which options say nothing afterwards.
pub(crate) fn take_code(options: &mut ExplainStatementOptions) -> bool {
    !options.analyze && options.analyze_level.take_if(|level| *level == MetricType::Dev).is_some()
}

/// The result of EXPLAIN.
///
/// # Errors
/// Those of planning.
pub(crate) async fn explained(run: &Run, state: &SessionState, plan: &Explain) -> Result<Started> {
    let logical = run.optimized(state, plan.plan.as_ref().clone())?;
    let physical = state.query_planner().create_physical_plan(&logical, state).await?;
    let mut rows = vec![("logical_plan", texts(&logical.display_indent().to_string()))];
    rows.extend(of_plan(&physical, None));
    let (names, plans) = columns(rows);
    text_rows(&COLUMNS, vec![names, plans])
}

/// The result of EXPLAIN (CODE): the code of each pipeline.
///
/// # Errors
/// Those of planning; an error where there is no code for the processor.
pub(crate) async fn code(run: &Run, state: &SessionState, plan: &Explain) -> Result<Started> {
    let Some(Compiling { compiler, .. }) = run.session.engine().compiling(CompileMode::Always)
    else {
        return Err(SqlError::not_supported("EXPLAIN (CODE) on this processor")
            .with_hint("pipelines are interpreted here: EXPLAIN shows them"));
    };
    let logical = run.optimized(state, plan.plan.as_ref().clone())?;
    let physical = state.query_planner().create_physical_plan(&logical, state).await?;
    let (mut tree, mut execs, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    walk(&physical, 0, false, &mut tree, &mut execs);
    for exec in execs {
        rows.push(("code", pipelines::code(exec, &*compiler)?));
    }
    if rows.is_empty() {
        rows.push(("code", vec!["no part of the query is executed by pipelines".to_owned()]));
    }
    let (names, plans) = columns(rows);
    text_rows(&COLUMNS, vec![names, plans])
}

/// The result of EXPLAIN (FORMAT tree).
///
/// # Errors
/// Those of planning.
pub(crate) async fn drawn(run: &Run, state: &SessionState, plan: &Explain) -> Result<Started> {
    let logical = run.optimized(state, plan.plan.as_ref().clone())?;
    let physical = state.query_planner().create_physical_plan(&logical, state).await?;
    let width_max = state.config_options().explain.tree_maximum_render_width;
    let (names, plans) = columns(vec![("physical_plan", vec![tree(&physical, width_max)])]);
    text_rows(&COLUMNS, vec![names, plans])
}

/// The result of EXPLAIN ANALYZE, which comes when the query has ended.
///
/// # Errors
/// Those of planning.
pub(crate) async fn analyzed(run: &Run, state: &SessionState, plan: &Analyze) -> Result<Started> {
    run.control.measure();
    let physical = run.physical(state, &plan.input).await?;
    let began = Instant::now();
    // What operators of DataFusion's reserve goes through here, whose it is.
    let context = Arc::into_inner(task_context(state)).expect("nobody else has it yet");
    let environment = context.runtime_env();
    let pool = Arc::new(PeakRecordingPool::new(Arc::clone(&environment.memory_pool)));
    let environment = RuntimeEnvBuilder::from_runtime_env(&environment)
        .with_memory_pool(Arc::clone(&pool) as Arc<dyn MemoryPool>)
        .build_arc()?;
    let context = Arc::new(context.with_runtime(environment));
    let mut stream = execute_stream(Arc::clone(&physical), context)?;
    let (control, schema) = (Arc::clone(&run.control), text_schema(&COLUMNS));
    let of_batch = Arc::clone(&schema);
    let result = async move {
        let mut returned = 0;
        while let Some(batch) = stream.next().await {
            returned += batch?.num_rows() as u64;
        }
        drop(stream);
        let foreign_peak = pool.peak_reserved() as u64;
        let took = began.elapsed();
        let mut rows = vec![("query", of_query(&physical, foreign_peak, &control, took, returned))];
        rows.extend(of_plan(&physical, Some(began)));
        let (names, plans) = columns(rows);
        Ok(text_batch(&of_batch, vec![names, plans])?)
    };
    let stream = RecordBatchStreamAdapter::new(schema, futures::stream::once(result));
    Ok(Started::Rows(Box::pin(stream)))
}

fn columns(rows: Vec<Row>) -> (Vec<Option<String>>, Vec<Option<String>>) {
    rows.into_iter().map(|(name, lines)| (Some(name.to_owned()), Some(lines.join("\n")))).unzip()
}

fn texts(lines: &str) -> Vec<String> {
    lines.lines().map(str::to_owned).collect()
}

/// The plan: the tree of nodes, unless pipelines are all of it, and the pipelines, if there are any.
fn of_plan(physical: &Plan, began: Option<Instant>) -> Vec<Row> {
    let mut execs = Vec::new();
    let mut tree = Vec::new();
    walk(physical, 0, began.is_some(), &mut tree, &mut execs);
    let mut rows = Vec::new();
    if tree.len() > 1 || execs.is_empty() {
        rows.push(("physical_plan", tree));
    }
    let is_only = execs.len() == 1;
    let mut pipelines = Vec::new();
    for (number, exec) in execs.into_iter().enumerate() {
        if !is_only {
            pipelines.push(format!("PipelinesExec {number}"));
        }
        pipelines.extend(pipelines::lines(exec, began));
    }
    if !pipelines.is_empty() {
        rows.push(("pipelines", pipelines));
    }
    rows
}

/// The nodes of a plan, a line each, and those that are pipelines, by their number in the text.
fn walk<'a>(
    plan: &'a Plan,
    depth: usize,
    with_metrics: bool,
    lines: &mut Vec<String>,
    execs: &mut Vec<&'a PipelinesExec>,
) {
    let line = if let Some(exec) = plan.downcast_ref::<PipelinesExec>() {
        execs.push(exec);
        format!("PipelinesExec {}", execs.len() - 1)
    } else if with_metrics {
        DisplayableExecutionPlan::with_metrics(plan.as_ref()).one_line().to_string()
    } else {
        DisplayableExecutionPlan::new(plan.as_ref()).one_line().to_string()
    };
    lines.push(format!("{}{}", "  ".repeat(depth), line.trim_end()));
    for child in sources(plan) {
        walk(child, depth + 1, with_metrics, lines, execs);
    }
}

/// What the query as a whole has done, of which operators of DataFusion's reserved `foreign_peak` bytes at most.
fn of_query(
    plan: &Plan,
    foreign_peak: u64,
    control: &Control,
    took: Duration,
    returned: u64,
) -> Vec<String> {
    let mut totals = Totals::default();
    add_totals(plan, &mut totals);
    totals.add_spilled(&control.spilled);
    let progress = control.snapshot();
    let mut lines = vec![
        format!("time      {}", pipelines::seconds(took)),
        format!("rows      {} returned", grouped(returned)),
    ];
    if totals.workers > 0 {
        let available = took.as_secs_f64() * totals.workers as f64;
        let share = 100.0 * totals.cpu.as_secs_f64() / available.max(f64::MIN_POSITIVE);
        let cpu = pipelines::seconds(totals.cpu);
        lines.push(format!("CPU       {cpu}, {share:.0} % of {} workers", totals.workers));
        let [devices, memory] =
            [totals.waited_for_devices, totals.waited_for_memory].map(pipelines::seconds);
        lines.push(format!("waiting   {devices} for SSD, {memory} for memory, of all workers"));
        let Turns { count, long, max } = totals.turns;
        let (turn, long_turn) = (max.as_secs_f64() * 1e3, LONG_TURN.as_millis());
        lines.push(format!(
            "turns     {turn:.3} ms of CPU at most until others were let run, {} of {} over {long_turn} ms",
            grouped(long),
            grouped(count)
        ));
        let peak = human_bytes(totals.memory_peak);
        lines.push(format!("memory    {peak} reserved by operators at most"));
    }
    if totals.workers == 0 || foreign_peak > 0 {
        let peak = human_bytes(foreign_peak);
        lines.push(format!("memory    {peak} reserved by DataFusion's operators at most"));
    }
    let of_tables = progress.bytes_read.saturating_sub(totals.read_bytes);
    lines.push(format!("read      {} of tables and files", human_bytes(of_tables)));
    let spilled = totals.spilled().unwrap_or_else(|| "nothing".to_owned());
    lines.push(format!("spilled   {spilled}"));
    if let Some(levels) = totals.levels() {
        lines.push(format!("pages     by compression: {levels}"));
    }
    lines
}

fn add_totals(plan: &Plan, totals: &mut Totals) {
    if let Some(exec) = plan.downcast_ref::<PipelinesExec>() {
        totals.add(exec);
    }
    sources(plan).into_iter().for_each(|child| add_totals(child, totals));
}
