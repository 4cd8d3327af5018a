//! What `--out` writes, and output that nobody reads to its end.

use std::fs;
use std::process::Stdio;

use super::{LOOKUP, Workplace};

#[test]
fn a_report_is_complete_and_refers_to_nothing_outside() {
    let workplace = Workplace::new();
    let line = format!("{LOOKUP} --cached 0,50 --driver auto,blocking,sim --out report --json");
    let printed = workplace.succeed(&line);
    let directory = workplace.path().join("report");
    let mut names: Vec<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let (figures, others): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| name.ends_with(".svg"));
    assert_eq!(others, ["index.html", "points.csv", "points.jsonl"]);
    assert!(figures.iter().any(|name| name.starts_with("figure-8")), "{figures:?}");
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(read("points.jsonl"), printed);
    assert_eq!(read("points.csv").lines().count(), printed.lines().count() + 1);
    let page = read("index.html");
    assert!(page.contains("simulated") && page.contains("Figure 8") && page.contains("lookup"));
    for text in figures.iter().map(|name| read(name)).chain([page]) {
        let text = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for reference in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!text.contains(reference), "{reference}");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let workplace = Workplace::new();
    for options in ["--json", "--out report"] {
        let line = format!("{LOOKUP} --cached 0 --driver auto {options}");
        let mut command = workplace.command(&line);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{options}: {stderr}");
    }
    assert!(workplace.path().join("report/index.html").exists());
}
