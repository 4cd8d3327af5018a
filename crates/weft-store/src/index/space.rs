//! Where the pages of an index lie: chunks of several pages, which the manifest names, and the places in them.
//!
//! Which places of a chunk are in use, the tree's directory says: so the manifest stays short however the tree's
//! pages move within the chunks. A place of the committed tree is free only after the commit that does without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_buffer::PageId;
use weft_index::IndexError;

use crate::error::Result;
use crate::extent::{Extent, UNIT_BYTES, coalesce};
use crate::space::{Allocation, Space};

/// Pages of a chunk: of the first one, and at most. A chunk is about an eighth of what there is.
const CHUNK_PAGES: (u64, u64) = (4, 512);

/// The places of one index.
pub(crate) struct IndexSpace {
    space: Arc<Space>,
    page_bytes: usize,
    state: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Chunks that the database has, all of which the next manifest names.
    committed: Vec<Extent>,
    /// Chunks that go back with the tree unless a commit keeps them.
    taken: Vec<Allocation>,
    free: Vec<PageId>,
    /// Places that the committed tree needs, and the next one does not.
    released: Vec<PageId>,
}

impl IndexSpace {
    /// Places for pages of `page_bytes`, none of them taken.
    pub(crate) fn new(space: Arc<Space>, page_bytes: usize) -> Arc<IndexSpace> {
        Arc::new(IndexSpace { space, page_bytes, state: Mutex::default() })
    }

    /// The chunks of a committed index.
    pub(crate) fn committed(
        space: Arc<Space>,
        page_bytes: usize,
        committed: Vec<Extent>,
    ) -> Arc<IndexSpace> {
        let state = Places { committed, ..Places::default() };
        Arc::new(IndexSpace { space, page_bytes, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, Places> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which places of the committed chunks are in use.
    pub(crate) fn note_used(&self, used: Vec<PageId>) {
        let used: std::collections::HashSet<u64> = used.into_iter().map(PageId::to_bits).collect();
        let mut state = self.state();
        let places = state.committed.iter().flat_map(|extent| self.places_of(*extent));
        let free = places.filter(|place| !used.contains(&place.to_bits())).collect();
        state.free = free;
    }

    fn places_of(&self, extent: Extent) -> impl Iterator<Item = PageId> + use<> {
        let page_bytes = self.page_bytes;
        let units = page_bytes as u64 / UNIT_BYTES;
        // Taken from the end: so what is taken lies one behind the other.
        (0..extent.units / units).rev().map(move |place| {
            let offset = (extent.start + place * units) * UNIT_BYTES;
            PageId::new(extent.device, offset, page_bytes)
        })
    }

    /// Sees to it that `pages` more places can be taken.
    pub(crate) async fn ensure(&self, pages: usize) -> Result<()> {
        loop {
            let chunk_pages = {
                let state = self.state();
                if state.free.len() >= pages {
                    return Ok(());
                }
                let units: u64 = state.committed.iter().map(|extent| extent.units).sum();
                let taken = state.taken.iter().map(|chunk| chunk.extent().units);
                let there = (units + taken.sum::<u64>()) * UNIT_BYTES / self.page_bytes as u64;
                (there / 8).max(pages as u64).clamp(CHUNK_PAGES.0, CHUNK_PAGES.1)
            };
            let units = chunk_pages * (self.page_bytes as u64 / UNIT_BYTES);
            let chunk = self.space.allocate(units).await?;
            let mut state = self.state();
            let places: Vec<PageId> = self.places_of(chunk.extent()).collect();
            // Behind those that there are already.
            state.free.splice(0..0, places);
            state.taken.push(chunk);
        }
    }

    /// The places of these pages are not needed once the next commit is durable.
    pub(crate) fn release_later(&self, released: Vec<PageId>) {
        self.state().released.extend(released);
    }

    /// All chunks, sorted and joined.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        let state = self.state();
        let taken = state.taken.iter().map(Allocation::extent);
        coalesce(state.committed.iter().copied().chain(taken).collect())
    }

    /// All chunks belong to the database: they are no longer given back with the tree.
    pub(crate) fn keep_chunks(&self) {
        let state = &mut *self.state();
        state.committed.extend(state.taken.drain(..).map(|chunk| chunk.keep()));
    }

    /// A manifest is durable that names all chunks.
    pub(crate) fn settle(&self) {
        self.keep_chunks();
        let state = &mut *self.state();
        state.free.append(&mut state.released);
    }

    /// The tree is written and no commit names it: places of its earlier pages are free.
    pub(crate) fn recycle(&self) {
        let state = &mut *self.state();
        state.free.append(&mut state.released);
    }
}

impl weft_index::Space for IndexSpace {
    fn allocate(&self, bytes: usize) -> std::result::Result<PageId, IndexError> {
        debug_assert_eq!(bytes, self.page_bytes);
        self.state().free.pop().ok_or_else(|| IndexError::Space {
            reason: "more pages were needed at once than were set apart".into(),
        })
    }

    fn release(&self, id: PageId) {
        self.state().free.push(id);
    }
}
