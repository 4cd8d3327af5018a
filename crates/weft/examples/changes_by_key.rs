//! How long prepared changes of one row take, by its primary key, on one thread: `changes_by_key [ROWS [CHANGES]]`.
//!
//! Both the time and the processor time of all threads are told, of changes within a transaction and of changes that commit by
//! themselves. The baseline is the same statement as a text with constants, which is parsed and planned each time. What the changes
//! leave is checked.

use std::time::Instant;

use weft::{Database, DatabaseOptions, Error, ErrorKind, Result, Session, Value};

const ROWS: i64 = 100_000;
const CHANGES: i64 = 2_000;
/// Changes of the baseline for each of the others.
const BASELINE_SHARE: i64 = 10;
/// Ticks of the system's clock of processor time in a second.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<i64>());
    let mut number = |default: i64| match numbers.next() {
        None => Ok(default),
        Some(Ok(number)) if number >= BASELINE_SHARE => Ok(number),
        Some(_) => Err(Error::new(ErrorKind::Semantic, "usage: changes_by_key [ROWS [CHANGES]]")),
    };
    let (rows, changes) = (number(ROWS)?, number(CHANGES)?);
    let database = Database::in_memory(&DatabaseOptions::default().with("threads", 1))?;
    let session = database.session()?;
    session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, name VARCHAR)")?;
    session.execute(&format!(
        "INSERT INTO t SELECT value, 0, 'name ' || value FROM generate_series(1, {rows}) AS g(value)"
    ))?;
    session.execute("CREATE TABLE h (id BIGINT PRIMARY KEY, n BIGINT, at TIMESTAMP)")?;
    let update = "UPDATE t SET n = n + $1 WHERE id = $2";
    let insert = "INSERT INTO h VALUES ($1, $2, CURRENT_TIMESTAMP)";
    let mut next = 0;
    for is_transaction in [true, false] {
        for sql in [update, insert] {
            let prepared = session.prepare(sql)?;
            let is_update = sql == update;
            let key = move |next: &mut i64| {
                *next += 1;
                if is_update { *next * 7_919 % rows + 1 } else { *next }
            };
            let by_key = measured(&session, is_transaction, changes, || {
                let key = Value::Integer(key(&mut next));
                let one = Value::Integer(1);
                let values = if is_update { [one, key] } else { [key, one] };
                prepared.execute(&values)
            })?;
            let by_text = measured(&session, is_transaction, changes / BASELINE_SHARE, || {
                let key = key(&mut next);
                let (first, second) = if is_update { (1, key) } else { (key, 1) };
                let text = sql.replace("$1", &first.to_string()).replace("$2", &second.to_string());
                session.execute(&text)
            })?;
            let place = if is_transaction { "in a transaction" } else { "committed alone" };
            println!(
                "{sql}, {place}: prepared {:.0} µs ({:.0} µs of processors), by text {:.0} µs ({:.0} µs of processors)",
                by_key.0, by_key.1, by_text.0, by_text.1
            );
        }
    }
    check(&session, changes)
}

/// Microseconds, and microseconds of processors, of one of so many changes of a row.
fn measured(
    session: &Session,
    is_transaction: bool,
    changes: i64,
    mut change: impl FnMut() -> Result<u64>,
) -> Result<(f64, f64)> {
    if is_transaction {
        session.execute("BEGIN")?;
    }
    let (start, processors) = (Instant::now(), processor_seconds());
    for _ in 0..changes {
        if change()? != 1 {
            return Err(Error::new(ErrorKind::Data, "a change has not changed one row"));
        }
    }
    let (time, processors) = (start.elapsed().as_secs_f64(), processor_seconds() - processors);
    if is_transaction {
        session.execute("COMMIT")?;
    }
    let of_one = |seconds: f64| seconds * 1e6 / changes as f64;
    Ok((of_one(time), of_one(processors)))
}

/// Seconds that processors have worked for this process.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|of| of.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

fn check(session: &Session, changes: i64) -> Result<()> {
    let expected = 2 * (changes + changes / BASELINE_SHARE);
    for sql in ["SELECT sum(n) FROM t", "SELECT count(*) FROM h"] {
        let found = weft::to_text(&session.query(sql)?.collect()?)?;
        if found != [[expected.to_string()]] {
            let message = format!("{sql}: {found:?} instead of {expected}");
            return Err(Error::new(ErrorKind::Data, message));
        }
    }
    Ok(())
}
