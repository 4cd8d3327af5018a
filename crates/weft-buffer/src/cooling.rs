//! Cooling: which page leaves when a frame is needed, and who waits when none can.
//!
//! A frame comes from the free ones of its size, then from the ledger (with those beside it, on a huge page, while
//! memory is plentiful and the size is in demand) unless that has little left, then from a page of its size on probation
//! if that is about as old as the oldest of all sizes, then from the rest of the ledger, then from whatever else can
//! leave: free frames of other sizes, the oldest pages on probation, and the first page of the main queue that nobody
//! has fixed since it came there (these before, while scans have less than an eighth of the memory: some of the main
//! queue's pages were wanted long ago). The memory of frames of other sizes goes back to the system, and the ledger's
//! bytes are used for the new frame.
//!
//! If every page is in use, the coroutine gets in line; the first in line waits for a guard to go or for
//! the ledger, whichever is first.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use weft_rt::memory::MemoryError;
use weft_rt::sync::ParkingLot;
use weft_rt::sync::latch::ExclusiveGuard;

use crate::error::BufferError;
use crate::frame_size::FrameSize;
use crate::frame_state::Claim;
use crate::page_cache::PageCache;
use crate::shelf::Shelf;

/// Pages fixed since they came to the front of the queue that one look for a victim spares; then the
/// next idle one goes, so that a look does not take longer the more memory there is.
const SPARED_MAX: usize = 1024;

/// Of the ledger's limit, the part that is free while memory is plentiful.
const PLENTY: u64 = 8;

/// And the part, and most bytes, that are left to others as long as pages of scans can make way for each other: what scans need beside their
/// pages comes and goes, and would be taken from the pool, whose frames go back to the system for that, time and again.
const SCARCE: (u64, u64) = (32, 128 << 20);

/// What looking for a frame came to.
pub(crate) enum Found {
    /// A free frame, the caller's.
    Frame(u32),
    /// A dirty page that has to be written first; the frame is locked.
    Dirty(u32),
    /// Others were faster: worth another look.
    Again,
    /// Every frame is in use.
    Nothing,
}

/// How far one look for pages that can leave has come.
pub(crate) struct Hunt {
    /// Only frames of this size are of use.
    only: Option<FrameSize>,
    may_write: bool,
    steps_on_probation: usize,
    /// Twice through the queue: the first time through may only take marks away.
    steps: usize,
    spared: usize,
    /// There was a page that could have left had it been written.
    pub(crate) met_unwritten: bool,
}

impl Hunt {
    pub(crate) fn new(shelf: &Shelf, only: Option<FrameSize>, may_write: bool) -> Hunt {
        let (main, probation) = shelf.listed();
        // Pages on probation may move to the main queue.
        let steps = 2 * (main + probation);
        Hunt {
            only,
            may_write,
            steps_on_probation: probation,
            steps,
            spared: 0,
            met_unwritten: false,
        }
    }

    fn wants(&self, size: FrameSize) -> bool {
        self.only.is_none_or(|only| only == size)
    }
}

