//! Reading blocks from their pages: the only way from the directory of a table to its bytes.
//!
//! Pages come from the buffer pool, those that lie one behind the other by one request. A coroutine that
//! holds pages never waits for anything but further pages, and all that are held together fit into what the
//! pool always has, so that reading goes on however little memory there is. What does not fit at once is
//! read in lots; a block of several pages is copied, a page at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use weft_buffer::{
    BufferError, BufferPool, PAGE_BYTES_MAX, PageGuard, PageId, PageTable, SwipState,
};
use weft_rt::io::IoBuf;
use weft_rt::memory::Ledger;
use weft_rt::yield_now;

use crate::decompressed::Decompressed;
use crate::error::{Result, StoreError};
use crate::pages::{PageKind, Stored};
use crate::row_group::Block;

/// Bytes of the pages that one coroutine holds at once.
const LOT_BYTES: u64 = 4 << 20;

/// Time after which whoever works on blocks lets others run.
pub(crate) const TURN: Duration = Duration::from_micros(100);

/// What reading has cost so far.
#[derive(Debug, Default)]
pub(crate) struct ReadStats {
    /// Bytes read from devices.
    pub(crate) bytes: AtomicU64,
    /// Requests to devices.
    pub(crate) reads: AtomicU64,
    /// Pages that were in memory already.
    pub(crate) hits: AtomicU64,
    /// Time from the request for some pages to the last one's arrival, summed, in ns.
    pub(crate) wait_ns: AtomicU64,
}

/// Counts `value` more.
pub(crate) fn count(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// An error, and the number of the block that it is about.
pub(crate) type AtBlock = (usize, StoreError);

/// How the pages of some blocks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Once: they leave memory first.
    ByScan,
    /// Maybe again.
    ByPoint,
}

/// Reads pages of the database's devices, on a worker.
#[derive(Clone, Debug)]
pub(crate) struct PageSource {
    pool: Arc<BufferPool>,
    /// Bytes of pages that may be held at once.
    held: Ledger,
    /// Of the whole database, for point reads.
    decompressed: Arc<Decompressed>,
    /// Of the whole database.
    total: Arc<ReadStats>,
    /// Of who uses this source.
    own: Arc<ReadStats>,
}

/// The bytes of a block.
enum BlockBytes {
    /// In the page that holds them all.
    Page(PageGuard),
    /// Copied from several pages.
    Copied(Vec<u8>),
}

impl BlockBytes {
    fn payload(&self, bytes: usize) -> Cow<'_, [u8]> {
        match self {
            BlockBytes::Page(page) => Cow::Borrowed(&page.payload()[..bytes]),
            BlockBytes::Copied(copied) => Cow::Borrowed(copied),
        }
    }
}

impl PageSource {
    /// A source over a pool that always has at least `bytes_min` bytes.
    pub(crate) fn new(pool: Arc<BufferPool>, bytes_min: u64) -> PageSource {
        let held = Ledger::new(held_bytes_max(bytes_min));
        let decompressed = Decompressed::new(pool.ledger().clone());
        PageSource { pool, held, decompressed, total: Arc::default(), own: Arc::default() }
    }

    /// The pool will always have at least `bytes_min` bytes from now on.
    pub(crate) fn set_bytes_min(&self, bytes_min: u64) {
        self.held.set_limit(held_bytes_max(bytes_min));
        self.pool.set_bytes_min(bytes_min);
    }

