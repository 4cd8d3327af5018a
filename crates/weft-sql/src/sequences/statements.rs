//! CREATE SEQUENCE, ALTER SEQUENCE and DROP SEQUENCE, and the sequences that defaults of columns need.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Visit, Visitor,
};
use datafusion::sql::sqlparser::parser::Parser;
use weft_store::{Alteration, Change, Snapshot, TableSchema};

use crate::access::acl;
use crate::catalog::{StatementCatalog, relation_name};
use crate::ddl::Dependents;
use crate::definitions::{Kind, stored_name};
use crate::error::{ErrorKind, Result, SqlError};
use crate::run::{Run, Started};
use crate::schemas::check_place;
use crate::sequences::syntax::{AlterSequence, CreateSequence, Options, Restart};
use crate::sequences::{Owner, Sequence, name_in, option_of, unknown};
use crate::text::DIALECT;

impl Sequence {
    /// The sequence that options describe, of a name that says what errors are about.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] for bounds between which there are no values, and a start outside of them.
    pub(crate) fn of(name: &str, options: &Options, owner: Owner) -> Result<Sequence> {
        let refuse = |problem: String| {
            Err(SqlError::new(ErrorKind::Semantic, format!("sequence {name}: {problem}")))
        };
        let increment = options.increment.unwrap_or(1);
        if increment == 0 {
            return refuse("INCREMENT must not be 0".to_owned());
        }
        let (least, most) = options.bounds.unwrap_or((i64::MIN, i64::MAX));
        let (first, last) = if increment > 0 { (1, most) } else { (least, -1) };
        let (min, max) = (options.min.unwrap_or(first), options.max.unwrap_or(last));
        if min < least || max > most {
            return refuse(format!("its type has values from {least} to {most}"));
        }
        let start = options.start.unwrap_or(if increment > 0 { min } else { max });
        let cycles = options.cycles.unwrap_or(false);
        // A number that does not depend on what other transactions, which may be rolled back, have made.
        let id = RandomState::new().hash_one(name);
        Sequence { id, start, increment, min, max, cycles, owner }.checked(name)
    }

    /// The sequence, altered as options say. What they do not say stays.
    ///
    /// # Errors
    /// As [`Sequence::of`].
    fn altered(&self, name: &str, options: &Options) -> Result<Sequence> {
        let increment = options.increment.unwrap_or(self.increment);
        let (first, last) = if increment > 0 { (1, i64::MAX) } else { (i64::MIN, -1) };
        let altered = Sequence {
            increment,
            min: options.min.unwrap_or(if options.no_min { first } else { self.min }),
            max: options.max.unwrap_or(if options.no_max { last } else { self.max }),
            start: options.start.unwrap_or(self.start),
            cycles: options.cycles.unwrap_or(self.cycles),
            ..self.clone()
        };
        altered.checked(name)
    }

    /// # Errors
    /// [`ErrorKind::Semantic`] for what no sequence can have.
    fn checked(self, name: &str) -> Result<Sequence> {
        let refuse = |problem: String| {
            Err(SqlError::new(ErrorKind::Semantic, format!("sequence {name}: {problem}")))
        };
        let Sequence { start, increment, min, max, .. } = self;
        if increment == 0 {
            return refuse("INCREMENT must not be 0".to_owned());
        }
        if min >= max {
            return refuse(format!("MINVALUE {min} must be less than MAXVALUE {max}"));
        }
        if !(min..=max).contains(&start) {
            return refuse(format!(
                "START {start} is not between MINVALUE {min} and MAXVALUE {max}"
            ));
        }
        Ok(self)
    }

    /// The change that makes it.
    pub(crate) fn create(&self, name: &str, or_replace: bool) -> Change {
        let name = stored_name(Kind::Sequence, name);
        Change::CreateView { name, sql: self.text(), or_replace }
    }

    /// The changes that drop it.
    pub(crate) fn drop(&self, name: &str) -> [Change; 2] {
        let option = option_of(self.id);
        [
            Change::DropView { name: stored_name(Kind::Sequence, name) },
            Change::SetOption { name: option, value: None },
        ]
    }
}

/// The names of the sequences that the default of a column takes values of.
pub(crate) fn sequences_of(default: &str) -> HashSet<String> {
    let mut names = Names::default();
    let parsed = Parser::new(&DIALECT).try_with_sql(default).and_then(|mut text| text.parse_expr());
    if let Ok(expr) = parsed {
        // The visitor never breaks.
        let _ = expr.visit(&mut names);
    }
    names.found
}

#[derive(Default)]
struct Names {
    found: HashSet<String>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && function.name.to_string().eq_ignore_ascii_case("nextval")
            && let FunctionArguments::List(list) = &function.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] =
                &list.args[..]
            && let Some(text) = value.value.clone().into_string()
        {
            self.found.extend(name_in(&text));
        }
        ControlFlow::Continue(())
    }
}

