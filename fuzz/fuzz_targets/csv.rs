//! Any bytes as a CSV file, from its dialect to its batches. In small pieces it has the rows that it has as a whole.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use weft_files::csv::{CsvOptions, open};
use weft_files::{Compression, FileReader, FilesError, Input, ReadPlan};

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, bytes)) = bytes.split_first() else { return };
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    let input = Input { place: file.path().to_owned().into(), compression: Compression::None, encoding: None };
    let options = CsvOptions {
        null_padding: flags & 1 != 0,
        ignore_errors: flags & 2 != 0,
        lenient: flags & 4 != 0,
        all_text: flags & 8 != 0,
        record_bytes_max: Some(1 << 20),
        ..CsvOptions::default()
    };
    let Ok(table) = open(&[input], &options) else { return };
    let rows = |piece_bytes| rows(&table.files[0], piece_bytes);
    match (rows(16 << 10), rows(1 << 30)) {
        (Ok(small), Ok(whole)) => assert_eq!(small, whole),
        (Err(_), Err(_)) => {}
        (small, whole) => panic!("{small:?} in pieces, {whole:?} as a whole"),
    }
});

/// How many rows there are.
fn rows(file: &impl FileReader, piece_bytes: usize) -> Result<usize, FilesError> {
    let projection = (0..file.schema().fields().len()).collect();
    let mut pieces = file.open(&ReadPlan { projection, piece_bytes, batch_rows: 100 })?;
    let mut rows = 0;
    while let Some(piece) = pieces.next_piece()? {
        for batch in piece.decode()? {
            rows += batch.num_rows();
        }
    }
    Ok(rows)
}
