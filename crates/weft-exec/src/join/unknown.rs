//! NOT IN as SQL has it: for tuples without a match, whether a null keeps it unknown that they have none.
//!
//! With one key and no other condition that is known of a null as such. With several keys, or a condition, a null is
//! unknown only together with a tuple that is equal in the other keys, and the tuples that may be it are gone through one
//! by one: those of the build side with a null, or all of them for a tuple of the probe side that has one itself.

use super::check::Check;
use super::directory::Link;
use super::keys::{Truth, compare, rows};
use super::lookup::Pairs;
use super::probe::Probe;
use super::{Nulls, Table};
use crate::error::Result;
use crate::pace::Pace;
use crate::registers::Registers;
use crate::vector::VECTOR_ROWS_MAX;

/// A bit for each row.
pub(crate) type Rows = [u64; VECTOR_ROWS_MAX / 64];

/// Tuples that are looked at before others are let run.
const LOOKED_AT_ONCE: usize = 4096;

/// Finds the selected rows that have no `first` match and may have one, as far as the table knows. `pairs` is working space; the
/// residual condition is checked if there is one.
///
/// # Errors
/// What the residual condition gives.
pub(crate) async fn find(
    probe: &Probe,
    table: &Table,
    registers: &Registers,
    first: &[u64],
    pairs: &mut Pairs,
    mut check: Option<&mut Check>,
    pace: &mut Pace,
) -> Result<Rows> {
    let mut unknown = [0; VECTOR_ROWS_MAX / 64];
    if table.whole.is_empty {
        return Ok(unknown);
    }
    let is_alone = !probe.looks_for_unknown();
    let keys = probe.join.keys();
    let mut looked_at = 0;
    for row in rows(registers.selected()).filter(|row| first[*row] == 0) {
        let has_null = keys.iter().zip(&probe.keys).any(|(key, register)| {
            key.nulls == Nulls::Unknown && !registers.vector(*register).validity.is_valid(row)
        });
        let mut is_unknown = is_alone && (has_null || table.whole.has_null);
        let mut tuples = Candidates::new(table, has_null);
        let mut has_more = !is_alone;
        while has_more && !is_unknown {
            has_more = tuples.fill(probe, registers, row, pairs, &mut looked_at);
            if let Some(check) = &mut check {
                check.retain_true(registers, pairs, pace).await?;
            }
            is_unknown = pairs.count() > 0;
            if looked_at >= LOOKED_AT_ONCE {
                looked_at = 0;
                pace.keep().await;
            }
        }
        unknown[row / 64] |= u64::from(is_unknown) << (row % 64);
    }
    Ok(unknown)
}

/// Tuples of which it may be unknown whether they match.
enum Candidates<'a> {
    /// Those with a null, from here on.
    Chain(Link),
    /// All, from a tuple of a page on.
    All { table: &'a Table, page: usize, tuple: usize },
}

impl Candidates<'_> {
    fn new(table: &Table, all: bool) -> Candidates<'_> {
        if all {
            Candidates::All { table, page: 0, tuple: 0 }
        } else {
            Candidates::Chain(table.unknown)
        }
    }

    /// Makes `pairs` the row with the next tuples for which it is unknown, which may be none of those looked at, as many as still may
    /// be at once; false if there are none left.
    fn fill(
        &mut self,
        probe: &Probe,
        registers: &Registers,
        row: usize,
        pairs: &mut Pairs,
        looked_at: &mut usize,
    ) -> bool {
        pairs.clear();
        while *looked_at < LOOKED_AT_ONCE {
            let Some(tuple) = self.next() else { return false };
            *looked_at += 1;
            if is_unknown(probe, registers, row, tuple) {
                pairs.push(row, tuple);
                if pairs.count() == VECTOR_ROWS_MAX {
                    break;
                }
            }
        }
        true
    }
}

impl Iterator for Candidates<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Candidates::Chain(link) => {
                let tuple = link.tuple();
                if tuple == 0 {
                    return None;
                }
                // SAFETY: a tuple in a chain of the finished build.
                *link = unsafe { Link::after(tuple) };
                Some(tuple)
            }
            Candidates::All { table, page, tuple } => {
                let mut stored = table.pages.get(*page)?;
                while *tuple == stored.tuples() {
                    (*page, *tuple) = (*page + 1, 0);
                    stored = table.pages.get(*page)?;
                }
                *tuple += 1;
                Some(stored.tuple(*tuple - 1) as u64)
            }
        }
    }
}

/// True if no key of the two is different, and one is unknown.
fn is_unknown(probe: &Probe, registers: &Registers, row: usize, tuple: u64) -> bool {
    let join = &probe.join;
    let mut is_unknown = false;
    for (key, register) in join.keys().iter().zip(&probe.keys) {
        let (vector, field) = (registers.vector(*register), join.layout().field(key.field));
        // SAFETY: a tuple of the join's layout; a register's strings are alive.
        match unsafe { compare(vector, row, tuple, field, key) } {
            Truth::Same => {}
            Truth::Different => return false,
            Truth::Unknown => is_unknown = true,
        }
    }
    is_unknown
}
