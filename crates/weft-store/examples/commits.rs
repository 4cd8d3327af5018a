//! How many commits of one updated row a second a store makes durable, by the number of sessions:
//! `cargo run --release -p weft-store --example commits -- DIRECTORY [ROWS]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::DataType;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::*;

fn batch(schema: &TableSchema, keys: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    let values = keys.clone().map(|key| key * 7);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(keys.collect::<Int64Array>()), Arc::new(values.collect::<Int64Array>())];
    RecordBatch::try_new(schema.arrow_schema(), columns).expect("columns of the schema")
}

async fn written(store: &Store, schema: &TableSchema, rows: RecordBatch) -> Result<WrittenGroups> {
    let writer = store.writer(schema, WriterOptions::default())?;
    let mut partition = writer.partition(0);
    partition.append(rows).await?;
    partition.finish().await?;
    writer.finish().await
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a directory");
    let rows: i64 = args.next().map_or(1_000_000, |text| text.parse().expect("a number"));
    let options = RuntimeOptions { workers: 2, ..RuntimeOptions::default() };
    let runtime = Arc::new(Runtime::new(&options).expect("a runtime"));
    let create = StoreOptions { create: true, ..StoreOptions::default() };
    let directory = Directory::Os(path.into());
    let store = Store::open(&directory, &create, runtime.clone(), Ledger::new(2 << 30))?;
    let column = |name: &str| Column {
        name: name.into(),
        data_type: DataType::Int64,
        nullable: true,
        default: None,
        max_length: None,
    };
    let schema = TableSchema { name: "t".into(), columns: vec![column("k"), column("v")] };
    let key = IndexColumn { column: 0, is_descending: false, nulls_first: false };
    let definition = IndexDefinition {
        name: "t_pkey".into(),
        columns: vec![key],
        is_unique: true,
        is_primary: true,
        is_constraint: true,
    };
    let table = || "t".to_owned();
    let groups = weft_rt::sync::block_on(written(&store, &schema, batch(&schema, 0..rows)))?;
    store.commit_blocking(vec![
        Change::CreateTable { schema: schema.clone(), or_replace: false },
        Change::Append { table: table(), expected: None, groups },
        Change::CreateIndex { table: table(), expected: None, definition },
    ])?;
    // Each row is updated once: its id is its key until then.
    let next = Arc::new(AtomicU64::new(0));
    for sessions in [1, 4, 16, 64, 256] {
        let (begin, started) = (Instant::now(), cpu());
        let tasks: Vec<_> = (0..sessions)
            .map(|_| {
                let (store, schema, next) = (store.clone(), schema.clone(), next.clone());
                runtime.spawn(move || async move {
                    let mut commits = 0_u64;
                    while begin.elapsed() < Duration::from_secs(3) {
                        let key = next.fetch_add(1, Ordering::Relaxed) * 7919 % rows as u64;
                        let updated = batch(&schema, std::iter::once(key as i64));
                        let groups = written(&store, &schema, updated).await?;
                        let mut gone = RowSet::default();
                        gone.insert(key);
                        let table = || "t".to_owned();
                        let changes = vec![
                            Change::Delete { table: table(), expected: None, rows: gone },
                            Change::Append { table: table(), expected: None, groups },
                        ];
                        store.commit(changes).await?;
                        commits += 1;
                    }
                    Result::Ok(commits)
                })
            })
            .collect();
        let mut commits = 0;
        for task in tasks {
            commits += weft_rt::sync::block_on(task).expect("it ends")?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{sessions} sessions: {:.0} commits/s, {:.0} µs of processor time each",
            commits as f64 / seconds,
            (cpu() - started) * 1e6 / commits as f64
        );
    }
    Ok(())
}

fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
