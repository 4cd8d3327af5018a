//! A session with a database.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use weft_rt::sync::block_on;
use weft_sql::{
    CancelHandle, Client, Parameters, Position, Relation, Result, ResultKind, SessionFunction,
    Setting, Signature, SqlError, Statement, TransactionStatus, Value,
};

use crate::complete::Completions;
use crate::database::Database;
use crate::kept::{Keep, KeptResult};
use crate::prepared::Prepared;
use crate::result::QueryResult;

/// One conversation with a database: settings, prepared statements, one statement after the other.
/// Clones are the same session.
#[derive(Clone)]
pub struct Session {
    inner: Arc<weft_sql::Session>,
    database: Database,
}

impl Session {
    pub(crate) fn new(database: &Database) -> Result<Session> {
        let inner = Arc::new(weft_sql::Session::new(database.engine())?);
        Ok(Session { inner, database: database.clone() })
    }

    /// The database of the session.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Tells the session who it is for: what functions and tables of PostgreSQL's catalog say of the connection.
    pub fn set_client(&self, client: Arc<dyn Client>) {
        self.inner.set_client(client);
    }

    /// Has the session's transactions be as PostgreSQL's are: read committed unless they say otherwise, and a statement that is to change a row
    /// which another transaction has changed waits for the end of that. Without that, transactions have one snapshot, and the first
    /// one to commit wins.
    pub fn wait_for_rows(&self) {
        self.inner.wait_for_rows();
    }

    /// Has the session act for a role that has logged in: its statements may do what the role may, and `SET ROLE` has it act for roles
    /// that the role is a member of. A session without a role may do everything.
    pub fn log_in(&self, role: &str) {
        self.inner.log_in(role);
    }

    /// Has the session act for its own role again, as `RESET ROLE` does.
    pub fn reset_role(&self) {
        self.inner.act_for(None);
    }

    /// Cuts a script into its statements.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`](crate::ErrorKind::Syntax) where a string, quoted name or comment is not
    /// closed.
    pub fn statements(&self, script: &str) -> Result<Vec<Statement>> {
        weft_sql::split_statements(script)
    }

    /// Starts one statement and waits until it is planned: then its columns are known. It runs on
    /// while its result is read; a command has run when [`QueryResult::next_batch`] returns nothing.
    ///
    /// To be called from a plain thread; [`Session::start`] is for asynchronous code.
    ///
    /// # Errors
    /// What is wrong with the statement, with a position in `sql` if it has one.
    pub fn query(&self, sql: &str) -> Result<QueryResult> {
        self.query_with(sql, Vec::new())
    }

    pub(crate) fn query_with(&self, sql: &str, parameters: Vec<Value>) -> Result<QueryResult> {
        let mut running = self.inner.start(sql, parameters);
        block_on(running.ready())?;
        Ok(QueryResult::new(running))
    }

    /// Starts one statement without waiting for anything: a syntax error, too, comes from the
    /// result. What [`Session::current`] returns cancels it even while it is being planned.
    pub fn start(&self, sql: &str, parameters: &[Value]) -> QueryResult {
        QueryResult::new(self.inner.start(sql, parameters.to_vec()))
    }

    /// Starts one statement without waiting for anything, as [`Session::start`]. Each parameter has the type that is named
    /// for it, as SQL writes it, if one is.
    pub fn start_cast(&self, sql: &str, values: &[Value], types: &[Option<String>]) -> QueryResult {
        QueryResult::new(self.inner.start_cast(sql, values, types))
    }

    /// Starts one statement without waiting for anything, as [`Session::start`], which finds a relation by a name.
    pub fn start_on(&self, sql: &str, name: &str, relation: Relation) -> QueryResult {
        let relations = HashMap::from([(name.to_owned(), relation)]);
        QueryResult::new(self.inner.start_on(sql, &Parameters::default(), relations))
    }

    /// Starts one statement without waiting for anything, as [`Session::start`], with relations of its own beside
    /// those of the session.
    pub fn start_with_relations(
        &self,
        sql: &str,
        relations: HashMap<String, Relation>,
    ) -> QueryResult {
        QueryResult::new(self.inner.start_on(sql, &Parameters::default(), relations))
    }

    /// Starts one statement without waiting for anything, as [`Session::start`], with relations of its own beside
    /// those of the session, and keeps its result as `keep` says.
    pub fn start_kept(
        &self,
        sql: &str,
        parameters: &Parameters,
        relations: HashMap<String, Relation>,
        keep: Keep,
    ) -> KeptResult {
        let result = QueryResult::new(self.inner.start_on(sql, parameters, relations));
        KeptResult::new(result, keep, self.database.temp_directory())
    }

    /// Has statements that start from now on find a relation by this name, in place of one that had it. It hides
    /// tables and views of the name, but not from views.
    pub fn register(&self, name: &str, relation: Relation) {
        self.inner.register(name, relation);
    }

    /// Has statements that start from now on find the relation no more; false if there was none of the name.
    pub fn unregister(&self, name: &str) -> bool {
        self.inner.unregister(name)
    }

    /// The relations that were registered, with their columns.
    pub fn registered(&self) -> Vec<(String, SchemaRef)> {
        self.inner.registered()
    }

