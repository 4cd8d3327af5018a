//! The points that the experiments print.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{LOOKUP, SCAN, Workplace};

/// Checks that every field is explained in the experiment's `--help`, and that the answer was checked.
fn check(workplace: &Workplace, points: &[Value], experiment: &str) {
    assert!(!points.is_empty());
    let help = workplace.succeed(&format!("{experiment} --help"));
    let explained: BTreeSet<&str> =
        help.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for point in points {
        let fields = point.as_object().expect("a point is an object");
        assert_eq!(fields["experiment"], experiment);
        for (name, value) in fields {
            assert!(explained.contains(name.as_str()), "--help does not explain {name}");
            assert!(!value.is_null(), "{name}");
        }
        for name in ["driver", "simulated", "device", "threads", "depth", "repetitions"] {
            assert!(fields.contains_key(name), "{name} is missing");
        }
    }
}

fn correct(points: &[Value]) -> bool {
    points.iter().all(|point| point["answer"] == "correct")
}

#[test]
fn scan_sweeps_drivers_and_cached_fractions() {
    let workplace = Workplace::new();
    let drivers = ["blocking", "posix", "sim", "sim-blocking"];
    let line = format!("{SCAN} --cached 100,0,0 --driver blocking,posix,sim,sim-blocking");
    let points = workplace.points(&line);
    check(&workplace, &points, "scan");
    assert!(correct(&points));
    assert_eq!(points.len(), 2 * drivers.len());
    for (point, driver) in points.iter().zip(drivers.iter().cycle()) {
        assert_eq!(point["driver"], *driver);
        assert_eq!(point["simulated"], driver.starts_with("sim"));
        assert_eq!(point["depth"], if driver.contains("blocking") { 1 } else { 8 });
        assert!(point["gb_per_s"].as_f64().unwrap() > 0.0);
        let compared = point.get("ratio_to_blocking").is_some();
        assert_eq!(compared, !driver.contains("blocking"));
    }
    let (empty, full) = points.split_at(drivers.len());
    let pages = std::fs::metadata(workplace.lineitem_file()).unwrap().len() / 65536 - 1;
    for (empty, full) in empty.iter().zip(full) {
        assert_eq!((&empty["cached"], &full["cached"]), (&0.0.into(), &1.0.into()));
        // All pages were read, or none: no run was served from where it should not be.
        assert_eq!((&empty["reads"], &full["reads"]), (&pages.into(), &0.into()));
    }
}

#[test]
fn lookup_has_the_same_answer_on_all_threads_boundaries_and_page_sizes() {
    let workplace = Workplace::new();
    let line = "lookup --scale 0.01 --threads 1,2 --depth 1,16 --repeat 1 --cached 0,60 \
                --driver auto --boundary weak,hard --page-size 4K,16K";
    let points = workplace.points(line);
    check(&workplace, &points, "lookup");
    assert!(correct(&points));
    assert_eq!(points.len(), 2 * 2 * 2 * 2 * 2);
    assert!(points.iter().all(|point| point["lookups_per_s"].as_f64().unwrap() > 0.0));
}

#[test]
fn io_measures_devices_and_memory() {
    let workplace = Workplace::new();
    let points = workplace.points("io --size 16 --seconds 0.02 --depth 1,4 --threads 1 --repeat 1");
    check(&workplace, &points, "io");
    let patterns: BTreeSet<&str> =
        points.iter().map(|point| point["pattern"].as_str().unwrap()).collect();
    let expected =
        ["dram-latency", "dram-random", "dram-sequential", "random", "random-swips", "sequential"];
    assert!(patterns.iter().eq(&expected), "{patterns:?}");
    let file = workplace.path().join("bench-data/weft-io-16m.pages");
    let given = format!(
        "io --device {} --page-size 64K --seconds 0.02 --depth 4 --threads 1 --repeat 1",
        file.display()
    );
    let points = workplace.points(&given);
    assert!(points.iter().any(|point| point["device"] == file.display().to_string()));
}

#[test]
fn prefetch_ends_where_plain_execution_does() {
    let workplace = Workplace::new();
    let points = workplace.points("prefetch --size 8 --depth 6,6 --repeat 1");
    check(&workplace, &points, "prefetch");
    assert!(correct(&points));
    assert_eq!(points.len(), 2 * 2);
}

