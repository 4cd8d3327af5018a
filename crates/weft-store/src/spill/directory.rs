//! The directory for what does not fit in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::directory::Directory;
use crate::error::{Result, StoreError};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Where to spill: `spill` in the database's directory; if that is simulated or may not be written to, a
/// directory among the system's temporary ones.
#[derive(Debug)]
pub(crate) struct SpillDirectory {
    path: PathBuf,
    made: Mutex<bool>,
    /// A temporary database, which goes as a whole.
    whole: Option<Directory>,
}

impl SpillDirectory {
    /// Removes what an earlier process left there.
    pub(crate) fn new(database: &Directory, read_only: bool) -> Result<SpillDirectory> {
        let path = match database {
            Directory::Os(path) if !read_only => path.join("spill"),
            _ => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                std::env::temp_dir().join(format!("weft-spill-{}-{number}", std::process::id()))
            }
        };
        let spill = SpillDirectory { path, made: Mutex::new(false), whole: None };
        spill.remove()?;
        Ok(spill)
    }

    /// Takes the whole database along when it goes.
    pub(crate) fn with_whole(mut self, database: Directory) -> SpillDirectory {
        self.whole = Some(database);
        self
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> StoreError {
        StoreError::Io { action, path: self.path.clone(), source }
    }

    fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.io("empty", error))
            }
            _ => Ok(()),
        }
    }

    /// The directory, which is made when it is first asked for.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !*made {
            std::fs::create_dir_all(&self.path).map_err(|error| self.io("create", error))?;
            *made = true;
        }
        Ok(self.path.clone())
    }
}

impl SpillDirectory {
    /// As [`SpillDirectory::path`], on a simulated disk if the database is.
    pub(crate) fn directory(&self, database: &Directory) -> Result<Directory> {
        match database {
            Directory::Sim(..) => Ok(database.at(Path::new("spill"))),
            Directory::Os(_) => self.path().map(Directory::Os),
        }
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        if *self.made.get_mut().unwrap_or_else(PoisonError::into_inner)
            && let Err(error) = self.remove()
        {
            log::warn!("{error}");
        }
        if let Some(Directory::Os(path)) = &self.whole
            && let Err(error) = std::fs::remove_dir_all(path)
        {
            log::warn!("cannot remove the temporary database {}: {error}", path.display());
        }
    }
}
