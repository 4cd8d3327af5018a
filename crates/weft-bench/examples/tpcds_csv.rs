//! Writes TPC-DS as CSV files: `tpcds_csv DIRECTORY SCALE`. The reference answers of the tests are
//! computed on these (see `bench/README.md`).

use std::path::PathBuf;
use std::process::ExitCode;

use weft_bench::args::cores;
use weft_bench::workload::TPCDS;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let (Some(directory), Some(Ok(scale))) =
        (args.get(1).map(PathBuf::from), args.get(2).map(|text| text.parse::<f64>()))
    else {
        eprintln!("usage: tpcds_csv DIRECTORY SCALE");
        return ExitCode::FAILURE;
    };
    match TPCDS.generate(&directory, scale, cores() as usize) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
