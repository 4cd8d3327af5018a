//! Where blocks lie: as they came from the merge, copied, or on disk, from where they come back.

use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::super::super::sorted_rows::Chunk;
use super::super::super::source::OPERATOR;
use super::{Block, Blocks, HELD_PART, Loaded, Place};
use crate::error::Result;
use crate::pace::Pace;
use crate::spill::reader::Reader;
use crate::spill::writer::SpilledPage;
use crate::tuple::budget::reserved;
use crate::tuple::pack::{Form, long_bytes};
use crate::tuple::packing::Packing;

impl Blocks {
    /// Puts a block where it does not share memory with rows that are gone sooner: it is copied, or written to disk. If
    /// somebody looks at it now, that is a copy as well: on each of the pages from the merge may be few of its rows.
    pub(super) async fn put_away(
        &mut self,
        loaded: &mut Arc<Loaded>,
        is_looked_at: bool,
        pace: &mut Pace,
    ) -> Result<Place> {
        let (layout, ledger) = (self.shared.layout.clone(), self.input.ledger.clone());
        let (entries, rows) = (loaded.chunk.entries(), loaded.rows());
        let mut bytes = rows * layout.bytes();
        if layout.has_strings() {
            let tuples = entries.iter().map(|entry| entry.tuple as *const u8);
            // SAFETY: the tuples are those of the sort, as the layout is.
            bytes += tuples.map(|tuple| unsafe { long_bytes(&layout, tuple) }).sum::<usize>();
        }
        let held_bytes = bytes as u64 + self.loaded_bytes(rows);
        let fits = self.held_bytes + held_bytes <= ledger.limit() / HELD_PART;
        let memory = if fits || is_looked_at { ledger.try_reserve(held_bytes) } else { None };
        let is_copied = memory.is_some();
        if let Some(memory) = memory {
            // SAFETY: as above; the bytes are those of the tuples and their strings.
            let mut chunk = unsafe { loaded.chunk.copy(&layout, bytes, pace).await };
            chunk.adopt(memory);
            let (number, first, starts) = (loaded.number, loaded.first, loaded.starts.clone());
            *loaded = Arc::new(Loaded { number, first, chunk: Arc::new(chunk), starts });
        }
        if fits && is_copied {
            self.held_bytes += held_bytes;
            return Ok(Place::Memory { loaded: loaded.clone(), bytes: held_bytes });
        }
        // SAFETY: as above.
        unsafe { self.write(loaded, bytes, pace).await? };
        Ok(Place::Disk(Vec::new()))
    }

    /// Waits for memory. If there is none, blocks that wait in it go to disk, and what is being written is waited for.
    ///
    /// # Errors
    /// Those of writing; [`ExecError::Memory`](crate::ExecError::Memory)
    pub(in super::super) async fn reserved(&mut self, bytes: u64) -> Result<Reservation> {
        let ledger = self.input.ledger.clone();
        loop {
            if let Some(memory) = ledger.try_reserve(bytes) {
                return Ok(memory);
            }
            if !self.spill_held().await? && !self.writer.is_writing() {
                return reserved(OPERATOR, &ledger, bytes).await;
            }
            self.writer.settle().await?;
            self.note_written();
        }
    }

    /// The block in memory that is looked at last goes to disk; false if there is none.
    async fn spill_held(&mut self) -> Result<bool> {
        let is_idle = |block: &Block| match &block.place {
            Place::Memory { loaded, .. } => Arc::strong_count(loaded) == 1,
            _ => false,
        };
        let Some(at) = self.blocks.iter().rposition(is_idle) else { return Ok(false) };
        let place = std::mem::replace(&mut self.blocks[at].place, Place::Disk(Vec::new()));
        let Place::Memory { loaded, bytes: held_bytes } = place else {
            unreachable!("the block is in memory")
        };
        self.held_bytes -= held_bytes;
        let bytes = (held_bytes - self.loaded_bytes(loaded.rows())) as usize;
        // SAFETY: the tuples are those of the sort, as the layout is.
        unsafe { self.write(&loaded, bytes, &mut Pace::default()).await? };
        Ok(true)
    }

    /// Sends a block to disk, whose tuples and strings take so many bytes.
    ///
    /// # Safety
    /// The tuples have the layout.
    async unsafe fn write(&mut self, loaded: &Loaded, bytes: usize, pace: &mut Pace) -> Result<()> {
        let (layout, entries) = (self.shared.layout.clone(), loaded.chunk.entries());
        let writer = &mut self.writer;
        let mut packing = Packing::new(&layout, writer, Form::Live, loaded.number, bytes);
        for entries in entries.chunks(256) {
            // SAFETY: as the caller promises.
            unsafe { packing.add(entries.iter().map(|entry| entry.tuple as *const u8)).await? };
            pace.keep().await;
        }
        packing.close();
        Ok(())
    }

    /// Blocks know their pages.
    pub(super) fn note_written(&mut self) {
        for page in self.writer.take_written() {
            let Some(at) = page.partition.checked_sub(self.gone) else { continue };
            if let Place::Disk(pages) = &mut self.blocks[at].place {
                pages.push(Arc::new(page));
            }
        }
    }

    /// A block.
    ///
    /// # Errors
    /// Those of reading; [`ExecError::Memory`](crate::ExecError::Memory)
    pub(in super::super) async fn load(&mut self, number: usize) -> Result<Arc<Loaded>> {
        let block = self.block(number);
        if let Some(loaded) = block.loaded.upgrade() {
            return Ok(loaded);
        }
        let Block { first, rows, .. } = *block;
        let begins: Vec<bool> = block.begun.iter().map(|begun| begun.first == Some(0)).collect();
        let pages = self.pages(number).await?;
        let mut pace = Pace::default();
        // All that is needed is asked for at once, while blocks can still make room for it.
        let bytes: usize = pages.iter().map(|page| page.bytes()).sum();
        let mut memory = self.reserved(self.loaded_bytes(rows) + bytes as u64).await?;
        let for_pages = memory.split(bytes as u64);
        let mut reader = Reader::new(OPERATOR, self.spills.clone(), pages, for_pages);
        let mut read = Vec::new();
        while let Some(page) = reader.next().await? {
            read.push(page);
        }
        let mut chunk = Chunk::of_pages(read);
        chunk.adopt(memory);
        assert_eq!(chunk.entries().len(), rows, "the block that was written");
        // SAFETY: the tuples were written with the layout.
        let starts = unsafe { self.starts(&chunk, &begins, &mut pace).await };
        let (chunk, starts) = (Arc::new(chunk), Arc::new(starts));
        let loaded = Arc::new(Loaded { number, first, chunk, starts });
        self.blocks[number - self.gone].loaded = Arc::downgrade(&loaded);
        Ok(loaded)
    }

    /// The pages of a block on disk.
    async fn pages(&mut self, number: usize) -> Result<Vec<Arc<SpilledPage>>> {
        let rows = self.block(number).rows;
        for is_settled in [false, true] {
            let Place::Disk(pages) = &self.block(number).place else {
                unreachable!("a block that is not in memory is on disk")
            };
            if pages.iter().map(|page| page.tuples).sum::<usize>() == rows {
                return Ok(pages.clone());
            }
            assert!(!is_settled, "all pages were written");
            self.writer.settle().await?;
            self.note_written();
        }
        unreachable!("the second time ends it")
    }
}
