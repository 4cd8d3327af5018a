//! Bytes of files that are elsewhere, kept in a directory of this machine: blocks of a fixed size, a file each, for all statements.
//!
//! A range that is read is widened to whole blocks; kept blocks are read from the disk, runs of the others from the network,
//! and then kept. A block belongs to one version of one file ([`FileKey`]): its address, its size, and its tag or else its time, as the
//! store told them to the statement that reads, with its credentials. A file that has changed has another key, so nothing of the old
//! version is ever returned; a file whose server tells neither tag nor time is not kept.
//!
//! Files of blocks (`cache/block.rs`) are written under another name and renamed, and carry their whole key and a checksum: after a crash, or
//! beside other processes that use the directory, what is there is either a whole block or is not taken for one. `cache/index.rs` knows
//! which blocks there are, and which of them leave when there are too many bytes. A disk that refuses a write ends the writing, not
//! the statement: blocks that are there are still read.

mod block;
mod index;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use tokio::sync::watch;

pub(crate) use block::FileKey;
use block::{BlockName, read_block, write_block};
use index::Index;

/// Bytes of a block. The last one of a file may have fewer.
pub(crate) const BLOCK_BYTES: u64 = 256 << 10;

/// What is written between two looks at what other processes have written: this part of the cache's size.
const RESCAN_PART: u64 = 4;

/// Where blocks are kept, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheOptions {
    /// The directory, which is made if it is missing.
    pub directory: Option<PathBuf>,
    /// Bytes that its files may have; nothing is kept at 0.
    pub bytes_max: u64,
}

/// What a cache has and has done since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Files of blocks, as far as this process knows.
    pub blocks: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes of blocks that were read from the cache.
    pub bytes_from_cache: u64,
    /// Bytes that came over the network, whether the cache was on or not.
    pub bytes_from_network: u64,
    /// Bytes of files of blocks that made room for others.
    pub bytes_evicted: u64,
    /// Why nothing more is kept.
    pub problem: Option<String>,
}

/// The cache of a database, which may be off.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    options: RwLock<CacheOptions>,
    blocks: RwLock<Option<Arc<Blocks>>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    from_cache: AtomicU64,
    from_network: AtomicU64,
    evicted: AtomicU64,
}

impl Cache {
    /// Keeps blocks so from now on. Blocks that are more than that leave.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub(crate) fn set_options(&self, options: CacheOptions) -> io::Result<()> {
        let made = match &options.directory {
            Some(directory) if options.bytes_max > 0 => {
                fs::create_dir_all(directory)?;
                let directory = fs::canonicalize(directory)?;
                let counts = Arc::clone(&self.counts);
                let blocks = Blocks::new(directory, options.bytes_max, counts);
                if self.blocks().is_some() {
                    blocks.index().evict(0);
                }
                Some(Arc::new(blocks))
            }
            _ => None,
        };
        *self.blocks.write().unwrap_or_else(PoisonError::into_inner) = made;
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
        Ok(())
    }

    /// The blocks, if the cache is on.
    pub(crate) fn blocks(&self) -> Option<Arc<Blocks>> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn options(&self) -> CacheOptions {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_network(&self, bytes: u64) {
        self.counts.from_network.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let (mut stats, counts) = (CacheStats::default(), &self.counts);
        if let Some(blocks) = self.blocks() {
            (stats.blocks, stats.bytes) = blocks.index().totals();
            stats.problem = blocks.problem().clone();
        }
        stats.bytes_from_cache = counts.from_cache.load(Ordering::Relaxed);
        stats.bytes_from_network = counts.from_network.load(Ordering::Relaxed);
        stats.bytes_evicted = counts.evicted.load(Ordering::Relaxed);
        stats
    }
}

/// The blocks in a directory.
#[derive(Debug)]
pub(crate) struct Blocks {
    directory: PathBuf,
    bytes_max: u64,
    /// Read from the directory when the first block is wanted.
    index: Mutex<Option<Index>>,
    /// Blocks that are on their way.
    claims: Mutex<HashMap<BlockName, watch::Receiver<()>>>,
    /// Why nothing more is written.
    problem: Mutex<Option<String>>,
    counts: Arc<Counts>,
}

