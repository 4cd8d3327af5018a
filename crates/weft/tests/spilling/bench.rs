//! A database whose disk fails when it is told to, and what must be left of a statement that has failed.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weft::{Database, DatabaseOptions, DatabaseStats, Error, QueryResult, Session};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimClock, SimDisk, SimFaults, SimOptions};

/// The directory of the simulated disk that has the database.
pub const DATABASE: &str = "faults.weft";

/// The directory of the simulated disk that operators spill to.
const SPILL: &str = "spill";

/// How long requests that are on their way when a statement fails may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The least.
const MEMORY_LIMIT: &str = "16MiB";

/// How what is spilled may be compressed.
const COMPRESSIONS: [&str; 4] = ["off", "lz4", "zstd:1", "auto"];

/// By how much data files may grow for the tables that statements make, whose room is used again; spill files are larger.
const DATA_BYTES: u64 = 8 << 20;

/// Rows that are wide, so that few of them outgrow memory, and wide by functions, so that what takes time is what operators do:
/// `t` and `u` have the same numbers, in another order, and `wide` has the widest.
const TABLES: [&str; 6] = [
    "CREATE TABLE narrow AS SELECT value AS n, value % 100 AS g, md5(value::VARCHAR) AS s FROM generate_series(1, 5000) AS g(value)",
    "CREATE TABLE turned AS SELECT * FROM narrow WHERE n > 5 ORDER BY n % 1000, n",
    "CREATE VIEW t AS SELECT n, g, repeat(s, 110) AS s FROM narrow",
    "CREATE VIEW u AS SELECT n, g, repeat(s, 110) AS s FROM turned",
    "CREATE VIEW wide AS SELECT n, repeat(s, 900) AS w FROM narrow WHERE n <= 600",
    "CREATE TABLE filled (n BIGINT, s VARCHAR)",
];

/// How often requests to the spill area were made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    pub writes: u64,
    pub reads: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

/// A rule for the requests that spill.
pub fn spilling(rule: FaultRule) -> FaultRule {
    rule.in_directory(SPILL)
}

/// A database with the tables, and a directory of the system for files.
pub struct Bench {
    pub database: Database,
    pub session: Session,
    pub disk: SimDisk,
    pub files: TempDir,
    /// Bytes of the disk that are taken while nothing runs.
    taken_bytes: u64,
    /// Bytes of the budget that the tables' directories have.
    reserved_bytes: u64,
    tables: Vec<String>,
}

impl Bench {
    pub fn new(seed: u64) -> Bench {
        // Simulated time would end the patience of those who wait for memory before others have had a turn.
        let options = SimOptions { clock: SimClock::Real, ..SimOptions::testing(seed) };
        let disk = SimDisk::new(SimOptions { volatile_writes: false, ..options });
        let options = DatabaseOptions { sim: Some(disk.clone()), ..DatabaseOptions::default() };
        let options =
            options.with("threads", 2).with("engine", "weft").with("memory_limit", "1GiB");
        let database = Database::open(DATABASE, &options).unwrap();
        let session = database.session().unwrap();
        for sql in TABLES {
            session.execute(sql).unwrap();
        }
        session.execute(&format!("SET memory_limit = '{MEMORY_LIMIT}'")).unwrap();
        let compression = COMPRESSIONS[seed as usize % COMPRESSIONS.len()];
        println!("spill_compression {compression}");
        session.execute(&format!("SET spill_compression = '{compression}'")).unwrap();
        let (tables, files) = (session.tables(), tempfile::tempdir().unwrap());
        let (stats, taken_bytes) = (database.stats(), disk.allocated_bytes());
        let reserved_bytes = reserved(&stats);
        Bench { database, session, disk, files, taken_bytes, reserved_bytes, tables }
    }

