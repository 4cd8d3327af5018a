//! Entries of rows that are about to come into an index, sorted by their keys.

use arrow_array::ArrayRef;
use weft_index::Keys;
use weft_rt::memory::{Ledger, Reservation};

use crate::index::definition::EntryEncoder;
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
    /// Bytes behind it that its entry includes.
    included_len: usize,
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
    scratch_included: Keys,
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
        let (ledger, scratch_included) = (ledger.clone(), Keys::new());
        KeyRun { bytes, keys, ledger, memory: None, scratch, scratch_included, is_unique }
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

    /// What the entry of key number `index` includes.
    pub(crate) fn included(&self, index: usize) -> &[u8] {
        let key = &self.keys[index];
        let start = key.start + key.len;
        &self.bytes[start..start + key.included_len]
    }

    /// Keys and rows in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Keys, rows and what their entries include, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], u64, &[u8])> {
        (0..self.len()).map(|index| {
            let (key, row) = self.get(index);
            (key, row, self.included(index))
        })
    }

    /// Adds the entries of rows with these ids; those without a key in a unique index get one of their own: the
    /// row's id follows.
    pub(crate) fn add(
        &mut self,
        encoder: &EntryEncoder,
        columns: &[ArrayRef],
        ids: &RowIds,
    ) -> Result<(), weft_index::IndexError> {
        let (mut scratch, mut included) =
            (std::mem::take(&mut self.scratch), std::mem::take(&mut self.scratch_included));
        scratch.clear();
        included.clear();
        encoder.encode(columns, &mut scratch, &mut included)?;
        let key_columns = encoder.key_arrays(columns).iter();
        let nulls: Vec<_> = key_columns.filter_map(|column| column.logical_nulls()).collect();
        for (index, key) in scratch.iter().enumerate() {
            let row = ids.at(index);
            let has_null = self.is_unique && nulls.iter().any(|nulls| nulls.is_null(index));
            let suffix = if has_null { &row.to_be_bytes()[..] } else { &[] };
            let beside = if included.is_empty() { &[] } else { included.get(index) };
            self.push(key, suffix, row, beside);
        }
        (self.scratch, self.scratch_included) = (scratch, included);
        Ok(())
    }

    /// Adds a key of two parts, with what its entry includes.
    pub(crate) fn push(&mut self, key: &[u8], suffix: &[u8], row: u64, included: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(suffix);
        let len = self.bytes.len() - start;
        let head = head_of(&self.bytes[start..]);
        self.bytes.extend_from_slice(included);
        self.keys.push(Key { head, start, len, included_len: included.len(), row });
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
