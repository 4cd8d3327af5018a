//! Parquet files that the workers read: damaged ones, many, some that change, with columns that share a name, with little memory, and reads that are broken off.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{Field, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use tempfile::TempDir;
use weft::{Database, DatabaseOptions, ErrorKind, Session};

/// What all columns say together, and what a condition leaves of them.
const ALL: &str = "count(*), max(n), max(s), count(x), max(d), count(l)";

fn open(memory_limit: &str) -> Database {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", "weft");
    Database::in_memory(&options.with("memory_limit", memory_limit)).unwrap()
}

/// Writes a file with so many rows, of several types and with NULLs, in row groups of so many.
fn write(path: &Path, rows: u32, group_rows: u32) {
    let session = database().session().unwrap();
    let sql = format!(
        "COPY (SELECT value AS n, md5(value::VARCHAR) AS s, 'few ' || (value % 3) AS t, \
         CASE WHEN value % 5 = 0 THEN NULL ELSE value::DOUBLE / 3 END AS x, \
         (value % 1000)::DECIMAL(12,2) AS d, [value, NULL] AS l \
         FROM generate_series(1, {rows}) AS g(value)) \
         TO '{}' (FORMAT parquet, ROW_GROUP_SIZE {group_rows})",
        path.display()
    );
    session.execute(&sql).unwrap();
}

fn file(rows: u32, group_rows: u32) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write(&path, rows, group_rows);
    (directory, path)
}

/// Statements over a file that read all of it, a part, and all but what a condition drops.
fn statements(path: &Path) -> [String; 3] {
    ["TRUE", "n BETWEEN 100 AND 200", "t = 'few 1' AND d < 17"]
        .map(|condition| format!("SELECT {ALL} FROM '{}' WHERE {condition}", path.display()))
}

#[test]
fn damaged_bytes_are_errors_that_name_the_file() {
    let (_directory, path) = file(3_000, 1_000);
    let whole = fs::read(&path).unwrap();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut errors, mut answers) = (0, 0);
    let database = open("256MiB");
    let session = database.session().unwrap();
    for round in 0..120 {
        let mut bytes = whole.clone();
        // Pages, the page index and the footer, which is at the end.
        let start = match round % 3 {
            0 => random.usize(4..whole.len()),
            1 => random.usize(whole.len() * 3 / 4..whole.len()),
            _ => random.usize(whole.len().saturating_sub(3_000)..whole.len()),
        };
        for byte in bytes.iter_mut().skip(start).take(random.usize(1..9)) {
            *byte = random.u8(..);
        }
        fs::write(&path, &bytes).unwrap();
        for sql in statements(&path) {
            match session.query(&sql).and_then(weft::QueryResult::collect) {
                Ok(_) => answers += 1,
                Err(error) => {
                    errors += 1;
                    let text = error.to_string();
                    assert!(text.contains("t.parquet"), "seed {seed}, {sql}: {text}");
                    let kinds = [ErrorKind::Data, ErrorKind::Io, ErrorKind::NotSupported];
                    assert!(
                        kinds.contains(&error.kind()),
                        "seed {seed}: {:?} {text}",
                        error.kind()
                    );
                }
            }
        }
    }
    assert!(errors > 20 && answers > 0, "seed {seed}: {errors} errors, {answers} answers");
    fs::write(&path, &whole).unwrap();
    check(&session, &format!("SELECT count(*) FROM '{}'", path.display()), &["3000"]);
}

#[test]
fn a_damaged_page_is_an_error_that_names_its_row_group_and_column() {
    let (_directory, path) = file(3_000, 1_000);
    let mut bytes = fs::read(&path).unwrap();
    // The first page of the first column, behind the mark of the file.
    bytes[5..64].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let session = open("256MiB").session().unwrap();
    let sql = format!("SELECT sum(n), max(s) FROM '{}'", path.display());
    let error = session.query(&sql).and_then(weft::QueryResult::collect).unwrap_err();
    let text = error.to_string();
    for told in ["t.parquet", "row group 0", "column n"] {
        assert!(text.contains(told), "{text}");
    }
    check(&session, &format!("SELECT max(t) FROM '{}'", path.display()), &["few 2"]);
}

#[test]
fn a_file_that_is_cut_off_is_an_error() {
    let (_directory, path) = file(2_000, 1_000);
    let bytes = fs::read(&path).unwrap();
    let session = open("256MiB").session().unwrap();
    for len in [0, 3, 11, 12, 100, bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
        fs::write(&path, &bytes[..len]).unwrap();
        let sql = format!("SELECT count(*), sum(n) FROM '{}'", path.display());
        let error = session.query(&sql).and_then(weft::QueryResult::collect).unwrap_err();
        assert!(error.to_string().contains("t.parquet"), "{len} bytes: {error}");
    }
}

