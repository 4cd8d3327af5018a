//! Functions about tables, views, indexes, constraints, and what Weft has none of: comments, rules, triggers.

use datafusion::common::ScalarValue;

use crate::comments::comment;
use crate::error::Result;
use crate::postgres::functions::names::{relation_named, relation_numbered};
use crate::postgres::functions::{
    Arguments, Definition, Surroundings, define, number, number_type, text, text_type, truth,
    truth_type,
};
use crate::postgres::keys;
use crate::postgres::numbers::Numbered;
use crate::postgres::procedures::{Procedure, macros};
use crate::sequences::owned_sequence;

pub(crate) fn functions() -> Vec<Definition> {
    // About objects that there are none of.
    let absent = [
        "pg_get_function_sqlbody",
        "pg_get_partition_constraintdef",
        "pg_get_partkeydef",
        "pg_get_ruledef",
        "pg_get_statisticsobjdef_columns",
        "pg_get_triggerdef",
        "pg_relation_filepath",
        "pg_tablespace_location",
        "shobj_description",
    ];
    let absent = absent.map(|name| define(name, (1, 3), text_type, |_, _| text(None::<String>)));
    let permitted = [
        "has_database_privilege",
        "has_foreign_data_wrapper_privilege",
        "has_function_privilege",
        "has_language_privilege",
        "has_sequence_privilege",
        "has_server_privilege",
        "has_tablespace_privilege",
        "has_type_privilege",
    ];
    // There are no rights on these: each role may use them.
    let permitted =
        permitted.map(|name| define(name, (2, 4), truth_type, |_, _| truth(Some(true))));
    let sizes = [
        define("pg_relation_size", (1, 2), number_type, |around, arguments| {
            // Of the parts that PostgreSQL has, there is only the main one.
            if arguments.text(1).is_some_and(|part| part != "main") {
                return number(Some(0));
            }
            size(around, arguments, |table, _| table)
        }),
        define("pg_table_size", (1, 1), number_type, |around, arguments| {
            size(around, arguments, |table, _| table)
        }),
        define("pg_indexes_size", (1, 1), number_type, |around, arguments| {
            size(around, arguments, |_, indexes| indexes)
        }),
        define("pg_total_relation_size", (1, 1), number_type, |around, arguments| {
            size(around, arguments, |table, indexes| table + indexes)
        }),
    ];
    let of_function = [
        define("pg_get_functiondef", (1, 1), text_type, |around, arguments| {
            text(procedure(around, arguments)?.and_then(|found| found.text))
        }),
        define("pg_get_function_arguments", (1, 1), text_type, |around, arguments| {
            let found = procedure(around, arguments)?;
            text(found.map(|found| found.arguments(true)))
        }),
        define("pg_get_function_identity_arguments", (1, 1), text_type, |around, arguments| {
            let found = procedure(around, arguments)?;
            text(found.map(|found| found.arguments(false)))
        }),
        define("pg_get_function_result", (1, 1), text_type, |around, arguments| {
            text(procedure(around, arguments)?.map(|found| found.result()))
        }),
    ];
    let own = vec![
        define("col_description", (2, 2), text_type, |around, arguments| {
            described(around, arguments, arguments.number(1))
        }),
        define("pg_get_serial_sequence", (2, 2), text_type, |around, arguments| {
            let found = arguments.text(0).and_then(|name| relation_named(around, &name));
            let found = found.and_then(|oid| relation_numbered(around, oid));
            let (Some(found), Some(column)) = (found, arguments.text(1)) else {
                return text(None::<String>);
            };
            let snapshot = around.snapshot()?;
            text(owned_sequence(&snapshot, &found.stored, &column))
        }),
        define("obj_description", (1, 2), text_type, |around, arguments| {
            described(around, arguments, None)
        }),
        define("pg_get_expr", (2, 3), text_type, |_, arguments| text(arguments.text(0))),
        define("pg_get_viewdef", (1, 2), text_type, |around, arguments| {
            let found = oid_of(around, arguments).and_then(|oid| relation_numbered(around, oid));
            text(found.as_ref().and_then(Numbered::view))
        }),
        define("pg_stat_get_numscans", (1, 1), number_type, |_, _| number(Some(0))),
        define("pg_database_size", (1, 1), number_type, |around, _| {
            number(i64::try_from(around.engine()?.store().bytes_on_disk()).ok())
        }),
        define("pg_tablespace_size", (1, 1), number_type, |around, _| {
            number(i64::try_from(around.engine()?.store().bytes_on_disk()).ok())
        }),
        define("pg_relation_is_publishable", (1, 1), truth_type, |_, _| truth(Some(false))),
        define("pg_relation_filenode", (1, 1), number_type, |around, arguments| {
            let found = oid_of(around, arguments).and_then(|oid| relation_numbered(around, oid));
            number(found.filter(|found| found.view().is_none()).map(|found| found.oid))
        }),
        define("pg_get_indexdef", (1, 3), text_type, |around, arguments| {
            let Some(oid) = arguments.number(0) else { return text(None::<String>) };
            let snapshot = around.snapshot()?;
            let column = arguments.number(1).and_then(|column| usize::try_from(column).ok());
            text(keys::index_sql(&snapshot, oid, column.filter(|column| *column > 0)))
        }),
        define("pg_get_constraintdef", (1, 2), text_type, |around, arguments| {
            let Some(oid) = arguments.number(0) else { return text(None::<String>) };
            let is_pretty = arguments.is_true(1) == Some(true);
            let all = keys::constraints(&*around.snapshot()?);
            let found = all.into_iter().find(|constraint| constraint.oid == oid);
            text(found.map(|constraint| constraint.sql(is_pretty)))
        }),
        // No table is a partition of another: it has no ancestors but itself.
        define("pg_partition_ancestors", (1, 1), number_type, |around, arguments| {
            number(oid_of(around, arguments))
        }),
    ];
    own.into_iter().chain(absent).chain(permitted).chain(sizes).chain(of_function).collect()
}

