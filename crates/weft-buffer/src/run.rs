//! Fixing a run of pages for a scan: adjacent cold pages are read by one request.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use weft_rt::io::IoBuf;
use weft_rt::memory::MemoryError;
use weft_rt::{Batch, Boundary};

use crate::error::BufferError;
use crate::frame_size::FrameSize;
use crate::frame_state::Use;
use crate::guard::PageGuard;
use crate::page::PageId;
use crate::page_table::PageTable;
use crate::pool::{BufferPool, Loading, Patience};
use crate::swip::SwipState;

/// Most bytes of one request for several pages.
const READ_BYTES_MAX: usize = 1 << 20;
/// Requests of one run in flight at a time.
const RUN_DEPTH: usize = 16;

/// A cold page of the run that this coroutine reads.
struct Cold<'a> {
    /// Its place in the run.
    at: usize,
    id: PageId,
    loading: Loading<'a>,
    buffer: IoBuf,
}

/// What is known of a run on the way.
struct Run {
    guards: Vec<Option<PageGuard>>,
    error: Option<BufferError>,
}

impl BufferPool {
    /// As [`BufferPool::fix_for_scan`] for each of these pages of `table`, all at once; the guards come in
    /// the order of the pages. Pages that lie one after the other on their device, and are not in memory,
    /// are read by one request of up to 1 MiB.
    ///
    /// Waits for memory while it holds guards only when it is the first in line to wait, so coroutines
    /// that fix one run at a time, and wait for nothing else meanwhile, all go on.
    ///
    /// # Errors
    /// As [`BufferPool::fix`]; [`BufferError::Budget`] if the pages do not fit the budget together.
    ///
    /// # Panics
    /// As [`BufferPool::fix`].
    pub async fn fix_run_for_scan(
        &self,
        table: &Arc<PageTable>,
        pages: Range<usize>,
    ) -> Result<Vec<PageGuard>, BufferError> {
        self.check_fits(table, pages.clone())?;
        if let Some(guards) = self.fix_run_now(table, pages.clone()).await? {
            return Ok(guards);
        }
        let turn = self.cache.line_up().await;
        let mut guards = Vec::with_capacity(pages.len());
        for page in pages {
            let guard = match self.try_fix_as(table, page, Use::Scan) {
                Some(guard) => guard,
                None => {
                    let patience = Patience::InTurn(&turn);
                    let guard = self.fix_slow(table, page, Use::Scan, patience).await?;
                    guard.expect("memory was waited for")
                }
            };
            guards.push(guard);
        }
        Ok(guards)
    }

    fn check_fits(&self, table: &PageTable, pages: Range<usize>) -> Result<(), BufferError> {
        let frame_bytes = |page| FrameSize::of_units(table.id(page).units()).bytes() as u64;
        let requested_bytes = pages.map(frame_bytes).sum();
        let limit_bytes = self.cache.ledger.limit().max(self.cache.floor_bytes());
        if requested_bytes > limit_bytes {
            return Err(MemoryError::TooLarge { requested_bytes, limit_bytes }.into());
        }
        Ok(())
    }

    /// Fixes the run if there is memory for it without waiting; `None`, and no guard, if there is not.
    async fn fix_run_now(
        &self,
        table: &Arc<PageTable>,
        pages: Range<usize>,
    ) -> Result<Option<Vec<PageGuard>>, BufferError> {
        // Those in memory first, so that they are not evicted for the others.
        let guards = pages.clone().map(|page| self.try_fix_as(table, page, Use::Scan)).collect();
        let run = RefCell::new(Run { guards, error: None });
        let Some(cold) = self.begin_cold(table, pages.clone(), &run)? else { return Ok(None) };
        if !cold.is_empty() {
            let mut requests = split_by_request(cold).into_iter();
            let reads = Batch::new(RUN_DEPTH, Boundary::Weak, || {
                let request = requests.next()?;
                let run = &run;
                Some(async move {
                    if let Err(error) = self.read_together(request, run, table).await {
                        run.borrow_mut().error.get_or_insert(error);
                    }
                    Ok::<(), Infallible>(())
                })
            });
            let Ok(()) = reads.await;
        }
        let Run { guards, error } = run.into_inner();
        if let Some(error) = error {
            return Err(error);
        }
        let mut all = Vec::with_capacity(guards.len());
        for (page, guard) in pages.zip(guards) {
            all.push(match guard {
                Some(guard) => guard,
                // Another coroutine reads it, or changes it: it has a frame, or had one.
                None => match self.fix_slow(table, page, Use::Scan, Patience::None).await? {
                    Some(guard) => guard,
                    None => return Ok(None),
                },
            });
        }
        Ok(Some(all))
    }

    /// Begins to load the cold pages of the run; `None` if there is no memory for all of them.
    fn begin_cold<'a>(
        &'a self,
        table: &'a Arc<PageTable>,
        pages: Range<usize>,
        run: &RefCell<Run>,
    ) -> Result<Option<Vec<Cold<'a>>>, BufferError> {
        let run = run.borrow();
        let mut cold = Vec::new();
        for (at, page) in pages.enumerate() {
            let swip = table.swip(page);
            let SwipState::Cold(id) = swip.state() else { continue };
            if run.guards[at].is_some() || id.is_vacant() {
                continue;
            }
            self.cache.device(id)?;
            let Some(frame) = self.cache.obtain_now(FrameSize::of_units(id.units())) else {
                return Ok(None);
            };
            let (pin, buffer) = self.cache.begin(frame, table, page, id);
            if swip.change(SwipState::Cold(id), SwipState::Loading(pin.page())) {
                cold.push(Cold { at, id, loading: Loading { pin: Some(pin) }, buffer });
            }
        }
        Ok(Some(cold))
    }

    /// Reads pages that lie one after the other.
    async fn read_together(
        &self,
        request: Vec<Cold<'_>>,
        run: &RefCell<Run>,
        table: &PageTable,
    ) -> Result<(), BufferError> {
        let first = request[0].id;
        let device = self.cache.device(first)?;
        let mut loads = Vec::with_capacity(request.len());
        let mut buffers = Vec::with_capacity(request.len());
        let mut bytes = 0;
        for Cold { at, id, loading, buffer } in request {
            bytes += buffer.len();
            loads.push((at, id, loading));
            buffers.push(buffer);
        }
        self.cache.note_read(loads.len() as u64, bytes);
        let (result, buffers) = device.read_vectored_exact(buffers, first.offset()).await;
        result?;
        for ((at, id, loading), buffer) in loads.into_iter().zip(buffers) {
            let guard = self.finish(loading, buffer, id, table.check(), Use::Scan).await?;
            run.borrow_mut().guards[at] = Some(guard);
        }
        Ok(())
    }
}

/// Cold pages in the order of the run, those together that one request can read.
fn split_by_request(cold: Vec<Cold<'_>>) -> Vec<Vec<Cold<'_>>> {
    let mut requests: Vec<Vec<Cold<'_>>> = Vec::new();
    // Where a page has to begin to be read together with those before, and how long it may be.
    let (mut device, mut end, mut room) = (0, u64::MAX, 0);
    for page in cold {
        let id = page.id;
        if (id.device(), id.offset()) == (device, end) && id.bytes() <= room {
            room -= id.bytes();
            requests.last_mut().expect("it follows one").push(page);
        } else {
            room = READ_BYTES_MAX - id.bytes();
            requests.push(vec![page]);
        }
        (device, end) = (id.device(), id.offset() + id.bytes() as u64);
    }
    requests
}
