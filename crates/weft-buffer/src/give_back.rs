//! Giving memory back: when others lack some in the ledger, and when the pool is told to shrink.
//!
//! What is idle and clean goes at once, on the thread of whoever needs the memory, down to the pool's
//! floor. While somebody still lacks memory, whoever lets go of a page gives it back, and a worker writes
//! changed pages so that they can go too.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use weft_rt::WorkerRef;
use weft_rt::memory::Cache;

use crate::cooling::{Found, Hunt};
use crate::error::BufferError;
use crate::page_cache::PageCache;
use crate::shelf::Shelf;

impl PageCache {
    /// Evicts pages that nobody uses until `bytes` more can be given back to the ledger, and gives them
    /// back, together with what is over. Ends early at a page that has to be written first, if the caller
    /// `may_write` it: it is locked then. Also tells whether there was such a page.
    fn release(&self, bytes: u64, may_write: bool) -> (Option<u32>, bool) {
        let mut shelf = self.shelf();
        let wanted = bytes.min(shelf.memory.bytes().saturating_sub(self.floor_bytes()));
        if wanted == 0 {
            return (None, false);
        }
        let mut hunt = Hunt::new(&shelf, None, may_write);
        let (mut victims, mut found) = (Vec::new(), shelf.spare_bytes());
        let mut dirty = None;
        while found < wanted {
            match self.next_victim(&mut shelf, &mut hunt) {
                Found::Frame(frame) => {
                    found += self.frames.size(frame).bytes() as u64;
                    victims.push(frame);
                }
                Found::Dirty(frame) => {
                    dirty = Some(frame);
                    break;
                }
                Found::Again | Found::Nothing => break,
            }
        }
        drop(shelf);
        self.hand_over(self.discard(&victims), &victims);
        (dirty, hunt.met_unwritten)
    }

    /// The ledger gets what is over after these pages were discarded, and whoever waits for a frame hears of the rest: others that
    /// looked meanwhile have found neither the pages nor their memory. Returns the bytes that frames still have.
    pub(crate) fn hand_over(&self, mut shelf: MutexGuard<'_, Shelf>, discarded: &[u32]) -> u64 {
        let surplus = shelf.surplus(self.floor_bytes());
        let (left_bytes, is_spare) = (shelf.backed_bytes(), shelf.spare_bytes() > 0);
        drop(shelf);
        drop(surplus);
        if is_spare && !discarded.is_empty() {
            self.tell_waiting();
        }
        left_bytes
    }

    /// Gives back what those lack who wait in the ledger; notes whether they still do.
    pub(crate) fn give_back_missing(&self) {
        self.give_back_most(self.ledger.shortage());
    }

    fn give_back_most(&self, bytes: u64) {
        let (_, mut has_unwritten) = self.release(bytes, false);
        if self.ledger.shortage() == 0 {
            self.asked.store(false, Ordering::SeqCst);
            let shortage = self.ledger.shortage();
            if shortage > 0 {
                self.asked.store(true, Ordering::SeqCst);
                // Whoever has let go of a page meanwhile has not seen that.
                has_unwritten |= self.release(shortage, false).1;
            }
        }
        if has_unwritten && self.ledger.shortage() > 0 {
            self.start_cleaning();
        }
    }

    /// Remembers a worker that can write changed pages, for whoever lacks memory on no worker.
    pub(crate) fn note_changer(&self) {
        let mut cleaner = self.cleaner.lock().unwrap_or_else(PoisonError::into_inner);
        if !cleaner.as_ref().is_some_and(WorkerRef::is_running) {
            *cleaner = WorkerRef::current();
        }
    }

    /// Has a worker write changed pages whose memory others lack.
    fn start_cleaning(&self) {
        if self.is_cleaning.swap(true, Ordering::SeqCst) {
            return;
        }
        let cleaner = self.cleaner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let started = cleaner.zip(self.itself()).and_then(|(worker, cache)| {
            worker.spawn(move || async move {
                let cleaning = Cleaning(cache);
                cleaning.0.clean().await;
            })
        });
        if started.is_none() {
            self.is_cleaning.store(false, Ordering::SeqCst);
        }
    }

    async fn clean(self: &Arc<PageCache>) {
        loop {
            let shortage = self.ledger.shortage();
            let (Some(frame), _) = self.release(shortage, true) else { return };
            if let Err(error) = self.write_back(frame).await {
                // It stays, and so does the shortage: the next page that becomes idle is another reason
                // to try.
                log::warn!("{error}");
                return;
            }
            self.evict_if_idle(frame);
        }
    }

    /// Evicts pages that nobody uses, and gives back memory, until the frames have at most `target_bytes`;
    /// returns how many bytes they still have.
    pub(crate) async fn shrink_to(
        self: &Arc<PageCache>,
        target_bytes: u64,
    ) -> Result<u64, BufferError> {
        loop {
            let (ended, left_bytes) = self.shrink_towards(target_bytes);
            match ended {
                Found::Dirty(frame) => self.write_back(frame).await?,
                _ => return Ok(left_bytes),
            }
        }
    }

    /// Shrinks as far as that goes without writing a page; how it ended, and the bytes that are left.
    fn shrink_towards(&self, target_bytes: u64) -> (Found, u64) {
        let mut shelf = self.shelf();
        let backed_bytes = shelf.backed_bytes();
        let mut hunt = Hunt::new(&shelf, None, true);
        let (mut victims, mut found_bytes) = (Vec::new(), 0);
        let ended = loop {
            if backed_bytes - found_bytes <= target_bytes {
                break Found::Nothing;
            }
            match self.next_victim(&mut shelf, &mut hunt) {
                Found::Frame(frame) => {
                    found_bytes += self.frames.size(frame).bytes() as u64;
                    victims.push(frame);
                }
                ended => break ended,
            }
        };
        drop(shelf);
        (ended, self.hand_over(self.discard(&victims), &victims))
    }
}

impl Cache for PageCache {
    fn give_back(&self, bytes: u64) {
        // Before looking: whoever makes a page idle after that sees it.
        self.asked.store(true, Ordering::SeqCst);
        self.give_back_most(bytes);
    }
}

/// A cleaning under way, however it ends.
struct Cleaning(Arc<PageCache>);

impl Drop for Cleaning {
    fn drop(&mut self) {
        self.0.is_cleaning.store(false, Ordering::SeqCst);
    }
}
