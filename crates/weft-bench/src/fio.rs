//! fio as the measure of what the device gives: the same file, depth and minute.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::error::BenchError;
use crate::report::LatencyUs;

/// What fio is to read.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Files or devices, read together.
    pub files: Vec<PathBuf>,
    /// Bytes per read.
    pub block_bytes: usize,
    /// Requests in flight per thread.
    pub depth: u32,
    /// Threads.
    pub threads: u32,
    /// At random offsets, or in order.
    pub random: bool,
    /// How long.
    pub seconds: f64,
}

/// What fio measured.
#[derive(Clone, Copy, Debug)]
pub struct FioResult {
    /// Reads per second.
    pub iops: f64,
    /// 10^9 bytes per second.
    pub gb_per_s: f64,
    /// Latency of a read.
    pub latency: LatencyUs,
}

/// Runs fio with io_uring, direct I/O, registered files and buffers: its fastest ordinary setting.
///
/// # Errors
/// [`BenchError::Fio`] if it is not installed or fails.
pub fn run(job: &FioJob) -> Result<FioResult, BenchError> {
    // A colon separates files, unless it is escaped.
    let names: Vec<_> =
        job.files.iter().map(|file| file.display().to_string().replace(':', "\\:")).collect();
    let output = Command::new("fio")
        .args(["--name=weft", "--ioengine=io_uring", "--direct=1", "--registerfiles=1"])
        .args(["--fixedbufs=1", "--time_based=1", "--group_reporting=1", "--thread=1"])
        .args(["--readonly", "--output-format=json", "--norandommap=1"])
        .arg(format!("--filename={}", names.join(":")))
        .arg(format!("--rw={}", if job.random { "randread" } else { "read" }))
        .arg(format!("--bs={}", job.block_bytes))
        .arg(format!("--iodepth={}", job.depth))
        .arg(format!("--numjobs={}", job.threads))
        .arg(format!("--runtime={}ms", (job.seconds * 1000.0) as u64))
        .output()
        .map_err(|error| BenchError::Fio(format!("cannot be started ({error})")))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BenchError::Fio(reason));
    }
    parse(&output.stdout).ok_or_else(|| BenchError::Fio("its output was not understood".into()))
}

fn parse(output: &[u8]) -> Option<FioResult> {
    // Warnings may come before the JSON.
    let start = output.iter().position(|&byte| byte == b'{')?;
    let root: Value = serde_json::from_slice(&output[start..]).ok()?;
    let read = &root["jobs"][0]["read"];
    let latency = &read["clat_ns"];
    let us = |value: &Value| value.as_f64().map(|ns| ns / 1000.0);
    let percentile = |name: &str| us(&latency["percentile"][name]);
    Some(FioResult {
        iops: read["iops"].as_f64()?,
        gb_per_s: read["bw_bytes"].as_f64()? / 1e9,
        latency: LatencyUs {
            p50: percentile("50.000000")?,
            p90: percentile("90.000000")?,
            p99: percentile("99.000000")?,
            p999: percentile("99.900000")?,
            max: us(&latency["max"])?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_with_a_warning_before_it_is_understood() {
        let output = br#"fio: a warning
{"jobs":[{"read":{"iops":100000.5,"bw_bytes":409602048,"clat_ns":{"max":5000000,"percentile":
{"50.000000":600000,"90.000000":700000,"99.000000":900000,"99.900000":1000000}}}}]}"#;
        let result = parse(output).unwrap();
        assert_eq!(result.iops, 100_000.5);
        assert_eq!(result.latency.p50, 600.0);
        assert!(parse(b"no json").is_none());
    }
}
