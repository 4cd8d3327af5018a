//! Free blocks and a budget. A process of their own: what is resident of blocks is counted for all of it.

use weft_rt::memory::heap::live_bytes;
use weft_rt::memory::slab::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Block, SPARE_FROM, free_bytes, keep_blocks,
};
use weft_rt::memory::{Ledger, Reservation};

/// Nothing of it is used: blocks count as soon as they are taken.
const LIMIT: u64 = SPARE_FROM;

/// So many bytes of blocks, and memory for them.
fn taken(ledger: &Ledger, bytes: u64, block_bytes: usize) -> (Reservation, Vec<Block>) {
    let mut memory = ledger.try_reserve(0).unwrap();
    let blocks = (0..bytes as usize / block_bytes).map(|_| {
        assert!(memory.try_grow(block_bytes as u64), "{} of {LIMIT}", ledger.used());
        Block::new(block_bytes).unwrap()
    });
    let blocks = blocks.collect();
    (memory, blocks)
}

#[test]
fn free_blocks_go_to_whoever_takes_memory_next() {
    keep_blocks(LIMIT as usize / 4);
    let ledger = Ledger::watching(LIMIT, live_bytes);
    drop(taken(&ledger, LIMIT, BLOCK_BYTES_MAX));
    assert_eq!((free_bytes() as u64, live_bytes()), (LIMIT / 4, LIMIT / 4));
    assert_eq!((ledger.used(), ledger.unreserved()), (0, 0), "what is free is nobody's");

    // Whoever takes blocks uses them: nothing goes back, but for what was cut small.
    let (memory, blocks) = taken(&ledger, LIMIT / 4, BLOCK_BYTES_MIN);
    assert_eq!((free_bytes(), live_bytes()), (0, LIMIT / 4));
    drop((memory, blocks));

    // For what lies elsewhere they make room, bit by bit.
    let mut memory = ledger.try_reserve(LIMIT / 2).expect("nothing is taken");
    assert!(memory.try_grow(LIMIT / 4) && memory.try_grow(LIMIT / 8) && memory.try_grow(LIMIT / 8));
    assert!(live_bytes() <= LIMIT / 64, "{} bytes stay", live_bytes());
    assert!(ledger.try_reserve(BLOCK_BYTES_MIN as u64).is_none());
    drop(memory);

    drop(taken(&ledger, LIMIT / 2, BLOCK_BYTES_MIN));
    let steps = ledger.steps_to_trim_blocks();
    assert!(steps > 1, "{steps}");
    (0..steps).for_each(|_| ledger.trim_blocks());
    assert_eq!(ledger.steps_to_trim_blocks(), 0);
    assert!(live_bytes() <= LIMIT / 16, "{} bytes stay", live_bytes());
}
