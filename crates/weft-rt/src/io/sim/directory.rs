//! The names of a simulated disk's files, and which of them a loss of power would leave.
//!
//! Creations, renames and removals are volatile until the directory is synced. A crash keeps or
//! loses each of those that were not, whatever became of the others; each one alone is atomic.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::SimFile;
use super::random::Random;

type Names = BTreeMap<PathBuf, Arc<SimFile>>;

/// All names of a disk. Directories exist by being part of a name.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: Names,
    durable: Names,
    volatile: Vec<NameChange>,
}

#[derive(Debug)]
struct NameChange {
    file: Arc<SimFile>,
    /// The file's only name from then on; none if it is removed.
    name: Option<PathBuf>,
    /// The directory whose sync makes the change durable.
    directory: PathBuf,
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        names.retain(|_, file| !Arc::ptr_eq(file, &self.file));
        if let Some(name) = &self.name {
            names.insert(name.clone(), self.file.clone());
        }
    }
}

fn parent(name: &Path) -> PathBuf {
    name.parent().unwrap_or(Path::new("")).to_path_buf()
}

fn not_found(name: &Path) -> io::Error {
    let message = format!("{} does not exist on the simulated disk", name.display());
    io::Error::new(io::ErrorKind::NotFound, message)
}

impl Directory {
    /// Exactly these files, all durable.
    pub(crate) fn of(names: Names) -> Directory {
        Directory { durable: names.clone(), names, volatile: Vec::new() }
    }

    /// # Errors
    /// `NotFound`.
    pub(crate) fn get(&self, name: &Path) -> io::Result<Arc<SimFile>> {
        self.names.get(name).cloned().ok_or_else(|| not_found(name))
    }

    fn change(&mut self, file: Arc<SimFile>, name: Option<PathBuf>, directory: PathBuf) {
        let change = NameChange { file, name, directory };
        change.apply(&mut self.names);
        self.volatile.push(change);
    }

    /// # Errors
    /// `AlreadyExists`.
    pub(crate) fn create(&mut self, name: &Path, file: Arc<SimFile>) -> io::Result<()> {
        if self.names.contains_key(name) {
            let message = format!("{} exists on the simulated disk already", name.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        self.change(file, Some(name.to_path_buf()), parent(name));
        Ok(())
    }

    /// Returns the file that had the new name before.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<Arc<SimFile>>> {
        let file = self.get(from)?;
        let replaced = self.names.get(to).filter(|old| !Arc::ptr_eq(old, &file)).cloned();
        self.change(file, Some(to.to_path_buf()), parent(to));
        Ok(replaced)
    }

    /// Returns the file that had the name.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn remove(&mut self, name: &Path) -> io::Result<Arc<SimFile>> {
        let file = self.get(name)?;
        self.change(file.clone(), None, parent(name));
        Ok(file)
    }

    /// The names in `directory` itself, in order.
    pub(crate) fn list(&self, directory: &Path) -> Vec<PathBuf> {
        self.names.keys().filter(|name| parent(name) == directory).cloned().collect()
    }

    /// Makes the changes of `directory` durable.
    pub(crate) fn sync(&mut self, directory: &Path) {
        let durable = &mut self.durable;
        self.volatile.retain(|change| {
            let synced = change.directory == directory;
            if synced {
                change.apply(durable);
            }
            !synced
        });
    }

    /// The names that a loss of power at this moment leaves.
    pub(crate) fn after_crash(&self, lost: f64, random: &mut Random) -> Names {
        let mut names = self.durable.clone();
        for change in &self.volatile {
            if !random.chance(lost) {
                change.apply(&mut names);
            }
        }
        names
    }
}
