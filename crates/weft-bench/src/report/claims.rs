//! What the papers claim, and what the points of this run say to it. Each claim is measured per device,
//! from points of one experiment; a claim whose points are missing is "not measured in this run".
//!
//! Claims of Table 1 and Figures 5 to 8: von Merzljak et al., ADMS 2022, on 64 cores, eight SSDs of
//! together 50 GB/s and 512 GiB of memory. Claims on prefetching: CoroBase.

use super::Point;
use super::figures::Section;
use super::findings::{
    LOOKUPS, SCAN, against_fio, batch_gain, best_bandwidth, best_batch, depth_needed,
    fewer_threads, fewest_threads_gain, frame_sizes, joins_gain, kept_at_80_percent,
    lone_read_latency, memory_latency, most_threads_gain, mostly_cached, nothing_cached,
    probes_gain, share_of_optimum, thread_sweep, transactions_gain,
};
use super::series::{Dim, group};

/// A statement of a paper and how to measure the same thing here.
pub struct Claim {
    /// The paper's statement, with its numbers.
    pub paper: &'static str,
    /// The counterpart among points of one experiment on one device.
    measure: fn(&[&Point]) -> Option<String>,
}

/// The measured counterpart of a claim on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The device, with a word if simulated.
    pub device: String,
    /// What was measured there.
    pub text: String,
}

impl Claim {
    /// What the points say, one finding per device that has the points for it.
    pub fn findings(&self, section: Section, points: &[Point]) -> Vec<Finding> {
        let members: Vec<&Point> =
            points.iter().filter(|point| point.experiment == section.experiment()).collect();
        let devices = group(&members, &[Dim::Device]);
        let findings = devices.iter().filter_map(|members| {
            let text = (self.measure)(members)?;
            Some(Finding { device: Dim::Device.key(members[0]).label, text })
        });
        findings.collect()
    }
}

/// The claims that belong to a section.
pub fn claims(section: Section) -> &'static [Claim] {
    match section {
        Section::Table1 => &TABLE_1,
        Section::Figure5 => &FIGURE_5,
        Section::Figures6And7 => &FIGURES_6_AND_7,
        Section::Figure8 => &FIGURE_8,
        Section::Figure10 => &FIGURE_10,
        Section::Prefetch => &PREFETCH,
        Section::Probes => &PROBES,
        Section::Transactions => &TRANSACTIONS,
        Section::Ycsb => &YCSB,
        Section::SpilledAggregation
        | Section::SpilledJoins
        | Section::SpilledSort
        | Section::Compression
        | Section::Tpch
        | Section::Tpcds => &[],
    }
}

const TABLE_1: [Claim; 7] = [
    Claim {
        paper: "Sequential reads from eight SSDs: 50 GB/s with at least 4 threads.",
        measure: |points| best_bandwidth(points, "sequential"),
    },
    Claim {
        paper: "Random reads from eight SSDs: 48 GB/s with at least 4 threads.",
        measure: |points| best_bandwidth(points, "random"),
    },
    Claim { paper: "Latency of one random read of 4 KiB: 73 µs.", measure: lone_read_latency },
    Claim {
        paper: "Memory, sequential: 152 GB/s with at least 25 threads.",
        measure: |points| best_bandwidth(points, "dram-sequential"),
    },
    Claim {
        paper: "Memory, random: 74 GB/s with at least 72 threads.",
        measure: |points| best_bandwidth(points, "dram-random"),
    },
    Claim {
        paper: "Latency of a random read of 64 bytes from memory: 181 ns.",
        measure: memory_latency,
    },
    Claim {
        paper: "Not in the paper: Weft's reads against fio with the same settings.",
        measure: against_fio,
    },
];

const FIGURE_10: [Claim; 2] = [
    Claim {
        paper: "With 20 % cached, asynchronous joins improve query 4 by almost 60 %, queries 5 and 10 by at least 45 %.",
        measure: |points| joins_gain(points, 0.2),
    },
    Claim {
        paper: "With 80 % cached, query 4 is still almost 25 % faster than by synchronous joins.",
        measure: |points| joins_gain(points, 0.8),
    },
];

