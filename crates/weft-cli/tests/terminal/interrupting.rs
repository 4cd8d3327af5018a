//! Ctrl-C, and signals that end the process.

use std::thread;
use std::time::Duration;

use super::{Terminal, directory};

/// A statement that takes minutes.
const LONG: &str = "SELECT sum(value * 3 % 7) FROM generate_series(1, 1000000000000) AS g(value) WHERE value % 9 = 4;";

#[test]
fn ctrl_c_cancels_the_statement_and_keeps_the_session() {
    let directory = directory();
    let mut terminal = Terminal::start(&directory, &[], 120);
    terminal.prompt();
    for presses in ["\x03", "\x03\x03\x03"] {
        terminal.line(LONG);
        thread::sleep(Duration::from_millis(500));
        terminal.keys(presses);
        terminal.wait("Interrupted", |screen| screen.ends_with("Interrupted\nweft>"));
        terminal.line("SELECT 6 AS six;");
        terminal.wait_for("│   6 │");
        terminal.line(".shell clear");
        terminal.wait("a clear screen", |screen| screen == "weft>");
    }
    terminal.keys("\x04");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn progress_is_shown_and_vanishes() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 120);
    terminal.prompt();
    terminal.line(LONG);
    terminal.wait_for(" 2 s");
    terminal.keys("\x03");
    let screen = terminal.wait("Interrupted", |screen| screen.ends_with("Interrupted\nweft>"));
    assert!(!screen.contains(" 2 s"), "{screen}");
}

#[test]
fn ctrl_c_at_the_prompt_forgets_what_was_typed() {
    let directory = directory();
    let terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.line("SELECT");
    terminal.wait_for(" ...>");
    terminal.keys("nothing\x03");
    terminal.wait("a new prompt", |screen| screen.ends_with("\nweft>"));
    terminal.line("SELECT 8 AS eight;");
    terminal.wait_for("│     8 │");
}

#[test]
fn ctrl_c_ends_a_script_with_130() {
    let directory = directory();
    let mut terminal = Terminal::start(&directory, &["-c", LONG, "-c", ".print never"], 120);
    thread::sleep(Duration::from_millis(1500));
    terminal.keys("\x03");
    assert_eq!(terminal.end(), Some(130));
    let screen = terminal.screen();
    assert!(screen.ends_with("Interrupted") && !screen.contains("never"), "{screen}");
}

#[test]
fn a_request_to_end_is_obeyed() {
    let directory = directory();
    for words in [&[][..], &["-c", LONG]] {
        let mut terminal = Terminal::start(&directory, words, 120);
        if words.is_empty() {
            terminal.prompt();
        } else {
            thread::sleep(Duration::from_millis(1500));
        }
        let id = terminal.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill is there").success());
        assert_eq!(terminal.end(), Some(128 + 15));
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_session() {
    let directory = directory();
    let mut terminal = Terminal::start(&directory, &[], 80);
    terminal.prompt();
    terminal.hang_up();
    assert_eq!(terminal.end(), Some(128 + 1));
    let mut terminal = Terminal::start_as("dumb", &directory, &[], 80);
    terminal.prompt();
    terminal.hang_up();
    // Whether the end of the input or the signal comes first is chance.
    assert!(matches!(terminal.end(), Some(0 | 129)));
}
