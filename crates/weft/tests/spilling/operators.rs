//! The operators that spill, a statement each.

use crate::faults::check;

/// A test for each name: its statement, one that undoes what it does, if it does something, and settings, if it is about some.
macro_rules! operators {
    ($($name:ident: $sql:literal $(undone by $undo:literal)? $(with $($setting:literal),+)?;)*) => {
        $(
            #[test]
            fn $name() {
                check(&[$($($setting),+)?], $sql, None $(.or(Some($undo)))?);
            }
        )*
    };
}

operators! {
    aggregation: "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY n, s)";
    aggregation_of_lists:
        "SELECT g, sum(length(x)) FROM (SELECT g, string_agg(s, ',' ORDER BY n) AS x FROM t GROUP BY g) GROUP BY g";
    aggregation_of_distinct_values: "SELECT g % 3, count(DISTINCT s), count(DISTINCT n) FROM t GROUP BY g % 3";
    inner_join: "SELECT count(*), sum(length(t.s || u.s)), max(u.s) FROM t JOIN u ON t.n = u.n AND t.s = u.s";
    full_join: "SELECT count(*), count(t.s), count(u.s), min(t.s), max(u.s) FROM t FULL JOIN u ON t.n = u.n + 1000";
    left_join: "SELECT count(*), count(u.s), max(t.s), max(u.s) FROM t LEFT JOIN u ON t.n = u.n + 1000 AND t.s >= ''";
    right_join: "SELECT count(*), count(t.s), max(t.s), max(u.s) FROM t RIGHT JOIN u ON t.n = u.n + 1000 AND u.s >= ''";
    mark_join: "SELECT n, length(s), s IN (SELECT s FROM u WHERE g < 80) OR n % 7 = 0 FROM t";
    join_without_matches: "SELECT n, length(s) FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.n = t.n AND u.s = t.s)";
    semi_join: "SELECT n, length(s) FROM t WHERE s IN (SELECT s FROM u WHERE g < 80)";
    anti_join: "SELECT n, length(s) FROM t WHERE s NOT IN (SELECT s FROM u)";
    nested_loop_join: "SELECT count(*), max(a.w || b.w) FROM wide AS a JOIN wide AS b ON a.w < b.w AND a.n + 590 < b.n";
    aggregation_of_grouping_sets:
        "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY GROUPING SETS ((n, s), (n), (s)))";
    aggregation_of_ranks: "SELECT median(n * 1.5), quantile_disc(s, 0.3), mode(s) FROM t";
    partitioned_join:
        "SELECT count(*), sum(length(t.s || u.s)), max(u.s) FROM t JOIN u ON t.n = u.n AND t.s = u.s" with "partition = 'always'";
    partitioned_full_join:
        "SELECT count(*), count(t.s), count(u.s), min(t.s), max(u.s) FROM t FULL JOIN u ON t.n = u.n + 1000" with "partition = 'always'";
    partitioned_anti_join:
        "SELECT n, length(s) FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.n = t.n AND u.s = t.s)" with "partition = 'always'";
    partitioned_aggregation:
        "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY n, s)" with "partition = 'always'";
    join_of_all_on_disk:
        "SELECT count(*), sum(length(t.s || u.s)), max(u.s) FROM t JOIN u ON t.n = u.n AND t.s = u.s" with "spill_mode = 'all'";
    aggregation_of_all_on_disk:
        "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY n, s)" with "spill_mode = 'all'";
    partitioned_join_of_all_on_disk:
        "SELECT count(*), count(u.s), max(t.s), max(u.s) FROM t LEFT JOIN u ON t.n = u.n + 1000" with "partition = 'always'", "spill_mode = 'all'";
    sort: "SELECT n, s FROM t ORDER BY s DESC, n";
    top_k: "SELECT n, s FROM t ORDER BY g, s LIMIT 4500 OFFSET 10";
    window_over_partitions: "SELECT n, length(s), rank() OVER (PARTITION BY g ORDER BY s) FROM t";
    window_over_all_rows:
        "SELECT n, sum(n) OVER w, first_value(s) OVER w \
         FROM t WINDOW w AS (ORDER BY s ROWS BETWEEN 1500 PRECEDING AND 1500 FOLLOWING)";
    intersection: "SELECT n, s FROM t INTERSECT SELECT n, s FROM u";
    difference: "SELECT n, s FROM t EXCEPT ALL SELECT n, s FROM u WHERE n % 2 = 0";
    union: "SELECT n, s FROM t UNION SELECT n, s FROM u";
    create_table_as: "CREATE TABLE made AS SELECT n, left(max(s), 20) AS s FROM t GROUP BY n" undone by "DROP TABLE IF EXISTS made";
    insert: "INSERT INTO filled SELECT n, left(first_value(s) OVER (PARTITION BY g ORDER BY s), 20) FROM t" undone by "CREATE OR REPLACE TABLE filled (n BIGINT, s VARCHAR)";
    copy_to: "COPY (SELECT n, s FROM t ORDER BY s) TO '{files}/copy.parquet'" undone by "";
}
