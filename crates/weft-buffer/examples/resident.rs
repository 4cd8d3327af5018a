//! Shows that the process stays within the memory budget while it scans ten times as much, in pages of
//! all sizes: `cargo run --release -p weft-buffer --example resident [LIMIT_MIB]`.
//!
//! The first rounds scan runs of pages; the next ones fix single pages beside, and in the last ones
//! somebody else takes a quarter of the budget now and then. It prints what the process has resident beside the limit
//! plus 5 % plus 64 MiB, and fails if it had more.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_buffer::page::{self, PageHeader};
use weft_buffer::{BufferPool, Devices, PageId, PageTable, PoolOptions};
use weft_rt::io::{Access, File};
use weft_rt::memory::Ledger;
use weft_rt::{MorselOptions, MorselQueue, Runtime, RuntimeOptions};

const MIB: u64 = 1 << 20;
/// Pages of one run.
const RUN: usize = 8;
/// Coroutines of each worker.
const DEPTH: usize = 8;
/// Times that everything is read, and what else is done meanwhile: single pages are fixed, and memory is
/// taken.
const ROUNDS: [(bool, bool); 6] =
    [(false, false), (false, false), (true, false), (true, false), (true, true), (true, true)];

fn main() -> Result<(), Box<dyn Error>> {
    let limit_mib = std::env::args().nth(1).map_or(Ok(128), |limit| limit.parse::<u64>())?;
    let limit = limit_mib * MIB;
    let path = std::env::temp_dir().join(format!("weft-resident-{}", std::process::id()));
    let ids = write_pages(&path, 10 * limit)?;
    let file = File::open(&path, Access::Read)?;
    fs::remove_file(&path)?;
    scan(file, &ids, limit)
}

/// Writes pages of all sizes, together `bytes` bytes.
fn write_pages(path: &std::path::Path, bytes: u64) -> Result<Vec<PageId>, Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut file = std::io::BufWriter::new(fs::File::create(path)?);
    let (mut ids, mut end) = (Vec::new(), 0);
    while end < bytes {
        let most = random.usize(1..=256);
        let id = PageId::new(0, end, random.usize(1..=most) * 4096);
        let mut page = vec![random.u8(..); id.bytes()];
        page::seal(&mut page, PageHeader { tuple_count: 1, kind: 1, id });
        file.write_all(&page)?;
        end += id.bytes() as u64;
        ids.push(id);
    }
    file.into_inner()?.sync_all()?;
    Ok(ids)
}

fn scan(file: File, ids: &[PageId], limit: u64) -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::new(limit);
    let devices = Devices::new(vec![file]);
    let pool = BufferPool::dynamic(devices, ledger.clone(), PoolOptions::default())?;
    let table = PageTable::new(ids.iter().copied());
    let runtime = Runtime::new(&RuntimeOptions { workers: 2, ..RuntimeOptions::default() })?;
    let (resident_before, _) = resident()?;
    println!("{} MiB budget, {} MiB of pages", limit / MIB, table.bytes() / MIB);
    for (round, others) in ROUNDS.into_iter().enumerate() {
        let before = pool.cache_stats();
        let began = Instant::now();
        let bytes = scan_once(&runtime, &pool, &table, others)?;
        let seconds = began.elapsed().as_secs_f64();
        let after = pool.cache_stats();
        let (now, peak) = resident()?;
        println!(
            "round {round}: {:.0} MiB/s, {} requests for {} pages, {} hits, {} MiB read, {} MiB moved between \
             sizes or given back; resident {} MiB, at most {} MiB",
            bytes as f64 / MIB as f64 / seconds,
            after.reads - before.reads,
            after.misses - before.misses,
            after.hits - before.hits,
            (after.bytes_read - before.bytes_read) / MIB,
            (after.bytes_discarded - before.bytes_discarded) / MIB,
            now / MIB,
            peak / MIB,
        );
    }
    let (_, peak) = resident()?;
    let allowed = limit + limit / 20 + 64 * MIB;
    println!(
        "resident at most {} MiB of {} MiB allowed, {} MiB before the pool had a page; ledger at most {} MiB",
        peak / MIB,
        allowed / MIB,
        resident_before / MIB,
        ledger.peak() / MIB
    );
    if peak > allowed { Err("the process had more memory than its budget".into()) } else { Ok(()) }
}

/// Reads everything once, in runs and single pages; the bytes of the pages that were fixed.
fn scan_once(
    runtime: &Runtime,
    pool: &Arc<BufferPool>,
    table: &Arc<PageTable>,
    (fixes, reserves): (bool, bool),
) -> Result<u64, Box<dyn Error>> {
    let queue = MorselQueue::new(table.len() as u64, RUN as u64);
    let total = Arc::new(AtomicU64::new(0));
    let shared = (pool.clone(), table.clone(), total.clone());
    let run = runtime.run_morsels(
        &MorselOptions::new(DEPTH),
        move |_| queue.next(),
        |_| (),
        move |_, morsel| {
            let (pool, table, total) = shared.clone();
            async move {
                let range = morsel.start as usize..morsel.end as usize;
                let takes = reserves && morsel.start % 128 == 0;
                let others = takes.then(|| pool.ledger().try_reserve(pool.ledger().limit() / 4));
                let mut bytes = 0;
                for guard in pool.fix_run_for_scan(&table, range.clone()).await? {
                    bytes += guard.len() as u64;
                }
                for page in range.filter(|_| fixes) {
                    let other = (page * 7919) % table.len();
                    bytes += pool.fix(&table, other).await?.len() as u64;
                }
                drop(others);
                total.fetch_add(bytes, Ordering::Relaxed);
                Ok::<(), weft_buffer::BufferError>(())
            }
        },
    );
    run.wait()?;
    Ok(total.load(Ordering::Relaxed))
}

/// Bytes that the process has resident, and had at most.
fn resident() -> Result<(u64, u64), Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64, Box<dyn Error>> {
        let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such field")?;
        let kib = line.split_whitespace().nth(1).ok_or("an empty field")?;
        Ok(kib.parse::<u64>()? * 1024)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}
