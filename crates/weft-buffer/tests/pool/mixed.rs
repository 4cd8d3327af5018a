//! Pages of many sizes that tell which page they are, and a dynamic pool over them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use weft_buffer::page::{self, PageHeader};
use weft_buffer::{
    BufferError, BufferPool, CacheStats, Devices, PageId, PageTable, PoolOptions, StaticPool,
    SwipState,
};
use weft_rt::io::File;
use weft_rt::memory::Ledger;
use weft_rt::{MorselOptions, MorselQueue, Runtime, sleep};

use crate::drivers::{Setup, pattern};

pub const UNIT: u64 = 4096;
const KIND: u8 = 9;

/// Pages spread round-robin over two devices.
#[derive(Clone)]
pub struct Pages {
    pub ids: Arc<[PageId]>,
    contents: Arc<[Vec<u8>]>,
}

impl Pages {
    /// Pages of so many units of 4 KiB each.
    pub fn of(units: impl IntoIterator<Item = usize>) -> Pages {
        let mut ends = [0_u64; 2];
        let ids = units.into_iter().enumerate().map(|(number, units)| {
            let (device, bytes) = (number % 2, units * 4096);
            let id = PageId::new(device as u8, ends[device], bytes);
            ends[device] += bytes as u64;
            id
        });
        let ids: Arc<[PageId]> = ids.collect();
        let content = |(number, id): (usize, &PageId)| pattern(number as u64, id.bytes());
        let contents = ids.iter().enumerate().map(content).collect();
        Pages { ids, contents }
    }

    /// Small pages.
    pub fn small(count: usize) -> Pages {
        Pages::of(std::iter::repeat_n(1, count))
    }

    /// Pages of any size up to `units_max`, small ones more often.
    pub fn mixed(seed: u64, count: usize, units_max: usize) -> Pages {
        let mut random = fastrand::Rng::with_seed(seed);
        Pages::of((0..count).map(|_| {
            let most = random.usize(1..=units_max);
            random.usize(1..=most)
        }))
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn bytes(&self) -> u64 {
        self.ids.iter().map(|id| id.bytes() as u64).sum()
    }

    fn header(&self, number: usize) -> PageHeader {
        PageHeader { tuple_count: number as u16, kind: KIND, id: self.ids[number] }
    }

    /// The bytes of a page as they lie on its device.
    pub fn sealed(&self, number: usize) -> Vec<u8> {
        let mut page = self.contents[number].clone();
        page::seal(&mut page, self.header(number));
        page
    }

    /// The files; `change` may change each page before it is sealed.
    pub fn write_with(&self, setup: &Setup, change: impl Fn(&mut [u8])) -> Vec<File> {
        let file = |device: usize| {
            let numbers = (0..self.len()).filter(|number| number % 2 == device);
            let bytes: Vec<u8> = numbers
                .flat_map(|number| {
                    let mut page = self.contents[number].clone();
                    change(&mut page);
                    page::seal(&mut page, self.header(number));
                    page
                })
                .collect();
            setup.file(&format!("device-{device}"), &bytes)
        };
        vec![file(0), file(1)]
    }

    pub fn write(&self, setup: &Setup) -> Vec<File> {
        self.write_with(setup, |_| ())
    }

    pub fn table(&self) -> Arc<PageTable> {
        PageTable::new(self.ids.iter().copied())
    }

    /// That these are the bytes of page `number`.
    pub fn assert_is(&self, bytes: &[u8], number: usize) {
        assert_eq!(page::header(bytes), self.header(number), "page {number}");
        assert!(bytes[16..] == self.contents[number][16..], "page {number}");
    }
}

/// A pool that gives everything back.
pub fn pool_over(files: Vec<File>, ledger: &Ledger) -> Arc<BufferPool> {
    let options = PoolOptions { bytes_min: Some(0), bytes_max: Some(64 << 20) };
    BufferPool::dynamic(Devices::new(files), ledger.clone(), options).unwrap()
}

pub fn units(count: u64) -> Ledger {
    Ledger::new(count * UNIT)
}

/// Runs `work` for the numbers up to `count`, in `depth` coroutines on each worker.
pub fn for_each<F>(
    runtime: &Runtime,
    depth: usize,
    count: u64,
    work: impl Fn(u64) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Result<(), BufferError>> + 'static,
{
    let queue = MorselQueue::new(count, 1);
    let run = runtime.run_morsels(
        &MorselOptions::new(depth),
        move |_| queue.next(),
        |_| (),
        move |_, morsel| work(morsel.start),
    );
    run.wait().unwrap();
}

/// Fixes the pages one by one, on one worker, as points.
pub fn fix_all(
    runtime: &Runtime,
    pool: &Arc<BufferPool>,
    table: &Arc<PageTable>,
    pages: std::ops::Range<usize>,
) {
    let (pool, table) = (pool.clone(), table.clone());
    let run = runtime.block_on(move || async move {
        for page in pages {
            pool.fix(&table, page).await.unwrap();
        }
    });
    run.unwrap();
}

/// Takes everything from the pool that nobody uses, which is everything.
pub fn give_back(runtime: &Runtime, pool: &Arc<BufferPool>, table: &PageTable, ledger: &Ledger) {
    let shared = pool.clone();
    let left = runtime.block_on(move || async move {
        // Requests that were given up are still under way: on a busy machine for long.
        for _ in 0..20_000 {
            if shared.shrink_to(0).await.unwrap() == 0 {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        shared.cache_stats()
    });
    let left: CacheStats = left.unwrap();
    let bytes = (left.bytes_used, left.bytes_reserved, ledger.used());
    assert_eq!(bytes, (0, 0, 0), "memory that was not given back");
    assert_eq!(pool.pages_in_memory(), 0);
    for (number, swip) in table.swips().iter().enumerate() {
        assert_eq!(swip.state(), SwipState::Cold(table.id(number)), "page {number}");
    }
}

/// A pool of the experiments over small pages: what is on the devices, read by somebody else.
pub fn fresh(files: Vec<File>, table: Arc<PageTable>) -> StaticPool {
    StaticPool::new(Devices::new(files), table, 4).unwrap()
}
