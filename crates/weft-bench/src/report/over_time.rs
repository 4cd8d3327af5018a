//! What a run did over its time, as samples: a number of each kind for each moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::point::schemes;
use super::{Point, ReportError};

/// Samples of a run, in the order of their times. Rates are those since the sample before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// Seconds since the run began.
    pub seconds: Vec<f64>,
    /// Processor time of the process by time: how many cores it used.
    pub cores: Vec<f64>,
    /// Resident memory of the process, bytes.
    pub resident_bytes: Vec<u64>,
    /// What of the memory limit was reserved, its cache included, bytes.
    pub reserved_bytes: Vec<u64>,
    /// Read from devices, bytes per second.
    pub read_bytes_per_s: Vec<f64>,
    /// Written to devices, bytes per second.
    pub written_bytes_per_s: Vec<f64>,
    /// Of what was spilled, bytes per second before compression.
    pub spilled_raw_bytes_per_s: Vec<f64>,
    /// The same by scheme, of those that had some.
    #[serde(default)]
    pub spilled_by_scheme_bytes_per_s: BTreeMap<String, Vec<f64>>,
}

/// The columns of the table of samples: those that say which run it is, and the samples'. One for each scheme follows.
const COLUMNS: [&str; 16] = [
    "experiment",
    "pattern",
    "driver",
    "threads",
    "cached",
    "scale",
    "memory_limit",
    "spill_compression",
    "io_bandwidth_limit",
    "seconds",
    "cores",
    "resident_bytes",
    "reserved_bytes",
    "read_bytes_per_s",
    "written_bytes_per_s",
    "spilled_raw_bytes_per_s",
];

impl OverTime {
    /// At most `most` samples: neighbours become one, of their mean rates and their largest memory.
    pub fn thinned(mut self, most: usize) -> OverTime {
        while self.seconds.len() > most {
            self.seconds = self.seconds.chunks(2).map(|pair| pair[pair.len() - 1]).collect();
            let rates = [
                &mut self.cores,
                &mut self.read_bytes_per_s,
                &mut self.written_bytes_per_s,
                &mut self.spilled_raw_bytes_per_s,
            ];
            let by_scheme = self.spilled_by_scheme_bytes_per_s.values_mut();
            for rate in rates.into_iter().chain(by_scheme) {
                *rate = rate
                    .chunks(2)
                    .map(|pair| pair.iter().sum::<f64>() / pair.len() as f64)
                    .collect();
            }
            for bytes in [&mut self.resident_bytes, &mut self.reserved_bytes] {
                *bytes = bytes.chunks(2).filter_map(|pair| pair.iter().max().copied()).collect();
            }
        }
        self
    }

    fn row(&self, sample: usize) -> Option<Vec<String>> {
        let mut row = vec![
            self.seconds.get(sample)?.to_string(),
            self.cores.get(sample)?.to_string(),
            self.resident_bytes.get(sample)?.to_string(),
            self.reserved_bytes.get(sample)?.to_string(),
            self.read_bytes_per_s.get(sample)?.to_string(),
            self.written_bytes_per_s.get(sample)?.to_string(),
            self.spilled_raw_bytes_per_s.get(sample)?.to_string(),
        ];
        for scheme in schemes() {
            let rates = self.spilled_by_scheme_bytes_per_s.get(&scheme);
            row.push(rates.and_then(|rates| rates.get(sample)).unwrap_or(&0.0).to_string());
        }
        Some(row)
    }
}

fn columns() -> Vec<String> {
    let of_schemes = schemes().map(|scheme| format!("spilled_{scheme}_bytes_per_s"));
    COLUMNS.iter().map(|&column| column.to_owned()).chain(of_schemes).collect()
}

/// The samples of all points as one CSV table with a header; `None` if there are none.
///
/// # Errors
/// [`ReportError::Csv`] if they cannot be written.
pub fn to_csv(points: &[Point]) -> Result<Option<String>, ReportError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns()).map_err(ReportError::Csv)?;
    let mut is_empty = true;
    for (point, over_time) in
        points.iter().filter_map(|point| Some((point, point.over_time.as_ref()?)))
    {
        let known = |value: Option<String>| value.unwrap_or_default();
        let run = [
            point.experiment.clone(),
            known(point.pattern.clone()),
            point.driver.clone(),
            point.threads.to_string(),
            known(point.cached.map(|cached| cached.to_string())),
            known(point.scale.map(|scale| scale.to_string())),
            known(point.memory_limit.map(|limit| limit.to_string())),
            known(point.spill_compression.clone()),
            known(point.io_bandwidth_limit.map(|limit| limit.to_string())),
        ];
        for row in (0..over_time.seconds.len()).filter_map(|sample| over_time.row(sample)) {
            writer.write_record(run.iter().chain(&row)).map_err(ReportError::Csv)?;
            is_empty = false;
        }
    }
    let bytes = writer.into_inner().map_err(|error| ReportError::Csv(error.into_error().into()))?;
    let text = String::from_utf8(bytes).expect("every cell was a string");
    Ok((!is_empty).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn neighbours_become_one() {
        let over_time = synthetic::over_time(100);
        let thinned = over_time.clone().thinned(30);
        assert_eq!(thinned.seconds.len(), 25);
        assert_eq!(thinned.seconds.last(), over_time.seconds.last());
        assert_eq!(thinned.resident_bytes.iter().max(), over_time.resident_bytes.iter().max());
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean(&thinned.cores) - mean(&over_time.cores)).abs() < 1e-9);
        let lz4 = |over_time: &OverTime| mean(&over_time.spilled_by_scheme_bytes_per_s["lz4"]);
        assert!((lz4(&thinned) / lz4(&over_time) - 1.0).abs() < 1e-9);
        assert_eq!(over_time.clone().thinned(100), over_time);
    }

    #[test]
    fn each_sample_is_a_line() {
        let over_time = Some(synthetic::over_time(3));
        let points = [Point { over_time, ..synthetic::complete_point() }, Point::default()];
        let text = to_csv(&points).unwrap().unwrap();
        assert_eq!(text.lines().count(), 4);
        assert_eq!(text.lines().next().unwrap(), columns().join(","));
        assert!(text.contains("spilled_raw_bytes_per_s,spilled_off_bytes_per_s,spilled_lz4"));
        assert!(text.lines().all(|line| line.matches(',').count() == columns().len() - 1));
        assert_eq!(to_csv(&points[1..]).unwrap(), None);
    }
}
