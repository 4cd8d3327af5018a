//! Columns on their way through a pipeline breaker: which fields of its tuples they become, and back.

use std::sync::Arc;

use weft_exec::Lane;
use weft_exec::program::{Program, Register, Step};
use weft_exec::tuple::{Layout, Storage};

use super::term::{Place, Term, in_register};

/// The fields of tuples, the registers that they are stored from, and the terms that they are.
#[derive(Debug, Default)]
pub(super) struct Stored {
    fields: Vec<(Lane, bool, Storage)>,
    registers: Vec<Register>,
}

/// A term that was stored; constants are not.
#[derive(Clone, Debug)]
pub(super) struct StoredTerm {
    term: Term,
    field: Option<usize>,
}

impl Stored {
    /// Stores a term, unless it is a constant.
    pub(super) fn add(&mut self, term: &Term) -> StoredTerm {
        let field = match &term.place {
            Place::Register(register) => Some(self.add_register(*register, term)),
            _ => None,
        };
        StoredTerm { term: term.clone(), field }
    }

    /// Stores a term that is null where there is no tuple, even if it is a constant.
    pub(super) fn add_optional(&mut self, program: &mut Program, term: &Term) -> StoredTerm {
        let field = match &term.place {
            Place::Null => None,
            _ => Some(self.add_field(program, term)),
        };
        StoredTerm { term: term.clone(), field }
    }

    /// Stores a term as a field, even if it is a constant; gives the number of the field.
    pub(super) fn add_field(&mut self, program: &mut Program, term: &Term) -> usize {
        let register = in_register(program, term);
        self.add_register(register, term)
    }

    /// The same for a term that is compared where it lies.
    pub(super) fn add_key(&mut self, program: &mut Program, term: &Term) -> usize {
        let field = self.add_field(program, term);
        if self.fields[field].2 == Storage::Coded {
            self.fields[field].2 = Storage::Whole;
        }
        field
    }

    fn add_register(&mut self, register: Register, term: &Term) -> usize {
        let storage = term.storage();
        if let Some(field) = self.registers.iter().position(|known| *known == register) {
            let (_, is_nullable, known) = &mut self.fields[field];
            *is_nullable |= term.is_nullable;
            if *known != storage {
                *known = Storage::Whole;
            }
            return field;
        }
        self.fields.push((term.lane, term.is_nullable, storage));
        self.registers.push(register);
        self.fields.len() - 1
    }

    /// How tuples lie, with all values as in registers, and the registers that their fields are stored from.
    pub(super) fn finish(self) -> (Arc<Layout>, Vec<Register>) {
        let fields: Vec<(Lane, bool)> =
            self.fields.iter().map(|(lane, is_nullable, _)| (*lane, *is_nullable)).collect();
        (Arc::new(Layout::new(&fields)), self.registers)
    }

    /// The same, with values as narrow as is known of them.
    pub(super) fn finish_compact(self) -> (Arc<Layout>, Vec<Register>) {
        (Arc::new(Layout::compact(&self.fields)), self.registers)
    }
}

impl StoredTerm {
    /// The term, loaded from the tuples at the addresses in `tuples`.
    pub(super) fn load(
        &self,
        program: &mut Program,
        tuples: Register,
        layout: &Arc<Layout>,
    ) -> Term {
        let Some(field) = self.field else { return self.term.clone() };
        let out = program.register(self.term.lane);
        program.steps.push(Step::Load { tuples, layout: layout.clone(), field, out });
        self.term.moved(out)
    }
}
