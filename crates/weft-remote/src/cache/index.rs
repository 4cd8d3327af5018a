//! Which blocks a directory has, and which of them leave: a second-chance queue, in which blocks that were read since they came to its
//! head go to its end once.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::block::{BlockName, PARTIAL};

/// How old a file is that a process was about to make a block and never will.
const PARTIAL_AGE: Duration = Duration::from_secs(600);

/// The blocks of a directory.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<BlockName, Entry>,
    /// Blocks, the next one to leave first, and names of blocks that are gone.
    queue: VecDeque<BlockName>,
    bytes: u64,
    /// Bytes that were written since the directory was looked at.
    written_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    file_bytes: u64,
    /// It was read since it was last looked at.
    is_used: bool,
}

impl Index {
    /// The blocks in a directory, in the order in which they were written.
    pub(super) fn scan(directory: &Path) -> Index {
        let mut index = Index::default();
        index.rescan(directory);
        index
    }

    /// Looks at the directory again: other processes add and remove blocks.
    pub(super) fn rescan(&mut self, directory: &Path) {
        let mut found = Vec::new();
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let (name, Ok(metadata)) = (entry.file_name(), entry.metadata()) else { continue };
            let name = name.to_string_lossy();
            let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if let Some(block) = BlockName::parse(&name) {
                found.push((written, block, metadata.len()));
            } else if name.ends_with(PARTIAL)
                && written.elapsed().is_ok_and(|age| age > PARTIAL_AGE)
            {
                // Left behind by a process that has ended. What cannot be removed stays.
                fs::remove_file(entry.path()).ok();
            }
        }
        found.sort_by_key(|(written, _, _)| *written);
        let before = std::mem::take(self);
        for (_, name, file_bytes) in found {
            self.insert(name, file_bytes);
            let was_used = before.entries.get(&name).is_some_and(|entry| entry.is_used);
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.is_used = was_used;
            }
        }
        self.written_bytes = 0;
    }

    pub(super) fn blocks(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Adds a block that was written.
    pub(super) fn insert(&mut self, name: BlockName, file_bytes: u64) {
        self.written_bytes += file_bytes;
        self.bytes += file_bytes;
        match self.entries.insert(name, Entry { file_bytes, is_used: false }) {
            Some(before) => self.bytes -= before.file_bytes,
            None => self.queue.push_back(name),
        }
    }

    /// A block was read; one that is not known was written by another process.
    pub(super) fn note_use(&mut self, name: BlockName, file_bytes: u64) {
        match self.entries.get_mut(&name) {
            Some(entry) => entry.is_used = true,
            None => self.insert(name, file_bytes),
        }
    }

    /// A block is gone.
    pub(super) fn remove(&mut self, name: &BlockName) {
        if let Some(entry) = self.entries.remove(name) {
            self.bytes -= entry.file_bytes;
            self.queue.retain(|queued| queued != name);
        }
    }

    /// Takes blocks out until the others have `bytes_max` bytes.
    pub(super) fn leaving(&mut self, bytes_max: u64) -> Vec<BlockName> {
        let mut leaving = Vec::new();
        while self.bytes > bytes_max {
            let Some(name) = self.queue.pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            if std::mem::take(&mut entry.is_used) {
                self.queue.push_back(name);
                continue;
            }
            self.bytes -= entry.file_bytes;
            self.entries.remove(&name);
            leaving.push(name);
        }
        leaving
    }
}
