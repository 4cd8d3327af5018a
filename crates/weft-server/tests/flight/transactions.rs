//! Transactions and savepoints, which Flight SQL names.

use arrow_flight::Action;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionEndSavepointRequest, Any,
    EndTransaction, ProstMessageExt,
};
use bytes::Bytes;
use prost::Message;
use tonic::Code;

use super::*;

/// The only value of a query within a transaction, a number.
async fn number_in(client: &mut Client, transaction: &Bytes, sql: &str) -> i64 {
    let info = client.execute(sql.to_owned(), Some(transaction.clone())).await.expect(sql);
    let batches = get(client, &info).await.expect(sql);
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn insert(client: &mut Client, transaction: &Bytes, value: i64) {
    let sql = format!("INSERT INTO t VALUES ({value})");
    client.execute_update(sql, Some(transaction.clone())).await.expect("it runs");
}

#[test]
fn a_transaction_is_committed_or_rolled_back_as_a_whole() {
    with_client(|mut client| async move {
        let count = "SELECT count(*) FROM t";
        update(&mut client, "CREATE TABLE t (i BIGINT PRIMARY KEY)").await;
        let transaction = client.begin_transaction().await.expect("it begins");
        insert(&mut client, &transaction, 1).await;
        let sql = "INSERT INTO t VALUES (2)".to_owned();
        client.execute(sql, Some(transaction.clone())).await.expect("it runs");
        assert_eq!(number_in(&mut client, &transaction, count).await, 2);
        assert_eq!(number(&mut client, count).await, 0);
        let mut prepared =
            client.prepare(count.to_owned(), Some(transaction.clone())).await.expect("it is");
        let info = prepared.execute().await.expect("it is described");
        assert_eq!(texts(&get(&mut client, &info).await.expect("it runs")), [["2"]]);
        client.end_transaction(transaction, EndTransaction::Commit).await.expect("it commits");
        assert_eq!(number(&mut client, count).await, 2);
        let transaction = client.begin_transaction().await.expect("it begins");
        insert(&mut client, &transaction, 3).await;
        let ended = client.end_transaction(transaction.clone(), EndTransaction::Rollback).await;
        ended.expect("it is rolled back");
        assert_eq!(number(&mut client, count).await, 2);
        // It is over, for all that names it.
        let again = client.end_transaction(transaction.clone(), EndTransaction::Commit).await;
        assert_eq!(refused(again).0, Code::NotFound);
        let late = client.execute(count.to_owned(), Some(transaction)).await;
        assert_eq!(refused(late).0, Code::NotFound);
    });
}

#[test]
fn a_transaction_that_has_failed_is_not_committed() {
    with_client(|mut client| async move {
        update(&mut client, "CREATE TABLE t (i BIGINT PRIMARY KEY)").await;
        let transaction = client.begin_transaction().await.expect("it begins");
        insert(&mut client, &transaction, 1).await;
        let twice = "INSERT INTO t VALUES (1)".to_owned();
        let failed = client.execute_update(twice, Some(transaction.clone())).await;
        assert_eq!(refused(failed), (Code::AlreadyExists, "23505".to_owned()));
        let next = client.execute_update("DELETE FROM t".to_owned(), Some(transaction.clone()));
        assert_eq!(refused(next.await), (Code::FailedPrecondition, "25P02".to_owned()));
        let ended = client.end_transaction(transaction, EndTransaction::Commit).await;
        assert_eq!(refused(ended), (Code::FailedPrecondition, "25P02".to_owned()));
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 0);
    });
}

