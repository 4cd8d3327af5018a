//! Random lookups in an index that is larger than memory: Weft's B+tree with its asynchronous and its blocking driver, and redb.
//!
//! `cargo run --release --manifest-path bench/index/Cargo.toml -- [ROWS] [DIRECTORY] [SECONDS]`: keys and rows of eight bytes, one thread,
//! and memory for a quarter of the tree. redb has a cache of the same size and reads its file past the system's cache, as Weft does.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition};
use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{BulkLoad, IndexError, Space, Tree, TreeForm};
use weft_rt::io::{Access, DriverKind, File};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Lookups in flight of the asynchronous driver.
const BATCH: usize = 256;
/// The unit of transfers past the system's cache, bytes.
const UNIT_BYTES: u64 = 4096;
/// Memory for the load, bytes.
const LOAD_BYTES: u64 = 1 << 30;
const ROWS: TableDefinition<u64, u64> = TableDefinition::new("rows");

/// Places one after the other.
struct Places(Mutex<u64>);

impl Space for Places {
    fn allocate(&self, bytes: usize) -> Result<PageId, IndexError> {
        let mut end = self.0.lock().unwrap();
        *end += bytes as u64;
        Ok(PageId::new(0, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

fn runtime(driver: DriverKind) -> Result<Runtime, Failure> {
    Ok(Runtime::new(&RuntimeOptions {
        workers: 1,
        driver,
        io_depth: BATCH,
        ..RuntimeOptions::default()
    })?)
}

fn pool(path: &Path, bytes: u64) -> Result<Arc<BufferPool>, Failure> {
    let devices = Devices::new(vec![File::open(path, Access::ReadWrite)?]);
    Ok(BufferPool::dynamic(devices, Ledger::new(bytes), PoolOptions::default())?)
}

/// Loads the tree; gives its root and its bytes.
fn load(path: &Path, rows: u64) -> Result<(PageId, u64), Failure> {
    std::fs::write(path, [])?;
    let pool = pool(path, LOAD_BYTES)?;
    let work = move || async move {
        let mut load = BulkLoad::new(pool, Arc::new(Places(Mutex::new(0))), TreeForm::new(true));
        for row in 0..rows {
            load.push(&row.to_be_bytes(), row, &[]).await?;
        }
        let tree = load.finish().await?;
        let flushed = tree.flush().await?;
        let bytes = tree.pages().iter().map(|page| page.bytes() as u64).sum();
        Ok::<_, IndexError>((flushed.root, bytes))
    };
    Ok(runtime(DriverKind::Auto)?.block_on(work)??)
}

/// Lookups per second of Weft.
fn weft(
    path: &Path,
    root: PageId,
    (rows, bytes): (u64, u64),
    driver: DriverKind,
    time: Duration,
) -> Result<f64, Failure> {
    let pool = pool(path, bytes)?;
    let batch = if matches!(driver, DriverKind::Blocking) { 1 } else { BATCH };
    let work = move || async move {
        let tree = Tree::open(pool, Arc::new(Places(Mutex::new(u64::MAX / 2))), root).await?;
        // The first round fills the memory.
        let mut rate = 0.0;
        for _ in 0..2 {
            let mut random = fastrand::Rng::with_seed(7);
            let (start, mut found) = (Instant::now(), 0);
            while start.elapsed() < time {
                let keys: Vec<[u8; 8]> =
                    (0..4 * BATCH).map(|_| random.u64(..rows).to_be_bytes()).collect();
                let got = tree.multi_get(&keys, batch).await?;
                assert!(
                    got.iter().zip(&keys).all(|(row, key)| *row == Some(u64::from_be_bytes(*key)))
                );
                found += got.len();
            }
            rate = found as f64 / start.elapsed().as_secs_f64();
        }
        Ok::<_, IndexError>(rate)
    };
    Ok(runtime(driver)?.block_on(work)??)
}

/// A file that is read past the system's cache.
#[derive(Debug)]
struct Direct {
    buffered: std::fs::File,
    direct: std::fs::File,
}

impl Direct {
    fn open(path: &Path) -> std::io::Result<Direct> {
        let buffered =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        Ok(Direct {
            buffered,
            direct: OpenOptions::new().read(true).custom_flags(flags).open(path)?,
        })
    }
}

impl StorageBackend for Direct {
    fn len(&self) -> Result<u64, std::io::Error> {
        Ok(self.buffered.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        let start = offset / UNIT_BYTES * UNIT_BYTES;
        let bytes = ((offset - start) as usize + out.len()).next_multiple_of(UNIT_BYTES as usize);
        let mut room = vec![0u8; bytes + UNIT_BYTES as usize];
        let shift = room.as_ptr().align_offset(UNIT_BYTES as usize);
        let read = self.direct.read_at(&mut room[shift..shift + bytes], start)?;
        let within = (offset - start) as usize;
        if read < within + out.len() {
            self.buffered.read_exact_at(out, offset)?;
            return Ok(());
        }
        out.copy_from_slice(&room[shift + within..][..out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        Ok(self.buffered.set_len(len)?)
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        Ok(self.buffered.sync_data()?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        Ok(self.buffered.write_all_at(data, offset)?)
    }
}

/// Lookups per second of redb.
fn redb(path: &Path, (rows, bytes): (u64, u64), time: Duration) -> Result<f64, Failure> {
    if !path.exists() {
        let database = Database::builder().set_cache_size(LOAD_BYTES as usize).create(path)?;
        let write = database.begin_write()?;
        {
            let mut table = write.open_table(ROWS)?;
            for row in 0..rows {
                table.insert(row, row)?;
            }
        }
        write.commit()?;
    }
    let database = Database::builder()
        .set_cache_size(bytes as usize)
        .create_with_backend(Direct::open(path)?)?;
    let read = database.begin_read()?;
    let table = read.open_table(ROWS)?;
    let mut rate = 0.0;
    for _ in 0..2 {
        let mut random = fastrand::Rng::with_seed(7);
        let (start, mut found) = (Instant::now(), 0);
        while start.elapsed() < time {
            for _ in 0..64 {
                let key = random.u64(..rows);
                assert_eq!(table.get(key)?.map(|row| row.value()), Some(key));
            }
            found += 64;
        }
        rate = found as f64 / start.elapsed().as_secs_f64();
    }
    Ok(rate)
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(Ok(20_000_000), |rows| rows.parse())?;
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |seconds| seconds.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let (path, other) = (directory.join("weft-index.pages"), directory.join("index.redb"));
    let (root, bytes) = load(&path, rows)?;
    let memory = bytes / 4;
    println!("{rows} keys, tree of {} MiB, memory {} MiB", bytes >> 20, memory >> 20);
    let asynchronous = weft(&path, root, (rows, memory), DriverKind::Auto, time)?;
    println!("asynchronous {asynchronous:.0}/s");
    let blocking = weft(&path, root, (rows, memory), DriverKind::Blocking, time)?;
    println!("blocking     {blocking:.0}/s, {:.1} times", asynchronous / blocking);
    let redb = redb(&other, (rows, memory), time)?;
    println!("redb         {redb:.0}/s, {:.1} times", asynchronous / redb);
    Ok(())
}
