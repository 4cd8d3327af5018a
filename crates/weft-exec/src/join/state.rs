//! Taking vectors through a probe: of all tuples of the build side that they can match, or of a block of them. What takes long
//! ([`Probe::takes_long`]) lets others run; all else never waits.

use super::check::Check;
use super::directory::{Link, mark};
use super::keys::for_key;
use super::lookup::{Links, Pairs};
use super::probe::{Kind, Probe};
use super::{Nulls, Table, gather, keys, unknown};
use crate::error::Result;
use crate::lane::{Bool, Lane};
use crate::pace::Pace;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::selection::Selection;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Links of chains that are followed at a time, before others are served.
const ROUNDS_MAX: usize = 16;

/// What a worker keeps of a probe from vector to vector.
pub(crate) struct ProbeState {
    vector_rows: usize,
    /// What becomes of the rows at hand.
    kind: Kind,
    /// Not all tuples that they can match are in the table.
    is_block: bool,
    /// The rows for which the tuples of a block make it unknown whether they match, or those that all blocks do.
    unknown: Option<unknown::Rows>,
    /// The rows that were selected at the beginning.
    selection: Selection,
    /// Those of them that can match.
    able: Selection,
    /// Tuples to be looked at, one at most for a row.
    open: Pairs,
    /// Those of them that match.
    found: Pairs,
    links: Box<Links>,
    /// Each row's first match, or 0.
    first: Box<[u64; VECTOR_ROWS_MAX]>,
    /// Matches that have not gone on yet, from `ready_at` on.
    ready_rows: Vec<u16>,
    ready_tuples: Vec<u64>,
    ready_at: usize,
    /// Rows without a match are still to go on, when it is known that they have none.
    owes_unmatched: bool,
    /// Chains are still gone through, and nothing has gone on yet.
    is_beginning: bool,
    check: Option<Check>,
}

impl ProbeState {
    /// A worker's state for `probe`.
    pub fn new(probe: &Probe, context: &Context) -> ProbeState {
        debug_assert!(
            probe.carried.iter().enumerate().all(|(at, (from, _))| {
                probe.carried[..at].iter().all(|(earlier, _)| from != earlier)
            }),
            "a register is carried once"
        );
        let check = probe.residual.as_ref().map(|residual| Check::new(residual, context));
        ProbeState {
            vector_rows: context.vector_rows,
            kind: probe.kind,
            is_block: false,
            unknown: None,
            selection: Selection::default(),
            able: Selection::default(),
            open: Pairs::default(),
            found: Pairs::default(),
            links: Box::new([Link::default(); VECTOR_ROWS_MAX]),
            first: Box::new([0; VECTOR_ROWS_MAX]),
            ready_rows: Vec::new(),
            ready_tuples: Vec::new(),
            ready_at: 0,
            owes_unmatched: false,
            is_beginning: false,
            check,
        }
    }

    /// Looks up the tuples that are selected. The registers then have the first of what there is, perhaps nothing; true
    /// if there is more, then [`ProbeState::next`] is to be called when the program's other steps are done with this.
    ///
    /// # Errors
    /// What the residual condition gives.
    pub async fn begin(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        (self.kind, self.is_block) = (probe.kind, false);
        self.begin_lookup(probe, table, registers, pace).await
    }

    /// The same for a table that has some of the tuples only: just pairs go on, for the others it is to be noted what was
    /// found ([`ProbeState::has_matched`], [`ProbeState::take_unknown`]).
    ///
    /// # Errors
    /// What the residual condition gives.
    pub async fn begin_block(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        let kind = if probe.kind.expands() { Kind::Inner } else { Kind::Nothing };
        (self.kind, self.is_block, self.unknown) = (kind, true, None);
        self.begin_lookup(probe, table, registers, pace).await
    }

    /// Goes on with rows for which all is known: which have matched, and of which it is unknown. Pairs have gone on already.
    ///
    /// # Errors
    /// None: nothing is evaluated.
    pub async fn settle_known(
        &mut self,
        probe: &Probe,
        registers: &mut Registers,
        has_matched: impl Fn(usize) -> bool,
        unknown: unknown::Rows,
        pace: &mut Pace,
    ) -> Result<bool> {
        (self.kind, self.is_block, self.unknown) = (probe.kind, false, Some(unknown));
        for (row, first) in self.first[..registers.rows()].iter_mut().enumerate() {
            *first = has_matched(row).into();
        }
        if probe.kind == Kind::Outer {
            registers.selection.retain(|row| !has_matched(row));
        }
        let table = probe.join.table();
        self.settle(probe, table, registers, pace).await?;
        self.unknown = None;
        Ok(false)
    }

    /// True if a row has a match among the tuples that were looked at.
    pub fn has_matched(&self, row: usize) -> bool {
        self.first[row] != 0
    }

    /// The rows for which the tuples of a block make it unknown whether they match.
    pub fn take_unknown(&mut self) -> Option<unknown::Rows> {
        self.unknown.take()
    }

