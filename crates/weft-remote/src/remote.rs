//! What a database knows of files that are elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use object_store::ObjectStore;
use object_store::path::Path;
use weft_rt::cancel::CancelToken;
use weft_rt::memory::Ledger;

use crate::cache::{Cache, CacheOptions, CacheStats};
use crate::file::FileInner;
use crate::list::RemoteFiles;
use crate::requests::{RequestOptions, Requests};
use crate::secrets::Secrets;
use crate::store::RemoteStore;
use crate::stores::Stores;
use crate::upload::UploadsInner;

/// What the statements of a database share about files that are elsewhere. Clones are the same.
#[derive(Clone)]
pub struct Remote {
    pub(crate) shared: Arc<Shared>,
}

/// What clones share.
pub(crate) struct Shared {
    pub(crate) requests: Arc<Requests>,
    pub(crate) stores: Stores,
    pub(crate) secrets: Secrets,
    pub(crate) cache: Cache,
    pub(crate) ledger: Ledger,
    /// Where pages are put whose servers do not know ranges.
    pub(crate) directory: PathBuf,
    /// Files that statements have found, by their places in the store that DataFusion sees.
    files: Mutex<HashMap<Path, Weak<FileInner>>>,
    uploads: Mutex<HashMap<u64, Weak<UploadsInner>>>,
    next: AtomicU64,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Remote")
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Remote")
    }
}

impl Remote {
    /// For a database with this budget, which puts temporary files into `directory`.
    pub fn new(ledger: Ledger, directory: PathBuf) -> Remote {
        let shared = Shared {
            requests: Arc::default(),
            stores: Stores::default(),
            secrets: Secrets::default(),
            cache: Cache::default(),
            ledger,
            directory,
            files: Mutex::default(),
            uploads: Mutex::default(),
            next: AtomicU64::new(0),
        };
        Remote { shared: Arc::new(shared) }
    }

    /// The secrets of the database.
    pub fn secrets(&self) -> &Secrets {
        &self.shared.secrets
    }

    /// How requests are made from now on.
    pub fn set_options(&self, options: RequestOptions) {
        self.shared.requests.set_options(options);
    }

    /// How requests are made.
    pub fn options(&self) -> RequestOptions {
        self.shared.requests.options()
    }

    /// How blocks of files are kept from now on.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn set_cache(&self, options: CacheOptions) -> std::io::Result<()> {
        self.shared.cache.set_options(options)
    }

    /// How blocks of files are kept.
    pub fn cache(&self) -> CacheOptions {
        self.shared.cache.options()
    }

    /// What the cache has, and has done.
    pub fn cache_stats(&self) -> CacheStats {
        self.shared.cache.stats()
    }

    /// Requests that were made since the database was opened.
    pub fn requests(&self) -> u64 {
        self.shared.requests.made()
    }

    /// The files of a statement, which ends with this token.
    pub fn files(&self, token: &CancelToken) -> RemoteFiles {
        RemoteFiles::new(Arc::clone(&self.shared), token.clone())
    }

    /// The files that were found, and the files that are being written, as a store under [`crate::STORE_URL`].
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(RemoteStore::new(Arc::clone(&self.shared)))
    }
}

impl Shared {
    fn files(&self) -> MutexGuard<'_, HashMap<Path, Weak<FileInner>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a file known by its place.
    pub(crate) fn note_file(&self, file: &Arc<FileInner>) {
        let mut files = self.files();
        // Files that no handle refers to any more go when as many again have come.
        if files.len() == files.capacity() {
            files.retain(|_, known| known.strong_count() > 0);
        }
        files.insert(file.location().clone(), Arc::downgrade(file));
    }

    /// The file at this place.
    pub(crate) fn file(&self, location: &Path) -> Option<Arc<FileInner>> {
        self.files().get(location)?.upgrade()
    }

    /// A number for files that are written together.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes files known that are being written.
    pub(crate) fn note_uploads(&self, number: u64, uploads: &Arc<UploadsInner>) {
        let mut known = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, uploads| uploads.strong_count() > 0);
        known.insert(number, Arc::downgrade(uploads));
    }

    /// The files of this number that are being written.
    pub(crate) fn uploads(&self, number: u64) -> Option<Arc<UploadsInner>> {
        let known = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&number)?.upgrade()
    }
}
