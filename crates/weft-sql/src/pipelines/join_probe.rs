//! A join's probe side goes on with a step that looks tuples up, and where tuples of the build side count that have
//! matched or not, a second branch goes through those.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, internal_err};
use weft_exec::Lane;
use weft_exec::join::{Join, Kind, Nulls, Probe, Remainder, Residual, Which};
use weft_exec::program::{Program, Register, Step};
use weft_exec::sink::Nothing;
use weft_exec::tuple::{Layout, Storage};

use super::description::{shortened, sql};
use super::expressions::Expressions;
use super::join::{JoinColumn, Joining};
use super::join_build::hash;
use super::join_sides::{Fate, Sides, of_build};
use super::logic;
use super::open::{InOrder, Open};
use super::stored::StoredTerm;
use super::term::{Place, Term, in_register};
use super::translate::{Translator, check_size};

/// A join on its way.
pub(super) struct Joiner<'a> {
    pub(super) joining: &'a Joining<'a>,
    pub(super) fate: Fate,
    /// What the join gives.
    pub(super) columns: Vec<JoinColumn>,
    pub(super) filter_columns: Vec<JoinColumn>,
    pub(super) sides: Sides,
    pub(super) join: Arc<Join>,
    /// Columns of the build side that are needed.
    pub(super) stored: Vec<Option<StoredTerm>>,
    /// The first step of the probe side that is the join's.
    pub(super) start: usize,
}

