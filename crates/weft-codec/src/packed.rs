//! Frame-of-reference and delta: chunks of 1,024 integers, bit-packed with a width of their own.
//!
//! A last chunk that is not full is filled up with its last value. Delta restarts at each chunk, so a
//! point read sums at most 1,023 differences.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use arrow_buffer::BooleanBuffer;

use crate::condition::{self, Condition, WORD};
use crate::dispatch::{Kernel, dispatch};
use crate::error::{Error, Result, damaged};
use crate::lane::{self, CHUNK, Lane, packed_bytes};
use crate::reader::{Reader, put};
use crate::within::{self, Vectors};

/// Up to so many values of a chunk are unpacked one by one.
const FEW: usize = 64;
/// So many chunks ahead, cache lines of such values are asked for.
const AHEAD: usize = 2;

/// Base and width of every chunk of an array.
struct Plan<T> {
    firsts: Vec<T>,
    bases: Vec<T>,
    widths: Vec<u8>,
}

/// The chunk `values`, filled up with its last value.
fn filled<T: Lane>(values: &[T]) -> [T; CHUNK] {
    let mut chunk = [values[values.len() - 1]; CHUNK];
    chunk[..values.len()].copy_from_slice(values);
    chunk
}

/// The differences to the value before; the first is the least of them.
fn differences<T: Lane>(chunk: &[T; CHUNK]) -> [T; CHUNK] {
    let mut out = [T::zeroed(); CHUNK];
    for i in 1..CHUNK {
        out[i] = chunk[i].minus(chunk[i - 1]);
    }
    out[0] = least_and_range(&out[1..], true).0;
    out
}

/// The least value, and the width of the difference of greatest and least.
fn least_and_range<T: Lane>(values: &[T], signed: bool) -> (T, usize) {
    let order = |value: T| if signed { value.flip_sign() } else { value };
    let mut min = order(values[0]);
    let mut max = min;
    for &value in values {
        min = min.min(order(value));
        max = max.max(order(value));
    }
    (order(min), max.minus(min).width())
}

fn plan<T: Lane>(values: &[T], signed: bool, delta: bool) -> Plan<T> {
    let mut plan = Plan { firsts: Vec::new(), bases: Vec::new(), widths: Vec::new() };
    for chunk in values.chunks(CHUNK) {
        let (base, width) = if delta {
            plan.firsts.push(chunk[0]);
            least_and_range(&differences(&filled(chunk)), true)
        } else {
            least_and_range(chunk, signed)
        };
        plan.bases.push(base);
        plan.widths.push(width as u8);
    }
    plan
}

/// Bytes that [`encode`] would append for `values`, which are not empty.
pub(crate) fn size<T: Lane>(values: &[T], signed: bool, delta: bool) -> usize {
    let plan = plan(values, signed, delta);
    let heads = (plan.firsts.len() + plan.bases.len()) * size_of::<T>() + plan.widths.len();
    heads + plan.widths.iter().map(|&width| packed_bytes(width.into())).sum::<usize>()
}

/// Appends the payload of a frame-of-reference (or delta) node. `values` are not empty.
pub(crate) fn encode<T: Lane>(values: &[T], signed: bool, delta: bool, out: &mut Vec<u8>) {
    let plan = plan(values, signed, delta);
    plan.firsts.iter().for_each(|&first| put(out, first));
    plan.bases.iter().for_each(|&base| put(out, base));
    out.extend_from_slice(&plan.widths);
    for (chunk, values) in values.chunks(CHUNK).enumerate() {
        let mut values = filled(values);
        if delta {
            values = differences(&values);
        }
        lane::pack(&values, plan.bases[chunk], plan.widths[chunk].into(), out);
    }
}

/// A frame-of-reference or delta payload, checked.
pub(crate) struct Packed<'a> {
    firsts: Option<&'a [u8]>,
    bases: &'a [u8],
    widths: &'a [u8],
    packed: &'a [u8],
}

fn at<T: Lane>(values: &[u8], index: usize) -> T {
    bytemuck::pod_read_unaligned(&values[index * size_of::<T>()..][..size_of::<T>()])
}

