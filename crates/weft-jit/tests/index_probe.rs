//! Generated coroutines probe an index: many of them at once on a worker, 128 keys each, some of whose calls suspend.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{BulkLoad, IndexError, Space, TreeForm};
use weft_jit::coroutine::{Callee, Found, MultiGet};
use weft_rt::io::{Access, DriverKind, File};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

/// Places in an unbounded file.
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

#[test]
fn an_index_is_probed() {
    let options =
        RuntimeOptions { workers: 1, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
    let runtime = Runtime::new(&options).expect("a runtime");
    let path = std::env::temp_dir().join(format!("weft-jit-probe-{}", std::process::id()));
    std::fs::write(&path, []).expect("a file");
    let file = File::open(&path, Access::ReadWrite).expect("a file");
    std::fs::remove_file(&path).ok();
    let ledger = Ledger::new(1 << 30);
    let code = MultiGet::new(&ledger).expect("code for this processor");
    let pool = BufferPool::dynamic(Devices::new(vec![file]), ledger, PoolOptions::default());
    let pool = pool.expect("address space");
    let work = move || async move {
        let mut load = BulkLoad::new(pool, Arc::new(Places::default()), TreeForm::new(true));
        for row in 0..50_000_u64 {
            load.push(&(row * 2).to_be_bytes(), row, &[]).await.expect("memory for all");
        }
        let tree = load.finish().await.expect("memory for all");
        let callee = Callee::new(|key| {
            let tree = &tree;
            async move {
                if key % 3 == 0 {
                    weft_rt::yield_now().await;
                }
                match tree.get(&key.to_be_bytes()).await {
                    Ok(Some(row)) => [1, row],
                    Ok(None) => [0, 0],
                    Err(_) => [2, 0],
                }
            }
        });
        let keys: Vec<u64> = (0..20 * 128).map(|key| key * 37 % 100_000).collect();
        let mut results: Vec<Found> = vec![[9; 2]; keys.len()];
        let chunks = keys.chunks(128).zip(results.chunks_mut(128));
        join_all(chunks.map(|(keys, results)| code.call(&callee, keys, results))).await;
        for (key, found) in keys.iter().zip(&results) {
            let expected = if key % 2 == 0 { [1, key / 2] } else { [0, 0] };
            assert_eq!(*found, expected, "{key}");
        }
    };
    runtime.block_on(work).expect("no panic");
}
