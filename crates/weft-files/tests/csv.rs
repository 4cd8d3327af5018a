//! CSV files as batches: encodings, line ends, pieces, and what is wrong where.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::util::display::array_value_to_string;
use fastrand::Rng;
use tempfile::TempDir;
use weft_files::csv::{CsvFile, CsvOptions, open};
use weft_files::{Compression, Encoding, FileReader, FilesError, Input, ReadPlan, Union};

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { directory: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Input {
        let path = self.directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Input { place: path.into(), compression: Compression::None, encoding: None }
    }
}

fn batches(file: &dyn FileReader, piece_bytes: usize) -> Result<Vec<RecordBatch>, FilesError> {
    let projection = (0..file.schema().fields().len()).collect();
    let mut pieces = file.open(&ReadPlan { projection, piece_bytes, batch_rows: 1_000 })?;
    let mut found = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        found.extend(piece.decode()?);
    }
    Ok(found)
}

/// All rows, each with `|` between its values, and `NULL`.
fn rows(file: &dyn FileReader, piece_bytes: usize) -> Result<Vec<String>, FilesError> {
    let mut found = Vec::new();
    for batch in batches(file, piece_bytes)? {
        for row in 0..batch.num_rows() {
            let value = |column: &Arc<dyn Array>| match column.is_null(row) {
                true => "NULL".to_owned(),
                false => array_value_to_string(column, row).unwrap(),
            };
            found.push(batch.columns().iter().map(value).collect::<Vec<_>>().join("|"));
        }
    }
    Ok(found)
}

fn opened(input: &Input, options: &CsvOptions) -> CsvFile {
    open(std::slice::from_ref(input), options).unwrap().files.remove(0)
}

fn read(bytes: &[u8], options: &CsvOptions) -> Vec<String> {
    let files = Files::new();
    let file = opened(&files.write("f.csv", bytes), options);
    rows(&file, 1 << 20).unwrap()
}

#[test]
fn line_ends_of_all_systems() {
    for text in [
        "a,b\n1,x\n2,y\n",
        "a,b\r\n1,x\r\n2,y\r\n",
        "a,b\r1,x\r2,y\r",
        "a,b\n1,x\n\n2,y",
        "\n\na,b\n1,x\n2,y\n\n",
    ] {
        assert_eq!(read(text.as_bytes(), &CsvOptions::default()), ["1|x", "2|y"], "{text:?}");
    }
    assert_eq!(read(b"a\n1\n\n2\n", &CsvOptions::default()), ["1", "NULL", "2"]);
}

#[test]
fn quotes() {
    let text = b"a,b\n\"x\n\"\"y\"\"\",1\n\"\",2\n,3\n \"u,v\" ,4\n5\" disk,5\n";
    assert_eq!(
        read(text, &CsvOptions::default()),
        ["x\n\"y\"|1", "|2", "NULL|3", "u,v|4", "5\" disk|5"]
    );
    assert_eq!(
        read(b"a,b\n\"x\\\"y\",1\n\"c:\\dir\",2\n", &CsvOptions::default()),
        ["x\"y|1", "c:\\dir|2"]
    );
}

#[test]
fn encodings() {
    let text = "a,b\nä€,1\n";
    let mut utf_16 = vec![0xFF, 0xFE];
    utf_16.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    assert_eq!(read(&utf_16, &CsvOptions::default()), ["ä€|1"]);
    let mut utf_8 = vec![0xEF, 0xBB, 0xBF];
    utf_8.extend(text.as_bytes());
    assert_eq!(read(&utf_8, &CsvOptions::default()), ["ä€|1"]);
    let latin =
        CsvOptions { encoding: Some(Encoding::named("latin-1").unwrap()), ..CsvOptions::default() };
    let files = Files::new();
    let input = Input { encoding: latin.encoding, ..files.write("l.csv", b"a,b\n\xe4,1\n") };
    assert_eq!(rows(&opened(&input, &latin), 1 << 20).unwrap(), ["ä|1"]);
    let input = files.write("l.csv", b"a,b\nx,1\n\xe4,1\n");
    let error = rows(&opened(&input, &CsvOptions::default()), 1 << 20).unwrap_err();
    assert!(
        error.to_string().ends_with("l.csv', line 3: it has characters that are not UTF-8"),
        "{error}"
    );
    assert!(Encoding::named("klingon").is_err());
}