impl<'a> Packed<'a> {
    /// Reads the payload of `rows` values of `T`.
    pub(crate) fn open<T: Lane>(
        mut reader: Reader<'a>,
        rows: usize,
        delta: bool,
    ) -> Result<Packed<'a>> {
        let name = if delta { "delta" } else { "frame-of-reference" };
        let chunks = rows.div_ceil(CHUNK);
        let firsts = if delta { Some(reader.take(chunks * size_of::<T>())?) } else { None };
        let bases = reader.take(chunks * size_of::<T>())?;
        let widths = reader.take(chunks)?;
        let packed = reader.rest();
        if let Some(width) = widths.iter().find(|&&width| usize::from(width) > T::BITS) {
            return Err(damaged(name, format!("{width} bits for values of {} bits", T::BITS)));
        }
        let needed = widths.iter().map(|&width| packed_bytes(width.into())).sum();
        if packed.len() < needed {
            return Err(Error::Truncated { encoding: name, needed, left: packed.len() });
        }
        if packed.len() > needed {
            return Err(damaged(name, format!("{} bytes too many", packed.len() - needed)));
        }
        Ok(Packed { firsts, bases, widths, packed })
    }

    /// `len` values from `start` on, with which a chunk begins.
    pub(crate) fn decode<T: Lane>(&self, start: usize, len: usize) -> Vec<T> {
        let chunks = start / CHUNK..(start + len).div_ceil(CHUNK);
        let mut out = dispatch(Decode { packed: self, chunks, lane: PhantomData });
        out.truncate(len);
        out
    }

    /// The first value of a chunk, if values ascend.
    pub(crate) fn first<T: Lane>(&self, chunk: usize) -> T {
        at(self.firsts.unwrap_or(self.bases), chunk)
    }

    /// The packed bytes before a chunk.
    fn before(&self, chunk: usize) -> usize {
        self.widths[..chunk].iter().map(|&width| packed_bytes(width.into())).sum()
    }

    /// The values of some rows: a chunk is unpacked only where many of its values are picked.
    pub(crate) fn pick<T: Lane>(&self, rows: &[u32]) -> Vec<T> {
        dispatch(Pick { packed: self, rows, lane: PhantomData })
    }

    /// A bit per row that says whether its value satisfies `condition`; chunks whose base and width
    /// decide are not unpacked.
    pub(crate) fn filter<T: Lane>(&self, rows: usize, condition: &Condition<T>) -> BooleanBuffer {
        condition::bits(dispatch(Filter { packed: self, condition }), rows)
    }

    #[inline(always)]
    fn unpack<'b, T: Lane>(
        &self,
        chunk: usize,
        packed: &[u8],
        out: &'b mut [MaybeUninit<T>; CHUNK],
    ) -> &'b mut [T; CHUNK] {
        let out = lane::unpack(packed, self.widths[chunk].into(), at(self.bases, chunk), out);
        if let Some(firsts) = self.firsts {
            let mut sum = at::<T>(firsts, chunk);
            out[0] = sum;
            for value in &mut out[1..] {
                sum = sum.plus(*value);
                *value = sum;
            }
        }
        out
    }

    /// The value of row `row`, which is one of the block's.
    pub(crate) fn value<T: Lane>(&self, row: usize) -> T {
        let (chunk, index) = (row / CHUNK, row % CHUNK);
        let width = usize::from(self.widths[chunk]);
        let packed = &self.packed[self.before(chunk)..][..packed_bytes(width)];
        if self.firsts.is_some() {
            return self.unpack(chunk, packed, &mut lane::room())[index];
        }
        lane::unpack_one::<T>(packed, width, index).plus(at(self.bases, chunk))
    }
}

/// Decodes some chunks.
struct Decode<'a, 'b, T> {
    packed: &'a Packed<'b>,
    chunks: Range<usize>,
    lane: PhantomData<T>,
}

impl<T: Lane> Kernel for Decode<'_, '_, T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run(self) -> Vec<T> {
        let Decode { packed, chunks, .. } = self;
        let mut out: Vec<T> = Vec::with_capacity(chunks.len() * CHUNK);
        let mut rest = &packed.packed[packed.before(chunks.start)..];
        for chunk in chunks {
            let width = usize::from(packed.widths[chunk]);
            let (head, tail) = rest.split_at(packed_bytes(width));
            rest = tail;
            let room = out.spare_capacity_mut().first_chunk_mut().expect("room for all chunks");
            packed.unpack(chunk, head, room);
            // SAFETY: a chunk more was just written.
            unsafe { out.set_len(out.len() + CHUNK) };
        }
        out
    }
}

