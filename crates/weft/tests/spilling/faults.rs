//! The faults, each at some points of a statement.

use std::time::{Duration, Instant};

use weft::{Error, ErrorKind};
use weft_rt::io::sim::{Fault, FaultRule, FaultWhen, Operation, SimFaults};

use crate::bench::{Bench, Requests, answer, fold, names, spilling};

/// The system has no space.
const NO_SPACE: Fault = Fault::Error(28);

/// How long a statement has until it must have spilled.
const LONG: Duration = Duration::from_secs(5);

/// Has everything go wrong with a statement, under some settings.
pub fn check(settings: &[&str], sql: &str, undo: Option<&str>) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let bench = Bench::new(seed);
    for setting in settings {
        bench.session.execute(&format!("SET {setting}")).unwrap();
    }
    let sql = sql.replace("{files}", &bench.files.path().display().to_string());
    let mut trial =
        Trial { bench, sql, undo, random: fastrand::Rng::with_seed(seed), expected: (0, 0) };
    let requests = trial.run_well();
    let about = &trial.sql;
    assert!(requests.writes > 20 && requests.reads > 20, "{about} hardly spills: {requests:?}");
    trial.devices_fail(requests);
    trial.disks_are_full(requests);
    trial.transfers_are_short();
    trial.cancelled(requests);
    trial.run_well();
    trial.bench.reopen();
}

struct Trial<'a> {
    bench: Bench,
    sql: String,
    undo: Option<&'a str>,
    random: fastrand::Rng,
    expected: (u64, u64),
}

