//! CHECK TABLE and PRAGMA integrity_check: all rows are read, and all indexes compared with their tables.

use std::future::poll_fn;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use weft_store::{ScanOptions, StoreError, Table};

use crate::access::Need;
use crate::catalog::{StatementCatalog, relation_name};
use crate::error::{Result, SqlError, from_store};
use crate::run::{Run, Started, text_rows};

/// What a part is that has nothing wrong.
const OK: &str = "ok";

impl Run {
    /// A row for each table and each index: `ok`, or what is wrong with it.
    pub(crate) async fn check_tables(
        &self,
        catalog: &StatementCatalog,
        name: Option<&ast::ObjectName>,
    ) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let tables = match name {
            Some(name) => vec![catalog.stored(&relation_name(name)?, Need::Nothing)?],
            None => snapshot.tables().filter_map(|name| snapshot.table(name)).collect(),
        };
        for table in &tables {
            catalog.check_read(&table.schema().name)?;
        }
        let mut columns = vec![Vec::new(); 3];
        let mut push = |table: &Table, index: Option<&str>, found: String| {
            columns[0].push(Some(table.schema().name.clone()));
            columns[1].push(index.map(str::to_owned));
            columns[2].push(Some(found));
        };
        for table in tables {
            let rows = self.check_rows(catalog, &table).await;
            push(&table, None, in_words(rows.map(|()| None))?);
            for index in table.indexes() {
                let found = table.check_index(&index.name).await;
                push(&table, Some(&index.name), in_words(found)?);
            }
        }
        text_rows(&["table", "index", "result"], columns)
    }

    /// Reads and decodes all rows.
    async fn check_rows(
        &self,
        catalog: &StatementCatalog,
        table: &Arc<Table>,
    ) -> Result<(), StoreError> {
        let context = catalog.context();
        let options = ScanOptions {
            projection: (0..table.schema().columns.len()).collect(),
            io_depth: context.io_depth,
            workers: context.threads,
            share: Some(self.control.share),
            cancel: self.control.token.clone(),
            ..ScanOptions::default()
        };
        let mut scan = table.scan(options)?;
        while let Some(batch) = poll_fn(|context| scan.poll_next(context)).await {
            batch?;
        }
        Ok(())
    }
}

/// What was found, unless the statement cannot go on.
fn in_words(found: Result<Option<String>, StoreError>) -> Result<String> {
    match found {
        Ok(None) => Ok(OK.to_owned()),
        Ok(Some(problem)) => Ok(problem),
        Err(StoreError::Cancelled) => Err(SqlError::cancelled()),
        Err(error @ StoreError::Memory(_)) => Err(from_store(&error)),
        Err(error) => Ok(error.to_string()),
    }
}
