//! Column encodings: one *block* of up to 65,536 values to self-describing bytes, and back into
//! Arrow's layout.
//!
//! [`encode`] picks a cascade of encodings at most three levels of choice deep (as BtrBlocks, SIGMOD
//! 2023, does); [`Block::open`] checks a header, [`Block::decode`] decodes all rows, [`Block::value`]
//! one row without the others. Blocks carry no checksum: that is the storage's. Yet no bytes
//! whatever make a decoder panic, read past the end, loop, or ask for more memory than 255 times the
//! block's size for its body, 8 times the body (and 1 GiB) for strings, and 16 bytes a row
//! (or nested value, of which there are at most [`MAX_VALUES`]) per node.
//!
//! # Format
//!
//! All numbers are little-endian. A block is a header of 16 bytes and a body.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 1 | format version: 1 |
//! | 1 | 1 | [`Physical`] type |
//! | 2 | 1 | compression of the body: 0 none, 1 LZ4 block, 2 ZSTD frame |
//! | 3 | 1 | 0 |
//! | 4 | 4 | rows, at most [`MAX_ROWS`] |
//! | 8 | 4 | bytes of the validity node; 0 if there are no nulls |
//! | 12 | 4 | bytes of the body before compression |
//! | 16 | | the body: validity node (booleans, true = valid), then the values' node |
//!
//! A *node* is a tag ([`Encoding`]) of one byte and a payload. It knows neither its length nor its
//! number of values: its parent does. A *child* is a node after its length in bytes (u32); the last
//! node of a payload takes the rest. Signed integers and floats are stored as their bits, sums and
//! differences wrap.
//!
//! | tag | encoding | payload |
//! | --- | --- | --- |
//! | 0 | plain | fixed width: the values; booleans: a bitmap, least bit first; strings: child with the end of each (u32), then the bytes |
//! | 1 | constant | the value (booleans: a byte; strings: the rest) |
//! | 2 | frame-of-reference | per chunk of 1,024: base (a value each), then width (u8 each), then 128 · width bytes each in FastLanes order |
//! | 3 | delta | per chunk: first value, then base of differences, then width (u8), then packed differences minus base; difference 0 is ignored |
//! | 4 | dictionary | entries (u32), child with the sorted entries, codes (u16 node) |
//! | 5 | run-length | runs (u32), child with their values, last row of each (u16 node) |
//! | 6 | ALP | exponent, factor (u8 each), exceptions (u32), their rows (u16 each), their values, integers (node of the float's width) |
//! | 7 | FSST | symbols (u8), their lengths (u8 each), symbols (8 bytes each), child with string ends (u32), child with code ends (u32), codes |
//! | 8 | narrow | 128-bit integers as a node of 64-bit ones |
//! | 9 | wide | child with the high halves, node with the low halves (64 bits each) |
//! | 10 | list | child with the end of each list (u32), blocks (u32), each the block of 65,536 items (the last: the rest) as a child |
//! | 11 | struct | fields (u32), each a block of as many rows as a child |
//! | 12 | interval | children with months and days (u32), node with nanoseconds (u64) |
//!
//! The body of a block of nothing but nulls is empty. Blocks within blocks are not compressed.

mod alp;
mod block;
mod bools;
mod compression;
mod condition;
mod decode;
mod dictionary;
pub mod dispatch;
mod encode;
mod encoding;
mod error;
mod filter;
mod floats;
mod fsst;
mod intervals;
mod ints;
mod lane;
pub mod mask;
mod nested;
mod packed;
mod physical;
mod predicate;
mod reader;
mod rows;
mod runs;
mod scalar;
pub mod sketch;
mod strings;
mod text;
mod tree;
mod views;
mod wide;
mod within;
mod zone;

pub use block::Block;
pub use compression::Compression;
pub use decode::BlockRuns;
pub use encode::{Encoder, Options, encode};
pub use encoding::Encoding;
pub use error::{Error, Result};
pub use physical::Physical;
pub use predicate::{Op, Predicate};
pub use scalar::Scalar;
pub use sketch::Sketch;
pub use zone::{Zone, zone};

/// Rows that a block holds at most.
pub const MAX_ROWS: usize = 65_536;

/// Where ranges that are decoded by themselves begin: at multiples of so many rows.
pub const RANGE_ROWS: usize = lane::CHUNK;

/// Values that the lists and structs of a block hold at most: each item of a list, and each field of a
/// struct, at every level.
pub const MAX_VALUES: usize = 1 << 24;

/// Bytes that the strings of a block hold at most.
pub const MAX_BODY_BYTES: usize = 1 << 30;
