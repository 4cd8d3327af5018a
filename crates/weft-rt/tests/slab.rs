//! Blocks on huge pages. A process of their own: what is resident of them is counted for all of it.

use weft_rt::memory::heap::live_bytes;
use weft_rt::memory::slab::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Block, keep_blocks};

/// What may be free: a huge page.
const CAPACITY: usize = 2 << 20;

/// A block that is filled with one byte.
struct Filled {
    block: Block,
    bytes: usize,
    byte: u8,
}

impl Filled {
    fn new(bytes: usize, byte: u8) -> Filled {
        let block = Block::new(bytes).unwrap();
        assert!((block.start().as_ptr() as usize).is_multiple_of(bytes));
        // SAFETY: the block is ours.
        unsafe { block.start().as_ptr().write_bytes(byte, bytes) };
        Filled { block, bytes, byte }
    }

    fn is_whole(&self) -> bool {
        // SAFETY: the block is ours, and was filled.
        let bytes = unsafe { std::slice::from_raw_parts(self.block.start().as_ptr(), self.bytes) };
        bytes.iter().all(|found| *found == self.byte)
    }
}

/// Of this process, all that counts is blocks: its allocator is not counted.
fn resident_bytes() -> usize {
    live_bytes() as usize
}

#[test]
fn blocks_are_cut_from_chunks_that_go_back() {
    assert!(Block::new(BLOCK_BYTES_MIN).is_none(), "nobody wants them");
    keep_blocks(CAPACITY);
    for bytes in [BLOCK_BYTES_MIN / 2, BLOCK_BYTES_MIN * 3, BLOCK_BYTES_MAX * 2] {
        assert!(Block::new(bytes).is_none());
    }
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut blocks: Vec<Filled> = Vec::new();
    for round in 0..4_000_u32 {
        // It grows and shrinks.
        if random.u32(..1_000) < if round / 1_000 % 2 == 0 { 700 } else { 300 } {
            blocks.push(Filled::new(BLOCK_BYTES_MIN << random.u32(..5), round as u8));
        } else if !blocks.is_empty() {
            assert!(blocks.swap_remove(random.usize(..blocks.len())).is_whole());
        }
        let used: usize = blocks.iter().map(|block| block.bytes).sum();
        let found = resident_bytes();
        assert!((used..=used + CAPACITY).contains(&found), "{found} for {used} bytes");
    }
    assert!(blocks.iter().all(Filled::is_whole));
    keep_blocks(0);
    assert_eq!(resident_bytes(), blocks.iter().map(|block| block.bytes).sum());
    assert!(Block::new(BLOCK_BYTES_MIN).is_none());
    blocks.clear();
    assert_eq!(resident_bytes(), 0);
}
