//! Where a device's data lie: a file in a directory, or a block device as a whole.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft_rt::io::{Access, File, FileError, IoBuf};

use crate::device::{MAGIC, file_name, is_header_of};
use crate::directory::{Directory, SECTOR_BYTES, off_worker};
use crate::error::{Result, StoreError};

/// Bytes at the start and at the end of a block device that must be zero for it to be taken.
const BLANK_BYTES: usize = 1 << 20;

/// How long a block device may be busy, and how often it is asked meanwhile.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(10);

/// The place of a device.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A data file in this directory.
    File(Directory),
    /// This block device.
    Block(PathBuf),
}

impl Place {
    /// The place of the device at `path`: empty for the database's own directory, relative to that, or
    /// absolute.
    pub(crate) fn of(database: &Directory, path: &Path) -> Place {
        if path.as_os_str().is_empty() {
            return Place::File(database.clone());
        }
        let found = fs::metadata(database.path().join(path));
        match found {
            Ok(found) if database.is_os() && found.file_type().is_block_device() => {
                Place::Block(database.path().join(path))
            }
            _ => Place::File(database.at(path)),
        }
    }

    /// The path of the data file of device `number`, or of the block device.
    pub(crate) fn path(&self, number: usize) -> PathBuf {
        match self {
            Place::File(directory) => directory.path().join(file_name(number)),
            Place::Block(path) => path.clone(),
        }
    }

    /// Opens it; `None` if there is no file.
    pub(crate) async fn open(&self, number: usize, access: Access) -> Result<Option<File>> {
        match self {
            Place::File(directory) => directory.open_file(&file_name(number), access),
            Place::Block(path) => open_block(path, access).await.map(Some),
        }
    }

    /// Whether the data of device `number` may be there.
    pub(crate) fn may_hold(&self, number: usize) -> Result<bool> {
        match self {
            Place::File(directory) => {
                let name = file_name(number);
                Ok(directory.list()?.is_some_and(|names| names.contains(&name)))
            }
            Place::Block(path) => {
                use std::io::Read;
                let mut bytes = vec![0; SECTOR_BYTES];
                let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
                Ok(read.is_ok() && is_header_of(&bytes, number))
            }
        }
    }
}

/// Opens a block device. It may be busy for a moment after it was closed: the system ends the requests of a
/// ring after the process has.
pub(crate) async fn open_block(path: &Path, access: Access) -> Result<File> {
    let path = path.to_owned();
    let opened = off_worker(move || {
        let started = Instant::now();
        loop {
            match File::open(&path, access) {
                Err(FileError::Open { source, .. })
                    if source.kind() == ErrorKind::ResourceBusy && started.elapsed() < BUSY_MAX =>
                {
                    std::thread::sleep(BUSY_STEP);
                }
                opened => return opened,
            }
        }
    });
    Ok(opened.await??)
}

/// Checks that a block device can be taken: it is large enough, and carries neither a file system nor
/// anything else.
///
/// # Errors
/// [`StoreError::Device`] if not.
pub(crate) async fn check_blank(file: &File, number: usize) -> Result<()> {
    let wrong = |problem: String| StoreError::Device { number, path: file.path().into(), problem };
    let size = file.size()?;
    if size < 2 * BLANK_BYTES as u64 {
        return Err(wrong(format!("the block device has {size} bytes, too few for a database")));
    }
    let last = (size - BLANK_BYTES as u64) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
    for (offset, skip) in [(0, SECTOR_BYTES), (last, 0)] {
        let (result, buffer) = file.read_exact(IoBuf::zeroed(BLANK_BYTES), offset).await;
        result?;
        // What was made for a database that never got any data may be taken again.
        let begins_blank = buffer[..skip].iter().all(|byte| *byte == 0) || buffer[..8] == MAGIC;
        if !begins_blank || buffer[skip..].iter().any(|byte| *byte != 0) {
            return Err(wrong(format!(
                "the block device carries data, perhaps a file system; if nothing on it is needed, \
                 erase it first: blkdiscard --zeroout {}",
                file.path().display()
            )));
        }
    }
    Ok(())
}
