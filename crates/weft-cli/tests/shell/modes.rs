//! What each output mode makes of the same rows.

use super::Workplace;

/// One row of plain values, one of NULLs, one of extremes.
const ROWS: &str = "SELECT * FROM (VALUES
  (1, CAST('-0.05' AS DECIMAL(10, 2)), 'plain', TRUE, CAST('1.5' AS DOUBLE), DATE '2024-02-29',
   TIMESTAMP '2024-02-29 12:34:56.789', X'00ff', [1, NULL], named_struct('x', 1, 'y', 'é')),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (-9223372036854775808, CAST('-12345678.90' AS DECIMAL(10, 2)), 'a\"b,c|d\ne\t日本 🦀', FALSE,
   CAST('NaN' AS DOUBLE), DATE '0001-01-01', TIMESTAMP '1969-12-31 23:59:59', X'', [],
   named_struct('x', NULL, 'y', ''))
) AS t(i, d, s, b, f, date, ts, bin, list, struct);\n";

const NO_ROWS: &str = "SELECT 1 AS a, 'x' AS b WHERE FALSE;";

/// What `script` prints in `mode`.
fn check(mode: &str, script: &str, expected: &str) {
    let output = Workplace::new().script(&format!(".mode {mode}\n{script}"));
    assert_eq!(output, expected, "{mode}\n{output}");
}

#[test]
fn table() {
    let script =
        "SELECT i, d, s, f, ts, list FROM (".to_owned() + ROWS.trim_end_matches(";\n") + ");";
    check(
        "table",
        &script,
        "\
┌──────────────────────┬──────────────┬─────────────────────┬──────┬─────────────────────────┬───────────┐
│                    i │            d │ s                   │    f │ ts                      │ list      │
├──────────────────────┼──────────────┼─────────────────────┼──────┼─────────────────────────┼───────────┤
│                    1 │        -0.05 │ plain               │  1.5 │ 2024-02-29 12:34:56.789 │ [1, NULL] │
│                 NULL │         NULL │ NULL                │ NULL │ NULL                    │ NULL      │
│ -9223372036854775808 │ -12345678.90 │ a\"b,c|d\\ne\\t日本 🦀 │  NaN │ 1969-12-31 23:59:59     │ []        │
└──────────────────────┴──────────────┴─────────────────────┴──────┴─────────────────────────┴───────────┘
3 rows
",
    );
    check("table", NO_ROWS, "┌───┬───┐\n│ a │ b │\n├───┼───┤\n└───┴───┘\n0 rows\n");
    check("ascii", "SELECT 1 AS a;", "+---+\n| a |\n+---+\n| 1 |\n+---+\n1 row\n");
}

#[test]
fn a_table_shows_the_first_and_the_last_rows() {
    let rows = "SELECT value AS n FROM generate_series(1, 1000000) AS g(value);";
    check(
        "table",
        &format!(".maxrows 3\n{rows}"),
        "\
┌─────────┐
│       n │
├─────────┤
│       1 │
│       2 │
│       ⋮ │
│ 1000000 │
└─────────┘
1,000,000 rows, 3 shown
",
    );
    let all = Workplace::new().script(&format!(".maxrows 0\n{}", rows.replace("000000", "00")));
    assert_eq!(all.lines().count(), 105);
    let default = Workplace::new().script(rows);
    assert!(default.ends_with("1,000,000 rows, 40 shown\n"), "{default}");
}

#[test]
fn a_table_fits_the_width() {
    check(
        "table",
        ".maxwidth 40\nSELECT 'short' AS a, repeat('long ', 50) AS b, 12 AS c;",
        "\
┌───────┬─────────────────────────┬────┐
│ a     │ b                       │  c │
├───────┼─────────────────────────┼────┤
│ short │ long long long long lo… │ 12 │
└───────┴─────────────────────────┴────┘
1 row
",
    );
    check(
        "table",
        ".maxwidth 40\nSELECT 'one column' AS a, 'another one' AS b, 'the third one' AS c, 'number \
         four' AS d;",
        "\
┌────────────┬───┬─────────────┐
│ a          │ … │ d           │
├────────────┼───┼─────────────┤
│ one column │ … │ number four │
└────────────┴───┴─────────────┘
1 row; 4 columns, 2 shown
",
    );
    check(
        "table",
        ".width 4\nSELECT 'abcdef' AS a, 'abcdef' AS b;",
        "┌──────┬────────┐\n│ a    │ b      │\n├──────┼────────┤\n│ abc… │ abcdef │\n\
         └──────┴────────┘\n1 row\n",
    );
}

#[test]
fn plans_are_shown_line_by_line() {
    let script = "CREATE TABLE t (a INT); EXPLAIN SELECT a FROM t WHERE a > 1;";
    let output = Workplace::new().script(script);
    assert!(output.starts_with("logical_plan\n  "), "{output}");
    assert!(output.contains("\nphysical_plan\n  ") && !output.contains("\\n"), "{output}");
    let json = Workplace::new().script(&format!(".mode json\n{script}"));
    assert!(json.starts_with("[{\"plan_type\":\"logical_plan\","), "{json}");
}

