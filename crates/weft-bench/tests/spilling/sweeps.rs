//! Over memory limits, scales and ways to spill.

use super::{LEAST, Report};

/// What `--memory-limit` and `--scale` sweep.
fn check_swept(experiment: &str, cases: usize) {
    let report =
        Report::good(&format!("{experiment} --scale 0.01,0.04 --memory-limit 1GB,{LEAST}"));
    assert_eq!(report.points.len(), cases * 2 * 2);
    for point in &report.points {
        assert_eq!(point.experiment, experiment);
        let (spilled, raw) = (point.spilled_bytes.unwrap(), point.spilled_bytes_raw.unwrap());
        let by_scheme: u64 = point.spilled_by_scheme.as_ref().unwrap().values().sum();
        assert_eq!(by_scheme, raw, "{point:?}");
        // A read of a column of lineitem at least, and each of its rows.
        assert!(point.bytes_read.unwrap() > 50_000 && point.rows.unwrap() >= 60_175, "{point:?}");
        let is_little = point.memory_limit == Some(16 << 20);
        // The parts of orders fit in memory at so small a scale.
        let is_large = point.pattern.as_deref() != Some("with partsupp");
        let has_to_spill = is_large && point.scale == Some(0.04);
        assert!(if is_little { spilled > 0 || !has_to_spill } else { spilled == 0 }, "{point:?}");
    }
    let figure = |what: &str| format!("figure-{experiment}-{what}");
    let wanted = [
        "time-over-limit",
        "throughput-over-limit",
        "spilled-over-limit",
        "throughput-over-scale",
        "spilled-over-scale",
    ];
    let wanted = wanted.map(figure);
    report.has_figures(&wanted.each_ref().map(String::as_str));
}

#[test]
fn an_aggregation() {
    check_swept("agg", 1);
}

#[test]
fn joins() {
    check_swept("join", 2);
}

#[test]
fn a_sort() {
    check_swept("sort", 1);
}

#[test]
fn partitions_are_counted() {
    let line = format!("agg --scale 0.04 --memory-limit {LEAST} --spill-mode hybrid,all");
    let report = Report::good(&line);
    let [hybrid, all] = &report.points[..] else { panic!("{:?}", report.points) };
    assert_eq!(all.spill_mode.as_deref(), Some("all"));
    let (some, every) = (hybrid.spilled_partitions.unwrap(), all.spilled_partitions.unwrap());
    assert!(some > 0 && some <= every, "{some} and {every}");
    assert!(report.file("points.csv").contains("spilled_partitions"));
}

#[test]
fn tpch() {
    let line = "tpch --scale 0.01 --queries 3,18 --memory-limit 1GB,16MiB --partition adaptive,always \
                --spill-mode hybrid --spill-compression lz4 --io-bandwidth-limit 200MB,unlimited";
    let report = Report::good(line);
    // Two queries, limits, ways and bandwidths, each cold and hot.
    assert_eq!(report.points.len(), 32);
    for point in &report.points {
        assert_eq!(point.spill_mode.as_deref(), Some("hybrid"));
        assert_eq!(point.spill_compression.as_deref(), Some("lz4"));
        assert!(point.partition.is_some() && point.spilled_partitions.is_some());
    }
    let slow = report.points.iter().filter(|point| point.io_bandwidth_limit == Some(200_000_000));
    assert_eq!(slow.count(), 16);
    report.has_figures(&[
        "figure-tpch-time-over-limit",
        "figure-tpch-throughput-over-limit",
        "figure-tpch-time-over-bandwidth",
    ]);
}
