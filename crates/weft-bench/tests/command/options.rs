//! Options that cannot be: an exit code, a message that names the option, no panic.

use super::{SCAN, Workplace};

#[test]
fn impossible_options_are_refused() {
    let workplace = Workplace::new();
    for (line, named) in [
        ("", "Usage"),
        ("scam", "scam"),
        ("scan --nonsense", "--nonsense"),
        ("scan --depth 0", "--depth"),
        ("scan --depth 4097", "--depth"),
        ("scan --depth 1,,2", "--depth"),
        ("scan --threads 0", "--threads"),
        ("scan --threads 4294967296", "--threads"),
        ("scan --cached 101", "--cached"),
        ("scan --cached -1", "--cached"),
        ("scan --cached NaN", "--cached"),
        ("scan --page-size 3K", "--page-size"),
        ("scan --page-size 2M", "--page-size"),
        ("scan --scale 0", "--scale"),
        ("scan --scale inf", "--scale"),
        ("scan --driver io_uring", "--driver"),
        ("scan --boundary soft", "--boundary"),
        ("scan --repeat 0", "--repeat"),
        ("scan --morsel 0", "--morsel"),
        ("scan --sim-bandwidth 1e-300", "--sim-bandwidth"),
        ("scan --sim-latency 1e300", "--sim-latency"),
        ("scan --sim-error-after 0", "--sim-error-after"),
        ("io --seconds 1e300", "--seconds"),
        ("io --size 0", "--size"),
        ("prefetch --depth 0", "--depth"),
        ("coroutine --keys 0", "--keys"),
        ("all --scale -1", "--scale"),
        ("tpch --queries 23", "--queries"),
        ("tpcds --queries 100", "--queries"),
        ("tpcds --memory-limit", "--memory-limit"),
    ] {
        workplace.fail(line, 2, &[named]);
    }
}

#[test]
fn the_binary_tells_its_name_and_its_experiments() {
    let workplace = Workplace::new();
    let help = workplace.succeed("--help");
    for word in ["Usage: weft-bench <COMMAND>", "coroutine", "tpch", "--version"] {
        assert!(help.contains(word), "{word:?} is not in: {help}");
    }
    assert!(workplace.succeed("--version").starts_with("weft-bench "));
    workplace.fail(&format!("{SCAN} --device absent"), 1, &["weft-bench: "]);
}

#[test]
fn options_that_contradict_each_other_or_the_machine_are_refused() {
    let workplace = Workplace::new();
    for (line, named) in [
        (format!("{SCAN} --sim-error-after 3"), "--sim-error-after"),
        (format!("{SCAN} --driver sim --sim-bandwidth 0.001"), "--sim-bandwidth"),
        (format!("{SCAN} --device absent"), "--device absent"),
        ("io --driver sim".to_owned(), "sim-blocking"),
        ("io --size 16 --threads 1024 --depth 4096 --page-size 1M".to_owned(), "--depth"),
        ("io --size 1048576".to_owned(), "--size"),
        ("prefetch --size 1048576".to_owned(), "--size"),
    ] {
        workplace.fail(&line, 1, &[named]);
    }
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    let workplace = Workplace::new();
    std::fs::write(workplace.path().join("file"), "x").unwrap();
    workplace.fail(&format!("{SCAN} --data file"), 1, &["file/tpch-sf0.01"]);
    workplace.fail(&format!("{SCAN} --data /proc/weft"), 1, &["/proc/weft"]);
    workplace.fail(&format!("{SCAN} --out file"), 1, &["directory file", "choose another"]);
    workplace.fail("io --data /proc/weft --size 16", 1, &["/proc/weft"]);
    // The report's directory is tried before anything is generated or measured.
    assert!(!workplace.path().join("bench-data").exists());
}