/// Decodes the values of some rows.
struct Pick<'a, 'b, T> {
    packed: &'a Packed<'b>,
    rows: &'a [u32],
    lane: PhantomData<T>,
}

impl<T: Lane> Kernel for Pick<'_, '_, T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run(self) -> Vec<T> {
        let packed = self.packed;
        let mut groups = Vec::with_capacity(packed.widths.len().min(self.rows.len()));
        let (mut chunk, mut rest) = (0, packed.packed);
        for group in self.rows.chunk_by(|&a, &b| a as usize / CHUNK == b as usize / CHUNK) {
            while chunk < group[0] as usize / CHUNK {
                rest = &rest[packed_bytes(packed.widths[chunk].into())..];
                chunk += 1;
            }
            groups.push((chunk, &rest[..packed_bytes(packed.widths[chunk].into())], group));
        }
        let are_few = |group: &[u32]| packed.firsts.is_none() && group.len() <= FEW;
        let mut out = Vec::with_capacity(self.rows.len());
        let mut room = lane::room::<T>();
        for at_group in 0..groups.len() + AHEAD {
            if let Some((chunk, head, group)) = groups.get(at_group)
                && are_few(group)
            {
                let width = packed.widths[*chunk].into();
                for row in *group {
                    lane::prefetch_one::<T>(head, width, *row as usize % CHUNK);
                }
            }
            let Some((chunk, head, group)) = at_group.checked_sub(AHEAD).map(|at| groups[at])
            else {
                continue;
            };
            if are_few(group) {
                let (width, base) = (packed.widths[chunk].into(), at::<T>(packed.bases, chunk));
                for row in group {
                    let index = *row as usize % CHUNK;
                    out.push(lane::unpack_one::<T>(head, width, index).plus(base));
                }
            } else {
                let values = packed.unpack(chunk, head, &mut room);
                for row in group {
                    out.push(values[*row as usize % CHUNK]);
                }
            }
        }
        out
    }
}

/// Puts all values to a condition; gives the words of a mask.
struct Filter<'a, 'b, T> {
    packed: &'a Packed<'b>,
    condition: &'a Condition<T>,
}

impl<T: Lane> Kernel for Filter<'_, '_, T> {
    type Output = Vec<u64>;

    #[inline(always)]
    fn run(self) -> Vec<u64> {
        let Filter { packed, condition } = self;
        let mut words = Vec::with_capacity(packed.widths.len() * CHUNK / WORD);
        let mut rest = packed.packed;
        let mut room = lane::room::<T>();
        let range = match condition {
            Condition::Range { low, span, negated } => Some((*low, *span, *negated)),
            _ => None,
        };
        let range = range.filter(|_| packed.firsts.is_none()).zip(Vectors::detected());
        for (chunk, &width) in packed.widths.iter().enumerate() {
            let (head, tail) = rest.split_at(packed_bytes(width.into()));
            rest = tail;
            let known = match packed.firsts {
                None => condition.decide(at(packed.bases, chunk), width.into()),
                Some(_) => None,
            };
            match known {
                Some(all) => {
                    let word = if all { u64::MAX } else { 0 };
                    words.extend_from_slice(&[word; CHUNK / WORD]);
                }
                None => {
                    let found = range.filter(|_| width > 0).and_then(|(range, vectors)| {
                        let (low, span, negated) = range;
                        let offset = at::<T>(packed.bases, chunk).minus(low);
                        let range = within::Range { offset, span };
                        let bits = within::chunk(vectors, head, width.into(), range)?;
                        Some(if negated { bits.map(|word| !word) } else { bits })
                    });
                    match found {
                        Some(bits) => words.extend_from_slice(&bits),
                        None => condition.mask(packed.unpack(chunk, head, &mut room), &mut words),
                    }
                }
            }
        }
        words
    }
}
