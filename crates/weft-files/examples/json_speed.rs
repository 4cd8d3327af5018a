//! How long one thread takes for the rows of a JSON file: the sample, cutting, and decoding columns.
//!
//! `cargo run --release -p weft-files --example json_speed -- FILE [COLUMN …]`, without columns: none, and all.

use std::path::PathBuf;
use std::time::Instant;

use weft_files::json::{JsonFiles, JsonOptions};
use weft_files::{Compression, FileReader, FilesError, Input, ReadPlan};

/// Bytes of a piece, and rows of a batch.
const PIECE_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 8192;

fn main() -> Result<(), FilesError> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().unwrap_or_default());
    let input = Input { place: path.into(), compression: Compression::None, encoding: None };
    let begun = Instant::now();
    let files = JsonFiles::new(vec![input], JsonOptions::default())?;
    println!("types {:.3} s ({:?})", begun.elapsed().as_secs_f64(), files.types_from());
    let schema = files.schema();
    let named: Vec<usize> = arguments.filter_map(|name| schema.index_of(&name).ok()).collect();
    let all = (0..schema.fields().len()).collect();
    let projections = if named.is_empty() { vec![vec![], all] } else { vec![named] };
    for projection in projections {
        let columns = projection.len();
        let plan = ReadPlan { projection, piece_bytes: PIECE_BYTES, batch_rows: BATCH_ROWS };
        let mut pieces = files.open(&plan)?;
        let (mut rows, mut cutting, mut decoding) = (0, 0.0, 0.0);
        loop {
            let begun = Instant::now();
            let piece = pieces.next_piece()?;
            cutting += begun.elapsed().as_secs_f64();
            let Some(piece) = piece else { break };
            let begun = Instant::now();
            rows += piece.decode()?.iter().map(|batch| batch.num_rows()).sum::<usize>();
            decoding += begun.elapsed().as_secs_f64();
        }
        println!(
            "{columns} columns of {rows} rows: cutting {cutting:.3} s, decoding {decoding:.3} s"
        );
    }
    Ok(())
}
