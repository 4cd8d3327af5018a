//! Scripts: how they are cut, when they stop, what they leave behind.

use std::time::{Duration, Instant};

use super::{Workplace, read_some};

#[test]
fn statements_may_lack_the_last_semicolon_and_span_lines() {
    let workplace = Workplace::new();
    let output = workplace.script(
        ".mode csv\n.headers off\n-- a comment; with a semicolon\nSELECT\n  ';' /* ; */\n;\n\
         SELECT 'a\n.b'; SELECT 3",
    );
    assert_eq!(output, ";\n\"a\n.b\"\n3\n");
}

#[test]
fn a_script_stops_at_its_first_error() {
    let workplace = Workplace::new();
    let script = ".print 1\nSELECT nothing;\n.print 2\n.nonsense\n.print 3\n";
    let ended = workplace.run_with(&[], script);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "1\n"));
    let ended = workplace.run_with(&["--bail", "off"], script);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "1\n2\n3\n"));
    let ended = workplace.run_with(&[], &format!(".bail off\n{script}"));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "1\n2\n3\n"));
}

#[test]
fn scripts_read_scripts() {
    let workplace = Workplace::new();
    workplace.write("inner.sql", ".print inner\nSELECT nothing;\n.print never\n");
    workplace.write("outer.sql", ".print outer\n.read inner.sql\n.print never\n");
    let ended = workplace.run(&["-f", "outer.sql"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "outer\ninner\n"));
    assert_eq!(ended.stderr.matches("Error").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("inner.sql:2:8"), "{}", ended.stderr);
    workplace.write("self.sql", ".read self.sql\n");
    let ended = workplace.run(&["-f", "self.sql"]);
    assert!(ended.stderr.contains("does one read itself?"), "{}", ended.stderr);
    let ended = workplace.run(&["-f", "absent.sql"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("absent.sql"), "{}", ended.stderr);
}

#[test]
fn quit_ends_everything_with_its_code() {
    let workplace = Workplace::new();
    workplace.write("q.sql", ".print in\n.quit 7\n.print never\n");
    let ended = workplace.run(&["-f", "q.sql", "-c", ".print never"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "in\n"));
}

#[test]
fn output_that_nobody_reads_ends_the_script_quietly() {
    let workplace = Workplace::new();
    let sql = "SELECT * FROM generate_series(1, 3000000000) AS g(value);";
    let mut child = workplace.command(&["--mode", "csv", "-c", sql]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let first = read_some(&mut stdout, 8);
    assert!(first.starts_with(b"value\n1\n"), "{}", String::from_utf8_lossy(&first));
    drop(stdout);
    let started = Instant::now();
    let ended = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "the whole result was computed");
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    assert_eq!(ended.status.code(), Some(0));
}

#[test]
fn each_statement_runs_when_it_is_complete() {
    use std::io::Write;
    let workplace = Workplace::new();
    let mut child = workplace.command(&["--mode", "list"]).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    stdin.write_all(b"SELECT 1 AS a;\n").unwrap();
    assert_eq!(read_some(&mut stdout, 4), b"a\n1\n");
    stdin.write_all(b"SELECT 2 AS b;\n").unwrap();
    assert_eq!(read_some(&mut stdout, 4), b"b\n2\n");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn input_that_is_no_text_is_refused() {
    let workplace = Workplace::new();
    std::fs::write(workplace.path().join("bytes.sql"), [b'S', 0xff, b'\n']).unwrap();
    let ended = workplace.run(&["-f", "bytes.sql"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("UTF-8"), "{}", ended.stderr);
}

#[test]
fn statements_after_one_that_is_no_text_run() {
    let workplace = Workplace::new();
    let script = b".bail off\nSELECT '\xe9';\nSELECT 7 AS a;\n";
    std::fs::write(workplace.path().join("bytes.sql"), script).unwrap();
    let ended = workplace.run(&["--mode", "list", "-f", "bytes.sql"]);
    assert_eq!(ended.stdout, "a\n7\n");
    assert!(ended.stderr.contains("UTF-8"), "{}", ended.stderr);
}

#[test]
fn echo_prints_what_runs() {
    let workplace = Workplace::new();
    let ended = workplace.run_with(&["--echo", "--mode", "list"], "SELECT\n1 AS a;\n.print x");
    assert_eq!(ended.stdout, "SELECT\n1 AS a;\na\n1\n.print x\nx\n");
}
