//! One connection: what a client asks, by the simple protocol (texts of statements) and by the extended one
//! (statements that are parsed, bound and executed in steps).
//!
//! Each statement commits by itself, but between BEGIN and COMMIT: the session has a transaction then, and the status that
//! clients are told of is the session's, or that of an error that the session has not seen.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use futures::{Sink, SinkExt, Stream, StreamExt, stream};
use pgwire::api::auth::mechanism::AuthMechanismFactory;
use pgwire::api::auth::{
    self, AuthDriver, AuthOutcome, DefaultServerParameterProvider, StartupHandler,
};
use pgwire::api::copy::{CopyHandler, send_copy_in_response};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler, send_ready_for_query};
use pgwire::api::results::{CopyResponse, FieldFormat, FieldInfo, QueryResponse, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::PortalStore;
use pgwire::api::{
    ClientInfo, ClientPortalStore, PgWireConnectionState, PidSecretKeyGenerator, Type,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail, CopyOutResponse};
use pgwire::messages::data::{DataRow, RowDescription};
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, TransactionStatus};
use pgwire::messages::simplequery::Query;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio::sync::Notify;
use tokio::time::Instant;
use weft::{
    CLIENT_ROWS, CopyStream, POSTGRES_VERSION, Position, QueryResult, Relation, ResultKind,
    Session, StreamFormat, Value,
};

use crate::commands::{self, Command};
use crate::copy_channel;
use crate::copy_in::{self, ClientRows};
use crate::copy_out;
use crate::encode::{self, too_many_columns};
use crate::error::{error, from_weft};
use crate::parameters;
use crate::server::{Registration, Shared};
use crate::state::{Busy, ClientState};
use crate::types::{cast_name, sql_name, wire_type_of};

/// What the handlers of one connection share.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    /// The session, from the start-up message on.
    session: OnceLock<Session>,
    /// Keeps the connection's place among the permitted connections, and its key for cancel requests.
    registration: OnceLock<Registration>,
    /// What the server tells of the connection, from then on.
    state: OnceLock<Arc<ClientState>>,
    /// Ends the connection.
    ended: Arc<Notify>,
    /// The COPY from the client that goes on.
    copying: tokio::sync::Mutex<Option<Copying>>,
    /// An error was answered since the transaction began, or since it went on from a savepoint: it has failed, also if the session
    /// knows nothing of that error.
    has_failed: AtomicBool,
}

/// A COPY from the client.
struct Copying {
    /// The statement that takes its rows.
    result: QueryResult,
    /// Where its messages go.
    sender: copy_channel::Sender,
    deadline: Option<Instant>,
    _busy: Busy,
}

