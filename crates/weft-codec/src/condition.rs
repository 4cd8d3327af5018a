//! Conditions on the lanes of a node, and the bit masks that they give: what a predicate on values
//! becomes once it is known how the values are stored.

use arrow_buffer::{BooleanBuffer, Buffer};

use crate::lane::Lane;
use crate::predicate::Op;

/// Values of a mask's word.
pub(crate) const WORD: usize = 64;

/// A condition on lanes of one width.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition<T> {
    /// Every value satisfies it, or none.
    All(bool),
    /// The value lies in `low ..= low + span` (which may wrap around), or outside if `negated`.
    Range { low: T, span: T, negated: bool },
    /// The same, for floats by their bits: `low` and `span` are in the order of [`float_order`].
    Floats { low: T, span: T, negated: bool },
    /// The value is one of these, which are sorted as lanes.
    Set(Vec<T>),
    /// The value is an index of these, which says whether it satisfies the condition.
    Table(Vec<bool>),
}

/// The bits of a float as a lane that is ordered, once its sign is flipped, as floats are in total order.
#[inline(always)]
fn float_order<T: Lane>(bits: T) -> T {
    if bits.is_negative() { T::zeroed().minus(bits.flip_sign()).minus(T::ONE) } else { bits }
}

impl<T: Lane> Condition<T> {
    /// The condition that a lane's value, as a number, lies in `low..=high`, or outside if `negated`.
    pub(crate) fn range(low: i128, high: i128, negated: bool, signed: bool) -> Self {
        let (min, max) = T::domain(signed);
        let (low, high) = (low.max(min), high.min(max));
        if low > high || (low, high) == (min, max) {
            return Self::All((low <= high) != negated);
        }
        Self::Range { low: T::wrap(low), span: T::wrap(high - low), negated }
    }

    /// The condition that a lane's value, as a number, is one of `values`.
    pub(crate) fn set(values: &[i128], signed: bool) -> Self {
        let (min, max) = T::domain(signed);
        let within = values.iter().filter(|value| (min..=max).contains(*value));
        Self::lanes(within.map(|&value| T::wrap(value)).collect())
    }

    /// The condition that a lane is one of `lanes`.
    pub(crate) fn lanes(mut lanes: Vec<T>) -> Self {
        lanes.sort_unstable();
        lanes.dedup();
        match lanes[..] {
            [] => Self::All(false),
            [low] => Self::Range { low, span: T::zeroed(), negated: false },
            _ => Self::Set(lanes),
        }
    }

    /// The condition on a code, given which codes satisfy it.
    pub(crate) fn codes(satisfying: &BooleanBuffer) -> Self {
        let mut slices = satisfying.set_slices();
        match (slices.next(), slices.next()) {
            (None, _) => Self::All(false),
            (Some((0, end)), None) if end == satisfying.len() => Self::All(true),
            (Some((start, end)), None) => Self::range(start as i128, end as i128 - 1, false, false),
            _ => Self::Table(satisfying.iter().collect()),
        }
    }

    /// Whether all lanes, or none, of a chunk of packed ones satisfy the condition, if base and width
    /// tell.
    pub(crate) fn decide(&self, base: T, width: usize) -> Option<bool> {
        if let Self::Set(set) = self {
            // The next value of the set from the base on, around the end of the numbers if need be.
            let next = set.partition_point(|&value| value < base) % set.len();
            return (set[next].minus(base) > T::greatest(width)).then_some(false);
        }
        let Self::Range { low, span, negated } = self else { return None };
        let first = base.minus(*low);
        let last = first.plus(T::greatest(width));
        if last < first {
            return None;
        }
        if last <= *span {
            return Some(!negated);
        }
        (first > *span).then_some(*negated)
    }

    /// Appends a bit per value; the last word is filled up with zeros. To be called within a
    /// [`Kernel`](crate::dispatch::Kernel) if values are many.
    #[inline(always)]
    pub(crate) fn mask(&self, values: &[T], words: &mut Vec<u64>) {
        match self {
            Self::All(all) => {
                let word = if *all { u64::MAX } else { 0 };
                words.resize(words.len() + values.len().div_ceil(WORD), word);
            }
            Self::Range { low, span, negated } => {
                let (low, span, negated) = (*low, *span, *negated);
                append(values, words, |value| (value.minus(low) <= span) != negated);
            }
            Self::Floats { low, span, negated } => {
                let (low, span, negated) = (*low, *span, *negated);
                append(values, words, |bits| (float_order(bits).minus(low) <= span) != negated);
            }
            Self::Set(set) if set.len() <= 8 => {
                append(values, words, |value| {
                    set.iter().fold(false, |any, &one| any | (value == one))
                });
            }
            Self::Set(set) => append(values, words, |value| set.binary_search(&value).is_ok()),
            Self::Table(table) => {
                append(values, words, |code| {
                    table.get(code.to_u64() as usize).is_some_and(|&holds| holds)
                });
            }
        }
    }
}

