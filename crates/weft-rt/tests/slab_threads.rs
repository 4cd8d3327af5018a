//! Blocks of several threads, which give back what the others take. A process of their own: what is resident of them is counted
//! for all of it.

use std::thread;

use weft_rt::memory::heap::live_bytes;
use weft_rt::memory::slab::{BLOCK_BYTES_MIN, Block, give_back, keep_blocks};

const THREADS: u64 = 4;

/// A block that begins with a number.
struct Marked {
    block: Block,
    mark: u64,
}

impl Marked {
    fn new(mark: u64) -> Marked {
        let block = Block::new(BLOCK_BYTES_MIN).unwrap();
        // SAFETY: the block is ours, and aligned.
        unsafe { block.start().cast::<u64>().write(mark) };
        Marked { block, mark }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        // SAFETY: the block is ours, and was written.
        assert_eq!(unsafe { self.block.start().cast::<u64>().read() }, self.mark);
    }
}

/// Of many chunks few pieces are in use while the others go back, then none: those chunks go back, or what is resident of them,
/// while others take pieces of them again.
#[test]
fn chunks_of_which_little_is_resident_go_back() {
    keep_blocks(64 << 20);
    let work = |thread: u64| {
        move || {
            let mut random = fastrand::Rng::with_seed(thread);
            for _ in 0..100 {
                let mut blocks: Vec<_> = (0..512).map(|_| Marked::new(random.u64(..))).collect();
                blocks.retain(|_| random.u32(..16) == 0);
                while give_back(0) {}
                drop(blocks);
                while give_back(0) {}
            }
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|thread| thread::spawn(work(thread))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    keep_blocks(0);
    assert_eq!(live_bytes(), 0);
}