impl PageCache {
    /// A free frame. It is the caller's as soon as this is ready, and lost if it does not use it.
    ///
    /// # Errors
    /// [`BufferError::Budget`] if the whole budget is smaller than a frame; [`BufferError::WriteBack`] if
    /// nothing but a page that cannot be written could leave.
    pub(crate) async fn obtain(self: &Arc<PageCache>, size: FrameSize) -> Result<u32, BufferError> {
        if self.in_line.load(Ordering::SeqCst) == 0 {
            match self.look(size).await {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        let turn = self.line_up().await;
        self.obtain_in_turn(size, &turn).await
    }

    /// Waits until it is the caller's turn to wait for frames.
    pub(crate) async fn line_up(&self) -> Turn<'_> {
        let in_line = Counted::new(&self.in_line);
        Turn { _guard: self.turn.exclusive().await, _in_line: in_line }
    }

    /// As [`PageCache::obtain`], for the one whose turn it is.
    ///
    /// # Errors
    /// As [`PageCache::obtain`].
    pub(crate) async fn obtain_in_turn(
        self: &Arc<PageCache>,
        size: FrameSize,
        _turn: &Turn<'_>,
    ) -> Result<u32, BufferError> {
        // Looks once more, now that whoever lets go of a page sees that it waits.
        let _waiting = Counted::new(&self.waiting);
        loop {
            let event = self.events.load(Ordering::SeqCst);
            if let Some(frame) = self.look(size).await? {
                return Ok(frame);
            }
            if let Some(frame) = self.wait_for_frame(size, event).await? {
                return Ok(frame);
            }
        }
    }

    /// As [`PageCache::obtain`], but `None` if every page is in use or would have to be written first, or
    /// if others wait for a frame.
    pub(crate) fn obtain_now(&self, size: FrameSize) -> Option<u32> {
        if self.in_line.load(Ordering::SeqCst) > 0 {
            return None;
        }
        loop {
            match self.find(size, false) {
                Found::Frame(frame) => return Some(frame),
                Found::Again => {}
                Found::Dirty(_) => unreachable!("nothing was to be written"),
                Found::Nothing => return None,
            }
        }
    }

    /// A free frame if there is one without waiting for others; writes a dirty page if need be.
    async fn look(self: &Arc<PageCache>, size: FrameSize) -> Result<Option<u32>, BufferError> {
        let mut failed = None;
        loop {
            match self.find(size, failed.is_none()) {
                Found::Frame(frame) => return Ok(Some(frame)),
                Found::Again => {}
                Found::Dirty(frame) => match self.write_back(frame).await {
                    Ok(()) => self.evict_if_idle(frame),
                    Err(error) => failed = Some(error),
                },
                // A device that takes no writes matters only if there is no other page to evict.
                Found::Nothing => return failed.map_or(Ok(None), Err),
            }
        }
    }

    fn find(&self, size: FrameSize, may_write: bool) -> Found {
        let mut shelf = self.shelf();
        if let Some(frame) = shelf.take_free(size) {
            return Found::Frame(frame);
        }
        if self.has_plenty()
            && let Some(frames) = shelf.back_huge_page(&self.frames, size)
        {
            drop(shelf);
            return Found::Frame(self.populate(frames));
        }
        let frame = match self.is_scarce() {
            true => self.evict_alike(&mut shelf, size).or_else(|| shelf.back(size)),
            false => shelf.back(size).or_else(|| self.evict_alike(&mut shelf, size)),
        };
        if let Some(frame) = frame {
            return Found::Frame(frame);
        }
        let only = shelf.is_exhausted(size).then_some(size);
        let mut hunt = Hunt::new(&shelf, only, may_write);
        let (mut victims, mut bytes) = (Vec::new(), shelf.spare_bytes());
        let found = loop {
            if bytes >= size.bytes() as u64 && only.is_none() {
                break None;
            }
            match self.next_victim(&mut shelf, &mut hunt) {
                Found::Frame(frame) if self.frames.size(frame) == size => {
                    break Some(Found::Frame(frame));
                }
                Found::Frame(frame) => {
                    bytes += self.frames.size(frame).bytes() as u64;
                    victims.push(frame);
                }
                found => break Some(found),
            }
        };
        if let Some(found) = found {
            victims.iter().for_each(|&frame| shelf.put_free(&self.frames, frame));
            return found;
        }
        drop(shelf);
        let mut shelf = self.discard(&victims);
        let frame = shelf.back(size);
        self.hand_over(shelf, &victims);
        frame.map_or(Found::Again, Found::Frame)
    }

    /// True if so much memory is free that some may lie idle in huge pages for a while.
    fn has_plenty(&self) -> bool {
        self.free_bytes() >= self.ledger.limit() / PLENTY
    }

    /// True if what is free is better left to others.
    fn is_scarce(&self) -> bool {
        let (part, most_bytes) = SCARCE;
        self.free_bytes() <= (self.ledger.limit() / part).min(most_bytes)
    }

    /// Bytes of the ledger that nobody has.
    fn free_bytes(&self) -> u64 {
        let taken_bytes = self.ledger.used() + self.ledger.unreserved();
        self.ledger.limit().saturating_sub(taken_bytes)
    }

    /// Takes memory for frames that the ledger has given some; returns one, and makes the others free.
    fn populate(&self, frames: Range<u32>) -> u32 {
        self.frames.populate(frames.clone());
        let mut shelf = self.shelf();
        frames.clone().skip(1).for_each(|frame| shelf.put_free(&self.frames, frame));
        drop(shelf);
        self.note_idle();
        frames.start
    }

    /// Evicts a page on probation that is of this size, if its turn would come before long.
    fn evict_alike(&self, shelf: &mut Shelf, size: FrameSize) -> Option<u32> {
        if shelf.is_main_long() {
            return None;
        }
        for _ in 0..shelf.listed_of(size) {
            let frame = shelf.first_on_probation(size)?;
            if !shelf.is_old(&self.frames, frame) {
                return None;
            }
            if let Found::Frame(frame) = self.try_on_probation(shelf, frame, false) {
                return Some(frame);
            }
        }
        None
    }

    /// Evicts a page on probation if it can go, or puts it elsewhere.
    fn try_on_probation(&self, shelf: &mut Shelf, frame: u32, may_write: bool) -> Found {
        let claim = self.frames.state(frame).claim(false, may_write);
        shelf.unlink(&self.frames, frame);
        match claim {
            Claim::Evicting => {
                self.evict(shelf, frame);
                return Found::Frame(frame);
            }
            Claim::Busy => shelf.push(&self.frames, frame, true),
            // Fixed again, or changed, it has become one of the others.
            Claim::Referenced | Claim::Unwritten => shelf.push(&self.frames, frame, false),
            Claim::Dirty => {
                shelf.push(&self.frames, frame, false);
                return Found::Dirty(frame);
            }
            // Whoever evicts it is about to take it.
            Claim::Gone => {}
        }
        Found::Again
    }

    /// A free frame that has memory, of whatever size the hunt wants, after evicting a page if need be.
    pub(crate) fn next_victim(&self, shelf: &mut Shelf, hunt: &mut Hunt) -> Found {
        let free = match hunt.only {
            Some(size) => shelf.take_free(size),
            None => shelf.take_any_free(),
        };
        if let Some(frame) = free {
            return Found::Frame(frame);
        }
        let main_first = shelf.is_main_long();
        for from_main in [main_first, !main_first] {
            let found = match from_main {
                true => self.next_of_main(shelf, hunt),
                false => self.next_on_probation(shelf, hunt),
            };
            if !matches!(found, Found::Nothing) {
                return found;
            }
        }
        Found::Nothing
    }

    fn next_on_probation(&self, shelf: &mut Shelf, hunt: &mut Hunt) -> Found {
        while hunt.steps_on_probation > 0 {
            hunt.steps_on_probation -= 1;
            let oldest = match hunt.only {
                Some(size) => shelf.first_on_probation(size),
                None => shelf.oldest_on_probation(&self.frames),
            };
            let Some(frame) = oldest else { break };
            match self.try_on_probation(shelf, frame, hunt.may_write) {
                Found::Again => {}
                found => return found,
            }
        }
        Found::Nothing
    }

    fn next_of_main(&self, shelf: &mut Shelf, hunt: &mut Hunt) -> Found {
        while hunt.steps > 0 {
            hunt.steps -= 1;
            let Some(frame) = shelf.first_of_main() else { break };
            let state = self.frames.state(frame);
            let claim = if hunt.wants(self.frames.size(frame)) {
                state.claim(hunt.spared >= SPARED_MAX, hunt.may_write)
            } else {
                Claim::Busy
            };
            shelf.unlink(&self.frames, frame);
            match claim {
                Claim::Evicting => {
                    self.evict(shelf, frame);
                    return Found::Frame(frame);
                }
                Claim::Dirty => {
                    shelf.push(&self.frames, frame, false);
                    return Found::Dirty(frame);
                }
                Claim::Referenced => {
                    state.cool();
                    hunt.spared += 1;
                    shelf.push(&self.frames, frame, false);
                }
                Claim::Busy => shelf.push(&self.frames, frame, false),
                Claim::Unwritten => {
                    hunt.met_unwritten = true;
                    shelf.push(&self.frames, frame, false);
                }
                Claim::Gone => {}
            }
        }
        Found::Nothing
    }

    /// Gives the memory of free frames, the caller's, back to the system. The bytes are the pool's still.
    pub(crate) fn discard(&self, frames: &[u32]) -> std::sync::MutexGuard<'_, Shelf> {
        for &frame in frames {
            let bytes = self.frames.size(frame).bytes() as u64;
            self.counts.discarded_bytes.fetch_add(bytes, Ordering::Relaxed);
            // SAFETY: the frames are free and in no list, so nobody else has them.
            unsafe { self.frames.discard(frame) };
        }
        let mut shelf = self.shelf();
        frames.iter().for_each(|&frame| shelf.put_bare(&self.frames, frame));
        shelf
    }

