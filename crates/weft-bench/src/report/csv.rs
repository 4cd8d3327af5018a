//! Points as one CSV table with a fixed header, for spreadsheets and plotting tools. The column names
//! are those of the JSON form; the latency percentiles become `latency_us_p50` and so on, and samples over
//! time are another table (`over_time`).

use serde_json::Value;

use super::{Point, ReportError};

/// The columns in order. A value that a point lacks leaves its cell empty.
pub const COLUMNS: [&str; 73] = [
    "experiment",
    "pattern",
    "query",
    "variant",
    "compile",
    "suspends",
    "batch",
    "workload",
    "warehouses",
    "suppliers",
    "isolation",
    "durable",
    "driver",
    "simulated",
    "device",
    "threads",
    "depth",
    "cached",
    "page_size",
    "boundary",
    "scale",
    "repetitions",
    "seconds",
    "seconds_min",
    "seconds_max",
    "gb_per_s",
    "decoded_gb_per_s",
    "rows",
    "lookups_per_s",
    "probes_per_s",
    "txn_per_s",
    "txn_per_processor_s",
    "new_orders_per_minute",
    "aborts",
    "frame_bytes",
    "iops",
    "latency_us_p50",
    "latency_us_p90",
    "latency_us_p99",
    "latency_us_p999",
    "latency_us_max",
    "ns_per_op",
    "ns_per_call",
    "allocations_per_call",
    "overhead_ns",
    "bytes_read",
    "bytes_written",
    "memory_limit",
    "partition",
    "spill_mode",
    "spill_compression",
    "io_bandwidth_limit",
    "neighbour_bytes_per_s",
    "neighbour_from_s",
    "neighbour_to_s",
    "spilled_bytes",
    "spilled_bytes_raw",
    "spilled_by_scheme",
    "spilled_partitions",
    "compress_ns",
    "decompress_ns",
    "bytes_on_disk",
    "reads",
    "reads_shared",
    "processor_seconds",
    "optimum_gb_per_s",
    "ratio_to_naive",
    "ratio_to_blocking",
    "ratio_to_fio",
    "resident_bytes_peak",
    "resident_bytes_allowed",
    "answer",
    "per_thread",
];

/// The points as CSV text with a header line. The last column, `per_thread`, is the lookups per second
/// or else GB/s of the point divided by its threads, the quantity of the paper's Figures 5 and 8.
///
/// # Errors
/// [`ReportError::Json`] or [`ReportError::Csv`] if a point cannot be serialized.
pub fn to_csv(points: &[Point]) -> Result<String, ReportError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(ReportError::Csv)?;
    for point in points {
        let value = serde_json::to_value(point).map_err(ReportError::Json)?;
        writer
            .write_record(COLUMNS.map(|column| cell(point, &value, column)))
            .map_err(ReportError::Csv)?;
    }
    let bytes = writer.into_inner().map_err(|error| ReportError::Csv(error.into_error().into()))?;
    Ok(String::from_utf8(bytes).expect("every cell was a string"))
}

fn cell(point: &Point, value: &Value, column: &str) -> String {
    if column == "per_thread" {
        let rate = point.lookups_per_s_per_thread().or(point.gb_per_s_per_thread());
        return rate.map_or(String::new(), |rate| rate.to_string());
    }
    let found = match column.strip_prefix("latency_us_") {
        Some(percentile) => value.get("latency_us").and_then(|latency| latency.get(percentile)),
        None => value.get(column),
    };
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(of_schemes)) => {
            let words = of_schemes.iter().map(|(scheme, bytes)| format!("{scheme} {bytes}"));
            words.collect::<Vec<_>>().join("; ")
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn header_covers_every_json_field() {
        let value = serde_json::to_value(synthetic::complete_point()).unwrap();
        let nested = ["latency_us", "over_time"];
        for name in
            value.as_object().unwrap().keys().filter(|name| !nested.contains(&name.as_str()))
        {
            assert!(COLUMNS.contains(&name.as_str()), "no column for {name}");
        }
        let text = to_csv(&[]).unwrap();
        assert_eq!(text.trim_end(), COLUMNS.join(","));
    }

    #[test]
    fn a_complete_point_fills_every_cell() {
        let text = to_csv(&[synthetic::complete_point()]).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let record = reader.records().next().unwrap().unwrap();
        for (column, cell) in COLUMNS.iter().zip(&record) {
            assert!(!cell.is_empty(), "{column} is empty");
        }
    }

    #[test]
    fn commas_in_device_names_are_quoted() {
        let point = Point { device: "8 SSDs, RAID 0".into(), ..Point::default() };
        assert!(to_csv(&[point]).unwrap().contains("\"8 SSDs, RAID 0\""));
    }
}