    /// Runs a statement as it is to run; returns its answer and the requests that it made.
    pub fn run_well(&self, sql: &str) -> ((u64, u64), Requests) {
        let never = |operation| spilling(FaultRule::nth(operation, u64::MAX, Fault::IO));
        let kinds = [Operation::Write, Operation::Read];
        let count = kinds.map(never).into_iter().fold(SimFaults::none(), SimFaults::with);
        let before = self.database.stats().spill_bytes_written;
        self.disk.set_faults(count);
        let answer = answer(&self.session, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let seen = self.disk.requests_seen();
        self.disk.set_faults(SimFaults::none());
        let bytes = self.database.stats().spill_bytes_written - before;
        (answer, Requests { writes: seen[0], reads: seen[1], bytes })
    }

    /// Nothing is left of a statement: no memory, no room on disk, no table, no file; and others run.
    pub fn check_nothing_is_left(&self, about: &str) {
        let since = Instant::now();
        while let Some(left) = self.left() {
            assert!(since.elapsed() < PATIENCE, "{about}: {left}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.session.tables(), self.tables, "{about}");
        let next =
            answer(&self.session, "SELECT count(*), sum(n), max(s) FROM t").map(|(rows, _)| rows);
        assert_eq!(next.unwrap_or_else(|error| panic!("{about}, then {error}")), 1);
        // Neither the statement nor anybody for it has a table any more.
        self.session.execute("CREATE OR REPLACE TABLE lock AS SELECT 1 AS n").unwrap();
        self.session.execute("DROP TABLE lock").unwrap();
    }

    /// What has not been given back.
    fn left(&self) -> Option<String> {
        let stats = self.database.stats();
        let reserved = reserved(&stats).saturating_sub(self.reserved_bytes);
        let spilled = (stats.spilled_bytes, stats.spill_file_bytes);
        if (reserved, spilled) != (0, (0, 0)) {
            return Some(format!("{reserved} bytes of memory, {spilled:?} bytes on disk"));
        }
        let files = names(self.files.path());
        if !files.is_empty() {
            return Some(format!("{files:?}"));
        }
        let taken_bytes = self.disk.allocated_bytes();
        let before = self.taken_bytes;
        (taken_bytes > before + DATA_BYTES)
            .then(|| format!("{taken_bytes} bytes of files, {before} before"))
    }

    /// The database is closed, and opened again.
    pub fn reopen(self) {
        let Bench { database, session, disk, .. } = self;
        drop((session, database));
        let options =
            DatabaseOptions { sim: Some(disk), create: false, ..DatabaseOptions::default() };
        let options = options.with("memory_limit", MEMORY_LIMIT);
        let since = Instant::now();
        let database = loop {
            match Database::open(DATABASE, &options) {
                Ok(database) => break database,
                Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(database.session().unwrap().execute("SELECT max(s) FROM u").unwrap(), 0);
    }
}

/// Bytes of the budget that others have than the cache.
fn reserved(stats: &DatabaseStats) -> u64 {
    stats.memory_used.saturating_sub(stats.memory_cached)
}

/// What a statement is compared by: how many rows it has, and what is in them, whatever their order.
pub fn answer(session: &Session, sql: &str) -> Result<(u64, u64), Error> {
    fold(&mut session.query(sql)?)
}

/// Rows, and a sum over the texts of all values.
pub fn fold(result: &mut QueryResult) -> Result<(u64, u64), Error> {
    let (mut rows, mut sum) = (0, 0u64);
    while let Some(batch) = result.next_batch()? {
        for row in weft::to_text(&[batch])? {
            rows += 1;
            sum = sum.wrapping_add(hash(&row.join("|")));
        }
    }
    Ok((rows + result.finish()?, sum))
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Writes rows for the table `filled` to a file of a directory, `rows.csv`.
pub fn write_rows(session: &Session, directory: &Path) {
    let path = directory.join("rows.csv");
    let rows = "SELECT n, left(s, 200) AS s FROM t";
    let sql = format!("COPY ({rows}) TO '{}' (FORMAT csv, HEADER true)", path.display());
    session.execute(&sql).unwrap();
}

/// The names of the files in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
