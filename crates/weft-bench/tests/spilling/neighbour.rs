//! A neighbour on the devices that comes while a query runs.

use super::{LEAST, Report};

#[test]
fn a_neighbour_comes_and_leaves() {
    // The devices are so slow that the query still runs when the neighbour is gone.
    let line = format!(
        "sort --scale 0.04 --memory-limit {LEAST} --spill-compression auto --io-bandwidth-limit 10MB \
         --neighbour 100ms..600ms:2MB"
    );
    let report = Report::good(&line);
    let [point] = &report.points[..] else { panic!("{:?}", report.points) };
    assert_eq!(point.io_bandwidth_limit, Some(10_000_000));
    assert_eq!(point.neighbour_bytes_per_s, Some(2_000_000));
    let (from, to) = (point.neighbour_from_s.unwrap(), point.neighbour_to_s.unwrap());
    assert!(from >= 0.1 && to >= 0.6 && to <= point.seconds, "{from} {to} {}", point.seconds);
    let over_time = point.over_time.as_ref().unwrap();
    let samples = over_time.seconds.len();
    let by_scheme = &over_time.spilled_by_scheme_bytes_per_s;
    assert!(!by_scheme.is_empty() && by_scheme.values().all(|rates| rates.len() == samples));
    report.has_figures(&["figure-sort-over-time"]);
    let figure = report.file("figure-sort-over-time.svg");
    assert!(figure.contains("neighbour, leaves") && figure.contains("neighbour gone"), "{figure}");
    assert!(report.file("over-time.csv").contains("spilled_lz4_bytes_per_s"));
}

#[test]
fn one_that_comes_too_late_is_missed() {
    let report = Report::of("agg --scale 0.01 --memory-limit 1GB --neighbour 5000s..6000s:2MB");
    let error = report.ended.unwrap_err().to_string();
    assert!(error.starts_with("aggregation: the query ended before"), "{error}");
    // What was measured is there nevertheless.
    assert_eq!(report.points.len(), 1);
    assert_eq!(report.points[0].neighbour_from_s, None);
}