/// A statement of the extended protocol.
#[derive(Debug)]
pub(crate) struct Prepared {
    sql: Arc<str>,
    command: Option<Command>,
    copy: Option<CopyStream>,
    /// The types of the parameters, from `$1` on.
    parameters: Vec<Type>,
    /// The columns of the result; `None` for a command.
    columns: Option<SchemaRef>,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, ended: Arc<Notify>) -> Connection {
        Connection {
            shared,
            session: OnceLock::new(),
            registration: OnceLock::new(),
            state: OnceLock::new(),
            ended,
            copying: tokio::sync::Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The state of the connection's transaction, which each ReadyForQuery tells and by which statements are refused. All other
    /// places follow this one: what `pgwire` keeps is set to it before each message and after each error.
    pub(crate) fn transaction_status(&self) -> TransactionStatus {
        let (Some(session), Some(state)) = (self.session.get(), self.state.get()) else {
            return TransactionStatus::Idle;
        };
        let status = match session.transaction_status() {
            weft::TransactionStatus::Idle => TransactionStatus::Idle,
            weft::TransactionStatus::InTransaction if self.has_failed.load(Ordering::Relaxed) => {
                TransactionStatus::Error
            }
            weft::TransactionStatus::InTransaction => TransactionStatus::Transaction,
            weft::TransactionStatus::Failed => TransactionStatus::Error,
        };
        state.set_transaction(status);
        status
    }

    /// Notes that a statement, or a message, was answered with an error: a transaction has failed then, and a COPY from the client
    /// is over.
    pub(crate) async fn note_failure(&self) {
        self.forget_copy().await;
        self.has_failed.store(true, Ordering::Relaxed);
    }

    fn session(&self) -> PgWireResult<&Session> {
        self.session.get().ok_or_else(|| error("08P01", "the connection has not been started"))
    }

    fn state(&self) -> PgWireResult<&Arc<ClientState>> {
        self.state.get().ok_or_else(|| error("08P01", "the connection has not been started"))
    }

    /// When a statement that begins now has to be done.
    fn deadline(&self) -> PgWireResult<Option<Instant>> {
        let limit = self.state()?.with_settings(|settings| settings.statement_timeout());
        Ok(limit.map(|limit| Instant::now() + limit))
    }

    /// Refuses statements that the state of the transaction does not permit.
    fn check_state(&self, command: Option<&Command>, sql: &str) -> PgWireResult<()> {
        match (self.transaction_status(), command) {
            (_, Some(Command::Commit | Command::Rollback)) => Ok(()),
            (TransactionStatus::Error, None) if is_rollback_to(sql) => Ok(()),
            (TransactionStatus::Error, _) => Err(error(
                "25P02",
                "the transaction has failed: statements are ignored until ROLLBACK",
            )),
            (TransactionStatus::Idle | TransactionStatus::Transaction, _) => Ok(()),
        }
    }

    /// Runs a statement about transactions in the session.
    async fn run_in_session(&self, sql: &str) -> PgWireResult<()> {
        let placed = |error: weft::Error| from_weft(&error, sql, None);
        let result = self.start(sql, &[], None).await?.map_err(placed)?;
        finish(result, None).await?.map(drop).map_err(placed)
    }

    /// Notes what has been done: the transaction goes on from a savepoint, whatever was answered with an error before.
    fn note_done(&self, sql: &str) {
        if is_rollback_to(sql) {
            self.has_failed.store(false, Ordering::Relaxed);
        }
    }

    /// Runs a command that concerns the connection, written as `sql`. Returns its tag, and the value of SHOW.
    async fn run_command(
        &self,
        command: &Command,
        sql: &str,
    ) -> PgWireResult<(&'static str, Option<String>)> {
        let state = self.state()?;
        let status = self.transaction_status();
        Ok(match command {
            // What PostgreSQL warns of is no error: a transaction within one, and the end of none.
            Command::Begin => {
                if status == TransactionStatus::Idle {
                    self.has_failed.store(false, Ordering::Relaxed);
                    self.run_in_session(sql).await?;
                }
                ("BEGIN", None)
            }
            Command::Commit if status == TransactionStatus::Transaction => {
                self.run_in_session(sql).await?;
                ("COMMIT", None)
            }
            Command::Commit if status == TransactionStatus::Idle => ("COMMIT", None),
            Command::Commit | Command::Rollback => {
                self.session()?.roll_back();
                ("ROLLBACK", None)
            }
            Command::Set { name, value, is_local } => {
                let is_within = status != TransactionStatus::Idle;
                state.with_settings(|settings| match (*is_local, is_within) {
                    (false, _) => settings.set(name, value),
                    (true, true) => settings.set_local(name, value),
                    // PostgreSQL warns, and sets nothing.
                    (true, false) => Ok(()),
                })?;
                if let Some(sql) = commands::modes_of_transactions(name, value, sql, is_within) {
                    self.run_in_session(&sql).await?;
                }
                ("SET", None)
            }
            Command::Reset { name } => {
                state.with_settings(|settings| settings.reset(Some(name)));
                ("RESET", None)
            }
            Command::Show { name } => {
                let value = state.with_settings(|settings| settings.get(name).to_owned());
                ("SHOW", Some(value))
            }
            Command::Discard { tag } => {
                if *tag == "DISCARD ALL" {
                    self.session()?.reset_role();
                    state.with_settings(|settings| settings.reset(None));
                }
                (*tag, None)
            }
        })
    }

    /// Starts a statement and waits until it is planned.
    async fn start(
        &self,
        sql: &str,
        values: &[Value],
        deadline: Option<Instant>,
    ) -> PgWireResult<weft::Result<QueryResult>> {
        let mut result = self.session()?.start(sql, values);
        let ready = before(deadline, result.ready()).await?;
        Ok(ready.map(|()| result))
    }
}

/// True of `ROLLBACK TO savepoint`.
fn is_rollback_to(sql: &str) -> bool {
    let mut words = sql.split_whitespace().map(str::to_ascii_lowercase);
    let is_rollback = words.next().is_some_and(|word| word == "rollback" || word == "abort");
    is_rollback && words.take(2).any(|word| word == "to")
}

/// What a future gives, if it does so before the deadline.
///
/// # Errors
/// SQLSTATE 57014 after the deadline; the future is dropped then, and with it its statement.
async fn before<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> PgWireResult<T> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline, work)
            .await
            .map_err(|_| error("57014", "canceling statement due to statement timeout")),
    }
}

