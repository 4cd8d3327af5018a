//! COPY and files queried in place: every format out and in again, options, errors with places.

use std::fs;
use std::path::Path;

use crate::support::{check, check_error, database, rows};
use weft::{ErrorKind, Session};

const DEFINITION: &str =
    "(i INTEGER, n DECIMAL(12, 2), d DATE, t TIMESTAMP, s VARCHAR, b BOOLEAN, f DOUBLE)";

/// A session with a table `t` of some rows.
fn filled() -> Session {
    let session = database().session().unwrap();
    session.execute(&format!("CREATE TABLE t {DEFINITION}")).unwrap();
    session
        .execute(
            "INSERT INTO t VALUES
             (1, 1.25, '2024-02-29', '2024-02-29 12:34:56.789012', 'plain', TRUE, 0.1),
             (2, NULL, NULL, NULL, NULL, NULL, NULL),
             (-3, -1234567890.99, '1969-12-31', '0001-01-01 00:00:00', 'quote \" comma , ü', FALSE, 1e300),
             (4, 0, '9999-12-31', '9999-12-31 23:59:59.999999', 'line\nend', TRUE, -0.5)",
        )
        .unwrap();
    session
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

#[test]
fn every_format_makes_the_round_trip() {
    let session = filled();
    let directory = tempfile::tempdir().unwrap();
    let expected = rows(&session, "SELECT * FROM t ORDER BY i");
    for (name, options) in [
        ("t.parquet", ""),
        ("t2.parquet", "(COMPRESSION snappy)"),
        ("t.csv", ""),
        ("t2.csv", "(HEADER FALSE, DELIMITER ';', NULL 'none')"),
        ("t.tsv", "(HEADER)"),
        ("t.csv.gz", ""),
        ("t.json", ""),
        ("t.ndjson.zst", ""),
        ("t.arrow", ""),
        ("t.dat", "(FORMAT parquet)"),
        ("t.txt", "WITH (FORMAT csv, QUOTE '|', HEADER)"),
    ] {
        let file = quoted(&directory.path().join(name));
        let written = session.execute(&format!("COPY t TO {file} {options}"));
        assert_eq!(written.unwrap_or_else(|error| panic!("{name}: {error}")), 4, "{name}");
        session.execute(&format!("CREATE OR REPLACE TABLE u {DEFINITION}")).unwrap();
        let read = session.execute(&format!("COPY u FROM {file} {options}"));
        assert_eq!(read.unwrap_or_else(|error| panic!("{name}: {error}")), 4, "{name}");
        assert_eq!(rows(&session, "SELECT * FROM u ORDER BY i"), expected, "{name}");
    }
    let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("partial")));
}

#[test]
fn files_are_queried_in_place() {
    let session = filled();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| quoted(&directory.path().join(name));
    for name in ["a.parquet", "b.parquet", "c.csv", "d.json", "e.arrow"] {
        session
            .execute(&format!("COPY (SELECT i, s FROM t WHERE i > 0) TO {}", path(name)))
            .unwrap();
        let sql = format!("SELECT i, s FROM {} WHERE i = 1", path(name));
        check(&session, &sql, &["1 plain"]);
    }
    check(&session, &format!("SELECT count(*) FROM {}", path("*.parquet")), &["6"]);
    fs::create_dir(directory.path().join("sub")).unwrap();
    fs::copy(directory.path().join("a.parquet"), directory.path().join("sub/x.parquet")).unwrap();
    check(&session, &format!("SELECT count(*) FROM {}", path("sub")), &["3"]);
    session.execute(&format!("CREATE TABLE v AS SELECT * FROM {}", path("c.csv"))).unwrap();
    check(&session, "SELECT count(*), sum(i) FROM v", &["3 7"]);
    session.execute(&format!("CREATE VIEW w AS SELECT * FROM {}", path("a.parquet"))).unwrap();
    check(&session, "SELECT count(*) FROM w", &["3"]);
    check(
        &session,
        &format!("DESCRIBE {}", path("a.parquet")),
        &["i INTEGER YES NULL NULL", "s VARCHAR YES NULL NULL"],
    );
    for (name, part) in [
        ("nowhere.parquet", "does not exist"),
        ("*.nothing", "no file matches"),
        ("", "several formats"),
    ] {
        let error = session.execute(&format!("SELECT * FROM {}", path(name))).unwrap_err();
        assert!(error.message().contains(part), "{name}: {error}");
    }
    fs::write(directory.path().join("broken.parquet"), "no parquet").unwrap();
    let error = check_error(
        &session,
        &format!("SELECT * FROM {}", path("broken.parquet")),
        ErrorKind::Data,
    );
    assert!(error.message().contains("broken.parquet"), "{error}");
    fs::write(directory.path().join("x.unknown"), "1").unwrap();
    check_error(&session, &format!("SELECT * FROM {}", path("x.unknown")), ErrorKind::NotSupported);
}

