//! Reads a file through the cache: blocks that are kept from the disk, runs of the others from where the file is.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;
use weft_rt::memory::Reservation;

use crate::cache::{BLOCK_BYTES, Blocks, Claim, FileKey};
use crate::error::Result;
use crate::file::FileInner;

/// What a read needs to go through the cache.
pub(crate) struct Kept {
    blocks: Arc<Blocks>,
    key: FileKey,
    /// What whole blocks have beyond the range, and copies of them.
    _memory: Reservation,
}

/// Blocks that were found, by their numbers from the first one on.
struct Found {
    first: u64,
    blocks: Vec<Option<Bytes>>,
}

impl Found {
    fn put(&mut self, number: u64, block: Bytes) {
        self.blocks[(number - self.first) as usize] = Some(block);
    }

    fn missing(&self) -> Vec<u64> {
        let numbered = (self.first..).zip(&self.blocks);
        numbered.filter(|(_, block)| block.is_none()).map(|(number, _)| number).collect()
    }
}

impl FileInner {
    /// The cache for a range of the file, if it is on, the file may be kept, and there is memory for whole blocks.
    pub(crate) fn kept_blocks(&self, range: &Range<u64>) -> Option<Kept> {
        if self.is_here() {
            return None;
        }
        let (blocks, key) = (self.shared.cache.blocks()?, self.key.clone()?);
        let wide = Blocks::bytes_of(&Blocks::numbers(range), self.size());
        let memory = self.shared.ledger.try_reserve(wide.end - wide.start)?;
        Some(Kept { blocks, key, _memory: memory })
    }

    /// Bytes of the file. Blocks that others are fetching are awaited.
    pub(crate) async fn fetch_through(&self, kept: Kept, range: Range<u64>) -> Result<Bytes> {
        let numbers = Blocks::numbers(&range);
        let count = (numbers.end - numbers.start) as usize;
        let mut found = Found { first: numbers.start, blocks: vec![None; count] };
        self.look_up(&kept, &mut found, numbers.clone().collect()).await?;
        let (mut claims, mut awaited) = (Vec::new(), Vec::new());
        for number in found.missing() {
            match kept.blocks.claim(&kept.key, number) {
                Ok(claim) => claims.push((number, claim)),
                Err(other) => awaited.push((number, other)),
            }
        }
        // Who claims a block may come just behind the one who has fetched it.
        let claimed = claims.iter().map(|(number, _)| *number).collect();
        self.look_up(&kept, &mut found, claimed).await?;
        claims.retain(|(number, _)| found.blocks[(number - found.first) as usize].is_none());
        self.fetch_runs(&kept, &mut found, claims).await?;
        for (_, other) in &mut awaited {
            // It ends when the block is there, or its reader has given up.
            other.changed().await.ok();
        }
        self.look_up(&kept, &mut found, awaited.iter().map(|(number, _)| *number).collect())
            .await?;
        let left = found.missing().into_iter().map(|number| (number, None)).collect();
        self.fetch_runs(&kept, &mut found, left).await?;
        Ok(joined(&found, &range))
    }

    /// Reads blocks of these numbers, as far as they are kept.
    async fn look_up(&self, kept: &Kept, found: &mut Found, numbers: Vec<u64>) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (blocks, key) = (Arc::clone(&kept.blocks), kept.key.clone());
        let read = tokio::task::spawn_blocking(move || {
            let read = numbers.into_iter().map(|number| (number, blocks.read(&key, number)));
            read.collect::<Vec<_>>()
        });
        let read = read.await.map_err(|error| self.system(&std::io::Error::other(error)))?;
        for (number, block) in read {
            if let Some(block) = block {
                found.put(number, block);
            }
        }
        Ok(())
    }

    /// Fetches blocks, neighbouring blocks by one request, and keeps them.
    async fn fetch_runs<C: Into<Option<Claim>>>(
        &self,
        kept: &Kept,
        found: &mut Found,
        wanted: Vec<(u64, C)>,
    ) -> Result<()> {
        let mut runs: Vec<(Range<u64>, Vec<Option<Claim>>)> = Vec::new();
        for (number, claim) in wanted {
            match runs.last_mut() {
                Some((run, claims)) if run.end == number => {
                    run.end += 1;
                    claims.push(claim.into());
                }
                _ => runs.push((number..number + 1, vec![claim.into()])),
            }
        }
        let fetched = runs.into_iter().map(|(run, claims)| async move {
            let bytes = self.fetch_remote(Blocks::bytes_of(&run, self.size())).await?;
            self.keep(kept, &run, bytes.clone()).await?;
            drop(claims);
            Ok((run, bytes))
        });
        for (run, bytes) in try_join_all(fetched).await? {
            for number in run.clone() {
                found.put(number, block_of(&bytes, &run, number));
            }
        }
        Ok(())
    }

    /// Writes the blocks of a run.
    async fn keep(&self, kept: &Kept, run: &Range<u64>, bytes: Bytes) -> Result<()> {
        let (blocks, key, run) = (Arc::clone(&kept.blocks), kept.key.clone(), run.clone());
        let written = tokio::task::spawn_blocking(move || {
            for number in run.clone() {
                blocks.write(&key, number, &block_of(&bytes, &run, number));
            }
        });
        written.await.map_err(|error| self.system(&std::io::Error::other(error)))
    }
}

/// One block of the bytes of a run.
fn block_of(bytes: &Bytes, run: &Range<u64>, number: u64) -> Bytes {
    let start = ((number - run.start) * BLOCK_BYTES) as usize;
    bytes.slice(start..(start + BLOCK_BYTES as usize).min(bytes.len()))
}

/// The bytes of a range that lies in blocks all of which were found.
fn joined(found: &Found, range: &Range<u64>) -> Bytes {
    let parts = (found.first..).zip(found.blocks.iter().flatten()).map(|(number, block)| {
        let start = number * BLOCK_BYTES;
        let from = range.start.saturating_sub(start) as usize;
        block.slice(from..((range.end - start) as usize).min(block.len()))
    });
    let mut parts = parts.collect::<Vec<_>>();
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}
