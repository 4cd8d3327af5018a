//! Arrow files: all types come back, and no bytes make the reader panic or allocate without bound.

use std::io::Write;

use arrow::array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, LargeStringArray, NullArray, RecordBatch,
    StringArray,
};
use arrow::datatypes::{Field, Int32Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::util::display::array_value_to_string;

use super::*;
use crate::input::Compression;

fn batch(numbers: &[Option<i64>], texts: &[&str]) -> RecordBatch {
    let keys: Vec<Option<i32>> = texts.iter().map(|text| Some(text.len() as i32 % 2)).collect();
    let values = StringArray::from(vec![Some("even"), None]);
    let parity = DictionaryArray::<Int32Type>::new(Int32Array::from(keys), Arc::new(values));
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from(numbers.to_vec())) as ArrayRef, true),
        ("t", Arc::new(LargeStringArray::from(texts.to_vec())) as ArrayRef, true),
        ("p", Arc::new(parity) as ArrayRef, true),
        ("z", Arc::new(NullArray::new(texts.len())) as ArrayRef, true),
    ])
    .unwrap()
}

fn batches() -> [RecordBatch; 2] {
    [batch(&[Some(1), None], &["a", "bb"]), batch(&[Some(3)], &["ccc"])]
}

fn stream() -> Vec<u8> {
    let batches = batches();
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn file() -> Vec<u8> {
    let batches = batches();
    let mut writer = FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn input(content: &[u8]) -> (tempfile::NamedTempFile, Input) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let path = file.path().to_owned();
    (file, Input { place: path.into(), compression: Compression::None, encoding: None })
}

fn read(content: &[u8], columns: &[usize]) -> Result<Vec<String>> {
    let (_file, input) = input(content);
    let table = ArrowFile::open(input, 1 << 20)?;
    let plan = ReadPlan { projection: columns.to_vec(), piece_bytes: 1, batch_rows: 1 };
    let mut pieces = FileReader::open(&table, &plan)?;
    let mut rows = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        for batch in piece.decode()? {
            assert!(batch.num_rows() <= 1);
            let value = |column: &ArrayRef| array_value_to_string(column, 0).unwrap();
            rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(","));
        }
    }
    Ok(rows)
}

#[test]
fn streams_and_files_have_the_same_rows() {
    let expected = ["1,a,,", ",bb,even,", "3,ccc,,"];
    assert_eq!(read(&stream(), &[0, 1, 2, 3]).unwrap(), expected);
    assert_eq!(read(&file(), &[0, 1, 2, 3]).unwrap(), expected);
    assert_eq!(read(&file(), &[2, 0]).unwrap(), [",1", "even,", ",3"]);
    assert_eq!(read(&file(), &[]).unwrap(), ["", "", ""]);
    // A stream may lack the mark of its end.
    let stream = stream();
    assert_eq!(read(&stream[..stream.len() - 8], &[1]).unwrap(), ["a", "bb", "ccc"]);
}

#[test]
fn what_is_no_arrow_file_is_told() {
    let error = |content: &[u8]| read(content, &[]).unwrap_err().to_string();
    assert!(error(b"").contains("it is empty"));
    assert!(error(b"id,name\n1,a\n2,b\n3,c\n4,d\n5").contains("it is no Arrow file"));
    assert!(error(b"ARROW2\0\0").contains("it is no Arrow file"));
    assert!(error(b"ARROW1\0\0").contains("cut off"));
    let file = file();
    assert!(error(&file[..file.len() - 1]).contains("cut off"));
}

#[test]
fn dictionaries_may_change_within_a_stream() {
    let column = |texts: [&str; 2]| {
        let values: DictionaryArray<Int32Type> = texts.into_iter().collect();
        RecordBatch::try_from_iter([("d", Arc::new(values) as ArrayRef)]).unwrap()
    };
    let batches = [column(["a", "b"]), column(["c", "d"]), column(["e", "e"])];
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    let content = writer.into_inner().unwrap();
    assert_eq!(read(&content, &[0]).unwrap(), ["a", "b", "c", "d", "e", "e"]);
    // Pieces that wait keep the dictionaries that they were found with.
    let (_file, input) = input(&content);
    let table = ArrowFile::open(input, 1 << 20).unwrap();
    let plan = ReadPlan { projection: vec![0], piece_bytes: 1, batch_rows: 10 };
    let mut found = FileReader::open(&table, &plan).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = found.next_piece().unwrap() {
        pieces.push(piece);
    }
    let texts = pieces.into_iter().map(|piece| {
        let batches = piece.decode().unwrap();
        array_value_to_string(batches[0].column(0), 0).unwrap()
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["a", "c", "e"]);
}

#[test]
fn names_that_are_repeated_get_numbers() {
    let fields = vec![Field::new("a", arrow::datatypes::DataType::Int64, true); 2];
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![1])), Arc::new(Int64Array::from(vec![2]))];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let content = writer.into_inner().unwrap();
    assert_eq!(read(&content, &[0, 1]).unwrap(), ["1,2"]);
    let (_file, input) = input(&content);
    let table = ArrowFile::open(input, 1 << 20).unwrap();
    assert_eq!(table.schema().field(1).name(), "a_1");
}

#[test]
fn every_damaged_byte_is_an_error_or_an_answer() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for content in [stream(), file()] {
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] = random.u8(..);
            let _rows = read(&damaged, &[0, 1, 2, 3]);
            damaged[at] = 0xFF;
            let _rows = read(&damaged, &[0, 1, 2, 3]);
            let cut = read(&content[..at], &[0, 1, 2, 3]);
            assert!(cut.is_err() || cut.is_ok_and(|rows| rows.len() <= 3));
        }
    }
}
