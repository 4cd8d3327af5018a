//! What compression saves and costs on the pages that operators spill (Spilly, section 4.4, figure 3): an aggregation, two joins and a
//! sort of TPC-H's rows are run with each scheme, and count what is compressed, what comes of it, and the processor time.

use super::spill::{self, AGGREGATION, Cases, JOINS, SORT};
use crate::args::SpillArgs;
use crate::error::BenchError;
use crate::report::{Machine, Point};

/// The schemes where none are given: the scale of `auto`, and what is beside it.
const SCHEMES: [&str; 9] =
    ["off", "lz4", "zstd:-7", "zstd:-5", "zstd:-3", "zstd:-1", "zstd:1", "zstd:3", "zstd:6"];

/// Memory per unit of the scale factor where no limit is given, in MB: a fraction of what the queries keep.
const LIMIT_MB_PER_SCALE: f64 = 128.0;

/// The least limit then, in MB.
const LIMIT_MB_MIN: f64 = 32.0;

/// Runs the queries with each scheme.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or an answer is wrong.
pub fn run(args: &SpillArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let mut scales = args.at_scales();
    for args in &mut scales {
        let database = &mut args.database;
        if database.spill_compression.is_empty() {
            database.spill_compression = SCHEMES.map(str::to_owned).to_vec();
        }
        if database.memory_limit.is_empty() {
            let limit_mb = (database.scale() * LIMIT_MB_PER_SCALE).max(LIMIT_MB_MIN);
            database.memory_limit = vec![format!("{limit_mb:.0}MB")];
        }
    }
    let cases = [AGGREGATION.cases, JOINS.cases, SORT.cases].concat();
    spill::run(&scales, machine, Cases { experiment: "compression", cases: &cases })
}

/// What is to be said of the points below their table: of which queries there is nothing to see.
pub fn summary(points: &[Point]) -> String {
    let is_empty = |point: &&Point| point.spilled_bytes_raw == Some(0);
    let mut queries: Vec<&str> =
        points.iter().filter(is_empty).filter_map(|point| point.pattern.as_deref()).collect();
    queries.dedup();
    match queries.is_empty() {
        true => String::new(),
        false => format!(
            "{}: nothing was spilled, and so nothing compressed; a lower --memory-limit or a larger --scale is needed\n",
            queries.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_spill_nothing_are_named() {
        let point = |query: &str, bytes: u64| Point {
            pattern: Some(query.into()),
            spilled_bytes_raw: Some(bytes),
            ..Point::default()
        };
        let points = [point("a", 0), point("a", 0), point("b", 1), point("c", 0)];
        assert!(summary(&points).starts_with("a, c: nothing was spilled"));
        assert_eq!(summary(&points[2..3]), "");
    }
}
