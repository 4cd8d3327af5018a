//! The numbers (OIDs) of tables, views, schemas and roles, by which the tables of the catalog refer to each other.
//!
//! A table's number follows from its identity in the store, so it is the same for as long as the table is there. Views and
//! roles have no identity but their names; theirs follow from these, and the next free number is taken where two would
//! have one.

use std::collections::{BTreeMap, HashSet};

use weft_store::Snapshot;

use crate::catalog::SCHEMA;
use crate::definitions::{self, Kind};
use crate::information_schema::INFORMATION_SCHEMA;
use crate::postgres::PG_CATALOG;
use crate::postgres::defined::DEFINED;
use crate::schemas::parts;

/// The role that owns everything.
pub(crate) const OWNER: &str = "weft";

/// The number of [`OWNER`].
pub(crate) const OWNER_OID: i64 = 10;

/// The number of the database.
pub(crate) const DATABASE_OID: i64 = 16_383;

/// What names of roles have in front in the options of the store, where their passwords are kept.
pub(crate) const ROLE_OPTION: &str = "role.";

/// What is in front of what is kept of the password of a role that may do everything.
pub const ROLE_SUPERUSER: &str = "superuser ";

/// The number of the first table.
const TABLES_FROM: i64 = 16_384;

/// The first of the numbers of views; their names decide about the others.
const VIEWS_FROM: i64 = 1 << 30;

/// The first of the numbers of roles.
const ROLES_FROM: i64 = (1 << 30) + (1 << 29);

/// The first of the numbers of schemas that were made.
const SCHEMAS_FROM: i64 = 1 << 31;

/// How many numbers views have among them, roles and schemas.
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

/// The number of the access method of tables.
pub(crate) const HEAP_OID: i64 = 2;

/// A table or view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) oid: i64,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// The name by which the store has it; empty for the catalog's own tables.
    pub(crate) stored: String,
    /// The query of a view.
    pub(crate) view: Option<String>,
}

/// All tables and views of a snapshot, and the tables of the catalog itself.
pub(crate) fn relations(snapshot: &Snapshot) -> Vec<Numbered> {
    let mut found: Vec<Numbered> = snapshot
        .tables()
        .filter_map(|name| {
            let oid = table_oid(snapshot.table(name)?.id());
            Some(placed(snapshot, oid, name, None))
        })
        .collect();
    let views: BTreeMap<&str, &str> = definitions::views(snapshot).collect();
    let oids = of_names(views.keys().copied(), VIEWS_FROM);
    found.extend(
        views
            .into_iter()
            .zip(oids)
            .map(|((name, sql), oid)| placed(snapshot, oid, name, Some(sql))),
    );
    found.extend(DEFINED.iter().enumerate().map(|(number, defined)| Numbered {
        oid: system_oid(number),
        schema: PG_CATALOG.to_owned(),
        name: defined.name.to_owned(),
        stored: String::new(),
        view: None,
    }));
    found
}

/// A table or view by the name by which the store has it.
fn placed(snapshot: &Snapshot, oid: i64, stored: &str, view: Option<&str>) -> Numbered {
    let (schema, name) = parts(snapshot, stored);
    Numbered {
        oid,
        schema: schema.to_owned(),
        name: name.to_owned(),
        stored: stored.to_owned(),
        view: view.map(str::to_owned),
    }
}

/// The number of a table by its identity in the store.
fn table_oid(id: u64) -> i64 {
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
    let kept = snapshot.option(&format!("{ROLE_OPTION}{name}"));
    name == OWNER || kept.is_some_and(|kept| kept.starts_with(ROLE_SUPERUSER))
}

/// The roles with their numbers.
pub(crate) fn roles(snapshot: &Snapshot) -> Vec<(i64, String)> {
    let names: BTreeMap<&str, &str> = snapshot
        .options()
        .filter_map(|(name, value)| Some((name.strip_prefix(ROLE_OPTION)?, value)))
        .filter(|(name, _)| *name != OWNER)
        .collect();
    let oids = of_names(names.keys().copied(), ROLES_FROM);
    let others = oids.into_iter().zip(names.keys().map(|name| (*name).to_owned()));
    std::iter::once((OWNER_OID, OWNER.to_owned())).chain(others).collect()
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
