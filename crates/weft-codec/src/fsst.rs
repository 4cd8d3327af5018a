//! FSST (Boncz et al., VLDB 2020): strings as codes of a table of up to 255 symbols. `fsst-rs` trains
//! the table and compresses; decoding is done here, into a buffer of just the strings' bytes whatever
//! the codes are. All strings are decoded in one call; a single one can be decoded on its own.
//!
//! Payload: number of symbols (u8), their lengths (u8 each), the symbols (eight bytes each), the ends
//! of the strings, the ends of their codes (both children), the codes as the rest.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use fsst::{Compressor, ESCAPE_CODE};

use crate::dictionary;
use crate::encoding::Encoding;
use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::{Reader, put, put_child};
use crate::rows::Rows;
use crate::strings::{self, Views};
use crate::text::Text;

/// Below this many bytes the table of symbols does not pay.
const MIN_BYTES: usize = 1024;
/// Strings longer than this are cut for the training of the table.
const TRAINED_BYTES: usize = 256;

/// A trained table of symbols.
pub(crate) struct Table {
    compressor: Compressor,
    /// Bytes of codes per byte of the sample that it was trained with.
    ratio: f64,
}

/// A sample that is worse by this factor than the one a table was trained with needs another table.
const STALE: f64 = 1.05;

/// A table for `values`, of `bytes` bytes together: the one `kept` if it still fits, else a new one, which
/// is then kept; nothing if a sample shrinks by less than a tenth.
pub(crate) fn table<'t>(
    values: &[&[u8]],
    bytes: usize,
    kept: &'t mut Option<Table>,
) -> Option<&'t Table> {
    if bytes < MIN_BYTES {
        return None;
    }
    let sample: Vec<&[u8]> = dictionary::sample(values)
        .into_iter()
        .map(|value| &value[..value.len().min(TRAINED_BYTES)])
        .collect();
    let sample_bytes: usize = sample.iter().map(|value| value.len()).sum();
    let ratio = |compressor: &Compressor| {
        compress(compressor, &sample).0.len() as f64 / sample_bytes.max(1) as f64
    };
    let fits = kept.as_ref().is_some_and(|kept| ratio(&kept.compressor) <= kept.ratio * STALE);
    if !fits {
        let compressor = Compressor::train(&sample);
        *kept = Some(Table { ratio: ratio(&compressor), compressor });
    }
    kept.as_ref().filter(|table| table.ratio <= 0.9)
}

/// The codes of all strings, and where each string's end.
fn compress(compressor: &Compressor, values: &[&[u8]]) -> (Vec<u8>, Vec<u64>) {
    let (mut codes, mut ends) = (Vec::new(), Vec::new());
    compressor
        .compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(values, &mut codes, &mut ends);
    (codes, ends)
}

impl Table {
    /// Appends an FSST node, given the node of the strings' ends, if it takes less than `limit` bytes;
    /// says whether.
    pub(crate) fn encode(
        &self,
        values: &[&[u8]],
        ends: &[u8],
        level: u8,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let (codes, code_ends) = compress(&self.compressor, values);
        let mut start = 0;
        let length = |&end: &u64| (end - std::mem::replace(&mut start, end)) as usize;
        let code_ends = strings::encode_ends(code_ends.iter().map(length), level);
        let (symbols, lengths) = (self.compressor.symbol_table(), self.compressor.symbol_lengths());
        let len = 10 + symbols.len() * 9 + ends.len() + code_ends.len() + codes.len();
        if len >= limit {
            return false;
        }
        out.reserve(len);
        out.extend_from_slice(&[Encoding::Fsst as u8, symbols.len() as u8]);
        out.extend_from_slice(lengths);
        symbols.iter().for_each(|symbol| put(out, symbol.to_u64()));
        put_child(out, ends);
        put_child(out, &code_ends);
        out.extend_from_slice(&codes);
        true
    }
}

/// Eight symbols of eight bytes: what one step of the decoder writes at most.
const STEP_BYTES: usize = 64;

/// An FSST payload, with a table that decoding cannot leave.
pub(crate) struct Fsst<'a> {
    symbols: [u64; 256],
    lengths: [u8; 256],
    pub(crate) ends: &'a [u8],
    pub(crate) code_ends: &'a [u8],
    codes: &'a [u8],
}

impl<'a> Fsst<'a> {
    pub(crate) fn open(mut reader: Reader<'a>) -> Result<Self> {
        let len = usize::from(reader.value::<u8>()?);
        // Codes without a symbol decode to one zero byte: harmless, and never written.
        let (mut symbols, mut lengths) = ([0; 256], [1; 256]);
        lengths[..len].copy_from_slice(reader.take(len)?);
        if let Some(length) = lengths.iter().find(|length| !(1..=8).contains(*length)) {
            return Err(damaged("fsst", format!("a symbol of {length} bytes")));
        }
        for (symbol, bytes) in symbols.iter_mut().zip(reader.take(len * 8)?.as_chunks::<8>().0) {
            *symbol = u64::from_le_bytes(*bytes);
        }
        let (ends, code_ends) = (reader.child()?, reader.child()?);
        Ok(Self { symbols, lengths, ends, code_ends, codes: reader.rest() })
    }

