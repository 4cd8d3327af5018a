//! The frames of the static pool: the memory that pages are loaded into, and who is interested in each.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_rt::io::{Arena, IoBuf, Recycle};
use weft_rt::sync::ParkingLot;

use crate::frame_state::{FrameState, Phase, Unpinned, Use};
use crate::page::PageId;
use crate::swip::{Swip, SwipState};

/// Frames of one size: one arena, a state per frame.
pub(crate) struct Frames {
    bytes: usize,
    arena: Arc<Arena>,
    states: Box<[FrameState]>,
    /// The page that a frame holds or is loading, as bits of its id.
    ids: Box<[AtomicU64]>,
    /// Last in, first out: the frame freed last is the likeliest to be in a cache.
    free: Mutex<Vec<u32>>,
    /// Coroutines that wait for a free frame. Counted before they look for the last time under the
    /// lock of `free`, so that whoever frees a frame after that sees them.
    waiting: AtomicUsize,
}

impl Frames {
    /// `count` frames of `bytes` bytes.
    ///
    /// # Errors
    /// The system's error if it has no memory.
    pub(crate) fn new(bytes: usize, count: usize) -> std::io::Result<Arc<Frames>> {
        Ok(Arc::new(Frames {
            bytes,
            arena: Arena::new(count * bytes)?,
            states: (0..count).map(|_| FrameState::new()).collect(),
            ids: (0..count).map(|_| AtomicU64::new(0)).collect(),
            free: Mutex::new((0..count as u32).rev().collect()),
            waiting: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Frames that nobody uses.
    pub(crate) fn free_count(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The frame whose memory starts at `page`; `None` if the page lies elsewhere.
    #[inline]
    pub(crate) fn index_of(&self, page: NonNull<u8>) -> Option<u32> {
        let offset = (page.as_ptr() as usize).wrapping_sub(self.arena.as_ptr().as_ptr() as usize);
        (offset < self.states.len() * self.bytes).then(|| (offset / self.bytes) as u32)
    }

    /// Address of a frame's memory.
    fn page(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.states.len(), "frame {index}");
        // SAFETY: the frame lies inside the arena.
        unsafe { self.arena.as_ptr().add(index as usize * self.bytes) }
    }

    /// Takes a free frame for loading the page `id` of `swip`, waiting until there is one. The frame
    /// has two pins: one of the buffer returned, which the device fills, and one of the caller.
    pub(crate) async fn take<'a>(
        self: &'a Arc<Frames>,
        swip: &'a Swip,
        id: PageId,
    ) -> (Pin<'a>, IoBuf) {
        loop {
            let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if let Some(index) = index {
                // Nobody looks at the id before the frame is loading.
                self.ids[index as usize].store(id.to_bits(), Ordering::Relaxed);
                self.states[index as usize].begin_loading();
                let owner: Arc<dyn Recycle> = self.clone();
                let (page, bytes) = (self.page(index), self.bytes);
                // SAFETY: the frame's memory lies in the arena, which `owner` keeps mapped; it is
                // nobody else's, since the frame was free, until the buffer's pin is let go of.
                let buffer =
                    unsafe { IoBuf::from_owner(page, bytes, Some(self.arena.id()), owner) };
                return (Pin { frames: self, swip, index }, buffer);
            }
            let waiter = Waiter::new(&self.waiting);
            let none_free = || self.free_count() == 0;
            ParkingLot::global().park(self.free_key(), none_free).await;
            drop(waiter);
        }
    }

    /// Pins a frame in phase `expected` while `swip` is in state `leads_here`; `None` if it no
    /// longer is or the frame is about to be reused: the caller then looks at the swip again.
    #[inline]
    pub(crate) fn pin<'a>(
        self: &'a Arc<Frames>,
        index: u32,
        expected: Phase,
        swip: &'a Swip,
        leads_here: SwipState,
    ) -> Option<Pin<'a>> {
        let pinned = self.states[index as usize].pin(expected, swip, leads_here, Use::Scan);
        // Not made before it is known: a pin that is dropped lets go.
        pinned.then(|| Pin { frames: self, swip, index })
    }

    /// Lets go of one pin. With the last one the frame becomes free, and the page that it held goes
    /// through `evict` first.
    #[inline]
    fn unpin(&self, index: u32, evict: impl FnOnce(PageId)) {
        let unpinned = self.states[index as usize].unpin(|| {
            let id = self.ids[index as usize].load(Ordering::Relaxed);
            evict(PageId::from_bits(id).expect("the id of a loaded page"));
        });
        if unpinned != Unpinned::Freed {
            return;
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(index);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            ParkingLot::global().unpark_one(self.free_key());
        }
    }

    fn free_key(&self) -> usize {
        std::ptr::from_ref(&self.free) as usize
    }
}

/// Counted among those who wait for a free frame.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn new(waiting: &'a AtomicUsize) -> Waiter<'a> {
        waiting.fetch_add(1, Ordering::SeqCst);
        Waiter(waiting)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Recycle for Frames {
    /// The device is done with a frame whose coroutine had given up.
    fn recycle(&self, page: NonNull<u8>, _: usize) {
        let index = self.index_of(page).expect("the buffer is one of ours");
        self.unpin(index, |id| unreachable!("{id:?} was loaded before its buffer came back"));
    }
}

/// One pin of a frame that `swip` leads to. Letting go of the last one evicts the page.
pub(crate) struct Pin<'a> {
    frames: &'a Arc<Frames>,
    swip: &'a Swip,
    index: u32,
}

impl Pin<'_> {
    #[inline]
    pub(crate) fn page(&self) -> NonNull<u8> {
        self.frames.page(self.index)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase()
    }

    /// The frame holds the page now: takes over the buffer's pin, turns the swip hot and wakes the
    /// coroutines that wait for the page.
    pub(crate) fn loaded(&self, buffer: IoBuf) {
        let (page, _) = buffer.into_raw();
        assert_eq!(page, self.page(), "the buffer is this frame's");
        self.state().loaded(self.swip, page, false);
    }

    /// Loading failed or was given up: turns the swip cold again and wakes the coroutines that wait
    /// for the page, so that one of them tries next.
    pub(crate) fn failed(&self, id: PageId) {
        self.state().failed(self.swip, id);
    }

    /// Waits until the loading has ended either way.
    pub(crate) async fn wait(&self) {
        self.state().wait().await;
    }

    fn state(&self) -> &FrameState {
        &self.frames.states[self.index as usize]
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.unpin(self.index, |id| self.swip.set(SwipState::Cold(id)));
    }
}
