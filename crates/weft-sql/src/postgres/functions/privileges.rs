//! Functions that tell what roles may do.

use datafusion::common::ScalarValue;
use weft_store::Snapshot;

use crate::access::{Access, Acl, Rights};
use crate::catalog::SCHEMA;
use crate::definitions::Kind;
use crate::error::{ErrorKind, Result, SqlError};
use crate::postgres::functions::names::{relation_named, relation_numbered};
use crate::postgres::functions::{Arguments, Definition, Surroundings, define, truth, truth_type};
use crate::postgres::numbers::{roles, schemas};

/// What follows a right that may be given on.
const WITH_GRANT_OPTION: &str = " WITH GRANT OPTION";

pub(crate) fn functions() -> Vec<Definition> {
    vec![
        define("has_table_privilege", (2, 3), truth_type, |around, arguments| {
            of_relation(around, arguments, arguments.count() - 2)
        }),
        define("has_any_column_privilege", (2, 3), truth_type, |around, arguments| {
            of_relation(around, arguments, arguments.count() - 2)
        }),
        // All columns of a table have its rights.
        define("has_column_privilege", (3, 4), truth_type, |around, arguments| {
            of_relation(around, arguments, arguments.count() - 3)
        }),
        define("has_schema_privilege", (2, 3), truth_type, of_schema),
        define("pg_has_role", (2, 3), truth_type, of_role),
    ]
}

/// What the role may do that the first argument names, if `is_named`; else the session's.
fn asked(
    around: &Surroundings,
    snapshot: &Snapshot,
    arguments: &Arguments<'_>,
    is_named: bool,
) -> Result<Option<Access>> {
    if !is_named {
        return Ok(Some(around.access(snapshot)));
    }
    let Some(text) = arguments.text(0) else { return Ok(None) };
    let number = arguments.number(0);
    let found = roles(snapshot)
        .into_iter()
        .find(|(oid, name)| *name == text || !arguments.is_text(0) && Some(*oid) == number);
    match found {
        Some((_, name)) => Ok(Some(Access::of(snapshot, &name))),
        // The user of a server without roles may do everything.
        None if around.acting.is_none() && text == around.connected.get().user() => {
            Ok(Some(Access::default()))
        }
        None => Err(SqlError::new(ErrorKind::Semantic, format!("role {text} does not exist"))),
    }
}

/// Rights on a table or view, which the argument of this number names or numbers.
fn of_relation(around: &Surroundings, arguments: &Arguments<'_>, at: usize) -> Result<ScalarValue> {
    let snapshot = around.snapshot()?;
    let Some(access) = asked(around, &snapshot, arguments, at > 0)? else { return truth(None) };
    let Some(words) = arguments.text(arguments.count() - 1) else { return truth(None) };
    let found = match arguments.is_text(at) {
        true => {
            let Some(name) = arguments.text(at) else { return truth(None) };
            let oid = relation_named(around, &name).ok_or_else(|| {
                SqlError::new(ErrorKind::Semantic, format!("relation {name} does not exist"))
            })?;
            relation_numbered(around, oid)
        }
        false => arguments.number(at).and_then(|oid| relation_numbered(around, oid)),
    };
    let Some(found) = found else { return truth(None) };
    any_of(&words, |right, is_to_give| {
        if found.stored.is_empty() {
            // The catalog's own tables may be read.
            return right == Rights::SELECT || access.is_superuser();
        }
        let acl = Acl::of(&snapshot, Kind::Access, &found.stored);
        match is_to_give {
            true => access.owns(&acl),
            false => access.has_rights(&snapshot, (Kind::Access, &found.stored), right),
        }
    })
}

fn of_schema(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let snapshot = around.snapshot()?;
    let at = arguments.count() - 2;
    let Some(access) = asked(around, &snapshot, arguments, at > 0)? else { return truth(None) };
    let (Some(name), Some(words)) = (arguments.text(at), arguments.text(at + 1)) else {
        return truth(None);
    };
    let name = match arguments.is_text(at) {
        true => Some(name),
        false => {
            let number = arguments.number(at);
            let all = schemas(&snapshot);
            all.into_iter().find(|(_, oid)| Some(*oid) == number).map(|(name, _)| name)
        }
    };
    let Some(name) = name else { return truth(None) };
    let is_own = name == SCHEMA || crate::schemas::is_made(&snapshot, &name);
    any_of(&words, |right, is_to_give| match (is_to_give, right == Rights::CREATE) {
        (true, _) => access.is_unrestricted(),
        (_, true) => {
            is_own && access.has_rights(&snapshot, (Kind::SchemaAccess, &name), Rights::CREATE)
        }
        (..) => true,
    })
}

fn of_role(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let snapshot = around.snapshot()?;
    let at = arguments.count() - 2;
    let Some(access) = asked(around, &snapshot, arguments, at > 0)? else { return truth(None) };
    let Some(group) = arguments.text(at) else { return truth(None) };
    let number = arguments.number(at);
    let found = roles(&snapshot)
        .into_iter()
        .find(|(oid, name)| *name == group || !arguments.is_text(at) && Some(*oid) == number);
    truth(found.map(|(_, name)| access.is_member(&name)))
}

/// True if any of some rights holds that are written as words, commas between.
fn any_of(words: &str, holds: impl Fn(Rights, bool) -> bool) -> Result<ScalarValue> {
    let mut found = false;
    for word in words.split(',') {
        let word = word.trim().to_uppercase();
        let (word, is_to_give) = match word.strip_suffix(WITH_GRANT_OPTION) {
            Some(word) => (word, true),
            None => (word.as_str(), false),
        };
        found |= match Rights::named(word) {
            Some(right) => holds(right, is_to_give),
            // PostgreSQL's right to make triggers, which there are none of.
            None if matches!(word, "TRIGGER" | "RULE") => false,
            None => {
                let message = format!("unrecognized privilege type: {word}");
                return Err(SqlError::new(ErrorKind::Data, message));
            }
        };
    }
    truth(Some(found))
}