    /// Waits until a page can perhaps leave, or until the ledger has memory for a frame, which is the
    /// caller's then.
    async fn wait_for_frame(
        &self,
        size: FrameSize,
        event: u64,
    ) -> Result<Option<u32>, BufferError> {
        let nothing_new = || self.events.load(Ordering::SeqCst) == event;
        let mut park = pin!(ParkingLot::global().park(self.waiting_key(), nothing_new));
        let (limit_bytes, requested_bytes) = (self.ledger.limit(), size.bytes() as u64);
        let (held_bytes, exhausted) = {
            let shelf = self.shelf();
            (shelf.memory.bytes(), shelf.is_exhausted(size))
        };
        if limit_bytes.max(held_bytes) < requested_bytes {
            return Err(MemoryError::TooLarge { requested_bytes, limit_bytes }.into());
        }
        if limit_bytes < requested_bytes || exhausted {
            park.await;
            return Ok(None);
        }
        let mut reserve = pin!(self.ledger.reserve(requested_bytes));
        let memory = poll_fn(|context| {
            if park.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            reserve.as_mut().poll(context).map(Result::ok)
        })
        .await;
        let Some(memory) = memory else { return Ok(None) };
        let mut shelf = self.shelf();
        shelf.memory.merge(memory);
        let frame = shelf.back(size);
        let surplus = shelf.surplus(self.floor_bytes());
        drop(shelf);
        drop(surplus);
        Ok(frame)
    }
}

/// The place of the first in line for frames. The others wait until it is dropped.
pub(crate) struct Turn<'a> {
    _guard: ExclusiveGuard<'a>,
    _in_line: Counted<'a>,
}

/// Counted among those who wait.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Counted<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
