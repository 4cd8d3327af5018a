//! Index probes of ten keys per request, in CoroBase's variants: `probe ROWS [NODE_BYTES] [SECONDS]`.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{
    Boxed, BulkLoad, IndexError, Interleaved, NODE_BYTES, Naive, Prefetching, Space, Tree, TreeForm,
};
use weft_rt::io::{Access, DriverKind, File};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

/// Keys of a request.
const KEYS: usize = 10;

#[derive(Default)]
struct Places(Mutex<u64>);

impl Space for Places {
    fn allocate(&self, bytes: usize) -> Result<PageId, IndexError> {
        let mut end = self.0.lock().expect("nobody panics");
        *end += bytes as u64;
        Ok(PageId::new(0, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

async fn probes(tree: &Tree, rows: u64, variant: &str, batch: usize, time: Duration) -> f64 {
    let mut random = fastrand::Rng::with_seed(42);
    let (start, mut done) = (Instant::now(), 0_u64);
    let requests = batch.div_ceil(KEYS).max(1) * 8;
    while start.elapsed() < time {
        let numbers: Vec<u64> = (0..requests * KEYS).map(|_| random.u64(..rows)).collect();
        let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_be_bytes()).collect();
        let paused = Cell::new(false);
        let found = match variant {
            "naive" => tree.multi_get_in(&keys, 1, &paused, Naive).await,
            "ermia" => tree.multi_get_in(&keys, 1, &paused, Prefetching).await,
            "coro-mk" => tree.multi_get(&keys, batch).await,
            "coro-fn-mk" => {
                let mode = Boxed(Interleaved::new(&paused));
                tree.multi_get_in(&keys, batch, &paused, mode).await
            }
            _ => tree.multi_get_amac(&keys, batch).await,
        };
        let found = found.expect("all nodes are in memory");
        assert!(found.iter().zip(&numbers).all(|(row, number)| *row == Some(*number)));
        done += black_box(found).len() as u64;
    }
    done as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|argument| argument.parse().expect("a number")).collect();
    let rows = arguments.first().copied().unwrap_or(10_000);
    let node_bytes = arguments.get(1).map_or(NODE_BYTES, |&bytes| bytes as usize);
    let time = Duration::from_millis(arguments.get(2).copied().unwrap_or(1000));
    let options =
        RuntimeOptions { workers: 1, pin: false, driver: DriverKind::Blocking, io_depth: 16 };
    let runtime = Runtime::new(&options).expect("a runtime");
    let path = std::env::temp_dir().join(format!("weft-probe-{}", std::process::id()));
    std::fs::write(&path, []).expect("a file");
    let file = File::open(&path, Access::ReadWrite).expect("a file");
    std::fs::remove_file(&path).ok();
    let ledger = Ledger::new(8 << 30);
    let pool = BufferPool::dynamic(Devices::new(vec![file]), ledger, PoolOptions::default());
    let pool = pool.expect("address space");
    let work = move || async move {
        let form = TreeForm { node_bytes, ..TreeForm::new(true) };
        let mut load = BulkLoad::new(pool, Arc::new(Places::default()), form);
        let start = Instant::now();
        for row in 0..rows {
            load.push(&row.to_be_bytes(), row, &[]).await.expect("memory for all");
        }
        let tree = load.finish().await.expect("memory for all");
        println!("{tree:?}, {} levels, loaded in {:?}", tree.height(), start.elapsed());
        for round in 0..3 {
            let naive = probes(&tree, rows, "naive", 1, time).await;
            println!("round {round}: naive {naive:.0}/s");
            let ermia = probes(&tree, rows, "ermia", 1, time).await;
            println!("  ermia {:.2}", ermia / naive);
            for batch in [4, 8, 10, 16, 24, 32] {
                let amac = probes(&tree, rows, "amac-mk", batch, time).await;
                let coro = probes(&tree, rows, "coro-mk", batch, time).await;
                let boxed = probes(&tree, rows, "coro-fn-mk", batch, time).await;
                println!(
                    "  batch {batch}: amac {:.2} coro {:.2} coro-fn {:.2} coro/amac {:.2}",
                    amac / naive,
                    coro / naive,
                    boxed / naive,
                    coro / amac
                );
            }
        }
    };
    runtime.block_on(work).expect("no panic");
}
