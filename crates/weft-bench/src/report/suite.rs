//! The points of TPC-H or TPC-DS as a table for a terminal: a line per query, cold and hot beside each other, and
//! the geometric means; below it, what has failed.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};

use super::units;
use super::{Point, columns, figures};
use crate::experiment::suite::{Compared, SuiteReport};

/// The headers; one that the points have no values for is left out.
const HEADERS: [&str; 13] = [
    "query",
    "driver",
    "cold",
    "hot",
    "read cold",
    "read hot",
    "spilled",
    "before compression",
    "compressed by",
    "partitions",
    "memory peak",
    "allowed",
    "vs blocking",
];

/// The report as text.
pub fn render(report: &SuiteReport) -> String {
    let points = &report.points;
    let queries: Vec<&Point> = points.iter().filter(|point| point.cached.is_some()).collect();
    let mut text = format!("{}\n", figures::experiment_title(report.suite.name));
    if let Some(first) = points.first() {
        let scale = first.scale.unwrap_or(0.0);
        text += &format!("scale {scale}, {}", first.device);
        text += &format!(", {} on disk\n", units::bytes(report.bytes_on_disk));
    }
    for load in points.iter().filter(|point| point.cached.is_none()) {
        text += &describe_load(load);
    }
    for way in distinct(queries.iter().map(|point| point.way_of_running())) {
        let members: Vec<&Point> =
            queries.iter().copied().filter(|point| point.way_of_running() == way).collect();
        text += &format!("\n{way}\n{}", table(&members));
    }
    let failures: Vec<String> = points.iter().filter_map(Point::failure).collect();
    text + &verdict(&failures, report.compared)
}

/// What has failed, and what is said of the answers of the others.
fn verdict(failures: &[String], compared: Compared) -> String {
    let which = if failures.is_empty() { "answers" } else { "answers of the other runs" };
    let lines = failures.iter().map(|failure| format!("FAILED {failure}\n"));
    let of_others = match compared {
        Compared::Known => format!("{which} correct\n"),
        Compared::Unlimited => {
            format!(
                "{which} correct: those without a limit on memory; there is no reference for this scale\n"
            )
        }
        Compared::EachOther => {
            format!("{which} the same in all runs; there is no reference for this scale\n")
        }
    };
    lines.chain([of_others]).collect()
}

fn describe_load(point: &Point) -> String {
    let known = |value: Option<u64>| value.map_or("–".to_owned(), units::bytes);
    format!(
        "loaded in {} from files of {}, memory peak {}\n",
        units::seconds(point.seconds),
        known(point.bytes_read),
        known(point.resident_bytes_peak)
    )
}

