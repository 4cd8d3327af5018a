//! What the process has and does while something is measured, looked at ten times a second by a thread of its own.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weft::{Database, DatabaseStats, SPILL_LEVELS, spill_level_name};

use crate::report::OverTime;
use crate::resident;

/// Between two looks.
const STEP: Duration = Duration::from_millis(100);

/// More samples of a run are not kept: neighbours become one.
const SAMPLES_MAX: usize = 400;

/// What is counted from look to look.
struct Look {
    at: Instant,
    cpu: Duration,
    read_bytes: u64,
    written_bytes: u64,
    raw_bytes: u64,
    by_level: [u64; SPILL_LEVELS],
}

impl Look {
    fn now(stats: &DatabaseStats) -> Look {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Look {
            at: Instant::now(),
            cpu: Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32),
            read_bytes: stats.bytes_read + stats.spill_bytes_read,
            written_bytes: stats.bytes_written + stats.spill_bytes_written,
            raw_bytes: stats.spill_bytes_raw,
            by_level: stats.spill_bytes_by_level,
        }
    }
}

/// Does `work` with a database, and gives also what the process had and did meanwhile.
pub fn watch<T>(database: &Database, work: impl FnOnce() -> T) -> (T, OverTime) {
    let (working, ended) = channel::<()>();
    let mut before = Look::now(&database.stats());
    std::thread::scope(|scope| {
        let sampling = scope.spawn(move || {
            let began = before.at;
            let mut over_time = OverTime::default();
            loop {
                let is_over = ended.recv_timeout(STEP) != Err(RecvTimeoutError::Timeout);
                let stats = database.stats();
                let now = Look::now(&stats);
                add(&mut over_time, &stats, &before, &now, began);
                before = now;
                if is_over {
                    let by_scheme = &mut over_time.spilled_by_scheme_bytes_per_s;
                    by_scheme.retain(|_, rates| rates.iter().any(|rate| *rate > 0.0));
                    return over_time.thinned(SAMPLES_MAX);
                }
            }
        });
        let result = work();
        drop(working);
        // A thread that could not go on has sampled nothing.
        (result, sampling.join().unwrap_or_default())
    })
}

/// Adds what was between two looks.
fn add(over_time: &mut OverTime, stats: &DatabaseStats, before: &Look, now: &Look, began: Instant) {
    let seconds = (now.at - before.at).as_secs_f64();
    if seconds <= 0.0 {
        return;
    }
    over_time.seconds.push((now.at - began).as_secs_f64());
    over_time.cores.push(now.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds);
    over_time.resident_bytes.push(resident::now_bytes().unwrap_or_default());
    over_time.reserved_bytes.push(stats.memory_used);
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    over_time.read_bytes_per_s.push(rate(now.read_bytes, before.read_bytes));
    over_time.written_bytes_per_s.push(rate(now.written_bytes, before.written_bytes));
    over_time.spilled_raw_bytes_per_s.push(rate(now.raw_bytes, before.raw_bytes));
    for (level, (now, before)) in now.by_level.into_iter().zip(before.by_level).enumerate() {
        let of_scheme = over_time.spilled_by_scheme_bytes_per_s.entry(spill_level_name(level));
        of_scheme.or_default().push(rate(now, before));
    }
}

#[cfg(test)]
mod tests {
    use weft::DatabaseOptions;

    use super::*;

    #[test]
    fn a_run_is_sampled_to_its_end() {
        let database = Database::in_memory(&DatabaseOptions::default()).unwrap();
        let (result, over_time) = watch(&database, || {
            std::thread::sleep(STEP * 5 / 2);
            7
        });
        assert_eq!(result, 7);
        assert!(over_time.seconds.len() >= 2, "{over_time:?}");
        assert!(*over_time.seconds.last().unwrap() >= (STEP * 5 / 2).as_secs_f64());
        assert!(over_time.resident_bytes.iter().all(|bytes| *bytes > 0));
        assert_eq!(over_time.cores.len(), over_time.written_bytes_per_s.len());
    }
}