const FIGURE_5: [Claim; 4] = [
    Claim {
        paper: "One thread at depth 64: almost 4x the throughput of synchronous I/O.",
        measure: |points| fewest_threads_gain(&thread_sweep(points), SCAN),
    },
    Claim {
        paper: "A quarter of the threads: 4 asynchronous threads reach 27.7 GB/s, 16 synchronous ones 22.7 GB/s.",
        measure: |points| fewer_threads(&thread_sweep(points), SCAN),
    },
    Claim {
        paper: "A depth of 64 per thread is needed for the best throughput; more does not help.",
        measure: |points| depth_needed(&thread_sweep(points), SCAN),
    },
    Claim {
        paper: "From 64 threads on the difference diminishes.",
        measure: |points| most_threads_gain(&thread_sweep(points), SCAN),
    },
];

const FIGURES_6_AND_7: [Claim; 4] = [
    Claim {
        paper: "Nothing cached: 8 asynchronous threads reach the full 47 GB/s, synchronous I/O is five times worse.",
        measure: nothing_cached,
    },
    Claim {
        paper: "With 90 % cached, synchronous I/O on 8 threads is still 15 GB/s below asynchronous I/O with nothing cached.",
        measure: mostly_cached,
    },
    Claim {
        paper: "With 80 % cached, synchronous I/O loses more than half of the in-memory performance; asynchronous I/O keeps about 75 %.",
        measure: kept_at_80_percent,
    },
    Claim {
        paper: "With 32 threads, asynchronous I/O comes very close to the theoretical optimum.",
        measure: share_of_optimum,
    },
];

const FIGURE_8: [Claim; 3] = [
    Claim {
        paper: "One thread at depth 512: almost 15x the lookups of synchronous I/O.",
        measure: |points| fewest_threads_gain(&thread_sweep(points), LOOKUPS),
    },
    Claim {
        paper: "128 synchronous threads: 1,607,774 lookups/s at most; 4 asynchronous threads: 1,854,512 lookups/s.",
        measure: |points| fewer_threads(&thread_sweep(points), LOOKUPS),
    },
    Claim {
        paper: "With 32 threads still more than twice the lookups.",
        measure: |points| most_threads_gain(&thread_sweep(points), LOOKUPS),
    },
];

const PROBES: [Claim; 4] = [
    Claim {
        paper: "CORO-MK has up to 2.56x the throughput of Naive.",
        measure: |points| probes_gain(points, "coro-mk", "naive"),
    },
    Claim {
        paper: "CORO-MK has up to 1.99x the throughput of ERMIA.",
        measure: |points| probes_gain(points, "coro-mk", "ermia"),
    },
    Claim {
        paper: "CORO-MK comes within 8 to 10 % of AMAC-MK.",
        measure: |points| probes_gain(points, "coro-mk", "amac-mk"),
    },
    Claim {
        paper: "CORO-MK is 17 % faster than CORO-FN-MK.",
        measure: |points| probes_gain(points, "coro-mk", "coro-fn-mk"),
    },
];

const TRANSACTIONS: [Claim; 8] = [
    Claim {
        paper: "TPC-C, 48 threads (Table 5.1): CoroBase 1,489,567, ERMIA 1,487,147 transactions per second.",
        measure: |points| transactions_gain(points, "tpcc", "corobase", "ermia"),
    },
    Claim {
        paper: "TPC-C, 48 threads (Table 5.1): Naive 1,306,197 transactions per second, 0.88x of ERMIA.",
        measure: |points| transactions_gain(points, "tpcc", "naive", "ermia"),
    },
    Claim {
        paper: "TPC-C: Hybrid outperforms CoroBase by up to 1.29x.",
        measure: |points| transactions_gain(points, "tpcc", "hybrid", "corobase"),
    },
    Claim {
        paper: "TPC-CR (Figure 5.10): CoroBase has up to 1.3x the throughput without hyperthreads.",
        measure: |points| transactions_gain(points, "tpccr", "corobase", "ermia"),
    },
    Claim {
        paper: "TPC-CR: Hybrid outperforms CoroBase by up to 1.08x.",
        measure: |points| transactions_gain(points, "tpccr", "hybrid", "corobase"),
    },
    Claim {
        paper: "TPC-CH (Figure 5.11): CoroBase has 25 to 39 % more throughput than ERMIA, 34 % with 100 suppliers.",
        measure: |points| transactions_gain(points, "tpcch", "corobase", "ermia"),
    },
    Claim {
        paper: "TPC-CH: Hybrid outperforms CoroBase by up to 1.36x.",
        measure: |points| transactions_gain(points, "tpcch", "hybrid", "corobase"),
    },
    Claim {
        paper: "Frames (section 5.10): 232, 200 and 312 bytes to read, update and insert, flattened; five frames of 112 to 216 bytes fully nested.",
        measure: frame_sizes,
    },
];