/// The rows of a stream until the deadline.
fn until<T: Send + 'static>(
    deadline: Option<Instant>,
    rows: impl Stream<Item = PgWireResult<T>> + Send + 'static,
) -> impl Stream<Item = PgWireResult<T>> + Send {
    stream::unfold(Some(Box::pin(rows)), move |rows| async move {
        let mut rows = rows?;
        match before(deadline, rows.next()).await {
            Ok(row) => row.map(|row| (row, Some(rows))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

/// The rows of a stream, with a statement that goes on until they have come.
fn held<T: Send + 'static>(
    busy: Busy,
    rows: impl Stream<Item = T> + Send + 'static,
) -> impl Stream<Item = T> + Send {
    stream::unfold((busy, Box::pin(rows)), |(busy, mut rows)| async move {
        let row = rows.next().await?;
        Some((row, (busy, rows)))
    })
}

/// Runs a command to its end and returns its tag, with the rows that it affected.
async fn finish(
    mut result: QueryResult,
    deadline: Option<Instant>,
) -> PgWireResult<weft::Result<Tag>> {
    while let Some(batch) = before(deadline, result.next()).await? {
        if let Err(error) = batch {
            return Ok(Err(error));
        }
    }
    let ResultKind::Command { tag, rows_affected } = result.kind() else {
        return Ok(Ok(Tag::new("SELECT")));
    };
    let rows = rows_affected.and_then(|rows| usize::try_from(rows).ok());
    Ok(Ok(match rows {
        // The number between is an object id, which rows do not have.
        Some(rows) if tag == "INSERT" => Tag::new("INSERT 0").with_rows(rows),
        Some(rows) if tag == "CREATE TABLE" => Tag::new("SELECT").with_rows(rows),
        Some(rows) => Tag::new(tag).with_rows(rows),
        None => Tag::new(tag),
    }))
}

/// The tag of a statement that returned rows: SHOW and EXPLAIN do not count them.
fn tag_of_rows(sql: &str) -> &'static str {
    let word = sql.split_whitespace().next().unwrap_or_default();
    match word.to_ascii_lowercase().as_str() {
        "show" => "SHOW",
        "explain" => "EXPLAIN",
        // With RETURNING. The number of an object, always 0, comes before that of rows.
        "insert" => "INSERT 0",
        "update" => "UPDATE",
        "delete" => "DELETE",
        "merge" => "MERGE",
        _ => "SELECT",
    }
}

/// The column of SHOW.
fn shown(name: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8, false)]))
}

fn text_row(value: &str) -> PgWireResult<DataRow> {
    let length = i32::try_from(value.len()).map_err(|_| error("54000", "a setting is too long"))?;
    let mut bytes = bytes::BytesMut::new();
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(value.as_bytes());
    Ok(DataRow::new(bytes, 1))
}

fn fields_of(schema: &SchemaRef, format: &Format) -> PgWireResult<Arc<Vec<FieldInfo>>> {
    columns_of(schema)?;
    Ok(Arc::new(encode::fields(schema, format)))
}

/// The number of columns, if the protocol can count them.
fn columns_of(schema: &SchemaRef) -> PgWireResult<i16> {
    let count = schema.fields().len();
    i16::try_from(count).map_err(|_| too_many_columns(count))
}