    /// The same source with counters of its own beside those of the database.
    pub(crate) fn counted(&self) -> PageSource {
        PageSource { own: Arc::default(), ..self.clone() }
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Blocks that are kept decompressed.
    pub(crate) fn decompressed(&self) -> &Decompressed {
        &self.decompressed
    }

    /// What was read through this source.
    pub(crate) fn stats(&self) -> &ReadStats {
        &self.own
    }

    /// What was read of the database.
    pub(crate) fn total(&self) -> &ReadStats {
        &self.total
    }

    /// The data file of a device.
    pub(crate) fn path(&self, device: u8) -> PathBuf {
        match self.pool.devices().files().nth(device.into()) {
            Some(file) => file.path().into(),
            None => format!("device {device}").into(),
        }
    }

    /// Reads what is not kept in the pool: a segment of a directory, or statistics.
    pub(crate) async fn read_once(&self, stored: &Stored, kind: PageKind) -> Result<Vec<u8>> {
        let pages = PageTable::new(stored.pages());
        let block = Block::placed(*stored);
        let blocks = [&block];
        let mut bytes = Vec::new();
        let read = self.visit(&pages, &blocks, kind, Wanted::ByScan, |_, found| {
            bytes = found.to_vec();
            Ok(())
        });
        read.await.map_err(|(_, error)| error)?;
        Ok(bytes)
    }

    /// Reads blocks of one row group, whose pages are in `pages`, and calls `work` with the number and the
    /// bytes of each, in order.
    ///
    /// # Errors
    /// The number of a block that could not be read, and why; or what `work` says of it.
    pub(crate) async fn visit(
        &self,
        pages: &Arc<PageTable>,
        blocks: &[&Block],
        kind: PageKind,
        wanted: Wanted,
        mut work: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> std::result::Result<(), AtBlock> {
        for lot in lots(blocks, LOT_BYTES.min(self.held.limit())) {
            let first = lot.start;
            let bytes = blocks[lot.clone()].iter().map(|block| held_bytes(block)).sum();
            let held = self.held.reserve(bytes).await;
            let held = held.map_err(|error| (first, error.into()))?;
            let read = self.read(pages, &blocks[lot], kind, wanted).await;
            let read = read.map_err(|(number, error)| (first + number, error))?;
            let mut since = Instant::now();
            for (number, bytes) in (first..).zip(&read) {
                let payload = bytes.payload(blocks[number].stored.bytes as usize);
                work(number, &payload).map_err(|error| (number, error))?;
                if since.elapsed() >= TURN {
                    yield_now().await;
                    since = Instant::now();
                }
            }
            // The pages go first.
            drop(read);
            drop(held);
        }
        Ok(())
    }

    /// Keeps the pages of a row group in the pool as far as there is room, which lie one behind the other: dirty if they are not written. True
    /// if it has all of them.
    pub(crate) fn keep(
        &self,
        pages: &Arc<PageTable>,
        (images, are_written): (&[IoBuf], bool),
    ) -> bool {
        let (mut page, mut are_kept) = (0, true);
        for buffer in images {
            let mut rest = &buffer[..];
            while !rest.is_empty() {
                let (image, behind) = rest.split_at(pages.id(page).bytes());
                are_kept &= self.pool.adopt(pages, page, (image, are_written));
                (page, rest) = (page + 1, behind);
            }
        }
        are_kept
    }

    /// Brings the pages of blocks into the pool, without holding them: whoever visits these soon finds them
    /// there, unless memory is short. Errors are left to the visit.
    pub(crate) async fn prefetch(&self, pages: &Arc<PageTable>, blocks: &[&Block]) {
        for lot in lots(blocks, LOT_BYTES.min(self.held.limit())) {
            let blocks = &blocks[lot];
            let is_cold = |page: usize| !matches!(pages.swip(page).state(), SwipState::Hot(_));
            if !blocks.iter().any(|block| is_cold(block.first_page as usize)) {
                continue;
            }
            let bytes = blocks.iter().map(|block| held_bytes(block)).sum();
            let Ok(held) = self.held.reserve(bytes).await else { return };
            let runs = runs(blocks, pages);
            let fixed = runs.into_iter().map(|run| self.fix_run(pages, run, Wanted::ByScan));
            drop(join_all(fixed).await);
            drop(held);
        }
    }

    /// Reads one lot.
    async fn read(
        &self,
        pages: &Arc<PageTable>,
        blocks: &[&Block],
        kind: PageKind,
        wanted: Wanted,
    ) -> std::result::Result<Vec<BlockBytes>, AtBlock> {
        let started = Instant::now();
        let runs = runs(blocks, pages);
        let fixed = join_all(runs.iter().map(|run| self.fix_run(pages, run.clone(), wanted))).await;
        let mut guards = Vec::with_capacity(blocks.len());
        for guard in fixed {
            guards.extend(guard.map_err(|error| self.at_block(blocks, error))?);
        }
        let mut guards = guards.into_iter();
        let mut read = Vec::with_capacity(blocks.len());
        for (number, block) in blocks.iter().enumerate() {
            let bytes = if block.page_count() == 1 {
                let page = guards.next().expect("a guard for each page");
                let checked = block.stored.check(kind, [&*page].into_iter());
                checked.map(|()| BlockBytes::Page(page))
            } else {
                let copied = self.copy(pages, block, kind, wanted).await;
                copied.map_err(|error| self.at_block(blocks, error))?
            };
            let damaged = |error: crate::wire::WireError| self.damaged(&block.stored, error.0);
            read.push(bytes.map_err(|error| (number, damaged(error)))?);
        }
        let wait = started.elapsed().as_nanos() as u64;
        for stats in [&self.own, &self.total] {
            count(&stats.wait_ns, wait);
        }
        Ok(read)
    }

    /// Copies a block of several pages.
    async fn copy(
        &self,
        pages: &Arc<PageTable>,
        block: &Block,
        kind: PageKind,
        wanted: Wanted,
    ) -> std::result::Result<crate::wire::WireResult<BlockBytes>, BufferError> {
        let first = block.first_page as usize;
        let bytes = block.stored.bytes as usize;
        let mut copied = Vec::with_capacity(bytes);
        let mut headers = Vec::with_capacity(block.page_count());
        for number in first..first + block.page_count() {
            let page = self.fix_run(pages, number..number + 1, wanted).await?.remove(0);
            let payload = page.payload();
            copied.extend_from_slice(&payload[..payload.len().min(bytes - copied.len())]);
            headers.push(page[..weft_buffer::PAGE_HEADER_BYTES].to_vec());
        }
        let checked = block.stored.check(kind, headers.iter().map(Vec::as_slice));
        Ok(checked.map(|()| BlockBytes::Copied(copied)))
    }

    async fn fix_run(
        &self,
        pages: &Arc<PageTable>,
        run: Range<usize>,
        wanted: Wanted,
    ) -> std::result::Result<Vec<PageGuard>, BufferError> {
        let is_hot = |page: &usize| matches!(pages.swip(*page).state(), SwipState::Hot(_));
        let (mut hits, mut bytes) = (0, 0);
        for page in run.clone() {
            if is_hot(&page) {
                hits += 1;
            } else {
                bytes += pages.id(page).bytes() as u64;
            }
        }
        for stats in [&self.own, &self.total] {
            count(&stats.hits, hits);
            count(&stats.bytes, bytes);
            count(&stats.reads, u64::from(bytes > 0));
        }
        match wanted {
            Wanted::ByScan => self.pool.fix_run_for_scan(pages, run).await,
            Wanted::ByPoint => {
                let fixed = join_all(run.map(|page| self.pool.fix(pages, page))).await;
                fixed.into_iter().collect()
            }
        }
    }

    /// The block that an error of the pool is about: the first one, if it does not say.
    fn at_block(&self, blocks: &[&Block], error: BufferError) -> AtBlock {
        let of = |id: PageId| {
            let has = |block: &&Block| block.stored.pages().any(|page| page == id);
            blocks.iter().position(has).unwrap_or(0)
        };
        match error {
            BufferError::Page { path, id, source } => {
                let number = of(id);
                let (place, problem) = (format!("{id:?}"), source.to_string());
                (number, StoreError::Damaged { path, place, problem })
            }
            BufferError::Read(error) => (0, error.into()),
            BufferError::Budget(error) => (0, error.into()),
            other => (0, StoreError::Buffer(other)),
        }
    }

    /// The error for a block whose pages are whole but cannot be decoded.
    pub(crate) fn undecodable(&self, stored: &Stored, error: weft_codec::Error) -> StoreError {
        match error {
            weft_codec::Error::Truncated { .. } | weft_codec::Error::Damaged { .. } => {
                self.damaged(stored, error.to_string())
            }
            other => StoreError::Values(other),
        }
    }

    /// Checks that a block has as many rows as the directory says.
    pub(crate) fn check_rows(&self, block: &Block, rows: usize) -> Result<()> {
        if rows == block.rows as usize {
            return Ok(());
        }
        Err(self.damaged(&block.stored, format!("{rows} rows instead of {}", block.rows)))
    }

    /// The error for a block whose pages are not those that were written.
    pub(crate) fn damaged(&self, stored: &Stored, problem: String) -> StoreError {
        let extent = stored.extent();
        StoreError::Damaged {
            path: self.path(stored.device),
            place: format!("bytes {} to {}", extent.offset(), extent.offset() + extent.bytes()),
            problem,
        }
    }
}

/// Bytes of pages that may be held at once if the pool always has `bytes_min`: frames are up to a fifth longer than their
/// pages.
fn held_bytes_max(bytes_min: u64) -> u64 {
    (bytes_min / 4 * 3).max(PAGE_BYTES_MAX as u64)
}

/// Bytes of the pages of a block that are held at once.
fn held_bytes(block: &Block) -> u64 {
    block.stored.extent().bytes().min(PAGE_BYTES_MAX as u64)
}

/// Blocks that are read together: as many as fit, but at least one.
fn lots(blocks: &[&Block], bytes_max: u64) -> Vec<Range<usize>> {
    let mut lots: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (number, block) in blocks.iter().enumerate() {
        bytes += held_bytes(block);
        match lots.last_mut() {
            Some(lot) if bytes <= bytes_max => lot.end = number + 1,
            _ => {
                bytes = held_bytes(block);
                lots.push(number..number + 1);
            }
        }
    }
    lots
}

/// Numbers of pages that one request can read, of the blocks of one page.
fn runs(blocks: &[&Block], pages: &PageTable) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for block in blocks.iter().filter(|block| block.page_count() == 1) {
        let page = block.first_page as usize;
        bytes += pages.id(page).bytes();
        match runs.last_mut() {
            Some(run) if run.end == page && bytes <= PAGE_BYTES_MAX => run.end += 1,
            _ => {
                bytes = pages.id(page).bytes();
                runs.push(page..page + 1);
            }
        }
    }
    runs
}