#[test]
fn compressed_files() {
    let files = Files::new();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"a,b\n1,x\n").unwrap();
    let mut bytes = encoder.finish().unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"2,y\n").unwrap();
    bytes.extend(encoder.finish().unwrap());
    let input = Input { compression: Compression::Gzip, ..files.write("f.csv.gz", &bytes) };
    assert_eq!(rows(&opened(&input, &CsvOptions::default()), 1 << 20).unwrap(), ["1|x", "2|y"]);
    let input = Input {
        compression: Compression::Gzip,
        ..files.write("cut.csv.gz", &bytes[..bytes.len() - 9])
    };
    let result = open(std::slice::from_ref(&input), &CsvOptions::default());
    assert!(matches!(result, Err(FilesError::Read { .. })), "{result:?}");
}

#[test]
fn faults_have_lines() {
    let files = Files::new();
    for (text, message) in [
        ("a,b\n1,2\n3,4\n5\n", "line 4 has 1 values instead of 2"),
        ("a,b\n1,\"x\ny\"\n3,4\n5,6,7\n", "line 5 has 3 values instead of 2"),
    ] {
        let file = opened(&files.write("f.csv", text.as_bytes()), &CsvOptions::default());
        let error = rows(&file, 1 << 20).unwrap_err();
        assert!(error.to_string().contains(message), "{text:?}: {error}");
    }
    let types = vec![(weft_files::csv::ColumnKey::Number(0), DataType::Int8)];
    let options = CsvOptions { types, ..CsvOptions::default() };
    let file = opened(&files.write("f.csv", b"a,b\n1,2\n300,4\n"), &options);
    let error = rows(&file, 1 << 20).unwrap_err();
    assert!(error.to_string().ends_with("line 3, column a: '300' is no TINYINT"), "{error}");
    let options = CsvOptions { ignore_errors: true, ..options };
    let file = opened(&files.write("f.csv", b"a,b\n1,2\n300,4\n5,6\n"), &options);
    assert_eq!(rows(&file, 1 << 20).unwrap(), ["1|2", "5|6"]);
    let projected = ReadPlan { projection: vec![1], piece_bytes: 1 << 20, batch_rows: 10 };
    let piece = file.open(&projected).unwrap().next_piece().unwrap().unwrap();
    assert_eq!(piece.decode().unwrap()[0].num_rows(), 2);
}

#[test]
fn records_have_a_limit() {
    let files = Files::new();
    let mut text = String::from("a,b\n1,2\n\"");
    text.push_str(&"x".repeat(200_000));
    let options = CsvOptions { record_bytes_max: Some(100_000), ..CsvOptions::default() };
    let options = CsvOptions { quote: Some(Some(b'"')), ..options };
    let file = opened(&files.write("f.csv", text.as_bytes()), &options);
    let error = rows(&file, 1 << 14).unwrap_err();
    assert!(error.to_string().contains("a record has more than 100000 bytes"), "{error}");
}

#[test]
fn a_value_behind_the_sample_is_a_misfit() {
    let files = Files::new();
    let mut text = String::from("a,b\n");
    // Between two of the places that are looked at.
    for number in 0..520_000 {
        text.push_str(&format!("{number},12345678\n"));
    }
    let line = 520_002;
    text.push_str("x,1\n");
    text.push_str(&"1,12345678\n".repeat(600_000));
    let input = files.write("f.csv", text.as_bytes());
    let file = opened(&input, &CsvOptions::default());
    let error = batches(&file, 1 << 20).map(drop).unwrap_err();
    assert!(
        matches!(&error, FilesError::Misfit { line: found, column, .. } if *found == line && column.as_deref() == Some("a")),
        "{error}"
    );
    let all = CsvOptions { sample_rows: Some(None), ..CsvOptions::default() };
    assert_eq!(*opened(&input, &all).schema().field(0).data_type(), DataType::Utf8View);
    let count: usize =
        batches(&opened(&input, &all), 1 << 20).unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(count, 1_120_001);
}

