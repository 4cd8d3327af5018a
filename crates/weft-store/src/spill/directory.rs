//! The directory for what does not fit in memory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::io::FileError;

use crate::directory::Directory;
use crate::error::{Result, StoreError};

/// How the directories of databases begin that have no place of their own; the number of the process follows.
const PREFIX: &str = "weft-spill-";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Where to spill: `spill` in the database's directory; if that is simulated or may not be written to, a
/// directory among the system's temporary ones. It is made with the first file in it.
#[derive(Debug)]
pub(crate) struct SpillDirectory {
    path: PathBuf,
    /// A temporary database, which goes as a whole.
    whole: Option<Directory>,
}

impl SpillDirectory {
    /// Removes what earlier processes left there.
    pub(crate) fn new(database: &Directory, read_only: bool) -> Result<SpillDirectory> {
        let path = match database {
            Directory::Os(path) if !read_only => path.join("spill"),
            _ => {
                let parent = std::env::temp_dir();
                remove_leftovers(&parent, PREFIX);
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                parent.join(format!("{PREFIX}{}-{number}", std::process::id()))
            }
        };
        let spill = SpillDirectory { path, whole: None };
        spill.remove()?;
        Ok(spill)
    }

    /// Takes the whole database along when it goes.
    pub(crate) fn with_whole(mut self, database: Directory) -> SpillDirectory {
        self.whole = Some(database);
        self
    }

    fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(StoreError::Io { action: "empty", path: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// The directory, which may not be there.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// As [`SpillDirectory::path`], on a simulated disk if the database is.
    pub(crate) fn directory(&self, database: &Directory) -> Directory {
        match database {
            Directory::Sim(..) => database.at(Path::new("spill")),
            Directory::Os(_) => Directory::Os(self.path.clone()),
        }
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            log::warn!("{error}");
        }
        if let Some(Directory::Os(path)) = &self.whole
            && let Err(error) = std::fs::remove_dir_all(path)
        {
            log::warn!("cannot remove the temporary database {}: {error}", path.display());
        }
    }
}

/// The directory that the setting temp_directory names, wherever the current directory will be.
///
/// # Errors
/// [`StoreError::TempDirectory`] if there is none, or nothing can be written there.
pub fn temp_directory(path: &Path) -> Result<Directory> {
    let wrong = |source| StoreError::TempDirectory { path: path.into(), source };
    std::fs::read_dir(path).map_err(wrong)?;
    let directory = Directory::Os(std::path::absolute(path).map_err(wrong)?);
    match directory.create_unnamed() {
        Ok(_) => Ok(directory),
        Err(StoreError::File(FileError::Open { source, .. })) => Err(wrong(source)),
        Err(error) => Err(error),
    }
}

/// Removes the directories in `parent` that processes left there which are gone: those named by `prefix`, the number of
/// the process, and what follows a `-`.
pub fn remove_leftovers(parent: &Path, prefix: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name
            .strip_prefix(prefix)
            .and_then(|rest| rest.split('-').next())
            .and_then(|number| number.parse::<u32>().ok());
        let Some(process) = process else { continue };
        let is_gone = !Path::new("/proc").join(process.to_string()).exists();
        if is_gone
            && let Err(error) = std::fs::remove_dir_all(entry.path())
            // Another process that starts at the same time may have been faster.
            && error.kind() != ErrorKind::NotFound
        {
            log::warn!("cannot remove {}, left by a crash: {error}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_have_left_goes() {
        let parent = tempfile::tempdir().unwrap();
        let alive = format!("{PREFIX}{}-0", std::process::id());
        // No process has so high a number.
        let dead = format!("{PREFIX}{}-7", u32::MAX);
        for name in [&alive, &dead, "weft-spill-x", "other-4294967295-7"] {
            std::fs::create_dir_all(parent.path().join(name).join("inner")).unwrap();
        }
        remove_leftovers(parent.path(), PREFIX);
        let entries = std::fs::read_dir(parent.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        let mut left = vec!["other-4294967295-7".to_owned(), alive, "weft-spill-x".to_owned()];
        left.sort_unstable();
        assert_eq!(names, left);
    }
}
