//! Statements: SQL with parameters, and rows that a table takes.

use std::collections::HashMap;
use std::sync::Arc;

use adbc_core::error::{Result, Status};
use adbc_core::options::{IngestMode, OptionStatement, OptionValue};
use adbc_core::{CancelHandle, Optionable, PartitionedResult, Statement};
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::RecordBatchReader;
use weft::{DEFAULT_SCHEMA, Ingest, ResultKind, block_on};

use crate::bound::Bound;
use crate::connection::{Shared, check_catalog};
use crate::error::{OrAdbc, bad_option, not_implemented, of_status};
use crate::options::{number_of, switch_of, switch_text, text_of, unknown};
use crate::reader::{Current, WeftReader, finish, start_next};

/// The relation that an INSERT of bound rows reads.
const PARAMETERS: &str = "weft parameters";

/// A statement. It is executed once for each row that is bound to it, or once without any.
pub struct WeftStatement {
    shared: Arc<Shared>,
    sql: Option<Arc<str>>,
    bound: Option<Bound>,
    target: Target,
    current: Current,
}

/// The table that takes bound rows.
#[derive(Clone, Debug)]
struct Target {
    table: Option<String>,
    schema: Option<String>,
    is_temporary: bool,
    mode: IngestMode,
}

impl Target {
    fn new() -> Target {
        Target { table: None, schema: None, is_temporary: false, mode: IngestMode::Create }
    }

    fn ingest(&self) -> Option<Ingest> {
        let mode = match self.mode {
            IngestMode::Create => weft::IngestMode::Create,
            IngestMode::Append => weft::IngestMode::Append,
            IngestMode::Replace => weft::IngestMode::Replace,
            IngestMode::CreateAppend => weft::IngestMode::CreateAppend,
        };
        Some(Ingest {
            schema: self.schema.clone(),
            table: self.table.clone()?,
            is_temporary: self.is_temporary,
            mode,
        })
    }
}

impl WeftStatement {
    pub(crate) fn new(shared: Arc<Shared>) -> WeftStatement {
        let current = Current::default();
        WeftStatement { shared, sql: None, bound: None, target: Target::new(), current }
    }

    fn sql(&self) -> Result<Arc<str>> {
        self.sql.clone().ok_or_else(|| {
            of_status(
                Status::InvalidState,
                "HY010",
                "the statement has neither SQL nor a table to ingest into: set one first",
            )
        })
    }

    /// Takes bound rows into the table.
    fn ingest(&mut self, ingest: &Ingest) -> Result<u64> {
        let bound = self.bound.take().ok_or_else(|| {
            of_status(Status::InvalidState, "HY010", "no rows are bound that could be ingested")
        })?;
        let relation = bound.into_relation(false)?;
        self.shared.ensure_begun()?;
        let session = self.shared.session();
        let current = self.current.clone();
        let done = block_on(session.ingest_watched(ingest, relation, |result| current.set(result)));
        let missing = |error: &weft::Error| {
            ingest.mode == weft::IngestMode::Append
                && error.kind() == weft::ErrorKind::Semantic
                && block_on(session.table_columns(ingest.schema.as_deref(), &ingest.table)).is_err()
        };
        match done {
            Err(error) if missing(&error) => {
                Err(of_status(Status::NotFound, "42P01", error.message()))
            }
            done => done.or_adbc(),
        }
    }

    /// Inserts all rows that are bound, by a statement that reads them as a relation.
    fn insert(&self, insert: &str, bound: Bound) -> Result<Option<u64>> {
        let relations = HashMap::from([(PARAMETERS.to_owned(), bound.into_relation(true)?)]);
        let result = self.shared.session().start_with_relations(insert, relations);
        self.current.set(&result);
        finish(result)
    }

    /// Executes the statement with what is bound, up to its first rows.
    fn run(&mut self) -> Result<Executed> {
        self.current.begin();
        if let Some(ingest) = self.target.ingest() {
            return Ok(Executed::Done(Some(self.ingest(&ingest)?)));
        }
        let sql = self.sql()?;
        self.shared.ensure_begun()?;
        let session = self.shared.session();
        let Some(bound) = self.bound.take() else {
            let mut result = session.start(&sql, &[]);
            self.current.set(&result);
            result.wait_planned().or_adbc()?;
            return match result.kind() {
                ResultKind::Rows => Ok(Executed::Rows(Box::new(self.reader(result, None)))),
                ResultKind::Command { .. } => Ok(Executed::Done(finish(result)?)),
            };
        };
        if let Some(insert) = weft::insert_of_rows(&sql, PARAMETERS).or_adbc()? {
            return Ok(Executed::Done(self.insert(&insert, bound)?));
        }
        let mut bound = bound;
        let mut affected = 0;
        loop {
            self.current.check()?;
            match start_next(self.shared.session(), &sql, &mut bound, &self.current)? {
                Some(result) if result.kind() == ResultKind::Rows => {
                    return Ok(Executed::Rows(Box::new(self.reader(result, Some((sql, bound))))));
                }
                Some(result) => affected += finish(result)?.unwrap_or_default(),
                None => break,
            }
        }
        // Without any row of parameters the columns are known all the same.
        let signature = block_on(self.shared.session().signature(&sql, Vec::new())).or_adbc()?;
        Ok(match signature.columns {
            Some(columns) => Executed::Rows(Box::new(self.empty(columns))),
            None => Executed::Done(Some(affected)),
        })
    }

    fn reader(&self, result: weft::QueryResult, next: Option<(Arc<str>, Bound)>) -> WeftReader {
        WeftReader::new(result, next, self.current.clone(), Arc::clone(&self.shared))
    }