/// A block that a reader is fetching, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    blocks: Arc<Blocks>,
    name: BlockName,
    /// Those who wait see it go.
    _sender: watch::Sender<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.blocks.claims().remove(&self.name);
    }
}

/// The index with its directory.
struct OpenIndex<'a> {
    blocks: &'a Blocks,
    index: MutexGuard<'a, Option<Index>>,
}

impl Blocks {
    fn new(directory: PathBuf, bytes_max: u64, counts: Arc<Counts>) -> Blocks {
        Blocks {
            directory,
            bytes_max,
            index: Mutex::default(),
            claims: Mutex::default(),
            problem: Mutex::default(),
            counts,
        }
    }

    fn index(&self) -> OpenIndex<'_> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.get_or_insert_with(|| Index::scan(&self.directory));
        OpenIndex { blocks: self, index }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<BlockName, watch::Receiver<()>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the blocks that a range lies in.
    pub(crate) fn numbers(range: &Range<u64>) -> Range<u64> {
        range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
    }

    /// The bytes of a file of `size` bytes that lie in blocks of these numbers.
    pub(crate) fn bytes_of(numbers: &Range<u64>, size: u64) -> Range<u64> {
        numbers.start * BLOCK_BYTES..(numbers.end * BLOCK_BYTES).min(size)
    }

    /// Says that the caller is about to fetch a block, or gives what ends when the one who does has it.
    pub(crate) fn claim(
        self: &Arc<Self>,
        key: &FileKey,
        number: u64,
    ) -> Result<Claim, watch::Receiver<()>> {
        let name = key.block_name(number);
        let mut claims = self.claims();
        if let Some(other) = claims.get(&name) {
            return Err(other.clone());
        }
        let (sender, receiver) = watch::channel(());
        claims.insert(name, receiver);
        Ok(Claim { blocks: Arc::clone(self), name, _sender: sender })
    }

    /// A block of a file, if it is kept. Blocks the thread.
    pub(crate) fn read(&self, key: &FileKey, number: u64) -> Option<Bytes> {
        let name = key.block_name(number);
        let bytes = Blocks::bytes_of(&(number..number + 1), key.size());
        let length = (bytes.end - bytes.start) as usize;
        match read_block(&self.path(&name), key, number, length) {
            Ok(Some(block)) => {
                let bytes = block.len() as u64;
                self.counts.from_cache.fetch_add(bytes, Ordering::Relaxed);
                self.index().note_use(name, key.file_bytes(bytes));
                Some(block)
            }
            Ok(None) => {
                log::debug!("a block of the cache is damaged, and is read anew: {name}");
                self.index().remove(&[name]);
                None
            }
            // Most often, it is not there.
            Err(_) => {
                self.index().forget(&name);
                None
            }
        }
    }

    /// Keeps a block, if the disk permits. Blocks the thread.
    pub(crate) fn write(&self, key: &FileKey, number: u64, bytes: &[u8]) {
        let (name, file_bytes) = (key.block_name(number), key.file_bytes(bytes.len() as u64));
        if file_bytes > self.bytes_max || self.problem().is_some() {
            return;
        }
        self.index().evict(file_bytes);
        match write_block(&self.path(&name), key, number, bytes) {
            Ok(()) => self.index().insert(name, file_bytes),
            Err(error) => {
                let mut problem = self.problem();
                if problem.is_none() {
                    let directory = self.directory.display();
                    log::warn!("nothing more is kept in the cache '{directory}': {error}");
                    *problem = Some(error.to_string());
                }
            }
        }
    }

    fn path(&self, name: &BlockName) -> PathBuf {
        self.directory.join(name.file_name())
    }
}

