//! How pieces are compressed on their way to disk: one scale, from nothing to what is smallest (Spilly, section 4.4).
//!
//! Measured on pages of an aggregation of TPC-H rows (with the C libraries; 64 KiB pages, sizes rounded up to 4 KiB): LZ4 made
//! them 2.3 times smaller at 740 MB/s, ZSTD at levels -3, -1 and 1 2.7, 2.95 and 3.03 times at 560, 500 and 460 MB/s. Beyond,
//! time grows and size does not shrink (level 3: 3.04 times at 350 MB/s); ZSTD at levels below -3 and LZ4 with acceleration
//! are worse than these in both.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

/// A place on the scale of compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Pieces are written as they are.
    #[default]
    Off,
    /// LZ4.
    Lz4,
    /// ZSTD at a level, which may be negative.
    Zstd(i8),
}

/// The scale, from the fastest to the smallest.
pub const SCALE: [Scheme; 5] =
    [Scheme::Off, Scheme::Lz4, Scheme::Zstd(-3), Scheme::Zstd(-1), Scheme::Zstd(1)];

thread_local! {
    /// Contexts are large, and made once per thread.
    static COMPRESSOR: RefCell<Option<(i8, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Scheme {
    /// The scheme of this name: `off`, `lz4`, or `zstd:` and a level of -7 to 19.
    pub fn parse(name: &str) -> Option<Scheme> {
        match name {
            "off" => Some(Scheme::Off),
            "lz4" => Some(Scheme::Lz4),
            other => {
                let level = other.strip_prefix("zstd:")?.parse().ok()?;
                (-7..=19).contains(&level).then_some(Scheme::Zstd(level))
            }
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Scheme::Off => "off".into(),
            Scheme::Lz4 => "lz4".into(),
            Scheme::Zstd(level) => format!("zstd:{level}"),
        }
    }

    /// Writes `raw` to `out`, compressed; the bytes there, unless it does not fit.
    pub(super) fn compress(self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        match self {
            Scheme::Off => None,
            // It wants room for the worst case.
            Scheme::Lz4 => {
                let compressed = lz4_flex::block::compress(raw);
                out.get_mut(..compressed.len())?.copy_from_slice(&compressed);
                Some(compressed.len())
            }
            Scheme::Zstd(level) => COMPRESSOR.with_borrow_mut(|compressor| {
                if compressor.as_ref().is_none_or(|(known, _)| *known != level) {
                    let made = Compressor::new(i32::from(level)).ok()?;
                    *compressor = Some((level, made));
                }
                let (_, compressor) = compressor.as_mut()?;
                compressor.compress_to_buffer(raw, out).ok()
            }),
        }
    }

    /// Gives back what [`Scheme::compress`] was given; false if that is not what there is.
    pub(super) fn decompress(self, compressed: &[u8], raw: &mut [u8]) -> bool {
        match self {
            Scheme::Off => false,
            Scheme::Lz4 => lz4_flex::block::decompress_into(compressed, raw)
                .is_ok_and(|bytes| bytes == raw.len()),
            Scheme::Zstd(_) => DECOMPRESSOR.with_borrow_mut(|decompressor| {
                if decompressor.is_none() {
                    *decompressor = Decompressor::new().ok();
                }
                let Some(decompressor) = decompressor else { return false };
                decompressor
                    .decompress_to_buffer(compressed, raw)
                    .is_ok_and(|bytes| bytes == raw.len())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_gives_back_what_it_was_given() {
        let raw: Vec<u8> = (0..60_000u32).map(|at| (at / 7 % 50) as u8).collect();
        for scheme in SCALE.into_iter().chain([Scheme::Zstd(19), Scheme::Zstd(-7)]) {
            assert_eq!(Scheme::parse(&scheme.name()), Some(scheme));
            let mut out = vec![0; raw.len()];
            let Some(bytes) = scheme.compress(&raw, &mut out) else {
                assert_eq!(scheme, Scheme::Off);
                continue;
            };
            assert!(bytes < raw.len(), "{scheme:?}: {bytes}");
            let mut back = vec![0; raw.len()];
            assert!(scheme.decompress(&out[..bytes], &mut back) && back == raw, "{scheme:?}");
            assert!(!scheme.decompress(&out[..bytes / 2], &mut back), "{scheme:?}");
            assert_eq!(scheme.compress(&raw, &mut [0; 8]), None);
        }
        assert_eq!(Scheme::parse("zstd:20"), None);
        assert_eq!(Scheme::parse("snappy"), None);
    }
}