    /// Decodes codes into at most `most` bytes, eight codes at a time where none is an escape.
    fn decompress(&self, codes: &[u8], most: usize) -> Result<Vec<u8>> {
        if most > (codes.len() * 8).min(crate::MAX_BODY_BYTES) {
            return Err(damaged("fsst", format!("{} codes for {most} bytes", codes.len())));
        }
        let mut out = Vec::<u8>::with_capacity(most + STEP_BYTES);
        let to = out.as_mut_ptr();
        let (mut len, mut at) = (0, 0);
        while at < codes.len() && len <= most {
            if let Some(eight) = codes[at..].first_chunk::<8>()
                && !has_escape(u64::from_le_bytes(*eight))
            {
                for code in eight.map(usize::from) {
                    // SAFETY: `len` was at most `most` before these eight symbols of at most eight bytes
                    // each, so that the eight bytes written end within `most + STEP_BYTES`.
                    unsafe {
                        to.add(len).cast::<u64>().write_unaligned(self.symbols[code].to_le())
                    };
                    len += usize::from(self.lengths[code]);
                }
                at += 8;
                continue;
            }
            let code = codes[at];
            let (symbol, length, used) = if code == ESCAPE_CODE {
                let Some(&byte) = codes.get(at + 1) else {
                    return Err(damaged("fsst", "the codes end within an escape"));
                };
                (u64::from(byte), 1, 2)
            } else {
                let code = usize::from(code);
                (self.symbols[code], usize::from(self.lengths[code]), 1)
            };
            // SAFETY: `len` is at most `most`, and eight bytes are fewer than `STEP_BYTES`.
            unsafe { to.add(len).cast::<u64>().write_unaligned(symbol.to_le()) };
            len += length;
            at += used;
        }
        if len > most {
            return Err(damaged("fsst", format!("strings of more than {most} bytes")));
        }
        // SAFETY: every step has written at least the bytes by which `len` grew.
        unsafe { out.set_len(len) };
        Ok(out)
    }

    /// Decodes codes whose strings end at `ends`.
    fn decompress_all(&self, codes: &[u8], ends: &[u32]) -> Result<Vec<u8>> {
        self.decompress(codes, ends.last().map_or(0, |&end| end as usize))
    }

    pub(crate) fn read(&self, rows: Rows, utf8: bool, depth: u8) -> Result<Views> {
        if let Rows::Range { of, start, len } = rows {
            let (_, ends) = strings::ends_of(self.ends, of, start, len, depth)?;
            let (first, code_ends) = strings::ends_of(self.code_ends, of, start, len, depth)?;
            let codes = strings::bytes_of(self.codes, first, &code_ends)?;
            return strings::views(self.decompress_all(codes, &ends)?, &ends, utf8);
        }
        let ends = ints::decode::<u32>(self.ends, rows.of(), depth)?;
        match rows {
            Rows::Picked { of, rows } => {
                let (bytes, ends) = self.picked(&ends, of, rows, depth)?;
                strings::views(bytes, &ends, utf8)
            }
            _ => strings::views(self.decompress_all(self.codes, &ends)?, &ends, utf8),
        }
    }

    /// The bytes of some strings, one after the other, and where each then ends; `ends` are those of all
    /// `of` strings.
    fn picked(
        &self,
        ends: &[u32],
        of: usize,
        rows: &[u32],
        depth: u8,
    ) -> Result<(Vec<u8>, Vec<u32>)> {
        let code_ends = ints::decode::<u32>(self.code_ends, of, depth)?;
        let (codes, _) = strings::picked(self.codes, &code_ends, rows)?;
        let mut end = 0_u32;
        let length = |&row: &u32| {
            let (start, stop) = strings::bounds(ends, row as usize);
            end = end.wrapping_add((stop as u32).wrapping_sub(start as u32));
            end
        };
        let picked_ends: Vec<u32> = rows.iter().map(length).collect();
        Ok((self.decompress_all(&codes, &picked_ends)?, picked_ends))
    }

    /// A bit per row: only strings whose length does not decide are decoded.
    pub(crate) fn filter(&self, rows: usize, condition: &Text, depth: u8) -> Result<BooleanBuffer> {
        let ends = ints::decode::<u32>(self.ends, rows, depth)?;
        let mut out = BooleanBufferBuilder::new(rows);
        let mut undecided = Vec::new();
        for row in 0..rows {
            let (start, end) = strings::bounds(&ends, row);
            let decided = condition.decide(end.saturating_sub(start));
            if decided.is_none() {
                undecided.push(row as u32);
            }
            out.append(decided == Some(true));
        }
        if undecided.len() > rows / 2 {
            return strings::each(&self.decompress_all(self.codes, &ends)?, &ends, condition);
        }
        let (bytes, ends) = self.picked(&ends, rows, &undecided, depth)?;
        for row in strings::each(&bytes, &ends, condition)?.set_indices() {
            out.set_bit(undecided[row] as usize, true);
        }
        Ok(out.finish())
    }

    pub(crate) fn value(&self, row: usize, rows: usize, depth: u8) -> Result<Vec<u8>> {
        let (start, end) = strings::range(self.code_ends, row, rows, self.codes.len(), depth)?;
        let codes = &self.codes[start..end];
        self.decompress(codes, codes.len() * 8)
    }
}

/// Whether one of eight codes is 255.
#[inline(always)]
fn has_escape(codes: u64) -> bool {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // A byte of the complement is zero where a code is 255; only then does adding 127 leave its high bit
    // unset, and it had none.
    let complement = !codes;
    (((complement & LOW) + LOW) | complement) & !LOW != !LOW
}
