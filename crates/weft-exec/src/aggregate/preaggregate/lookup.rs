//! Rows look up their groups in the table, by hashes, or make them.

use super::{Missing, NEAR_BITS, Preaggregation, make_place};
use crate::aggregate::found::Found;
use crate::aggregate::keys;
use crate::aggregate::operator::Keys;
use crate::aggregate::state::Tuple;
use crate::error::Result;
use crate::kernels::hash;
use crate::registers::Registers;
use crate::tuple::layout::HASH_OFFSET;
use crate::vector::VECTOR_ROWS_MAX;

impl Preaggregation {
    /// Finds or makes the groups of the rows that are not known by the places of their keys: of one row of each combination, from which
    /// the others have it. Adds the first `count` rows to their groups.
    pub(super) async fn find_unknown(
        &mut self,
        registers: &mut Registers,
        keys: &Keys,
        count: usize,
    ) -> Result<()> {
        self.found.pending.clear();
        self.found.pending.extend_from_slice(self.direct.firsts());
        self.hash_pending(registers, keys);
        let missing = self.find(registers, keys, registers.values::<u64>(keys.hash));
        if missing.is_none() && self.direct.learn(&mut self.found.tuples[..count], &self.clusters) {
            self.add_found(registers, count, false)?;
            return self.pay().await;
        }
        // Room is missing, which others may have to leave, or groups were forgotten: rows that have a group are added before.
        let mut is_left = [false; VECTOR_ROWS_MAX];
        self.direct.unknown().iter().for_each(|at| is_left[usize::from(*at)] = true);
        self.direct.firsts().iter().for_each(|at| is_left[usize::from(*at)] = false);
        let were_pending: Vec<u16> =
            (0..count as u16).filter(|at| !is_left[usize::from(*at)]).collect();
        self.update(registers, Some(&were_pending), count)?;
        self.pay().await?;
        self.found.pending.iter().for_each(|at| is_left[usize::from(*at)] = true);
        if let Some(Missing { hash, long_bytes }) = missing {
            self.make_room(hash, long_bytes).await?;
        }
        let left: Vec<u16> = (0..count as u16).filter(|at| is_left[usize::from(*at)]).collect();
        self.found.pending.clone_from(&left);
        self.hash_pending(registers, keys);
        self.find_all(registers, keys, count, Some(left)).await
    }

    /// Computes the hashes of pending rows, which are in ascending order.
    fn hash_pending(&mut self, registers: &mut Registers, keys: &Keys) {
        let Found { pending, rows, .. } = &self.found;
        self.hashed.set(pending.iter().map(|at| rows[usize::from(*at)]));
        std::mem::swap(&mut self.hashed, &mut registers.selection);
        hash::run(registers, &keys.registers, keys.hash);
        std::mem::swap(&mut self.hashed, &mut registers.selection);
    }

    /// Finds or makes the groups of pending rows, whose hashes are there. Adds to their groups these rows, which are those of `left`, or else
    /// all of the first `count` rows.
    pub(super) async fn find_all(
        &mut self,
        registers: &Registers,
        keys: &Keys,
        count: usize,
        left: Option<Vec<u16>>,
    ) -> Result<()> {
        let hashes = registers.values::<u64>(keys.hash);
        let mut were_pending = left;
        while !self.found.pending.is_empty() {
            let missing = self.find(registers, keys, hashes);
            self.update(registers, were_pending.as_deref(), count)?;
            self.pay().await?;
            if let Some(Missing { hash, long_bytes }) = missing {
                were_pending = Some(self.found.pending.clone());
                self.make_room(hash, long_bytes).await?;
            }
        }
        Ok(())
    }

    /// Finds or makes the groups of pending rows, until something is missing for one of them.
    fn find(&mut self, registers: &Registers, keys: &Keys, hashes: &[u64]) -> Option<Missing> {
        let found = &mut self.found;
        let is_near = self.table.bits() <= NEAR_BITS;
        for at in &found.pending {
            let hash = hashes[usize::from(found.rows[usize::from(*at)])];
            let place = self.table.home(hash);
            if !is_near {
                self.table.prefetch(place);
            }
            found.places[usize::from(*at)] = place;
        }
        loop {
            let (candidates, missing) = self.look_up(registers, keys, hashes);
            self.write_new(registers, keys);
            self.compare(registers, keys, candidates);
            if missing.is_some() || self.found.pending.is_empty() {
                return missing;
            }
        }
    }

