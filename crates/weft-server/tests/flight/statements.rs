//! Queries, statements without rows, prepared statements, tickets and cancelling.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_flight::sql::{ProstMessageExt, TicketStatementQuery};
use arrow_flight::{Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Ticket};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::Code;

use super::*;

#[test]
fn batches_have_the_columns_that_were_told() {
    with_client(|mut client| async move {
        update(&mut client, "CREATE TABLE t (i BIGINT PRIMARY KEY, s VARCHAR NOT NULL)").await;
        update(&mut client, "INSERT INTO t VALUES (1, 'one')").await;
        for sql in [
            "SELECT current_user",
            "SELECT * FROM t",
            "SELECT i + 1 AS j, s || 'x' AS s, count(*) OVER () AS n FROM t",
            "SELECT a.s, b.s FROM t AS a LEFT JOIN t AS b ON a.i = b.i + 1",
            "SELECT [1, 2, NULL]::INT[] AS l, {a: 1, b: 'x'} AS r, map {'a': 1} AS m, ['x'] AS texts",
            "SELECT X'00FF' AS b, CAST(1.5 AS DECIMAL(10, 2)) AS d, NULL AS n, gen_random_uuid() AS u",
            "SELECT DATE '2020-01-01' AS d, TIMESTAMP '2020-01-01 00:00:00' AS t, INTERVAL '1 day' AS i",
            "SHOW TABLES",
            "EXPLAIN SELECT 1",
            "INSERT INTO t VALUES (2, 'two') RETURNING i, s",
            "SELECT * FROM t WHERE FALSE",
        ] {
            let info = client.execute(sql.to_owned(), None).await.expect(sql);
            let mut stream = client.do_get(ticket(&info)).await.expect(sql);
            let batches: Vec<RecordBatch> = stream.by_ref().try_collect().await.expect(sql);
            let schema = stream.schema().expect("a schema came first");
            assert_eq!(**schema, told(&info), "{sql}");
            assert!(batches.iter().all(|batch| batch.schema() == *schema), "{sql}");
            let prepared = client.prepare(sql.to_owned(), None).await.expect(sql);
            assert_eq!(*prepared.dataset_schema().expect("a schema"), told(&info), "{sql}");
            prepared.close().await.expect("it is closed");
        }
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 2);
    });
}

#[test]
fn a_statement_without_rows_runs_once_when_its_info_is_asked_for() {
    with_client(|mut client| async move {
        client.execute("CREATE TABLE t (i BIGINT)".to_owned(), None).await.expect("it runs");
        let info =
            client.execute("INSERT INTO t VALUES (1)".to_owned(), None).await.expect("it runs");
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 1);
        assert!(told(&info).fields().is_empty());
        for _ in 0..2 {
            assert!(get(&mut client, &info).await.expect("there is nothing").is_empty());
        }
        let sql = "UPDATE t SET i = i + 1".to_owned();
        let mut prepared = client.prepare(sql.clone(), None).await.expect("it is prepared");
        assert!(prepared.dataset_schema().expect("a schema").fields().is_empty());
        let info = prepared.execute().await.expect("it runs");
        assert!(get(&mut client, &info).await.expect("there is nothing").is_empty());
        assert_eq!(prepared.execute_update().await.expect("it runs"), 1);
        assert_eq!(client.execute_update(sql, None).await.expect("it runs"), 1);
        assert_eq!(number(&mut client, "SELECT i FROM t").await, 4);
        // What fails says so at once.
        let failed = client.execute("INSERT INTO t VALUES ('x')".to_owned(), None).await;
        assert_eq!(refused(failed).0, Code::InvalidArgument);
        let asked = client.execute("INSERT INTO t VALUES (9) RETURNING i".to_owned(), None).await;
        let asked = asked.expect("it has rows, which nobody has got yet");
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 1);
        assert_eq!(texts(&get(&mut client, &asked).await.expect("it runs")), [["9"]]);
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 2);
    });
}

#[test]
fn a_ticket_gives_rows_once_and_to_its_own_client() {
    let (_database, server) = server_with(10);
    block_on(async {
        let (mut one, mut other) = (connect(&server).await, connect(&server).await);
        let info = one.execute("SELECT 1".to_owned(), None).await.expect("it is described");
        other.execute("SELECT 2".to_owned(), None).await.expect("it is described");
        assert_eq!(refused(get(&mut other, &info).await).0, Code::NotFound);
        assert_eq!(texts(&get(&mut one, &info).await.expect("it runs")), [["1"]]);
        assert_eq!(refused(get(&mut one, &info).await).0, Code::NotFound);
        // More than a thousand make the oldest go.
        let oldest = one.execute("SELECT 1".to_owned(), None).await.expect("it is described");
        for _ in 0..1000 {
            one.execute("SELECT 1".to_owned(), None).await.expect("it is described");
        }
        assert_eq!(refused(get(&mut one, &oldest).await).0, Code::NotFound);
        for handle in [&b"x"[..], &[0; 16], &[0xff; 16]] {
            let forged = TicketStatementQuery { statement_handle: handle.to_vec().into() };
            let forged = Ticket::new(forged.as_any().encode_to_vec());
            assert_eq!(refused(one.do_get(forged).await).0, Code::NotFound);
        }
    });
}

