//! Data files that are not what they should be, and generation that does not come to its end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{LOOKUP, SCAN, Workplace};

fn flip_byte(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_flipped_bit_in_a_page_is_named_by_file_and_page() {
    let workplace = Workplace::new();
    workplace.succeed(&format!("{SCAN} --cached 100 --driver auto"));
    let file = workplace.lineitem_file();
    // The page at offset 128 KiB.
    flip_byte(&file, 3 * 65536 - 100);
    for driver in ["blocking", "auto", "posix", "sim"] {
        let named = ["lineitem_q1.64k.pages", "131072", "checksum", "delete the file"];
        workplace.fail(&format!("{SCAN} --cached 0 --driver {driver}"), 1, &named);
    }
    // Also if it is to be permanent.
    workplace.fail(&format!("{SCAN} --cached 100 --driver auto"), 1, &["131072", "checksum"]);
}

#[test]
fn a_damaged_file_is_made_anew_after_it_was_deleted() {
    let workplace = Workplace::new();
    let run = format!("{LOOKUP} --cached 0 --driver auto");
    workplace.succeed(&run);
    let file = workplace.part_file();
    let whole = fs::read(&file).unwrap();
    let open = || File::options().write(true).open(&file).unwrap();
    let restore = || fs::write(&file, &whole).unwrap();

    flip_byte(&file, whole.len() as u64 - 1);
    workplace.fail(&run, 1, &["part.4k.pages", "checksum", "delete"]);
    restore();
    flip_byte(&file, 20);
    workplace.fail(&run, 1, &["part.4k.pages", "delete"]);
    restore();
    open().set_len(whole.len() as u64 - 4096).unwrap();
    workplace.fail(&run, 1, &["part.4k.pages", "bytes", "delete"]);
    open().set_len(0).unwrap();
    workplace.fail(&run, 1, &["part.4k.pages", "not a page file"]);
    fs::write(&file, "Somebody else's notes.\n".repeat(10_000)).unwrap();
    workplace.fail(&run, 1, &["part.4k.pages", "not a page file", "move it away"]);
    assert!(fs::read_to_string(&file).unwrap().starts_with("Somebody"), "it is not ours");

    fs::remove_file(&file).unwrap();
    workplace.succeed(&run);
    assert!(fs::read(&file).unwrap() == whole, "the same seedless data comes out again");
}

/// CRC-32C, a bit at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[test]
fn a_wrong_answer_fails_the_run() {
    let workplace = Workplace::new();
    let run = format!("{SCAN} --cached 0 --driver auto");
    workplace.succeed(&run);
    let path = workplace.path().join("bench-data/tpch-sf0.01/answers.json");
    let text = fs::read_to_string(&path).unwrap();
    let (body, crc) = text.rsplit_once("\"crc32c\": ").unwrap();
    let crc: u32 = crc.trim_end_matches(['\n', '}']).parse().unwrap();
    let sealed = |body: &str| {
        format!("{body}\"crc32c\": {}\n}}", crc32c(format!("{body}\"crc32c\": 0\n}}").as_bytes()))
    };
    assert_eq!(sealed(body), text, "the file's checksum is {crc}");

    // A reference that is one row off.
    let (before, after) = body.split_once("\"count\": ").unwrap();
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap();
    let count: u64 = after[..end].parse().unwrap();
    let tampered = format!("{before}\"count\": {}{}", count + 1, &after[end..]);
    fs::write(&path, sealed(&tampered)).unwrap();
    let numbers = [count.to_string(), (count + 1).to_string()];
    workplace.fail(&run, 1, &["query 1", &numbers[0], &numbers[1]]);

    fs::write(&path, &text[..text.len() / 2]).unwrap();
    workplace.fail(&run, 1, &["answers.json", "delete it"]);
    fs::remove_file(&path).unwrap();
    workplace.succeed(&run);
}

#[test]
fn a_device_that_fails_in_the_middle_of_a_run_is_reported() {
    let workplace = Workplace::new();
    for driver in ["sim", "sim-blocking"] {
        let line = format!("{SCAN} --cached 0 --driver {driver} --sim-error-after 20");
        let named = ["simulated array", "lineitem_q1.64k.pages", "Input/output error"];
        workplace.fail(&line, 1, &named);
        workplace.succeed(&format!("{SCAN} --cached 0 --driver {driver} --sim-error-after 9999"));
    }
    let line = format!("{LOOKUP} --cached 90 --driver sim --sim-error-after 1");
    workplace.fail(&line, 1, &["simulated array", "part.4k.pages", "Input/output error"]);
}

#[test]
fn generation_that_was_killed_is_continued() {
    let workplace = Workplace::new();
    let line = "lookup --scale 0.2 --threads 1 --depth 8 --repeat 1 --cached 0 --driver auto";
    let directory = workplace.path().join("bench-data/tpch-sf0.2");
    let partial = directory.join("lineitem_q14.64k.pages.partial");
    let mut child = workplace.command(line).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !fs::metadata(&partial).is_ok_and(|found| found.len() > 1 << 20) {
        assert!(begun.elapsed() < Duration::from_secs(30), "generation does not begin");
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    // SIGKILL: nothing is cleaned up.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(partial.exists() && !directory.join("lineitem_q14.64k.pages").exists());
    assert!(workplace.points(line).iter().all(|point| point["answer"] == "correct"));
    assert!(!partial.exists());
}

#[test]
fn two_runs_at_once_do_not_spoil_each_other_s_data() {
    let workplace = Workplace::new();
    let line = "lookup --scale 0.1 --threads 1 --depth 8 --repeat 1 --cached 0 --driver auto";
    let mut first = workplace.command(line).stdout(Stdio::null()).spawn().unwrap();
    let second = workplace.run(line);
    assert!(first.wait().unwrap().success() || second.code == Some(0));
    if second.code != Some(0) {
        assert!(second.stderr.contains("another process"), "{}", second.stderr);
    }
    workplace.succeed(line);
}