#[test]
fn generated_coroutines_allocate_nothing_per_call() {
    let workplace = Workplace::new();
    let points = workplace.points("coroutine --keys 1,16,16 --repeat 1");
    check(&workplace, &points, "coroutine");
    assert!(correct(&points));
    assert_eq!(points.len(), 2 * 2 * 3);
    for point in &points {
        assert!(point["ns_per_call"].as_f64().unwrap() > 0.0, "{point}");
        let expected = if point["variant"] == "boxed" { 1.0 } else { 0.0 };
        assert_eq!(point["allocations_per_call"], expected, "{point}");
    }
    assert_eq!(points.iter().filter(|point| point["suspends"] == true).count(), 2 * 3);
}

#[test]
fn ycsb_loses_no_update_in_memory_and_in_files() {
    let workplace = Workplace::new();
    let small = "--rows 20000 --seconds 0.02 --threads 1 --repeat 1 --batch 4,16";
    let what =
        "--workload mixed,insert --variant ermia,corobase --cached 100,50 --driver blocking,auto";
    let points = workplace.points(&format!("ycsb {small} {what}"));
    check(&workplace, &points, "ycsb");
    assert!(correct(&points));
    // In memory, and by each driver.
    assert_eq!(points.len(), 3 * 2 * 3);
    assert!(points.iter().all(|point| point["txn_per_s"].as_f64().unwrap() > 0.0));
    let left = std::fs::read_dir(workplace.path().join("bench-data")).unwrap();
    assert_eq!(left.count(), 0, "files of the tables are left");
}

#[test]
fn htap_checks_queries_on_snapshots_beside_transactions() {
    let workplace = Workplace::new();
    let small = "--warehouses 1 --seconds 0.2 --threads 1 --repeat 1";
    let points = workplace.points(&format!("htap {small} --queries 1,5,12"));
    check(&workplace, &points, "htap");
    assert!(correct(&points));
    let of = |phase: &str| points.iter().filter(|point| point["pattern"] == phase).count();
    // All queries together, and each.
    assert_eq!((of("queries alone"), of("queries beside transactions")), (4, 4));
    for phase in ["transactions alone", "transactions beside queries"] {
        let mut transactions = points.iter().filter(|point| point["pattern"] == phase);
        assert!(transactions.next().unwrap()["txn_per_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn data_is_spread_over_devices() {
    let workplace = Workplace::new();
    for name in ["a", "b"] {
        std::fs::create_dir(workplace.path().join(name)).unwrap();
    }
    let points = workplace.points(&format!("{LOOKUP} --cached 0 --device a --device b"));
    assert!(correct(&points));
    for file in ["a/tpch-sf0.01/part.4k.1-of-2.pages", "b/tpch-sf0.01/part.4k.2-of-2.pages"] {
        assert!(workplace.path().join(file).exists(), "{file}");
    }
    assert!(!workplace.path().join("bench-data").exists());
}

#[test]
fn tables_say_what_is_simulated() {
    let workplace = Workplace::new();
    let text = workplace.succeed(&format!("{LOOKUP} --cached 0 --driver blocking,sim"));
    let row = |driver: &str| {
        text.lines().find(|line| line.trim_start().starts_with(driver)).expect("a row per driver")
    };
    assert!(row("sim").contains("simulated array of 8 SSDs"), "{text}");
    assert!(!row("blocking").contains("simulated"), "{text}");
    assert!(text.contains("answers correct"), "{text}");
}

#[test]
fn limits_are_swept() {
    let workplace = Workplace::new();
    let small = "--scale 0.01 --threads 2 --repeat 1 --memory-limit 1GB,256MB";
    let points = workplace.points(&format!("tpch {small} --queries 1,6"));
    let limits = |points: &[Value]| -> Vec<u64> {
        points.iter().map(|point| point["memory_limit"].as_u64().expect("a limit")).collect()
    };
    let (large, little) = (1_000_000_000, 256_000_000);
    // The load, then each query cold and hot at each limit.
    let expected = [large, large, large, little, little, large, large, little, little];
    assert_eq!(limits(&points), expected);
    check(&workplace, &points, "tpch");
    assert!(correct(&points[1..]) && points[0]["pattern"] == "load");
    let points = workplace.points(&format!("tpcds {small} --queries 96,3"));
    assert_eq!(limits(&points), expected);
    check(&workplace, &points, "tpcds");
    assert!(correct(&points[1..]) && points[0]["pattern"] == "load");
    let points = workplace.points(&format!("sort {small}"));
    assert!(correct(&points));
    assert_eq!(limits(&points), [large, little]);
}