#[test]
fn csv_goes_to_columns_by_name_or_position() {
    let session = database().session().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).unwrap();
        quoted(&directory.path().join(name))
    };
    session
        .execute("CREATE TABLE t (a INTEGER, b VARCHAR NOT NULL DEFAULT 'd', c BOOLEAN)")
        .unwrap();
    let copy = |columns: &str, file: &str, options: &str| {
        session.execute("DROP TABLE IF EXISTS u").unwrap();
        session
            .execute("CREATE TABLE u (a INTEGER, b VARCHAR NOT NULL DEFAULT 'd', c BOOLEAN)")
            .unwrap();
        session
            .execute(&format!("COPY u {columns} FROM {file} {options}"))
            .map(|_| rows(&session, "SELECT * FROM u"))
    };
    let named = write("named.csv", "C,a,B\ntrue,1,x\n,2,\n");
    assert_eq!(copy("", &named, "").unwrap(), ["1 x true", "2  NULL"]);
    let plain = write("plain.csv", "1,x,true\n2,y,false\n");
    assert_eq!(copy("", &plain, "").unwrap(), ["1 x true", "2 y false"]);
    let other = write("other.csv", "one,two,three\n1,x,true\n");
    assert_eq!(copy("", &other, "(HEADER)").unwrap(), ["1 x true"]);
    let two = write("two.csv", "1;true\n");
    assert_eq!(copy("(a, c)", &two, "(DELIMITER ';')").unwrap(), ["1 d true"]);
    assert_eq!(copy("", &write("empty.csv", ""), "").unwrap(), Vec::<String>::new());
    let error = copy("", &two, "(DELIMITER ';')").unwrap_err();
    assert!(error.message().contains("line 1 has 2 values, but 3 columns"), "{error}");
    assert_eq!(copy("(a, nosuch)", &two, "").unwrap_err().kind(), ErrorKind::Semantic);
    assert_eq!(copy("", &two, "(NOSUCH 1)").unwrap_err().kind(), ErrorKind::NotSupported);
}

#[test]
fn csv_errors_name_file_line_and_column() {
    let session = database().session().unwrap();
    let directory = tempfile::tempdir().unwrap();
    session.execute("CREATE TABLE t (a INTEGER, b DATE NOT NULL, c VARCHAR)").unwrap();
    let error = |name: &str, text: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        let error =
            check_error(&session, &format!("COPY t FROM {}", quoted(&path)), ErrorKind::Data);
        assert!(error.message().contains(name), "{error}");
        check(&session, "SELECT count(*) FROM t", &["0"]);
        error.message().to_owned()
    };
    let message = error("number.csv", b"a,b,c\n1,2020-01-01,x\nabc,2020-01-01,x\n");
    assert!(message.contains("line 3, column a: 'abc' is no INTEGER"), "{message}");
    let message = error("date.csv", b"a,b,c\n1,2020-01-01,\"two\nlines\"\n2,2020-13-01,x\n");
    assert!(message.contains("line 4, column b: '2020-13-01' is no DATE"), "{message}");
    let message = error("null.csv", b"a,b,c\n1,,x\n");
    assert!(message.contains("line 2, column b: has no value"), "{message}");
    let message = error("values.csv", b"a,b,c\n1,2020-01-01,x\n1,2020-01-01\n");
    assert!(message.contains("line 3 has 2 values instead of 3"), "{message}");
    let message = error("utf8.csv", b"a,b,c\n1,2020-01-01,\xff\xfe\n");
    assert!(message.contains("line 2") && message.contains("UTF-8"), "{message}");
    let mut long = String::from("a,b,c\n");
    for number in 0..100_000 {
        long.push_str(&format!("{number},2020-01-01,some text\n"));
    }
    long.push_str("99999999999,2020-01-01,x\n");
    let message = error("long.csv", long.as_bytes());
    assert!(message.contains("line 100002, column a"), "{message}");
}

