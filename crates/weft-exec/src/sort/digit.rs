//! Digits: the bits of tuples' keys that follow those in their headers, up to 64 at a time, as in a radix sort that begins
//! with the most significant digit.
//!
//! A digit begins at a [`Position`] in the keys, which is the same for tuples that do not differ before it. Of values of a
//! fixed length it takes as many bits as fit; several keys may share a digit. A string gives some bytes and then a count, which
//! says whether they were its last: so a string comes before those that it is a prefix of, even if only zeros follow. Then the
//! digit ends, for what comes next depends on the tuple: more of the string, or the next key.

use weft_rt::prefetch_line;

use super::entries::Entry;
use super::order::{Order, Ranked, SortKey};
use crate::for_lane;
use crate::lane::Lane;
use crate::text::Str;
use crate::tuple::Field;

/// Tuples whose digits are loaded at once: enough that their cache misses overlap, few enough that they all stay in the first
/// cache until they are used.
pub(super) const BATCH: usize = 128;

/// Bits of a count: see [`Text::part_of`].
const COUNT_BITS: u32 = 5;

/// The header's bits say at most this many bytes of a string, and do not tell shorter ones from zeros.
const HEADER_BYTES_MAX: usize = 8;

/// Where a digit begins: what is before is the same of all tuples that it is to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// Number of the key.
    key: usize,
    /// It has been compared whether the key is null.
    is_past_null: bool,
    /// What has been compared of its value: of a string bytes, else bits.
    done: usize,
}

impl Position {
    /// That of a key, or of the next one that anything is to be compared of; `None` behind the last.
    fn of_key(order: &Order, key: usize) -> Option<Position> {
        let takes_bits = |key: &usize| {
            let field = order.layout().field(order.keys[*key].field);
            field.null_bit.is_some() || order.ranks[*key].bits > 0
        };
        let key = (key..order.keys.len()).find(takes_bits)?;
        Some(Position { key, is_past_null: false, done: 0 })
    }

    /// Behind the bits of tuples' headers, which [`Order::prepare`] makes; `None` if they say all.
    fn first(order: &Order) -> Option<Position> {
        let mut room = u64::BITS;
        for (key, (sort_key, ranks)) in order.keys.iter().zip(&order.ranks).enumerate() {
            let field = order.layout().field(sort_key.field);
            room -= u32::from(field.null_bit.is_some());
            if !ranks.are_exact || ranks.bits > room {
                let bits = ranks.bits.min(room) as usize;
                let done = if field.lane == Lane::Str { bits / 8 } else { bits };
                return Some(Position { key, is_past_null: true, done });
            }
            room -= ranks.bits;
            if room == 0 {
                return Position::of_key(order, key + 1);
            }
        }
        None
    }
}

/// What a digit takes of a key.
#[derive(Clone, Copy, Debug)]
struct Part {
    field: Field,
    key: SortKey,
    /// Where the bit goes that tells nulls from values, if the digit has it.
    null_shift: Option<u32>,
    of: Of,
}

/// What it takes of its value.
#[derive(Clone, Copy, Debug)]
enum Of {
    Nothing,
    Rank(Bits),
    Text(Text),
}

/// Bits of a rank.
#[derive(Clone, Copy, Debug)]
struct Bits {
    /// The rank that counts as 0.
    least: u64,
    /// Bits behind them.
    down: u32,
    /// These bits.
    mask: u64,
    /// Where they go.
    up: u32,
}

/// Bytes of a string, and a count.
#[derive(Clone, Copy, Debug)]
struct Text {
    key: usize,
    /// The first byte.
    start: usize,
    /// How many there are at most.
    bytes: usize,
    /// Where the count goes; the bytes are above it.
    up: u32,
    is_descending: bool,
}

impl Text {
    /// What it takes of a string.
    ///
    /// # Safety
    /// The string's bytes are alive.
    #[inline(always)]
    unsafe fn part_of(&self, string: Str) -> u64 {
        // SAFETY: as the caller promises.
        let eight = unsafe { string.eight_from(self.start) };
        let bytes = eight >> (u64::BITS - 8 * self.bytes as u32);
        // A string that ended before has zeros here: the sooner it ended, the smaller the count.
        let count = (string.len() + HEADER_BYTES_MAX).saturating_sub(self.start);
        let part = bytes << COUNT_BITS | count.min(self.count_if_more()) as u64;
        let mask = u64::MAX >> (u64::BITS - 8 * self.bytes as u32 - COUNT_BITS);
        (if self.is_descending { part ^ mask } else { part }) << self.up
    }

    /// The count of a string that goes on.
    fn count_if_more(&self) -> usize {
        HEADER_BYTES_MAX + self.bytes + 1
    }

