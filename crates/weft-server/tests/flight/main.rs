//! A server as clients of Arrow Flight SQL meet it, by the client of `arrow-flight`.

mod access;
mod hostile;
mod ingest;
mod metadata;
#[path = "../noise/mod.rs"]
mod noise;
mod statements;
mod transactions;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightInfo, Ticket};
use futures::TryStreamExt;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Status};
use weft::{Database, DatabaseOptions};
use weft_server::{Server, ServerOptions};

type Client = FlightSqlServiceClient<Channel>;

/// A query that does not end by itself.
const LONG: &str = "SELECT count(*) FROM generate_series(1, 1000000000000) AS v(i) WHERE i % 7 = 3";

/// A query of more rows than memory holds, which come one by one.
const MANY: &str = "SELECT * FROM generate_series(1, 50000000) AS v(i)";

/// How many clients have running statements, apart from the client that asks.
const ACTIVE: &str = "SELECT count(*) FROM pg_stat_activity \
                      WHERE state = 'active' AND query NOT LIKE '%pg_stat_activity%'";

fn server_with(connections_max: usize) -> (Database, Server) {
    let options = DatabaseOptions::default().with("memory_limit", "256MB").with("threads", 2);
    let database = Database::in_memory(&options).expect("a database opens");
    let server = serve(&database, connections_max);
    (database, server)
}

fn serve(database: &Database, connections_max: usize) -> Server {
    let any = "127.0.0.1:0".parse().expect("an address");
    let options = ServerOptions { listen: any, flight: Some(any), connections_max, tls: None };
    Server::start(database, &options).expect("two ports are free")
}

async fn channel(server: &Server) -> Channel {
    let address = server.flight_address().expect("Flight SQL is served");
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("it connects")
}

async fn connect(server: &Server) -> Client {
    Client::new(channel(server).await)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    Runtime::new().expect("threads start").block_on(work)
}

/// Runs a test with a server and one client of it.
fn with_client<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let (_database, server) = server_with(10);
    block_on(async { test(connect(&server).await).await });
}

fn ticket(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().expect("a ticket")
}

/// The rows that an info leads to.
async fn get(client: &mut Client, info: &FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    client.do_get(ticket(info)).await?.try_collect().await
}

async fn query(client: &mut Client, sql: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(sql.to_owned(), None).await?;
    get(client, &info).await
}

async fn update(client: &mut Client, sql: &str) -> i64 {
    let updated = client.execute_update(sql.to_owned(), None).await;
    updated.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The only value of a query, a number.
async fn number(client: &mut Client, sql: &str) -> i64 {
    let batches = query(client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// The values of batches as text, with NULL as nothing.
fn texts(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("a text"))
            .collect();
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()),
        );
    }
    rows
}

fn told(info: &FlightInfo) -> Schema {
    info.clone().try_decode_schema().expect("a schema")
}

/// The error of a call, with its SQLSTATE.
#[track_caller]
fn refused<T>(result: Result<T, FlightError>) -> (Code, String) {
    let status = match result {
        Err(FlightError::Tonic(status)) => *status,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it was not refused"),
    };
    (status.code(), sqlstate(&status))
}

fn sqlstate(status: &Status) -> String {
    let found = status.metadata().get("sqlstate").and_then(|value| value.to_str().ok());
    found.unwrap_or_default().to_owned()
}