    /// Looks pending rows up in the table: they become candidates, whose keys are to be compared, or new groups. Those from
    /// the first on for which something is missing stay pending. Gives the number of candidates, and what is missing.
    fn look_up(
        &mut self,
        registers: &Registers,
        keys: &Keys,
        hashes: &[u64],
    ) -> (usize, Option<Missing>) {
        let operator = &self.operator;
        let found = &mut self.found;
        let bits = self.table.bits();
        let mut candidates = 0;
        let mut missing = None;
        let mut done = 0;
        // Rows of a group often follow each other.
        let mut last: Option<(u64, u32, Tuple)> = None;
        for at in &found.pending {
            let at = usize::from(*at);
            let row = found.rows[at];
            let hash = hashes[usize::from(row)];
            let (place, tuple) = match last {
                Some((last, place, tuple)) if last == hash => (place, Some(tuple)),
                _ => {
                    // Places mean nothing if the table has grown meanwhile.
                    let is_same = self.table.bits() == bits;
                    let start = if is_same { found.places[at] } else { self.table.home(hash) };
                    self.table.look(hash, start)
                }
            };
            if let Some(tuple) = tuple {
                last = Some((hash, place, tuple));
                if bits > NEAR_BITS {
                    weft_rt::prefetch_line(tuple.address());
                }
                found.places[at] = place;
                found.tuples[at] = tuple;
                found.candidates[candidates] = at as u16;
                found.candidate_rows[candidates] = row;
                found.candidate_tuples[candidates] = tuple;
                candidates += 1;
                done += 1;
                continue;
            }
            let states = &operator.states;
            let long_bytes = if states.layout.has_strings() {
                keys::long_bytes(&states.layout, registers, &keys.registers, row.into())
            } else {
                0
            };
            let groups = &mut self.groups;
            let slot = groups.slot(hash, long_bytes).or_else(|| {
                let has_room = groups.try_make_room(hash, long_bytes);
                if has_room { groups.slot(hash, long_bytes) } else { None }
            });
            let Some(slot) = slot else {
                missing = Some(Missing { hash, long_bytes });
                break;
            };
            // SAFETY: the slot is this tuple's own; no tuple is used when its page is not there any more.
            let tuple = unsafe {
                let tuple = states.begin(slot.tuple);
                slot.tuple.add(HASH_OFFSET).cast::<u64>().write(hash);
                tuple
            };
            groups.count(hash);
            self.clusters.add(tuple);
            let place =
                make_place(&mut self.table, &mut self.clusters, &mut self.memory, place, hash);
            self.table.put(place, hash, tuple);
            last = Some((hash, place, tuple));
            found.tuples[at] = tuple;
            found.new_rows.push(row);
            found.new_tuples.push(tuple);
            found.new_strings.push(slot.strings);
            done += 1;
        }
        found.pending.drain(..done);
        (candidates, missing)
    }

    /// Writes the keys of new groups.
    fn write_new(&mut self, registers: &Registers, keys: &Keys) {
        let Found { new_rows, new_tuples, new_strings, .. } = &mut self.found;
        self.trial_groups += new_rows.len() as u64;
        let layout = &self.operator.states.layout;
        // SAFETY: the tuples were begun in slots with room for their strings.
        unsafe {
            keys::write_rows(layout, registers, &keys.registers, new_rows, new_tuples, new_strings);
        }
        new_rows.clear();
        new_tuples.clear();
        new_strings.clear();
    }

    /// Compares candidates with their rows' keys; candidates that differ are pending again, before all other rows.
    fn compare(&mut self, registers: &Registers, keys: &Keys, candidates: usize) {
        let found = &mut self.found;
        let same = &mut found.same[..candidates];
        same.fill(true);
        let rows = &found.candidate_rows[..candidates];
        let tuples = &found.candidate_tuples[..candidates];
        let layout = &self.operator.states.layout;
        keys::compare_rows(layout, registers, &keys.registers, rows, tuples, same);
        if same.iter().all(|same| *same) {
            return;
        }
        let mut kept = 0;
        for (number, same) in same.iter().enumerate() {
            if !same {
                let at = found.candidates[number];
                let place = &mut found.places[usize::from(at)];
                // If the table has grown meanwhile, this is any place: the group is found again, or gets another tuple.
                *place = self.table.after(*place);
                found.candidates[kept] = at;
                kept += 1;
            }
        }
        found.pending.splice(..0, found.candidates[..kept].iter().copied());
    }
}
