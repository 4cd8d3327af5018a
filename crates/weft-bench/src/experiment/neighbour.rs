//! A noisy neighbour: somebody else on the devices, who comes while a query runs and leaves again (Spilly, section 4.4). It is a
//! session of its own that changes `io_bandwidth_limit`, as anybody could.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use weft::Database;

use crate::args::Neighbour;
use crate::error::BenchError;
use crate::report::Point;
use crate::workload::WorkloadError;

/// What a neighbour did while something ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Visit {
    /// When it came, seconds after the work began.
    pub came_s: Option<f64>,
    /// When it left, if the work still went on.
    pub left_s: Option<f64>,
    /// Bytes per second that it left of the devices.
    pub bytes_per_s: Option<u64>,
}

/// Does `work` with a database, beside a neighbour if there is one. `usual` is the setting without it.
///
/// # Errors
/// [`WorkloadError::Statement`] if the setting cannot be changed.
pub fn beside<T>(
    database: &Database,
    neighbour: Option<&Neighbour>,
    usual: &str,
    work: impl FnOnce() -> T,
) -> Result<(T, Visit), BenchError> {
    let Some(neighbour) = neighbour else { return Ok((work(), Visit::default())) };
    let (working, ended) = channel::<()>();
    let began = Instant::now();
    thread::scope(|scope| {
        let visiting = scope.spawn(move || visit(database, neighbour, usual, began, &ended));
        let result = work();
        drop(working);
        let visit = visiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((result, visit?))
    })
}

/// Comes and leaves, unless the work ends before.
fn visit(
    database: &Database,
    neighbour: &Neighbour,
    usual: &str,
    began: Instant,
    ended: &Receiver<()>,
) -> Result<Visit, WorkloadError> {
    let failed = || WorkloadError::statement("the neighbour");
    let session = database.session().map_err(failed())?;
    let set = |bandwidth: &str| {
        let bandwidth = bandwidth.replace('\'', "''");
        session.execute(&format!("SET io_bandwidth_limit = '{bandwidth}'")).map_err(failed())
    };
    let is_due = |at: Duration| {
        let left = at.saturating_sub(began.elapsed());
        ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
    };
    let mut visit = Visit::default();
    if is_due(neighbour.from) {
        set(&neighbour.bandwidth)?;
        visit.came_s = Some(began.elapsed().as_secs_f64());
        visit.bytes_per_s = database.stats().io_bandwidth_limit;
        if is_due(neighbour.to) {
            visit.left_s = Some(began.elapsed().as_secs_f64());
        }
        set(usual)?;
    }
    Ok(visit)
}

/// Checks that the neighbour came in each of the runs.
///
/// # Errors
/// [`BenchError::NoNeighbour`] with the queries that ended before.
pub fn check(points: &[Point]) -> Result<(), BenchError> {
    let is_missed = |point: &&Point| point.neighbour_from_s.is_none();
    let mut missed: Vec<&str> =
        points.iter().filter(is_missed).filter_map(|point| point.pattern.as_deref()).collect();
    missed.dedup();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(BenchError::NoNeighbour { queries: missed.join(", ") }),
    }
}

#[cfg(test)]
mod tests {
    use weft::DatabaseOptions;

    use super::*;

    fn neighbour(from_ms: u64, to_ms: u64) -> Neighbour {
        let [from, to] = [from_ms, to_ms].map(Duration::from_millis);
        Neighbour { from, to, bandwidth: "5MB".to_owned() }
    }

    #[test]
    fn it_comes_and_leaves() {
        let database = Database::in_memory(&DatabaseOptions::default()).unwrap();
        let limit = || database.stats().io_bandwidth_limit;
        let wait = |wanted: Option<u64>| {
            let since = Instant::now();
            while limit() != wanted {
                assert!(since.elapsed() < Duration::from_secs(60), "{:?}", limit());
                thread::sleep(Duration::from_millis(1));
            }
        };
        let work = || {
            wait(Some(5_000_000));
            wait(Some(70_000_000));
        };
        // So long that whoever looks gets the processor meanwhile.
        let (_, visit) = beside(&database, Some(&neighbour(5, 1_000)), "70MB", work).unwrap();
        assert!(visit.came_s >= Some(0.005) && visit.left_s >= Some(1.0), "{visit:?}");
        assert_eq!(visit.bytes_per_s, Some(5_000_000));
        // The query ends while it is there, and before it comes.
        let work = || wait(Some(5_000_000));
        let late = neighbour(1, 600_000);
        let (_, visit) = beside(&database, Some(&late), "unlimited", work).unwrap();
        assert!(visit.came_s.is_some() && visit.left_s.is_none() && limit().is_none(), "{visit:?}");
        let later = neighbour(300_000, 600_000);
        let (_, visit) = beside(&database, Some(&later), "unlimited", || ()).unwrap();
        assert_eq!(visit, Visit::default());
    }
}