impl OpenIndex<'_> {
    fn get(&mut self) -> &mut Index {
        let directory = &self.blocks.directory;
        self.index.get_or_insert_with(|| Index::scan(directory))
    }

    fn totals(mut self) -> (u64, u64) {
        let index = self.get();
        (index.blocks() as u64, index.bytes())
    }

    fn note_use(mut self, name: BlockName, file_bytes: u64) {
        self.get().note_use(name, file_bytes);
    }

    fn forget(mut self, name: &BlockName) {
        self.get().remove(name);
    }

    /// Adds a block that was written; now and then, also blocks of other processes.
    fn insert(mut self, name: BlockName, file_bytes: u64) {
        let (directory, bytes_max) = (self.blocks.directory.clone(), self.blocks.bytes_max);
        let index = self.get();
        index.insert(name, file_bytes);
        if index.written_bytes() >= bytes_max / RESCAN_PART {
            index.rescan(&directory);
            self.evict(0);
        }
    }

    /// Makes room for a file of so many bytes.
    fn evict(mut self, file_bytes: u64) {
        let kept_max = self.blocks.bytes_max.saturating_sub(file_bytes);
        let before = self.get().bytes();
        let leaving = self.get().leaving(kept_max);
        let freed = before - self.get().bytes();
        self.blocks.counts.evicted.fetch_add(freed, Ordering::Relaxed);
        remove_files(&self.blocks.directory, &leaving);
    }

    fn remove(mut self, names: &[BlockName]) {
        for name in names {
            self.get().remove(name);
        }
        remove_files(&self.blocks.directory, names);
    }
}