#[test]
fn csv() {
    check(
        "csv",
        ROWS,
        "\
i,d,s,b,f,date,ts,bin,list,struct
1,-0.05,plain,true,1.5,2024-02-29,2024-02-29 12:34:56.789,00ff,\"[1, NULL]\",\"{x: 1, y: \"\"é\"\"}\"
,,,,,,,,,
-9223372036854775808,-12345678.90,\"a\"\"b,c|d
e\t日本 🦀\",false,NaN,0001-01-01,1969-12-31 23:59:59,\"\",[],\"{x: NULL, y: \"\"\"\"}\"
",
    );
    check("csv", NO_ROWS, "a,b\n");
    check("csv", &format!(".headers off\n{NO_ROWS}"), "");
    check(
        "csv",
        ".nullvalue NULL\nSELECT NULL AS a, 'NULL' AS b, '' AS c, ' x' AS d;",
        "a,b,c,d\nNULL,\"NULL\",,\" x\"\n",
    );
}

#[test]
fn json() {
    let rows = [
        "{\"i\":1,\"d\":-0.05,\"s\":\"plain\",\"b\":true,\"f\":1.5,\"date\":\"2024-02-29\",\
         \"ts\":\"2024-02-29T12:34:56.789\",\"bin\":\"00ff\",\"list\":[1,null],\
         \"struct\":{\"x\":1,\"y\":\"é\"}}",
        "{\"i\":null,\"d\":null,\"s\":null,\"b\":null,\"f\":null,\"date\":null,\"ts\":null,\
         \"bin\":null,\"list\":null,\"struct\":null}",
        "{\"i\":-9223372036854775808,\"d\":-12345678.90,\"s\":\"a\\\"b,c|d\\ne\\t日本 🦀\",\
         \"b\":false,\"f\":null,\"date\":\"0001-01-01\",\"ts\":\"1969-12-31T23:59:59\",\"bin\":\"\",\
         \"list\":[],\"struct\":{\"x\":null,\"y\":\"\"}}",
    ];
    check("json", ROWS, &format!("[{}]\n", rows.join(",\n")));
    check("jsonlines", ROWS, &format!("{}\n", rows.join("\n")));
    check("json", NO_ROWS, "[]\n");
    check("jsonlines", NO_ROWS, "");
}

#[test]
fn json_keeps_every_digit_and_is_json() {
    let output = Workplace::new().script(
        ".mode json\nSELECT CAST('18446744073709551615' AS BIGINT UNSIGNED) AS u, \
         CAST('-99999999999999999999999999999999999999' AS DECIMAL(38, 0)) AS d, \
         CAST('0.1' AS DOUBLE) AS f, CAST('1e300' AS DOUBLE) AS g, CAST('inf' AS DOUBLE) AS h, \
         CAST('0.1' AS REAL) AS r, chr(1) || '\"\\' AS s, [['a'], []] AS l, \
         arrow_cast('x', 'Dictionary(Int32, Utf8)') AS k, MAP {'p': 1, 'q': NULL} AS m;",
    );
    assert_eq!(
        output,
        "[{\"u\":18446744073709551615,\"d\":-99999999999999999999999999999999999999,\"f\":0.1,\
         \"g\":1e300,\"h\":null,\"r\":0.1,\"s\":\"\\u0001\\\"\\\\\",\"l\":[[\"a\"],[]],\"k\":\"x\",\
         \"m\":{\"p\":1,\"q\":null}}]\n"
    );
    let parsed: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(parsed[0]["s"], "\u{1}\"\\");
}

#[test]
fn markdown() {
    check(
        "markdown",
        "SELECT 1 AS n, 'a|b\nc' AS \"x|y\" UNION ALL SELECT NULL, NULL ORDER BY 1;",
        "| n | x\\|y |\n|---:|---|\n| 1 | a\\|b<br>c |\n| NULL | NULL |\n",
    );
    check("markdown", NO_ROWS, "| a | b |\n|---:|---|\n");
}

#[test]
fn line() {
    check(
        "line",
        "SELECT 1 AS a, 'x\ny' AS long UNION ALL SELECT 2, NULL ORDER BY a;",
        "   a = 1\nlong = x\\ny\n\n   a = 2\nlong = NULL\n",
    );
    check("line", NO_ROWS, "");
}

#[test]
fn list_and_tabs() {
    let rows = "SELECT 'a|b\tc\\' AS x, NULL AS y;";
    check("list", rows, "x|y\na|b\tc\\|\n");
    check("tabs", rows, "x\ty\na|b\\tc\\\\\t\\N\n");
    check("tabs", &format!(".headers off\n.nullvalue -\n{rows}"), "a|b\\tc\\\\\t-\n");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let rows = "SELECT chr(27) || '[31m' AS x;";
    for mode in ["table", "ascii", "line", "markdown"] {
        let output = Workplace::new().script(&format!(".mode {mode}\n{rows}"));
        assert!(!output.contains('\u{1b}') && output.contains("\\u{1b}[31m"), "{mode}: {output}");
    }
}
