//! What compiling pipelines gives: each TPC-H query in memory with `compile` never, always and auto, one after the other in each round; and how long
//! its pipelines take to compile, and how much code they become.

use std::time::Instant;

use weft::{Database, DatabaseOptions, QueryResult, Session};

use crate::answer::{Answer, TextRows, text_rows};
use crate::args::{CompileArgs, cores, distinct};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::units;
use crate::report::{Machine, Point};
use crate::workload::{Query, TPCH, WorkloadError};

/// The values of the setting.
const MODES: [&str; 3] = ["never", "always", "auto"];

/// What was measured of a query.
struct Measured {
    query: u32,
    /// Medians, in seconds, in the order of [`MODES`].
    seconds: [f64; 3],
    /// Milliseconds.
    compile_ms: f64,
    code: Vec<String>,
}

/// Loads the database if needed, runs the queries in all modes, and compares their answers. Gives what it has measured in words, too.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or answers differ.
pub fn run(args: &CompileArgs, machine: &Machine) -> Result<(Vec<Point>, String), BenchError> {
    let threads = distinct(&args.common.threads).first().copied().unwrap_or_else(cores);
    let path = args.database();
    let options = DatabaseOptions::default().with("threads", threads);
    let opened = Database::open(&path, &options);
    let database =
        opened.map_err(WorkloadError::statement(format!("opening {}", path.display())))?;
    let files = TPCH.directory(&args.common.data, args.scale);
    TPCH.load(&database, &files, args.scale, cores() as usize)?;
    let bar = progress_bar("queries").with_message("compile");
    bar.set_length(TPCH.queries.len() as u64);
    let (mut points, mut all) = (Vec::new(), Vec::new());
    for query in TPCH.queries {
        let session = database.session().map_err(WorkloadError::statement(query.name()))?;
        let Runs { mut seconds, compile_ms, code } = measure(&session, query, args.common.repeat)?;
        for (mode, seconds) in MODES.iter().zip(&mut seconds) {
            seconds.sort_by(f64::total_cmp);
            points.push(Point {
                experiment: "compile".to_owned(),
                pattern: Some((*mode).to_owned()),
                query: Some(query.number),
                driver: "memory".to_owned(),
                device: machine.device.clone(),
                threads,
                scale: Some(args.scale),
                repetitions: seconds.len() as u32,
                seconds: seconds[seconds.len() / 2],
                seconds_min: seconds.first().copied(),
                seconds_max: seconds.last().copied(),
                answer: Some("the same in all modes".to_owned()),
                ..Point::default()
            });
        }
        points.push(Point {
            experiment: "compile".to_owned(),
            pattern: Some("compiling".to_owned()),
            query: Some(query.number),
            driver: "memory".to_owned(),
            device: machine.device.clone(),
            threads,
            scale: Some(args.scale),
            repetitions: 1,
            seconds: compile_ms / 1e3,
            ..Point::default()
        });
        let seconds = seconds.each_ref().map(|seconds| seconds[seconds.len() / 2]);
        all.push(Measured { query: query.number, seconds, compile_ms, code });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((points, summary(&all)))
}

/// What the runs of a query have taken.
struct Runs {
    /// Of each round, in each mode.
    seconds: [Vec<f64>; 3],
    /// That compiling took.
    compile_ms: f64,
    /// How large the code of each pipeline is.
    code: Vec<String>,
}

/// Runs a query in all modes, in turns.
fn measure(session: &Session, query: &Query, repeat: u32) -> Result<Runs, BenchError> {
    let failed = || WorkloadError::statement(query.name());
    let set = |mode: &str| session.execute(&format!("SET compile = '{mode}'")).map(drop);
    // The first to compile it, so that nothing is known of its code yet.
    set("always").map_err(failed())?;
    let explained = session.query(&format!("EXPLAIN ANALYZE {}", query.sql));
    let explained = explained.and_then(QueryResult::collect).map_err(failed())?;
    let text_failed = |source| WorkloadError::Text { what: query.name(), source };
    let (compile_ms, code) = compiled(&text_rows(&explained).map_err(text_failed)?);
    let mut seconds: [Vec<f64>; 3] = Default::default();
    let mut expected: Option<Answer> = None;
    for _ in 0..repeat {
        for (mode, seconds) in MODES.iter().zip(&mut seconds) {
            set(mode).map_err(failed())?;
            let began = Instant::now();
            let batches = session.query(query.sql).and_then(QueryResult::collect);
            let batches = batches.map_err(failed())?;
            seconds.push(began.elapsed().as_secs_f64());
            let rows = text_rows(&batches).map_err(text_failed)?;
            match &expected {
                Some(expected) => expected
                    .check(&rows)
                    .map_err(|source| WorkloadError::WrongAnswer { query: query.name(), source })?,
                None => expected = Some(Answer::of_run(rows, &[], None)),
            }
        }
    }
    Ok(Runs { seconds, compile_ms, code })
}

/// From EXPLAIN ANALYZE: `compiled in 1.234 ms to 5.6 KiB: …`, for each pipeline with code.
fn compiled(explained: &TextRows) -> (f64, Vec<String>) {
    let (mut total_ms, mut code) = (0.0, Vec::new());
    for line in explained.iter().flatten().flat_map(|text| text.lines()) {
        let Some(rest) = line.trim_start().strip_prefix("compiled in ") else { continue };
        if let Some((ms, rest)) = rest.split_once(" ms to ") {
            total_ms += ms.parse().unwrap_or(0.0);
            code.push(rest.split(':').next().unwrap_or_default().to_owned());
        }
    }
    (total_ms, code)
}

/// A line for each query, and the geometric means of times against those without compilation.
fn summary(all: &[Measured]) -> String {
    let mut text = String::new();
    let mut logs = [0.0; 3];
    for Measured { query, seconds, compile_ms, code } in all {
        let ratio = |mode: usize| seconds[mode] / seconds[0];
        (0..3).for_each(|mode| logs[mode] += ratio(mode).ln());
        text.push_str(&format!(
            "Q{query}: never {} s, always {}, auto {} times as long; compiling {} ms, code {}\n",
            units::number(seconds[0]),
            units::number(ratio(1)),
            units::number(ratio(2)),
            units::number(*compile_ms),
            if code.is_empty() { "none".to_owned() } else { code.join(" + ") }
        ));
    }
    let mean = |mode: usize| units::number((logs[mode] / all.len().max(1) as f64).exp());
    text.push_str(&format!("geometric mean: always {}, auto {} of never\n", mean(1), mean(2)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compile_times_are_read() {
        let lines = "pipeline 0\n  compiled in 1.250 ms to 4.0 KiB: 50 % of 8 vectors\n  source\n  compiled in 0.750 ms to 2.0 KiB: 9 %";
        let rows = vec![vec!["pipelines".to_owned(), lines.to_owned()]];
        assert_eq!(compiled(&rows), (2.0, vec!["4.0 KiB".to_owned(), "2.0 KiB".to_owned()]));
    }
}