fn remove_files(directory: &Path, names: &[BlockName]) {
    for name in names {
        // Another process may have removed it.
        if let Err(error) = fs::remove_file(directory.join(name.file_name()))
            && error.kind() != io::ErrorKind::NotFound
        {
            log::debug!("a block of the cache stays: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(directory: &Path, bytes_max: u64) -> (Cache, Arc<Blocks>) {
        let cache = Cache::default();
        let directory = Some(directory.to_owned());
        cache.set_options(CacheOptions { directory, bytes_max }).unwrap();
        let blocks = cache.blocks().unwrap();
        (cache, blocks)
    }

    fn key(tag: &str, size: u64) -> FileKey {
        FileKey::new(format!("http://host/file\n{tag}"), size)
    }

    fn block(seed: u64) -> Vec<u8> {
        (0..BLOCK_BYTES).map(|byte| (byte * 31 + seed) as u8).collect()
    }

    #[test]
    fn a_block_is_one_of_its_version_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (_, blocks) = cache(directory.path(), 1 << 30);
        let (old, new) = (key("a", 3 * BLOCK_BYTES), key("b", 3 * BLOCK_BYTES));
        blocks.write(&old, 1, &block(1));
        assert_eq!(blocks.read(&old, 1).unwrap(), block(1));
        for (other, number) in [(&new, 1), (&old, 0), (&key("a", 2 * BLOCK_BYTES), 1)] {
            assert_eq!(blocks.read(other, number), None);
        }
        // A new process finds it, and another limit does not make it another block.
        let (cache, again) = cache(directory.path(), 1 << 20);
        assert_eq!(again.read(&old, 1).unwrap(), block(1));
        assert_eq!(cache.stats().blocks, 1);
        assert_eq!(cache.stats().bytes_from_cache, BLOCK_BYTES);
    }

    #[test]
    fn a_damaged_block_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, blocks) = cache(directory.path(), 1 << 30);
        let key = key("a", BLOCK_BYTES + 10);
        blocks.write(&key, 0, &block(0));
        let path = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&path).unwrap();
        for place in [0, 9, 13, 17, 30, whole.len() / 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[place] ^= 4;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(blocks.read(&key, 0), None, "byte {place}");
            assert!(!path.exists(), "byte {place}");
        }
        for length in [0, 1, 23, 24, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(blocks.read(&key, 0), None, "{length} bytes");
        }
        assert_eq!(cache.stats().blocks, 0);
        fs::write(&path, &whole).unwrap();
        assert_eq!(blocks.read(&key, 0).unwrap(), block(0));
        assert_eq!(cache.stats().blocks, 1);
    }

    #[test]
    fn the_limit_is_obeyed_and_blocks_in_use_stay() {
        let directory = tempfile::tempdir().unwrap();
        let limit = 10 * (BLOCK_BYTES + 200);
        let (cache, blocks) = cache(directory.path(), limit);
        let key = key("a", 1 << 40);
        for number in 0..50 {
            blocks.write(&key, number, &block(number));
            // Read all the time.
            assert!(blocks.read(&key, 0).is_some(), "{number}");
            assert!(cache.stats().bytes <= limit);
        }
        assert!(blocks.read(&key, 49).is_some() && blocks.read(&key, 20).is_none());
        let on_disk = fs::read_dir(directory.path()).unwrap();
        let on_disk = on_disk.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>();
        assert!(on_disk <= limit && cache.stats().bytes == on_disk, "{on_disk}");
        assert!(cache.stats().bytes_evicted > 39 * BLOCK_BYTES);
        // A lower limit holds at once.
        let options = CacheOptions { bytes_max: limit / 3, ..cache.options() };
        cache.set_options(options).unwrap();
        assert!(cache.stats().bytes <= limit / 3);
    }

    #[test]
    fn processes_share_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let limit = 20 * (BLOCK_BYTES + 200);
        let caches = [cache(directory.path(), limit), cache(directory.path(), limit)];
        let key = key("a", 1 << 40);
        std::thread::scope(|scope| {
            for (number, (_, blocks)) in caches.iter().enumerate() {
                let key = &key;
                scope.spawn(move || {
                    for turn in 0..200_u64 {
                        let wanted = turn * (3 + number as u64) % 60;
                        match blocks.read(key, wanted) {
                            Some(found) => assert_eq!(found, block(wanted)),
                            None => blocks.write(key, wanted, &block(wanted)),
                        }
                    }
                });
            }
        });
        let on_disk = fs::read_dir(directory.path()).unwrap();
        let on_disk = on_disk.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>();
        assert!(on_disk <= 2 * limit, "{on_disk}");
    }

    #[test]
    fn a_disk_that_refuses_ends_the_writing_alone() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("cache");
        let (cache, blocks) = cache(&place, 1 << 30);
        let key = key("a", 4 * BLOCK_BYTES);
        blocks.write(&key, 0, &block(0));
        let kept = fs::read_dir(&place).unwrap().next().unwrap().unwrap();
        let (name, bytes) = (kept.file_name(), fs::read(kept.path()).unwrap());
        // A file in the place of the directory refuses every user, root among them.
        fs::remove_dir_all(&place).unwrap();
        fs::write(&place, b"").unwrap();
        blocks.write(&key, 1, &block(1));
        assert!(cache.stats().problem.is_some());
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        fs::write(place.join(name), bytes).unwrap();
        blocks.write(&key, 2, &block(2));
        assert!(blocks.read(&key, 2).is_none() && blocks.read(&key, 0).is_some());
        cache.set_options(cache.options()).unwrap();
        cache.blocks().unwrap().write(&key, 2, &block(2));
        assert!(cache.blocks().unwrap().read(&key, 2).is_some());
        assert_eq!(cache.stats().problem, None);
    }

    #[test]
    fn one_fetches_a_block_that_several_want() {
        let directory = tempfile::tempdir().unwrap();
        let (_, blocks) = cache(directory.path(), 1 << 30);
        let key = key("a", BLOCK_BYTES);
        let claim = blocks.claim(&key, 0).unwrap();
        let waiting = blocks.claim(&key, 0).unwrap_err();
        assert!(blocks.claim(&key, 1).is_ok());
        assert!(waiting.has_changed().is_ok());
        drop(claim);
        assert!(waiting.has_changed().is_err());
        assert!(blocks.claim(&key, 0).is_ok());
    }
}