#[async_trait]
impl StartupHandler for Connection {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let driver: AuthDriver<DefaultServerParameterProvider> =
            AuthDriver::new(DefaultServerParameterProvider::default());
        // A client who has said the password of a role acts for the role.
        let has_password = matches!(message, PgWireFrontendMessage::PasswordMessageFamily(_));
        let outcome = match message {
            PgWireFrontendMessage::Startup(startup) => {
                auth::protocol_negotiation(client, &startup).await?;
                auth::save_startup_parameters_to_metadata(client, &startup);
                match self.shared.demands_password() {
                    true => {
                        let mechanism = self.shared.scram.create();
                        driver.begin_authentication(client, mechanism).await?
                    }
                    false => AuthOutcome::Authenticated { identity: None, final_message: None },
                }
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => {
                let advanced = driver.advance_authentication(client, message).await;
                advanced.map_err(|error| match error {
                    PgWireError::InvalidPassword(_) => refused(client),
                    other => other,
                })?
            }
            _ => return Ok(()),
        };
        let AuthOutcome::Authenticated { final_message, .. } = outcome else { return Ok(()) };
        if let Some(message) = final_message {
            client.send(PgWireBackendMessage::Authentication(message)).await?;
        }
        self.admit(client, has_password).await?;
        auth::finish_authentication(client, &self.parameters_of_server()?).await
    }
}

impl Connection {
    /// Takes a client in that is who it says: a role that has said its password, or anybody where there are no roles.
    async fn admit<C>(&self, client: &mut C, has_password: bool) -> PgWireResult<()>
    where
        C: ClientInfo + Send,
    {
        let (pid, key) = self.shared.keys.generate(client);
        client.set_pid_and_secret_key(pid, key.clone());
        let session =
            self.shared.database.session().map_err(|error| fatal("58000", error.message()))?;
        let user = client.metadata().get("user").cloned().unwrap_or_else(|| "weft".to_owned());
        let is_superuser = self.shared.is_superuser(&user);
        let (ended, shared) = (Arc::clone(&self.ended), Arc::clone(&self.shared));
        let state = ClientState::new(pid, user.clone(), client.socket_addr(), ended, shared);
        let state = Arc::new(state);
        state.with_settings(|settings| {
            settings.tell("session_authorization", &user);
            settings.tell("is_superuser", if is_superuser { "on" } else { "off" });
            settings.tell("ssl", if client.is_secure() { "on" } else { "off" });
        });
        session.set_client(Arc::clone(&state) as Arc<dyn weft::Client>);
        session.wait_for_rows();
        if has_password {
            session.log_in(&user);
        }
        let Some(registration) = self.shared.register(&key, Arc::new(session.clone()), &state)
        else {
            return Err(fatal("53300", "sorry, too many clients already"));
        };
        // A second start-up message would come after this one was answered; it finds the first session.
        let session = self.session.get_or_init(|| session);
        self.registration.get_or_init(|| registration);
        let state = self.state.get_or_init(|| state);
        let told: Vec<(String, String)> =
            client.metadata().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        for (name, value) in told {
            if let Some(name) = commands::known(&name) {
                // Drivers send settings that the server does not have; the client is told of the settings that the server has.
                state.with_settings(|settings| settings.set(&name, &value)).map_err(as_fatal)?;
            } else if name.eq_ignore_ascii_case("timezone") {
                let set = format!("SET timezone = '{}'", value.replace('\'', "''"));
                let mut result = session.start(&set, &[]);
                if result.ready().await.is_ok() {
                    while result.next().await.is_some() {}
                }
            }
        }
        Ok(())
    }

    /// What clients are told of the server when they connect.
    fn parameters_of_server(&self) -> PgWireResult<DefaultServerParameterProvider> {
        let mut parameters = DefaultServerParameterProvider::default();
        parameters.server_version =
            format!("{POSTGRES_VERSION} (Weft {})", env!("CARGO_PKG_VERSION"));
        parameters.search_path = "main".to_owned();
        parameters.time_zone = "UTC".to_owned();
        parameters.date_style = "ISO, YMD".to_owned();
        parameters.is_superuser = self.shared.is_superuser(&self.state()?.user);
        Ok(parameters)
    }
}

