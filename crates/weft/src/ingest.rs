//! Rows of another system into a table at once: what clients that speak Arrow call bulk ingestion.

use std::collections::HashMap;

use futures::StreamExt;
use weft_sql::{Relation, Result, ResultKind, quoted};

use crate::result::QueryResult;
use crate::session::Session;

/// The relation that the rows come from.
const SOURCE: &str = "weft ingested rows";

/// What becomes of a table that is there, and of one that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestMode {
    /// The table is made; one that is there is an error.
    Create,
    /// Rows are appended; it is an error if there is no table.
    Append,
    /// The table is made in place of one that is there.
    Replace,
    /// Rows are appended to a table that is there, and otherwise it is made.
    CreateAppend,
}

/// Which table takes rows, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingest {
    /// The schema of the table; `None` for the one where tables are without a name of a schema.
    pub schema: Option<String>,
    /// The table.
    pub table: String,
    /// Whether the table is one of the session.
    pub is_temporary: bool,
    /// What becomes of a table that is there.
    pub mode: IngestMode,
}

impl Ingest {
    /// The table's name as SQL has it.
    pub fn target(&self) -> String {
        let schema = match (&self.schema, self.is_temporary) {
            (Some(schema), _) => Some(schema.as_str()),
            (None, true) => Some("temp"),
            (None, false) => None,
        };
        match schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.table)),
            None => quoted(&self.table),
        }
    }

    /// The statement that does it, where the table is there or is not.
    fn statement(&self, relation: &Relation, is_there: bool) -> String {
        let target = self.target();
        let schema = relation.schema();
        let columns: Vec<String> =
            schema.fields().iter().map(|field| quoted(field.name())).collect();
        let (columns, source) = (columns.join(", "), quoted(SOURCE));
        match self.mode {
            IngestMode::Append => {
                format!("INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}")
            }
            IngestMode::CreateAppend if is_there => {
                format!("INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}")
            }
            IngestMode::Replace => {
                format!("CREATE OR REPLACE TABLE {target} AS SELECT {columns} FROM {source}")
            }
            IngestMode::Create | IngestMode::CreateAppend => {
                format!("CREATE TABLE {target} AS SELECT {columns} FROM {source}")
            }
        }
    }
}

impl Session {
    /// Inserts the rows of a relation into a table, by the names of its columns, which is made first where the mode says so. All of it is
    /// one statement, which is cancelled as others are, and by dropping the future.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`](crate::ErrorKind::AlreadyExists) if a table that is to be made is there,
    /// [`ErrorKind::Semantic`](crate::ErrorKind::Semantic) if one is not there, or has no such columns, and those of the rows.
    pub async fn ingest(&self, ingest: &Ingest, relation: Relation) -> Result<u64> {
        self.ingest_watched(ingest, relation, |_| ()).await
    }

    /// As [`Session::ingest`]; `started` is told of the statement, which it may keep a handle of.
    ///
    /// # Errors
    /// As for [`Session::ingest`].
    pub async fn ingest_watched(
        &self,
        ingest: &Ingest,
        relation: Relation,
        started: impl FnOnce(&QueryResult),
    ) -> Result<u64> {
        let is_there = match ingest.mode {
            IngestMode::CreateAppend => {
                let looked = format!("SELECT * FROM {}", ingest.target());
                self.signature(&looked, Vec::new()).await.is_ok()
            }
            IngestMode::Create | IngestMode::Append | IngestMode::Replace => false,
        };
        let sql = ingest.statement(&relation, is_there);
        let relations = HashMap::from([(SOURCE.to_owned(), relation)]);
        let mut result = self.start_with_relations(&sql, relations);
        started(&result);
        while let Some(batch) = result.next().await {
            batch?;
        }
        match result.kind() {
            ResultKind::Command { rows_affected, .. } => Ok(rows_affected.unwrap_or_default()),
            ResultKind::Rows => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use weft_rt::sync::block_on;
    use weft_sql::{ErrorKind, Result};

    use super::*;
    use crate::{Database, DatabaseOptions};

    fn relation() -> Relation {
        let (ids, names): (ArrayRef, ArrayRef) =
            (Arc::new(Int64Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["a", "b"])));
        let batch = RecordBatch::try_from_iter([("id", ids), ("Odd name", names)]);
        let batch = batch.expect("columns of one length");
        Relation::of_batches(batch.schema(), vec![batch]).expect("a relation")
    }

    #[test]
    fn each_mode_does_with_a_table_what_it_says() -> Result<()> {
        let database = Database::in_memory(&DatabaseOptions::default())?;
        let session = database.session()?;
        session.execute("CREATE SCHEMA shop")?;
        for (schema, is_temporary) in [(None, false), (Some("shop"), false), (None, true)] {
            let with = |mode| Ingest {
                schema: schema.map(str::to_owned),
                table: "Odd table".to_owned(),
                is_temporary,
                mode,
            };
            let run = |mode| block_on(session.ingest(&with(mode), relation()));
            let count = || {
                let sql = format!("SELECT count(*) FROM {}", with(IngestMode::Append).target());
                crate::to_text(&session.query(&sql)?.collect()?)
            };
            assert_eq!(
                run(IngestMode::Append).map_err(|error| error.kind()),
                Err(ErrorKind::Semantic)
            );
            assert_eq!(run(IngestMode::Create)?, 2);
            let again = run(IngestMode::Create).map_err(|error| error.kind());
            assert_eq!(again, Err(ErrorKind::AlreadyExists));
            assert_eq!(run(IngestMode::Append)?, 2);
            assert_eq!(run(IngestMode::CreateAppend)?, 2);
            assert_eq!(count()?, [["6"]]);
            assert_eq!(run(IngestMode::Replace)?, 2);
            assert_eq!(count()?, [["2"]]);
            session.execute(&format!("DROP TABLE {}", with(IngestMode::Append).target()))?;
            assert_eq!(run(IngestMode::CreateAppend)?, 2);
        }
        Ok(())
    }
}
