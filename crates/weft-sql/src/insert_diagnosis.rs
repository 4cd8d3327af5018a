//! Finds the value of an INSERT … VALUES that does not fit its column.

use std::ops::Range;

use datafusion::execution::SessionState;
use datafusion::physical_plan::collect;
use datafusion::sql::sqlparser::ast::{self, Spanned};

use crate::access::{Need, Rights};
use crate::assign::{in_column, not_null};
use crate::catalog::StatementCatalog;
use crate::error::{ErrorKind, Position, Result, SqlError};
use crate::insert::plan_values;
use crate::spill_files::task_context;

/// The error of the first column that has one, with its place; nothing if each value fits.
pub(crate) async fn explain(
    catalog: &StatementCatalog,
    state: &SessionState,
    insert: &ast::Insert,
) -> Option<SqlError> {
    let columns = column_names(catalog, insert)?;
    let all = 0..rows_of(insert)?.len();
    for number in 0..columns.len() {
        let single = Single { catalog, state, insert, columns: &columns, number };
        let Some(mut error) = single.error(all.clone()).await else { continue };
        // Half of the rows, and so on, down to the first one that is wrong.
        let mut rows = all.clone();
        while rows.len() > 1 {
            let middle = rows.start + rows.len() / 2;
            match single.error(rows.start..middle).await {
                Some(found) => (error, rows) = (found, rows.start..middle),
                None => rows = middle..rows.end,
            }
        }
        if let Some(found) = single.error(rows.clone()).await {
            error = found;
        }
        return Some(single.place(&error, rows.start, all.len()));
    }
    None
}

/// How Arrow's error ends for a column with NULLs that may have none.
const NULL_IN_NOT_NULL: &str = "is declared as non-nullable but contains null values";

/// A statement reduced to one of its columns.
struct Single<'a> {
    catalog: &'a StatementCatalog,
    state: &'a SessionState,
    insert: &'a ast::Insert,
    columns: &'a [ast::Ident],
    number: usize,
}

impl Single<'_> {
    /// What is wrong with the column's values in these rows.
    async fn error(&self, rows: Range<usize>) -> Option<SqlError> {
        let error = self.evaluate(rows).await.err()?;
        (error.kind() == ErrorKind::Data).then_some(error)
    }

    async fn evaluate(&self, rows: Range<usize>) -> Result<()> {
        let mut insert = self.insert.clone();
        insert.columns = vec![ast::ObjectName::from(vec![self.columns[self.number].clone()])];
        if let Some(query) = &mut insert.source
            && let ast::SetExpr::Values(values) = query.body.as_mut()
        {
            values.rows = values.rows[rows].to_vec();
            for row in &mut values.rows {
                row.content = vec![row.content[self.number].clone()];
            }
        }
        let plan = plan_values(self.catalog, self.state, &insert).await?;
        let plan = self.state.create_physical_plan(&plan).await?;
        collect(plan, task_context(self.state)).await?;
        Ok(())
    }

    /// The error with its column, its row and its place in the text.
    fn place(&self, error: &SqlError, row: usize, rows: usize) -> SqlError {
        let table = self.insert.table.to_string();
        let column = &self.columns[self.number].value;
        let is_null = error.message().ends_with(NULL_IN_NOT_NULL);
        let mut error = match is_null {
            true => not_null(&table, column),
            false => in_column(error, &table, column),
        };
        if rows > 1 {
            let separator = if is_null { ":" } else { "," };
            let message = format!("row {}{separator} {}", row + 1, error.message());
            error = SqlError::new(error.kind(), message);
        }
        let value = rows_of(self.insert).and_then(|rows| rows[row].content.get(self.number));
        let start = value.map(|value| value.span().start);
        match start.filter(|start| start.line > 0) {
            Some(start) => error.with_position(Position { line: start.line, column: start.column }),
            None => error,
        }
    }
}

fn rows_of(insert: &ast::Insert) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
    match insert.source.as_ref()?.body.as_ref() {
        ast::SetExpr::Values(values) => Some(&values.rows),
        _ => None,
    }
}

/// The columns that are filled, as the statement names them or in the table's order.
fn column_names(catalog: &StatementCatalog, insert: &ast::Insert) -> Option<Vec<ast::Ident>> {
    if insert.columns.is_empty() {
        let ast::TableObject::TableName(name) = &insert.table else { return None };
        let name = crate::catalog::relation_name(name).ok()?;
        let table = catalog.stored(&name, Need::Rights(Rights::INSERT)).ok()?;
        let columns = table.schema().columns.iter();
        return Some(columns.map(|column| ast::Ident::with_quote('"', &column.name)).collect());
    }
    let ident = |name: &ast::ObjectName| name.0.first().and_then(|part| part.as_ident()).cloned();
    insert.columns.iter().map(ident).collect()
}
