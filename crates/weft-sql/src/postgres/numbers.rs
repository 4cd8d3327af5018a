//! The numbers (OIDs) of tables, views, indexes, constraints, schemas and roles, by which the tables of the catalog refer to
//! each other.
//!
//! A table's number follows from its identity in the store, so it is the same for as long as the table is there. The others
//! have no identity but their names; their numbers follow from these, and the next free number is taken where two would
//! have one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use weft_store::{IndexDefinition, Snapshot, Table};

use crate::access::PREDEFINED;
use crate::access::roles::{Standing, standing};
use crate::catalog::SCHEMA;
use crate::definitions::{self, Kind};
use crate::enums::{self, EnumType};
use crate::information_schema::INFORMATION_SCHEMA;
use crate::postgres::PG_CATALOG;
use crate::postgres::defined::DEFINED;
use crate::schemas::parts;

/// The role that owns what no other role has made: a superuser.
pub const OWNER: &str = "weft";

/// The number of [`OWNER`].
pub(crate) const OWNER_OID: i64 = 10;

/// The number of the database.
pub(crate) const DATABASE_OID: i64 = 16_383;

/// What names of roles have in front in the options of the store, where their passwords are kept.
pub(crate) const ROLE_OPTION: &str = "role.";

/// The number of the first table.
const TABLES_FROM: i64 = 16_384;

/// The first of the numbers of views; their names decide about the others.
const VIEWS_FROM: i64 = 1 << 30;

/// The first of the numbers of roles.
const ROLES_FROM: i64 = (1 << 30) + (1 << 29);

/// The first of the numbers of schemas that were made.
const SCHEMAS_FROM: i64 = 1 << 31;

/// The first of the numbers of indexes.
const INDEXES_FROM: i64 = (1 << 31) + (1 << 29);

/// The first of the numbers of constraints.
const CONSTRAINTS_FROM: i64 = (1 << 31) + (1 << 30);

/// The first of the numbers of macros.
const MACROS_FROM: i64 = (1 << 31) + (1 << 30) + (1 << 29);

/// The first of the numbers of types that were made. Only the catalog's own types have numbers beside them.
const TYPES_FROM: i64 = VIEWS_FROM;

/// How many numbers views have among them, macros, roles, schemas, indexes and constraints.
const NUMBERS_OF_NAMES: i64 = 1 << 29;

/// The number of the first table of the catalog itself that has not PostgreSQL's.
const SYSTEM_FROM: i64 = 11_000;

/// The number of the schema of the catalog.
pub(crate) const PG_CATALOG_OID: i64 = 11;

/// The schemas with their numbers.
pub(crate) fn schemas(snapshot: &Snapshot) -> Vec<(String, i64)> {
    let own = [(PG_CATALOG, PG_CATALOG_OID), (SCHEMA, 2200), (INFORMATION_SCHEMA, 13_000)];
    let own = own.into_iter().map(|(name, oid)| (name.to_owned(), oid));
    let made: Vec<&str> = definitions::names(snapshot, Kind::Schema).collect();
    let oids = of_names(made.iter().copied(), SCHEMAS_FROM);
    own.chain(made.into_iter().map(str::to_owned).zip(oids)).collect()
}

/// The types that were made, with their numbers.
pub(crate) fn enums(snapshot: &Snapshot) -> Vec<(i64, Arc<EnumType>)> {
    let names: Vec<&str> = definitions::names(snapshot, Kind::Type).collect();
    let oids = of_names(names.iter().copied(), TYPES_FROM);
    let types = oids.into_iter().zip(names);
    types.filter_map(|(oid, name)| Some((oid, enums::find(snapshot, name)?))).collect()
}

/// The number of the access method of tables.
pub(crate) const HEAP_OID: i64 = 2;

/// The number of the access method of indexes.
pub(crate) const BTREE_OID: i64 = 403;

/// A table, a view or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) oid: i64,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// The name by which the store has it; that of its table for an index, and empty for the catalog's own tables.
    pub(crate) stored: String,
    pub(crate) kind: RelationKind,
}

/// What a relation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RelationKind {
    /// A table, also one of the catalog itself.
    Table,
    /// A view, with its query.
    View(String),
    /// An index of the table of a number.
    Index(i64, IndexDefinition),
}

impl Numbered {
    /// True of a table.
    pub(crate) fn is_table(&self) -> bool {
        self.kind == RelationKind::Table
    }

    /// The query of a view.
    pub(crate) fn view(&self) -> Option<&str> {
        match &self.kind {
            RelationKind::View(sql) => Some(sql),
            _ => None,
        }
    }

    /// The table's number and the definition of an index.
    pub(crate) fn index(&self) -> Option<(i64, &IndexDefinition)> {
        match &self.kind {
            RelationKind::Index(table, definition) => Some((*table, definition)),
            _ => None,
        }
    }
}

