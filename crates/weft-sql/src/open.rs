//! Where a database lies: its directory, or a temporary one for a database in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_rt::Runtime;
use weft_rt::memory::Ledger;
use weft_store::spill::remove_leftovers;
use weft_store::{Directory, Store, StoreError, StoreOptions};

use crate::engine::EngineOptions;
use crate::error::{Result, SqlError};
use crate::settings::DatabaseSettings;

/// How the directories of databases in memory begin; the number of the process follows.
const TEMPORARY_PREFIX: &str = "weft-memory-";

/// How long a database that this process has just closed may still be locked.
const CLOSING_MAX: Duration = Duration::from_secs(2);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Opens the store of a database.
///
/// # Errors
/// [`crate::ErrorKind::Storage`] if it cannot be opened.
pub(crate) fn open_store(
    options: &EngineOptions,
    settings: &DatabaseSettings,
    runtime: Arc<Runtime>,
    ledger: Ledger,
) -> Result<Arc<Store>> {
    let path = match &options.path {
        Some(path) => path.clone(),
        None => temporary_directory(settings),
    };
    let directory = match &options.sim {
        Some(disk) => Directory::Sim(disk.clone(), path),
        None => Directory::Os(path),
    };
    let temporary = options.path.is_none();
    let store_options = StoreOptions {
        read_only: options.read_only && !temporary,
        create: options.create || temporary,
        devices: options.devices.clone(),
        temporary,
    };
    let started = Instant::now();
    loop {
        let opened = Store::open(&directory, &store_options, Arc::clone(&runtime), ledger.clone());
        match opened {
            // A statement that was cancelled when the database was closed may be just ending.
            Err(StoreError::Locked { ref holder, .. })
                if holder.starts_with("this process") && started.elapsed() < CLOSING_MAX =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(SqlError::from(error)),
            Ok(store) => return Ok(store),
        }
    }
}

/// A new directory for a database in memory; those that crashed processes left behind are removed.
fn temporary_directory(settings: &DatabaseSettings) -> PathBuf {
    let parent = settings.temp_directory.clone().unwrap_or_else(std::env::temp_dir);
    remove_leftovers(&parent, TEMPORARY_PREFIX);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    parent.join(format!("{TEMPORARY_PREFIX}{}-{number}", std::process::id()))
}
