//! A directory of the operating system or of a simulated disk, behind the same few operations.
//!
//! The simulated one lets tests cut the power at every write, sync and change of a name. Operations on
//! names are short but may wait for the device: on a worker they go through [`off_worker`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::background;
use weft_rt::io::sim::SimDisk;
use weft_rt::io::{Access, File, FileError, IoBuf};
use weft_rt::sync::oneshot;

use crate::error::{Result, StoreError};

/// Largest write of one request, in bytes.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;

/// Alignment of direct I/O, in bytes.
pub(crate) const SECTOR_BYTES: usize = 4096;

/// Longest file that is read as a whole: a manifest far beyond any that is written.
const WHOLE_FILE_BYTES_MAX: u64 = 1 << 30;

/// Where a database lies.
#[derive(Clone)]
pub enum Directory {
    /// A directory of the operating system.
    Os(PathBuf),
    /// A directory of a simulated disk, whose files only the `sim` driver serves.
    Sim(SimDisk, PathBuf),
}

impl Directory {
    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Directory::Os(path) | Directory::Sim(_, path) => path,
        }
    }

    /// True if it is one of the operating system.
    pub fn is_os(&self) -> bool {
        matches!(self, Directory::Os(_))
    }

    /// A directory of the same kind; `path` is relative to this one unless it is absolute.
    pub(crate) fn at(&self, path: &Path) -> Directory {
        let path = self.path().join(path);
        match self {
            Directory::Os(_) => Directory::Os(path),
            Directory::Sim(disk, _) => Directory::Sim(disk.clone(), path),
        }
    }

    fn error(&self, action: &'static str, path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { action, path: path.into(), source }
    }

    /// Makes the directory and those above it.
    pub(crate) fn create(&self) -> Result<()> {
        match self {
            Directory::Os(path) => {
                std::fs::create_dir_all(path).map_err(|error| self.error("create", path, error))
            }
            Directory::Sim(..) => Ok(()),
        }
    }

    /// Opens a file in it; `None` if there is none of that name.
    pub(crate) fn open_file(&self, name: &str, access: Access) -> Result<Option<File>> {
        let path = self.path().join(name);
        let not_found = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        match self {
            Directory::Os(_) => match File::open(&path, access) {
                Ok(file) => Ok(Some(file)),
                Err(FileError::Open { source, .. }) if not_found(&source) => Ok(None),
                Err(error) => Err(error.into()),
            },
            Directory::Sim(disk, _) => match disk.open(&path) {
                Ok(file) => Ok(Some(file)),
                Err(error) if not_found(&error) => Ok(None),
                Err(error) => Err(self.error("open", &path, error)),
            },
        }
    }

    /// Makes an empty file in it, in place of the one of that name, if there is one.
    pub(crate) fn create_file(&self, name: &str) -> Result<File> {
        self.remove(name)?;
        let path = self.path().join(name);
        match self {
            Directory::Os(_) => Ok(File::open(&path, Access::Create)?),
            Directory::Sim(disk, _) => {
                disk.create(&path, 0).map_err(|error| self.error("create", &path, error))
            }
        }
    }

    /// Makes the directory, if need be, and an empty file in it that has no name: gone when it is closed.
    pub(crate) fn create_unnamed(&self) -> Result<File> {
        self.create()?;
        match self {
            Directory::Os(path) => Ok(File::unnamed(path)?),
            Directory::Sim(disk, path) => {
                static NEXT: AtomicU64 = AtomicU64::new(0);
                let name = path.join(format!("spill-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
                disk.create_unnamed(&name).map_err(|error| self.error("create", &name, error))
            }
        }
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path().join(name);
        let removed = match self {
            Directory::Os(_) => std::fs::remove_file(&path),
            Directory::Sim(disk, _) => disk.remove(&path),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Gives a file another name, in place of the one that has it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path().join(from), self.path().join(to));
        match self {
            Directory::Os(_) => std::fs::rename(&from, &to),
            Directory::Sim(disk, _) => disk.rename(&from, &to),
        }
        .map_err(|error| self.error("rename", &from, error))
    }

    /// The names of what is in it; `None` if there is no such directory. A simulated directory is there
    /// if it has files.
    pub(crate) fn list(&self) -> Result<Option<Vec<String>>> {
        let path = self.path();
        let name = |path: &Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        match self {
            Directory::Os(_) => {
                let entries = match std::fs::read_dir(path) {
                    Ok(entries) => entries,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(self.error("list", path, error)),
                };
                let names = entries.map(|entry| entry.map(|entry| name(&entry.path())));
                let names = names.collect::<io::Result<Vec<_>>>();
                names.map(Some).map_err(|error| self.error("list", path, error))
            }
            Directory::Sim(disk, _) => {
                let names = disk.list(path).map_err(|error| self.error("list", path, error))?;
                let names: Vec<_> = names.iter().map(|path| name(path)).collect();
                Ok((!names.is_empty()).then_some(names))
            }
        }
    }

    /// Makes the changes of names durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let path = self.path();
        match self {
            Directory::Os(_) => {
                std::fs::File::open(path).and_then(|directory| directory.sync_all())
            }
            Directory::Sim(disk, _) => disk.sync_directory(path),
        }
        .map_err(|error| self.error("sync", path, error))
    }

    /// Makes the names of a new directory durable up to the top: its own, in its parent.
    pub(crate) fn sync_parents(&self) -> Result<()> {
        if let Directory::Os(path) = self
            && let Ok(path) = path.canonicalize()
            && let Some(parent) = path.parent()
        {
            // A parent that may not be opened was not made by us.
            Directory::Os(parent.into()).sync().ok();
        }
        Ok(())
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.path().display())
    }
}