impl Joiner<'_> {
    /// Goes on with what is to be looked up.
    ///
    /// # Errors
    /// Those of the join's condition.
    pub(super) fn probe(
        self,
        translator: &mut Translator,
        mut open: Open,
        keys: Vec<Term>,
    ) -> DfResult<Open> {
        let key_registers = keys.iter().map(|key| in_register(&mut open.program, key));
        let key_registers: Vec<Register> = key_registers.collect();
        let of_keys = keys.iter().zip(&key_registers).map(|(key, register)| key.moved(*register));
        let storage = storage(of_keys.collect::<Vec<_>>().iter().chain(&open.columns));
        let keys = key_registers;
        let hash = hash(&mut open.program, keys.clone());
        let probe = Probe {
            join: self.join.clone(),
            hash,
            keys,
            kind: Kind::Nothing,
            carried: Vec::new(),
            kept: Vec::new(),
            storage,
            tuples: None,
            marks_build: matches!(self.fate, Fate::Build(_) | Fate::Pairs { rest: true, .. }),
            residual: None,
        };
        match self.fate {
            Fate::Pairs { outer: false, rest: false } => self.inner(open, probe),
            Fate::Pairs { outer, rest } => self.outer(open, probe, outer, rest),
            Fate::Probe { matched } => {
                let kind = if matched { Kind::Semi } else { Kind::Anti };
                self.selected(open, Probe { kind, ..probe }, None)
            }
            Fate::ProbeMarked => {
                let out = open.program.register(Lane::Bool);
                self.selected(open, Probe { kind: Kind::Mark { out }, ..probe }, Some(out))
            }
            Fate::Build(which) => self.of_build(translator, open, probe, which),
        }
    }

    /// The steps of a probe.
    fn push(&self, open: &mut Open, probe: Probe) {
        let mut text = format!("{} join", self.joining.join_type).to_lowercase();
        let keys = self.joining.keys.iter();
        let on: Vec<String> =
            keys.map(|(left, right)| format!("{} = {}", sql(left), sql(right))).collect();
        if !on.is_empty() {
            text.push_str(&format!(" on {}", shortened(&on.join(", "))));
        }
        open.label(self.start, text);
        open.program.steps.push(Step::Expand(Arc::new(probe)));
    }

    /// Pairs that fulfil the condition.
    fn inner(&self, mut open: Open, probe: Probe) -> DfResult<Open> {
        let wanted: Vec<JoinColumn> =
            self.columns.iter().chain(&self.filter_columns).copied().collect();
        let mut terms = self.pairs(&mut open, Probe { kind: Kind::Inner, ..probe }, &wanted)?;
        let of_filter = terms.split_off(self.columns.len());
        if let Some(filter) = self.joining.filter {
            let mut code = Expressions::new(&mut open.program, &of_filter, filter.schema());
            logic::filter(&mut code, filter.expression())?;
        }
        open.columns = terms;
        Ok(open)
    }

    /// Pairs, those that are missing a partner among them.
    fn outer(&self, mut open: Open, probe: Probe, outer: bool, rest: bool) -> DfResult<Open> {
        let kind = if outer { Kind::Outer } else { Kind::Inner };
        let residual = self.residual(&mut open)?;
        let probe_types: Vec<Term> =
            open.columns.iter().map(|term| Term::null(&term.data_type)).collect();
        let probe = Probe { kind, residual, ..probe };
        open.columns = self.pairs(&mut open, probe, &self.columns)?;
        open.order = InOrder::No;
        if !rest {
            return Ok(open);
        }
        let unmatched = self.remainder(Which::Unmatched, |program, tuples, _| {
            self.columns
                .iter()
                .map(|column| match (of_build(*column, self.sides), column) {
                    (Some(column), _) => self.load(program, tuples, column),
                    (None, JoinColumn::Left(column) | JoinColumn::Right(column)) => {
                        Ok(probe_types[*column].clone())
                    }
                    (None, JoinColumn::Mark) => internal_err!("an outer join without marks"),
                })
                .collect()
        })?;
        Ok(Open::union(vec![open, unmatched], true))
    }

    /// Tuples of the probe side, which keep their places.
    fn selected(&self, mut open: Open, probe: Probe, mark: Option<Register>) -> DfResult<Open> {
        let residual = self.residual(&mut open)?;
        let is_unknown = self.joining.nulls == Nulls::Unknown;
        let kept = self.columns.iter().filter_map(|column| match column {
            JoinColumn::Left(column) | JoinColumn::Right(column) => {
                match open.columns[*column].place {
                    Place::Register(register) => Some(register),
                    _ => None,
                }
            }
            JoinColumn::Mark => None,
        });
        let kept = kept.collect();
        self.push(&mut open, Probe { residual, kept, ..probe });
        // Rows whose part of the build side is on disk come last.
        open.order = InOrder::No;
        let columns: DfResult<Vec<Term>> = self
            .columns
            .iter()
            .map(|column| match (column, mark) {
                (JoinColumn::Mark, Some(mark)) => Ok(marked(mark, is_unknown)),
                (JoinColumn::Left(column) | JoinColumn::Right(column), _) => {
                    Ok(open.columns[*column].clone())
                }
                (JoinColumn::Mark, None) => internal_err!("a join without marks"),
            })
            .collect();
        open.columns = columns?;
        Ok(open)
    }

    /// Tuples of the build side, when all of the probe side have been looked up.
    fn of_build(
        &self,
        translator: &mut Translator,
        mut open: Open,
        probe: Probe,
        which: Which,
    ) -> DfResult<Open> {
        let residual = self.residual(&mut open)?;
        self.push(&mut open, Probe { residual, ..probe });
        let after = open.close(Box::new(Nothing), "marks", &mut translator.closed);
        let rest = self.remainder(which, |program, tuples, mark| {
            self.columns
                .iter()
                .map(|column| match (of_build(*column, self.sides), mark) {
                    (Some(column), _) => self.load(program, tuples, column),
                    (None, Some(mark)) => Ok(marked(mark, false)),
                    (None, None) => internal_err!("only tuples of the build side are left"),
                })
                .collect()
        })?;
        Ok(rest.after(&after))
    }

    /// Adds a probe whose matches go on as pairs, and gives these columns of them.
    fn pairs(&self, open: &mut Open, probe: Probe, wanted: &[JoinColumn]) -> DfResult<Vec<Term>> {
        let is_outer = probe.kind == Kind::Outer;
        let tuples = open.program.register(Lane::U64);
        let mut carried: Vec<(Register, Register)> = Vec::new();
        let mut of_probe: Vec<Option<Term>> = vec![None; open.columns.len()];
        for column in wanted {
            let (JoinColumn::Left(number) | JoinColumn::Right(number)) = *column else { continue };
            if of_build(*column, self.sides).is_some() {
                continue;
            }
            let term = &open.columns[number];
            of_probe[number] = Some(match term.place {
                Place::Register(from) => {
                    let known = carried.iter().find(|(known, _)| *known == from);
                    let to = match known {
                        Some((_, to)) => *to,
                        None => {
                            let to = open.program.register(term.lane);
                            carried.push((from, to));
                            to
                        }
                    };
                    term.moved(to)
                }
                _ => term.clone(),
            });
        }
        self.push(open, Probe { carried, tuples: Some(tuples), ..probe });
        open.order = InOrder::No;
        let mut of_build_side: Vec<Option<Term>> = vec![None; self.stored.len()];
        let mut terms = Vec::new();
        for column in wanted {
            terms.push(match (of_build(*column, self.sides), column) {
                (Some(number), _) => match &of_build_side[number] {
                    Some(term) => term.clone(),
                    None => {
                        let mut term = self.load(&mut open.program, tuples, number)?;
                        term.is_nullable |= is_outer;
                        of_build_side[number] = Some(term.clone());
                        term
                    }
                },
                (None, JoinColumn::Left(number) | JoinColumn::Right(number)) => {
                    match of_probe[*number].clone() {
                        Some(term) => term,
                        None => return internal_err!("a column that was not carried"),
                    }
                }
                (None, JoinColumn::Mark) => return internal_err!("pairs have no mark"),
            });
        }
        Ok(terms)
    }

    /// A column of the build side.
    fn load(&self, program: &mut Program, tuples: Register, column: usize) -> DfResult<Term> {
        match &self.stored[column] {
            Some(term) => Ok(term.load(program, tuples, self.layout())),
            None => internal_err!("a column of the build side that was not stored"),
        }
    }

    fn layout(&self) -> &Arc<Layout> {
        self.join.layout()
    }

    /// The condition of the join as a program over pairs.
    fn residual(&self, open: &mut Open) -> DfResult<Option<Arc<Residual>>> {
        let Some(filter) = self.joining.filter else { return Ok(None) };
        let mut program = Program::default();
        let tuples = program.register(Lane::U64);
        let mut inputs = Vec::new();
        let mut columns = Vec::new();
        for column in &self.filter_columns {
            columns.push(match (of_build(*column, self.sides), column) {
                (Some(column), _) => self.load(&mut program, tuples, column)?,
                (None, JoinColumn::Left(column) | JoinColumn::Right(column)) => {
                    let term = &open.columns[*column];
                    match term.place {
                        Place::Register(from) => {
                            let to = program.register(term.lane);
                            inputs.push((from, to));
                            term.moved(to)
                        }
                        _ => term.clone(),
                    }
                }
                (None, JoinColumn::Mark) => return internal_err!("a condition about a mark"),
            });
        }
        let mut code = Expressions::new(&mut program, &columns, filter.schema());
        logic::filter(&mut code, filter.expression())?;
        check_size(&program)?;
        Ok(Some(Arc::new(Residual { program: Arc::new(program), inputs, tuples })))
    }

    /// Tuples of the build side with these columns, which are made of their addresses and marks.
    fn remainder(
        &self,
        which: Which,
        columns: impl FnOnce(&mut Program, Register, Option<Register>) -> DfResult<Vec<Term>>,
    ) -> DfResult<Open> {
        let source = Box::new(Remainder::new(self.join.clone(), which));
        let lanes: &[Lane] =
            if which == Which::All { &[Lane::U64, Lane::Bool] } else { &[Lane::U64] };
        let label = match which {
            Which::Matched => "matched rows of the build side",
            Which::Unmatched => "unmatched rows of the build side",
            Which::All => "rows of the build side",
        };
        let mut inputs = Vec::new();
        let mut open = Open::new(source, label, lanes, |registers| {
            inputs = registers.to_vec();
            Vec::new()
        });
        open.columns = columns(&mut open.program, inputs[0], inputs.get(1).copied())?;
        Ok(open)
    }
}

/// What is known of the registers of these terms: whether they may be null, and how their values may lie in tuples.
fn storage<'a>(terms: impl Iterator<Item = &'a Term>) -> Vec<(Register, bool, Storage)> {
    let mut known: Vec<(Register, bool, Storage)> = Vec::new();
    for term in terms {
        let Place::Register(register) = term.place else { continue };
        match known.iter_mut().find(|(other, ..)| *other == register) {
            None => known.push((register, term.is_nullable, term.storage())),
            Some((_, is_nullable, storage)) => {
                *is_nullable |= term.is_nullable;
                if *storage != term.storage() {
                    *storage = Storage::Whole;
                }
            }
        }
    }
    known
}

/// Whether there is a match.
pub(super) fn marked(mark: Register, is_nullable: bool) -> Term {
    Term::new(mark, Lane::Bool, &DataType::Boolean, is_nullable)
}