const YCSB: [Claim; 5] = [
    Claim {
        paper: "10 reads (Figure 5.2): CoroBase is about 1.8x as fast as ERMIA without hyperthreads.",
        measure: |points| transactions_gain(points, "read", "corobase", "ermia"),
    },
    Claim {
        paper: "10 reads: CoroBase is about 15 % slower than AMAC-MK.",
        measure: |points| transactions_gain(points, "read", "corobase", "amac-mk"),
    },
    Claim {
        paper: "10 blind writes (Figure 5.4): CoroBase is up to 1.77x as fast as Naive.",
        measure: |points| transactions_gain(points, "update", "corobase", "naive"),
    },
    Claim {
        paper: "10 blind writes: CoroBase is up to 1.45x as fast as ERMIA.",
        measure: |points| transactions_gain(points, "update", "corobase", "ermia"),
    },
    Claim {
        paper: "2 read-modify-writes and 8 reads (Figure 5.4): the gain over ERMIA is lower.",
        measure: |points| transactions_gain(points, "mixed", "corobase", "ermia"),
    },
];

const PREFETCH: [Claim; 2] = [
    Claim {
        paper: "CoroBase, index probing: coroutines reach up to 2.56x the throughput of sequential execution.",
        measure: batch_gain,
    },
    Claim {
        paper: "CoroBase: a batch of eight is the optimum, about the outstanding memory accesses of a core (10).",
        measure: best_batch,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    fn check(section: Section, points: &[Point], index: usize, expected: Option<&str>) {
        let findings = claims(section)[index].findings(section, points);
        match expected {
            Some(text) => {
                assert!(findings.len() == 1 && findings[0].text.contains(text), "{findings:?}")
            }
            None => assert!(findings.is_empty(), "{findings:?}"),
        }
    }

    fn scan(driver: &str, threads: u32, depth: u32, gb_per_s: f64) -> Point {
        Point {
            experiment: "scan".into(),
            driver: driver.into(),
            threads,
            depth,
            cached: Some(0.6),
            gb_per_s: Some(gb_per_s),
            ..Point::default()
        }
    }

    #[test]
    fn the_paper_s_own_numbers_of_figure_5_are_found_again() {
        let points = [
            scan("blocking", 1, 1, 2.0),
            scan("uring", 1, 64, 7.8),
            scan("uring", 1, 128, 7.9),
            scan("uring", 4, 64, 27.7),
            scan("blocking", 16, 1, 22.7),
            scan("uring", 16, 128, 91.2),
        ];
        check(
            Section::Figure5,
            &points,
            0,
            Some("4.0x with 1 thread at depth 128: 7.90 GB/s against 2.00"),
        );
        check(
            Section::Figure5,
            &points,
            1,
            Some("4 asynchronous threads reach 27.7 GB/s; blocking is best with 16"),
        );
        check(
            Section::Figure5,
            &points,
            2,
            Some("depth 64 comes within 5 % of the best with 1 thread"),
        );
        check(Section::Figure5, &points, 3, Some("4.0x with 16 threads at depth 128"));
    }

    #[test]
    fn claims_without_points_have_no_findings() {
        for section in Section::ALL {
            for index in 0..claims(section).len() {
                check(section, &[], index, None);
            }
        }
        check(Section::Figure5, &[scan("uring", 1, 64, 7.0)], 0, None);
    }

    #[test]
    fn joins_are_compared_at_their_cached_share() {
        let join = |driver: &str, query: &str, cached: f64, seconds: f64| Point {
            experiment: "inlj".into(),
            pattern: Some(query.into()),
            driver: driver.into(),
            threads: 2,
            cached: Some(cached),
            seconds,
            ..Point::default()
        };
        let points = [
            join("blocking", "q04", 0.2, 3.0),
            join("uring", "q04", 0.2, 1.5),
            join("blocking", "q04", 0.8, 1.5),
            join("uring", "q05", 0.2, 1.5),
        ];
        check(Section::Figure10, &points, 0, Some("q04 with 2 threads: 2.0x (1.50 s)"));
        check(Section::Figure10, &points, 1, None);
    }

    #[test]
    fn probes_are_compared_at_their_best_batches() {
        let probe = |variant: &str, depth, rate| Point {
            experiment: "probe".into(),
            pattern: Some("10 keys".into()),
            variant: Some(variant.into()),
            threads: 1,
            depth,
            probes_per_s: Some(rate),
            ..Point::default()
        };
        let points = [
            probe("naive", 1, 2e6),
            probe("coro-mk", 8, 5e6),
            probe("coro-mk", 16, 4e6),
            probe("amac-mk", 16, 5e6),
        ];
        check(Section::Probes, &points, 0, Some("10 keys, 1 thread: 2.5x"));
        check(Section::Probes, &points, 1, None);
        check(Section::Probes, &points, 2, Some("1.0x"));
    }

    #[test]
    fn transactions_are_compared_at_the_same_settings() {
        let run = |workload: &str, variant: &str, suppliers, rate| Point {
            experiment: "tpcc".into(),
            pattern: Some(format!("{workload}, 16 warehouses")),
            workload: Some(workload.into()),
            variant: Some(variant.into()),
            suppliers: Some(suppliers),
            threads: 1,
            txn_per_processor_s: Some(rate),
            ..Point::default()
        };
        let frame = |operation: &str, variant: &str, bytes| Point {
            experiment: "tpcc".into(),
            pattern: Some(format!("frame: {operation}")),
            variant: Some(variant.into()),
            frame_bytes: Some(bytes),
            ..Point::default()
        };
        let points = [
            run("tpcc", "ermia", 100, 10.0),
            run("tpcc", "corobase", 100, 11.0),
            run("tpcch", "ermia", 10, 10.0),
            run("tpcch", "corobase", 10, 15.0),
            run("tpcch", "corobase", 100, 20.0),
            frame("read", "corobase", 600),
            frame("read", "corobase-fn", 300),
        ];
        check(Section::Transactions, &points, 0, Some("1 thread: 1.1x"));
        check(Section::Transactions, &points, 1, None);
        check(Section::Transactions, &points, 5, Some("10 suppliers, 1 thread: 1.5x"));
        check(Section::Transactions, &points, 7, Some("read 600 (corobase-fn 300)"));
    }

    #[test]
    fn every_claim_but_two_is_found_in_a_full_run() {
        let points = synthetic::paper_points();
        let mut missing = Vec::new();
        // Joins, index probes, TPC-C and YCSB are experiments of their own, which have to load much.
        for section in Section::ALL.into_iter() {
            if matches!(
                section,
                Section::Figure10 | Section::Probes | Section::Transactions | Section::Ycsb
            ) {
                continue;
            }
            for claim in claims(section) {
                if claim.findings(section, &points).is_empty() {
                    missing.push(claim.paper);
                }
            }
        }
        assert!(
            missing.iter().all(|paper| paper.contains("fio") || paper.contains("64 bytes")),
            "{missing:?}"
        );
    }

    #[test]
    fn accesses_to_the_cache_say_nothing_about_hidden_latency() {
        let point = |pattern: &str, depth, ns| Point {
            experiment: "prefetch".into(),
            pattern: Some(pattern.into()),
            depth,
            ns_per_op: Some(ns),
            ..Point::default()
        };
        let points = [
            point("memory, plain", 1, 100.0),
            point("memory, coroutines", 8, 20.0),
            point("memory, coroutines", 16, 21.5),
            point("cache, plain", 1, 2.0),
            point("cache, coroutines", 16, 5.0),
        ];
        check(
            Section::Prefetch,
            &points,
            0,
            Some("5.0x with a batch of 8: 20.0 ns against 100 ns"),
        );
        check(Section::Prefetch, &points, 1, Some("a batch of 8 comes"));
    }

    #[test]
    fn devices_are_kept_apart() {
        let mut simulated = scan("sim", 1, 64, 9.0);
        (simulated.simulated, simulated.device) = (true, "array".into());
        let mut baseline = scan("sim-blocking", 1, 1, 3.0);
        (baseline.simulated, baseline.device) = (true, "array".into());
        let points = [scan("blocking", 1, 1, 2.0), scan("uring", 1, 64, 4.0), simulated, baseline];
        let findings = claims(Section::Figure5)[0].findings(Section::Figure5, &points);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].text.starts_with("2.0x"));
        assert_eq!(findings[1].device, "array (simulated)");
    }
}