/// The password of a client is wrong, or there is no such user.
fn refused(client: &impl ClientInfo) -> PgWireError {
    let user = client.metadata().get("user").map_or("", String::as_str);
    fatal("28P01", &format!("password authentication failed for user {}", weft::quoted(user)))
}

/// An error that ends the connection.
pub(crate) fn fatal(sqlstate: &str, message: &str) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new(
        "FATAL".to_owned(),
        sqlstate.to_owned(),
        message.to_owned(),
    )))
}

/// An error as one that ends the connection.
pub(crate) fn as_fatal(error: PgWireError) -> PgWireError {
    match error {
        PgWireError::UserError(info) => fatal(&info.code, &info.message),
        PgWireError::IoError(error) => PgWireError::IoError(error),
        other => fatal(other.code(), &other.to_string()),
    }
}

#[async_trait]
impl SimpleQueryHandler for Connection {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        self.run_script(client, &query.query).await?;
        if self.copying.lock().await.is_some() {
            client.set_state(PgWireConnectionState::CopyInProgress(false));
            return Ok(());
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        send_ready_for_query(client, self.transaction_status()).await
    }

    async fn do_query<C>(&self, _client: &mut C, _query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(error("XX000", "statements of a text are run one after the other"))
    }
}

impl Connection {
    /// Runs the statements of a text one after the other, up to the first error.
    async fn run_script<C>(&self, client: &mut C, script: &str) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.forget_copy().await;
        let statements =
            weft::split_statements(script).map_err(|error| from_weft(&error, script, None))?;
        if statements.is_empty() {
            client
                .feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))
                .await?;
        }
        let count = statements.len();
        for (number, statement) in statements.into_iter().enumerate() {
            let busy = self.state()?.begin(&statement.text);
            let command = commands::parse(&statement.text);
            let start = statement.position;
            let copy = weft::copy_stream(&statement.text)
                .map_err(|error| from_weft(&error, script, Some(start)))?;
            self.check_state(command.as_ref(), &statement.text)?;
            match (command, copy) {
                (Some(command), _) => {
                    self.answer_command(client, &command, &statement.text).await?;
                }
                (None, Some(copy)) if copy.is_from_client => {
                    if number + 1 < count {
                        return Err(error(
                            "0A000",
                            "COPY FROM STDIN must be the last statement of a text",
                        ));
                    }
                    let response = self.begin_copy(copy, busy).await?;
                    send_copy_in_response(client, response).await?;
                }
                (None, Some(copy)) => self.answer_copy(client, copy).await?,
                (None, None) => {
                    self.answer_statement(client, script, &statement.text, start).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends the rows of a COPY.
    async fn answer_copy<C>(&self, client: &mut C, copy: CopyStream) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let deadline = self.deadline()?;
        let placed = |error: weft::Error| from_weft(&error, "", None);
        let result = self.start(&copy.query, &[], deadline).await?.map_err(placed)?;
        let schema = result.schema();
        let format = i16::from(copy.format == StreamFormat::Binary);
        let columns = columns_of(&schema)?;
        let formats = vec![format; schema.fields().len()];
        let response = CopyOutResponse::new(format as i8, columns, formats);
        client.feed(PgWireBackendMessage::CopyOutResponse(response)).await?;
        let mut header = copy_out::header(&copy, &schema);
        // Clients expect that of the binary format in front of the first row, and that of texts by itself.
        if let Some(line) = header.take_if(|_| copy.format != StreamFormat::Binary) {
            client.feed(PgWireBackendMessage::CopyData(line)).await?;
        }
        let copy = Arc::new(copy);
        let rows = copy_out::rows(result, Arc::clone(&copy));
        let mut rows = std::pin::pin!(until(deadline, rows));
        let mut count = 0;
        while let Some(row) = rows.next().await {
            let row = copy_out::joined(header.take(), row?);
            client.feed(PgWireBackendMessage::CopyData(row)).await?;
            count += 1;
        }
        if let Some(trailer) = copy_out::trailer(&copy) {
            let trailer = copy_out::joined(header, trailer);
            client.feed(PgWireBackendMessage::CopyData(trailer)).await?;
        }
        client.feed(PgWireBackendMessage::CopyDone(CopyDone::new())).await?;
        complete(client, Tag::new("COPY").with_rows(count)).await
    }

    /// Drops a COPY from the client that has not come to its end.
    async fn forget_copy(&self) {
        *self.copying.lock().await = None;
    }

    /// Begins a COPY from the client: its rows come next.
    async fn begin_copy(&self, copy: CopyStream, busy: Busy) -> PgWireResult<CopyResponse> {
        let placed = |error: weft::Error| from_weft(&error, "", None);
        let session = self.session()?;
        let deadline = self.deadline()?;
        let found = session.columns_to_insert(&copy.query).await.map_err(placed)?;
        let schema = found.ok_or_else(|| error("XX000", "a table has no columns"))?;
        columns_of(&schema)?;
        let insert = copy.insert.replacen("{}", &copy_in::columns(&schema), 1);
        let format = i8::from(copy.format == StreamFormat::Binary);
        let (sender, rows) = ClientRows::new(copy, &schema).map_err(placed)?;
        let relation = Relation::of_source(Arc::new(rows)).map_err(placed)?;
        let mut result = session.start_on(&insert, CLIENT_ROWS, relation);
        before(deadline, result.ready()).await?.map_err(placed)?;
        *self.copying.lock().await = Some(Copying { sender, result, deadline, _busy: busy });
        Ok(CopyResponse::new(format, schema.fields().len(), stream::empty()))
    }

    async fn answer_command<C>(
        &self,
        client: &mut C,
        command: &Command,
        sql: &str,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let (tag, value) = self.run_command(command, sql).await?;
        if let (Some(value), Command::Show { name }) = (value, command) {
            let fields = encode::fields(&shown(name), &Format::UnifiedText);
            describe(client, &fields).await?;
            client.feed(PgWireBackendMessage::DataRow(text_row(&value)?)).await?;
        }
        complete(client, Tag::new(tag)).await
    }

    async fn answer_statement<C>(
        &self,
        client: &mut C,
        script: &str,
        sql: &str,
        start: Position,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let deadline = self.deadline()?;
        let placed = |error: weft::Error| from_weft(&error, script, Some(start));
        let result = self.start(sql, &[], deadline).await?.map_err(placed)?;
        if result.kind() != ResultKind::Rows {
            let tag = finish(result, deadline).await?.map_err(placed)?;
            self.note_done(sql);
            return complete(client, tag).await;
        }
        let fields = fields_of(&result.schema(), &Format::UnifiedText)?;
        describe(client, &fields).await?;
        let rows = encode::rows(result, fields, script.into());
        let mut rows = std::pin::pin!(until(deadline, rows));
        let mut count = 0;
        while let Some(row) = rows.next().await {
            client.feed(PgWireBackendMessage::DataRow(row?)).await?;
            count += 1;
        }
        complete(
            client,
            match tag_of_rows(sql) {
                other @ ("SHOW" | "EXPLAIN") => Tag::new(other),
                counted => Tag::new(counted).with_rows(count),
            },
        )
        .await
    }
}

async fn describe<C>(client: &mut C, fields: &[FieldInfo]) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let description = RowDescription::new(fields.iter().map(Into::into).collect());
    Ok(client.feed(PgWireBackendMessage::RowDescription(description)).await?)
}

