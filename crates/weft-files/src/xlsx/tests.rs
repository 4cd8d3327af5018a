//! Workbooks that are made here, whole and damaged.

use std::io::Write;
use std::path::PathBuf;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use flate2::Compression as Level;
use flate2::write::DeflateEncoder;
use tempfile::TempDir;
use weft_remote::Place;

use super::{CellRange, XlsxFile, XlsxOptions};
use crate::error::Result;
use crate::input::{Compression, Input};
use crate::source::{FileReader, ReadPlan};

/// An archive of parts, each deflated.
fn archive(parts: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in parts {
        let mut encoder = DeflateEncoder::new(Vec::new(), Level::default());
        encoder.write_all(bytes).unwrap();
        let packed = encoder.finish().unwrap();
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let mut about = Vec::new();
        about.extend([20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0]);
        about.extend(crc.sum().to_le_bytes());
        about.extend((packed.len() as u32).to_le_bytes());
        about.extend((bytes.len() as u32).to_le_bytes());
        about.extend((name.len() as u16).to_le_bytes());
        about.extend([0, 0]);
        let place = file.len() as u32;
        file.extend(b"PK\x03\x04");
        file.extend(&about);
        file.extend(name.as_bytes());
        file.extend(packed);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&about);
        directory.extend([0; 10]);
        directory.extend(place.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, count) = (file.len() as u32, parts.len() as u16);
    file.extend(&directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend(count.to_le_bytes());
    file.extend(count.to_le_bytes());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0, 0]);
    file
}

/// A workbook with two sheets, `Data` with these rows and `More`.
fn parts(rows: &str) -> Vec<(&'static str, Vec<u8>)> {
    let sheet = |rows: &str| {
        format!(
            "<?xml version=\"1.0\"?><worksheet xmlns=\"x\"><sheetData>{rows}</sheetData></worksheet>"
        )
    };
    let texts = "<sst><si><t>name</t></si><si><r><t xml:space=\"preserve\">a &amp; </t></r><r><t>b&#233;</t></r>\
                 <rPh><t>hint</t></rPh></si><si><t>when</t></si><si><t/></si></sst>";
    let relations = "<Relationships><Relationship Id=\"r1\" Type=\"http://x/worksheet\" Target=\"worksheets/sheet1.xml\"/>\
                     <Relationship Id=\"r2\" Type=\"http://x/worksheet\" Target=\"/xl/worksheets/sheet2.xml\"/>\
                     <Relationship Id=\"r3\" Type=\"http://x/sharedStrings\" Target=\"sharedStrings.xml\"/>\
                     <Relationship Id=\"r4\" Type=\"http://x/styles\" Target=\"styles.xml\"/></Relationships>";
    vec![
        (
            "_rels/.rels",
            b"<Relationships><Relationship Id=\"a\" Type=\"http://x/officeDocument\" Target=\"xl/workbook.xml\"/></Relationships>"
                .to_vec(),
        ),
        (
            "xl/workbook.xml",
            b"<workbook><workbookPr/><sheets><sheet name=\"Data\" sheetId=\"1\" r:id=\"r1\"/>\
              <sheet name=\"M&amp;re\" sheetId=\"2\" r:id=\"r2\"/></sheets></workbook>"
                .to_vec(),
        ),
        ("xl/_rels/workbook.xml.rels", relations.as_bytes().to_vec()),
        ("xl/sharedStrings.xml", texts.as_bytes().to_vec()),
        (
            "xl/styles.xml",
            b"<styleSheet><numFmts><numFmt numFmtId=\"164\" formatCode=\"yyyy\\-mm\\-dd\\ hh:mm\"/></numFmts>\
              <cellStyleXfs><xf numFmtId=\"14\"/></cellStyleXfs>\
              <cellXfs><xf numFmtId=\"0\"/><xf numFmtId=\"14\"/><xf numFmtId=\"164\"/><xf numFmtId=\"20\"/></cellXfs></styleSheet>"
                .to_vec(),
        ),
        ("xl/worksheets/sheet1.xml", sheet(rows).into_bytes()),
        (
            "xl/worksheets/sheet2.xml",
            sheet("<row r=\"1\"><c r=\"A1\"><v>7</v></c></row>").into_bytes(),
        ),
    ]
}

const ROWS: &str = "<row r=\"2\"><c r=\"B2\" t=\"s\"><v>0</v></c><c r=\"C2\" t=\"s\"><v>2</v></c>\
    <c r=\"D2\" t=\"inlineStr\"><is><t>n</t></is></c><c r=\"F2\" t=\"str\"><v>apart</v></c></row>\
    <row r=\"3\"><c r=\"B3\" t=\"s\"><v>1</v></c><c r=\"C3\" s=\"1\"><v>45292</v></c><c r=\"D3\"><v>1.5</v></c></row>\
    <row><c t=\"s\"/><c r=\"B4\" t=\"s\"><v>3</v></c><c s=\"1\"><v>45293</v></c><c><v>2</v></c></row>\
    <row r=\"5\"/>\
    <row r=\"6\"><c r=\"B6\" t=\"b\"><v>1</v></c></row>";

