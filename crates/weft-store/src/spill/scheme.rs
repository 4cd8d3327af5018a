//! How pieces are compressed on their way to disk: one scale, from nothing to what is smallest (Spilly, section 4.4).
//!
//! The scale is the Pareto curve that `weft-bench compression` measures on pages of TPC-H's rows, in the mean of its queries. ZSTD at levels
//! below -1 takes about as long as at that and saves less; beyond level 3 it takes three times as long and saves next to nothing more. LZ4 and ZSTD are the C libraries: `lz4_flex`
//! took so much longer that a join which spilled with it was slower than with ZSTD.

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

/// A place on the scale, and what it is like on pages of TPC-H's rows. What other pages are like differs, but not which place is
/// the faster and which the smaller.
#[derive(Clone, Copy, Debug)]
pub struct Grade {
    /// The scheme.
    pub scheme: Scheme,
    /// Bytes before for each one after it.
    pub ratio: f64,
    /// Nanoseconds that compressing a byte takes.
    pub compress_ns: f64,
    /// Nanoseconds that a byte takes to come back.
    pub decompress_ns: f64,
}

/// The scale, from the fastest to the smallest.
pub const SCALE: [Grade; 5] = [
    grade(Scheme::Off, 1.0, 0.0, 0.0),
    grade(Scheme::Lz4, 1.7, 1.8, 0.3),
    grade(Scheme::Zstd(-1), 2.0, 2.8, 0.8),
    grade(Scheme::Zstd(1), 2.15, 3.1, 1.0),
    grade(Scheme::Zstd(3), 2.25, 3.9, 1.0),
];

/// Places of the scale, and one for all other schemes.
pub const LEVELS: usize = SCALE.len() + 1;

/// A number for each place of the scale, and one for all other schemes together.
pub type Levels = [u64; LEVELS];

/// What a place among [`Levels`] is called.
pub fn level_name(level: usize) -> String {
    SCALE.get(level).map_or_else(|| "other".into(), |grade| grade.scheme.name())
}

const fn grade(scheme: Scheme, ratio: f64, compress_ns: f64, decompress_ns: f64) -> Grade {
    Grade { scheme, ratio, compress_ns, decompress_ns }
}

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

    /// Its place among [`Levels`].
    pub fn level(self) -> usize {
        SCALE.iter().position(|grade| grade.scheme == self).unwrap_or(SCALE.len())
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
            Scheme::Lz4 => lz4::block::compress_to_buffer(raw, None, false, out).ok(),
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
            Scheme::Lz4 => i32::try_from(raw.len()).is_ok_and(|wanted| {
                lz4::block::decompress_to_buffer(compressed, Some(wanted), raw)
                    .is_ok_and(|bytes| bytes == raw.len())
            }),
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
        let scale = SCALE.map(|grade| grade.scheme);
        for scheme in scale.into_iter().chain([Scheme::Zstd(19), Scheme::Zstd(-7)]) {
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
        let levels = [Scheme::Off, Scheme::Zstd(1), Scheme::Zstd(19)].map(Scheme::level);
        assert_eq!(levels.map(level_name), ["off", "zstd:1", "other"]);
        assert_eq!(Scheme::parse("zstd:20"), None);
        assert_eq!(Scheme::parse("snappy"), None);
    }
}