async fn complete<C>(client: &mut C, tag: Tag) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let complete: CommandComplete = tag.into();
    Ok(client.feed(PgWireBackendMessage::CommandComplete(complete)).await?)
}

/// The extended protocol of a connection.
pub(crate) struct Extended(pub(crate) Arc<Connection>);

/// Describes statements by planning them.
pub(crate) struct Parser(Arc<Connection>);

#[async_trait]
impl QueryParser for Parser {
    type Statement = Arc<Prepared>;

    async fn parse_sql<C>(
        &self,
        _client: &C,
        sql: &str,
        types: &[Option<Type>],
    ) -> PgWireResult<Option<Arc<Prepared>>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let placed = |error: weft::Error| from_weft(&error, sql, None);
        if weft::split_statements(sql).map_err(placed)?.is_empty() {
            return Ok(None);
        }
        if let Some(command) = commands::parse(sql) {
            let columns = match &command {
                Command::Show { name } => Some(shown(name)),
                _ => None,
            };
            let sql = sql.into();
            let command = Some(command);
            let (copy, parameters) = (None, Vec::new());
            return Ok(Some(Arc::new(Prepared { sql, command, copy, parameters, columns })));
        }
        if let Some(copy) = weft::copy_stream(sql).map_err(placed)? {
            let (command, copy, sql) = (None, Some(copy), sql.into());
            let (parameters, columns) = (Vec::new(), None);
            return Ok(Some(Arc::new(Prepared { sql, command, copy, parameters, columns })));
        }
        let given = |wire: &Option<Type>| wire.as_ref().and_then(sql_name);
        let names: Vec<_> = types.iter().map(given).collect();
        let found = self.0.session()?.signature(sql, names).await.map_err(placed)?;
        let parameters = found
            .parameters
            .iter()
            .enumerate()
            .map(|(number, inferred)| match types.get(number).cloned().flatten() {
                Some(wire) if wire != Type::UNKNOWN => wire,
                _ => wire_type_of(inferred),
            })
            .collect();
        let columns = found.columns;
        let (command, copy) = (None, None);
        Ok(Some(Arc::new(Prepared { sql: sql.into(), command, copy, parameters, columns })))
    }

    fn get_parameter_types(&self, statement: &Arc<Prepared>) -> PgWireResult<Vec<Type>> {
        Ok(statement.parameters.clone())
    }

    fn get_result_schema(
        &self,
        statement: &Arc<Prepared>,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        match &statement.columns {
            Some(columns) => {
                let fields = fields_of(columns, format.unwrap_or(&Format::UnifiedText))?;
                Ok(fields.as_ref().clone())
            }
            None => Ok(Vec::new()),
        }
    }
}

