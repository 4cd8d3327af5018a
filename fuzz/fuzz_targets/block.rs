//! Any bytes as a block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_codec::Block;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(block) = Block::open(bytes) {
        weft_fuzz::exercise(&block);
    }
});
