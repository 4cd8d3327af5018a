//! SHOW TABLES and DESCRIBE.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use weft_store::{IndexDefinition, Snapshot, Table, TableSchema};

use crate::access::Need;
use crate::catalog::{StatementCatalog, relation_name};
use crate::definitions;
use crate::enums::type_statements;
use crate::error::Result;
use crate::identifiers::quoted;
use crate::keys::{constraints_in_words, index_in_words};
use crate::result_types::result_schema;
use crate::run::{Run, Started, text_rows};
use crate::schemas::written;
use crate::sequences::identity_of;
use crate::statement::parse_query;
use crate::text_kinds::column_of;
use crate::types::column_type_name;

const COLUMNS: [&str; 5] = ["column_name", "column_type", "nullable", "default", "key"];

impl Run {
    /// SHOW TABLES: tables and views.
    pub(crate) fn show_tables(&self, catalog: &StatementCatalog) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let tables = definitions::lasting_tables(snapshot).map(|name| (name, "table"));
        let views = definitions::lasting_views(snapshot).map(|(name, _)| (name, "view"));
        let start = self.session.temporary_schema().map(|schema| format!("{schema}."));
        let own =
            |name: &str| start.as_deref().and_then(|start| name.strip_prefix(start).map(str::len));
        let temporary = snapshot
            .tables()
            .map(|name| (name, "temporary table"))
            .chain(definitions::views(snapshot).map(|(name, _)| (name, "temporary view")))
            .filter_map(|(name, kind)| Some((&name[name.len() - own(name)?..], kind)));
        let mut rows: Vec<(&str, &str)> = tables.chain(views).chain(temporary).collect();
        rows.sort_unstable();
        let column =
            |of: fn(&(&str, &str)) -> String| rows.iter().map(|row| Some(of(row))).collect();
        text_rows(
            &["name", "type"],
            vec![column(|row| row.0.to_owned()), column(|row| row.1.to_owned())],
        )
    }

    /// SHOW INDEXES, of all tables or of one.
    pub(crate) fn show_indexes(
        &self,
        catalog: &StatementCatalog,
        table: Option<&ast::ObjectName>,
    ) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let tables = match table {
            Some(name) => vec![catalog.stored(&relation_name(name)?, Need::Nothing)?],
            None => definitions::lasting_tables(snapshot)
                .filter_map(|name| snapshot.table(name))
                .collect(),
        };
        let mut columns = vec![Vec::new(); 4];
        for table in tables {
            for index in table.indexes() {
                let kind = match (index.is_primary, index.is_constraint, index.is_unique) {
                    (true, ..) => "primary key",
                    (_, true, _) => "unique constraint",
                    (.., true) => "unique",
                    _ => "",
                };
                let words = index_in_words(snapshot, table.schema(), index);
                let row = [table.schema().name.clone(), index.name.clone(), kind.into(), words];
                for (column, value) in columns.iter_mut().zip(row) {
                    column.push(Some(value));
                }
            }
        }
        text_rows(&["table", "name", "kind", "sql"], columns)
    }

    /// DESCRIBE of a table, a view or a file.
    pub(crate) async fn describe_table(
        &self,
        catalog: &StatementCatalog,
        name: &ast::ObjectName,
    ) -> Result<Started> {
        if let Ok(name) = relation_name(name)
            && let Some(table) = catalog.snapshot().table(&name)
        {
            catalog.check_read(&name)?;
            let key = |column| key_of(&table, column).map(str::to_owned);
            return describe(table.schema(), key);
        }
        let query = parse_query(&format!("SELECT * FROM {name}"))?;
        self.describe_query(catalog, query).await
    }

    /// DESCRIBE of a query.
    pub(crate) async fn describe_query(
        &self,
        catalog: &StatementCatalog,
        query: ast::Query,
    ) -> Result<Started> {
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        let schema = result_schema(&state, &plan)?;
        let columns = schema.fields().iter().map(|field| column_of(field));
        describe(&TableSchema { name: String::new(), columns: columns.collect() }, |_| None)
    }

    /// SHOW CREATE TABLE and SHOW CREATE VIEW.
    pub(crate) fn show_create(
        &self,
        catalog: &StatementCatalog,
        name: &ast::ObjectName,
    ) -> Result<Started> {
        let name = relation_name(name)?;
        let snapshot = catalog.snapshot();
        let text = match (snapshot.table(&name), snapshot.view(&name)) {
            (Some(table), _) => create_table(snapshot, &table),
            (None, Some(sql)) => format!("CREATE VIEW {} AS {sql}", written(snapshot, &name)),
            (None, None) => return Err(catalog.unknown(&name)),
        };
        text_rows(&["name", "sql"], vec![vec![Some(name)], vec![Some(text)]])
    }
}

/// What a column is to the table's keys: one of the primary key, or unique.
fn key_of(table: &Table, column: usize) -> Option<&'static str> {
    let is_in = |index: &IndexDefinition| index.columns.iter().any(|of| of.column == column);
    if table.indexes().any(|index| index.is_primary && is_in(index)) {
        return Some("PRI");
    }
    let is_unique =
        |index: &IndexDefinition| index.is_unique && index.columns.len() == 1 && is_in(index);
    table.indexes().any(is_unique).then_some("UNI")
}

fn describe(schema: &TableSchema, key: impl Fn(usize) -> Option<String>) -> Result<Started> {
    let columns = &schema.columns;
    text_rows(
        &COLUMNS,
        vec![
            columns.iter().map(|column| Some(column.name.clone())).collect(),
            columns.iter().map(|column| Some(column_type_name(column))).collect(),
            columns
                .iter()
                .map(|column| Some(if column.nullable { "YES" } else { "NO" }.to_owned()))
                .collect(),
            columns.iter().map(|column| column.default.clone()).collect(),
            (0..columns.len()).map(key).collect(),
        ],
    )
}

/// The statements that make a table, the types of its columns and its indexes.
fn create_table(snapshot: &Snapshot, table: &Table) -> String {
    let schema = table.schema();
    let mut lines: Vec<String> = schema
        .columns
        .iter()
        .map(|column| {
            let mut text = format!("    {} {}", quoted(&column.name), column_type_name(column));
            if !column.nullable {
                text.push_str(" NOT NULL");
            }
            match (identity_of(snapshot, column), &column.default) {
                (Some(identity), _) => text.push_str(&format!(" {identity}")),
                (None, Some(default)) => text.push_str(&format!(" DEFAULT {default}")),
                (None, None) => {}
            }
            text
        })
        .collect();
    lines.extend(constraints_in_words(snapshot, table).iter().map(|line| format!("    {line}")));
    let mut text: String =
        type_statements(table).iter().map(|statement| format!("{statement};\n")).collect();
    let (name, lines) = (written(snapshot, &schema.name), lines.join(",\n"));
    text.push_str(&format!("CREATE TABLE {name} (\n{lines}\n)"));
    for index in table.indexes().filter(|index| !index.is_constraint) {
        text.push_str(&format!(";\n{}", index_in_words(snapshot, schema, index)));
    }
    text
}
