//! A file that is elsewhere as a stream of bytes, for a thread that blocks: requests are ahead of the reader, more and longer ones the
//! further it goes, as far as the memory limit permits.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use weft_rt::memory::Reservation;

use crate::file::RemoteFile;
use crate::requests::Pending;

/// Bytes of the first request: a look at the start of a file needs no more.
const FIRST_BYTES: u64 = 128 << 10;

/// Bytes of a request, at most.
const REQUEST_BYTES_MAX: u64 = 4 << 20;

/// Requests that are under way at once.
const DEPTH_MAX: usize = 8;

/// Of the memory limit, the part that a reader may have ahead.
const AHEAD_PART: u64 = 32;

/// Reads a file from any byte on.
pub struct RemoteReader {
    file: RemoteFile,
    /// Bytes that have come.
    chunk: Bytes,
    /// The byte behind them.
    at: u64,
    /// What comes behind them, in order.
    ahead: VecDeque<Ahead>,
    /// The byte behind what was asked for.
    asked: u64,
    /// Bytes of the next request, and how many may be under way.
    request_bytes: u64,
    depth: usize,
    /// Some bytes have been asked for from here on.
    has_read: bool,
    /// The memory of `chunk`.
    memory: Option<Reservation>,
}

struct Ahead {
    pending: Pending<Bytes>,
    memory: Option<Reservation>,
}

impl fmt::Debug for RemoteReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RemoteReader({})", self.file.name())
    }
}

impl RemoteReader {
    pub(crate) fn new(file: RemoteFile) -> RemoteReader {
        RemoteReader {
            file,
            chunk: Bytes::new(),
            at: 0,
            ahead: VecDeque::new(),
            asked: 0,
            request_bytes: FIRST_BYTES,
            depth: 1,
            has_read: false,
            memory: None,
        }
    }

    /// Asks for what comes next. Without memory for it, one short request at a time goes on.
    fn ask(&mut self) -> io::Result<()> {
        let ledger = &self.file.shared().ledger;
        let most = (ledger.limit() / AHEAD_PART / DEPTH_MAX as u64).max(16 << 10);
        while self.ahead.len() < self.depth && self.asked < self.file.bytes() {
            let left = self.file.bytes() - self.asked;
            let mut bytes = self.request_bytes.min(most).min(left);
            let memory = ledger.try_reserve(bytes);
            if memory.is_none() {
                if !self.ahead.is_empty() {
                    return Ok(());
                }
                bytes = bytes.min(FIRST_BYTES);
            }
            let pending = self.file.begin(self.asked..self.asked + bytes)?;
            self.asked += bytes;
            self.ahead.push_back(Ahead { pending, memory });
        }
        Ok(())
    }

    /// Waits for the next bytes; false at the end of the file.
    fn refill(&mut self) -> io::Result<bool> {
        (self.chunk, self.memory) = (Bytes::new(), None);
        self.ask()?;
        let Some(Ahead { pending, memory }) = self.ahead.pop_front() else { return Ok(false) };
        // A reader that goes on is going to read more.
        if std::mem::replace(&mut self.has_read, true) {
            self.depth = (self.depth * 2).min(DEPTH_MAX);
            self.request_bytes = (self.request_bytes * 2).min(REQUEST_BYTES_MAX);
            self.ask()?;
        }
        let chunk = pending.wait()?;
        self.at += chunk.len() as u64;
        (self.chunk, self.memory) = (chunk, memory);
        Ok(true)
    }
}

impl Read for RemoteReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() && !into.is_empty() && !self.refill()? {
            return Ok(0);
        }
        let count = self.chunk.len().min(into.len());
        into[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

impl Seek for RemoteReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let here = self.at - self.chunk.len() as u64;
        let wanted = match to {
            SeekFrom::Start(byte) => Some(byte),
            SeekFrom::End(distance) => self.file.bytes().checked_add_signed(distance),
            SeekFrom::Current(distance) => here.checked_add_signed(distance),
        };
        let wanted = wanted.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a byte before the start of the file")
        })?;
        if wanted != here {
            let wanted = wanted.min(self.file.bytes());
            *self =
                RemoteReader { at: wanted, asked: wanted, ..RemoteReader::new(self.file.clone()) };
        }
        Ok(wanted)
    }
}
