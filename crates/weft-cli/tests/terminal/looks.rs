//! What results look like on terminals of several widths.

use super::{Terminal, directory};

const WIDE: &str =
    "SELECT 'first' AS a, repeat('wide ', 60) AS b, 'third column' AS c, 'fourth column' AS d;";

#[test]
fn tables_fit_the_terminal() {
    let directory = directory();
    for columns in [30, 60, 100] {
        let terminal = Terminal::start(&directory, &[], columns);
        terminal.prompt();
        terminal.line(".shell clear");
        terminal.line(WIDE);
        let screen = terminal
            .wait("the table", |screen| screen.contains("\n1 row") && screen.ends_with("weft>"));
        let rule = screen.lines().find(|line| line.starts_with('┌')).unwrap();
        let bottom = screen.lines().find(|line| line.starts_with('└')).unwrap();
        assert!(rule.ends_with('┐') && bottom.ends_with('┘'), "{screen}");
        assert!(screen.contains('…'), "{screen}");
        assert_eq!(screen.contains("columns, "), columns < 60, "{screen}");
    }
}

#[test]
fn nulls_are_dim_and_headers_bold() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line("SELECT NULL AS n;");
    let screen = terminal.wait_for("1 row\nweft>");
    let row_of = |text: &str| screen.lines().position(|line| line.starts_with(text)).unwrap();
    let parser = terminal.parser.lock().unwrap();
    let cell = |row: usize, column| parser.screen().cell(row.try_into().unwrap(), column).unwrap();
    assert!(cell(row_of("│ NULL"), 2).dim());
    assert!(cell(row_of("│ n"), 2).bold());
}

#[test]
fn a_database_with_a_directory_is_named() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &["my.weft"], 80);
    let screen = terminal.prompt();
    assert!(screen.contains("Created the database my.weft\n"), "{screen}");
    assert!(screen.contains(", my.weft; .help explains\n"), "{screen}");
    assert!(!screen.contains("Nothing is kept"), "{screen}");
}

#[test]
fn commands_say_what_they_did() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line("CREATE TABLE t (a INT);");
    terminal.wait_for("CREATE TABLE\nweft>");
    terminal.line("INSERT INTO t VALUES (1), (2);");
    terminal.wait_for("INSERT: 2 rows\nweft>");
}