fn parameters(numbers: &[i64], words: &[&str]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    let words: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
    RecordBatch::try_from_iter([("1", numbers), ("2", words)]).expect("a batch")
}

#[test]
fn prepared_statements_run_for_each_row_of_parameters() {
    with_client(|mut client| async move {
        update(&mut client, "CREATE TABLE t (i BIGINT, s VARCHAR)").await;
        let sql = "INSERT INTO t VALUES ($1, $2)".to_owned();
        let mut insert = client.prepare(sql, None).await.expect("it is prepared");
        let names: Vec<String> = insert
            .parameter_schema()
            .expect("a schema")
            .fields()
            .iter()
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect();
        assert_eq!(names, ["$1 Int64", "$2 Utf8"]);
        insert.set_parameters(parameters(&[1, 2], &["a", "b"])).expect("they are bound");
        assert_eq!(insert.execute_update().await.expect("it runs"), 2);
        insert.set_parameters(parameters(&[3], &["c"])).expect("they are bound");
        let info = insert.execute().await.expect("it runs");
        assert!(get(&mut client, &info).await.expect("there is nothing").is_empty());
        insert.close().await.expect("it is closed");
        let sql = "SELECT s, i + $1 AS j FROM t WHERE i >= $1 AND s <> $2 ORDER BY i".to_owned();
        let mut select = client.prepare(sql, None).await.expect("it is prepared");
        select.set_parameters(parameters(&[2, 3], &["c", "x"])).expect("they are bound");
        let info = select.execute().await.expect("it is described");
        let found = get(&mut client, &info).await.expect("it runs");
        assert_eq!(texts(&found), [["b", "4"], ["c", "6"]]);
        // The type of a column may be that of what is bound.
        let mut select = client.prepare("SELECT $1, $2".to_owned(), None).await.expect("text");
        select.set_parameters(parameters(&[7], &["x"])).expect("they are bound");
        let info = select.execute().await.expect("it is described");
        assert_eq!(told(&info).field(0).data_type(), &arrow::datatypes::DataType::Int64);
        assert_eq!(texts(&get(&mut client, &info).await.expect("it runs")), [["7", "x"]]);
        let unbound = client.prepare("SELECT $1".to_owned(), None).await.expect("it is prepared");
        let info = unbound.clone().execute().await.expect("it is described");
        assert_eq!(refused(get(&mut client, &info).await).0, Code::InvalidArgument);
        unbound.clone().close().await.expect("it is closed");
        assert_eq!(refused(unbound.clone().execute().await).0, Code::NotFound);
        unbound.close().await.expect("clients close twice");
    });
}

#[test]
fn a_table_that_changes_under_a_prepared_statement_is_told() {
    with_client(|mut client| async move {
        update(&mut client, "CREATE TABLE t (i BIGINT)").await;
        let mut prepared = client.prepare("SELECT * FROM t".to_owned(), None).await.expect("it is");
        update(&mut client, "DROP TABLE t").await;
        update(&mut client, "CREATE TABLE t (s VARCHAR)").await;
        let info = prepared.execute().await.expect("it is described");
        let answer = refused(get(&mut client, &info).await);
        assert_eq!(answer, (Code::FailedPrecondition, "0A000".to_owned()));
    });
}

#[test]
fn prepared_statements_are_limited() {
    with_client(|mut client| async move {
        for _ in 0..1000 {
            client.prepare("SELECT 1".to_owned(), None).await.expect("it is prepared");
        }
        let answer = refused(client.prepare("SELECT 1".to_owned(), None).await);
        assert_eq!(answer, (Code::ResourceExhausted, "53400".to_owned()));
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
    });
}