    /// True if a string goes on of which this is a digit.
    fn has_more(&self, digit: u64) -> bool {
        let mask = (1 << COUNT_BITS) - 1;
        let flip = if self.is_descending { mask } else { 0 };
        (digit >> self.up & mask ^ flip) as usize == self.count_if_more()
    }

    /// If strings with this digit go on: behind what they have in common.
    fn position(&self, done: usize) -> Position {
        Position { key: self.key, is_past_null: true, done }
    }
}

/// A digit of tuples' keys.
#[derive(Clone, Debug)]
pub(super) struct Digit {
    parts: Vec<Part>,
    /// Where the next one begins.
    next: Option<Position>,
    /// What it ends with, if that is of a string.
    text: Option<Text>,
}

impl Digit {
    /// That in tuples' headers, which is there already.
    pub(super) fn of_headers(order: &Order) -> Digit {
        Digit { parts: Vec::new(), next: Position::first(order), text: None }
    }

    /// That which begins at a position.
    pub(super) fn at(order: &Order, position: Position) -> Digit {
        let mut digit = Digit { parts: Vec::new(), next: Some(position), text: None };
        let mut room = u64::BITS;
        while let Some(at) = digit.next {
            let key = order.keys[at.key];
            let field = *order.layout().field(key.field);
            let has_null = field.null_bit.is_some() && !at.is_past_null;
            if room == 0 {
                break;
            }
            room -= u32::from(has_null);
            let null_shift = has_null.then_some(room);
            let (of, next) = digit.part(order, at, field.lane, &mut room);
            digit.parts.push(Part { field, key, null_shift, of });
            digit.next = next;
            let stays = next.is_some_and(|next| next.key == at.key);
            if stays || digit.text.is_some() {
                break;
            }
        }
        digit
    }

    /// What there is room for of a value, and where the next digit begins.
    fn part(
        &mut self,
        order: &Order,
        at: Position,
        lane: Lane,
        room: &mut u32,
    ) -> (Of, Option<Position>) {
        let Position { key, done, .. } = at;
        if lane == Lane::Str {
            let bytes = (room.saturating_sub(COUNT_BITS) / 8) as usize;
            if bytes == 0 {
                return (Of::Nothing, Some(Position { is_past_null: true, ..at }));
            }
            *room -= 8 * bytes as u32 + COUNT_BITS;
            let is_descending = order.keys[key].descending;
            let text = Text { key, start: done, bytes, up: *room, is_descending };
            self.text = Some(text);
            return (Of::Text(text), Position::of_key(order, key + 1));
        }
        let ranks = order.ranks[key];
        let all =
            if ranks.are_exact { ranks.bits } else { for_lane!(lane, T => <T as Ranked>::BITS) };
        let missing = all - done as u32;
        let bits = missing.min(*room);
        *room -= bits;
        let next = if bits < missing {
            Some(Position { key, is_past_null: true, done: done + bits as usize })
        } else {
            Position::of_key(order, key + 1)
        };
        if bits == 0 {
            return (Of::Nothing, next);
        }
        let mask = u64::MAX >> (u64::BITS - bits);
        (Of::Rank(Bits { least: ranks.least, down: missing - bits, mask, up: *room }), next)
    }

    /// Where the next digit begins of tuples of which this is the digit; `None` if they are equal.
    pub(super) fn next(&self, bits: u64) -> Option<Position> {
        match self.text.filter(|text| text.has_more(bits)) {
            Some(text) => Some(text.position(text.start + text.bytes)),
            None => self.next,
        }
    }

    /// The same, farther on, if it is known what a few tuples with this digit have in common.
    ///
    /// # Safety
    /// They are of the order's layout, and alive.
    pub(super) unsafe fn next_of(&self, entries: &[Entry]) -> Option<Position> {
        let next = self.next(entries[0].bits);
        let (Some(text), Some(Part { field, .. })) = (self.text, self.parts.last()) else {
            return next;
        };
        if !text.has_more(entries[0].bits) {
            return next;
        }
        // SAFETY: as the caller promises.
        let string = |entry: &Entry| unsafe { string_at(entry.tuple, field) };
        let first = string(&entries[0]);
        let mut same = first.len();
        let mut are_equal = true;
        for entry in &entries[1..] {
            let other = string(entry);
            are_equal &= other.len() == first.len();
            // SAFETY: as the caller promises.
            let (a, b) = unsafe { (first.bytes(), other.bytes()) };
            same = same.min(common_bytes(a, b));
        }
        if are_equal && same == first.len() { self.next } else { Some(text.position(same)) }
    }

    /// Has what is read first of a tuple come from memory.
    #[inline(always)]
    pub(super) fn prefetch(&self, tuple: u64) {
        for Part { field, .. } in &self.parts {
            prefetch_line((tuple as *const u8).wrapping_add(field.offset));
            if let Some((byte, _)) = field.null_place() {
                prefetch_line((tuple as *const u8).wrapping_add(byte));
            }
        }
    }

