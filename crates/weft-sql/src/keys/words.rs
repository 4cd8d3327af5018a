//! Constraints and indexes as the statements that make them.

use weft_store::{IndexDefinition, Snapshot, Table, TableSchema};

use crate::identifiers::quoted;
use crate::schemas::written;

fn names<'a>(schema: &TableSchema, columns: impl Iterator<Item = &'a usize>) -> String {
    let names: Vec<String> = columns.map(|column| quoted(&schema.columns[*column].name)).collect();
    names.join(", ")
}

/// The constraints of a table, each as a line of its definition.
pub(crate) fn constraints_in_words(snapshot: &Snapshot, table: &Table) -> Vec<String> {
    let schema = table.schema();
    let mut words = Vec::new();
    for index in table.indexes().filter(|index| index.is_constraint) {
        let kind = if index.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
        let columns = names(schema, index.columns.iter().map(|of| &of.column));
        let included = included_in_words(schema, index);
        words.push(format!("CONSTRAINT {} {kind} ({columns}){included}", quoted(&index.name)));
    }
    for check in &table.constraints().checks {
        words.push(format!("CONSTRAINT {} CHECK ({})", quoted(&check.name), check.sql));
    }
    for key in &table.constraints().foreign_keys {
        let parent = snapshot.table_name(key.parent).and_then(|name| snapshot.table(name));
        let Some(parent) = parent else { continue };
        words.push(format!(
            "CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({})",
            quoted(&key.name),
            names(schema, key.columns.iter()),
            written(snapshot, &parent.schema().name),
            names(parent.schema(), key.parent_columns.iter()),
        ));
    }
    words
}

/// The columns that an index includes, as its statement names them.
pub(crate) fn included_in_words(schema: &TableSchema, index: &IndexDefinition) -> String {
    match index.included.is_empty() {
        true => String::new(),
        false => format!(" INCLUDE ({})", names(schema, index.included.iter())),
    }
}

/// The statement that makes an index.
pub(crate) fn index_in_words(
    snapshot: &Snapshot,
    schema: &TableSchema,
    index: &IndexDefinition,
) -> String {
    let columns: Vec<String> = index
        .columns
        .iter()
        .map(|of| {
            let name = quoted(&schema.columns[of.column].name);
            let order = if of.is_descending { " DESC" } else { "" };
            let nulls = match (of.is_descending, of.nulls_first) {
                (false, true) => " NULLS FIRST",
                (true, false) => " NULLS LAST",
                _ => "",
            };
            format!("{name}{order}{nulls}")
        })
        .collect();
    format!(
        "CREATE {}INDEX {} ON {} ({}){}",
        if index.is_unique { "UNIQUE " } else { "" },
        quoted(&index.name),
        written(snapshot, &schema.name),
        columns.join(", "),
        included_in_words(schema, index)
    )
}