#[test]
fn named_columns_must_be_the_tables() {
    let session = filled();
    let directory = tempfile::tempdir().unwrap();
    let file = quoted(&directory.path().join("x.parquet"));
    session.execute(&format!("COPY (SELECT s, i FROM t WHERE i = 1) TO {file}")).unwrap();
    session.execute("CREATE TABLE u (i BIGINT DEFAULT 5, s VARCHAR, x INTEGER DEFAULT 9)").unwrap();
    session.execute(&format!("COPY u FROM {file}")).unwrap();
    check(&session, "SELECT * FROM u", &["1 plain 9"]);
    session.execute("CREATE TABLE v (i BIGINT)").unwrap();
    let error = check_error(&session, &format!("COPY v FROM {file}"), ErrorKind::Semantic);
    assert!(error.message().contains("has a column s, but table v has no column s"), "{error}");
    session.execute(&format!("COPY (SELECT 'abc' AS i) TO {file}")).unwrap();
    check_error(&session, &format!("COPY v FROM {file}"), ErrorKind::Data);
    check(&session, "SELECT count(*) FROM v", &["0"]);
}

#[test]
fn large_loads_keep_their_order() {
    let session = database().session().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for name in ["x.parquet", "x.csv"] {
        let file = quoted(&directory.path().join(name));
        let made = format!(
            "COPY (SELECT value AS n, 'text ' || value AS s FROM generate_series(1, 400000) AS g(value) ORDER BY 1) TO {file}"
        );
        assert_eq!(session.execute(&made).unwrap(), 400_000);
        session.execute("CREATE OR REPLACE TABLE t (n BIGINT, s VARCHAR)").unwrap();
        assert_eq!(session.execute(&format!("COPY t FROM {file}")).unwrap(), 400_000);
        check(
            &session,
            "SELECT count(*), sum(n), max(s), count(DISTINCT s) FROM t",
            &["400000 80000200000 text 99999 400000"],
        );
        // The first rows of the file are the first of the table: only one row group has them.
        let plan = rows(&session, "EXPLAIN ANALYZE SELECT s FROM t WHERE n <= 10").join("\n");
        let groups: usize = number_after(&plan, "row_groups=");
        assert_eq!(number_after(&plan, "row_groups_pruned="), groups - 1, "{plan}");
    }
}

fn number_after(text: &str, name: &str) -> usize {
    let start = text.find(name).unwrap_or_else(|| panic!("{name} in {text}")) + name.len();
    text[start..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let session = database().session().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("x.csv");
    fs::write(&target, "before").unwrap();
    let sql = format!(
        "COPY (SELECT value FROM generate_series(1, 500000000) AS g(value)) TO {}",
        quoted(&target)
    );
    let mut result = session.query(&sql).unwrap();
    let handle = result.cancel_handle();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        handle.cancel();
    });
    assert_eq!(result.finish().unwrap_err().kind(), ErrorKind::Cancelled);
    canceller.join().unwrap();
    drop(result);
    assert_eq!(fs::read_to_string(&target).unwrap(), "before");
    for _ in 0..100 {
        if fs::read_dir(directory.path()).unwrap().count() == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{:?}", fs::read_dir(directory.path()).unwrap().collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_written_is_said() {
    let session = filled();
    check_error(&session, "COPY t TO '/nowhere/at/all/x.csv'", ErrorKind::Io);
    check_error(&session, "COPY t TO '/tmp/x.unknown'", ErrorKind::NotSupported);
    check_error(&session, "COPY t TO '/tmp/x.csv' (FORMAT nosuch)", ErrorKind::NotSupported);
    check_error(&session, "COPY nosuch TO '/tmp/x.csv'", ErrorKind::Semantic);
    check_error(&session, "COPY t FROM '/nowhere/x.csv'", ErrorKind::Io);
    check_error(&session, "COPY nosuch FROM '/nowhere/x.csv'", ErrorKind::Semantic);
    check_error(&session, "COPY t", ErrorKind::Syntax);
    check_error(&session, "COPY t FROM x.csv", ErrorKind::Syntax);
    let error = session.execute("COPY t FROM '/dev/null' (FORMAT csv").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Syntax);
}