/// Appends the outcome of `test` for each value. Sixty-four outcomes are bytes first, which vectorizes.
#[inline(always)]
pub(crate) fn append<T: Copy>(values: &[T], words: &mut Vec<u64>, test: impl Fn(T) -> bool) {
    let before = words.len();
    // Nothing that may allocate within the loop: vectors would leave their registers for it.
    words.resize(before + values.len().div_ceil(WORD), 0);
    let words = &mut words[before..];
    let (whole, rest) = values.as_chunks::<WORD>();
    for (word, values) in words.iter_mut().zip(whole) {
        *word = gathered(&values.map(|value| u8::from(test(value))));
    }
    if !rest.is_empty() {
        let mut outcomes = [0; WORD];
        for (outcome, &value) in outcomes.iter_mut().zip(rest) {
            *outcome = u8::from(test(value));
        }
        words[whole.len()] = gathered(&outcomes);
    }
}

/// The lowest bits of bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn gathered(outcomes: &[u8; WORD]) -> u64 {
    use std::arch::x86_64::{_mm_movemask_epi8, _mm_set_epi64x, _mm_slli_epi64};

    let (sixteens, _) = outcomes.as_chunks::<16>();
    sixteens.iter().rev().fold(0, |word, bytes| {
        let bytes = u128::from_le_bytes(*bytes);
        // SAFETY: all processors of this architecture have SSE2.
        let bits = unsafe {
            let bytes = _mm_set_epi64x((bytes >> 64) as i64, bytes as i64);
            // The lowest bit of each byte becomes its highest one.
            _mm_movemask_epi8(_mm_slli_epi64::<7>(bytes))
        };
        word << 16 | bits as u64
    })
}

/// The lowest bits of bytes: a multiplication gathers those of eight.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn gathered(outcomes: &[u8; WORD]) -> u64 {
    let (bytes, _) = outcomes.as_chunks::<8>();
    bytes.iter().rev().fold(0, |word, &eight| {
        word << 8 | u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}

/// A mask of the first `rows` bits of `words`.
pub(crate) fn bits(words: Vec<u64>, rows: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_vec(words), 0, rows)
}

/// A mask of `rows` equal bits.
pub(crate) fn all(value: bool, rows: usize) -> BooleanBuffer {
    if value { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) }
}

/// A condition on integers of any width, before it is known how wide they are stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Numbers {
    /// Within `low..=high`, or outside if `negated`; nothing is within an empty range.
    Range { low: i128, high: i128, negated: bool },
    /// One of these, sorted.
    Set(Vec<i128>),
}

impl Numbers {
    /// No number.
    pub(crate) const NONE: Self = Self::Range { low: 1, high: 0, negated: false };

    pub(crate) fn compare(op: Op, value: i128) -> Self {
        let range = |low, high, negated| Self::Range { low, high, negated };
        match op {
            Op::Eq | Op::NotEq => range(value, value, op == Op::NotEq),
            Op::Lt => value.checked_sub(1).map_or(Self::NONE, |high| range(i128::MIN, high, false)),
            Op::LtEq => range(i128::MIN, value, false),
            Op::Gt => value.checked_add(1).map_or(Self::NONE, |low| range(low, i128::MAX, false)),
            Op::GtEq => range(value, i128::MAX, false),
        }
    }

    /// Both conditions as one, if they are ranges.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (
                Self::Range { low, high, negated: false },
                Self::Range { low: other_low, high: other_high, negated: false },
            ) => Some(Self::Range {
                low: *low.max(other_low),
                high: *high.min(other_high),
                negated: false,
            }),
            _ => None,
        }
    }

    /// The same condition on lanes.
    pub(crate) fn lanes<T: Lane>(&self, signed: bool) -> Condition<T> {
        match self {
            Self::Range { low, high, negated } => Condition::range(*low, *high, *negated, signed),
            Self::Set(values) => Condition::set(values, signed),
        }
    }

    pub(crate) fn holds(&self, value: i128) -> bool {
        match self {
            Self::Range { low, high, negated } => (*low..=*high).contains(&value) != *negated,
            Self::Set(values) => values.binary_search(&value).is_ok(),
        }
    }
}

/// The condition on the bits of floats that compare so with one of bits `value`. -0.0 and 0.0, which
/// are neighbours in the total order, are in a range together or not at all.
pub(crate) fn floats<T: Lane>(op: Op, value: T) -> Condition<T> {
    let key = float_order(value).signed();
    let key = if key == -1 { 0 } else { key };
    let Numbers::Range { mut low, mut high, negated } = Numbers::compare(op, key) else {
        return Condition::All(false);
    };
    if low == 0 {
        low = -1;
    }
    if high == -1 {
        high = -2;
    }
    match Condition::range(low, high, negated, true) {
        Condition::Range { low, span, negated } => Condition::Floats { low, span, negated },
        other => other,
    }
}
