//! The file that `weft-bench io` reads from: sealed 4 KiB pages of random bytes, so that the same
//! file serves raw reads, reads through swips, and fio.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weft_buffer::PageId;
use weft_buffer::page::{self, PAGE_UNIT_BYTES, PageHeader};

use crate::data;
use crate::error::BenchError;

/// Bytes written at once.
const CHUNK_BYTES: usize = 4 << 20;

/// Kind of the file's pages.
const KIND: u8 = 0xb1;

/// The file in `directory` for reads of `mib` MiB, written if it is not there yet.
///
/// # Errors
/// [`BenchError::Io`] if the directory is not writable, [`BenchError::DiskFull`] if the file does not
/// fit, [`BenchError::Usage`] if another process is writing it or a file of another length has its
/// name. Nothing half-written is ever there under that name.
pub fn file(directory: &Path, mib: u64, seed: u64) -> Result<PathBuf, BenchError> {
    let path = directory.join(format!("weft-io-{mib}m.pages"));
    if is_whole(&path, mib)? {
        return Ok(path);
    }
    let fail = |action| {
        let path = path.clone();
        move |source: io::Error| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                BenchError::DiskFull { path, mib }
            }
            _ => BenchError::Io { action, path, source },
        }
    };
    fs::create_dir_all(directory).map_err(fail("create the directory of"))?;
    let partial = path.with_extension("partial");
    let mut options = OpenOptions::new();
    // What is there may be another process's, until we hold its lock.
    let file = options.write(true).create(true).truncate(false).open(&partial);
    let file = file.map_err(fail("create"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(BenchError::Usage(format!(
                "another process is writing {}; wait for it to finish, then run again",
                path.display()
            )));
        }
        Err(TryLockError::Error(source)) => return Err(fail("lock")(source)),
    }
    // It may have finished just before we got the lock.
    if is_whole(&path, mib)? {
        return Ok(path);
    }
    file.set_len(0).map_err(fail("empty"))?;
    // Rather than fill the disk for hours and fail; where the system does not say, we shall see.
    let free = rustix::fs::statvfs(directory).map(|found| found.f_bavail * found.f_frsize);
    if free.is_ok_and(|free| free < mib << 20) {
        fs::remove_file(&partial).ok();
        return Err(BenchError::DiskFull { path, mib });
    }
    let written = write(&file, mib, seed).and_then(|()| fs::rename(&partial, &path));
    if written.is_err() {
        // The error that matters is the first one.
        fs::remove_file(&partial).ok();
    }
    written.map_err(fail("write"))?;
    Ok(path)
}

/// Whether the file is there.
fn is_whole(path: &Path, mib: u64) -> Result<bool, BenchError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == mib << 20 => Ok(true),
        Ok(found) => Err(BenchError::Usage(format!(
            "{} has {} bytes where {mib} MiB were written; delete it and run again",
            path.display(),
            found.len()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(BenchError::Io { action: "examine", path: path.to_owned(), source }),
    }
}

fn write(mut file: &File, mib: u64, seed: u64) -> io::Result<()> {
    let bar = data::progress_bar("MiB").with_message("writing the file to read");
    bar.set_length(mib);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut chunk = vec![0; CHUNK_BYTES];
    let page_bytes = PAGE_UNIT_BYTES;
    for start in (0..mib << 20).step_by(CHUNK_BYTES) {
        // The last one may be shorter.
        let length = CHUNK_BYTES.min(((mib << 20) - start) as usize);
        let chunk = &mut chunk[..length];
        random.fill(chunk);
        for (number, page) in chunk.chunks_exact_mut(page_bytes).enumerate() {
            let offset = start + (number * page_bytes) as u64;
            let id = PageId::new(0, offset, page_bytes);
            page::seal(page, PageHeader { tuple_count: 0, kind: KIND, id });
        }
        file.write_all(chunk)?;
        bar.set_position((start + length as u64) >> 20);
    }
    file.sync_all()?;
    // Direct reads do not use the cached copy; it only takes memory.
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_length_is_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), 17, 1).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 17 << 20);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(file(directory.path(), 17, 2).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    }

    #[test]
    fn two_processes_do_not_write_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let partial = directory.path().join("weft-io-16m.partial");
        let other = File::create(&partial).unwrap();
        other.lock().unwrap();
        let error = file(directory.path(), 16, 1).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(other);
        assert!(file(directory.path(), 16, 1).is_ok() && !partial.exists());
    }

    #[test]
    fn a_file_of_another_length_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("weft-io-16m.pages"), "short").unwrap();
        let error = file(directory.path(), 16, 1).unwrap_err().to_string();
        assert!(error.contains("5 bytes") && error.contains("delete it"), "{error}");
    }
}