    /// Puts the digits of entries in place of their bits.
    ///
    /// # Safety
    /// As [`Digit::load`].
    pub(super) unsafe fn load_all(&self, entries: &mut [Entry]) {
        let (mut tuples, mut digits) = ([0; BATCH], [0; BATCH]);
        for batch in entries.chunks_mut(BATCH) {
            let (tuples, digits) = (&mut tuples[..batch.len()], &mut digits[..batch.len()]);
            for (entry, tuple) in batch.iter().zip(&mut *tuples) {
                self.prefetch(entry.tuple);
                *tuple = entry.tuple;
            }
            // SAFETY: as the caller promises.
            unsafe { self.load(tuples, digits) };
            for (entry, digit) in batch.iter_mut().zip(&*digits) {
                entry.bits = *digit;
            }
        }
    }

    /// Loads the digits of at most [`BATCH`] tuples.
    ///
    /// # Safety
    /// The tuples are of the order's layout, alive, and nobody writes to them but to their headers.
    pub(super) unsafe fn load(&self, tuples: &[u64], digits: &mut [u64]) {
        assert!(tuples.len() <= BATCH && tuples.len() == digits.len(), "a batch of tuples");
        digits.fill(0);
        for part in &self.parts {
            // SAFETY: as the caller promises.
            unsafe {
                match part.field.null_place() {
                    None => part.load::<false>(tuples, digits),
                    Some(_) => part.load::<true>(tuples, digits),
                }
            }
        }
    }
}

impl Part {
    /// # Safety
    /// As [`Digit::load`]. Only `NULLABLE` fields are ever null.
    unsafe fn load<const NULLABLE: bool>(&self, tuples: &[u64], digits: &mut [u64]) {
        let (byte, bit) = self.field.null_place().unwrap_or_default();
        // SAFETY: of a tuple that is alive.
        let is_null =
            |tuple: u64| NULLABLE && unsafe { *(tuple as *const u8).add(byte) } & bit != 0;
        if let Some(shift) = self.null_shift {
            for (tuple, digit) in tuples.iter().zip(&mut *digits) {
                *digit |= u64::from(is_null(*tuple) != self.key.nulls_first) << shift;
            }
        }
        match self.of {
            Of::Nothing => {}
            Of::Rank(Bits { least, down, mask, up }) => {
                let flip = if self.key.descending { mask } else { 0 };
                for_lane!(self.field.lane, T => {
                    for (tuple, digit) in tuples.iter().zip(digits) {
                        // SAFETY: the field of a tuple that is alive.
                        let value = unsafe { value_at::<T>(*tuple, &self.field) };
                        let bits = rank_above(value, least, down) & mask ^ flip;
                        *digit |= if is_null(*tuple) { 0 } else { bits << up };
                    }
                });
            }
            Of::Text(text) => {
                let mut strings = [Str::EMPTY; BATCH];
                for (tuple, string) in tuples.iter().zip(&mut strings) {
                    if !is_null(*tuple) {
                        // SAFETY: the field of a tuple that is alive.
                        *string = unsafe { string_at(*tuple, &self.field) };
                        prefetch_line(string.address_of(text.start));
                    }
                }
                for ((tuple, string), digit) in tuples.iter().zip(strings).zip(digits) {
                    if !is_null(*tuple) {
                        // SAFETY: of a tuple that is alive.
                        *digit |= unsafe { text.part_of(string) };
                    }
                }
            }
        }
    }
}

/// Bits of a value's rank, `down` bits from its end.
#[inline(always)]
fn rank_above<T: Ranked>(value: T, least: u64, down: u32) -> u64 {
    if T::BITS > u64::BITS {
        return value.rank_above(down);
    }
    value.rank().wrapping_sub(least) >> down
}

/// # Safety
/// There is a tuple with the field.
#[inline(always)]
unsafe fn value_at<T: Ranked>(tuple: u64, field: &Field) -> T {
    // SAFETY: as the caller promises.
    unsafe { (tuple as *const u8).add(field.offset).cast::<T>().read_unaligned() }
}

/// # Safety
/// There is a tuple with the field, which is not null.
#[inline(always)]
unsafe fn string_at(tuple: u64, field: &Field) -> Str {
    // SAFETY: as the caller promises; its long strings lie behind it.
    unsafe { value_at::<Str>(tuple, field).unpacked(tuple as *const u8) }
}

/// How many of their first bytes are the same.
fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    const CHUNK: usize = 32;
    let chunks = a.chunks_exact(CHUNK).zip(b.chunks_exact(CHUNK));
    let start = CHUNK * chunks.take_while(|(a, b)| a == b).count();
    start + a[start..].iter().zip(&b[start..]).take_while(|(a, b)| a == b).count()
}
