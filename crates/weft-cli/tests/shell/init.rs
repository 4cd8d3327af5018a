//! The script that runs before anything else.

use super::Workplace;

#[test]
fn the_script_at_home_runs_first() {
    let workplace = Workplace::new();
    workplace.write(
        ".weftrc",
        "-- as I like it\n.mode csv\n.headers off\nCREATE TABLE t AS SELECT 1 AS a;\n",
    );
    assert_eq!(workplace.script("SELECT a FROM t;"), "1\n");
    assert_eq!(workplace.run(&["-c", "SELECT a + 1 FROM t"]).stdout, "2\n");
    let ended = workplace.run(&["--no-init", "-c", "SELECT a FROM t"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("table t does not exist"), "{}", ended.stderr);
    assert_eq!(
        workplace.run(&["-no-init", "--mode", "csv", "-c", "SELECT 1 AS x"]).stdout,
        "x\n1\n"
    );
}

#[test]
fn another_script_may_be_named() {
    let workplace = Workplace::new();
    workplace.write(".weftrc", "SELECT 'home';");
    workplace.write("other.sql", ".mode list\n.headers off\nSELECT 'other';");
    for option in ["--init", "-init"] {
        let ended = workplace.run(&[option, "other.sql", "-c", "SELECT 2"]);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "other\n2\n"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn its_errors_have_places_and_stop_scripts() {
    let workplace = Workplace::new();
    workplace.write(".weftrc", ".mode csv\nSELECT nothing;\n");
    let ended = workplace.run(&["-c", "SELECT 1 AS x"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains(".weftrc:2:8"), "{}", ended.stderr);
    let ended = workplace.run(&["--bail", "off", "-c", "SELECT 1 AS x"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "x\n1\n"));
    let ended = workplace.run(&["--init", "absent.sql", "-c", "SELECT 1"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("cannot read absent.sql"), "{}", ended.stderr);
}