    async fn begin_lookup(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        self.selection.copy_from(&registers.selection);
        self.first[..registers.rows()].fill(0);
        self.look_up(probe, table, registers);
        self.is_beginning = true;
        self.go_on(probe, table, registers, pace).await
    }

    /// Goes through chains until there is something to go on with. Others are served meanwhile: after some rounds it
    /// leaves nothing selected, and says that there is more.
    async fn go_on(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        let expands = self.kind.expands();
        for _ in 0..ROUNDS_MAX {
            if self.open.count() == 0 {
                break;
            }
            self.compare(probe, registers);
            self.retain_true(registers, pace).await?;
            self.mark(probe);
            let is_repeated = self.note_first(expands);
            self.advance(probe, registers);
            if is_repeated {
                self.is_beginning = false;
                self.ready_first();
                self.owes_unmatched = self.kind == Kind::Outer;
                return self.next_matches(probe, registers, pace).await;
            }
        }
        if self.open.count() > 0 {
            registers.selection.retain(|_| false);
            return Ok(true);
        }
        self.is_beginning = false;
        self.settle(probe, table, registers, pace).await?;
        Ok(false)
    }

    /// The next batch of matches; true if there may be more.
    ///
    /// # Errors
    /// What the residual condition gives.
    pub async fn next(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        if self.is_beginning {
            registers.selection.copy_from(&self.selection);
            return self.go_on(probe, table, registers, pace).await;
        }
        self.next_matches(probe, registers, pace).await
    }

    async fn next_matches(
        &mut self,
        probe: &Probe,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        if self.ready() < self.vector_rows {
            self.ready_rows.drain(..self.ready_at);
            self.ready_tuples.drain(..self.ready_at);
            self.ready_at = 0;
        }
        for _ in 0..ROUNDS_MAX {
            if self.ready() >= self.vector_rows || self.open.count() == 0 {
                break;
            }
            self.compare(probe, registers);
            self.retain_true(registers, pace).await?;
            self.mark(probe);
            for (row, tuple) in self.found.iter() {
                self.first[row] = tuple;
            }
            self.ready_rows.extend_from_slice(self.found.rows());
            self.ready_tuples.extend_from_slice(self.found.tuples());
            self.advance(probe, registers);
        }
        if self.open.count() == 0 && std::mem::take(&mut self.owes_unmatched) {
            for row in keys::rows(self.selection.selected()).filter(|row| self.first[*row] == 0) {
                self.ready_rows.push(row as u16);
                self.ready_tuples.push(0);
            }
        }
        self.emit(probe, registers);
        Ok(self.ready() > 0 || self.open.count() > 0)
    }

    fn ready(&self) -> usize {
        self.ready_rows.len() - self.ready_at
    }

    /// The directory's entries of all rows that can match.
    fn look_up(&mut self, probe: &Probe, table: &Table, registers: &Registers) {
        let join_keys = probe.join.keys();
        debug_assert_eq!(probe.keys.len(), join_keys.len());
        let vectors: Vec<&Vector> =
            probe.keys.iter().map(|register| registers.vector(*register)).collect();
        let mut selected = registers.selected();
        if keys::has_null(&vectors, join_keys) {
            self.able.copy_from(&registers.selection);
            self.able.retain(|row| keys::can_match(&vectors, join_keys, row));
            selected = self.able.selected();
        }
        if table.pages.is_empty() {
            return self.open.clear();
        }
        let (entries, hashes) = (table.directory.entries(), registers.values(probe.hash));
        self.open.look_up(entries, hashes, selected, &mut self.links);
    }

    /// Finds the open pairs whose keys are equal.
    fn compare(&mut self, probe: &Probe, registers: &Registers) {
        let (join_keys, layout) = (probe.join.keys(), probe.join.layout());
        let ProbeState { open, found, links, .. } = self;
        let only = match join_keys {
            [key] if key.nulls != Nulls::Equal => Some(layout.field(key.field)),
            _ => None,
        };
        let only = only.filter(|field| !matches!(field.lane, Lane::Str | Lane::I128));
        // SAFETY: tuples in the directory's chains are of the join's layout, and have no null but where nulls are equal;
        // neither have the rows that were looked up.
        unsafe {
            if let Some(field) = only {
                let vector = registers.vector(probe.keys[0]);
                for_key!(field, T, key_of => found.same_key::<T>(open, vector.values(), key_of, links));
                return;
            }
            found.same_hash(open, registers.values(probe.hash), links);
            for (key, register) in join_keys.iter().zip(&probe.keys) {
                let (vector, field) = (registers.vector(*register), layout.field(key.field));
                keys::retain_same(found, vector, field, key.nulls);
            }
        }
    }

    /// Keeps what is found and fulfils the residual condition.
    async fn retain_true(&mut self, registers: &Registers, pace: &mut Pace) -> Result<()> {
        match &mut self.check {
            Some(check) => check.retain_true(registers, &mut self.found, pace).await,
            None => Ok(()),
        }
    }

    fn mark(&self, probe: &Probe) {
        if probe.marks_build {
            // SAFETY: tuples of the finished build.
            self.found.tuples().iter().for_each(|tuple| unsafe { mark(*tuple) });
        }
    }

