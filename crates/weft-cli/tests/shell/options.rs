//! The command line: what runs, in which order, and what is refused.

use super::Workplace;

#[test]
fn commands_and_files_run_in_order() {
    let workplace = Workplace::new();
    workplace.write("two.sql", ".print two\n.print 2b");
    let words = ["-c", ".print one", "-f", "two.sql", "-c", ".print three", "-f", "-"];
    let ended = workplace.run_with(&words, ".print four\n");
    assert_eq!(ended.stdout, "one\ntwo\n2b\nthree\nfour\n");
    assert_eq!(ended.code, Some(0));
}

#[test]
fn wrong_options_are_usage_errors() {
    let workplace = Workplace::new();
    for (words, named) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["--mode", "cvs"], "the modes are table"),
        (&["--set", "threads"], "NAME=VALUE"),
        (&["--bail", "perhaps"], "on or off"),
        (&["--device", "x"], "DIRECTORY"),
        (&["a", "b"], "'b'"),
    ] {
        let ended = workplace.run(words);
        assert_eq!(ended.code, Some(2), "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(named), "{words:?}: {}", ended.stderr);
    }
}

#[test]
fn settings_reach_the_database() {
    let workplace = Workplace::new();
    let words = ["--threads", "3", "--set", "io_depth=7", "--mode", "list", "--no-header"];
    let ended = workplace.run_with(&words, "SHOW threads; SHOW io_depth;");
    assert!(ended.stdout.contains("3\n") && ended.stdout.contains("7\n"), "{}", ended.stdout);
    let ended = workplace.run(&["--set", "memory_limt=1GiB", "-c", "SELECT 1"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("memory_limit"), "{}", ended.stderr);
}

#[test]
fn files_are_no_databases() {
    let workplace = Workplace::new();
    workplace.write("x.parquet", "");
    workplace.write("x.sql", "");
    workplace.write("x.bin", "");
    for (path, advice) in [
        ("x.parquet", "weft -c \"SELECT * FROM 'x.parquet'\""),
        ("x.sql", "weft -f x.sql"),
        ("x.bin", "directory"),
    ] {
        let ended = workplace.run(&[path, "-c", "SELECT 1"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains(advice), "{path}: {}", ended.stderr);
    }
}

#[test]
fn a_database_is_made_where_there_is_none() {
    let workplace = Workplace::new();
    let ended = workplace.run(&["new.weft", "-c", "CREATE TABLE t (a INT)"]);
    assert_eq!(ended.stderr, "Created the database new.weft\n");
    assert_eq!(ended.code, Some(0));
    let ended = workplace.run(&["new.weft", "-c", ".tables"]);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("t\n", ""));
    let ended = workplace.run(&["--read-only", "absent.weft", "-c", ".tables"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("absent.weft"), "{}", ended.stderr);
    assert!(!workplace.path().join("absent.weft").exists());
}

#[test]
fn a_read_only_database_stays_as_it_is() {
    let workplace = Workplace::new();
    workplace.run(&["d.weft", "-c", "CREATE TABLE t AS SELECT 1 AS a"]);
    let ended = workplace.run(&["d.weft", "--read-only", "-c", "INSERT INTO t VALUES (2)"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("d.weft is open for reading only"), "{}", ended.stderr);
    let ended = workplace.run(&["d.weft", "--read-only", "--mode", "csv", "-c", "SELECT * FROM t"]);
    assert_eq!(ended.stdout, "a\n1\n");
}

#[test]
fn devices_are_for_new_databases() {
    let workplace = Workplace::new();
    std::fs::create_dir(workplace.path().join("other")).unwrap();
    let words = ["d.weft", "--device", "other", "-c", "CREATE TABLE t AS SELECT 1 AS a"];
    assert_eq!(workplace.run(&words).code, Some(0));
    assert!(workplace.path().join("other").read_dir().unwrap().next().is_some());
    let ended = workplace.run(&["d.weft", "--device", "other", "-c", "SELECT 1"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("ALTER DATABASE ADD DEVICE"), "{}", ended.stderr);
}

#[test]
fn the_experiments_are_another_binary() {
    let workplace = Workplace::new();
    for words in [&["bench"][..], &["bench", "tpch", "--scale", "1"], &["bench", "--help"]] {
        let ended = workplace.run(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{words:?}");
        let is_said = ended.stderr.contains("weft-bench") && ended.stderr.contains("./bench");
        assert!(is_said && ended.stderr.lines().count() == 1, "{words:?}: {}", ended.stderr);
    }
    assert!(!workplace.path().join("bench").exists());
    assert_eq!(workplace.run(&["./bench", "-c", "SELECT 1"]).code, Some(0));
    assert!(workplace.path().join("bench").exists());
}