struct Written {
    _directory: TempDir,
    path: PathBuf,
}

fn written(bytes: &[u8]) -> Written {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.xlsx");
    std::fs::write(&path, bytes).unwrap();
    Written { _directory: directory, path }
}

fn read(file: &Written, options: XlsxOptions) -> Result<Vec<RecordBatch>> {
    let place = Place::from(file.path.clone());
    let input = Input { place, compression: Compression::None, encoding: None };
    let file = XlsxFile::open(input, options, 1 << 20)?;
    let projection = (0..file.schema().fields().len()).collect();
    let mut pieces = file.open(&ReadPlan { projection, piece_bytes: 1 << 20, batch_rows: 3 })?;
    let mut batches = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        batches.extend(piece.decode()?);
    }
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(file.schema()));
    }
    Ok(batches)
}

fn shown(rows: &str, options: XlsxOptions) -> String {
    let batches = read(&written(&archive(&parts(rows))), options).unwrap();
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let lines = table.lines().filter(|line| line.starts_with('|'));
    let line = |line: &str| {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.collect::<Vec<_>>().join("|")
    };
    lines.map(line).collect::<Vec<_>>().join("\n")
}

fn problem(bytes: &[u8], options: XlsxOptions) -> String {
    read(&written(bytes), options).map(|_| ()).unwrap_err().to_string()
}

fn range(text: &str) -> Option<CellRange> {
    Some(CellRange::parse(text).unwrap())
}

#[test]
fn a_table_begins_and_ends_where_its_values_do() {
    let plain = XlsxOptions::default();
    assert_eq!(shown(ROWS, plain.clone()), "name|when|n\na & bé|2024-01-01|1.5\n|2024-01-02|2.0");
    let whole = XlsxOptions { stop_at_empty: Some(false), ..plain.clone() };
    assert_eq!(
        shown(ROWS, whole),
        "name|when|n\na & bé|2024-01-01|1.5\n|2024-01-02|2.0\n||\ntrue||"
    );
    let second = XlsxOptions { sheet: Some("M&re".to_owned()), ..plain.clone() };
    assert_eq!(shown(ROWS, second), "A1\n7.0");
    let text = XlsxOptions { all_text: true, header: Some(false), ..plain };
    assert_eq!(shown(ROWS, text), "B2|C2|D2\nname|when|n\na & bé|2024-01-01|1.5\n|2024-01-02|2");
}

#[test]
fn a_range_is_read_with_its_empty_rows() {
    let of = |text: &str| XlsxOptions { range: range(text), ..XlsxOptions::default() };
    assert_eq!(shown(ROWS, of("C3:D4")), "C3|D3\n2024-01-01|1.5\n2024-01-02|2.0");
    assert_eq!(shown(ROWS, of("B4:B6")), "B4\n\n\ntrue");
    assert_eq!(shown(ROWS, of("F2:G3")), "F2|G2\napart|\n|");
    let text = XlsxOptions { empty_as_text: true, ..of("G3:G4") };
    let batches = read(&written(&archive(&parts(ROWS))), text).unwrap();
    assert_eq!(batches[0].schema().field(0).data_type(), &arrow::datatypes::DataType::Utf8View);
    let none = problem(&archive(&parts(ROWS)), of("A9:B10"));
    assert!(none.contains("no values"), "{none}");
}

#[test]
fn values_have_types_and_mixed_columns_are_texts() {
    let rows = "<row r=\"1\"><c r=\"A1\" s=\"2\"><v>45292.75</v></c><c r=\"B1\" s=\"3\"><v>0.5</v></c><c r=\"C1\" t=\"b\"><v>0</v></c>\
                <c r=\"D1\"><v>1</v></c><c r=\"E1\" t=\"d\"><v>2024-02-29</v></c></row>\
                <row r=\"2\"><c r=\"A2\" s=\"1\"><v>45293</v></c><c r=\"B2\" s=\"3\"><v>0.25</v></c><c r=\"C2\" t=\"b\"><v>1</v></c>\
                <c r=\"D2\" t=\"str\"><v>x_x0041_</v></c><c r=\"E2\" s=\"1\"><v>1</v></c></row>";
    assert_eq!(
        shown(rows, XlsxOptions::default()),
        "A1|B1|C1|D1|E1\n2024-01-01T18:00:00|12:00:00|false|1|2024-02-29\n2024-01-02T00:00:00|06:00:00|true|x_x0041_|1900-01-01"
    );
}

