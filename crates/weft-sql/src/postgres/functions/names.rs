//! Names and numbers: what casts to `regclass`, `regtype` and the like mean, and functions about visible names.
//!
//! Such a cast makes a number of a name and a name of a number: a number is what clients compare with, a name what they
//! show.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

use crate::catalog::SCHEMA;
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::postgres::PG_CATALOG;
use crate::postgres::functions::{
    Arguments, Definition, Surroundings, define, number, number_type, text, text_type, texts_type,
    truth, truth_type,
};
use crate::postgres::numbers::{Numbered, enums, relations, roles, schemas};
use crate::postgres::procedures::{Procedure, macros};
use crate::postgres::types::{by_oid, format_type, oid_named};

pub(crate) fn functions() -> Vec<Definition> {
    let visible = [
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_function_is_visible",
        "pg_opclass_is_visible",
        "pg_operator_is_visible",
        "pg_opfamily_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
        "pg_type_is_visible",
    ];
    let visible = visible.map(|name| define(name, (1, 1), truth_type, |_, _| truth(Some(true))));
    let own = vec![
        define("cast_to_regclass", (1, 1), number_or_name, regclass),
        define("cast_to_regtype", (1, 1), number_or_name, regtype),
        define("cast_to_regnamespace", (1, 1), number_or_name, regnamespace),
        define("cast_to_regrole", (1, 1), number_or_name, regrole),
        define("cast_to_regproc", (1, 1), text_type, regproc),
        define("number_of_regproc", (1, 1), number_type, number_of_regproc),
        define("to_regclass", (1, 1), number_type, |around, arguments| {
            number(arguments.text(0).and_then(|name| relation_named(around, &name)))
        }),
        define("to_regtype", (1, 1), number_type, |around, arguments| {
            number(arguments.text(0).and_then(|name| type_named(around, &name)))
        }),
        define("format_type", (1, 2), text_type, |around, arguments| {
            let name = |oid| match enum_numbered(around, oid) {
                Some(name) => name,
                None => format_type(oid, arguments.number(1)),
            };
            text(arguments.number(0).map(name))
        }),
        define("pg_table_is_visible", (1, 1), truth_type, |around, arguments| {
            let Some(oid) = arguments.number(0) else { return truth(None) };
            let on_path = |found: Numbered| [SCHEMA, PG_CATALOG].contains(&found.schema.as_str());
            truth(relation_numbered(around, oid).map(on_path))
        }),
        define("pg_get_userbyid", (1, 1), text_type, |around, arguments| {
            let Some(oid) = arguments.number(0) else { return text(None::<String>) };
            let found = role_numbered(around, oid);
            text(Some(found.unwrap_or_else(|| format!("unknown (OID={oid})"))))
        }),
        define("current_schema", (0, 0), text_type, |_, _| text(Some(SCHEMA))),
        define("current_schemas", (1, 1), texts_type, |_, arguments| {
            let all = [PG_CATALOG, SCHEMA];
            let shown = if arguments.is_true(0) == Some(true) { &all[..] } else { &all[1..] };
            let values: Vec<ScalarValue> =
                shown.iter().map(|name| ScalarValue::Utf8View(Some((*name).to_owned()))).collect();
            let list = ScalarValue::new_list_nullable(&values, &DataType::Utf8View);
            Ok(ScalarValue::List(list))
        }),
    ];
    own.into_iter().chain(visible).collect()
}

fn number_or_name(types: &[DataType]) -> DataType {
    match types.first() {
        Some(of) if of.is_string() => DataType::Int64,
        _ => DataType::Utf8View,
    }
}

/// The number that a name stands for, or the name of a number.
fn either(
    arguments: &Arguments<'_>,
    oid_of: impl FnOnce(&str) -> Option<i64>,
    name_of: impl FnOnce(i64) -> Option<String>,
    what: &str,
) -> Result<ScalarValue> {
    if !arguments.is_text(0) {
        let name = arguments.number(0).map(|oid| match oid {
            0 => "-".to_owned(),
            oid => name_of(oid).unwrap_or_else(|| oid.to_string()),
        });
        return text(name);
    }
    let Some(name) = arguments.text(0) else { return number(None) };
    if let Ok(oid) = name.trim().parse() {
        return number(Some(oid));
    }
    match oid_of(&name) {
        Some(oid) => number(Some(oid)),
        None => {
            let message = format!("{what} {} does not exist", quoted(&name));
            Err(SqlError::new(ErrorKind::Semantic, message).about(name))
        }
    }
}

fn regclass(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let name_of = |oid| {
        let found = relation_numbered(around, oid)?;
        Some(match [SCHEMA, PG_CATALOG].contains(&found.schema.as_str()) {
            true => quoted(&found.name),
            false => format!("{}.{}", quoted(&found.schema), quoted(&found.name)),
        })
    };
    either(arguments, |name| relation_named(around, name), name_of, "relation")
}

