//! Results that are kept, and relations and functions that a program hands to a session.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;

use weft::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use weft::arrow::datatypes::{DataType, Int64Type};
use weft::{
    Database, DatabaseOptions, ErrorKind, FunctionCode, Keep, KeptResult, Parameters, Relation,
    Result, Session, SessionFunction, Value,
};
use weft_rt::sync::block_on;

fn session() -> Session {
    let options = DatabaseOptions::default().with("memory_limit", "64MiB").with("threads", 2);
    Database::in_memory(&options).unwrap().session().unwrap()
}

fn start(session: &Session, sql: &str, keep: Keep) -> KeptResult {
    session.start_kept(sql, &Parameters::default(), HashMap::new(), keep)
}

/// The sum of a result's first column, and its rows.
fn sum(result: &KeptResult) -> Result<(i64, usize)> {
    let (mut sum, mut rows, mut number) = (0, 0, 0);
    while let Some(batch) = block_on(poll_fn(|context| result.poll_batch(number, context)))? {
        sum += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
        rows += batch.num_rows();
        number += 1;
    }
    Ok((sum, rows))
}

#[test]
fn what_is_beyond_memory_is_kept_in_a_file() {
    let session = session();
    for memory_bytes_max in [0, 100_000, u64::MAX] {
        let sql = "SELECT value FROM generate_series(1, 100000) AS g(value)";
        let result = start(&session, sql, Keep::All { memory_bytes_max });
        for _ in 0..3 {
            assert_eq!(sum(&result).unwrap(), (5_000_050_000, 100_000));
        }
        assert_eq!(result.rows(), Some(100_000));
    }
}

#[test]
fn texts_and_lists_come_back_from_the_file() {
    let session = session();
    let texts = (0..50_000).map(|n| format!("a text of number {n}"));
    let texts = Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("s", texts)]).unwrap();
    session.register("texts", Relation::of_batches(batch.schema(), vec![batch]).unwrap());
    let sql = "SELECT s, [s, NULL, 'x'] AS l, named_struct('t', s) AS t FROM texts";
    let rows = |result: &KeptResult| {
        let (mut rows, mut number) = (Vec::new(), 0);
        let read = |number| block_on(poll_fn(|context| result.poll_batch(number, context)));
        while let Some(batch) = read(number).unwrap() {
            assert_eq!(batch.schema(), result.schema());
            rows.extend(weft::to_text(&[batch]).unwrap());
            number += 1;
        }
        rows.sort_unstable();
        rows
    };
    let in_memory = rows(&start(&session, sql, Keep::All { memory_bytes_max: u64::MAX }));
    assert_eq!(in_memory.len(), 50_000);
    let result = start(&session, sql, Keep::All { memory_bytes_max: 0 });
    assert!(rows(&result) == in_memory && rows(&result) == in_memory);
}

#[test]
fn what_is_not_kept_is_read_once() {
    let result = start(
        &session(),
        "SELECT value FROM generate_series(1, 100000) AS g(value)",
        Keep::Nothing,
    );
    assert_eq!(sum(&result).unwrap(), (5_000_050_000, 100_000));
    assert_eq!(sum(&result).unwrap_err().kind(), ErrorKind::Semantic);
}

#[test]
fn errors_stay() {
    let session = session();
    let keep = Keep::All { memory_bytes_max: 0 };
    let result = start(&session, "SELECT nothing", keep);
    for _ in 0..2 {
        let error = block_on(poll_fn(|context| result.poll_ready(context))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Semantic);
    }
    let result =
        start(&session, "SELECT 1 / (value - 9) FROM generate_series(1, 10) AS t(value)", keep);
    for _ in 0..2 {
        assert_eq!(sum(&result).unwrap_err().kind(), ErrorKind::Data);
    }
}

#[test]
fn many_threads_read_one_result() {
    let session = session();
    let sql = "SELECT value FROM generate_series(1, 100000) AS g(value)";
    let result = start(&session, sql, Keep::All { memory_bytes_max: 100_000 });
    std::thread::scope(|scope| {
        let sums: Vec<_> = (0..4).map(|_| scope.spawn(|| sum(&result).unwrap())).collect();
        for found in sums {
            assert_eq!(found.join().unwrap(), (5_000_050_000, 100_000));
        }
    });
}

fn numbers(numbers: Vec<i64>) -> Relation {
    let column = Arc::new(Int64Array::from(numbers)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    Relation::of_batches(batch.schema(), vec![batch]).unwrap()
}

fn value(session: &Session, sql: &str) -> Result<i64> {
    Ok(sum(&start(session, sql, Keep::Nothing))?.0)
}

#[test]
fn relations_are_found_by_their_names() {
    let session = session();
    session.register("given", numbers(vec![1, 2, 3]));
    assert_eq!(value(&session, "SELECT sum(n) FROM given").unwrap(), 6);
    session.execute("CREATE TABLE given AS SELECT 5 AS n").unwrap();
    assert_eq!(value(&session, "SELECT sum(n) FROM given").unwrap(), 6);
    // A view sees what all sessions see.
    session.execute("CREATE VIEW v AS SELECT n FROM given").unwrap();
    assert_eq!(value(&session, "SELECT sum(n) FROM v").unwrap(), 5);
    let own = HashMap::from([("given".to_owned(), numbers(vec![7]))]);
    let parameters = Parameters::Named(vec![("x".to_owned(), Value::Integer(3))]);
    let result = session.start_kept("SELECT n + :x FROM given", &parameters, own, Keep::Nothing);
    assert_eq!(sum(&result).unwrap(), (10, 1));
    assert!(session.unregister("given"));
    assert!(!session.unregister("given"));
    assert_eq!(value(&session, "SELECT sum(n) FROM given").unwrap(), 5);
}

struct Doubles;

impl FunctionCode for Doubles {
    fn call(&self, arguments: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let doubled = arguments[0].as_primitive::<Int64Type>().unary::<_, Int64Type>(|n| n * 2);
        Ok(Arc::new(doubled))
    }
}

#[test]
fn functions_are_called() {
    let session = session();
    let function = |name: &str| SessionFunction {
        name: name.to_owned(),
        parameters: vec![DataType::Int64],
        returns: DataType::Int64,
        is_volatile: false,
        is_aggregate: false,
        code: Arc::new(Doubles),
    };
    session.add_function(function("double_of")).unwrap();
    let taken = session.add_function(function("sum")).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    for engine in ["auto", "weft", "datafusion"] {
        session.execute(&format!("SET engine = '{engine}'")).unwrap();
        let sql = "SELECT sum(double_of(value)) FROM generate_series(1, 1000) AS g(value) WHERE double_of(value) > 10";
        assert_eq!(value(&session, sql).unwrap(), 1_001_000 - 30);
    }
    assert!(session.remove_function("double_of").unwrap());
    assert!(value(&session, "SELECT double_of(1)").is_err());
}
