//! The SQL logic tests under `tests/slt/`, each file in databases of its own: with ample memory, with little, and on a
//! simulated disk where every request suspends, each by DataFusion's operators and by Weft's pipelines; and with the least
//! memory that a database works with, with `partition = always`, with all that operators keep on disk and compressed, and with
//! vectors of one row and of seven, by Weft's pipelines.
//!
//! `cargo test -p weft --test slt -- join` runs those with `join` in their names.

#![forbid(unsafe_code)]

mod corpus;
mod database;

use sqllogictest::harness::{Arguments, Failed, Trial, run};

use corpus::Run;

fn main() {
    let trials = Run::all().into_iter().map(|file| {
        Trial::test(file.name(), move || {
            let (database, seed) = file.setup.open(file.engine)?;
            file.run(&database).map_err(|failures| Failed::from(format!("{failures}, seed {seed}")))
        })
    });
    run(&Arguments::from_args(), trials.collect()).exit();
}
