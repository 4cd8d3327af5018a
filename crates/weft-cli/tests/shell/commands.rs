//! The dot commands.

use super::Workplace;

#[test]
fn help_lists_every_command_within_a_line() {
    let workplace = Workplace::new();
    let help = workplace.script(".help");
    for name in ["tables", "schema", "mode", "timer", "import", "read", "open", "quit"] {
        assert!(help.contains(&format!("\n.{name} ")), "{help}");
    }
    assert!(help.lines().all(|line| line.chars().count() < 80), "{help}");
    assert_eq!(workplace.script(".help timer"), ".timer on|off\n  print time and bytes read\n");
}

#[test]
fn tables_and_schema_show_what_there_is() {
    let workplace = Workplace::new();
    let script = "CREATE TABLE orders (id BIGINT NOT NULL, \"Odd Name\" VARCHAR DEFAULT 'x', \
                  price DECIMAL(10, 2));\nCREATE TABLE items (a INT);\n\
                  CREATE VIEW cheap AS SELECT id FROM orders WHERE price < 1;\n";
    let tables = workplace.script(&format!("{script}.tables\n.print -\n.tables %ERS"));
    assert_eq!(tables, "cheap\nitems\norders\n-\norders\n");
    let schema = workplace.script(&format!("{script}.schema orders"));
    assert_eq!(
        schema,
        "CREATE TABLE orders (\n    id BIGINT NOT NULL,\n    \"Odd Name\" VARCHAR DEFAULT 'x',\n    \
         price DECIMAL(10, 2)\n);\n"
    );
    let schema = workplace.script(&format!("{script}.schema cheap"));
    assert!(schema.starts_with("CREATE VIEW cheap AS SELECT id FROM orders"), "{schema}");
    // What .schema prints makes the same table again.
    let schema = workplace.script(&format!("{script}.schema %e_s"));
    let again = workplace.script(&format!("{schema}.schema %e_s"));
    assert_eq!(again, schema);
}

#[test]
fn import_makes_or_fills_a_table() {
    let workplace = Workplace::new();
    workplace.write("a.csv", "id,name\n1,x\n2,\n");
    workplace.write("b.txt", "id,name\n3,z\n");
    let output = workplace.script(
        ".mode csv\n.import a.csv t\n.import a.csv t\n.import --csv b.txt t\n\
         SELECT count(*) AS n, sum(id) AS s FROM t;",
    );
    assert_eq!(output, "n,s\n5,9\n");
    assert!(workplace.failing(".import --csv b.txt other").contains("no table other"));
    assert!(workplace.failing(".import absent.csv t").contains("absent.csv"));
}

#[test]
fn results_go_to_files() {
    let workplace = Workplace::new();
    let output = workplace.script(
        ".mode list\n.headers off\n.once one.txt\nSELECT 1;\nSELECT 2;\n.output all.txt\nSELECT 3;\n\
         SELECT 4;\n.output\nSELECT 5;\n",
    );
    assert_eq!(output, "2\n5\n");
    assert_eq!(workplace.text("one.txt"), "1\n");
    assert_eq!(workplace.text("all.txt"), "3\n4\n");
}

#[test]
fn results_go_to_commands() {
    let workplace = Workplace::new();
    let output = workplace.script(
        ".mode list\n.headers off\n.once |sort -r | sed 's/^/a  b: /'\nSELECT * FROM (VALUES (1), (2));\n\
         SELECT 3;\n.output |cat > all.txt\n.show\nSELECT 4;\nSELECT 5;\n.output\nSELECT 6;\n",
    );
    assert_eq!(output, "a  b: 2\na  b: 1\n3\n6\n");
    let all = workplace.text("all.txt");
    assert!(all.contains("   output: |cat > all.txt\n") && all.ends_with("\n4\n5\n"), "{all}");
    // What a command does not read is no error, and does not end the script.
    let output = workplace.script(
        ".mode list\n.headers off\n.once |head -n 1\nSELECT * FROM generate_series(1, 1000000);\n\
         .output |true\nSELECT * FROM generate_series(1, 1000000);\nSELECT 7;\n.output\nSELECT 8;\n",
    );
    assert_eq!(output, "1\n8\n");
    assert!(workplace.failing(".once |exit 3\nSELECT 1;").contains("'exit 3' ended with"));
    assert!(workplace.failing(".output |").contains("write a command after |"));
    assert!(workplace.failing(".output absent/x.txt").contains("cannot create absent/x.txt"));
}

#[test]
fn the_systems_shell_gets_its_line_as_it_is() {
    let workplace = Workplace::new();
    assert_eq!(workplace.script(".shell printf '%s|' 'a  b' \"c\""), "a  b|c|");
}

#[test]
fn open_changes_the_database() {
    let workplace = Workplace::new();
    let ended = workplace.run_with(
        &["--mode", "csv"],
        ".databases\n.open d.weft\nCREATE TABLE t AS SELECT 1 AS a;\n.databases\n\
         .open --readonly ./d.weft\n.databases\nSELECT * FROM t;\n.open\n.tables\n",
    );
    assert_eq!(
        ended.stdout,
        "main: a temporary database\nmain: d.weft\nmain: ./d.weft (read-only)\na\n1\n"
    );
    assert_eq!(ended.stderr, "Created the database d.weft\n");
    assert_eq!(ended.code, Some(0));
}

#[test]
fn the_shells_settings_are_shown() {
    let workplace = Workplace::new();
    let output = workplace
        .script(".timer on\n.timer off\n.nullvalue -\n.maxrows 5\n.width 3 0 4\n.mode json\n.show");
    assert_eq!(
        output,
        "     bail: on\n  changes: off\n     echo: off\n  headers: on\n  maxrows: 5\n \
         maxwidth: 0\n     mode: json\nnullvalue: '-'\n   output: stdout\n progress: off\n    timer: \
         off\n    width: 3 0 4\n"
    );
}

#[test]
fn the_timer_tells_time_and_bytes() {
    let workplace = Workplace::new();
    let ended = workplace.run_with(&[], ".timer on\nSELECT 1;");
    assert!(ended.stderr.starts_with("Run time: "), "{}", ended.stderr);
    assert!(ended.stderr.trim_end().ends_with("read"), "{}", ended.stderr);
}

#[test]
fn commands_say_what_they_did_when_asked() {
    let workplace = Workplace::new();
    let output = workplace.script(
        ".changes on\nCREATE TABLE t (a INT);\nINSERT INTO t VALUES (1), (2);\n.changes off\n\
         DROP TABLE t;",
    );
    assert_eq!(output, "CREATE TABLE\nINSERT: 2 rows\n");
}

#[test]
fn the_world_outside() {
    let workplace = Workplace::new();
    std::fs::create_dir(workplace.path().join("inner")).unwrap();
    workplace.write("inner/x.csv", "a\n1\n");
    let output =
        workplace.script(".cd inner\n.shell echo hello\n.mode csv\nSELECT * FROM 'x.csv';");
    assert_eq!(output, "hello\na\n1\n");
    assert!(workplace.script(".version").starts_with("Weft "));
    assert!(workplace.script(".stats").contains("memory limit: "));
    assert!(workplace.script(".settings mem%").contains("memory_limit = "));
}
