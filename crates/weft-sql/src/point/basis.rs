//! What kept plans follow from beside their statements, and the keys that values of parameters are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::Field;
use weft_store::{Check, IndexDefinition, Snapshot, Table, TableSchema};

use super::key::{KeyPart, is_of, key_part};
use super::shape::Operand;
use crate::access::{Need, Rights};
use crate::assign::marked_schema;
use crate::session::Session;
use crate::value::Value;

/// A generation of the database that there is not.
const NO_GENERATION: u64 = u64::MAX;

/// All that a plan follows from, beside the statement.
#[derive(Debug)]
pub(super) struct Basis {
    /// The session's settings, functions and relations, by the number of their changes.
    session: u64,
    /// The store's name of the table.
    table: String,
    schema: TableSchema,
    /// The index by which the row is found, if one is.
    index: Option<IndexDefinition>,
    /// All unique indexes, where they tell what becomes of a row.
    unique: Option<Vec<IndexDefinition>>,
    /// The conditions that rows have to satisfy, of a change.
    checks: Option<Vec<Check>>,
    /// A hash of views, macros, sequences and schemas.
    definitions: u64,
    /// The rights that the statement needs on the table. The role follows from the session's state.
    rights: Rights,
    /// The last generation of the database in which all of it was found unchanged.
    known: AtomicU64,
}

impl Basis {
    /// What a query or change of a table, which needs these rights, is planned on.
    pub(super) fn new(
        session: u64,
        snapshot: &Snapshot,
        table: &Table,
        index: Option<IndexDefinition>,
        rights: Rights,
    ) -> Basis {
        let is_change = rights != Rights::SELECT;
        Basis {
            session,
            table: table.schema().name.clone(),
            schema: table.schema().clone(),
            index,
            unique: None,
            checks: is_change.then(|| table.constraints().checks.clone()),
            definitions: definitions(snapshot),
            rights,
            known: AtomicU64::new(NO_GENERATION),
        }
    }

    /// The same of a change that looks at all unique indexes of the table.
    pub(super) fn with_unique(self, table: &Table) -> Basis {
        let unique = table.indexes().filter(|index| index.is_unique).cloned().collect();
        Basis { unique: Some(unique), ..self }
    }

    /// The store's name of the table.
    pub(super) fn table_name(&self) -> &str {
        &self.table
    }

    /// The name of the index by which the row is found.
    pub(super) fn index(&self) -> Option<&str> {
        self.index.as_ref().map(|index| index.name.as_str())
    }

    /// Whether a temporary table or view in this schema hides the table.
    pub(super) fn is_hidden(&self, snapshot: &Snapshot, schema: &str) -> bool {
        let hiding = format!("{schema}.{}", self.table);
        snapshot.table(&hiding).is_some() || snapshot.view(&hiding).is_some()
    }

    /// The table in a snapshot, if the plan is right there for a session as it is now, and the session's role has the rights.
    /// `is_committed` tells whether the snapshot is one that a commit left, with a generation of its own.
    pub(super) fn table(
        &self,
        snapshot: &Snapshot,
        is_committed: bool,
        session: &Session,
    ) -> Option<Arc<Table>> {
        if session.version() != self.session {
            return None;
        }
        let table = snapshot.table(&self.table)?;
        let generation = snapshot.generation();
        if is_committed && generation == self.known.load(Ordering::Relaxed) {
            return Some(table);
        }
        let holds = *table.schema() == self.schema
            && self.index.as_ref().is_none_or(|of| table.indexes().any(|index| index == of))
            && self.unique.as_ref().is_none_or(|unique| {
                table.indexes().filter(|index| index.is_unique).eq(unique.iter())
            })
            && self.checks.as_ref().is_none_or(|checks| table.constraints().checks == *checks)
            && definitions(snapshot) == self.definitions
            && session
                .access(snapshot)
                .check(snapshot, &self.table, Need::Rights(self.rights))
                .is_ok();
        if holds && is_committed {
            self.known.store(generation, Ordering::Relaxed);
        }
        holds.then_some(table)
    }
}

/// What the columns of an index are equal to, in their order, and these columns.
#[derive(Debug)]
pub(super) struct KeyColumns(Vec<(Operand, Field)>);

/// What the values of the parameters are as a key.
#[derive(Debug)]
pub(super) enum Key {
    Bytes(Vec<u8>),
    /// No row has the key.
    NoRow,
}

impl KeyColumns {
    /// The unique index whose columns are those of the conditions, and what each of them is equal to.
    pub(super) fn of(
        table: &Table,
        conditions: &[(String, Operand)],
    ) -> Option<(IndexDefinition, KeyColumns)> {
        let schema = marked_schema(table.schema());
        table.indexes().filter(|index| index.is_unique).find_map(|index| {
            if index.columns.len() != conditions.len() {
                return None;
            }
            let key = index.columns.iter().map(|of| {
                let field = schema.field(of.column);
                let mut conditions = conditions.iter();
                let (_, operand) = conditions.find(|(column, _)| column == field.name())?;
                Some((operand.clone(), field.clone()))
            });
            Some((index.clone(), KeyColumns(key.collect::<Option<_>>()?)))
        })
    }

    /// The key of this index that the values of the parameters are, each of the type that is named for it, if one is; `None` if the
    /// values need a planner.
    pub(super) fn key(
        &self,
        table: &Table,
        index: &str,
        values: &[Value],
        types: &[Option<String>],
    ) -> Option<Key> {
        let mut parts = Vec::with_capacity(self.0.len());
        let mut is_equal_to_none = false;
        for (operand, field) in &self.0 {
            let value = match operand {
                Operand::Constant(value) => value,
                Operand::Parameter(number) => {
                    let value = values.get(*number)?;
                    let type_name = types.get(*number).and_then(Option::as_deref);
                    if type_name.is_some_and(|name| !is_of(value, name)) {
                        return None;
                    }
                    value
                }
            };
            match key_part(value, field)? {
                KeyPart::Value(array) => parts.push(array),
                KeyPart::EqualToNone => is_equal_to_none = true,
            }
        }
        if is_equal_to_none {
            return Some(Key::NoRow);
        }
        table.key_prefix(index, &parts).ok().map(Key::Bytes)
    }
}

/// A hash of all that is defined beside tables.
fn definitions(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    snapshot.views().for_each(|definition| definition.hash(&mut hasher));
    hasher.finish()
}
