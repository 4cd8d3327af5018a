//! Keys of rows that are about to come into an index, sorted.

use arrow_array::ArrayRef;
use weft_index::{KeyEncoder, Keys};
use weft_rt::memory::{Ledger, Reservation};

use crate::index::new_rows::RowIds;

/// Bytes that a run takes although the budget has nothing left.
const RUN_BYTES_MIN: u64 = 1 << 20;
/// Bytes by which a run's memory grows.
const STEP_BYTES: u64 = 1 << 20;
/// A run takes this part of the budget at most.
const RUN_SHARE_DIVISOR: u64 = 4;

/// A key: where it lies, and its row.
#[derive(Clone, Copy, Debug)]
struct Key {
    /// The first bytes of it.
    head: u64,
    start: usize,
    len: usize,
    row: u64,
}

/// Keys with the ids of their rows.
#[derive(Debug)]
pub(crate) struct KeyRun {
    bytes: Vec<u8>,
    keys: Vec<Key>,
    ledger: Ledger,
    memory: Option<Reservation>,
    scratch: Keys,
    is_unique: bool,
}

fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

impl KeyRun {
    pub(crate) fn new(ledger: &Ledger, is_unique: bool) -> KeyRun {
        let (bytes, keys, scratch) = (Vec::new(), Vec::new(), Keys::new());
        KeyRun { bytes, keys, ledger: ledger.clone(), memory: None, scratch, is_unique }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key number `index`, and its row.
    pub(crate) fn get(&self, index: usize) -> (&[u8], u64) {
        let key = &self.keys[index];
        (&self.bytes[key.start..key.start + key.len], key.row)
    }

    /// Keys and rows in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Adds the keys of rows with these ids; those without a key in a unique index get one of their own: the
    /// row's id follows.
    pub(crate) fn add(
        &mut self,
        encoder: &KeyEncoder,
        columns: &[ArrayRef],
        ids: &RowIds,
    ) -> Result<(), weft_index::IndexError> {
        self.scratch.clear();
        encoder.encode(columns, &mut self.scratch)?;
        let nulls: Vec<_> = columns.iter().filter_map(|column| column.logical_nulls()).collect();
        let scratch = std::mem::take(&mut self.scratch);
        for (index, key) in scratch.iter().enumerate() {
            let row = ids.at(index);
            let has_null = self.is_unique && nulls.iter().any(|nulls| nulls.is_null(index));
            let suffix = if has_null { &row.to_be_bytes()[..] } else { &[] };
            self.push(key, suffix, row);
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Adds a key of two parts.
    pub(crate) fn push(&mut self, key: &[u8], suffix: &[u8], row: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(suffix);
        let len = self.bytes.len() - start;
        self.keys.push(Key { head: head_of(&self.bytes[start..]), start, len, row });
    }

    /// False if no more keys should be added, as there is no more memory for them.
    pub(crate) fn has_room(&mut self) -> bool {
        let bytes = (self.bytes.capacity() + self.keys.capacity() * size_of::<Key>()) as u64;
        let reserved = self.memory.as_ref().map_or(0, Reservation::bytes);
        if bytes <= reserved {
            return true;
        }
        let wanted = (bytes - reserved).next_multiple_of(STEP_BYTES);
        let is_granted = reserved + wanted <= self.ledger.limit() / RUN_SHARE_DIVISOR
            && match &mut self.memory {
                Some(memory) => memory.try_grow(wanted),
                None => {
                    self.memory = self.ledger.try_reserve(wanted);
                    self.memory.is_some()
                }
            };
        is_granted || bytes < RUN_BYTES_MIN
    }

    /// Sorts the keys, those that are equal by their rows.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        let of = |key: &Key| &bytes[key.start..key.start + key.len];
        self.keys.sort_unstable_by(|a, b| {
            let heads = a.head.cmp(&b.head);
            heads.then_with(|| of(a).cmp(of(b))).then_with(|| a.row.cmp(&b.row))
        });
    }

    /// The row of the second of two equal keys, if there are two; sorted.
    pub(crate) fn duplicate(&self) -> Option<u64> {
        let same = |pair: &[usize; 2]| self.get(pair[0]).0 == self.get(pair[1]).0;
        (1..self.len()).map(|index| [index - 1, index]).find(same).map(|pair| self.get(pair[1]).1)
    }
}
