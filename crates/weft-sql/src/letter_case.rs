//! Names of columns whatever the case of their letters: a name without quotes that is no column's means the one that differs
//! from it in nothing else.
//!
//! DataFusion compares names exactly, those without quotes in lower case. Where it finds no column of a name it tells which
//! there are; the name is then written as the column has it, and the statement planned again. So a column with exactly the
//! name goes first, and what several columns might be is an error.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, SchemaError, Span};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, Statement, VisitMut, VisitorMut};

use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::statement::inner_statement;

/// Writes the name that an error is about as the column has it that is meant; false if there is none.
///
/// # Errors
/// [`ErrorKind::Semantic`] if several columns might be meant.
pub(crate) fn adopt(statement: &mut DfStatement, error: &DataFusionError) -> Result<bool> {
    let Some(missing) = Missing::of(error, None) else { return Ok(false) };
    let Some(statement) = inner_statement(statement) else { return Ok(false) };
    let names = missing.meant();
    let mut names_left = names.iter();
    let (Some(name), None) = (names_left.next(), names_left.next()) else {
        return match names.len() {
            0 => Ok(false),
            _ => Err(ambiguous(&missing.column.name, &names)),
        };
    };
    // Elsewhere, the name may be that of another column.
    let place = missing.place.filter(|_| !has_one_select(statement));
    let mut writer = Writer { column: &missing.column.name, name, place, any: false };
    visit(statement, &mut writer);
    if !writer.any && place.is_some() {
        writer.place = None;
        visit(statement, &mut writer);
    }
    Ok(writer.any)
}

fn ambiguous(name: &str, names: &BTreeSet<&str>) -> SqlError {
    let known: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let message = format!("column {name} is ambiguous: there are {}", known.join(" and "));
    SqlError::new(ErrorKind::Semantic, message)
        .about(name)
        .with_hint(format!("write the one that is meant in double quotes: {}", known[0]))
}

/// A column that was not found.
struct Missing<'a> {
    column: &'a Column,
    known: &'a [Column],
    place: Option<Span>,
}

impl<'a> Missing<'a> {
    fn of(error: &'a DataFusionError, place: Option<Span>) -> Option<Missing<'a>> {
        match error {
            DataFusionError::Diagnostic(diagnostic, inner) => {
                Missing::of(inner, diagnostic.span.or(place))
            }
            DataFusionError::Context(_, inner) => Missing::of(inner, place),
            DataFusionError::Shared(inner) => Missing::of(inner, place),
            DataFusionError::Collection(errors) => Missing::of(errors.first()?, place),
            DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
                SchemaError::FieldNotFound { field, valid_fields } => {
                    Some(Missing { column: field, known: valid_fields, place })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The names that differ from the missing one in the case of their letters only.
    fn meant(&self) -> BTreeSet<&'a str> {
        let name = self.column.name.to_lowercase();
        let is_of_table = |known: &&Column| match (&self.column.relation, &known.relation) {
            (Some(wanted), Some(found)) => wanted.table() == found.table(),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let of_table = self.known.iter().filter(is_of_table);
        let is_it = |known: &&str| known.to_lowercase() == name && **known != self.column.name;
        of_table.map(|known| known.name.as_str()).filter(is_it).collect()
    }
}

fn visit<V: VisitorMut<Break = ()>>(statement: &mut Statement, visitor: &mut V) -> bool {
    statement.visit(visitor).is_break()
}

fn has_one_select(statement: &mut Statement) -> bool {
    let mut counter = Selects { count: 0 };
    visit(statement, &mut counter);
    counter.count <= 1
}

struct Selects {
    count: usize,
}

impl VisitorMut for Selects {
    type Break = ();

    fn pre_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.count += 1;
        ControlFlow::Continue(())
    }
}

/// Writes names as a column has them.
struct Writer<'a> {
    /// As DataFusion has it: in lower case.
    column: &'a str,
    name: &'a str,
    /// Where the name stands, if not everywhere.
    place: Option<Span>,
    any: bool,
}

impl Writer<'_> {
    fn is_column(&self, ident: &Ident) -> bool {
        ident.quote_style.is_none() && ident.value.to_ascii_lowercase() == self.column
    }

    fn is_here(&self, parts: &[Ident]) -> bool {
        let Some(place) = self.place else { return true };
        let is_start = |part: &Ident| {
            part.span.start.line == place.start.line && part.span.start.column == place.start.column
        };
        parts.iter().any(is_start)
    }

    fn write(&mut self, ident: &mut Ident) {
        *ident = Ident::with_quote_and_span('"', ident.span, self.name);
        self.any = true;
    }
}

impl VisitorMut for Writer<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident)
                if self.is_column(ident) && self.is_here(std::slice::from_ref(ident)) =>
            {
                self.write(ident);
            }
            Expr::CompoundIdentifier(parts) if self.is_here(parts) => {
                // Behind the table, or in front of a field.
                let place = (1..parts.len()).chain([0]).find(|at| self.is_column(&parts[*at]));
                if let Some(at) = place {
                    self.write(&mut parts[at]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
