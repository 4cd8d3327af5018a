//! The tables with their indexes, in an engine with or without a log.

use std::sync::{Arc, Mutex, PoisonError};

use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{IndexError, Space, Tree, TreeForm};
use weft_rt::io::File;
use weft_rt::memory::Ledger;
use weft_txn::{Engine, EngineOptions, LogOptions, Table, TableForm};

use crate::error::{Result, TpccError};
use crate::random::Constants;
use crate::rows::{
    Customer, District, History, Item, KeysOf, Nation, NewOrder, Order, OrderLine, Region, Row,
    Stock, Supplier, Warehouse,
};

/// Districts of a warehouse.
pub(crate) const DISTRICTS: u8 = 10;
/// Numbers of last names.
const LAST_NAMES: u32 = 1000;
/// Rows of the table of suppliers.
pub(crate) const SUPPLIERS: u32 = 10_000;

/// How many rows tables have. What the specification fixes may be less, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u16,
    /// Suppliers that Q2* looks at, from the first on: up to 10,000.
    pub suppliers: u32,
    /// Items, and rows of stock of a warehouse: 100,000 in the specification.
    pub items: u32,
    /// Customers of a district, and its orders at first: 3,000 in the specification.
    pub customers: u16,
}

impl Scale {
    /// The numbers of the specification for some warehouses.
    pub fn of(warehouses: u16, suppliers: u32) -> Scale {
        Scale { warehouses, suppliers, items: 100_000, customers: 3000 }
    }

    /// Few rows, for tests.
    pub fn small(warehouses: u16) -> Scale {
        Scale { warehouses, suppliers: 1000, items: 200, customers: 30 }
    }

    /// Bytes of memory that a database takes when it was loaded.
    pub fn bytes(&self) -> u64 {
        let (items, customers) = (u64::from(self.items), u64::from(self.customers));
        let of_district = customers * (CUSTOMER_BYTES + HISTORY_BYTES + ORDER_BYTES);
        let of_warehouse = items * STOCK_BYTES + u64::from(DISTRICTS) * of_district;
        FIXED_BYTES + u64::from(self.warehouses) * of_warehouse
    }

    /// Orders that a district has at first and that are delivered.
    pub(crate) fn delivered(&self) -> u32 {
        u32::from(self.customers) * 7 / 10
    }

    /// The last number of a last name that customers have.
    pub(crate) fn last_name(&self) -> u32 {
        u32::from(self.customers).min(LAST_NAMES) - 1
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(TpccError::Scale(what.into()));
        if self.warehouses == 0 || self.warehouses > 32_767 {
            return wrong("TPC-C needs 1 to 32767 warehouses");
        }
        if self.suppliers > SUPPLIERS {
            return wrong("Q2* needs at most 10000 suppliers");
        }
        if !(20..=1_000_000).contains(&self.items) || !(10..=3000).contains(&self.customers) {
            return wrong(
                "TPC-C needs 20 to 1000000 items, and 10 to 3000 customers of a district",
            );
        }
        Ok(())
    }
}

// Bytes of memory with versions, entries of the indirection arrays and nodes of indexes.
const STOCK_BYTES: u64 = 420;
const CUSTOMER_BYTES: u64 = 900;
const HISTORY_BYTES: u64 = 112;
/// With its lines.
const ORDER_BYTES: u64 = 200 + 10 * 160;
const FIXED_BYTES: u64 = 96 << 20;

/// Whether changes are logged.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In memory alone.
    Memory,
    /// With a log, from which [`Database::open`] recovers.
    Logged(LogOptions),
}

/// Places for nodes that never leave memory.
#[derive(Default)]
struct Places(Mutex<u64>);

impl Space for Places {
    fn allocate(&self, bytes: usize) -> std::result::Result<PageId, IndexError> {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end += bytes as u64;
        Ok(PageId::new(0, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

/// A database of TPC-C. Clones are the same one.
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Engine,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    pub(crate) constants: Constants,
    pub(crate) warehouse: Arc<Table>,
    pub(crate) district: Arc<Table>,
    pub(crate) customer: Arc<Table>,
    pub(crate) history: Arc<Table>,
    pub(crate) new_order: Arc<Table>,
    pub(crate) orders: Arc<Table>,
    pub(crate) order_line: Arc<Table>,
    pub(crate) item: Arc<Table>,
    pub(crate) stock: Arc<Table>,
    pub(crate) region: Arc<Table>,
    pub(crate) nation: Arc<Table>,
    pub(crate) supplier: Arc<Table>,
    ledger: Ledger,
}

impl Database {
    /// Empty tables, or what the log has of them: to be called on a worker. All memory is part of `ledger`. `seed` decides what
    /// is loaded, and is to be the same each time a log is opened.
    ///
    /// # Errors
    /// [`TpccError`] for a scale that cannot be, too little memory, or a log that cannot be read.
    pub async fn open(
        scale: Scale,
        seed: u64,
        storage: Storage,
        ledger: Ledger,
    ) -> Result<Database> {
        scale.check()?;
        // Nodes never leave memory: the file stays empty.
        let file = File::unnamed(&std::env::temp_dir())?;
        let devices = Devices::new(vec![file]);
        let pool = BufferPool::dynamic(devices, ledger.clone(), PoolOptions::default())?;
        let options = EngineOptions::default();
        let engine = match &storage {
            Storage::Memory => Engine::new(ledger.clone(), &options),
            Storage::Logged(log) => Engine::with_log(ledger.clone(), &options, log.clone()),
        };
        let database = Database {
            warehouse: table::<Warehouse>(&engine, &pool).await?,
            district: table::<District>(&engine, &pool).await?,
            customer: table::<Customer>(&engine, &pool).await?,
            history: table::<History>(&engine, &pool).await?,
            new_order: table::<NewOrder>(&engine, &pool).await?,
            orders: table::<Order>(&engine, &pool).await?,
            order_line: table::<OrderLine>(&engine, &pool).await?,
            item: table::<Item>(&engine, &pool).await?,
            stock: table::<Stock>(&engine, &pool).await?,
            region: table::<Region>(&engine, &pool).await?,
            nation: table::<Nation>(&engine, &pool).await?,
            supplier: table::<Supplier>(&engine, &pool).await?,
            seed,
            constants: Constants::new(seed),
            engine,
            scale,
            ledger,
        };
        if let Storage::Logged(_) = storage {
            database.engine.recover().await?;
        }
        Ok(database)
    }

    /// The same database, of which Q2* looks at other suppliers: up to 10,000.
    pub fn with_suppliers(&self, suppliers: u32) -> Database {
        let mut database = self.clone();
        database.scale.suppliers = suppliers.min(SUPPLIERS);
        database
    }

    /// How many rows tables had at first.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The engine that has the tables.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.ledger.used()
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({:?})", self.scale)
    }
}

/// An empty table of rows of a kind.
async fn table<R: Row + 'static>(engine: &Engine, pool: &Arc<BufferPool>) -> Result<Arc<Table>> {
    let tree = async |is_unique| {
        let space = Arc::new(Places::default());
        Tree::create(pool.clone(), space, TreeForm::new(is_unique)).await
    };
    let primary = if R::IS_KEYED { Some(tree(true).await?) } else { None };
    let mut secondary = Vec::new();
    for _ in 0..R::SECONDARY {
        secondary.push((tree(false).await?, false));
    }
    let keys = Arc::new(KeysOf::<R>::new());
    let form = TableForm { id: R::ID, primary, secondary, keys, frozen: None, row_end: 0 };
    Ok(engine.add_table(Table::new(form)?)?)
}