impl Trial<'_> {
    /// Runs the statement without any faults.
    fn run_well(&mut self) -> Requests {
        let (answer, requests) = self.bench.run_well(&self.sql);
        assert!(self.expected == (0, 0) || self.expected == answer, "{}", self.sql);
        self.expected = answer;
        self.undo();
        self.bench.check_nothing_is_left(&self.sql);
        requests
    }

    /// Undoes what the statement did.
    fn undo(&mut self) {
        match self.undo {
            None => {}
            Some("") => {
                for name in names(self.bench.files.path()) {
                    std::fs::remove_file(self.bench.files.path().join(name)).unwrap();
                }
            }
            Some(sql) => {
                self.bench.session.execute(sql).unwrap();
            }
        }
    }

    /// The statement has an answer, which is the right one, or an error, which is looked at; and nothing is left.
    fn ended(&mut self, about: &str, result: Result<(u64, u64), Error>, look: impl FnOnce(&Error)) {
        let about = format!("{about}: {}", self.sql);
        match result {
            Ok(answer) => {
                assert_eq!(answer, self.expected, "{about}");
                self.undo();
            }
            Err(error) => look(&error),
        }
        self.bench.check_nothing_is_left(&about);
    }

    /// Runs the statement while some requests of its operators go wrong. Any that it needs is to be noticed: what was read ahead
    /// may turn out not to be needed, because there are rows enough, or the statement is planned anew for want of memory.
    fn fails(&mut self, rule: FaultRule, words: &[&str]) {
        let about = format!("{rule:?}");
        self.bench.disk.set_faults(SimFaults::none().with(spilling(rule)));
        let result = answer(&self.bench.session, &self.sql);
        let seen = self.bench.disk.requests_seen()[0];
        self.bench.disk.set_faults(SimFaults::none());
        let FaultWhen::Nth(number) = rule.when else { unreachable!("by number") };
        let may_be_vain = rule.operation == Some(Operation::Read) && number > 0;
        assert!(seen <= number || result.is_err() || may_be_vain, "{about}: nobody has noticed");
        self.ended(&about, result, |error| check_storage(&about, error, words));
    }

    /// Requests to write or read fail, or bring back something else.
    fn devices_fail(&mut self, requests: Requests) {
        let written = ["cannot write", "bytes at offset", "spill", "temp_directory"];
        for number in [0, self.random.u64(..requests.writes)] {
            self.fails(FaultRule::nth(Operation::Write, number, Fault::IO), &written);
        }
        let read = ["cannot read", "bytes at offset", "spill", "temp_directory"];
        for number in [0, self.random.u64(..requests.reads)] {
            self.fails(FaultRule::nth(Operation::Read, number, Fault::IO), &read);
        }
        let damaged = ["spill", "came back damaged", "temp_directory"];
        for number in [0, self.random.u64(..requests.reads)] {
            self.fails(FaultRule::nth(Operation::Read, number, Fault::BitFlip), &damaged);
        }
        self.fails(
            FaultRule::nth(Operation::Allocate, 0, Fault::IO),
            &["cannot allocate", "spill", "temp_directory"],
        );
    }

    /// There is no room: by the system, by the disk's size, and by the setting.
    fn disks_are_full(&mut self, requests: Requests) {
        let words = ["spill", "has no room for", "temp_directory"];
        let number = self.random.u64(..requests.writes);
        self.fails(FaultRule::nth(Operation::Write, number, NO_SPACE), &words);
        let taken = self.bench.disk.allocated_bytes();
        let full = SimFaults::none().disk_full_after(taken + requests.bytes / 3);
        self.bench.disk.set_faults(full);
        let result = answer(&self.bench.session, &self.sql);
        self.bench.disk.set_faults(SimFaults::none());
        // Who writes a table may be the first who lacks room.
        let about = "a full disk";
        self.ended(about, result, |error| {
            check_storage(about, error, &["has no room for", "free space there"])
        });
        let session = self.bench.session.clone();
        session.execute(&format!("SET max_temp_size = '{}'", requests.bytes / 3)).unwrap();
        let result = answer(&self.bench.session, &self.sql);
        session.execute("RESET max_temp_size").unwrap();
        let about = "max_temp_size";
        self.ended(about, result, |error| check_storage(about, error, &["raise max_temp_size"]));
    }

    /// What is short, interrupted or to be tried again is no error.
    fn transfers_are_short(&mut self) {
        let rules = [
            FaultRule::chance(Operation::Write, 0.3, Fault::Short),
            FaultRule::chance(Operation::Read, 0.3, Fault::Short),
            FaultRule::chance(Operation::Write, 0.1, Fault::INTERRUPTED),
            FaultRule::chance(Operation::Read, 0.1, Fault::AGAIN),
        ];
        self.bench
            .disk
            .set_faults(rules.map(spilling).into_iter().fold(SimFaults::none(), SimFaults::with));
        let result = answer(&self.bench.session, &self.sql);
        self.bench.disk.set_faults(SimFaults::none());
        self.ended("short transfers", result, |error| panic!("short transfers: {error}"));
    }

    /// The statement is cancelled, or its result dropped, when it has spilled so much.
    fn cancelled(&mut self, requests: Requests) {
        for after in [1, self.random.u64(..requests.bytes)] {
            let about = format!("cancelled after {after} bytes");
            let has_spilled = self.has_spilled(after);
            let mut result = self.bench.session.start(&self.sql, &[]);
            let handle = result.cancel_handle();
            let canceller = std::thread::spawn(move || {
                has_spilled();
                handle.cancel();
            });
            let result = fold(&mut result);
            canceller.join().unwrap();
            self.ended(&about, result, |error| {
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            });
        }
        if self.undo.is_none() {
            let has_spilled = self.has_spilled(requests.bytes / 3);
            let result = self.bench.session.start(&self.sql, &[]);
            has_spilled();
            drop(result);
            self.bench.check_nothing_is_left(&format!("dropped: {}", self.sql));
        }
    }

    /// Waits until what runs has spilled so much more, or does not for long.
    fn has_spilled(&self, bytes: u64) -> impl FnOnce() + Send + 'static {
        let database = self.bench.database.clone();
        let until = database.stats().spill_bytes_written + bytes;
        move || {
            let since = Instant::now();
            while database.stats().spill_bytes_written < until && since.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// An error of the disk that says so, and what to do.
fn check_storage(about: &str, error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Storage, "{about}: {error}");
    for word in words {
        assert!(error.message().contains(word), "{about}: {error}");
    }
}