#[test]
fn a_client_has_several_transactions_and_no_other_reaches_them() {
    let (_database, server) = server_with(10);
    block_on(async {
        let (mut client, mut other) = (connect(&server).await, connect(&server).await);
        update(&mut client, "CREATE TABLE t (i BIGINT PRIMARY KEY)").await;
        let one = client.begin_transaction().await.expect("it begins");
        let two = client.begin_transaction().await.expect("it begins");
        insert(&mut client, &one, 1).await;
        insert(&mut client, &two, 2).await;
        assert_eq!(number_in(&mut client, &one, "SELECT max(i) FROM t").await, 1);
        let sql = "SELECT 1".to_owned();
        assert_eq!(refused(other.execute(sql, Some(one.clone())).await).0, Code::NotFound);
        let foreign = other.end_transaction(one.clone(), EndTransaction::Commit).await;
        assert_eq!(refused(foreign).0, Code::NotFound);
        client.end_transaction(two, EndTransaction::Commit).await.expect("it commits");
        client.end_transaction(one, EndTransaction::Commit).await.expect("it commits");
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 2);
        for _ in 0..16 {
            client.begin_transaction().await.expect("it begins");
        }
        let answer = refused(client.begin_transaction().await);
        assert_eq!(answer, (Code::ResourceExhausted, "53400".to_owned()));
    });
}

#[test]
fn what_a_client_has_begun_is_rolled_back_when_it_goes() {
    let (_database, server) = server_with(10);
    block_on(async {
        let mut client = connect(&server).await;
        update(&mut client, "CREATE TABLE t (i BIGINT PRIMARY KEY)").await;
        let transaction = client.begin_transaction().await.expect("it begins");
        insert(&mut client, &transaction, 1).await;
        drop(client);
        let mut other = connect(&server).await;
        while server.connections() > 1 {
            assert_eq!(number(&mut other, "SELECT count(*) FROM t").await, 0);
        }
        // The key is free.
        update(&mut other, "INSERT INTO t VALUES (1)").await;
    });
}

async fn action(client: &mut Client, name: &str, body: Any) -> Result<Bytes, FlightError> {
    let action = Action { r#type: name.to_owned(), body: body.encode_to_vec().into() };
    let mut answers = client.do_action(action).await?;
    Ok(answers.message().await?.map(|answer| answer.body).unwrap_or_default())
}

async fn save(client: &mut Client, transaction: &Bytes, name: &str) -> Bytes {
    let request =
        ActionBeginSavepointRequest { transaction_id: transaction.clone(), name: name.to_owned() };
    let answer = action(client, "BeginSavepoint", request.as_any()).await.expect("it is made");
    let answer = Any::decode(&*answer).expect("an answer");
    let answer: ActionBeginSavepointResult =
        answer.unpack().expect("an answer").expect("of this kind");
    answer.savepoint_id
}

async fn end_savepoint(
    client: &mut Client,
    savepoint_id: &Bytes,
    action_number: i32,
) -> Result<Bytes, FlightError> {
    let request =
        ActionEndSavepointRequest { savepoint_id: savepoint_id.clone(), action: action_number };
    action(client, "EndSavepoint", request.as_any()).await
}

#[test]
fn savepoints_are_released_or_rolled_back_to() {
    with_client(|mut client| async move {
        let count = "SELECT count(*) FROM t";
        update(&mut client, "CREATE TABLE t (i BIGINT PRIMARY KEY)").await;
        let transaction = client.begin_transaction().await.expect("it begins");
        insert(&mut client, &transaction, 1).await;
        let savepoint = save(&mut client, &transaction, "a \"name\"").await;
        let twice = "INSERT INTO t VALUES (1)".to_owned();
        refused(client.execute_update(twice, Some(transaction.clone())).await);
        end_savepoint(&mut client, &savepoint, 2).await.expect("it goes back");
        insert(&mut client, &transaction, 2).await;
        end_savepoint(&mut client, &savepoint, 2).await.expect("it goes back once more");
        assert_eq!(number_in(&mut client, &transaction, count).await, 1);
        end_savepoint(&mut client, &savepoint, 1).await.expect("it is released");
        assert_eq!(refused(end_savepoint(&mut client, &savepoint, 1).await).0, Code::NotFound);
        assert_eq!(
            refused(end_savepoint(&mut client, &savepoint, 7).await).0,
            Code::InvalidArgument
        );
        client.end_transaction(transaction, EndTransaction::Commit).await.expect("it commits");
        assert_eq!(number(&mut client, count).await, 1);
    });
}