#[async_trait]
impl ExtendedQueryHandler for Extended {
    type Statement = Arc<Prepared>;
    type QueryParser = Parser;

    fn query_parser(&self) -> Arc<Parser> {
        Arc::new(Parser(Arc::clone(&self.0)))
    }

    async fn do_query<C>(
        &self,
        _client: &mut C,
        portal: &Portal<Arc<Prepared>>,
        _max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &portal.statement.statement;
        self.0.check_state(prepared.command.as_ref(), &prepared.sql)?;
        self.0.forget_copy().await;
        let busy = self.0.state()?.begin(&prepared.sql);
        if let Some(command) = &prepared.command {
            return self.run_command(command, &prepared.sql, portal).await;
        }
        if let Some(copy) = &prepared.copy {
            return self.run_copy(copy.clone(), busy).await;
        }
        let values = bound_values(prepared, portal)?;
        let deadline = self.0.deadline()?;
        let placed = |error: weft::Error| from_weft(&error, &prepared.sql, None);
        // The client was told of columns that have these types.
        let types: Vec<_> = prepared.parameters.iter().map(cast_name).collect();
        let mut result = self.0.session()?.start_cast(&prepared.sql, &values, &types);
        before(deadline, result.ready()).await?.map_err(placed)?;
        if result.kind() != ResultKind::Rows {
            let tag = finish(result, deadline).await?.map_err(placed)?;
            self.0.note_done(&prepared.sql);
            return Ok(Response::Execution(tag));
        }
        let fields = fields_of(&result.schema(), &portal.result_column_format)?;
        let rows = encode::rows(result, Arc::clone(&fields), Arc::clone(&prepared.sql));
        let mut response = QueryResponse::new(fields, held(busy, until(deadline, rows)));
        response.set_command_tag(tag_of_rows(&prepared.sql));
        Ok(Response::Query(response))
    }
}