#[test]
fn files_go_by_names() {
    let files = Files::new();
    let paths = [("1.csv", "x,y\n1,10\n"), ("2.csv", "Y,X\n2.5,3\n"), ("3.csv", "x,z\n4,w\n")];
    let inputs: Vec<Input> =
        paths.iter().map(|(name, text)| files.write(name, text.as_bytes())).collect();
    let united = |inputs: &[Input], may_differ| {
        let table = open(inputs, &CsvOptions::default()).unwrap();
        let readers = table.files.into_iter().map(|file| Arc::new(file) as Arc<dyn FileReader>);
        let named = inputs.iter().map(|input| input.path().to_owned()).zip(readers).collect();
        Union::by_name(named, may_differ)
    };
    assert_eq!(rows(&united(&inputs[..2], false).unwrap(), 1 << 20).unwrap(), ["1|10.0", "3|2.5"]);
    let error = united(&inputs, false).unwrap_err();
    assert!(error.to_string().contains("3.csv' has a column z, which"), "{error}");
    let all = united(&inputs, true).unwrap();
    assert_eq!(rows(&all, 1 << 20).unwrap(), ["1|10.0|NULL", "3|2.5|NULL", "4|NULL|w"]);
}

/// A field as random as files have them, and as it is written.
fn field(random: &mut Rng, line_end: &str) -> (String, String) {
    let parts = ["a", "ü", "12", "'", "\"", ",", line_end, " x", ""];
    let text: String = (0..random.usize(..6)).map(|_| parts[random.usize(..parts.len())]).collect();
    let needs_quotes =
        text.contains(['"', ',', '\n', '\r']) || text.starts_with(' ') || text.is_empty();
    let written = match needs_quotes || random.bool() {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.clone(),
    };
    (text, written)
}

/// Random texts come back, in pieces of any size, as they come from the whole.
#[test]
fn random_texts_come_back_from_pieces() {
    let fresh = fastrand::u64(..);
    for seed in [1, 2, 3, 4, fresh] {
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let line_end = ["\n", "\r\n"][random.usize(..2)];
        let (columns, count) = (random.usize(2..6), random.usize(1..4_000));
        let names: Vec<String> = (0..columns).map(|number| format!("c{number}")).collect();
        let mut text = names.join(",");
        text.push_str(line_end);
        let mut expected = Vec::new();
        for _ in 0..count {
            let fields: Vec<_> = (0..columns).map(|_| field(&mut random, line_end)).collect();
            let written: Vec<&str> = fields.iter().map(|(_, written)| written.as_str()).collect();
            text.push_str(&written.join(","));
            text.push_str(line_end);
            let texts: Vec<&str> = fields.iter().map(|(text, _)| text.as_str()).collect();
            expected.push(texts.join("|"));
        }
        let files = Files::new();
        let quote = Some(Some(b'"'));
        let options = CsvOptions {
            all_text: true,
            quote,
            escape: quote,
            delimiter: Some(b','),
            header: Some(true),
            ..CsvOptions::default()
        };
        let file = opened(&files.write("f.csv", text.as_bytes()), &options);
        for piece_bytes in [1, 20_000, 1 << 22] {
            assert_eq!(
                rows(&file, piece_bytes).unwrap(),
                expected,
                "seed {seed}, pieces of {piece_bytes}"
            );
        }
    }
}

#[test]
fn columns_that_are_not_wanted_are_not_read() {
    let files = Files::new();
    let types = vec![(weft_files::csv::ColumnKey::Number(1), DataType::Int64)];
    let file = opened(
        &files.write("f.csv", b"a,b\n1,x\n2,y\n"),
        &CsvOptions { types, ..CsvOptions::default() },
    );
    let plan = ReadPlan { projection: vec![0], piece_bytes: 1 << 20, batch_rows: 10 };
    let batch =
        file.open(&plan).unwrap().next_piece().unwrap().unwrap().decode().unwrap().remove(0);
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(*batch.schema(), Schema::new(vec![Field::new("a", DataType::Int64, true)]));
}