    /// Notes each row's first match. If all matches are wanted, keeps those found that are not the first; true if there
    /// are any.
    fn note_first(&mut self, expands: bool) -> bool {
        let first = &mut self.first;
        if !expands {
            self.found.iter().for_each(|(row, tuple)| first[row] = tuple);
            return false;
        }
        self.found.retain(|row, tuple| {
            let is_repeated = first[row] != 0;
            first[row] = if is_repeated { first[row] } else { tuple };
            is_repeated
        });
        self.found.count() > 0
    }

    /// Goes on in the chains of rows that may have another match that counts.
    fn advance(&mut self, probe: &Probe, registers: &Registers) {
        let hashes = registers.values(probe.hash);
        if self.kind.expands() || probe.marks_build {
            self.open.advance(&self.links, hashes, |_| true);
        } else {
            let first = &self.first;
            self.open.advance(&self.links, hashes, |row| first[row] == 0);
        }
    }

    /// Makes the first matches of all rows ready, and what was found beyond them.
    fn ready_first(&mut self) {
        self.ready_rows.clear();
        self.ready_tuples.clear();
        self.ready_at = 0;
        for row in keys::rows(self.selection.selected()).filter(|row| self.first[*row] != 0) {
            self.ready_rows.push(row as u16);
            self.ready_tuples.push(self.first[row]);
        }
        self.ready_rows.extend_from_slice(self.found.rows());
        self.ready_tuples.extend_from_slice(self.found.tuples());
    }

    /// Puts the next batch of what is ready into the registers.
    fn emit(&mut self, probe: &Probe, registers: &mut Registers) {
        let end = self.ready_rows.len().min(self.ready_at + self.vector_rows);
        let batch = std::mem::replace(&mut self.ready_at, end)..end;
        let rows = &self.ready_rows[batch.clone()];
        for (from, to) in &probe.carried {
            let mut vector = registers.take(*to);
            gather(registers.vector(*from), rows, &mut vector);
            registers.put(*to, vector);
        }
        if let Some(tuples) = probe.tuples {
            let vector = registers.vector_mut(tuples);
            vector.validity.set_all();
            vector.values_mut::<u64>()[..rows.len()].copy_from_slice(&self.ready_tuples[batch]);
        }
        registers.set_rows(rows.len());
    }

    /// All rows keep their places: none has more than one match, or only whether it has one counts.
    async fn settle(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<()> {
        let first = &self.first;
        match self.kind {
            Kind::Inner | Kind::Outer => {
                if self.kind == Kind::Inner {
                    registers.selection.retain(|row| first[row] != 0);
                }
                let rows = registers.rows();
                if let Some(tuples) = probe.tuples {
                    let vector = registers.vector_mut(tuples);
                    vector.validity.set_all();
                    vector.values_mut::<u64>()[..rows].copy_from_slice(&first[..rows]);
                }
                for (from, to) in &probe.carried {
                    registers.swap(*from, *to);
                }
            }
            Kind::Semi => registers.selection.retain(|row| first[row] != 0),
            Kind::Anti => {
                registers.selection.retain(|row| first[row] == 0);
                if probe.join.has_unknown() {
                    let unknown = self.unknown_rows(probe, table, registers, pace).await?;
                    registers.selection.retain(|row| unknown[row / 64] >> (row % 64) & 1 == 0);
                }
            }
            Kind::Mark { out } => self.settle_mark(probe, table, registers, out, pace).await?,
            Kind::Nothing => {
                if self.is_block && probe.join.has_unknown() {
                    self.unknown = Some(self.unknown_rows(probe, table, registers, pace).await?);
                }
                registers.selection.retain(|_| false);
            }
        }
        Ok(())
    }

    async fn settle_mark(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &mut Registers,
        out: Register,
        pace: &mut Pace,
    ) -> Result<()> {
        let unknown = match probe.join.has_unknown() {
            true => Some(self.unknown_rows(probe, table, registers, pace).await?),
            false => None,
        };
        let rows = registers.rows();
        let vector = registers.vector_mut(out);
        for (truth, first) in vector.values_mut::<Bool>().iter_mut().zip(&self.first[..rows]) {
            *truth = (*first != 0).into();
        }
        vector.validity.set_all();
        if let Some(unknown) = unknown.filter(|unknown| unknown.iter().any(|word| *word != 0)) {
            for (word, unknown) in vector.validity.words_mut().iter_mut().zip(unknown) {
                *word = !unknown;
            }
        }
        Ok(())
    }

    /// A bit for each selected row without a match that may have one nevertheless.
    async fn unknown_rows(
        &mut self,
        probe: &Probe,
        table: &Table,
        registers: &Registers,
        pace: &mut Pace,
    ) -> Result<unknown::Rows> {
        if let Some(known) = self.unknown {
            return Ok(known);
        }
        let ProbeState { first, found, check, .. } = self;
        unknown::find(probe, table, registers, &**first, found, check.as_mut(), pace).await
    }
}
