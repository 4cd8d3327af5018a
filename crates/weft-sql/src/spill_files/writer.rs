//! Bytes become pieces, which workers write: a bounded number at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use datafusion::common::Result as DfResult;
use datafusion::execution::SpillWriter;
use weft_exec::spill::{PageCosts, Regulator};

use super::piece::Piece;
use super::{Content, PIECE_BYTES, SMALL_PIECE_BYTES, Sealed, SpillFiles, Tail, lock};
use crate::error::Result;

/// Pieces of a writer that are on their way at once: as many as keep a device busy, unless they would take more than a part of the
/// budget.
const DEPTHS: (usize, usize) = (2, 8);
const DEPTH_PART: u64 = 256;

/// Adds to a file.
pub(super) struct Writer {
    files: SpillFiles,
    content: Arc<Mutex<Content>>,
    depth: usize,
    writing: VecDeque<Arc<Piece>>,
    regulator: Regulator,
}

impl Writer {
    pub(super) fn new(files: SpillFiles, content: Arc<Mutex<Content>>) -> Writer {
        let (least, most) = DEPTHS;
        let pieces = files.ledger.limit() / DEPTH_PART / PIECE_BYTES as u64;
        let depth = (pieces as usize).clamp(least, most);
        let regulator = files.spilling.regulator(depth, files.runtime.workers());
        let writing = VecDeque::new();
        Writer { files, content, depth, writing, regulator }
    }

    /// An empty piece, when there is memory for it.
    ///
    /// # Errors
    /// Those of earlier writes.
    fn new_tail(&mut self) -> Result<Tail> {
        loop {
            if self.writing.len() < self.depth {
                let memory = self.files.ledger.try_reserve(PIECE_BYTES as u64);
                if memory.is_some() {
                    return Ok(Tail::new(PIECE_BYTES, memory));
                }
                if self.writing.is_empty() {
                    return Ok(Tail::new(SMALL_PIECE_BYTES, None));
                }
            }
            self.end_first()?;
        }
    }

    /// Adds some of these bytes; how many.
    fn add(&mut self, bytes: &[u8]) -> Result<usize> {
        self.files.check()?;
        let has_room = lock(&self.content).tail.is_some();
        let fresh = if has_room { None } else { Some(self.new_tail()?) };
        let mut content = lock(&self.content);
        let tail = content.tail.get_or_insert_with(|| fresh.expect("there is a piece to fill"));
        let added = tail.fill(bytes);
        let full = tail.is_full().then(|| content.seal()).flatten();
        content.bytes += added as u64;
        drop(content);
        if let Some(full) = full {
            self.send(full);
        }
        Ok(added)
    }

    /// Has a piece written.
    fn send(&mut self, sealed: Sealed) {
        let Sealed { buffer, memory, piece, ending } = sealed;
        self.writing.push_back(piece);
        let compression = self.files.spilling.options().compression;
        let scheme = self.regulator.scheme(compression);
        let area = self.files.spilling.area().clone();
        // The piece says how it ends.
        drop(self.files.runtime.spawn(move || async move {
            let written = area.write(buffer, scheme, memory).await;
            ending.say(written, scheme);
        }));
    }

    /// Waits for the oldest write, if there is one.
    ///
    /// # Errors
    /// What went wrong.
    fn end_first(&mut self) -> Result<()> {
        let Some(piece) = self.writing.pop_front() else { return Ok(()) };
        let area = self.files.spilling.area();
        let on_disk = piece.wait()?;
        let (raw_bytes, written_bytes) = (on_disk.spilled.bytes(), on_disk.spilled.written_bytes());
        let (scheme, compressing) = (on_disk.scheme, on_disk.compressing);
        let costs = PageCosts { scheme, raw_bytes, written_bytes, compressing };
        self.regulator.note_written(costs, || area.rates());
        self.files.progress.add_spilled(raw_bytes as u64, written_bytes as u64);
        self.files.spilled.note_written(&on_disk.spilled);
        Ok(())
    }

    /// Writes what is left, and waits for all that is on its way.
    ///
    /// # Errors
    /// The first that a write has.
    fn settle(&mut self) -> Result<()> {
        let last = lock(&self.content).seal();
        if let Some(last) = last {
            self.send(last);
        }
        while !self.writing.is_empty() {
            self.end_first()?;
        }
        Ok(())
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.add(bytes).map_err(io::Error::other)
    }

    /// What was written can be read, wherever it is.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> DfResult<()> {
        Ok(self.settle()?)
    }
}