async fn cancel(client: &mut Client, info: &FlightInfo) -> CancelStatus {
    let body = CancelFlightInfoRequest { info: Some(info.clone()) }.encode_to_vec();
    let action = Action { r#type: "CancelFlightInfo".to_owned(), body: body.into() };
    let mut answers = client.do_action(action).await.expect("it is answered");
    let answer = answers.message().await.expect("it is answered").expect("an answer");
    CancelFlightInfoResult::decode(&*answer.body).expect("an answer").status()
}

#[test]
fn a_query_is_cancelled_by_its_info() {
    let (_database, server) = server_with(10);
    block_on(async {
        let (mut client, mut other) = (connect(&server).await, connect(&server).await);
        let info = client.execute(LONG.to_owned(), None).await.expect("it is described");
        let (mut reader, of_reader) = (client.clone(), info.clone());
        let reading = tokio::spawn(async move { get(&mut reader, &of_reader).await });
        while number(&mut other, ACTIVE).await < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Another client's info is not cancelled.
        assert_eq!(cancel(&mut other, &info).await, CancelStatus::NotCancellable);
        while !reading.is_finished() {
            cancel(&mut client, &info).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let answer = refused(reading.await.expect("no panic"));
        assert_eq!(answer, (Code::Cancelled, "57014".to_owned()));
        assert_eq!(cancel(&mut client, &info).await, CancelStatus::NotCancellable);
        // A cancelled ticket gives no rows, though no DoGet has used it.
        let info = client.execute("SELECT 1".to_owned(), None).await.expect("it is described");
        assert_eq!(cancel(&mut client, &info).await, CancelStatus::Cancelled);
        assert_eq!(refused(get(&mut client, &info).await).0, Code::NotFound);
    });
}

#[test]
fn a_result_larger_than_memory_comes_and_a_reader_that_goes_cancels_it() {
    let (database, server) = server_with(10);
    block_on(async {
        let mut client = connect(&server).await;
        let info = client.execute(MANY.to_owned(), None).await.expect("it is described");
        let mut stream = client.do_get(ticket(&info)).await.expect("it begins");
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            rows += batch.expect("rows come").num_rows();
        }
        assert_eq!(rows, 50_000_000);
        let stats = database.stats();
        assert!(stats.memory_peak <= stats.memory_limit, "{stats:?}");
        // Many readers that stop after the first rows.
        for _ in 0..20 {
            let info = client.execute(MANY.to_owned(), None).await.expect("it is described");
            let mut stream = client.do_get(ticket(&info)).await.expect("it begins");
            stream.next().await.expect("rows").expect("rows");
        }
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
        let mut other = connect(&server).await;
        while number(&mut other, ACTIVE).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn timeouts_of_statements_hold() {
    with_client(|mut client| async move {
        let set = "SELECT set_config('statement_timeout', '50', false)";
        query(&mut client, set).await.expect("it is set");
        let answer = refused(query(&mut client, LONG).await);
        assert_eq!(answer, (Code::Cancelled, "57014".to_owned()));
        let sql = format!("CREATE TABLE t AS {LONG}");
        assert_eq!(refused(client.execute(sql.clone(), None).await).0, Code::Cancelled);
        assert_eq!(refused(client.execute_update(sql, None).await).0, Code::Cancelled);
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
    });
}

#[test]
fn errors_have_a_code_a_place_and_an_sqlstate() {
    with_client(|mut client| async move {
        for (sql, code, state) in [
            ("SELEC 1", Code::InvalidArgument, "42601"),
            ("SELECT * FROM nowhere", Code::InvalidArgument, "42000"),
            ("SELECT 1; SELECT 2", Code::InvalidArgument, "42601"),
            (
                "SELECT 1 / (i - 3) FROM generate_series(1, 5) AS v(i)",
                Code::InvalidArgument,
                "22000",
            ),
            ("COMMIT", Code::FailedPrecondition, "25P01"),
        ] {
            let answer = refused(query(&mut client, sql).await);
            assert_eq!(answer, (code, state.to_owned()), "{sql}");
        }
    });
}

#[test]
fn a_server_ends_while_streams_are_open() {
    let (_database, server) = server_with(10);
    let runtime = Runtime::new().expect("threads start");
    let (mut client, mut streams) = runtime.block_on(async {
        let client = connect(&server).await;
        let mut streams = Vec::new();
        for _ in 0..5 {
            // A stream whose client does not read takes the window of its connection.
            let mut client = connect(&server).await;
            let info = client.execute(MANY.to_owned(), None).await.expect("it is described");
            let mut stream = client.do_get(ticket(&info)).await.expect("it begins");
            stream.next().await.expect("rows").expect("rows");
            streams.push(stream);
        }
        let (mut other, long) = (client.clone(), LONG.to_owned());
        tokio::spawn(async move { drop(query(&mut other, &long).await) });
        (client, streams)
    });
    drop(server);
    runtime.block_on(async {
        for stream in &mut streams {
            let ended = stream.by_ref().try_collect::<Vec<_>>().await;
            assert!(ended.is_err(), "a result that is cut off has no end");
        }
        assert!(client.execute("SELECT 1".to_owned(), None).await.is_err());
    });
}
