//! The cache of footers, within the memory budget: what it keeps is reserved, of memory that nobody needs, and goes back when somebody does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::common::{Result as DfResult, TableReference};
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::cache::{Cache, CacheEntryInfo, CacheKey, CacheValue};
use datafusion::object_store::path::Path;
use weft_rt::memory::{self, Ledger, Reservation};

/// Of the memory limit, the part that footers may take.
const PART: u64 = 32;

/// Bytes that they may take, whatever the limit.
const BYTES_MAX: u64 = 64 << 20;

/// Footers of files, the ones that were used last.
pub(crate) struct KeptFooters {
    ledger: Ledger,
    kept: Mutex<Kept>,
}

struct Kept {
    entries: HashMap<Path, Entry>,
    /// Which file was used when.
    uses: BTreeMap<u64, Path>,
    clock: u64,
    memory: Reservation,
}

struct Entry {
    value: CachedFileMetadataEntry,
    bytes: u64,
    used: u64,
    hits: usize,
}

impl KeptFooters {
    /// None so far.
    pub(crate) fn cache(ledger: &Ledger) -> Arc<FileMetadataCache> {
        let kept = Kept {
            entries: HashMap::new(),
            uses: BTreeMap::new(),
            clock: 0,
            memory: ledger.empty(),
        };
        let footers = Arc::new(KeptFooters { ledger: ledger.clone(), kept: Mutex::new(kept) });
        let weak = Arc::downgrade(&footers);
        ledger.add_cache(weak);
        footers
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_max(&self) -> u64 {
        (self.ledger.limit() / PART).min(BYTES_MAX)
    }
}

impl Kept {
    fn take(&mut self, path: &Path) -> Option<CachedFileMetadataEntry> {
        let entry = self.entries.remove(path)?;
        self.uses.remove(&entry.used);
        self.memory.shrink(entry.bytes);
        Some(entry.value)
    }

    /// Drops those that were not used for longest, until `enough` holds of the bytes that are left.
    fn drop_until(&mut self, enough: impl Fn(u64) -> bool) {
        while !enough(self.memory.bytes()) {
            let Some((_, path)) = self.uses.pop_first() else { return };
            if let Some(entry) = self.entries.remove(&path) {
                self.memory.shrink(entry.bytes);
            }
        }
    }
}

impl memory::Cache for KeptFooters {
    fn give_back(&self, bytes: u64) {
        // Who holds the lock may be asking for memory itself.
        if let Ok(mut kept) = self.kept.try_lock() {
            let target = kept.memory.bytes().saturating_sub(bytes);
            kept.drop_until(|left| left <= target);
        }
    }
}

impl Cache<Path, CachedFileMetadataEntry> for KeptFooters {
    fn get(&self, path: &Path) -> Option<CachedFileMetadataEntry> {
        let mut kept = self.kept();
        kept.clock += 1;
        let Kept { entries, uses, clock, .. } = &mut *kept;
        let entry = entries.get_mut(path)?;
        uses.remove(&entry.used);
        uses.insert(*clock, path.clone());
        entry.used = *clock;
        entry.hits += 1;
        Some(entry.value.clone())
    }

    fn put(&self, path: &Path, value: CachedFileMetadataEntry) -> Option<CachedFileMetadataEntry> {
        let bytes = (CacheKey::size(path) + CacheValue::size(&value)) as u64;
        let most = self.bytes_max();
        let mut kept = self.kept();
        let before = kept.take(path);
        if bytes > most {
            return before;
        }
        kept.drop_until(|used| used + bytes <= most);
        if kept.memory.try_grow_from_free(bytes) {
            kept.clock += 1;
            let used = kept.clock;
            kept.uses.insert(used, path.clone());
            kept.entries.insert(path.clone(), Entry { value, bytes, used, hits: 0 });
        }
        before
    }

    fn remove(&self, path: &Path) -> Option<CachedFileMetadataEntry> {
        self.kept().take(path)
    }

    fn contains_key(&self, path: &Path) -> bool {
        self.kept().entries.contains_key(path)
    }

    fn len(&self) -> usize {
        self.kept().entries.len()
    }

    fn clear(&self) {
        self.kept().drop_until(|bytes| bytes == 0);
    }

    fn name(&self) -> String {
        "footers of Parquet files".to_owned()
    }

    fn cache_limit(&self) -> usize {
        usize::try_from(self.bytes_max()).unwrap_or(usize::MAX)
    }

    // The limit follows the memory limit.
    fn update_cache_limit(&self, _: usize) {}

    fn cache_ttl(&self) -> Option<Duration> {
        None
    }

    fn update_cache_ttl(&self, _: Option<Duration>) {}

    // Files belong to no table.
    fn drop_table_entries(&self, _: &TableReference) -> DfResult<()> {
        Ok(())
    }

    fn list_entries(
        &self,
    ) -> datafusion::common::HashMap<Path, CacheEntryInfo<CachedFileMetadataEntry>> {
        let kept = self.kept();
        let info = |(path, entry): (&Path, &Entry)| {
            let size_bytes = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
            let (value, hits) = (entry.value.clone(), entry.hits);
            (path.clone(), CacheEntryInfo { value, size_bytes, hits, expires: None })
        };
        kept.entries.iter().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::cache::cache_manager::FileMetadata;
    use datafusion::object_store::ObjectMeta;

    use super::*;

    struct Footer(usize);

    impl FileMetadata for Footer {
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }

        fn memory_size(&self) -> usize {
            self.0
        }

        fn extra_info(&self) -> datafusion::common::HashMap<String, String> {
            Default::default()
        }
    }

    fn put(cache: &Arc<FileMetadataCache>, name: &str, bytes: usize) {
        let location = Path::from(name);
        let last_modified = Default::default();
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified,
            size: 1,
            e_tag: None,
            version: None,
        };
        cache.put(&location, CachedFileMetadataEntry::new(meta, Arc::new(Footer(bytes))));
    }

    #[test]
    fn footers_are_reserved_and_the_oldest_go_first() {
        let ledger = Ledger::new(PART * 10_000);
        let cache = KeptFooters::cache(&ledger);
        for name in ["a", "b"] {
            put(&cache, name, 4_000);
        }
        assert!(ledger.used() >= 8_000 && cache.len() == 2);
        assert!(cache.get(&Path::from("a")).is_some());
        put(&cache, "c", 4_000);
        assert!(!cache.contains_key(&Path::from("b")) && cache.contains_key(&Path::from("a")));
        put(&cache, "huge", 20_000);
        assert!(!cache.contains_key(&Path::from("huge")));
        put(&cache, "a", 1_000);
        assert!(ledger.used() < 6_000);
        cache.clear();
        assert_eq!((cache.len(), ledger.used()), (0, 0));
    }

    #[test]
    fn footers_go_when_others_need_their_memory() {
        let ledger = Ledger::new(PART * 10_000);
        let cache = KeptFooters::cache(&ledger);
        put(&cache, "a", 9_000);
        let all = ledger.try_reserve(PART * 10_000);
        assert!(all.is_some() && cache.is_empty());
        put(&cache, "b", 1_000);
        assert!(cache.is_empty());
    }
}
