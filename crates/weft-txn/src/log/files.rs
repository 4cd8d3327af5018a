//! The files of a log: in a directory of the system, or of a simulated disk, which tests cut the power of.

use std::io;
use std::path::PathBuf;

use weft_rt::io::sim::SimDisk;
use weft_rt::io::{Access, File, FileError};

use super::off_worker;
use crate::error::{Result, TxnError};

/// Where the files of a log lie.
#[derive(Clone, Debug)]
pub enum LogDirectory {
    /// A directory of the system, which exists.
    Os(PathBuf),
    /// The top directory of a simulated disk.
    Sim(SimDisk),
}

const SEGMENT: &str = "log-";
const CHECKPOINT: &str = "checkpoint-";
/// What a checkpoint is called until it is whole.
pub(crate) const PARTIAL: &str = "checkpoint.partial";

pub(crate) fn segment_name(number: u64) -> String {
    format!("{SEGMENT}{number:016x}")
}

pub(crate) fn checkpoint_name(number: u64) -> String {
    format!("{CHECKPOINT}{number:016x}")
}

/// The numbers in the names that begin with a prefix, in order.
fn numbers(names: &[String], prefix: &str) -> Vec<u64> {
    let number = |name: &String| u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok();
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

impl LogDirectory {
    /// Numbers of the log's files, and of checkpoints.
    pub(crate) async fn list(&self) -> Result<(Vec<u64>, Vec<u64>)> {
        let names = match self {
            LogDirectory::Sim(disk) => disk.list("").map(|names| {
                names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
            }),
            LogDirectory::Os(path) => {
                let path = path.clone();
                off_worker(move || {
                    let names = std::fs::read_dir(path)?;
                    names.map(|name| Ok(name?.file_name().to_string_lossy().into_owned())).collect()
                })
                .await
            }
        };
        let names: Vec<String> = names.map_err(|source| error("list", "files", source))?;
        Ok((numbers(&names, SEGMENT), numbers(&names, CHECKPOINT)))
    }

    /// A new file, in place of the one that has the name.
    pub(crate) async fn create(&self, name: &str) -> Result<File> {
        self.remove(name).await?;
        match self {
            LogDirectory::Sim(disk) => {
                disk.create(name, 0).map_err(|source| error("create", name, source))
            }
            LogDirectory::Os(path) => {
                let path = path.join(name);
                Ok(off_worker(move || File::open(path, Access::Create)).await?)
            }
        }
    }

    pub(crate) async fn open(&self, name: &str) -> Result<File> {
        match self {
            LogDirectory::Sim(disk) => {
                disk.open(name).map_err(|source| error("open", name, source))
            }
            LogDirectory::Os(path) => {
                let path = path.join(name);
                let opened: std::result::Result<File, FileError> =
                    off_worker(move || File::open(path, Access::ReadWrite)).await;
                Ok(opened?)
            }
        }
    }

    /// Removes a file, if it is there.
    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        let removed = match self {
            LogDirectory::Sim(disk) => disk.remove(name),
            LogDirectory::Os(path) => {
                let path = path.join(name);
                off_worker(move || std::fs::remove_file(path)).await
            }
        };
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(error("remove", name, source))
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let renamed = match self {
            LogDirectory::Sim(disk) => disk.rename(from, to),
            LogDirectory::Os(path) => {
                let (from, to) = (path.join(from), path.join(to));
                off_worker(move || std::fs::rename(from, to)).await
            }
        };
        renamed.map_err(|source| error("rename", from, source))
    }

    /// Makes changes of names durable.
    pub(crate) async fn sync(&self) -> Result<()> {
        let synced = match self {
            LogDirectory::Sim(disk) => disk.sync_directory(""),
            LogDirectory::Os(path) => {
                let path = path.clone();
                off_worker(move || std::fs::File::open(path)?.sync_all()).await
            }
        };
        synced.map_err(|source| error("sync", "names", source))
    }
}

fn error(action: &'static str, name: &str, source: io::Error) -> TxnError {
    TxnError::LogDirectory { action, name: name.into(), source }
}