#[test]
fn errors_name_file_sheet_and_cell() {
    let rows = "<row r=\"1\"><c r=\"A1\"><v>1</v></c></row><row r=\"2\"><c r=\"A2\" t=\"e\"><v>#DIV/0!</v></c></row>";
    let plain = XlsxOptions::default();
    let told = problem(&archive(&parts(rows)), plain.clone());
    assert!(
        told.contains("f.xlsx': sheet 'Data', cell A2: its value is the error #DIV/0!"),
        "{told}"
    );
    let ignoring = XlsxOptions { ignore_errors: true, ..plain.clone() };
    assert_eq!(shown(rows, ignoring), "A1\n1.0\n");
    let text = XlsxOptions { all_text: true, ..plain.clone() };
    assert_eq!(shown(rows, text), "A1\n1\n#DIV/0!");
    for (rows, expected) in [
        ("<row r=\"1\"><c r=\"A1\"><v>one</v></c></row>", "cell A1: 'one' is not a number"),
        ("<row r=\"1\"><c r=\"A1\" t=\"s\"><v>99</v></c></row>", "cell A1: its text is missing"),
        ("<row r=\"2\"/><row r=\"1\"/>", "rows do not come in order"),
        ("<row r=\"1048577\"/>", "rows do not come in order"),
        ("<row r=\"1\"><c r=\"B1\"/><c r=\"A1\"/></row>", "cells do not come in order"),
        ("<row r=\"1\"><c r=\"XFE1\"/></row>", "cells do not come in order"),
        ("<row r=\"1\"><c r=\"A1\"><v>1</v></row>", "damaged"),
        ("", "no values"),
    ] {
        let told = problem(&archive(&parts(rows)), plain.clone());
        assert!(told.contains(expected), "{rows}: {told}");
    }
    let missing = XlsxOptions { sheet: Some("Other".to_owned()), ..plain.clone() };
    let error = read(&written(&archive(&parts(ROWS))), missing).unwrap_err();
    assert!(error.to_string().contains("no sheet 'Other'"), "{error}");
    assert_eq!(error.hint(), Some("its sheets: Data, M&re"));
    for bytes in [b"".to_vec(), b"PK".to_vec(), vec![7; 1000], archive(&[])] {
        let told = problem(&bytes, plain.clone());
        assert!(told.contains("no .xlsx file"), "{told}");
    }
}

#[test]
fn what_unpacks_to_too_much_is_refused() {
    let plain = XlsxOptions::default();
    let with = |name: &'static str, bytes: Vec<u8>| {
        let mut parts = parts(ROWS);
        parts.retain(|(known, _)| *known != name);
        parts.push((name, bytes));
        problem(&archive(&parts), plain.clone())
    };
    let long = [b"<sst><si><t>".to_vec(), vec![b'a'; 80 << 20]].concat();
    let told = with("xl/sharedStrings.xml", long.clone());
    assert!(told.contains("more than 1048576 bytes"), "{told}");
    let told = with("xl/worksheets/sheet1.xml", [b"<!--".to_vec(), vec![b'<'; 80 << 20]].concat());
    assert!(told.contains("more than 1048576 bytes"), "{told}");
    let told = with("xl/sharedStrings.xml", b"<si/>".repeat(4 << 20));
    assert!(told.contains("memory"), "{told}");
    let told = with("xl/worksheets/sheet1.xml", b"<a></a>".repeat(12 << 20));
    assert!(told.contains("unpacks to more than"), "{told}");
    let told = with("xl/styles.xml", [b"<cellXfs>".to_vec(), b"<xf/>".repeat(1 << 17)].concat());
    assert!(told.contains("too many styles"), "{told}");
}

#[test]
fn damaged_workbooks_are_errors_or_tables_but_no_panics() {
    let whole = archive(&parts(ROWS));
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for seed in [1, seed] {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1500 {
            let mut bytes = whole.clone();
            match random.u8(..3) {
                0 => bytes.truncate(random.usize(..bytes.len())),
                1 => {
                    for _ in 0..random.usize(1..8) {
                        let at = random.usize(..bytes.len());
                        bytes[at] = random.u8(..);
                    }
                }
                _ => {
                    let (from, to) = (random.usize(..bytes.len()), random.usize(..bytes.len()));
                    let length = random.usize(..64).min(bytes.len() - from.max(to));
                    bytes.copy_within(from..from + length, to);
                }
            }
            read(&written(&bytes), XlsxOptions::default()).ok();
        }
        // Damage within the XML, which an archive does not show.
        for _ in 0..1500 {
            let mut parts = parts(ROWS);
            let part = random.usize(..parts.len());
            let bytes = &mut parts[part].1;
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                bytes[at] = *random.choice(b"<>/\"'=&;19AZ \0\xff").unwrap();
            }
            read(&written(&archive(&parts)), XlsxOptions::default()).ok();
        }
    }
}
