//! A table that is larger than memory: its rows in a file of pages, and its index in another.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weft_buffer::page::seal;
use weft_buffer::{BufferPool, Devices, PageHeader, PageId, PageTable, PoolOptions};
use weft_index::{BulkLoad, IndexError, Space, Tree, TreeForm};
use weft_rt::Runtime;
use weft_rt::io::{Access, File};
use weft_rt::memory::Ledger;
use weft_txn::{FrozenRow, FrozenRows};

use crate::database::Form;
use crate::error::{Result, YcsbError};

/// Bytes of a page of rows.
const PAGE_BYTES: usize = 4096;
/// Bytes of a page's header.
const HEADER_BYTES: usize = 16;
/// What the pages of rows are marked with.
const ROWS_KIND: u8 = 89;
/// The device with the rows.
const ROWS_DEVICE: u8 = 0;
/// The device with the index.
const INDEX_DEVICE: u8 = 1;

/// The files of a table.
#[derive(Clone, Debug)]
pub struct Files {
    pub(crate) form: Form,
    rows: PathBuf,
    index: PathBuf,
    root: PageId,
    /// Bytes of the index.
    index_end: u64,
}

impl Files {
    /// Bytes of rows and index.
    pub fn bytes(&self) -> u64 {
        page_count(self.form) * PAGE_BYTES as u64 + self.index_end
    }

    /// The index and the rows, of which as much is in memory as the ledger permits.
    ///
    /// # Errors
    /// If there is not the least memory for it, or the files cannot be opened.
    pub(crate) async fn open(&self, ledger: Ledger) -> Result<(Tree, Arc<dyn FrozenRows>)> {
        let files = vec![
            File::open(&self.rows, Access::Read)?,
            File::open(&self.index, Access::ReadWrite)?,
        ];
        let pool = BufferPool::dynamic(Devices::new(files), ledger, PoolOptions::default())?;
        let space = Arc::new(Places::new(INDEX_DEVICE, self.index_end));
        let tree = Tree::open(Arc::clone(&pool), space, self.root).await?;
        let ids = (0..page_count(self.form)).map(page_id);
        let table = PageTable::new(ids);
        let rows = StoredRows { pool, table, form: self.form };
        Ok((tree, Arc::new(rows)))
    }
}

fn rows_of_page(form: Form) -> u64 {
    ((PAGE_BYTES - HEADER_BYTES) / form.row_bytes()) as u64
}

fn page_count(form: Form) -> u64 {
    form.rows.div_ceil(rows_of_page(form))
}

fn page_id(number: u64) -> PageId {
    PageId::new(ROWS_DEVICE, number * PAGE_BYTES as u64, PAGE_BYTES)
}

/// Writes the rows and the index of a table into a directory. The index takes memory of the ledger.
///
/// # Errors
/// If the files cannot be written, or there is too little memory for the index's upper levels.
pub fn prepare(
    runtime: &Runtime,
    form: Form,
    directory: &Path,
    ledger: Ledger,
) -> std::result::Result<Files, YcsbError> {
    form.check()?;
    let (rows, index) = (directory.join("ycsb.rows"), directory.join("ycsb.index"));
    write_rows(form, &rows).map_err(|source| YcsbError::Write { path: rows.clone(), source })?;
    fs::File::create(&index).map_err(|source| YcsbError::Write { path: index.clone(), source })?;
    let path = index.clone();
    let loaded = runtime.block_on(move || async move { write_index(form, &path, ledger).await })?;
    let (root, index_end) = loaded?;
    Ok(Files { form, rows, index, root, index_end })
}

fn write_rows(form: Form, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    let per_page = rows_of_page(form);
    let mut row = Vec::with_capacity(form.row_bytes());
    for page in 0..page_count(form) {
        let mut bytes = vec![0; PAGE_BYTES];
        let rows = page * per_page..form.rows.min((page + 1) * per_page);
        let tuple_count = (rows.end - rows.start) as u16;
        for (at, key) in rows.enumerate() {
            form.fill_row(key, &mut row);
            let start = HEADER_BYTES + at * row.len();
            bytes[start..start + row.len()].copy_from_slice(&row);
        }
        seal(&mut bytes, PageHeader { tuple_count, kind: ROWS_KIND, id: page_id(page) });
        file.write_all(&bytes)?;
    }
    file.into_inner().map_err(|error| error.into_error())?.sync_all()
}

async fn write_index(form: Form, path: &Path, ledger: Ledger) -> Result<(PageId, u64)> {
    // The index's pages lie on the second device, also while they are written.
    let unused = File::unnamed(&std::env::temp_dir())?;
    let devices = Devices::new(vec![unused, File::open(path, Access::ReadWrite)?]);
    let pool = BufferPool::dynamic(devices, ledger, PoolOptions::default())?;
    let space = Arc::new(Places::new(INDEX_DEVICE, 0));
    let mut load = BulkLoad::new(pool, Arc::clone(&space) as Arc<dyn Space>, TreeForm::new(true));
    let mut key = Vec::new();
    for row in 0..form.rows {
        key.clear();
        form.append_key(row, &mut key);
        load.push(&key, row, &[]).await?;
    }
    let flushed = load.finish().await?.flush().await?;
    Ok((flushed.root, space.end()))
}

/// Places of a device, one after the other.
pub(crate) struct Places {
    device: u8,
    end: Mutex<u64>,
}

impl Places {
    pub(crate) fn new(device: u8, end: u64) -> Places {
        Places { device, end: Mutex::new(end) }
    }

    fn end(&self) -> u64 {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space for Places {
    fn allocate(&self, bytes: usize) -> std::result::Result<PageId, IndexError> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end += bytes as u64;
        Ok(PageId::new(self.device, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

/// The rows of a file.
struct StoredRows {
    pool: Arc<BufferPool>,
    table: Arc<PageTable>,
    form: Form,
}

impl FrozenRows for StoredRows {
    fn row(&self, row: u64) -> FrozenRow<'_> {
        Box::pin(async move {
            if row >= self.form.rows {
                return Ok(None);
            }
            let (per_page, bytes) = (rows_of_page(self.form), self.form.row_bytes());
            let page = (row / per_page) as usize;
            let guard = match self.pool.try_fix(&self.table, page) {
                Some(guard) => guard,
                None => self.pool.fix(&self.table, page).await?,
            };
            let start = (row % per_page) as usize * bytes;
            Ok(Some(guard.payload()[start..start + bytes].into()))
        })
    }

    fn end(&self) -> u64 {
        self.form.rows
    }
}
