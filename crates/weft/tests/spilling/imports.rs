//! What goes wrong while a file is imported: the table is as it was, and the next import succeeds.

use std::time::Duration;

use tempfile::TempDir;
use weft::{Error, ErrorKind};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults};

use crate::bench::{Bench, DATABASE, answer, fold, write_rows};

/// A file that is imported, again and again.
struct Import {
    bench: Bench,
    /// Has the file.
    directory: TempDir,
    rows: u64,
    random: fastrand::Rng,
}

/// A rule for requests to the files of tables.
fn of_tables(rule: FaultRule) -> FaultRule {
    rule.in_directory(DATABASE)
}

impl Import {
    fn new() -> Import {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let (bench, directory) = (Bench::new(seed), TempDir::new().unwrap());
        write_rows(&bench.session, directory.path());
        let random = fastrand::Rng::with_seed(seed);
        let mut import = Import { bench, directory, rows: 0, random };
        import.rows = import.run(SimFaults::none()).unwrap().0;
        assert!(import.rows > 1_000);
        import.ended("well", Ok(import.rows));
        import
    }

    fn sql(&self) -> String {
        let path = self.directory.path().display();
        format!("COPY filled FROM '{path}/rows.csv' (FORMAT csv, HEADER true)")
    }

    /// Imports while some requests go wrong; returns the rows, and how many requests the rules were about.
    fn run(&self, faults: SimFaults) -> Result<(u64, u64), Error> {
        self.bench.disk.set_faults(faults);
        let result = answer(&self.bench.session, &self.sql());
        let seen = self.bench.disk.requests_seen().iter().sum();
        self.bench.disk.set_faults(SimFaults::none());
        result.map(|(rows, _)| (rows, seen))
    }

    /// The import has all rows or none, and nothing is left of it.
    fn ended(&self, about: &str, result: Result<u64, Error>) {
        let session = &self.bench.session;
        let found = answer(session, "SELECT 1 FROM filled").unwrap().0;
        match result {
            Ok(rows) => assert_eq!((rows, found), (self.rows, self.rows), "{about}"),
            Err(error) => assert_eq!(found, 0, "{about}: {error}"),
        }
        session.execute("CREATE OR REPLACE TABLE filled (n BIGINT, s VARCHAR)").unwrap();
        self.bench.check_nothing_is_left(about);
    }
}

#[test]
fn requests_that_fail_leave_nothing_of_an_import() {
    let mut import = Import::new();
    for operation in [Operation::Write, Operation::Allocate] {
        let never = of_tables(FaultRule::nth(operation, u64::MAX, Fault::IO));
        let (rows, requests) = import.run(SimFaults::none().with(never)).unwrap();
        import.ended("counted", Ok(rows));
        assert!(requests > 0 || operation == Operation::Allocate, "nothing is written");
        // What was allocated before may do.
        let last = requests.saturating_sub(1);
        for number in [0, import.random.u64(..=last), last] {
            let rule = of_tables(FaultRule::nth(operation, number, Fault::IO));
            let about = format!("{rule:?}");
            let result = import.run(SimFaults::none().with(rule));
            if let Err(error) = &result {
                assert_eq!(error.kind(), ErrorKind::Storage, "{about}: {error}");
            } else {
                assert_eq!(operation, Operation::Allocate, "{about}: nobody has noticed");
            }
            import.ended(&about, result.map(|(rows, _)| rows));
        }
    }
}

#[test]
fn full_disks_leave_nothing_of_an_import() {
    let mut import = Import::new();
    // With little room, what commits does not fit, either.
    for room in [0, 4 << 10, 8 << 10, import.random.u64(..256 << 10)] {
        let taken = import.bench.disk.allocated_bytes();
        let result = import.run(SimFaults::none().disk_full_after(taken + room));
        if let Err(error) = &result {
            assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
            assert!(error.message().contains("has no room for"), "{error}");
        }
        import.ended(&format!("a disk with room for {room} bytes"), result.map(|(rows, _)| rows));
    }
    let short = [Operation::Write, Operation::Read]
        .map(|operation| of_tables(FaultRule::chance(operation, 0.3, Fault::Short)));
    let result = import.run(short.into_iter().fold(SimFaults::none(), SimFaults::with));
    import.ended("short transfers", Ok(result.unwrap().0));
}

#[test]
fn cancelled_imports_leave_nothing() {
    let mut import = Import::new();
    for _ in 0..10 {
        let mut result = import.bench.session.start(&import.sql(), &[]);
        let handle = result.cancel_handle();
        let after = Duration::from_micros(import.random.u64(..60_000));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(after);
            handle.cancel();
        });
        let result = fold(&mut result).map(|(rows, _)| rows);
        canceller.join().unwrap();
        if let Err(error) = &result {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        }
        import.ended("cancelled", result);
    }
}
