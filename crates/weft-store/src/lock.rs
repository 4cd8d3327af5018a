//! The lock file, which keeps a second process from changing a database.
//!
//! A handle that may write holds an exclusive `flock` on `LOCK`, one that only reads a shared one. The
//! kernel drops it with the process, however that ends. The file names the process that may write.
//! Writers, commits and what is spilled to block devices hold it too: what they have in flight ends before somebody else may write.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::directory::Directory;
use crate::error::{Result, StoreError};

/// Name of the lock file.
pub(crate) const LOCK: &str = "LOCK";

/// How often, and how long after, a lock is asked for again that this process may hold itself, or one that is ending.
const TRIES: u32 = 50;
const TRIES_ENDING: u32 = 300;
const RETRY: Duration = Duration::from_millis(10);

/// A lock that is held; dropping it releases it.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Option<File>,
    exclusive: bool,
}

impl Lock {
    /// Locks a database for writing. A simulated disk belongs to its test and needs no lock.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if somebody has it open, [`StoreError::Io`].
    pub(crate) fn exclusive(directory: &Directory) -> Result<Lock> {
        let Directory::Os(path) = directory else {
            return Ok(Lock { file: None, exclusive: true });
        };
        let file = path.join(LOCK);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).open(&file);
        let mut opened = opened.map_err(|source| io_error("open", &file, source))?;
        match patiently(&mut opened, File::try_lock) {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(io_error("lock", &file, source)),
            Err(TryLockError::WouldBlock) => return Err(locked(path, &mut opened)),
        }
        let lock = Lock { file: Some(opened), exclusive: true };
        lock.write(&format!("{}\n", std::process::id()))
            .map_err(|source| io_error("write to", &file, source))?;
        Ok(lock)
    }

    /// Locks a database for reading. Without a lock file there is nothing to lock: the database lies
    /// on a medium that cannot be written, or is a copy.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if somebody may write to it, [`StoreError::Io`].
    pub(crate) fn shared(directory: &Directory) -> Result<Lock> {
        let Directory::Os(path) = directory else {
            return Ok(Lock { file: None, exclusive: false });
        };
        let file = path.join(LOCK);
        let mut opened = match OpenOptions::new().read(true).open(&file) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Lock { file: None, exclusive: false });
            }
            Err(source) => return Err(io_error("open", &file, source)),
        };
        match patiently(&mut opened, File::try_lock_shared) {
            Ok(()) => Ok(Lock { file: Some(opened), exclusive: false }),
            Err(TryLockError::WouldBlock) => Err(locked(path, &mut opened)),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Ok(Lock { file: None, exclusive: false })
            }
            Err(TryLockError::Error(source)) => Err(io_error("lock", &file, source)),
        }
    }

    /// Replaces the file's text.
    fn write(&self, text: &str) -> io::Result<()> {
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.exclusive {
            // Only a hint for people: whoever comes next goes by the lock itself.
            self.write("").ok();
        }
    }
}

/// The process that the file names.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // Whatever cannot be read names nobody.
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).ok();
    text.trim().parse().ok()
}

/// Locks the file, if need be when who holds it has let go of it, as it will soon.
fn patiently(
    file: &mut File,
    lock: impl Fn(&File) -> std::result::Result<(), TryLockError>,
) -> std::result::Result<(), TryLockError> {
    let mut tries = 0;
    loop {
        match lock(file) {
            Err(TryLockError::WouldBlock) if tries < tries_max(holder(file)) => {
                tries += 1;
                std::thread::sleep(RETRY);
            }
            done => return done,
        }
    }
}

fn tries_max(holder: Option<u32>) -> u32 {
    match holder {
        // What a handle of this process had in flight when it was closed ends soon; it takes its
        // number back just before it lets go.
        Some(pid) if pid == std::process::id() => TRIES,
        None => TRIES / 4,
        // The system waits for devices before it ends a process that was killed, and may let go of its files after that.
        Some(pid) if is_ending(pid) => TRIES_ENDING,
        Some(pid) if !is_running(pid) => TRIES,
        Some(_) => 0,
    }
}

/// True if the process was killed, or exits, and is still there.
fn is_ending(pid: u32) -> bool {
    /// The flag of a process that exits, and the bit of the signal that kills one.
    const EXITING: u64 = 4;
    const KILLED: u64 = 1 << 8;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return false };
    // Behind the name, which may have anything in it: its state, five numbers, flags.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let has_ended = matches!(fields.next(), Some("Z" | "X"));
    let flags: Option<u64> = fields.nth(5).and_then(|flags| flags.parse().ok());
    let is_killed = status.lines().any(|line| {
        let pending = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let signals = pending.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        signals.is_some_and(|signals| signals & KILLED != 0)
    });
    has_ended || is_killed || flags.is_some_and(|flags| flags & EXITING != 0)
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists() || !Path::new("/proc/self").exists()
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { action, path: path.into(), source }
}

fn locked(path: &Path, file: &mut File) -> StoreError {
    let holder = match holder(file) {
        Some(pid) if pid == std::process::id() => format!("this process ({pid}) already"),
        // The number may be left from a process that was killed, while others read.
        Some(pid) if is_running(pid) => format!("process {pid}"),
        _ => "another process that reads it".into(),
    };
    StoreError::Locked { path: PathBuf::from(path), holder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_excludes_everybody_and_readers_only_writers() {
        let directory = tempfile::tempdir().unwrap();
        let directory = Directory::Os(directory.path().into());
        let writer = Lock::exclusive(&directory).unwrap();
        let pid = std::process::id().to_string();
        for refused in [Lock::exclusive(&directory), Lock::shared(&directory)] {
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(&pid) && message.contains("in use"), "{message}");
        }
        drop(writer);
        let readers = [Lock::shared(&directory).unwrap(), Lock::shared(&directory).unwrap()];
        let message = Lock::exclusive(&directory).unwrap_err().to_string();
        assert!(message.contains("another process that reads it"), "{message}");
        drop(readers);
        Lock::exclusive(&directory).unwrap();
    }

    #[test]
    fn who_was_killed_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()) && !is_ending(std::process::id()));
        child.kill().unwrap();
        // It is there until somebody asks how it has ended.
        let begun = std::time::Instant::now();
        while !is_ending(child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(10), "it does not end");
        }
        child.wait().unwrap();
        assert!(!is_ending(child.id()));
    }

    #[test]
    fn reading_needs_no_lock_file() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::shared(&Directory::Os(directory.path().into())).unwrap();
        assert!(lock.file.is_none());
        assert!(!directory.path().join(LOCK).exists());
    }
}