    fn empty(&self, schema: SchemaRef) -> WeftReader {
        WeftReader::empty(schema, self.current.clone(), Arc::clone(&self.shared))
    }
}

/// What an execution has come to.
enum Executed {
    /// Rows, which are still to be read.
    Rows(Box<WeftReader>),
    /// A command that has run, with the rows that it has affected, if they are known.
    Done(Option<u64>),
}

/// Cancels what a statement runs.
struct CancelCurrent(Current);

impl CancelHandle for CancelCurrent {
    fn try_cancel(&self) -> Result<()> {
        self.0.cancel();
        Ok(())
    }
}

impl Statement for WeftStatement {
    fn bind(&mut self, batch: RecordBatch) -> Result<()> {
        self.bound = Some(Bound::of_batch(batch));
        Ok(())
    }

    fn bind_stream(&mut self, reader: Box<dyn RecordBatchReader + Send>) -> Result<()> {
        self.bound = Some(Bound::of_reader(reader));
        Ok(())
    }

    fn execute(&mut self) -> Result<Box<dyn RecordBatchReader + Send + 'static>> {
        match self.run()? {
            Executed::Rows(reader) => Ok(reader),
            Executed::Done(_) => Ok(Box::new(self.empty(Arc::new(Schema::empty())))),
        }
    }

    fn execute_update(&mut self) -> Result<Option<i64>> {
        let rows = match self.run()? {
            Executed::Rows(reader) => {
                let mut rows = 0;
                for batch in reader {
                    rows += batch?.num_rows() as u64;
                }
                Some(rows)
            }
            Executed::Done(rows) => rows,
        };
        Ok(rows.map(|rows| i64::try_from(rows).unwrap_or(i64::MAX)))
    }

    fn execute_schema(&mut self) -> Result<Schema> {
        let sql = self.sql()?;
        let types = match &self.bound {
            Some(bound) => weft::bound_types(&bound.schema()),
            None => Vec::new(),
        };
        let found = block_on(self.shared.session().signature(&sql, types)).or_adbc()?;
        Ok(found.columns.map_or_else(Schema::empty, |columns| columns.as_ref().clone()))
    }

    fn execute_partitions(&mut self) -> Result<PartitionedResult> {
        not_implemented("a result in partitions")
    }

    fn get_parameter_schema(&self) -> Result<Schema> {
        let sql = self.sql()?;
        let found = block_on(self.shared.session().signature(&sql, Vec::new())).or_adbc()?;
        // Parameters have numbers, and no names.
        let field = |found: FieldRef| Field::new("", found.data_type().clone(), true);
        Ok(Schema::new(found.parameters.into_iter().map(field).collect::<Vec<_>>()))
    }

    fn prepare(&mut self) -> Result<()> {
        let sql = self.sql()?;
        block_on(self.shared.session().signature(&sql, Vec::new())).or_adbc()?;
        self.shared.session().prepare(&sql).or_adbc().map(drop)
    }

    fn set_sql_query(&mut self, query: impl AsRef<str>) -> Result<()> {
        self.sql = Some(query.as_ref().into());
        self.target = Target::new();
        self.bound = None;
        Ok(())
    }

    fn set_substrait_plan(&mut self, _: impl AsRef<[u8]>) -> Result<()> {
        not_implemented("a plan of Substrait")
    }

    fn get_cancel_handle(&self) -> Box<dyn CancelHandle> {
        Box::new(CancelCurrent(self.current.clone()))
    }
}

impl Optionable for WeftStatement {
    type Option = OptionStatement;

    fn set_option(&mut self, key: OptionStatement, value: OptionValue) -> Result<()> {
        let name = key.as_ref().to_owned();
        match key {
            OptionStatement::IngestMode => self.target.mode = IngestMode::try_from(&value)?,
            OptionStatement::TargetTable => {
                self.target.table = Some(text_of(&name, &value)?);
                self.sql = None;
            }
            OptionStatement::TargetCatalog => check_catalog(Some(&text_of(&name, &value)?))?,
            // A temporary table lies in no schema: what is said last holds.
            OptionStatement::TargetDbSchema => {
                let schema = text_of(&name, &value)?;
                self.target.schema = (!schema.is_empty()).then_some(schema);
                self.target.is_temporary &= self.target.schema.is_none();
            }
            OptionStatement::Temporary => {
                self.target.is_temporary = switch_of(&name, &value)?;
                if self.target.is_temporary {
                    self.target.schema = None;
                }
            }
            OptionStatement::Incremental => {
                if switch_of(&name, &value)? {
                    return not_implemented("incremental execution");
                }
            }
            _ => return unknown("a statement", &name),
        }
        Ok(())
    }

    fn get_option_string(&self, key: OptionStatement) -> Result<String> {
        let target = &self.target;
        match key {
            OptionStatement::IngestMode => Ok(target.mode.into()),
            OptionStatement::TargetTable if target.table.is_some() => {
                Ok(target.table.clone().unwrap_or_default())
            }
            OptionStatement::TargetDbSchema => {
                Ok(target.schema.clone().unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()))
            }
            OptionStatement::Temporary => Ok(switch_text(target.is_temporary)),
            OptionStatement::Incremental => Ok(switch_text(false)),
            other => unknown("a statement", other.as_ref()),
        }
    }

    fn get_option_bytes(&self, key: OptionStatement) -> Result<Vec<u8>> {
        bad_option(key.as_ref(), "an option that is bytes")
    }

    fn get_option_int(&self, key: OptionStatement) -> Result<i64> {
        let text = self.get_option_string(key.clone())?;
        number_of(key.as_ref(), &text)
    }

    fn get_option_double(&self, key: OptionStatement) -> Result<f64> {
        let text = self.get_option_string(key.clone())?;
        number_of(key.as_ref(), &text)
    }
}
