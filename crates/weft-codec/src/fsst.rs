//! FSST (Boncz et al., VLDB 2020): strings as codes of a table of up to 255 symbols, through
//! `fsst-rs`. All strings are decoded in one call; a single one can be decoded on its own.
//!
//! Payload: number of symbols (u8), their lengths (u8 each), the symbols (eight bytes each), the ends
//! of the strings, the ends of their codes (both children), the codes as the rest.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use fsst::{Compressor, Decompressor, ESCAPE_CODE, Symbol};

use crate::dictionary;
use crate::encoding::Encoding;
use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::{Reader, put};
use crate::rows::Rows;
use crate::strings::{self, Views};
use crate::text::Text;

/// Below this many bytes the table of symbols does not pay.
const MIN_BYTES: usize = 1024;
/// More codes are never written or read: decoding needs eight bytes for each.
const MAX_CODES: usize = crate::MAX_BODY_BYTES / 8;
/// Strings longer than this are cut for the training of the table.
const TRAINED_BYTES: usize = 256;

/// An FSST node; nothing if a sample shrinks by less than a tenth.
pub(crate) fn encode(values: &[&[u8]], level: u8) -> Option<Vec<u8>> {
    if values.iter().map(|value| value.len()).sum::<usize>() < MIN_BYTES {
        return None;
    }
    let sample: Vec<&[u8]> = dictionary::sample(values)
        .into_iter()
        .map(|value| &value[..value.len().min(TRAINED_BYTES)])
        .collect();
    let compressor = Compressor::train(&sample);
    let compress = |values: &[&[u8]]| {
        let (mut codes, mut offsets) = (Vec::new(), Vec::new());
        compressor.compress_bulk_into::<4>(values, &mut codes, &mut offsets);
        (codes, offsets)
    };
    let sample_bytes: usize = sample.iter().map(|value| value.len()).sum();
    if compress(&sample).0.len() > sample_bytes - sample_bytes / 10 {
        return None;
    }
    let (codes, ends) = compress(values);
    if codes.len() > MAX_CODES {
        return None;
    }
    let mut node = vec![Encoding::Fsst as u8, compressor.symbol_table().len() as u8];
    node.extend_from_slice(compressor.symbol_lengths());
    compressor.symbol_table().iter().for_each(|symbol| put(&mut node, symbol.to_u64()));
    strings::write_ends(values.iter().map(|value| value.len()), level, &mut node);
    let mut start = 0;
    let lengths = ends.iter().map(|&end| (end - std::mem::replace(&mut start, end)) as usize);
    strings::write_ends(lengths, level, &mut node);
    node.extend_from_slice(&codes);
    Some(node)
}

/// An FSST payload, with a table that decoding cannot leave.
pub(crate) struct Fsst<'a> {
    symbols: [Symbol; 255],
    lengths: [u8; 255],
    pub(crate) ends: &'a [u8],
    pub(crate) code_ends: &'a [u8],
    codes: &'a [u8],
}

impl<'a> Fsst<'a> {
    pub(crate) fn open(mut reader: Reader<'a>) -> Result<Self> {
        let len = usize::from(reader.value::<u8>()?);
        // Codes without a symbol decode to one zero byte: harmless, and never written.
        let (mut symbols, mut lengths) = ([Symbol::ZERO; 255], [1; 255]);
        lengths[..len].copy_from_slice(reader.take(len)?);
        if let Some(length) = lengths.iter().find(|length| !(1..=8).contains(*length)) {
            return Err(damaged("fsst", format!("a symbol of {length} bytes")));
        }
        for (symbol, bytes) in symbols.iter_mut().zip(reader.take(len * 8)?.as_chunks::<8>().0) {
            *symbol = Symbol::from_slice(bytes);
        }
        let (ends, code_ends) = (reader.child()?, reader.child()?);
        let codes = reader.rest();
        if codes.len() > MAX_CODES {
            return Err(damaged("fsst", format!("{} bytes of codes", codes.len())));
        }
        Ok(Self { symbols, lengths, ends, code_ends, codes })
    }

    /// Decodes codes. `fsst-rs` panics if the last code is an escape without its byte, or if the
    /// buffer is too small: the first is an odd number of trailing escapes, the second is excluded
    /// by eight bytes per code.
    fn decompress(&self, codes: &[u8]) -> Result<Vec<u8>> {
        let escapes = codes.iter().rev().take_while(|&&code| code == ESCAPE_CODE).count();
        if escapes % 2 == 1 {
            return Err(damaged("fsst", "the codes end within an escape"));
        }
        let mut bytes = Decompressor::new(&self.symbols, &self.lengths).decompress(codes);
        bytes.shrink_to_fit();
        Ok(bytes)
    }

    pub(crate) fn read(&self, rows: Rows, utf8: bool, depth: u8) -> Result<Views> {
        let ends = ints::decode::<u32>(self.ends, rows.of(), depth)?;
        match rows {
            Rows::All(_) => strings::views(self.decompress(self.codes)?, &ends, utf8),
            Rows::Picked { of, rows } => {
                let (bytes, ends) = self.picked(&ends, of, rows, depth)?;
                strings::views(bytes, &ends, utf8)
            }
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
        let picked_ends = rows.iter().map(length).collect();
        Ok((self.decompress(&codes)?, picked_ends))
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
            return strings::each(&self.decompress(self.codes)?, &ends, condition);
        }
        let (bytes, ends) = self.picked(&ends, rows, &undecided, depth)?;
        for row in strings::each(&bytes, &ends, condition)?.set_indices() {
            out.set_bit(undecided[row] as usize, true);
        }
        Ok(out.finish())
    }

    pub(crate) fn value(&self, row: usize, rows: usize, depth: u8) -> Result<Vec<u8>> {
        let (start, end) = strings::range(self.code_ends, row, rows, self.codes.len(), depth)?;
        self.decompress(&self.codes[start..end])
    }
}