impl Extended {
    /// Begins a COPY.
    async fn run_copy(&self, copy: CopyStream, busy: Busy) -> PgWireResult<Response> {
        if copy.is_from_client {
            return Ok(Response::CopyIn(self.0.begin_copy(copy, busy).await?));
        }
        let deadline = self.0.deadline()?;
        let placed = |error: weft::Error| from_weft(&error, "", None);
        let result = self.0.start(&copy.query, &[], deadline).await?.map_err(placed)?;
        let schema = result.schema();
        columns_of(&schema)?;
        let format = i8::from(copy.format == StreamFormat::Binary);
        let header = stream::iter(copy_out::header(&copy, &schema).map(Ok));
        let rows = copy_out::rows(result, Arc::new(copy));
        let rows = header.chain(held(busy, until(deadline, rows)));
        Ok(Response::CopyOut(CopyResponse::new(format, schema.fields().len(), rows)))
    }

    async fn run_command(
        &self,
        command: &Command,
        sql: &str,
        portal: &Portal<Arc<Prepared>>,
    ) -> PgWireResult<Response> {
        let (tag, value) = self.0.run_command(command, sql).await?;
        let tag = Tag::new(tag);
        Ok(match (command, value) {
            (Command::Begin, _) => Response::TransactionStart(tag),
            (Command::Commit | Command::Rollback, _) => Response::TransactionEnd(tag),
            (Command::Show { name }, Some(value)) => {
                let fields = fields_of(&shown(name), &portal.result_column_format)?;
                let row = text_row(&value);
                let mut response = QueryResponse::new(fields, stream::iter([row]));
                response.set_command_tag("SHOW");
                Response::Query(response)
            }
            _ => Response::Execution(tag),
        })
    }
}

/// The values that a client bound to the parameters.
fn bound_values(prepared: &Prepared, portal: &Portal<Arc<Prepared>>) -> PgWireResult<Vec<Value>> {
    let (wanted, given) = (prepared.parameters.len(), portal.parameters.len());
    if wanted != given {
        return Err(error(
            "08P01",
            format!("the statement has {wanted} parameters, but {given} values were bound"),
        ));
    }
    let is_binary = |number: usize| match &portal.parameter_format {
        Format::UnifiedText => false,
        Format::UnifiedBinary => true,
        Format::Individual(codes) => {
            codes.get(number).is_some_and(|code| FieldFormat::from(*code) == FieldFormat::Binary)
        }
    };
    let values = prepared.parameters.iter().zip(&portal.parameters).enumerate();
    values
        .map(|(number, (wire, bytes))| parameters::value(wire, bytes.as_deref(), is_binary(number)))
        .collect()
}

#[async_trait]
impl CopyHandler for Connection {
    async fn on_copy_data<C>(&self, _: &mut C, data: CopyData) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let mut copying = self.copying.lock().await;
        let Some(copy) = copying.as_mut() else { return Ok(()) };
        let sent = before(copy.deadline, copy.sender.data(data.data)).await;
        if sent.is_err() {
            *copying = None;
        }
        sent
    }

    async fn on_copy_done<C>(&self, client: &mut C, _: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Some(copy) = self.copying.lock().await.take() else {
            return Err(error("08P01", "there is no COPY that could be done"));
        };
        let Copying { sender, mut result, deadline, _busy } = copy;
        before(deadline, sender.end()).await?;
        while let Some(batch) = before(deadline, result.next()).await? {
            batch.map_err(|error| from_weft(&error, "", None))?;
        }
        let rows = match result.kind() {
            ResultKind::Command { rows_affected, .. } => rows_affected.unwrap_or_default(),
            ResultKind::Rows => 0,
        };
        complete(client, Tag::new("COPY").with_rows(usize::try_from(rows).unwrap_or(usize::MAX)))
            .await
    }

    async fn on_copy_fail<C>(&self, _: &mut C, fail: CopyFail) -> PgWireError
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if let Some(Copying { sender, mut result, .. }) = self.copying.lock().await.take() {
            // It matters only that the statement does not end well.
            sender.fail(fail.message.clone()).await;
            while result.next().await.is_some() {}
        }
        error("57014", format!("COPY from stdin failed: {}", fail.message))
    }
}

impl Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