// Relatives that were tried: chains of links, links to nothing, links into another directory, `?` and `*` in names and in the names
// of directories, devices, pipes with a reader that comes late, sockets.
#[test]
fn what_is_there_stays_what_it_is() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    let session = database().session().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let copy = |to: &Path, value: u32| {
        session.execute(&format!("COPY (SELECT {value} AS x) TO {} (FORMAT csv)", quoted(to)))
    };

    fs::write(path("real.csv"), "old").unwrap();
    fs::set_permissions(path("real.csv"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real.csv", path("link.csv")).unwrap();
    symlink("link.csv", path("link2.csv")).unwrap();
    copy(&path("link2.csv"), 7).unwrap();
    assert_eq!(fs::read_to_string(path("real.csv")).unwrap(), "x\n7\n");
    assert!(fs::symlink_metadata(path("link2.csv")).unwrap().is_symlink());
    assert_eq!(fs::metadata(path("real.csv")).unwrap().permissions().mode() & 0o777, 0o600);

    symlink(path("new.csv"), path("dangling.csv")).unwrap();
    copy(&path("dangling.csv"), 8).unwrap();
    assert_eq!(fs::read_to_string(path("new.csv")).unwrap(), "x\n8\n");

    fs::create_dir(path("d[1]*")).unwrap();
    for name in ["r[1].csv", "r?.csv", "r*.csv", "d[1]*/r%20.csv"] {
        copy(&path(name), 9).unwrap();
        assert_eq!(fs::read_to_string(path(name)).unwrap(), "x\n9\n", "{name}");
    }
    assert_eq!(fs::read_dir(path("d[1]*")).unwrap().count(), 1);

    copy(Path::new("/dev/null"), 10).unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());

    let made = std::process::Command::new("mkfifo").arg(path("pipe.csv")).status().unwrap();
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = path("pipe.csv");
        move || fs::read_to_string(pipe).unwrap()
    });
    copy(&path("pipe.csv"), 11).unwrap();
    assert_eq!(reader.join().unwrap(), "x\n11\n");
    assert!(fs::metadata(path("pipe.csv")).unwrap().file_type().is_fifo());

    let _socket = UnixListener::bind(path("socket.csv")).unwrap();
    let refused = copy(&path("socket.csv"), 12).unwrap_err();
    assert!(refused.message().contains("neither a file nor a pipe"), "{refused}");
}

#[test]
fn foreign_parquet_files_are_read_or_refused_by_name() {
    let session = database().session().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good.parquet");
    session
        .execute(&format!("COPY (SELECT 1 AS x, 'a' AS s, 1.5 AS d) TO {}", quoted(&good)))
        .unwrap();
    let bytes = fs::read(&good).unwrap();
    let bad = directory.path().join("bad.parquet");
    let query = format!("SELECT * FROM {}", quoted(&bad));
    let small: [&[u8]; 3] = [b"PAR1PAR1", b"", b"PAR1\0\0\0\0PAR1"];
    for content in small {
        fs::write(&bad, content).unwrap();
        let error = session.query(&query).and_then(|result| result.collect()).unwrap_err();
        assert!(error.message().contains("bad.parquet"), "{error}");
    }
    // Each byte changed: an answer or an error that names the file, and neither a panic nor an abort.
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= [0x01, 0x80][at % 2];
        fs::write(&bad, &damaged).unwrap();
        if let Err(error) = session.query(&query).and_then(|result| result.collect()) {
            let text = error.to_string();
            assert!(text.contains("bad.parquet"), "byte {at}: {text}");
        }
    }
}
