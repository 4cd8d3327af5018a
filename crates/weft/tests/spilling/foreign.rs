//! DataFusion's operators spill to the same area: what goes wrong there, what is counted, and what limits it.

use weft::ErrorKind;

use crate::bench::{Bench, answer};
use crate::faults;

/// Memory in which DataFusion's operators spill the rows of the bench, but not for want of it fail: they hold some batches.
const BY_DATAFUSION: [&str; 3] =
    ["engine = 'datafusion'", "batch_size = 100", "memory_limit = '24MiB'"];

fn check(more: &[&str], sql: &str, undo: Option<&str>) {
    faults::check(&[&BY_DATAFUSION[..], more].concat(), sql, undo);
}

const SORT: &str = "SELECT n, s FROM t ORDER BY s DESC, n";

#[test]
fn sort() {
    check(&[], SORT, None);
}

#[test]
fn sort_compressed() {
    check(&["spill_compression = 'zstd:1'"], SORT, None);
}

#[test]
fn merge_join() {
    let sql = "SELECT count(*), sum(length(t.s || u.s)), max(u.s) FROM t JOIN u ON t.n = u.n";
    let settings = ["datafusion.optimizer.prefer_hash_join = false", "memory_limit = '32MiB'"];
    check(&settings, sql, None);
}

#[test]
fn create_table_as() {
    let sql = "CREATE TABLE made AS SELECT n, left(s, 20) AS short FROM t ORDER BY s";
    check(&[], sql, Some("DROP TABLE IF EXISTS made"));
}

#[test]
fn what_is_spilled_is_counted_and_compressed() {
    let bench = Bench::new(1);
    for setting in BY_DATAFUSION.iter().chain(&["spill_compression = 'lz4'"]) {
        bench.session.execute(&format!("SET {setting}")).unwrap();
    }
    let before = bench.database.stats();
    let result = bench.session.query(&format!("EXPLAIN ANALYZE {SORT}")).unwrap();
    let text = weft::to_text(&result.collect().unwrap()).unwrap().concat().join("\n");
    let stats = bench.database.stats();
    let raw_bytes = stats.spill_bytes_raw - before.spill_bytes_raw;
    let written_bytes = stats.spill_bytes_written - before.spill_bytes_written;
    assert!(raw_bytes > 8 << 20 && written_bytes < raw_bytes / 4, "{stats:?}");
    assert!(stats.spill_bytes_read - before.spill_bytes_read >= written_bytes, "{stats:?}");
    assert!(text.contains("SortExec") && text.contains("spilled   "), "{text}");
    assert!(!text.contains("spilled   nothing") && text.contains("lz4 "), "{text}");
    bench.check_nothing_is_left("counted");
}

/// The setting that limits pipelines limits DataFusion's operators, in the same words.
#[test]
fn the_quota_is_that_of_pipelines() {
    let bench = Bench::new(1);
    let spilled = bench.run_well(SORT).1.bytes;
    for setting in BY_DATAFUSION {
        bench.session.execute(&format!("SET {setting}")).unwrap();
    }
    bench.session.execute(&format!("SET max_temp_size = '{}'", spilled / 2)).unwrap();
    let error = answer(&bench.session, SORT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(error.message().contains(" more on disk, but"), "{error}");
    assert!(error.message().contains("max_temp_size allows"), "{error}");
    bench.check_nothing_is_left("limited");
    bench.session.execute("SET max_temp_size = 'unlimited'").unwrap();
    answer(&bench.session, SORT).unwrap();
    bench.check_nothing_is_left("unlimited");
}
