//! SHOW TABLES and DESCRIBE.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use weft_json::is_json;
use weft_store::TableSchema;

use crate::catalog::{StatementCatalog, relation_name};
use crate::definitions;
use crate::error::Result;
use crate::identifiers::quoted;
use crate::json::JSON_LENGTH;
use crate::result_types::result_schema;
use crate::run::{Run, Started, text_rows};
use crate::schemas::written;
use crate::statement::parse_query;
use crate::types::column_type_name;

const COLUMNS: [&str; 4] = ["column_name", "column_type", "nullable", "default"];

impl Run {
    /// SHOW TABLES: tables and views.
    pub(crate) fn show_tables(&self, catalog: &StatementCatalog) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let tables = snapshot.tables().map(|name| (name, "table"));
        let views = definitions::views(snapshot).map(|(name, _)| (name, "view"));
        let mut rows: Vec<(&str, &str)> = tables.chain(views).collect();
        rows.sort_unstable();
        let column =
            |of: fn(&(&str, &str)) -> String| rows.iter().map(|row| Some(of(row))).collect();
        text_rows(
            &["name", "type"],
            vec![column(|row| row.0.to_owned()), column(|row| row.1.to_owned())],
        )
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
            return describe(table.schema());
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
        let columns = schema.fields().iter().map(|field| weft_store::Column {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            nullable: field.is_nullable(),
            default: None,
            max_length: is_json(field).then_some(JSON_LENGTH),
        });
        describe(&TableSchema { name: String::new(), columns: columns.collect() })
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
            (Some(table), _) => create_table(&written(snapshot, &name), table.schema()),
            (None, Some(sql)) => format!("CREATE VIEW {} AS {sql}", written(snapshot, &name)),
            (None, None) => return Err(catalog.unknown(&name)),
        };
        text_rows(&["name", "sql"], vec![vec![Some(name)], vec![Some(text)]])
    }
}

fn describe(schema: &TableSchema) -> Result<Started> {
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
        ],
    )
}

/// The statement that makes a table, whose name is written so.
pub(crate) fn create_table(name: &str, schema: &TableSchema) -> String {
    let columns: Vec<String> = schema
        .columns
        .iter()
        .map(|column| {
            let mut text = format!("    {} {}", quoted(&column.name), column_type_name(column));
            if !column.nullable {
                text.push_str(" NOT NULL");
            }
            if let Some(default) = &column.default {
                text.push_str(&format!(" DEFAULT {default}"));
            }
            text
        })
        .collect();
    format!("CREATE TABLE {name} (\n{}\n)", columns.join(",\n"))
}
