//! Block-level compression of what the encodings leave, where it pays.

use std::borrow::Cow;

use crate::error::{Result, damaged};

/// What may be applied to the encoded bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    None,
    /// LZ4: cheap to decode.
    Lz4,
    /// ZSTD at a level of 1 to 22: smaller, several times slower to decode.
    Zstd(i32),
}

const NONE: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// No block is stored in less than this fraction of its encoded size, so that a reader of untrusted
/// bytes knows how much memory they may ask for.
const MAX_RATIO: usize = 255;

/// Pieces of a long body that are tried first, and their bytes.
const PIECES: (usize, usize) = (4, 16 << 10);

/// Pieces of a long body, which tell whether the whole is worth trying.
fn sample(body: &[u8]) -> Option<Vec<u8>> {
    let (pieces, len) = PIECES;
    if body.len() <= 2 * pieces * len {
        return None;
    }
    let stride = (body.len() - len) / (pieces - 1);
    Some((0..pieces).flat_map(|piece| &body[piece * stride..][..len]).copied().collect())
}

fn apply(body: &[u8], compression: Compression) -> Option<Vec<u8>> {
    match compression {
        Compression::None => None,
        Compression::Lz4 => Some(lz4_flex::block::compress(body)),
        // It fails only for lack of memory: the body itself is as good.
        Compression::Zstd(level) => zstd::bulk::compress(body, level.clamp(1, 22)).ok(),
    }
}

/// The tag of what was applied, and the result if it is not the body itself. Decompression is far
/// slower than decoding, so it must save a quarter.
pub(crate) fn compress(body: &[u8], compression: Compression) -> (u8, Option<Vec<u8>>) {
    let tag = match compression {
        Compression::None => NONE,
        Compression::Lz4 => LZ4,
        Compression::Zstd(_) => ZSTD,
    };
    let pays = |body: &[u8], stored: &[u8]| stored.len() < body.len() - body.len() / 4;
    if let Some(sample) = sample(body)
        && apply(&sample, compression).is_none_or(|stored| !pays(&sample, &stored))
    {
        return (NONE, None);
    }
    match apply(body, compression) {
        Some(stored) if pays(body, &stored) && body.len() <= stored.len() * MAX_RATIO => {
            (tag, Some(stored))
        }
        _ => (NONE, None),
    }
}

/// The name of a tag, for encoding trees.
pub(crate) fn name(tag: u8) -> &'static str {
    match tag {
        LZ4 => "lz4",
        ZSTD => "zstd",
        _ => "none",
    }
}

/// Gives back the body of `len` bytes.
pub(crate) fn decompress(tag: u8, stored: &[u8], len: usize) -> Result<Cow<'_, [u8]>> {
    let name = name(tag);
    if tag > ZSTD {
        return Err(damaged("header", format!("unknown compression {tag}")));
    }
    let bound = if tag == NONE { stored.len() } else { stored.len().saturating_mul(MAX_RATIO) };
    if len > bound.min(2 * crate::MAX_BODY_BYTES) {
        return Err(damaged("header", format!("{} bytes for a body of {len}", stored.len())));
    }
    let body = match tag {
        NONE => Cow::Borrowed(stored),
        LZ4 => {
            let mut body = vec![0; len];
            let got = lz4_flex::block::decompress_into(stored, &mut body)
                .map_err(|error| damaged(name, error.to_string()))?;
            body.truncate(got);
            Cow::Owned(body)
        }
        _ => Cow::Owned(
            zstd::bulk::decompress(stored, len)
                .map_err(|error| damaged(name, error.to_string()))?,
        ),
    };
    if body.len() != len {
        return Err(damaged(name, format!("a body of {} bytes instead of {len}", body.len())));
    }
    Ok(body)
}
