//! Files of web servers, over plain HTTP: with ranges and without, from servers that fail, hang, cut answers short and refuse.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use crate::web_server::WebServer;
use tempfile::TempDir;
use weft::{Database, DatabaseOptions, ErrorKind, Session};

/// Rows of the files.
const ROWS: u32 = 20_000;

/// Engines that read Parquet in different ways.
const ENGINES: [&str; 3] = ["weft", "datafusion", "auto"];

fn open(engine: &str, memory_limit: &str) -> Database {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", engine);
    Database::in_memory(&options.with("memory_limit", memory_limit)).unwrap()
}

/// A server with the same rows as files of several formats, which also lie in a directory.
fn served() -> (WebServer, TempDir) {
    let (server, directory) = (WebServer::start(), tempfile::tempdir().unwrap());
    let session = database().session().unwrap();
    let sql = format!(
        "SELECT value AS n, 'text ' || value % 100 AS s, (value * 7919 % 10007)::DOUBLE AS x, \
         md5(value::VARCHAR) AS h FROM generate_series(1, {ROWS}) AS g(value)"
    );
    for (name, options) in [
        ("t.parquet", "(FORMAT parquet, ROW_GROUP_SIZE 5000)"),
        ("t.csv", ""),
        ("t.csv.gz", ""),
        ("t.ndjson", "(FORMAT json)"),
        ("t.arrow", ""),
    ] {
        let path = directory.path().join(name);
        session.execute(&format!("COPY ({sql}) TO '{}' {options}", path.display())).unwrap();
        server.put(name, fs::read(&path).unwrap());
    }
    (server, directory)
}

fn same_rows(session: &Session, remote: &str, local: &str) {
    for sql in [
        "SELECT count(*), sum(n), min(s), max(h), sum(x) FROM '{}'",
        "SELECT * FROM '{}' ORDER BY n LIMIT 3",
        "SELECT s, count(*) FROM '{}' WHERE n % 7 = 1 AND x < 500 GROUP BY s ORDER BY s LIMIT 5",
        "SELECT max(h) FROM '{}' WHERE n BETWEEN 12000 AND 12010",
    ] {
        let of = |name: &str| rows(session, &sql.replace("{}", name));
        assert_eq!(of(remote), of(local), "{sql} of {remote}");
    }
}

#[test]
fn files_of_all_formats_are_read_as_local_ones() {
    let (server, directory) = served();
    let local = |name: &str| directory.path().join(name).display().to_string();
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    for name in ["t.parquet", "t.csv", "t.csv.gz", "t.ndjson", "t.arrow"] {
        for kind in ["plain", "no-ranges", "no-head", "fails-twice"] {
            same_rows(&session, &server.url(kind, name), &local(name));
        }
    }
    for engine in ["weft", "datafusion"] {
        let database = open(engine, "256MiB");
        let session = database.session().unwrap();
        same_rows(&session, &server.url("plain", "t.parquet"), &local("t.parquet"));
    }
}

#[test]
fn addresses_stand_wherever_names_of_files_do() {
    let (server, directory) = served();
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    let url = |name: &str| server.url("plain", name);
    let count = [ROWS.to_string()];
    let count = [count[0].as_str()];
    let (parquet, csv) = (url("t.parquet"), url("t.csv"));
    session.execute(&format!("CREATE VIEW v AS SELECT * FROM '{parquet}'")).unwrap();
    check(&session, "SELECT count(*) FROM v", &count);
    session.execute(&format!("CREATE TABLE t AS SELECT * FROM read_csv('{csv}')")).unwrap();
    check(&session, "SELECT count(*) FROM t", &count);
    session.execute(&format!("COPY t FROM '{parquet}'")).unwrap();
    session.execute(&format!("COPY t FROM '{csv}'")).unwrap();
    check(&session, "SELECT count(*) FROM t", &[&(3 * ROWS).to_string()]);
    check(&session, &format!("SELECT count(*) FROM read_ndjson('{}')", url("t.ndjson")), &count);
    check(&session, &format!("SELECT count(*) FROM read_parquet('{parquet}?signed=abc')"), &count);
    let local = directory.path().join("t.parquet").display().to_string();
    let two = format!("SELECT count(*) FROM read_parquet(['{parquet}', '{local}'])");
    check(&session, &two, &[&(2 * ROWS).to_string()]);
    let names = format!("SELECT DISTINCT filename FROM read_parquet('{parquet}', filename = true)");
    check(&session, &names, &[&parquet]);
    check(&session, &format!("SELECT file FROM glob('{parquet}')"), &[&parquet]);
    let size = fs::metadata(&local).unwrap().len().to_string();
    check(&session, &format!("SELECT size FROM read_blob('{parquet}')"), &[&size]);
    check(&session, &format!("SELECT content[:8] FROM read_text('{csv}')"), &["n,s,x,h\n"]);
    let described = rows(&session, &format!("DESCRIBE SELECT * FROM '{parquet}'"));
    assert_eq!(described.len(), 4, "{described:?}");
}