/// Runs `work`, which may block, on a thread of its own.
pub(crate) async fn off_worker<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    let spawned = background::spawn("weft-names", move || {
        // Nobody waits any more if the runtime has been shut down.
        sender.send(work()).ok();
    });
    let failed = |source| StoreError::Io { action: "start a thread for", path: "".into(), source };
    spawned.map_err(failed)?;
    receiver.await.map_err(|_| failed(io::Error::other("it panicked")))
}

/// All bytes of a file, on a worker.
pub(crate) async fn read_file(file: &File) -> Result<Vec<u8>> {
    let len = file.size()?;
    if len > WHOLE_FILE_BYTES_MAX {
        return Err(StoreError::Damaged {
            path: file.path().into(),
            place: "the file".into(),
            problem: format!("it has {len} bytes, which is more than it can have"),
        });
    }
    if len == 0 {
        return Ok(Vec::new());
    }
    let buffer = IoBuf::zeroed((len as usize).next_multiple_of(SECTOR_BYTES));
    let (result, buffer) = file.read(buffer, 0).await;
    let got = result?;
    Ok(buffer[..got.min(len as usize)].to_vec())
}

/// Writes a new file whose length is a multiple of 4 KiB, on a worker; durable with `sync`, except for
/// its name.
pub(crate) async fn write_file(file: &File, bytes: &[u8], sync: bool) -> Result<()> {
    assert!(bytes.len().is_multiple_of(SECTOR_BYTES), "a file of {} bytes", bytes.len());
    for (at, chunk) in bytes.chunks(WRITE_BYTES_MAX).enumerate() {
        let mut buffer = IoBuf::zeroed(chunk.len());
        buffer.copy_from_slice(chunk);
        let (result, buffer) = file.write(buffer, (at * WRITE_BYTES_MAX) as u64).await;
        let needed_bytes = buffer.len() as u64;
        result.map_err(|error| StoreError::of_write(error, file.path(), needed_bytes))?;
    }
    if sync {
        file.sync().await?;
    }
    Ok(())
}
