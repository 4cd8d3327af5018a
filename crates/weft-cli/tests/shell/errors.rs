//! Errors: where they are, in the lines and characters of the script.

use super::Workplace;

#[test]
fn the_place_is_that_in_the_script() {
    let workplace = Workplace::new();
    let error =
        workplace.failing("SELECT 1;\n  SELECT 'é' || 'b',\n\tnothing FROM (VALUES (1)) AS t(a);");
    assert_eq!(
        error.lines().skip(1).take(3).collect::<Vec<_>>(),
        ["  at stdin:3:2", "     nothing FROM (VALUES (1)) AS t(a)", "     ^"],
        "{error}"
    );
    let error = workplace.failing("SELECT 1; SELECT nothing;");
    assert!(error.contains("  at stdin:1:18\n    SELECT nothing\n           ^\n"), "{error}");
    let ended = workplace.run(&["-c", "SELEC 1"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("  at line 1, column 1\n    SELEC 1\n    ^\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn errors_while_running_are_errors_too() {
    let workplace = Workplace::new();
    let ended = workplace.run(&["-c", "SELECT CAST('x' AS INT)", "-c", ".print never"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.starts_with("Error: "), "{}", ended.stderr);
}

#[test]
fn dot_commands_that_cannot_be_are_explained() {
    let workplace = Workplace::new();
    for (line, expected) in [
        (".tabels", "did you mean .tables?"),
        (".mode jsom", "did you mean json?"),
        (".mode", ""),
        (".timer", "write .timer on|off"),
        (".timer perhaps", "write on or off, not 'perhaps'"),
        (".maxrows many", "write a number, not 'many'"),
        (".print 'open", "the quote ' is not closed"),
        (".read absent.sql", "cannot read absent.sql"),
        (".output absent/file", "cannot create absent/file"),
        (".cd absent", "cannot change to absent"),
        (".shell exit 3", "exit status: 3"),
        (".open a b", "write one directory"),
        (".dump", "COPY table TO"),
        (".indexes nothing", "nothing"),
        (".quit 300", "0 to 255"),
    ] {
        let ended = workplace.run(&["-c", line]);
        assert_eq!(ended.code, Some(i32::from(!expected.is_empty())), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{line}: {}", ended.stderr);
    }
}
