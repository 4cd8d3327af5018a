//! Files and block devices, opened for direct I/O.

use std::fmt;
use std::fs::FileType;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sim::SimFile;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    Read,
    /// Reads and writes; the file must exist.
    ReadWrite,
    /// Reads and writes; the file must not exist yet.
    Create,
}

/// What went wrong with a file, naming it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be opened.
    #[error("cannot open {path} for {purpose}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What it was to be opened for.
        purpose: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A request failed.
    #[error("cannot {operation} {len} bytes at offset {offset} of {path}: {source}")]
    Transfer {
        /// `read`, `write`, `sync`, `allocate` or `clear`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Byte offset of the request.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The file ends before the bytes asked for.
    #[error(
        "{path} ends after {got} of the {len} bytes asked for at offset {offset}: it is truncated"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Byte offset of the request.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes there were.
        got: u64,
    },
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    Kind {
        /// The path.
        path: PathBuf,
    },
}

/// What lies behind a [`File`].
#[derive(Debug)]
pub(crate) enum Backing {
    /// A descriptor of the operating system.
    Os(OwnedFd),
    /// A file of a simulated disk, which only the `sim` driver serves.
    Sim(Arc<SimFile>),
}

struct FileInner {
    path: PathBuf,
    backing: Backing,
    direct: bool,
    block: bool,
}

/// An open file or block device; clones share it, and the last one closes it.
#[derive(Clone)]
pub struct File {
    inner: Arc<FileInner>,
}

