//! `weft-bench tpcds`, from its command lines to its points.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::Parser;
use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;
use weft::{Database, DatabaseOptions};
use weft_bench::args::{BenchArgs, Experiment};
use weft_bench::experiment::suite::{self, Compared, SuiteReport};
use weft_bench::report::Machine;
use weft_bench::workload::TPCDS;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

/// The directory of the data, made by the first who takes it. One has it at a time: a database is open once.
type Data = Arc<OnceLock<Mutex<TempDir>>>;

/// A test with the directory of the data.
type Test = fn(&Path);

/// The tests.
pub fn trials() -> Vec<Trial> {
    let data = Data::default();
    let tests: [(&str, Test); 4] = [
        ("loads_once_and_checks_known_answers", loads_once_and_checks_known_answers),
        ("little_memory_suffices", little_memory_suffices),
        ("without_known_answers_there_are_others", without_known_answers_there_are_others),
        ("who_fails_is_named", who_fails_is_named),
    ];
    let trial = |(name, test): (&str, Test)| {
        let data = Arc::clone(&data);
        Trial::test(format!("benchmark::{name}"), move || {
            let make = || Mutex::new(tempfile::tempdir().expect("a temporary directory"));
            let data = data.get_or_init(make).lock().unwrap_or_else(PoisonError::into_inner);
            test(data.path());
            Ok::<(), Failed>(())
        })
    };
    tests.into_iter().map(trial).collect()
}

/// Runs `weft-bench tpcds` with two threads and one repetition.
fn run(line: &str, data: &Path) -> SuiteReport {
    let common = ["--threads", "2", "--repeat", "1", "--data", data.to_str().expect("text")];
    let words = ["bench", "tpcds"].into_iter().chain(line.split_whitespace()).chain(common);
    let experiment = Line::try_parse_from(words).expect("the options are known").bench.experiment;
    let Experiment::Tpcds(args) = experiment else { panic!("not tpcds") };
    suite::run(&TPCDS, &args.suite, &args.queries(), &Machine::default()).expect(line)
}

/// The queries of the points, and whether they are cold.
fn queries(report: &SuiteReport) -> Vec<(&str, bool)> {
    let queries = report.points.iter().filter(|point| point.cached.is_some());
    queries.map(|point| (point.pattern.as_deref().unwrap(), point.cached == Some(0.0))).collect()
}

fn loads_once_and_checks_known_answers(data: &Path) {
    let line = "--scale 0.01 --queries 96,3";
    drop(std::fs::remove_dir_all(TPCDS.database(data, 0.01)));
    let report = run(line, data);
    assert_eq!(report.points[0].pattern.as_deref(), Some("load"));
    assert_eq!(queries(&report), [("q96", true), ("q96", false), ("q03", true), ("q03", false)]);
    for point in &report.points[1..] {
        assert_eq!(point.bytes_read.unwrap() > 0, point.cached == Some(0.0), "{point:?}");
        assert_eq!(point.answer.as_deref(), Some("correct"));
    }
    assert_eq!(report.compared, Compared::Known);
    let text = weft_bench::report::suite::render(&report);
    assert!(text.starts_with("TPC-DS: 99 queries") && text.contains("loaded in"), "{text}");
    assert!(text.ends_with("\nanswers correct\n"), "{text}");
    suite::check(&report.points).unwrap();
    assert_eq!(run(line, data).points.len(), report.points.len() - 1);
}

fn little_memory_suffices(data: &Path) {
    // Joins, groupings with distinct values, grouping sets, window functions, set operations.
    let report = run("--scale 0.01 --queries 14,51,67,78,87,97 --memory-limit 1GB,16MiB", data);
    suite::check(&report.points).unwrap();
    assert_eq!(queries(&report).len(), 6 * 2 * 2);
    let allowed = (16 << 20) * 21 / 20 + (64 << 20);
    let little = report.points.iter().filter(|point| point.memory_limit == Some(16 << 20));
    assert!(little.clone().all(|point| point.resident_bytes_allowed == Some(allowed)));
    assert!(little.clone().all(|point| point.spilled_partitions.is_some()));
    assert!(little.count() >= 6 * 2);
}

fn without_known_answers_there_are_others(data: &Path) {
    let line = "--scale 0.011 --queries 3,42";
    let alone = run(line, data);
    assert_eq!(alone.compared, Compared::EachOther);
    let are = |report: &SuiteReport, answer: &str| {
        let queries = report.points.iter().filter(|point| point.cached.is_some());
        queries.into_iter().all(|point| point.answer.as_deref() == Some(answer))
    };
    assert!(are(&alone, "the same in all runs"), "{:?}", alone.points);
    let limited = run(&format!("{line} --memory-limit 32MiB"), data);
    assert_eq!(limited.compared, Compared::Unlimited);
    assert!(are(&limited, "correct"), "{:?}", limited.points);
    let text = weft_bench::report::suite::render(&limited);
    assert!(text.contains("\nanswers correct: those without a limit"), "{text}");
}

fn who_fails_is_named(data: &Path) {
    let path = data.join("more.weft");
    let database = Database::open(&path, &DatabaseOptions::default()).unwrap();
    TPCDS.load(&database, &TPCDS.directory(data, 0.01), 0.01, 2).unwrap();
    // As many could be there from the beginning, but the answers of queries are others.
    let twice = "INSERT INTO store_sales SELECT * FROM store_sales WHERE ss_item_sk % 20 = 0";
    database.session().unwrap().execute(twice).unwrap();
    drop(database);
    let report = run(&format!("--scale 0.01 --queries 28,26 --db {}", path.display()), data);
    let text = weft_bench::report::suite::render(&report);
    let error = suite::check(&report.points).expect_err(&text).to_string();
    let (start, what) = ("q28, cold, 2 threads, at ", ": q28 has a wrong answer: row 1 is ");
    let is_said = |line: &str| line.starts_with(start) && line.contains(what);
    assert_eq!(error.lines().filter(|line| is_said(line)).count(), 1, "{error}");
    assert_eq!(error.lines().count(), 2, "{error}");
    assert!(text.contains(&format!("\nFAILED {start}")), "{text}");
    assert!(text.ends_with("\nanswers of the other runs correct\n"), "{text}");
    // A query that has failed cold is not run hot; the others are run.
    assert_eq!(queries(&report), [("q28", true), ("q26", true), ("q26", false)]);
}
