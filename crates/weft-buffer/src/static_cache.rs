//! Making chosen pages permanent before a run: the static buffer manager of the ADMS paper
//! (section 3.1), which lets an experiment fix the fraction of cached pages.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_rt::io::{Arena, IoBuf, Recycle};
use weft_rt::{Batch, Boundary, JoinError, Runtime};

use crate::error::BufferError;
use crate::page;
use crate::static_pool::StaticPool;
use crate::swip::SwipState;

/// Reads in flight per worker while pages are made permanent.
const LOAD_DEPTH: usize = 64;

/// Why pages could not be made permanent.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A page could not be read.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A worker failed.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// The pages of a pool that are permanent, in the order in which they were chosen.
pub struct StaticCache {
    pool: Arc<StaticPool>,
    order: Vec<u32>,
    loaded: usize,
}

/// How many pages are to be permanent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice<'a> {
    /// This fraction of the pages, from 0 to 1.
    Pages(f64),
    /// As many pages as serve this fraction of the accesses; the slice says how often each page is
    /// accessed.
    Accesses(f64, &'a [u32]),
}

impl StaticCache {
    /// Nothing is permanent yet; pages will be chosen uniformly at random, as `seed` has it. While
    /// the cache grows, nobody may fix pages of the pool.
    ///
    /// # Panics
    /// If the pool has had a cache before.
    pub fn new(pool: Arc<StaticPool>, seed: u64) -> StaticCache {
        pool.take_cache();
        let mut order: Vec<u32> = (0..pool.table().len() as u32).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        StaticCache { pool, order, loaded: 0 }
    }

    /// Number of permanent pages.
    pub fn pages(&self) -> usize {
        self.loaded
    }

    /// Bytes of the permanent pages.
    pub fn bytes(&self) -> u64 {
        self.loaded as u64 * self.pool.page_bytes() as u64
    }

    /// Makes as many further pages permanent as `choice` asks for; pages that are permanent stay so.
    /// Reads on all workers; blocks this thread, which must be no worker.
    ///
    /// # Errors
    /// [`CacheError`] if a page cannot be read or is damaged; the cache cannot grow further then.
    ///
    /// # Panics
    /// If the fraction is not between 0 and 1, or there are not as many counts as pages.
    pub fn grow(
        mut self,
        runtime: &Runtime,
        choice: Choice<'_>,
    ) -> Result<StaticCache, CacheError> {
        let wanted = self.count(choice);
        if wanted <= self.loaded {
            return Ok(self);
        }
        let pages: Arc<[u32]> = self.order[self.loaded..wanted].into();
        let first_slot = self.loaded;
        let next = Arc::new(AtomicUsize::new(0));
        let arena = self.pool.permanent()?;
        let tasks: Vec<_> = (0..runtime.workers())
            .map(|worker| {
                let (pool, arena) = (self.pool.clone(), arena.clone());
                let (pages, next) = (pages.clone(), next.clone());
                runtime.spawn_on(worker, move || {
                    let load_next = move || {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let page = *pages.get(at)?;
                        let slot = slot(&arena, first_slot + at, pool.page_bytes());
                        Some(load(pool.clone(), page as usize, slot))
                    };
                    Batch::new(LOAD_DEPTH, Boundary::Weak, load_next)
                })
            })
            .collect();
        let outcomes: Vec<_> = tasks.into_iter().map(|task| task.wait()).collect();
        for outcome in outcomes {
            outcome??;
        }
        self.loaded = wanted;
        Ok(self)
    }

    fn count(&self, choice: Choice<'_>) -> usize {
        let (Choice::Pages(fraction) | Choice::Accesses(fraction, _)) = choice;
        assert!((0.0..=1.0).contains(&fraction), "fraction {fraction}");
        match choice {
            Choice::Pages(fraction) => (self.order.len() as f64 * fraction).round() as usize,
            Choice::Accesses(fraction, accesses) => {
                assert_eq!(accesses.len(), self.order.len(), "one count per page");
                let total: u64 = accesses.iter().map(|&count| u64::from(count)).sum();
                let wanted = (total as f64 * fraction).round() as u64;
                let mut served = 0;
                self.order
                    .iter()
                    .take_while(|&&page| {
                        let more = served < wanted;
                        served += u64::from(accesses[page as usize]);
                        more
                    })
                    .count()
            }
        }
    }
}

/// The memory of a permanent page.
fn slot(arena: &Arc<Arena>, slot: usize, bytes: usize) -> IoBuf {
    assert!((slot + 1) * bytes <= arena.len(), "slot {slot} of {bytes} bytes");
    // SAFETY: the slot lies in the arena, which the buffer's owner keeps mapped. It is handed out
    // once only: a pool has one cache, which counts its slots up and ends at the first failure.
    unsafe {
        let start = arena.as_ptr().add(slot * bytes);
        IoBuf::from_owner(start, bytes, None, Arc::new(Keep(arena.clone())))
    }
}

/// Keeps the arena mapped while a device may write to it.
struct Keep(Arc<Arena>);

impl Recycle for Keep {
    fn recycle(&self, start: NonNull<u8>, len: usize) {
        debug_assert!(self.0.contains(start, len));
    }
}

async fn load(pool: Arc<StaticPool>, page_number: usize, slot: IoBuf) -> Result<(), BufferError> {
    let swip = pool.table().swip(page_number);
    let SwipState::Cold(id) = swip.state() else {
        unreachable!("a page that is made permanent is cold")
    };
    let device = pool.devices().of(id);
    let (result, slot) = device.read_exact(slot, id.offset()).await;
    result?;
    page::verify(&slot, id).map_err(|source| BufferError::Page {
        path: device.path().into(),
        id,
        source,
    })?;
    swip.set(SwipState::Hot(slot.into_raw().0));
    Ok(())
}