#[test]
fn errors_name_the_address_the_status_and_what_to_do() {
    let (server, _directory) = served();
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    session.execute("SET http_retries = 1").unwrap();
    for (address, told, advice) in [
        (server.url("plain", "none.parquet"), "404", "check the address"),
        (server.url("refuses", "t.parquet"), "403", "CREATE SECRET"),
        (server.url("refuses", "t.csv"), "403", "CREATE SECRET"),
        (server.url("short", "t.parquet"), "connection", ""),
        ("http://127.0.0.1:9/t.parquet".to_owned(), "no connection", "network"),
    ] {
        let error =
            check_error(&session, &format!("SELECT * FROM '{address}?key=hidden'"), ErrorKind::Io);
        let text = format!("{error} {:?}", error.hint());
        assert!(text.contains(&address) && text.contains(told) && text.contains(advice), "{text}");
        assert!(!text.contains("hidden"), "{text}");
    }
    for (sql, told) in [
        ("SELECT * FROM 'http://127.0.0.1:9/*.parquet'", "do not list"),
        ("SELECT * FROM 'http://user:pass@127.0.0.1:9/t.parquet'", "user names"),
        ("COPY (SELECT 1) TO 'http://127.0.0.1:9/t.parquet'", "nothing is written"),
    ] {
        let error = session.execute(sql).unwrap_err();
        assert!(
            error.to_string().contains(told) && !error.to_string().contains("pass@"),
            "{error}"
        );
    }
}

#[test]
fn a_statement_is_cancelled_while_a_request_hangs() {
    let (server, _directory) = served();
    for engine in ENGINES {
        let database = open(engine, "256MiB");
        for name in ["t.parquet", "t.csv", "t.ndjson"] {
            let session = database.session().unwrap();
            let sql = format!("SELECT count(*) FROM '{}'", server.url("hangs", name));
            let start = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(300));
                    session.cancel();
                });
                check_error(&session, &sql, ErrorKind::Cancelled);
            });
            assert!(start.elapsed() < Duration::from_secs(10), "{sql}");
        }
        // Nothing waits for the answer any more.
        let start = Instant::now();
        drop(database);
        assert!(start.elapsed() < Duration::from_secs(10), "the database waits for requests");
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let (server, _directory) = served();
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    session.execute("SET http_timeout = 1").unwrap();
    session.execute("SET http_retries = 0").unwrap();
    let sql = format!("SELECT count(*) FROM '{}'", server.url("hangs", "t.parquet"));
    let error = check_error(&session, &sql, ErrorKind::Io);
    assert!(error.to_string().contains("within 1 s"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("http_timeout")), "{error}");
}

#[test]
fn a_file_that_changes_is_read_anew() {
    let (server, directory) = served();
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    let url = server.url("plain", "t.parquet");
    let sql = format!("SELECT count(*) FROM '{url}'");
    check(&session, &sql, &[&ROWS.to_string()]);
    let path = directory.path().join("other.parquet");
    session.execute(&format!("COPY (SELECT 1 AS n) TO '{}'", path.display())).unwrap();
    server.put("t.parquet", fs::read(&path).unwrap());
    check(&session, &sql, &["1"]);
}

#[test]
fn footers_are_kept_and_ranges_are_read_together() {
    let (server, _directory) = served();
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    let sql = format!("SELECT sum(n), max(x) FROM '{}'", server.url("plain", "t.parquet"));
    rows(&session, &sql);
    let before = server.requests();
    rows(&session, &sql);
    // The size of the file, and a request for each of the row groups.
    let made = server.requests() - before;
    assert!(made <= 1 + 4, "{made} requests");
}

