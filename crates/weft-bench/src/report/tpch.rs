//! The points of TPC-H as a table for a terminal: a line per query, cold and hot beside each other, and
//! the geometric means.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};

use super::units;
use super::{Point, columns, figures};
use crate::experiment::tpch::TpchReport;

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
pub fn render(report: &TpchReport) -> String {
    let points = &report.points;
    let queries: Vec<&Point> = points.iter().filter(|point| point.cached.is_some()).collect();
    let mut text = format!("{}\n", figures::experiment_title("tpch"));
    if let Some(first) = points.first() {
        let scale = first.scale.unwrap_or(0.0);
        text += &format!("scale {scale}, {}", first.device);
        text += &format!(", {} on disk\n", units::bytes(report.bytes_on_disk));
    }
    for load in points.iter().filter(|point| point.cached.is_none()) {
        text += &describe_load(load);
    }
    for setting in distinct(queries.iter().map(|point| setting(point))) {
        let members: Vec<&Point> =
            queries.iter().copied().filter(|point| self::setting(point) == setting).collect();
        text += &format!("\n{setting}\n{}", table(&members));
    }
    text += if report.is_checked {
        "answers correct\n"
    } else {
        "answers the same in all runs; there is no reference for this scale\n"
    };
    text
}

/// The setting of a point, in words.
fn setting(point: &Point) -> String {
    let mut words = vec![units::plural(point.threads, "thread")];
    words.extend(point.memory_limit.map(|limit| format!("at {}", units::bytes(limit))));
    words.extend(
        point.io_bandwidth_limit.map(|rate| format!("devices at {}/s", units::bytes(rate))),
    );
    let chosen = [
        ("partitioned", &point.partition),
        ("spilling", &point.spill_mode),
        ("compression", &point.spill_compression),
    ];
    let chosen = chosen.into_iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
    words.extend(chosen.map(|(what, value)| format!("{what} {value}")));
    words.join(", ")
}

fn describe_load(point: &Point) -> String {
    let known = |value: Option<u64>| value.map_or("–".to_owned(), units::bytes);
    format!(
        "loaded in {} from {} of Parquet, memory peak {}\n",
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
        let pairs = of_driver.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        rows.extend(pairs.clone().map(|(cold, hot)| row(cold, hot)));
        let mean = |values: Vec<f64>| units::seconds(geometric_mean(&values));
        let mut means = HEADERS.map(|_| String::new());
        means[0] = "geometric mean".to_owned();
        means[1] = (*driver).to_owned();
        means[2] = mean(pairs.clone().map(|(cold, _)| cold.seconds).collect());
        means[3] = mean(pairs.map(|(_, hot)| hot.seconds).collect());
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

fn row(cold: &Point, hot: &Point) -> [String; HEADERS.len()] {
    let known = |value: Option<u64>| value.map_or("–".to_owned(), units::bytes);
    [
        cold.pattern.clone().unwrap_or_default(),
        cold.driver.clone(),
        units::seconds(cold.seconds),
        units::seconds(hot.seconds),
        known(cold.bytes_read),
        known(hot.bytes_read),
        known(cold.spilled_bytes.max(hot.spilled_bytes)),
        known(cold.spilled_bytes_raw.max(hot.spilled_bytes_raw)),
        columns::schemes(cold).or_else(|| columns::schemes(hot)).unwrap_or_default(),
        cold.spilled_partitions.max(hot.spilled_partitions).unwrap_or(0).to_string(),
        known(cold.resident_bytes_peak.max(hot.resident_bytes_peak)),
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

    #[test]
    fn each_query_is_a_line_and_so_are_the_means() {
        let points = vec![
            point("q01", "auto", 0.0, 4.0),
            point("q01", "auto", 1.0, 1.0),
            point("q02", "auto", 0.0, 1.0),
            point("q02", "auto", 1.0, 1.0),
        ];
        let report = TpchReport { points, bytes_on_disk: 1 << 30, is_checked: true };
        let text = render(&report);
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
        let text = render(&TpchReport { points, bytes_on_disk: 0, is_checked: true });
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
        let text = render(&TpchReport { points, bytes_on_disk: 0, is_checked: true });
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
        let text = render(&TpchReport { points, bytes_on_disk: 0, is_checked: false });
        assert!(text.contains("vs blocking") && text.contains("no reference"), "{text}");
    }
}
