//! JSON files: layouts, types over all rows, and what is said of values that do not fit.

use std::fs;
use std::io::Write;

use arrow::util::display::array_value_to_string;

use super::*;
use crate::input::Compression;

/// The rows of a file with this content, or the error, for pieces of any size.
fn read(content: &[u8], compression: Compression) -> Result<Vec<String>, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let input = Input { place: file.path().to_owned().into(), compression, encoding: None };
    let name = format!("'{}'", file.path().display());
    let read_by = |piece_bytes| -> Result<Vec<String>, String> {
        let say = |error: FilesError| error.to_string().replace(&name, "FILE");
        let files = JsonFiles::new(vec![input.clone()], JsonOptions::default()).map_err(say)?;
        let projection = (0..files.schema().fields().len()).collect();
        let plan = ReadPlan { projection, piece_bytes, batch_rows: 2 };
        let schema = files.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut rows = vec![names.join(",")];
        let mut pieces = files.open(&plan).map_err(say)?;
        while let Some(piece) = pieces.next_piece().map_err(say)? {
            for batch in piece.decode().map_err(say)? {
                rows.extend((0..batch.num_rows()).map(|row| {
                    let texts = batch.columns().iter();
                    let texts = texts.map(|column| array_value_to_string(column, row).unwrap());
                    texts.collect::<Vec<_>>().join(",")
                }));
            }
        }
        Ok(rows)
    };
    let whole = read_by(1 << 20);
    for piece_bytes in [1, 7] {
        assert_eq!(read_by(piece_bytes), whole, "pieces of {piece_bytes} bytes");
    }
    whole
}

fn rows(content: &str) -> Vec<String> {
    read(content.as_bytes(), Compression::None).unwrap()
}

fn error(content: &str) -> String {
    read(content.as_bytes(), Compression::None).unwrap_err()
}

#[test]
fn every_layout_has_the_same_rows() {
    let expected = ["b,a", "1,x", "2,", ",y"];
    assert_eq!(rows("{\"b\":1,\"a\":\"x\"}\n{\"b\":2}\r\n\n{\"a\":\"y\"}"), expected);
    assert_eq!(rows("[{\"b\":1,\"a\":\"x\"},{\"b\":2},{\"a\":\"y\"}]"), expected);
    assert_eq!(
        rows("\u{feff}  [ {\n\"b\":1,\n\"a\":\"x\"} ,\n{\"b\":2}\n,{\"a\":\"y\"}]\n\n"),
        expected
    );
    assert_eq!(rows("{\"b\":1,\"a\":\"x\"}{\"b\":2} {\"a\":\"y\"}"), expected);
    assert_eq!(
        rows("{\n  \"b\": 1,\n  \"a\": \"x\"\n}\n{\n  \"b\": 2\n}\n{\"a\":\"y\"}"),
        expected
    );
    let blanks = " \n".repeat(100_000);
    assert_eq!(
        rows(&format!("{blanks}[{{\"b\":1,\"a\":\"x\"}},{{\"b\":2}},{{\"a\":\"y\"}}]")),
        expected
    );
}

#[test]
fn values_that_are_no_objects_have_a_column_of_their_own() {
    assert_eq!(rows("1\n2\n"), ["json", "1", "2"]);
    assert_eq!(rows("[1, 2]\n[3]\n"), ["json", "[1, 2]", "[3]"]);
    assert_eq!(rows("[1,2,\"x\"]"), ["json", "1", "2", "\"x\""]);
    assert_eq!(rows("[]"), ["json"]);
    assert_eq!(rows(""), ["json"]);
    assert_eq!(rows("{\"a\":1}\n2"), ["json", "{\"a\":1}", "2"]);
}

#[test]
fn types_hold_the_values_of_all_rows() {
    let mut lines = "{\"a\":1}\n".repeat(30_000);
    lines.push_str("{\"a\":1.5,\"late\":{\"x\":[1]}}\n{\"a\":2,\"late\":{\"y\":\"z\"}}");
    let rows = rows(&lines);
    assert_eq!(rows[0], "a,late");
    assert_eq!(rows[1], "1.0,");
    assert_eq!(rows[30_001..], ["1.5,{x: [1], y: }", "2.0,{x: , y: z}"]);
}

#[test]
fn quotes_and_brackets_in_texts_part_nothing() {
    let expected = ["a", "]\\\",[{", "x"];
    assert_eq!(rows(r#"[{"a":"]\\\",[{"},{"a":"x"}]"#), expected);
    assert_eq!(rows("{\"a\":\"]\\\\\\\",[{\"}{\"a\":\"x\"}"), expected);
}

#[test]
fn what_is_broken_is_told_with_its_line() {
    assert_eq!(
        error("[{\"a\":1},\n{\"a\":2}"),
        "FILE, line 2: the array is not closed: the file is cut off"
    );
    assert_eq!(error("[{\"a\":1}] x"), "FILE, line 1: there is more after the end of the array");
    assert_eq!(error("[1,2,]"), "FILE, line 1: a value is missing after the comma");
    assert!(error("[1 2]").contains("a comma is missing"));
    assert!(error("{\"a\":1}\n{\"a\":\n").starts_with("FILE, line "));
    assert!(error("{\"a\":1}\n{\"a\":tru}\n{\"a\":3}").starts_with("FILE, line 2: "));
    assert!(error(&"[".repeat(100_000)).starts_with("FILE, line 1"));
    let invalid = read(b"{\"a\":1}\n{\"a\":\"\xff\"}", Compression::None).unwrap_err();
    assert_eq!(invalid, "FILE, line 2: it is not encoded as UTF-8");
}

#[test]
fn compressed_files_are_read() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"[\n{\"a\":1},\n{\"a\":2}]").unwrap();
    let rows = read(&encoder.finish().unwrap(), Compression::Gzip).unwrap();
    assert_eq!(rows, ["a", "1", "2"]);
}