/// The number of the relation that an argument names or numbers.
fn oid_of(around: &Surroundings, arguments: &Arguments<'_>) -> Option<i64> {
    let of_name = || relation_named(around, &arguments.text(0)?);
    arguments.number(0).or_else(of_name)
}

/// The comment on a table or view, or on a column of a table with a number.
fn described(
    around: &Surroundings,
    arguments: &Arguments<'_>,
    column: Option<i64>,
) -> Result<ScalarValue> {
    let found = oid_of(around, arguments).and_then(|oid| relation_numbered(around, oid));
    let Some(found) = found.filter(|found| found.index().is_none()) else {
        return text(None::<String>);
    };
    let snapshot = around.snapshot()?;
    let Some(number) = column else { return text(comment(&snapshot, &found.stored, None)) };
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let table = snapshot.table(&found.stored);
    let name =
        table.as_ref().zip(place).and_then(|(table, place)| table.schema().columns.get(place));
    text(name.and_then(|column| comment(&snapshot, &found.stored, Some(&column.name))))
}

/// The function of a number. Of those of Weft itself it is only known that they are there.
fn procedure(around: &Surroundings, arguments: &Arguments<'_>) -> Result<Option<Procedure>> {
    let Some(oid) = arguments.number(0) else { return Ok(None) };
    let snapshot = around.snapshot()?;
    let found = macros(&snapshot).into_iter().find(|found| found.oid == oid);
    Ok(found.or_else(|| Procedure::of_system(oid)))
}

/// Bytes on disk of a table or an index: what `of` makes of those of the rows and those of all indexes. An index by itself has no others.
fn size(
    around: &Surroundings,
    arguments: &Arguments<'_>,
    of: impl Fn(u64, u64) -> u64,
) -> Result<ScalarValue> {
    let found = oid_of(around, arguments).and_then(|oid| relation_numbered(around, oid));
    let Some(found) = found else { return number(None) };
    let snapshot = around.snapshot()?;
    let Some(table) = snapshot.table(&found.stored) else { return number(Some(0)) };
    let bytes = match found.index() {
        Some((_, index)) => of(table.index_bytes_on_disk(&index.name).unwrap_or(0), 0),
        None => {
            let names = table.indexes().map(|index| index.name.as_str());
            let indexes: u64 = names.filter_map(|name| table.index_bytes_on_disk(name)).sum();
            of(table.bytes_on_disk() - indexes, indexes)
        }
    };
    number(i64::try_from(bytes).ok())
}
