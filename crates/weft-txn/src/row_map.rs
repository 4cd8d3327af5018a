//! The indirection array: from ids of rows to chains of versions, in chunks of 65,536 rows.
//!
//! Ids never change, and are those of the rows in row groups: a chunk is there only once a row of its range was
//! changed, so a scan looks at one word per row group to know that it may read the group as it is.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

use weft_rt::memory::Reservation;
use weft_rt::memory::slab::Block;

use crate::chain::Chain;
use crate::error::{Result, TxnError};
use crate::memory::VersionMemory;
use crate::primitives::lock;

/// Rows of a chunk, and of a row group.
pub const CHUNK_ROWS: u64 = 1 << 16;
const CHUNK_BITS: u32 = 16;
/// Chunks in the first segment of the directory; each one has twice as many as the one before.
const SEGMENT_FIRST: u64 = 64;
const SEGMENTS: usize = 21;
/// Ids of rows end here.
pub(crate) const ROWS_MAX: u64 = ((SEGMENT_FIRST << SEGMENTS) - SEGMENT_FIRST) << CHUNK_BITS;

type Segment = Box<[OnceLock<Chains>]>;

/// The chains of a chunk: on huge pages, if the runtime's slab has a block, as they are visited in no order.
struct Chains {
    start: NonNull<Chain>,
    /// The heap has them if there is none.
    block: Option<Block>,
}

// SAFETY: it owns its chains, which are atomics.
unsafe impl Send for Chains {}
// SAFETY: as above.
unsafe impl Sync for Chains {}

impl Chains {
    fn new() -> Chains {
        let Some(block) = Block::new(CHUNK_ROWS as usize * size_of::<Chain>()) else {
            let chains: Box<[Chain]> = (0..CHUNK_ROWS).map(|_| Chain::new()).collect();
            return Chains { start: NonNull::from(Box::leak(chains)).cast(), block: None };
        };
        let start = block.start().cast::<Chain>();
        for row in 0..CHUNK_ROWS as usize {
            // SAFETY: the block has room for as many, is aligned to its size, and nobody else has it.
            unsafe { start.add(row).write(Chain::new()) };
        }
        Chains { start, block: Some(block) }
    }
}

impl Deref for Chains {
    type Target = [Chain];

    #[inline]
    fn deref(&self) -> &[Chain] {
        // SAFETY: there are as many, as long as this is there.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), CHUNK_ROWS as usize) }
    }
}

impl DerefMut for Chains {
    fn deref_mut(&mut self) -> &mut [Chain] {
        // SAFETY: as above, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), CHUNK_ROWS as usize) }
    }
}

impl Drop for Chains {
    fn drop(&mut self) {
        if self.block.is_none() {
            let chains = NonNull::slice_from_raw_parts(self.start, CHUNK_ROWS as usize);
            // SAFETY: `new` has leaked this box.
            drop(unsafe { Box::from_raw(chains.as_ptr()) });
        }
    }
}

/// The chunks of a table.
pub(crate) struct RowMap {
    segments: [OnceLock<Segment>; SEGMENTS],
    memory: Mutex<Vec<Reservation>>,
}

/// Segment and place of a chunk.
#[inline]
fn place_of(chunk: u64) -> (usize, usize) {
    let shifted = chunk + SEGMENT_FIRST;
    let segment = (shifted / SEGMENT_FIRST).ilog2();
    (segment as usize, (shifted - (SEGMENT_FIRST << segment)) as usize)
}

impl RowMap {
    pub(crate) fn new() -> RowMap {
        RowMap { segments: std::array::from_fn(|_| OnceLock::new()), memory: Mutex::default() }
    }

    /// The chunk with this number; `None` if nothing was changed in it.
    #[inline]
    pub(crate) fn chunk(&self, chunk: u64) -> Option<&[Chain]> {
        let (segment, place) = place_of(chunk);
        self.segments.get(segment)?.get()?.get(place)?.get().map(|chains| &chains[..])
    }

    /// The chain of a row; `None` if nothing was changed in its chunk.
    #[inline]
    pub(crate) fn chain(&self, row: u64) -> Option<&Chain> {
        Some(&self.chunk(row >> CHUNK_BITS)?[(row % CHUNK_ROWS) as usize])
    }

    /// The chain of a row, with a chunk made for it if there is none.
    pub(crate) fn chain_to_be(
        &self,
        table: u32,
        row: u64,
        memory: &VersionMemory,
    ) -> Result<&Chain> {
        if let Some(chain) = self.chain(row) {
            return Ok(chain);
        }
        if row >= ROWS_MAX {
            return Err(TxnError::RowIds { table });
        }
        let (segment, place) = place_of(row >> CHUNK_BITS);
        let chunks = SEGMENT_FIRST << segment;
        let segment = &self.segments[segment];
        if segment.get().is_none() {
            let bytes = chunks * size_of::<OnceLock<Chains>>() as u64;
            let reservation = memory.reserve_apart(bytes)?;
            let made = (0..chunks).map(|_| OnceLock::new()).collect();
            // Another may have been first.
            if segment.set(made).is_ok() {
                lock(&self.memory).push(reservation);
            }
        }
        let chunk = &segment.get().expect("it was made")[place];
        if chunk.get().is_none() {
            let reservation = memory.reserve_apart(CHUNK_ROWS * size_of::<Chain>() as u64)?;
            if chunk.set(Chains::new()).is_ok() {
                lock(&self.memory).push(reservation);
            }
        }
        Ok(&chunk.get().expect("it was made")[(row % CHUNK_ROWS) as usize])
    }
}

impl Drop for RowMap {
    fn drop(&mut self) {
        let segments = self.segments.iter_mut().filter_map(OnceLock::get_mut);
        let chunks = segments.flat_map(|segment| segment.iter_mut()).filter_map(OnceLock::get_mut);
        chunks.flat_map(|chains| chains.iter_mut()).for_each(Chain::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other() {
        let mut expected = (0, 0);
        for chunk in 0..10_000 {
            assert_eq!(place_of(chunk), expected, "{chunk}");
            expected.1 += 1;
            if expected.1 == (SEGMENT_FIRST as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(place_of((ROWS_MAX >> CHUNK_BITS) - 1).0, SEGMENTS - 1);
        assert_eq!(place_of(ROWS_MAX >> CHUNK_BITS).0, SEGMENTS);
    }

    #[test]
    fn chunks_exist_where_something_changed() {
        let ledger = weft_rt::memory::Ledger::new(16 << 20);
        let memory = VersionMemory::new(ledger.clone());
        let map = RowMap::new();
        assert!(map.chain(7 * CHUNK_ROWS).is_none() && ledger.used() == 0);
        map.chain_to_be(1, 7 * CHUNK_ROWS + 3, &memory).unwrap();
        assert!(map.chain(7 * CHUNK_ROWS).is_some() && map.chain(6 * CHUNK_ROWS).is_none());
        assert!(ledger.used() >= CHUNK_ROWS * 8);
        let error = map.chain_to_be(1, ROWS_MAX, &memory).err().unwrap();
        assert!(matches!(error, TxnError::RowIds { table: 1 }), "{error}");
        assert!(map.chain(u64::MAX).is_none());
        drop(map);
        assert_eq!(ledger.used(), 0);
    }
}
