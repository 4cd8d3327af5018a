//! The bytes of a file, piece by piece, read by workers somewhat ahead of their use. What is still being written to is read up to
//! where that is at the moment.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use datafusion::common::Result as DfResult;
use futures::Stream;
use futures::stream::try_unfold;
use weft_rt::JoinHandle;
use weft_rt::io::IoBuf;
use weft_rt::memory::Reservation;
use weft_store::StoreError;
use weft_store::spill::HEADER_BYTES;

use super::piece::Piece;
use super::{Content, SpillFiles, lock};
use crate::error::{Result, SqlError};

/// Pieces that are read at once, if there is memory: as many files are read by one operator, that is enough.
const DEPTH: usize = 2;

/// Reads a file from its beginning.
pub(super) struct Reader {
    files: SpillFiles,
    content: Arc<Mutex<Content>>,
    /// Pieces that were asked for, of which these are not used yet.
    asked: usize,
    coming: VecDeque<Coming>,
    /// Bytes of the piece after all that are used up, read while it was not full.
    used_bytes: usize,
    /// Of the piece that is used.
    memory: Option<Reservation>,
}

/// A piece that is read.
struct Coming {
    len: usize,
    memory: Option<Reservation>,
    read: JoinHandle<Result<IoBuf>>,
}

/// A part of a buffer.
struct Part {
    buffer: IoBuf,
    from: usize,
    to: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }
}

impl Reader {
    pub(super) fn new(files: SpillFiles, content: Arc<Mutex<Content>>) -> Reader {
        let coming = VecDeque::new();
        Reader { files, content, asked: 0, coming, used_bytes: 0, memory: None }
    }

    pub(super) fn into_stream(self) -> Pin<Box<dyn Stream<Item = DfResult<Bytes>> + Send>> {
        Box::pin(try_unfold(self, |mut reader| async move {
            let bytes = reader.next().await?;
            Ok(bytes.map(|bytes| (bytes, reader)))
        }))
    }

    /// The next bytes; `None` if there are no more at the moment.
    ///
    /// # Errors
    /// What went wrong with writing or reading them; that the statement was cancelled.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.memory = None;
        loop {
            self.files.check()?;
            if let Some(bytes) = self.ask() {
                return Ok(Some(bytes));
            }
            let Some(Coming { len, memory, read }) = self.coming.pop_front() else {
                return Ok(None);
            };
            let read = read.await.map_err(|error| SqlError::from(StoreError::from(error)))?;
            let buffer = read?;
            let used_bytes = std::mem::take(&mut self.used_bytes);
            if used_bytes < len {
                self.memory = memory;
                let (from, to) = (HEADER_BYTES + used_bytes, HEADER_BYTES + len);
                return Ok(Some(Bytes::from_owner(Part { buffer, from, to })));
            }
        }
    }

    /// Has pieces read, as many as may be read at once. If there are none, what there is after them.
    fn ask(&mut self) -> Option<Bytes> {
        let content = lock(&self.content);
        while self.coming.len() < DEPTH
            && let Some(piece) = content.pieces.get(self.asked)
        {
            let memory = self.files.ledger.try_reserve(piece.len as u64);
            if memory.is_none() && !self.coming.is_empty() {
                break;
            }
            let (len, read) = (piece.len, read(&self.files, Arc::clone(piece)));
            self.coming.push_back(Coming { len, memory, read });
            self.asked += 1;
        }
        let tail = content.tail.as_ref().filter(|_| self.coming.is_empty())?;
        let fresh = tail.written().get(self.used_bytes..).filter(|fresh| !fresh.is_empty())?;
        self.used_bytes += fresh.len();
        Some(Bytes::copy_from_slice(fresh))
    }
}

/// Reads a piece, by a task of a worker, which goes on if nobody waits for it.
fn read(files: &SpillFiles, piece: Arc<Piece>) -> JoinHandle<Result<IoBuf>> {
    let (progress, counts) = (Arc::clone(&files.progress), Arc::clone(&files.spilled));
    files.runtime.spawn(move || async move {
        let spilled = piece.written().await?.spilled;
        let buffer = spilled.read(IoBuf::to_be_filled(spilled.bytes())).await?;
        progress.add_bytes_read(spilled.written_bytes() as u64);
        counts.note_read(&spilled);
        Ok(buffer)
    })
}
