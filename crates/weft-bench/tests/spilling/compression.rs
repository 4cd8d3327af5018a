//! How what is spilled is compressed.

use weft_bench::report::Point;

use super::{LEAST, Report};

#[test]
fn each_scheme_is_measured() {
    let line = format!(
        "compression --scale 0.04 --memory-limit {LEAST} --spill-compression off,lz4,zstd:5"
    );
    let report = Report::good(&line);
    assert_eq!(report.points.len(), 4 * 3);
    // The parts of orders fit in memory at so small a scale.
    let spills = |point: &&Point| point.pattern.as_deref() != Some("with partsupp");
    for point in report.points.iter().filter(spills) {
        let is_compressed = point.spill_compression.as_deref() != Some("off");
        assert!(point.spilled_bytes_raw > Some(0), "{point:?}");
        assert_eq!(point.spilled_bytes_raw > point.spilled_bytes, is_compressed, "{point:?}");
        let has = |ns: Option<f64>| ns.is_some_and(|ns| ns > 0.0);
        assert_eq!(
            (has(point.compress_ns), has(point.decompress_ns)),
            (is_compressed, is_compressed)
        );
        // zstd:5 is no place of the scale.
        let name = match point.spill_compression.as_deref() {
            Some("zstd:5") => "other",
            other => other.unwrap(),
        };
        assert!(point.spilled_by_scheme.as_ref().unwrap()[name] > 0, "{point:?}");
    }
    report.has_figures(&["figure-3-compression", "figure-3-decompression"]);
}

#[test]
fn schemes_are_told_over_bandwidths() {
    let line = format!(
        "sort --scale 0.04 --memory-limit {LEAST} --spill-compression auto \
         --io-bandwidth-limit 20MB,100MB"
    );
    let report = Report::good(&line);
    let bandwidths: Vec<_> = report.points.iter().map(|point| point.io_bandwidth_limit).collect();
    assert_eq!(bandwidths, [Some(20_000_000), Some(100_000_000)]);
    report.has_figures(&["figure-sort-time-over-bandwidth", "figure-sort-schemes-over-bandwidth"]);
}