/// All tables, views and indexes of a snapshot, and the tables of the catalog itself.
pub(crate) fn relations(snapshot: &Snapshot) -> Vec<Numbered> {
    let mut found: Vec<Numbered> = definitions::lasting_tables(snapshot)
        .filter_map(|name| {
            let oid = table_oid(snapshot.table(name)?.number());
            Some(placed(snapshot, oid, name, RelationKind::Table))
        })
        .collect();
    let views: BTreeMap<&str, &str> = definitions::lasting_views(snapshot).collect();
    let oids = of_names(views.keys().copied(), VIEWS_FROM);
    found.extend(
        views.into_iter().zip(oids).map(|((name, sql), oid)| {
            placed(snapshot, oid, name, RelationKind::View(sql.to_owned()))
        }),
    );
    found.extend(DEFINED.iter().enumerate().map(|(number, defined)| Numbered {
        oid: system_oid(number),
        schema: PG_CATALOG.to_owned(),
        name: defined.name.to_owned(),
        stored: String::new(),
        kind: RelationKind::Table,
    }));
    found.extend(indexes(snapshot));
    found
}

/// A table or view by the name by which the store has it.
fn placed(snapshot: &Snapshot, oid: i64, stored: &str, kind: RelationKind) -> Numbered {
    let (schema, name) = parts(snapshot, stored);
    let (schema, name) = (schema.to_owned(), name.to_owned());
    Numbered { oid, schema, name, stored: stored.to_owned(), kind }
}

/// The indexes of all tables; each is in the schema of its table.
fn indexes(snapshot: &Snapshot) -> Vec<Numbered> {
    let mut named = BTreeMap::new();
    for table in definitions::lasting_tables(snapshot).filter_map(|name| snapshot.table(name)) {
        for index in table.indexes() {
            named.insert(index.name.clone(), (Arc::clone(&table), index.clone()));
        }
    }
    let oids = of_names(named.keys().map(String::as_str), INDEXES_FROM);
    let index = |((table, definition), oid): ((Arc<Table>, IndexDefinition), i64)| {
        let stored = table.schema().name.clone();
        let schema = parts(snapshot, &stored).0.to_owned();
        let name = match parts(snapshot, &definition.name) {
            (of, name) if of == schema => name.to_owned(),
            _ => definition.name.clone(),
        };
        let kind = RelationKind::Index(table_oid(table.number()), definition);
        Numbered { oid, schema, name, stored, kind }
    };
    named.into_values().zip(oids).map(index).collect()
}

/// Numbers for the constraints of these names, which are unique in the database and come in order.
pub(crate) fn constraint_oids<'a>(names: impl Iterator<Item = &'a str>) -> Vec<i64> {
    of_names(names, CONSTRAINTS_FROM)
}

/// Numbers for the macros of these names, which come in order.
pub(crate) fn macro_oids<'a>(names: impl Iterator<Item = &'a str>) -> Vec<i64> {
    of_names(names, MACROS_FROM)
}

/// The number of a table of the catalog itself, which is there.
pub(crate) fn catalog_oid(name: &str) -> i64 {
    DEFINED.iter().position(|defined| defined.name == name).map_or(0, system_oid)
}

/// The number of a table by its identity in the store.
pub(crate) fn table_oid(id: u64) -> i64 {
    // Numbers have 31 bits below those of views; a database does not live to make as many tables.
    TABLES_FROM + i64::try_from(id).unwrap_or(i64::MAX).rem_euclid(VIEWS_FROM - TABLES_FROM)
}

/// The number of a table of the catalog itself: PostgreSQL's where clients know it.
fn system_oid(number: usize) -> i64 {
    match DEFINED[number].name {
        "pg_type" => 1247,
        "pg_attribute" => 1249,
        "pg_proc" => 1255,
        "pg_class" => 1259,
        "pg_database" => 1262,
        "pg_constraint" => 2606,
        "pg_namespace" => 2615,
        _ => SYSTEM_FROM + i64::try_from(number).unwrap_or_default(),
    }
}

/// True of a role that may do everything.
pub(crate) fn is_superuser(snapshot: &Snapshot, name: &str) -> bool {
    standing(snapshot, name) == Standing::Superuser
}

/// The roles with their numbers, the predefined roles among them.
pub(crate) fn roles(snapshot: &Snapshot) -> Vec<(i64, String)> {
    let names: BTreeMap<&str, &str> = snapshot
        .options()
        .filter_map(|(name, value)| Some((name.strip_prefix(ROLE_OPTION)?, value)))
        .filter(|(name, _)| *name != OWNER)
        .collect();
    let oids = of_names(names.keys().copied(), ROLES_FROM);
    let others = oids.into_iter().zip(names.keys().map(|name| (*name).to_owned()));
    let predefined = PREDEFINED.iter().map(|(name, oid)| (*oid, (*name).to_owned()));
    std::iter::once((OWNER_OID, OWNER.to_owned())).chain(others).chain(predefined).collect()
}

/// Numbers for names, which come in order.
fn of_names<'a>(names: impl Iterator<Item = &'a str>, from: i64) -> Vec<i64> {
    let mut taken = HashSet::new();
    names
        .map(|name| {
            let mut oid = from + i64::from(hash(name)) % NUMBERS_OF_NAMES;
            while !taken.insert(oid) {
                oid = from + (oid - from + 1) % NUMBERS_OF_NAMES;
            }
            oid
        })
        .collect()
}

/// FNV-1a: the numbers are to be the same in each process.
fn hash(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_of_their_own() {
        let names: Vec<String> = (0..10_000).map(|number| format!("v{number:05}")).collect();
        let oids: Vec<i64> = of_names(names.iter().map(String::as_str), VIEWS_FROM);
        let distinct: HashSet<_> = oids.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(oids.iter().all(|oid| (VIEWS_FROM..ROLES_FROM).contains(oid)));
    }
}