#[test]
fn secrets_are_listed_without_what_is_secret() {
    let database = open("auto", "256MiB");
    let session = database.session().unwrap();
    let create = "CREATE SECRET store (TYPE s3, KEY_ID 'id-of-key', SECRET 'hidden', REGION 'eu-west-1', \
                  ENDPOINT '127.0.0.1:9', URL_STYLE 'path', USE_SSL false, SCOPE 's3://bucket')";
    session.execute(create).unwrap();
    check_error(&session, create, ErrorKind::AlreadyExists);
    session.execute(&create.replace("CREATE", "CREATE OR REPLACE")).unwrap();
    let listed = rows(&session, "SELECT * FROM weft_secrets");
    assert!(listed.len() == 1 && listed[0].starts_with("store s3 false s3://bucket"), "{listed:?}");
    assert!(!listed[0].contains("hidden") && !listed[0].contains("id-of-key"), "{listed:?}");
    session.execute("SET http_retries = 0").unwrap();
    let error = check_error(&session, "SELECT * FROM 's3://bucket/x.parquet'", ErrorKind::Io);
    assert!(error.to_string().contains("s3://bucket/x.parquet"), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
    session.execute("DROP SECRET store").unwrap();
    check_error(&session, "DROP SECRET store", ErrorKind::Semantic);
    session.execute("DROP SECRET IF EXISTS store").unwrap();
    check(&session, "SELECT count(*) FROM weft_secrets", &["0"]);
    let persistent = create.replace("SECRET store", "PERSISTENT SECRET store");
    check_error(&session, &persistent, ErrorKind::NotSupported);
}

#[test]
fn little_memory_is_enough() {
    let (server, directory) = served();
    let database = open("auto", "24MiB");
    let session = database.session().unwrap();
    for name in ["t.parquet", "t.csv", "t.ndjson"] {
        let local = directory.path().join(name).display().to_string();
        same_rows(&session, &server.url("plain", name), &local);
    }
    let stats = database.stats();
    assert!(stats.memory_peak <= stats.memory_limit, "{} bytes", stats.memory_peak);
}

/// Bytes that came from the cache and from the network so far.
fn bytes_read(session: &Session) -> (u64, u64) {
    let found = rows(session, "SELECT bytes_from_cache, bytes_from_network FROM weft_cache");
    let (cache, network) = found[0].split_once(' ').unwrap();
    (cache.parse().unwrap(), network.parse().unwrap())
}

fn open_with_cache(engine: &str, directory: &std::path::Path, bytes_max: &str) -> Database {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", engine);
    let options = options.with("cache_directory", directory.display().to_string());
    Database::in_memory(&options.with("cache_size", bytes_max)).unwrap()
}

#[test]
fn what_was_read_once_comes_from_the_cache() {
    let (server, directory) = served();
    let local = |name: &str| directory.path().join(name).display().to_string();
    let cache = directory.path().join("cache");
    let database = open_with_cache("auto", &cache, "100MB");
    let session = database.session().unwrap();
    for kind in ["plain", "no-ranges", "no-head"] {
        for name in ["t.parquet", "t.csv", "t.csv.gz", "t.ndjson", "t.arrow"] {
            let url = server.url(kind, name);
            same_rows(&session, &url, &local(name));
            let ((_, before), bytes) = (bytes_read(&session), server.bytes());
            same_rows(&session, &url, &local(name));
            assert_eq!(bytes_read(&session).1, before, "{url}");
            // One byte tells the size where HEAD is not known.
            assert!(server.bytes() - bytes < 100, "{url}: {}", server.bytes() - bytes);
        }
    }
    // Another process finds what this one has kept.
    for engine in ENGINES {
        let database = open_with_cache(engine, &cache, "100MB");
        let session = database.session().unwrap();
        same_rows(&session, &server.url("plain", "t.parquet"), &local("t.parquet"));
        let (from_cache, from_network) = bytes_read(&session);
        assert!(from_cache > 0 && from_network == 0, "{engine}: {from_cache}, {from_network}");
    }
    // Off again, all comes from the server.
    session.execute("SET cache_size = 0").unwrap();
    let bytes = server.bytes();
    same_rows(&session, &server.url("plain", "t.csv"), &local("t.csv"));
    assert!(server.bytes() > bytes + 1000);
}

#[test]
fn the_cache_never_gives_an_old_version() {
    let (server, directory) = served();
    for engine in ENGINES {
        let database = open_with_cache(engine, &directory.path().join("cache"), "100MB");
        let session = database.session().unwrap();
        for (name, options) in [("c.csv", ""), ("c.parquet", "(FORMAT parquet)")] {
            let path = directory.path().join(name);
            let url = server.url("plain", name);
            for turn in 0..3 {
                // Of the same size, but with other rows.
                let sql = format!("SELECT value * 10 + {turn} AS n FROM range(1000, 5000)");
                session
                    .execute(&format!("COPY ({sql} AS r(value)) TO '{}' {options}", path.display()))
                    .unwrap();
                server.put(name, fs::read(&path).unwrap());
                for _ in 0..2 {
                    let wanted = format!("SELECT min(n), max(n), sum(n) FROM '{url}'");
                    let expected = wanted.replace(&url, &path.display().to_string());
                    assert_eq!(rows(&session, &wanted), rows(&session, &expected), "{url} {turn}");
                }
            }
        }
    }
}

#[test]
fn the_cache_keeps_its_limit_and_little_memory_is_enough_with_it() {
    let (server, directory) = served();
    let cache = directory.path().join("cache");
    let options = DatabaseOptions::default().with("threads", 2).with("memory_limit", "24MiB");
    let options = options.with("cache_directory", cache.display().to_string());
    let database = Database::in_memory(&options.with("cache_size", "600KB")).unwrap();
    let session = database.session().unwrap();
    for name in ["t.parquet", "t.csv", "t.ndjson", "t.arrow"] {
        let local = directory.path().join(name).display().to_string();
        same_rows(&session, &server.url("plain", name), &local);
        let kept = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        let bytes = kept.map(|kept| kept.len()).sum::<u64>();
        assert!(bytes <= 600_000, "{bytes} bytes are kept");
    }
    check(&session, "SELECT bytes_evicted > 0, problem FROM weft_cache", &["true NULL"]);
    let stats = database.stats();
    assert!(stats.memory_peak <= stats.memory_limit, "{} bytes", stats.memory_peak);
}

#[test]
fn damaged_blocks_and_a_missing_directory_cost_no_answer() {
    let (server, directory) = served();
    let cache = directory.path().join("cache");
    let local = directory.path().join("t.parquet").display().to_string();
    let database = open_with_cache("auto", &cache, "100MB");
    let session = database.session().unwrap();
    let url = server.url("plain", "t.parquet");
    same_rows(&session, &url, &local);
    for entry in fs::read_dir(&cache).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.len() / 2;
        bytes[place] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    same_rows(&session, &url, &local);
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "no directory").unwrap();
    same_rows(&session, &url, &local);
    check(&session, "SELECT problem IS NOT NULL FROM weft_cache", &["true"]);
    let error = session.execute("SET cache_size = '1GB'").unwrap_err();
    assert!(error.to_string().contains("cache_directory"), "{error}");
}

