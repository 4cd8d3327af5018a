//! A process that is killed while it spills leaves nothing behind: no file, and nothing that takes room.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use super::Workplace;

/// How long a process may take until it spills.
const LONG: Duration = Duration::from_secs(60);

/// Bytes that it must have spilled by then.
const SPILLED: u64 = 1 << 20;

/// More rows than fit, which take long to spill on a device this slow.
const STATEMENT: &str = "SELECT max(l) FROM (SELECT lag(s) OVER (ORDER BY s) AS l \
                         FROM (SELECT repeat(md5(value::VARCHAR), 8) AS s FROM generate_series(1, 1000000) AS g(value)));\n";

/// Bytes of the files without names that a process has open in a directory.
fn unnamed_bytes(child: &Child, directory: &Path) -> u64 {
    let descriptors = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let entries = fs::read_dir(descriptors).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| {
            fs::read_link(path).is_ok_and(|target| {
                target.starts_with(directory) && target.to_string_lossy().ends_with(" (deleted)")
            })
        })
        .filter_map(|path| fs::metadata(path).ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// All files and directories below one.
fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries
        .flat_map(|entry| {
            let inner = names(&entry.path());
            inner.into_iter().chain([entry.path()])
        })
        .collect();
    names.sort_unstable();
    names
}

/// Kills a shell that spills to `directory`; then another opens the database. Everything that was in `workplace` before is all
/// that is there then.
fn check(workplace: &Workplace, words: &[&str], directory: &Path, engine: &str) {
    workplace.run(&["kept", "-c", "CREATE TABLE IF NOT EXISTS t AS SELECT 1 AS n"]);
    let temporary = workplace.path().join("tmp");
    fs::create_dir_all(&temporary).expect("a directory");
    let before = names(workplace.path());
    let mut command = workplace.command(&[words, &["--set", "memory_limit=64MiB"][..]].concat());
    let mut child = command.env("TMPDIR", &temporary).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let settings = format!("SET engine = '{engine}'; SET io_bandwidth_limit = '4MB';\n");
    stdin.write_all(settings.as_bytes()).expect("the shell reads");
    stdin.write_all(STATEMENT.as_bytes()).expect("the shell reads");
    stdin.flush().expect("the shell reads");
    let since = Instant::now();
    while unnamed_bytes(&child, directory) < SPILLED {
        assert!(child.try_wait().expect("it is our child").is_none(), "{engine}: it has ended");
        assert!(since.elapsed() < LONG, "{engine}: nothing is spilled");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let mut command = workplace.command(&[words, &["-c", "SELECT 1"][..]].concat());
    let output = command.env("TMPDIR", &temporary).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(workplace.path()), before, "{engine}: {words:?}");
}

#[test]
fn a_database_that_spilled_beside_its_data() {
    let workplace = Workplace::new();
    let spill = workplace.path().join("kept").join("spill");
    for engine in ["weft", "datafusion"] {
        check(&workplace, &["kept"], &spill, engine);
    }
}

#[test]
fn a_temporary_directory() {
    let workplace = Workplace::new();
    let directory = workplace.path().join("spilled");
    fs::create_dir(&directory).expect("a directory");
    for engine in ["weft", "datafusion"] {
        check(&workplace, &["kept", "--set", "temp_directory=spilled"], &directory, engine);
    }
}

#[test]
fn a_read_only_database_and_one_in_memory() {
    let workplace = Workplace::new();
    let temporary = workplace.path().join("tmp");
    for engine in ["weft", "datafusion"] {
        check(&workplace, &["kept", "--readonly"], &temporary, engine);
        check(&workplace, &[], &temporary, engine);
    }
}

#[test]
fn temporary_directories_that_are_none_are_named() {
    let workplace = Workplace::new();
    workplace.write("file", "");
    for path in ["missing", "a/b", "file"] {
        let setting = format!("temp_directory={path}");
        for database in [&["kept"][..], &[]] {
            let words = [database, &["--set", setting.as_str(), "-c", "SELECT 1"][..]].concat();
            let ended = workplace.run(&words);
            assert_eq!(ended.code, Some(1), "{words:?}");
            let named = format!("the setting temp_directory is {path}, ");
            assert!(ended.stderr.contains(&named), "{words:?}: {}", ended.stderr);
            assert!(!workplace.path().join("missing").exists());
        }
    }
}
