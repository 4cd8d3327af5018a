//! Reading blocks from their pages: the only way from the directory of a table to its bytes.
//!
//! Pages that lie one behind the other are read together, up to 1 MiB at once, and all reads of a request
//! are in flight at the same time.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::future::join_all;
use weft_rt::io::IoBuf;

use crate::error::{Result, StoreError};
use crate::page::{PAGE_HEADER_BYTES, PageId};
use crate::pages::{PAGE_BYTES_MAX, PageKind, Stored, verify};
use crate::row_group::Block;
use crate::space::Space;

/// What reading has cost so far.
#[derive(Debug, Default)]
pub(crate) struct ReadStats {
    /// Bytes read from devices.
    pub(crate) bytes: AtomicU64,
    /// Requests to devices.
    pub(crate) reads: AtomicU64,
    /// Pages that were in memory already.
    pub(crate) hits: AtomicU64,
    /// Time from the first request of a row group to its last completion, summed, in ns.
    pub(crate) wait_ns: AtomicU64,
}

/// Counts `value` more.
pub(crate) fn count(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// Reads pages of the database's devices, on a worker.
#[derive(Clone, Debug)]
pub(crate) struct PageSource {
    space: Arc<Space>,
    /// Of the whole database.
    total: Arc<ReadStats>,
    /// Of who uses this source.
    own: Arc<ReadStats>,
}

/// The bytes of a block, in memory as its pages.
#[derive(Debug)]
pub(crate) struct BlockBytes {
    pages: Vec<(Arc<IoBuf>, Range<usize>)>,
    bytes: usize,
}

impl BlockBytes {
    /// The block; copied only if it spans several pages.
    pub(crate) fn payload(&self) -> Cow<'_, [u8]> {
        let payload = |(buffer, range): &(Arc<IoBuf>, Range<usize>)| {
            range.start + PAGE_HEADER_BYTES..range.end.min(buffer.len())
        };
        if let [page] = &self.pages[..] {
            let range = payload(page);
            return Cow::Borrowed(&page.0[range.start..range.start + self.bytes]);
        }
        let mut bytes = Vec::with_capacity(self.bytes);
        for page in &self.pages {
            let range = payload(page);
            let len = range.len().min(self.bytes - bytes.len());
            bytes.extend_from_slice(&page.0[range.start..range.start + len]);
        }
        Cow::Owned(bytes)
    }
}

/// Pages that one request reads, with the numbers of the blocks that they belong to.
struct Run {
    pages: Vec<(usize, PageId)>,
    bytes: usize,
}

impl Run {
    fn continues_with(&self, id: PageId) -> bool {
        let (_, last) = self.pages.last().expect("a run has pages");
        last.device() == id.device()
            && last.offset() + last.bytes() as u64 == id.offset()
            && self.bytes + id.bytes() <= PAGE_BYTES_MAX
    }
}

impl PageSource {
    pub(crate) fn new(space: Arc<Space>) -> PageSource {
        PageSource { space, total: Arc::default(), own: Arc::default() }
    }

    /// The same source with counters of its own beside those of the database.
    pub(crate) fn counted(&self) -> PageSource {
        PageSource { own: Arc::default(), ..self.clone() }
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
        match self.space.device(device) {
            Some(device) => device.file.path().into(),
            None => format!("device {device}").into(),
        }
    }

    /// Reads one block or segment.
    pub(crate) async fn read_one(&self, stored: &Stored, kind: PageKind) -> Result<BlockBytes> {
        let mut blocks = self.read(&[*stored], kind).await.map_err(|(_, error)| error)?;
        Ok(blocks.pop().expect("one block was asked for"))
    }

    /// Reads blocks, which come back in the order asked for.
    ///
    /// # Errors
    /// The number of a block that could not be read, and why.
    pub(crate) async fn read(
        &self,
        blocks: &[Stored],
        kind: PageKind,
    ) -> std::result::Result<Vec<BlockBytes>, (usize, StoreError)> {
        let started = Instant::now();
        let runs = runs(blocks);
        let read = join_all(runs.iter().map(|run| self.read_run(run))).await;
        let wait = started.elapsed().as_nanos() as u64;
        for stats in [&self.own, &self.total] {
            count(&stats.wait_ns, wait);
        }
        let mut found: Vec<BlockBytes> = blocks
            .iter()
            .map(|block| BlockBytes { pages: Vec::new(), bytes: block.bytes as usize })
            .collect();
        for (run, buffer) in runs.iter().zip(read) {
            let buffer = Arc::new(buffer.map_err(|error| (run.pages[0].0, error))?);
            let mut at = 0;
            for (number, id) in &run.pages {
                let range = at..at + id.bytes();
                at = range.end;
                verify(&buffer[range.clone()], *id).map_err(|error| {
                    (*number, self.damaged(&blocks[*number], error.to_string()))
                })?;
                found[*number].pages.push((buffer.clone(), range));
            }
        }
        for (number, (stored, block)) in blocks.iter().zip(&found).enumerate() {
            let pages = block.pages.iter().map(|(buffer, range)| &buffer[range.clone()]);
            stored
                .check(kind, pages)
                .map_err(|error| (number, self.damaged(stored, error.to_string())))?;
        }
        Ok(found)
    }

    async fn read_run(&self, run: &Run) -> Result<IoBuf> {
        let (_, first) = run.pages[0];
        let Some(device) = self.space.device(first.device()) else {
            return Err(StoreError::Damaged {
                path: self.path(first.device()),
                place: "a page".into(),
                problem: "there is no such device".into(),
            });
        };
        for stats in [&self.own, &self.total] {
            count(&stats.bytes, run.bytes as u64);
            count(&stats.reads, 1);
        }
        let (result, buffer) =
            device.file.read_exact(IoBuf::zeroed(run.bytes), first.offset()).await;
        result?;
        Ok(buffer)
    }

    /// The error for a block whose pages are whole but cannot be decoded.
    pub(crate) fn undecodable(&self, stored: &Stored, error: &weft_codec::Error) -> StoreError {
        self.damaged(stored, error.to_string())
    }

    /// Checks that a block has as many rows as the directory says.
    pub(crate) fn check_rows(&self, block: &Block, rows: usize) -> Result<()> {
        if rows == block.rows as usize {
            return Ok(());
        }
        Err(self.damaged(&block.stored, format!("{rows} rows instead of {}", block.rows)))
    }

    fn damaged(&self, stored: &Stored, problem: String) -> StoreError {
        let extent = stored.extent();
        StoreError::Damaged {
            path: self.path(stored.device),
            place: format!("bytes {} to {}", extent.offset(), extent.offset() + extent.bytes()),
            problem,
        }
    }
}

/// The requests that read these blocks.
fn runs(blocks: &[Stored]) -> Vec<Run> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_unstable_by_key(|number| (blocks[*number].device, blocks[*number].start));
    let mut runs: Vec<Run> = Vec::new();
    for number in order {
        for id in blocks[number].pages() {
            match runs.last_mut() {
                Some(run) if run.continues_with(id) => {
                    run.pages.push((number, id));
                    run.bytes += id.bytes();
                }
                _ => runs.push(Run { pages: vec![(number, id)], bytes: id.bytes() }),
            }
        }
    }
    runs
}
