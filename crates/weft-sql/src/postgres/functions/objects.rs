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
use crate::sequences::owned_sequence;

pub(crate) fn functions() -> Vec<Definition> {
    // About objects that there are none of.
    let absent = [
        "pg_get_functiondef",
        "pg_get_function_arguments",
        "pg_get_function_identity_arguments",
        "pg_get_function_result",
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
        "has_any_column_privilege",
        "has_column_privilege",
        "has_database_privilege",
        "has_foreign_data_wrapper_privilege",
        "has_function_privilege",
        "has_language_privilege",
        "has_schema_privilege",
        "has_sequence_privilege",
        "has_server_privilege",
        "has_table_privilege",
        "has_tablespace_privilege",
        "has_type_privilege",
        "pg_has_role",
    ];
    // Each user may do everything.
    let permitted =
        permitted.map(|name| define(name, (2, 4), truth_type, |_, _| truth(Some(true))));
    let sizes = ["pg_relation_size", "pg_table_size", "pg_total_relation_size"];
    let sizes = sizes.map(|name| define(name, (1, 2), number_type, size));
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
        define("pg_indexes_size", (1, 1), number_type, |_, _| number(Some(0))),
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
    own.into_iter().chain(absent).chain(permitted).chain(sizes).collect()
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

/// Bytes on disk of a table with its indexes; of the main part, if one is named. NULL for an index by itself: what indexes take is
/// known of all of them together.
fn size(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    if arguments.text(1).is_some_and(|part| part != "main") {
        return number(Some(0));
    }
    let found = oid_of(around, arguments).and_then(|oid| relation_numbered(around, oid));
    let Some(found) = found.filter(|found| found.index().is_none()) else { return number(None) };
    let snapshot = around.snapshot()?;
    let table = snapshot.table(&found.stored);
    let bytes = table.map_or(0, |table| table.bytes_on_disk());
    number(i64::try_from(bytes).ok())
}
