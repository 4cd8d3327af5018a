//! How operators under test compress what they spill: in any way, so that pages of all kinds are written, read, damaged and
//! given up.

use std::sync::Arc;

use weft_exec::spill::{SpillCompression, SpillOptions, Spilling};
use weft_store::spill::{Scheme, SpillArea};

const CHOICES: [SpillCompression; 4] = [
    SpillCompression::Fixed(Scheme::Off),
    SpillCompression::Fixed(Scheme::Lz4),
    SpillCompression::Fixed(Scheme::Zstd(1)),
    SpillCompression::Auto,
];

/// Operators spill to this area, compressed in one of the ways.
pub fn spilling(area: SpillArea) -> Arc<Spilling> {
    let compression = CHOICES[fastrand::usize(..CHOICES.len())];
    println!("spill_compression {}", compression.name());
    let spilling = Spilling::new(area);
    spilling.set_options(SpillOptions { compression, ..spilling.options() });
    spilling
}