fn table(points: &[&Point]) -> String {
    let drivers = distinct(points.iter().map(|point| point.driver.as_str()));
    let has_spilled = points.iter().any(|point| point.spilled_bytes > Some(0));
    let has_compressed = points.iter().any(|point| point.spilled_bytes_raw > point.spilled_bytes);
    let shows = |header: &str| match header {
        "driver" | "vs blocking" => drivers.len() > 1,
        "spilled" | "partitions" => has_spilled,
        "before compression" | "compressed by" => has_compressed,
        _ => true,
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─')));
    table.set_header(HEADERS.iter().filter(|header| shows(header)).map(|&header| cell(header)));
    let mut rows: Vec<[String; HEADERS.len()]> = Vec::new();
    for driver in &drivers {
        let of_driver: Vec<&Point> =
            points.iter().copied().filter(|point| point.driver == *driver).collect();
        let is_at = |cached| move |point: &&&Point| point.cached == Some(cached);
        rows.extend(of_driver.iter().filter(is_at(0.0)).map(|cold| {
            let mut hot = of_driver.iter().filter(is_at(1.0));
            row(cold, hot.find(|hot| hot.pattern == cold.pattern).copied())
        }));
        let mean = |cached| {
            let good = of_driver.iter().filter(is_at(cached)).filter(|point| !point.has_failed());
            units::seconds(geometric_mean(&good.map(|point| point.seconds).collect::<Vec<_>>()))
        };
        let mut means = HEADERS.map(|_| String::new());
        means[0] = "geometric mean".to_owned();
        means[1] = (*driver).to_owned();
        means[2] = mean(0.0);
        means[3] = mean(1.0);
        rows.push(means);
    }
    for row in rows {
        let cells = HEADERS.iter().zip(row).filter(|(header, _)| shows(header));
        table.add_row(cells.map(|(header, text)| {
            let is_text = matches!(*header, "query" | "driver");
            let alignment = if is_text { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(alignment)
        }));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn cell(header: &str) -> Cell {
    Cell::new(header)
}

fn row(cold: &Point, hot: Option<&Point>) -> [String; HEADERS.len()] {
    let known = |value: Option<u64>| value.map_or("–".to_owned(), units::bytes);
    let seconds = |point: &Point| match point.has_failed() {
        true => "failed".to_owned(),
        false => units::seconds(point.seconds),
    };
    let most = |of: fn(&Point) -> Option<u64>| of(cold).max(hot.and_then(of));
    [
        cold.pattern.clone().unwrap_or_default(),
        cold.driver.clone(),
        seconds(cold),
        hot.map_or("–".to_owned(), seconds),
        known(cold.bytes_read),
        known(hot.and_then(|hot| hot.bytes_read)),
        known(most(|point| point.spilled_bytes)),
        known(most(|point| point.spilled_bytes_raw)),
        columns::schemes(cold).or_else(|| columns::schemes(hot?)).unwrap_or_default(),
        most(|point| point.spilled_partitions).unwrap_or(0).to_string(),
        known(most(|point| point.resident_bytes_peak)),
        known(cold.resident_bytes_allowed),
        cold.ratio_to_blocking.map_or("–".to_owned(), units::ratio),
    ]
}

/// The geometric mean of positive values; 0 of none.
fn geometric_mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (logarithms / values.len() as f64).exp()
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::TPCH;

    fn point(query: &str, driver: &str, cached: f64, seconds: f64) -> Point {
        Point {
            experiment: "tpch".into(),
            pattern: Some(query.into()),
            driver: driver.into(),
            threads: 2,
            cached: Some(cached),
            seconds,
            bytes_read: Some(1 << 20),
            ..Point::default()
        }
    }

    fn report(points: Vec<Point>, compared: Compared) -> SuiteReport {
        SuiteReport { suite: &TPCH, points, bytes_on_disk: 1 << 30, compared }
    }

    #[test]
    fn what_has_failed_is_told_and_counts_for_nothing() {
        let failed = |query: &str, cached| Point {
            answer: Some(Point::failed(&"it \"burns\"")),
            memory_limit: Some(16 << 20),
            ..point(query, "auto", cached, 100.0)
        };
        let good = |query: &str, cached| Point {
            memory_limit: Some(16 << 20),
            ..point(query, "auto", cached, 1.0)
        };
        let points = vec![
            failed("q01", 0.0),
            good("q02", 0.0),
            failed("q02", 1.0),
            good("q03", 0.0),
            good("q03", 1.0),
        ];
        let text = render(&report(points, Compared::Unlimited));
        let line = |start: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(start));
            found
                .unwrap_or_else(|| panic!("{start}: {text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(line("q01")[1..3], ["failed", "–"]);
        assert_eq!(line("q02")[1..4], ["1.00", "s", "failed"]);
        assert_eq!(line("q03")[1..5], ["1.00", "s", "1.00", "s"]);
        assert_eq!(line("geometric mean")[2..6], ["1.00", "s", "1.00", "s"]);
        for words in [
            "\nFAILED q01, cold, 2 threads, at 16 MiB: it \"burns\"\n",
            "\nFAILED q02, hot, 2 threads, at 16 MiB: it",
            "\nanswers of the other runs correct: those without a limit",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn each_query_is_a_line_and_so_are_the_means() {
        let points = vec![
            point("q01", "auto", 0.0, 4.0),
            point("q01", "auto", 1.0, 1.0),
            point("q02", "auto", 0.0, 1.0),
            point("q02", "auto", 1.0, 1.0),
        ];
        let text = render(&report(points, Compared::Known));
        assert!(text.contains("2 threads") && text.contains("answers correct"), "{text}");
        let means =
            text.lines().find(|line| line.trim_start().starts_with("geometric mean")).unwrap();
        assert!(means.contains("2.00 s") && means.contains("1.00 s"), "{text}");
        assert!(!text.contains("driver"), "{text}");
    }

    #[test]
    fn each_limit_has_a_table() {
        let at = |limit, spilled, cached| Point {
            memory_limit: Some(limit),
            spilled_bytes: Some(spilled),
            ..point("q01", "auto", cached, 1.0)
        };
        let points = [(4 << 30, 0), (1 << 30, 1 << 20)]
            .map(|(limit, spilled)| [0.0, 1.0].map(|cached| at(limit, spilled, cached)));
        let points = points.into_iter().flatten().collect();
        let text = render(&report(points, Compared::Known));
        let (first, second) = text.split_once("at 1 GiB").expect("the second limit");
        assert!(first.contains("at 4 GiB") && !first.contains("spilled"), "{text}");
        assert!(second.contains("spilled") && second.contains("1 MiB"), "{text}");
    }

    #[test]
    fn what_is_compressed_and_how_is_told() {
        let at = |mode: &str, cached| Point {
            spill_mode: Some(mode.into()),
            spill_compression: Some("auto".into()),
            io_bandwidth_limit: Some(100 << 20),
            spilled_bytes: Some(1 << 20),
            spilled_bytes_raw: Some(4 << 20),
            spilled_by_scheme: Some([("off".into(), 1 << 20), ("lz4".into(), 3 << 20)].into()),
            spilled_partitions: Some(123),
            ..point("q01", "auto", cached, 1.0)
        };
        let points = [at("hybrid", 0.0), at("hybrid", 1.0), at("all", 0.0), at("all", 1.0)].into();
        let text = render(&report(points, Compared::Known));
        for words in [
            "\n2 threads, devices at 100 MiB/s, spilling hybrid, compression auto\n",
            "\n2 threads, devices at 100 MiB/s, spilling all, compression auto\n",
            "compressed by",
            "off 25 %, lz4 75 %",
            "partitions",
            " 123 ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(text.matches("geometric mean").count(), 2, "{text}");
    }

    #[test]
    fn several_drivers_are_told_apart() {
        let points = ["auto", "blocking"]
            .iter()
            .flat_map(|driver| [point("q01", driver, 0.0, 4.0), point("q01", driver, 1.0, 1.0)])
            .collect();
        let text = render(&report(points, Compared::EachOther));
        assert!(text.contains("vs blocking") && text.contains("no reference"), "{text}");
    }
}