#[test]
fn two_databases_share_a_directory_of_blocks() {
    let (server, directory) = served();
    let cache = directory.path().join("cache");
    let names = ["t.parquet", "t.csv", "t.ndjson", "t.arrow"];
    thread::scope(|scope| {
        for turn in 0..2 {
            let (server, directory, cache) = (&server, &directory, &cache);
            scope.spawn(move || {
                // Too small for all files, so that each removes blocks of the other.
                let database = open_with_cache("auto", cache, "700KB");
                let session = database.session().unwrap();
                for number in 0..8 {
                    let name = names[(number + turn) % names.len()];
                    let local = directory.path().join(name).display().to_string();
                    same_rows(&session, &server.url("plain", name), &local);
                }
                check(&session, "SELECT problem FROM weft_cache", &["NULL"]);
            });
        }
    });
}

#[test]
fn the_cache_lies_beside_its_database_and_is_off_unless_it_is_wanted() {
    let (server, directory) = served();
    let path = directory.path().join("db");
    let database = Database::open(&path, &DatabaseOptions::default().with("threads", 2)).unwrap();
    let session = database.session().unwrap();
    let sql = format!("SELECT sum(n) FROM '{}'", server.url("plain", "t.parquet"));
    let beside = directory.path().join("db.cache");
    rows(&session, &sql);
    check(&session, "SELECT directory, bytes_max, blocks FROM weft_cache", &["NULL 0 0"]);
    assert!(!beside.exists());
    check(&session, "SELECT current_setting('cache_size')", &["0"]);
    check(&session, "SELECT current_setting('cache_directory')", &[&beside.display().to_string()]);
    session.execute("SET cache_size = '10MB'").unwrap();
    rows(&session, &sql);
    assert!(fs::read_dir(&beside).unwrap().count() > 0);
    session.execute("RESET cache_size").unwrap();
    check(&session, "SELECT bytes_max FROM weft_cache", &["0"]);
    let error = session.execute("SET cache_size = 'much'").unwrap_err();
    assert!(error.to_string().contains("cache_size cannot be 'much'"), "{error}");
    let memory = open("auto", "256MiB");
    let session = memory.session().unwrap();
    let error = check_error(&session, "SET cache_size = '1GB'", ErrorKind::Setting);
    assert!(error.hint().is_some_and(|hint| hint.contains("cache_directory")), "{error}");
}