    /// Adds a function for statements that start from now on, in place of one that has its name and was added so.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`](crate::ErrorKind::AlreadyExists) if it has the name of a function of Weft.
    pub fn add_function(&self, function: SessionFunction) -> Result<()> {
        self.inner.add_function(function)
    }

    /// Removes a function that was added; false if there was none of the name.
    ///
    /// # Errors
    /// None that are known.
    pub fn remove_function(&self, name: &str) -> Result<bool> {
        self.inner.remove_function(name)
    }

    /// The Arrow type that a name of SQL stands for, such as `DECIMAL(12, 2)`. To be called from a plain thread.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`](crate::ErrorKind::Syntax) and
    /// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) if there is none.
    pub fn data_type(&self, name: &str) -> Result<DataType> {
        self.inner.data_type(name)
    }

    /// True if there is a table or view of this name.
    pub fn has_relation(&self, name: &str) -> bool {
        self.inner.has_relation(name)
    }

    /// Runs one statement to its end and returns how many rows it affected; what it returns is
    /// thrown away.
    ///
    /// # Errors
    /// What is wrong with the statement, or went wrong with it.
    pub fn execute(&self, sql: &str) -> Result<u64> {
        self.query(sql)?.finish()
    }

    /// Runs all statements of a script, one after the other, and hands the result of each to `each`,
    /// which reads it (or leaves it, and so lets a command run to its end).
    ///
    /// # Errors
    /// The first one; its position is in the script. The statements before it have been run.
    pub fn execute_script(
        &self,
        script: &str,
        mut each: impl FnMut(&Statement, &mut QueryResult) -> Result<()>,
    ) -> Result<()> {
        for statement in self.statements(script)? {
            let mut run = || {
                let mut result = self.query(&statement.text)?;
                each(&statement, &mut result)?;
                match result.kind() {
                    ResultKind::Rows => Ok(()),
                    ResultKind::Command { .. } => result.finish().map(drop),
                }
            };
            run().map_err(|error| in_script(error, &statement))?;
        }
        Ok(())
    }

    /// How many statements the session has whose plans are kept: of rows by their keys, and INSERTs of a few rows, which were prepared
    /// or have run with parameters before.
    pub fn kept_statements(&self) -> usize {
        self.inner.kept_statements()
    }

    /// Prepares a statement with parameters, written `?`, or `$1`, `$2` and so on.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`](crate::ErrorKind::Syntax).
    pub fn prepare(&self, sql: &str) -> Result<Prepared> {
        let parameters = weft_sql::count_parameters(sql)?;
        self.inner.note_prepared(sql);
        Ok(Prepared::new(self.clone(), sql.to_owned(), parameters))
    }

    /// Plans a statement without running it: the types of its parameters, and its columns if it returns rows.
    /// `given` has the names of types that the caller knows of parameters, as SQL writes them.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn signature(&self, sql: &str, given: Vec<Option<String>>) -> Result<Signature> {
        self.inner.signature(sql, given).await
    }

    /// The columns that a query of plain columns of a table names, for rows that are to be inserted into these: with the right to
    /// insert into the table in place of that to read it.
    ///
    /// # Errors
    /// What is wrong with the query.
    pub async fn columns_to_insert(&self, sql: &str) -> Result<Option<SchemaRef>> {
        self.inner.columns_to_insert(sql).await
    }

    /// Whether the session has a transaction.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.inner.transaction_status()
    }

    /// Rolls the session's transaction back, if it has one, whatever its state.
    pub fn roll_back(&self) {
        self.inner.roll_back();
    }

    /// The statement that was started last, to be cancelled.
    pub fn current(&self) -> Option<CancelHandle> {
        self.inner.current()
    }

    /// Cancels the statement that was started last, if it still runs.
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// Weft's settings with this session's values, then DataFusion's.
    pub fn settings(&self) -> Vec<Setting> {
        self.inner.settings()
    }

    /// The names that can be completed.
    pub fn completions(&self) -> Completions {
        Completions {
            tables: self.inner.relations(),
            functions: self.inner.functions(),
            settings: self.settings().into_iter().map(|setting| setting.name).collect(),
        }
    }

    /// The names of the tables and views, in order.
    pub fn tables(&self) -> Vec<String> {
        self.inner.relations().into_iter().map(|(name, _)| name).collect()
    }

    /// The names of a table's or view's columns; none if it does not exist.
    pub fn columns(&self, table: &str) -> Vec<String> {
        let mut relations = self.inner.relations().into_iter();
        relations.find(|(name, _)| name == table).map(|(_, columns)| columns).unwrap_or_default()
    }

    /// The names of all functions, in order.
    pub fn functions(&self) -> Vec<String> {
        self.inner.functions()
    }
}

/// The error with its position in the script rather than in the statement.
fn in_script(error: SqlError, statement: &Statement) -> SqlError {
    let start = statement.position;
    let Some(Position { line, column }) = error.position() else {
        return error.with_position(start);
    };
    let column = if line == 1 { start.column + column - 1 } else { column };
    error.with_position(Position { line: start.line + line - 1, column })
}