/// Checks that the sequences exist of which defaults take values, except for sequences that are made with the table.
///
/// # Errors
/// [`ErrorKind::Semantic`] for the first one that is unknown.
pub(crate) fn check_defaults(
    snapshot: &Snapshot,
    schema: &TableSchema,
    made: &[String],
) -> Result<()> {
    for default in schema.columns.iter().filter_map(|column| column.default.as_deref()) {
        for name in sequences_of(default) {
            if !made.contains(&name) && Sequence::find(snapshot, &name)?.is_none() {
                return Err(unknown(snapshot, &name));
            }
        }
    }
    Ok(())
}

impl Run {
    /// CREATE SEQUENCE.
    pub(crate) fn create_sequence(
        &self,
        catalog: &StatementCatalog,
        create: &CreateSequence,
    ) -> Result<Started> {
        let tag = "CREATE SEQUENCE";
        let name = relation_name(&create.name)?;
        let snapshot = catalog.snapshot();
        catalog.check_own(&name)?;
        check_place(snapshot, &create.name, &name)?;
        let made = Sequence::of(&name, &create.options, Owner::None)?;
        let mut changes = Vec::new();
        let old = Sequence::find(snapshot, &name)?;
        if old.is_some() && create.if_not_exists {
            return Ok(self.change(tag, changes));
        }
        catalog.access().check_create(snapshot, &name)?;
        if let Some(old) = old {
            if !create.or_replace {
                let message = format!("sequence {name} exists already");
                return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                    .with_hint("write CREATE SEQUENCE IF NOT EXISTS"));
            }
            catalog.access().check_sequence(snapshot, &name)?;
            changes.push(Change::SetOption { name: option_of(old.id), value: None });
        } else {
            changes.extend(catalog.access().made(snapshot, Kind::SequenceAccess, &name));
        }
        changes.push(made.create(&name, create.or_replace));
        Ok(self.change(tag, changes))
    }

    /// ALTER SEQUENCE.
    pub(crate) fn alter_sequence(
        &self,
        catalog: &StatementCatalog,
        alter: &AlterSequence,
    ) -> Result<Started> {
        let tag = "ALTER SEQUENCE";
        let name = relation_name(&alter.name)?;
        let snapshot = catalog.snapshot();
        let Some(old) = Sequence::find(snapshot, &name)? else {
            return match alter.if_exists {
                true => Ok(self.change(tag, Vec::new())),
                false => Err(unknown(snapshot, &name)),
            };
        };
        let altered = old.altered(&name, &alter.options)?;
        let restart = alter.restart.map(|restart| match restart {
            Restart::AtStart => altered.start,
            Restart::At(value) => value,
        });
        self.move_sequence(snapshot, (&name, &alter.name.to_string()), (&old, &altered), restart)?;
        let changes = if altered == old { Vec::new() } else { vec![altered.create(&name, true)] };
        Ok(self.change(tag, changes))
    }

    /// DROP SEQUENCE.
    pub(crate) fn drop_sequences(
        &self,
        catalog: &StatementCatalog,
        names: &[ObjectName],
        if_exists: bool,
        dependents: Dependents,
    ) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let mut changes = Vec::new();
        let mut dropped = HashSet::new();
        for name in names {
            let name = relation_name(name)?;
            let Some(sequence) = Sequence::find(snapshot, &name)? else {
                if if_exists {
                    continue;
                }
                return Err(unknown(snapshot, &name));
            };
            catalog.access().check_sequence(snapshot, &name)?;
            if dropped.insert(name.clone()) {
                changes.extend(sequence.drop(&name));
                changes.extend(acl::dropped(snapshot, Kind::SequenceAccess, &name));
            }
        }
        changes.extend(without_defaults(snapshot, &dropped, dependents == Dependents::Drop)?);
        Ok(self.change("DROP SEQUENCE", changes))
    }
}

/// The changes that take the defaults away which need sequences.
///
/// # Errors
/// [`ErrorKind::Semantic`] if there are any, without CASCADE.
fn without_defaults(
    snapshot: &Snapshot,
    dropped: &HashSet<String>,
    is_cascading: bool,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for table in snapshot.tables().filter_map(|name| snapshot.table(name)) {
        let mut columns = table.schema().clone();
        let mut is_changed = false;
        for column in &mut columns.columns {
            let needed = sequences_of(column.default.as_deref().unwrap_or_default());
            let Some(name) = needed.intersection(dropped).next() else { continue };
            if !is_cascading {
                let (table, column) = (&table.schema().name, &column.name);
                let message = format!(
                    "sequence {name} is needed by the default of column {column} of table {table}"
                );
                return Err(SqlError::new(ErrorKind::Semantic, message).about(name).with_hint(
                    format!(
                        "write ALTER TABLE {table} ALTER {column} DROP DEFAULT first, or CASCADE"
                    ),
                ));
            }
            column.default = None;
            is_changed = true;
        }
        if is_changed {
            let origins = (0..columns.columns.len()).map(Some).collect();
            let table_name = columns.name.clone();
            let alteration = Alteration { columns, origins, seen: None, rows: None };
            let expected = Some(table.id());
            changes.push(Change::AlterTable { table: table_name, expected, alteration });
        }
    }
    Ok(changes)
}
