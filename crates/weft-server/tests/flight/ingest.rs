//! Bulk ingestion: rows that clients send into tables.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow_flight::sql::{
    CommandStatementIngest, EndTransaction, TableDefinitionOptions, TableExistsOption,
    TableNotExistOption,
};
use futures::stream;
use tonic::Code;

use super::*;

fn batch(rows: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    RecordBatch::try_from_iter([("i", numbers)]).expect("a batch")
}

fn into(
    table: &str,
    if_not_exist: TableNotExistOption,
    if_exists: TableExistsOption,
) -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: if_not_exist.into(),
            if_exists: if_exists.into(),
        }),
        table: table.to_owned(),
        schema: None,
        catalog: None,
        temporary: false,
        transaction_id: None,
        options: Default::default(),
    }
}

fn appended(table: &str) -> CommandStatementIngest {
    into(table, TableNotExistOption::Fail, TableExistsOption::Append)
}

#[test]
fn tables_are_made_appended_to_and_replaced() {
    with_client(|mut client| async move {
        let count = "SELECT count(*) FROM t";
        let create = into("t", TableNotExistOption::Create, TableExistsOption::Fail);
        let batches = || stream::iter((0..10).map(|_| Ok(batch(10_000))));
        assert_eq!(
            client.execute_ingest(create.clone(), batches()).await.expect("it is made"),
            100_000
        );
        assert_eq!(number(&mut client, count).await, 100_000);
        assert_eq!(refused(client.execute_ingest(create, batches()).await).0, Code::AlreadyExists);
        let added = client.execute_ingest(appended("t"), batches()).await;
        assert_eq!(added.expect("they are added"), 100_000);
        assert_eq!(number(&mut client, count).await, 200_000);
        let missing = client.execute_ingest(appended("u"), batches()).await;
        assert_eq!(refused(missing).0, Code::InvalidArgument);
        let replace = into("t", TableNotExistOption::Create, TableExistsOption::Replace);
        let one = stream::iter([Ok(batch(7))]);
        assert_eq!(client.execute_ingest(replace, one).await.expect("it is replaced"), 7);
        assert_eq!(number(&mut client, count).await, 7);
        let mut elsewhere = appended("t");
        elsewhere.catalog = Some("other".to_owned());
        let answer = client.execute_ingest(elsewhere, batches()).await;
        assert_eq!(refused(answer).0, Code::NotFound);
    });
}

#[test]
fn rows_are_those_of_their_transaction() {
    with_client(|mut client| async move {
        update(&mut client, "CREATE TABLE t (i BIGINT)").await;
        for (end, expected) in [(EndTransaction::Rollback, 0), (EndTransaction::Commit, 10)] {
            let transaction = client.begin_transaction().await.expect("it begins");
            let mut command = appended("t");
            command.transaction_id = Some(transaction.clone());
            let rows = stream::iter([Ok(batch(10))]);
            assert_eq!(client.execute_ingest(command, rows).await.expect("they are added"), 10);
            assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
            client.end_transaction(transaction, end).await.expect("it ends");
            assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, expected);
        }
    });
}

#[test]
fn an_ingestion_that_is_broken_off_leaves_nothing() {
    let (_database, server) = server_with(10);
    block_on(async {
        let mut client = connect(&server).await;
        update(&mut client, "CREATE TABLE t (i BIGINT)").await;
        // The client stops, and then goes.
        let rows = futures::StreamExt::chain(
            stream::iter([Ok(batch(100_000)), Ok(batch(100_000))]),
            stream::pending(),
        );
        let mut sender = client.clone();
        let stopped = tokio::spawn(async move { sender.execute_ingest(appended("t"), rows).await });
        for _ in 0..50 {
            assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
        }
        stopped.abort();
        assert!(stopped.await.is_err());
        let mut other = connect(&server).await;
        while number(&mut other, ACTIVE).await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
        // Rows of another type.
        let words: ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["x"]));
        let words = RecordBatch::try_from_iter([("i", words)]).expect("a batch");
        let answer = client.execute_ingest(appended("t"), stream::iter([Ok(words)])).await;
        assert_eq!(refused(answer).0, Code::InvalidArgument);
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    });
}