fn regtype(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let name_of = |oid| {
        let own = by_oid(oid).map(|_| format_type(oid, None));
        own.or_else(|| enum_numbered(around, oid))
    };
    either(arguments, |name| type_named(around, name), name_of, "type")
}

/// The number of a type, also of one that was made.
fn type_named(around: &Surroundings, name: &str) -> Option<i64> {
    if let Some(oid) = oid_named(name) {
        return Some(oid);
    }
    let parts = split_name(name);
    let name = match &parts[..] {
        [name] => name.clone(),
        [schema, name] if schema == SCHEMA || schema == "public" => name.clone(),
        parts => parts.join("."),
    };
    let all = enums(&*around.snapshot().ok()?);
    all.into_iter().find(|(_, ty)| ty.name() == Some(name.as_str())).map(|(oid, _)| oid)
}

/// What SQL calls a type that was made, of this number.
fn enum_numbered(around: &Surroundings, oid: i64) -> Option<String> {
    if by_oid(oid).is_some() {
        return None;
    }
    let all = enums(&*around.snapshot().ok()?);
    all.into_iter().find(|(known, _)| *known == oid).map(|(_, ty)| ty.to_string())
}

fn regnamespace(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let all = schemas(&*around.snapshot()?);
    let oid_of = |name: &str| {
        let name = plain_name(name);
        all.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid)
    };
    let name_of = |oid| all.iter().find(|(_, known)| *known == oid).map(|(name, _)| name.clone());
    either(arguments, oid_of, name_of, "schema")
}

fn regrole(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let of_name = |name: &str| {
        let name = plain_name(name);
        let all = roles(&*around.snapshot().ok()?);
        all.into_iter().find(|(_, known)| *known == name).map(|(oid, _)| oid)
    };
    either(arguments, of_name, |oid| role_numbered(around, oid), "role")
}

/// The number of a macro: what `'f'::regproc::oid` is.
fn number_of_regproc(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let all = macros(&*around.snapshot()?);
    let oid_of = |name: &str| {
        // With the types of its parameters it is one function of several of the name.
        let name = name.split('(').next().unwrap_or(name);
        let parts = split_name(name);
        let (name, schemas) = parts.split_last()?;
        let schema = schemas.last().map_or(SCHEMA, String::as_str);
        let is_it = |found: &&Procedure| found.name == *name && found.schema == schema;
        all.iter().find(is_it).map(|found| found.oid)
    };
    either(arguments, oid_of, |_| None, "function")
}

/// The name of a function: the catalog has functions by their names, but for `pg_proc` itself.
fn regproc(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    if !arguments.is_text(0)
        && let Some(oid) = arguments.number(0)
        && let Some(found) = macros(&*around.snapshot()?).iter().find(|found| found.oid == oid)
    {
        return text(Some(quoted(&found.name)));
    }
    let name = arguments.text(0).map(|name| match name.as_str() {
        "0" => "-".to_owned(),
        name => plain_name(name.strip_prefix("pg_catalog.").unwrap_or(name)),
    });
    text(name)
}

/// A name without its quotes, or in lower case.
fn plain_name(name: &str) -> String {
    let name = name.trim();
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name.to_ascii_lowercase(),
    }
}

/// The number of a table or view, whose name may have its schema in front.
pub(crate) fn relation_named(around: &Surroundings, name: &str) -> Option<i64> {
    let parts = split_name(name);
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [schema, name] | [_, schema, name] => (Some(schema.as_str()), name),
        _ => return None,
    };
    let all = relations(&*around.snapshot().ok()?);
    let is_it = |found: &&Numbered| {
        let on_path = || [SCHEMA, PG_CATALOG].contains(&found.schema.as_str());
        found.name == *name && schema.map_or_else(on_path, |schema| found.schema == schema)
    };
    // Tables come before those of the catalog, as on the search path of the planner.
    all.iter().find(is_it).map(|found| found.oid)
}

/// The parts of a name with dots between, as the catalog has them.
pub(crate) fn split_name(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for letter in name.trim().chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(String::new()),
            letter => {
                let kept = if is_quoted { letter } else { letter.to_ascii_lowercase() };
                if let Some(last) = parts.last_mut() {
                    last.push(kept);
                }
            }
        }
    }
    parts
}

/// The table or view of a number.
pub(crate) fn relation_numbered(around: &Surroundings, oid: i64) -> Option<Numbered> {
    let all = relations(&*around.snapshot().ok()?);
    all.into_iter().find(|found| found.oid == oid)
}

fn role_numbered(around: &Surroundings, oid: i64) -> Option<String> {
    let all = roles(&*around.snapshot().ok()?);
    all.into_iter().find(|(known, _)| *known == oid).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_dots_outside_of_quotes() {
        assert_eq!(split_name("main.T"), ["main", "t"]);
        assert_eq!(split_name("\"a.B\".c"), ["a.B", "c"]);
    }
}