#[test]
fn little_memory_suffices() {
    let (_directory, path) = file(200_000, 1_000_000);
    let with = |limit: &str| {
        let session = open(limit).session().unwrap();
        statements(&path).map(|sql| rows(&session, &sql))
    };
    let expected = with("1GiB");
    assert_eq!(with("16MiB"), expected);
    assert_eq!(with("64MiB"), expected);
}

#[test]
fn many_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let first = directory.path().join("f0.parquet");
    write(&first, 500, 100);
    for number in 1..1_500 {
        fs::copy(&first, directory.path().join(format!("f{number}.parquet"))).unwrap();
    }
    let session = open("256MiB").session().unwrap();
    let pattern = directory.path().join("*.parquet");
    let sql = format!("SELECT count(*), sum(n) FROM '{}' WHERE n > 400", pattern.display());
    check(&session, &sql, &["150000 67575000"]);
}

#[test]
fn a_file_that_has_changed_is_read_anew() {
    let (_directory, path) = file(1_000, 1_000);
    let session = open("256MiB").session().unwrap();
    let sql = format!("SELECT count(*), max(n) FROM '{}'", path.display());
    check(&session, &sql, &["1000 1000"]);
    write(&path, 2_000, 300);
    check(&session, &sql, &["2000 2000"]);
    fs::remove_file(&path).unwrap();
    check_error(&session, &sql, ErrorKind::Io);
}

#[test]
fn reads_that_are_broken_off_leave_nothing() {
    let (_directory, path) = file(300_000, 20_000);
    let database = open("256MiB");
    let session: Session = database.session().unwrap();
    let sql = format!("SELECT {ALL} FROM '{}' WHERE s LIKE '%a%'", path.display());
    let expected = rows(&session, &sql);
    let before = database.stats().memory_used;
    for wait_us in [0, 200, 1_000, 5_000, 20_000] {
        let mut result = session.query(&sql).unwrap();
        let handle = result.cancel_handle();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(wait_us));
            handle.cancel();
        });
        // It may have ended before.
        if let Err(error) = result.next_batch() {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        }
        canceller.join().unwrap();
        drop(result);
        let since = Instant::now();
        while database.stats().memory_used > before + (1 << 20) {
            assert!(since.elapsed() < Duration::from_secs(20), "memory is still in use");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(rows(&session, &sql), expected);
}

#[test]
fn rows_come_in_the_order_of_the_files_to_one_thread() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        write(&directory.path().join(format!("{name}.parquet")), 5_000, 1_000);
    }
    let options = DatabaseOptions::default().with("threads", 1).with("engine", "weft");
    let session = Database::in_memory(&options).unwrap().session().unwrap();
    let pattern = directory.path().join("*.parquet");
    let sql = format!(
        "SELECT p.n FROM '{}' AS p JOIN (VALUES (7), (4999)) AS v(n) ON p.n = v.n",
        pattern.display()
    );
    check(&session, &sql, &["7", "4999", "7", "4999", "7", "4999"]);
}

#[test]
fn columns_that_share_a_name_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some("y"), None]));
    let others: ArrayRef = Arc::new(Int64Array::from(vec![10, 20, 30]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(7), None]),
        None,
        Some(vec![]),
    ]));
    // The name that the second `a` would have is taken.
    let columns = [("a", numbers), ("a", texts), ("a_1", others), ("a", lists)];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    for has_arrow_schema in [true, false] {
        let options = ArrowWriterOptions::new().with_skip_arrow_metadata(!has_arrow_schema);
        let file = fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new_with_options(file, batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        for engine in ["weft", "datafusion"] {
            let database = open("256MiB");
            let session = database.session().unwrap();
            session.execute(&format!("SET engine = '{engine}'")).unwrap();
            let of = |sql: &str| rows(&session, &sql.replace("FILE", &path.display().to_string()));
            let described = of("DESCRIBE SELECT * FROM 'FILE'");
            let names: Vec<&str> =
                described.iter().filter_map(|row| row.split_whitespace().next()).collect();
            assert_eq!(names, ["a", "a_2", "a_1", "a_3"]);
            assert_eq!(
                of("SELECT * FROM 'FILE'"),
                ["1 x 10 [7, NULL]", "NULL y 20 NULL", "3 NULL 30 []"]
            );
            // Conditions and statistics are of the column that they name.
            assert_eq!(of("SELECT a FROM 'FILE' WHERE a_2 = 'y' OR a_1 = 30"), ["NULL", "3"]);
            assert_eq!(of("SELECT a_3[1], a_1 FROM 'FILE' WHERE a < 2"), ["7 10"]);
            assert_eq!(of("SELECT max(a), max(a_2), max(a_1) FROM 'FILE'"), ["3 y 30"]);
        }
    }
}
