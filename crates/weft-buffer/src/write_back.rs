//! Writing changed pages to their devices.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_rt::{Batch, Boundary, yield_now};

use crate::error::BufferError;
use crate::frame_state::Use;
use crate::page::{self, PageHeader};
use crate::page_cache::PageCache;
use crate::page_table::PageTable;
use crate::swip::SwipState;

/// Writes in flight while pages are flushed.
const FLUSH_DEPTH: usize = 64;

impl PageCache {
    /// Seals and writes a locked page. Whatever ends this early, the page is unlocked when the device
    /// has let go of its memory, and stays dirty.
    ///
    /// # Errors
    /// [`BufferError::WriteBack`], or [`BufferError::Device`].
    pub(crate) async fn write_back(self: &Arc<PageCache>, frame: u32) -> Result<(), BufferError> {
        let mut buffer = self.buffer(frame);
        let id = self.frames.get(frame).id();
        let tuple_count = u16::from_le_bytes([buffer[4], buffer[5]]);
        let kind = buffer[6];
        page::seal(&mut buffer, PageHeader { tuple_count, kind, id });
        let device = self.device(id)?;
        let (result, buffer) = device.write(buffer, id.offset()).await;
        result.map_err(|source| BufferError::WriteBack { id, source })?;
        buffer.into_raw();
        self.counts.write_backs.fetch_add(1, Ordering::Relaxed);
        self.unlock(frame, false);
        Ok(())
    }

    /// Writes the page in a frame if it is dirty, as soon as nobody uses it.
    async fn flush_one(self: &Arc<PageCache>, frame: u32) -> Result<(), BufferError> {
        let state = self.frames.state(frame);
        while let Some(locked) = state.lock_dirty() {
            if locked {
                return self.write_back(frame).await;
            }
            if !state.wait_while_busy(Use::Alone).await {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Writes all pages that are dirty now and makes them durable; goes on after errors and returns the
    /// first.
    pub(crate) async fn flush(self: &Arc<PageCache>) -> Result<(), BufferError> {
        let pages = self.shelf().pages(&self.frames);
        let mut outcome = self.write_frames(pages.into_iter()).await;
        for device in self.devices.files() {
            outcome = outcome.and(device.sync().await.map_err(BufferError::from));
        }
        outcome
    }

    /// Writes those pages of a table that are dirty now; goes on after errors and returns the first.
    pub(crate) async fn write_pages(
        self: &Arc<PageCache>,
        table: &PageTable,
    ) -> Result<(), BufferError> {
        let hot = table.swips().iter().filter_map(|swip| match swip.state() {
            SwipState::Hot(page) => Some(self.frame_at(page)),
            SwipState::Cold(_) | SwipState::Loading(_) => None,
        });
        self.write_frames(hot).await
    }

    async fn write_frames(
        self: &Arc<PageCache>,
        frames: impl Iterator<Item = u32>,
    ) -> Result<(), BufferError> {
        let mut pages = frames.filter(|&frame| {
            let state = self.frames.state(frame);
            state.is_dirty()
        });
        let first_error = &RefCell::new(None);
        let writes = Batch::new(FLUSH_DEPTH, Boundary::Weak, || {
            let frame = pages.next()?;
            Some(async move {
                if let Err(error) = self.flush_one(frame).await {
                    first_error.borrow_mut().get_or_insert(error);
                }
                Ok::<(), std::convert::Infallible>(())
            })
        });
        let Ok(()) = writes.await;
        first_error.take().map_or(Ok(()), Err)
    }
}
