//! A table of rows of numbers: a key, a group that a secondary index is on, a value.

use std::sync::{Arc, Mutex};

use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{IndexError, Space, Tree, TreeForm};
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_txn::{
    Engine, EngineOptions, FrozenRow, FrozenRows, Isolation, RowKeys, Table, TableForm,
    Transaction, TransactionOptions,
};

use crate::drivers::{Setup, runtime, within_limit};

/// Number of the index on groups.
pub const GROUPS: usize = 1;
/// Number of the unique index on values; there if the fixture has it.
pub const VALUES: usize = 2;

/// Places in one file, each used once.
#[derive(Default)]
struct Places(Mutex<u64>);

impl Space for Places {
    fn allocate(&self, bytes: usize) -> Result<PageId, IndexError> {
        let mut end = self.0.lock().unwrap();
        *end += bytes as u64;
        Ok(PageId::new(0, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

struct Keys;

impl RowKeys for Keys {
    fn append_key(&self, index: usize, row: &[u8], key: &mut Vec<u8>) {
        key.extend_from_slice(&row[8 * index..8 * index + 8]);
    }
}

/// Rows 0 to `count` - 1, with these groups and values, as they were frozen.
pub struct Frozen {
    pub count: u64,
}

impl FrozenRows for Frozen {
    fn row(&self, row: u64) -> FrozenRow<'_> {
        Box::pin(async move {
            weft_rt::yield_now().await;
            Ok((row < self.count).then(|| bytes(row, row % 7, row).into()))
        })
    }

    fn end(&self) -> u64 {
        self.count
    }
}

pub fn bytes(key: u64, group: u64, value: u64) -> Vec<u8> {
    [key, group, value].iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Key, group and value of a row.
pub fn numbers(row: &[u8]) -> (u64, u64, u64) {
    let number = |at: usize| u64::from_be_bytes(row[8 * at..8 * at + 8].try_into().unwrap());
    (number(0), number(1), number(2))
}

/// An engine whose table has `frozen` rows. With `is_unique`, values are unique.
pub async fn engine(
    setup: &Setup,
    ledger: Ledger,
    frozen: u64,
    is_unique: bool,
) -> (Engine, Arc<Table>) {
    let table = table(setup, ledger.clone(), frozen, is_unique).await;
    let engine = Engine::new(ledger, &EngineOptions::default());
    let table = engine.add_table(table).unwrap();
    (engine, table)
}

/// The table of [`engine`].
pub async fn table(setup: &Setup, ledger: Ledger, frozen: u64, is_unique: bool) -> Table {
    let file = setup.file("tree");
    let pool =
        BufferPool::dynamic(Devices::new(vec![file]), ledger.clone(), PoolOptions::default());
    let (pool, space) = (pool.unwrap(), Arc::new(Places::default()));
    let tree = async |is_unique| {
        Tree::create(pool.clone(), space.clone(), TreeForm::new(is_unique)).await.unwrap()
    };
    let primary = tree(true).await;
    let (groups, values) = (tree(false).await, tree(false).await);
    for row in 0..frozen {
        primary.insert(&row.to_be_bytes(), row, &[]).await.unwrap();
        groups.insert(&(row % 7).to_be_bytes(), row, &[]).await.unwrap();
        if is_unique {
            values.insert(&row.to_be_bytes(), row, &[]).await.unwrap();
        }
    }
    let mut secondary = vec![(groups, false)];
    if is_unique {
        secondary.push((values, true));
    }
    let form = TableForm {
        id: 1,
        primary: Some(primary),
        secondary,
        keys: Arc::new(Keys),
        frozen: (frozen > 0).then(|| Arc::new(Frozen { count: frozen }) as Arc<dyn FrozenRows>),
        row_end: 0,
    };
    Table::new(form).unwrap()
}

pub fn options(isolation: Isolation) -> TransactionOptions {
    TransactionOptions { isolation, ..TransactionOptions::default() }
}

/// The value of a key.
pub async fn value(transaction: &Transaction<'_>, table: &Arc<Table>, key: u64) -> Option<u64> {
    let row = transaction.get(table, &key.to_be_bytes()).await.unwrap();
    row.map(|row| numbers(&row).2)
}

/// Gives a key a value; its group is 0.
pub async fn set(
    transaction: &mut Transaction<'_>,
    table: &Arc<Table>,
    key: u64,
    value: u64,
) -> weft_txn::Result<bool> {
    transaction.update(table, &key.to_be_bytes(), &bytes(key, 0, value)).await
}

/// Runs a test of an engine with a few rows, whose keys are 0 to `rows` - 1 and whose values are 10 times that.
pub fn with_rows<F>(rows: u64, work: F)
where
    F: AsyncFnOnce(Engine, Arc<Table>) + Send + 'static,
{
    within_limit(move || {
        let setup = Setup::new();
        let runtime = runtime(DriverKind::Blocking, 1);
        let run = move || async move {
            let (engine, table) = engine(&setup, Ledger::new(64 << 20), 0, false).await;
            let mut context = engine.context().unwrap();
            let mut load = context.begin(TransactionOptions::default());
            for key in 0..rows {
                load.insert(&table, &bytes(key, 0, 10 * key)).await.unwrap();
            }
            load.commit().await.unwrap();
            drop(context);
            work(engine, table).await;
        };
        runtime.block_on(run).unwrap();
    });
}