#[test]
fn damaged_files_are_errors_or_answers() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let content = br#"[{"a":1,"b":[1,2.5,null],"c":{"d":"x\"\u00e9"}},{"a":-2,"b":[],"c":null}]"#;
    for _ in 0..300 {
        let mut damaged = content.to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..damaged.len());
            damaged[at] = *random.choice(b"\"\\{}[],: \n019ax\xff").unwrap();
        }
        damaged.truncate(random.usize(..damaged.len() * 2).min(damaged.len()));
        // Either is right; pieces of all sizes agree.
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &damaged).unwrap();
        let input = Input {
            place: file.path().to_owned().into(),
            compression: Compression::None,
            encoding: None,
        };
        let Ok(files) = JsonFiles::new(vec![input], JsonOptions::default()) else { continue };
        let projection = (0..files.schema().fields().len()).collect();
        let plan = ReadPlan { projection, piece_bytes: random.usize(1..64), batch_rows: 3 };
        let mut pieces = files.open(&plan).unwrap();
        while let Ok(Some(piece)) = pieces.next_piece() {
            piece.decode().unwrap();
        }
    }
}

/// A file that is looked at in places, with this line where none of them is.
fn large_with(line: &str) -> tempfile::NamedTempFile {
    let rows = 400_000;
    let plain = "{\"a\":1,\"n\":null}\n";
    let spacing = rows * plain.len() / 32;
    let before = (28 * spacing + 20_000) / plain.len();
    let mut content = plain.repeat(before);
    content.push_str(line);
    content.push('\n');
    content.push_str(&plain.repeat(rows - before));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), content).unwrap();
    file
}

/// Reads columns of a file by a sample, or by all of its values; rows that are there, and how many values of the first column are
/// not NULL.
fn counted(path: &std::path::Path, columns: &[&str], is_all: bool) -> Result<(usize, usize)> {
    let input =
        Input { place: path.to_owned().into(), compression: Compression::None, encoding: None };
    let sample_rows = is_all.then_some(None);
    let files = JsonFiles::new(vec![input], JsonOptions { sample_rows, ..JsonOptions::default() })?;
    let expected = if is_all { TypesFrom::Certain } else { TypesFrom::Sample };
    assert_eq!(files.types_from(), expected);
    let projection = columns.iter().map(|name| files.schema().index_of(name).unwrap()).collect();
    let mut pieces =
        files.open(&ReadPlan { projection, piece_bytes: 1 << 20, batch_rows: 8192 })?;
    let (mut rows, mut values) = (0, 0);
    while let Some(piece) = pieces.next_piece()? {
        for batch in piece.decode()? {
            rows += batch.num_rows();
            values += batch.columns().first().map_or(0, |first| first.len() - first.null_count());
        }
    }
    Ok((rows, values))
}

#[test]
fn what_no_sample_had_is_a_misfit_and_found_in_all_values() {
    for (line, column, problem) in [
        ("{\"a\":1.5}", Some("a"), "1.5 is no BIGINT"),
        ("{\"a\":{\"b\":1}}", Some("a"), "{\"b\":1} is no BIGINT"),
        ("{\"n\":7}", Some("n"), "7 is other than null"),
        ("{\"late\":1}", Some("late"), "this key was not known before"),
        ("7", None, "7 is no STRUCT"),
        ("{\"a\":\n1}", None, "a value is expected, but the text ends"),
    ] {
        let file = large_with(line);
        match counted(file.path(), &["a", "n"], false).unwrap_err() {
            FilesError::Misfit { line: at, column: found, problem: told, .. } => {
                assert!(at > 350_000, "{line}: line {at}");
                assert_eq!((found.as_deref(), told.as_str()), (column, problem), "{line}");
            }
            error => panic!("{line}: {error}"),
        }
        assert_eq!(counted(file.path(), &[], true).unwrap().0, 400_001, "{line}");
    }
    let file = large_with("{\"n\":7}");
    assert_eq!(counted(file.path(), &["n"], true).unwrap(), (400_001, 1));
    // Where the column is not wanted its values do not matter.
    assert_eq!(counted(file.path(), &["a"], false).unwrap(), (400_001, 400_000));
    let file = large_with("{\"a\":2,\"n\":null}");
    assert_eq!(counted(file.path(), &["a", "n"], false).unwrap(), (400_001, 400_001));
}
