//! Typing: statements of several lines, history, completion.

use super::{Terminal, directory};

#[test]
fn statements_span_lines() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 80);
    let screen = terminal.prompt();
    assert!(screen.contains("Nothing is kept when you leave"), "{screen}");
    terminal.line("SELECT 1 AS a,");
    terminal.wait_for(" ...>");
    terminal.line("'x;' AS b;");
    let screen = terminal.wait_for("1 row\nweft>");
    assert!(screen.contains("weft> SELECT 1 AS a,\n ...> 'x;' AS b;\n┌───"), "{screen}");
    assert!(screen.contains("│ 1 │ x; │"), "{screen}");
}

#[test]
fn statements_can_be_recalled_also_by_the_next_session() {
    let directory = directory();
    let mut terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line("SELECT 5");
    terminal.wait_for(" ...>");
    terminal.line("AS five;");
    terminal.wait_for("1 row\nweft>");
    terminal.keys("\x04");
    assert_eq!(terminal.end(), Some(0));
    let terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.keys("\x1b[A");
    terminal.wait_for("weft> SELECT 5\n ...> AS five;");
    terminal.keys("\r");
    terminal.wait_for("│    5 │");
    assert!(directory.path().join(".local/state/weft/history").exists());
}

#[test]
fn names_are_completed() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line("CREATE TABLE zebras (stripes INT, legs INT);");
    terminal.wait_for("CREATE TABLE\nweft>");
    terminal.keys("SELECT * FROM ze\t");
    terminal.wait_for("SELECT * FROM zebras");
    terminal.keys(" WHERE stripe\t");
    terminal.wait_for("SELECT * FROM zebras WHERE stripes");
    terminal.keys(" = 1 ORDER BY \t");
    terminal.wait_for("legs");
    terminal.keys("\x03");
    terminal.wait("an empty line", |screen| screen.ends_with("\nweft>"));
    terminal.keys(".tab\t");
    terminal.wait_for("weft> .tables");
    terminal.keys(" z\t\r");
    terminal.wait_for("weft> .tables zebras\nzebras\nweft>");
}

#[test]
fn words_are_coloured() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.keys("SELECT 'a' x");
    terminal.wait_for("SELECT 'a' x");
    let parser = terminal.parser.lock().unwrap();
    let (row, _) = parser.screen().cursor_position();
    let cell = |column| parser.screen().cell(row, column).expect("a cell of the screen");
    assert!(cell(6).bold(), "a keyword is bold");
    assert_eq!(cell(13).fgcolor(), vt100::Color::Idx(2), "a string is green");
    assert!(!cell(17).bold());
}

#[test]
fn leaving() {
    let directory = directory();
    for keys in ["exit\r", "quit;\r", ".quit\r", ".exit 0\r", "\x04"] {
        let mut terminal = Terminal::start(&directory, &[], 80);
        terminal.prompt();
        terminal.keys(keys);
        assert_eq!(terminal.end(), Some(0), "{keys:?}");
    }
    let mut terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line(".quit 3");
    assert_eq!(terminal.end(), Some(3));
}

#[test]
fn an_error_does_not_end_the_session() {
    let directory = directory();
    let mut terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line("SELECT nothing;");
    let screen = terminal.wait_for("    SELECT nothing\n           ^");
    assert!(screen.contains("  at line 1, column 8\n"), "{screen}");
    terminal.line(".nonsense");
    terminal.wait_for("there is no command .nonsense");
    terminal.line("SELECT 7 AS seven;");
    terminal.wait_for("│     7 │");
    terminal.keys("\x04");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_terminal_that_can_do_nothing_is_enough() {
    let directory = directory();
    let mut terminal = Terminal::start_as("dumb", &directory, &[], 80);
    terminal.prompt();
    terminal.line("SELECT 1");
    terminal.wait_for(" ...>");
    terminal.line("AS one;");
    terminal.wait_for("│   1 │");
    terminal.keys("SELECT 2 +\x03");
    terminal.wait("a new prompt", |screen| screen.ends_with("^C\nweft>"));
    terminal.line("SELECT 3 AS three;");
    terminal.wait_for("│     3 │");
    terminal.keys("\x04");
    assert_eq!(terminal.end(), Some(0));
}
