//! The benchmarks of the database, from their command lines to their points.

use std::path::Path;

use clap::Parser;
use weft_bench::args::{BenchArgs, Experiment};
use weft_bench::experiment::suite::Compared;
use weft_bench::experiment::{memory, rate, storage, suite};
use weft_bench::report::{Machine, Point};
use weft_bench::workload::TPCH;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str, data: &Path) -> Experiment {
    let words = ["bench"].into_iter().chain(line.split_whitespace());
    let data = ["--data", data.to_str().unwrap()];
    Line::try_parse_from(words.chain(data)).unwrap().bench.experiment
}

#[test]
fn tpch_loads_once_and_checks_its_answers() {
    let data = tempfile::tempdir().unwrap();
    let line = "tpch --scale 0.01 --queries 6,1 --repeat 2 --threads 1 --io-driver auto,blocking";
    let Experiment::Tpch(args) = parse(line, data.path()) else { panic!("not tpch") };
    let run = || suite::run(&TPCH, &args.suite, &args.queries(), &Machine::default()).unwrap();
    let report = run();
    assert!(report.compared == Compared::Known && report.bytes_on_disk > 0);
    let patterns: Vec<&str> =
        report.points.iter().map(|point| point.pattern.as_deref().unwrap()).collect();
    assert_eq!(patterns, ["load", "q06", "q06", "q06", "q06", "q01", "q01", "q01", "q01"]);
    assert!(report.points[0].bytes_written.unwrap() >= report.bytes_on_disk / 2);
    for point in &report.points[1..] {
        let is_cold = point.cached == Some(0.0);
        assert_eq!(point.bytes_read.unwrap() > 0, is_cold, "{point:?}");
        assert_eq!(point.answer.as_deref(), Some("correct"));
        assert_eq!(point.ratio_to_blocking.is_some(), point.driver != "blocking");
    }
    let text = weft_bench::report::suite::render(&report);
    assert!(text.contains("answers correct") && text.contains("loaded in"), "{text}");
    let again = run();
    assert_eq!(again.points.len(), report.points.len() - 1);
}

#[test]
fn memory_says_how_much_was_allowed() {
    let data = tempfile::tempdir().unwrap();
    // Made here: this program is not the one that makes them in a process of its own.
    TPCH.generate(&TPCH.directory(data.path(), 0.01), 0.01, 1).unwrap();
    let line = "memory --scale 0.01 --memory-limit 64MB --threads 1";
    let Experiment::Memory(args) = parse(line, data.path()) else { panic!("not memory") };
    let (points, outcome) = memory::run(&args, &Machine::default()).unwrap();
    outcome.unwrap();
    assert_eq!(points[1].pattern.as_deref(), Some("import"));
    let allowed = 64_000_000 + 64_000_000 / 20 + (64 << 20);
    assert!(points.iter().all(|point| point.resident_bytes_allowed == Some(allowed)), "{points:?}");
    let had = |peak| Point { resident_bytes_peak: Some(peak), ..points[1].clone() };
    memory::check(&[had(allowed - 1), had(allowed)]).unwrap();
    let error = memory::check(&[had(allowed), had(allowed + 1)]).unwrap_err().to_string();
    assert!(error.starts_with("import: more resident memory"), "{error}");
    // The database goes, the files stay.
    let left: Vec<_> = std::fs::read_dir(data.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn storage_reads_what_it_wrote() {
    let data = tempfile::tempdir().unwrap();
    let line = "storage --scale 0.01 --repeat 1 --depth 4";
    let Experiment::Storage(args) = parse(line, data.path()) else { panic!("not storage") };
    let points = storage::run(&args, &Machine::default()).unwrap();
    assert_eq!(points.len(), 1 + 2 * 17);
    assert!(points[1..].iter().all(|point| point.rows == Some(60_175)), "{points:?}");
    let of_columns: u64 =
        points[3..].iter().step_by(2).filter_map(|point| point.bytes_on_disk).sum();
    assert!(of_columns >= points[1].bytes_on_disk.unwrap(), "{points:?}");
    assert!(storage::summary(&points).contains("GB/s"));
}

#[test]
fn loops_by_hand_have_the_answers_of_the_queries() {
    let data = tempfile::tempdir().unwrap();
    let Experiment::Rate(args) = parse("rate --scale 0.01 --repeat 1", data.path()) else {
        panic!("not rate")
    };
    // Answers that differ are an error.
    let points = rate::run(&args, &Machine::default()).unwrap();
    assert_eq!(points.len(), 8);
    assert!(points.iter().all(|point| point.rows == Some(60_175)), "{points:?}");
    let text = rate::summary(&points);
    assert!(text.starts_with("q01: ") && text.contains("\nq06: "), "{text}");
}