impl File {
    /// Opens a file or block device with O_DIRECT; without, where its file system has no direct I/O. A
    /// block device that is to be written is taken for this process alone: what is mounted is refused.
    ///
    /// # Errors
    /// [`FileError::Open`] with the system's reason; [`FileError::Kind`] for a directory or pipe.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<File, FileError> {
        let path = path.as_ref();
        let transfers = |kind: FileType| kind.is_file() || kind.is_block_device();
        // Before opening, which would wait for the other end of a pipe.
        let found = std::fs::metadata(path).map(|found| found.file_type());
        if found.as_ref().is_ok_and(|kind| !transfers(*kind)) {
            return Err(FileError::Kind { path: path.into() });
        }
        let block = found.is_ok_and(|kind| kind.is_block_device());
        let alone = if block && access == Access::ReadWrite { libc::O_EXCL } else { 0 };
        let open = |flags: i32| {
            std::fs::OpenOptions::new()
                .read(true)
                .write(access != Access::Read)
                .create_new(access == Access::Create)
                .custom_flags(flags | alone)
                .open(path)
        };
        let purpose = match access {
            Access::Read => "reading",
            Access::ReadWrite => "writing",
            Access::Create => "creation",
        };
        let (file, direct) = match open(libc::O_DIRECT) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // A file system without direct I/O may have created the file before refusing.
                let plain = if access == Access::Create && path.exists() {
                    std::fs::OpenOptions::new().read(true).write(true).open(path)
                } else {
                    open(0)
                };
                match plain {
                    Ok(file) => (file, false),
                    Err(source) => {
                        return Err(FileError::Open { path: path.into(), purpose, source });
                    }
                }
            }
            Err(source) => return Err(FileError::Open { path: path.into(), purpose, source }),
        };
        let kind = file
            .metadata()
            .map_err(|source| FileError::Open { path: path.into(), purpose, source })?
            .file_type();
        if !transfers(kind) {
            return Err(FileError::Kind { path: path.into() });
        }
        let backing = Backing::Os(file.into());
        let inner = FileInner { path: path.into(), backing, direct, block };
        Ok(File { inner: Arc::new(inner) })
    }

    /// Opens a file for reading through the operating system's page cache: for files of other programs, which may be read again soon.
    /// Offsets and lengths of reads may be any.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn open_cached(path: impl AsRef<Path>) -> Result<File, FileError> {
        let path = path.as_ref();
        let failed = |source| FileError::Open { path: path.into(), purpose: "reading", source };
        // Before opening, which would wait for the other end of a pipe.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(FileError::Kind { path: path.into() });
        }
        let file = std::fs::File::open(path).map_err(failed)?;
        let backing = Backing::Os(file.into());
        let inner = FileInner { path: path.into(), backing, direct: false, block: false };
        Ok(File { inner: Arc::new(inner) })
    }

    /// Makes a file without a name in a directory, to read and write: it is gone when its last handle is closed, and
    /// when the process ends, however it ends. For direct I/O, where the file system has that.
    ///
    /// # Errors
    /// [`FileError::Open`] with the system's reason.
    pub fn unnamed(directory: &Path) -> Result<File, FileError> {
        let failed = |source| FileError::Open {
            path: directory.into(),
            purpose: "a file without a name",
            source,
        };
        let open = |flags: i32| {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_TMPFILE | flags).open(directory)
        };
        let opened = match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                open(0).map(|it| (it, false))
            }
            opened => opened.map(|it| (it, true)),
        };
        let (file, direct) = match opened {
            Ok(opened) => opened,
            Err(error) if lacks_unnamed_files(&error) => return Self::unlinked(directory),
            Err(error) => return Err(failed(error)),
        };
        let backing = Backing::Os(file.into());
        let inner = FileInner { path: directory.into(), backing, direct, block: false };
        Ok(File { inner: Arc::new(inner) })
    }

    /// Makes a file in a directory, and takes its name away at once.
    fn unlinked(directory: &Path) -> Result<File, FileError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("unnamed-{}-{number}", std::process::id()));
        let file = File::open(&path, Access::Create)?;
        std::fs::remove_file(&path).map_err(|source| FileError::Open {
            path: path.clone(),
            purpose: "removal",
            source,
        })?;
        Ok(file)
    }

    /// A handle on a file of a simulated disk.
    pub(crate) fn simulated(path: PathBuf, file: Arc<SimFile>) -> File {
        let backing = Backing::Sim(file);
        File { inner: Arc::new(FileInner { path, backing, direct: true, block: false }) }
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// True if transfers bypass the operating system's page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// True if it is a block device, whose size never changes.
    pub fn is_block_device(&self) -> bool {
        self.inner.block
    }

    /// Bytes in the file or on the block device now.
    ///
    /// # Errors
    /// [`FileError::Transfer`] with the system's reason.
    pub fn size(&self) -> Result<u64, FileError> {
        match &self.inner.backing {
            Backing::Sim(file) => Ok(file.len()),
            Backing::Os(fd) => {
                // SAFETY: seeking to the end touches no memory, and nobody uses the offset.
                let end = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_END) };
                u64::try_from(end).map_err(|_| FileError::Transfer {
                    operation: "find the end of",
                    path: self.inner.path.clone(),
                    offset: 0,
                    len: 0,
                    source: io::Error::last_os_error(),
                })
            }
        }
    }

    /// Gives the space of a file back that nobody uses any more, on this thread: of a large one that takes its time. A driver
    /// may keep what is closed everywhere else open for a while, and would free its space on a worker.
    ///
    /// # Errors
    /// [`FileError::Transfer`] with the system's reason.
    pub fn clear(&self) -> Result<(), FileError> {
        // What is left of a simulated file goes with its last handle.
        let Backing::Os(fd) = &self.inner.backing else { return Ok(()) };
        // SAFETY: no memory is touched.
        match unsafe { libc::ftruncate(fd.as_raw_fd(), 0) } {
            0 => Ok(()),
            _ => Err(FileError::Transfer {
                operation: "clear",
                path: self.inner.path.clone(),
                offset: 0,
                len: 0,
                source: io::Error::last_os_error(),
            }),
        }
    }

    /// The descriptor, for drivers that serve the operating system's files.
    pub(crate) fn raw_fd(&self) -> Option<RawFd> {
        match &self.inner.backing {
            Backing::Os(fd) => Some(fd.as_raw_fd()),
            Backing::Sim(_) => None,
        }
    }

    /// What lies behind the handle.
    pub(crate) fn backing(&self) -> &Backing {
        &self.inner.backing
    }

    /// A handle that does not keep the file open, and an identity to compare handles by.
    pub(crate) fn downgrade(&self) -> WeakFile {
        WeakFile(Arc::downgrade(&self.inner))
    }

    /// Equal for clones of one handle, and only for them while any is alive.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({})", self.inner.path.display())
    }
}

/// True if a file system has only files with names.
fn lacks_unnamed_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT))
}

/// A [`File`] that may have been closed.
pub(crate) struct WeakFile(std::sync::Weak<FileInner>);

impl WeakFile {
    /// True while a handle keeps the file open.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_names_leave_nothing() {
        let directory = std::env::temp_dir().join(format!("weft-unnamed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for make in [File::unnamed, File::unlinked] {
            let file = make(&directory).unwrap();
            assert_eq!(file.size().unwrap(), 0);
            // SAFETY: no memory is touched.
            assert_eq!(unsafe { libc::ftruncate(file.raw_fd().unwrap(), 1 << 20) }, 0);
            file.clear().unwrap();
            assert_eq!(file.size().unwrap(), 0);
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        }
        std::fs::remove_dir(&directory).unwrap();
        let error = File::unnamed(&directory).unwrap_err().to_string();
        assert!(error.contains("weft-unnamed"), "{error}");
    }
}
