//! Messages of an Arrow stream, one after the other.

use std::io::{Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::Schema;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::{Block, Endianness, Message, MessageHeader, MetadataVersion, root_as_message};

use super::check::check;
use crate::error::{FilesError, Result};
use crate::input::{Compression, Input};

/// The first and last bytes of a file.
const MAGIC: &[u8] = b"ARROW1";

/// Bytes of the magic word and what fills them up to eight.
const MAGIC_BYTES: u64 = 8;

/// Bytes behind a file's footer: its length and the magic word.
const TAIL_BYTES: u64 = 10;

/// Words of zeros behind those, at most.
const PADDING_WORDS_MAX: usize = 64;

/// What is in front of a message's length.
const CONTINUATION: [u8; 4] = [0xFF; 4];

/// Bytes of what describes a message, at most, where the file's size is not known.
const METADATA_BYTES_MAX: u64 = 256 << 20;

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 20;

/// A message with its body, checked.
pub(super) struct Frame {
    pub(super) block: Block,
    pub(super) bytes: Buffer,
    pub(super) is_dictionary: bool,
}

/// Reads messages.
pub(super) struct Frames {
    source: Box<dyn Read + Send>,
    path: PathBuf,
    /// Bytes of the stream that are left, where that is known.
    left: Option<u64>,
    body_bytes_max: u64,
    is_over: bool,
    /// The first message was found.
    has_begun: bool,
}

impl Frames {
    /// Opens a stream or file.
    ///
    /// # Errors
    /// If it cannot be read, or is neither.
    pub(super) fn open(input: &Input, body_bytes_max: u64) -> Result<Frames> {
        let path = input.path().to_owned();
        let fail = |error| FilesError::read(input.path(), error);
        let mut source = input.open()?;
        let mut start = Vec::with_capacity(4);
        source.by_ref().take(4).read_to_end(&mut start).map_err(fail)?;
        let is_file = start == MAGIC[..4];
        let (mut left, mut rest) = (None, Vec::new());
        if is_file {
            source.by_ref().take(MAGIC_BYTES - 4).read_to_end(&mut rest).map_err(fail)?;
            if !rest.starts_with(&MAGIC[4..]) {
                return Err(no_arrow(input, "it begins with other bytes"));
            }
            start.clear();
        }
        if input.compression == Compression::None && input.place.is_seekable() {
            let bytes = input.place.bytes().map_err(fail)?;
            left = Some(match is_file {
                true => stream_bytes(input, bytes)?,
                false => bytes,
            });
        }
        let source = Box::new(std::io::Cursor::new(start).chain(source));
        let has_begun = !is_file;
        Ok(Frames { source, path, left, body_bytes_max, is_over: false, has_begun })
    }

    /// The schema, which is the first message.
    ///
    /// # Errors
    /// If it is none, or none that can be read.
    pub(super) fn schema(&mut self) -> Result<(Schema, MetadataVersion)> {
        let Some(metadata) = self.metadata()? else {
            return Err(self.broken("it is empty: an Arrow file has a schema at least"));
        };
        let message = self.message(&metadata)?;
        let Some(schema) = message.header_as_schema() else {
            return Err(self.broken("it is no Arrow file: the first message is no schema"));
        };
        if schema.endianness() != Endianness::Little {
            let problem = "it was written on a big-endian machine, which is not supported";
            return Err(self.broken(problem).with_hint("write it with little-endian numbers"));
        }
        let found = catch_unwind(AssertUnwindSafe(|| fb_to_schema(schema)));
        let found = found.map_err(|_| self.broken("its schema has types that are not known"))?;
        let skipped = message.bodyLength();
        if skipped != 0 {
            return Err(self.broken("its schema has a body"));
        }
        Ok((found, message.version()))
    }

    /// The next record batch or dictionary; `None` at the end.
    ///
    /// # Errors
    /// For what is cut off or damaged.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>> {
        let Some(metadata) = self.metadata()? else { return Ok(None) };
        let message = self.message(&metadata)?;
        let body_bytes = u64::try_from(message.bodyLength())
            .map_err(|_| self.broken("a message claims to have a body of less than no bytes"))?;
        if body_bytes > self.body_bytes_max {
            let limit = self.body_bytes_max >> 20;
            let problem = format!("a batch has {} MiB, over {limit} MiB", body_bytes >> 20);
            return Err(self.broken(problem).with_hint("set a higher memory_limit"));
        }
        let is_dictionary = message.header_type() == MessageHeader::DictionaryBatch;
        // As Arrow's reader takes it: the length, the metadata, and the body.
        let head_bytes = 4 + metadata.len();
        self.expect(body_bytes)?;
        let body_bytes = usize::try_from(body_bytes).map_err(|_| self.cut_off())?;
        let known = self.left.map_or(0, |_| body_bytes);
        let mut bytes = MutableBuffer::with_capacity(aligned(head_bytes) + known);
        // Zeros in front would be part of the length: the metadata is padded behind.
        let length = u32::try_from(metadata.len()).map_err(|_| self.cut_off())?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&metadata);
        bytes.resize(aligned(head_bytes), 0);
        self.read_body(&mut bytes, body_bytes)?;
        check(message, &bytes[aligned(head_bytes)..], self.body_bytes_max)
            .map_err(|problem| self.broken(format!("it is damaged: {problem}")))?;
        let metadata_bytes = i32::try_from(aligned(head_bytes)).map_err(|_| self.cut_off())?;
        let block = Block::new(0, metadata_bytes, body_bytes as i64);
        Ok(Some(Frame { block, bytes: bytes.into(), is_dictionary }))
    }

    fn read_body(&mut self, bytes: &mut MutableBuffer, body_bytes: usize) -> Result<()> {
        let mut missing = body_bytes;
        while missing > 0 {
            let start = bytes.len();
            let count = missing.min(READ_BYTES);
            bytes.resize(start + count, 0);
            let read = self.source.read_exact(&mut bytes.as_slice_mut()[start..]);
            read.map_err(|error| self.failed(error))?;
            missing -= count;
        }
        self.left = self.left.map(|left| left - body_bytes as u64);
        Ok(())
    }

    /// What describes the next message; `None` at the end.
    fn metadata(&mut self) -> Result<Option<Vec<u8>>> {
        if self.is_over || self.left.is_some_and(|left| left < 4) {
            return Ok(None);
        }
        let Some(mut word) = self.word()? else { return Ok(None) };
        // Writers fill up the magic word to more than eight bytes.
        for _ in 0..PADDING_WORDS_MAX {
            if word != [0; 4] || self.has_begun {
                break;
            }
            let Some(next) = self.word()? else { return Ok(None) };
            word = next;
        }
        self.has_begun = true;
        if word == CONTINUATION {
            let Some(length) = self.word()? else { return Err(self.cut_off()) };
            word = length;
        }
        let length = u64::from(u32::from_le_bytes(word));
        if length == 0 {
            self.is_over = true;
            return Ok(None);
        }
        if self.left.is_none() && length > METADATA_BYTES_MAX {
            return Err(self.broken("it is no Arrow file, or damaged: a message is too long"));
        }
        self.expect(length)?;
        let mut metadata = Vec::new();
        let read = self.source.by_ref().take(length).read_to_end(&mut metadata);
        read.map_err(|error| self.failed(error))?;
        if metadata.len() as u64 != length {
            return Err(self.cut_off());
        }
        self.left = self.left.map(|left| left - length);
        Ok(Some(metadata))
    }

    /// The next four bytes; `None` at the end.
    fn word(&mut self) -> Result<Option<[u8; 4]>> {
        let mut bytes = Vec::with_capacity(4);
        let read = self.source.by_ref().take(4).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
        match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(word) => Ok(Some(word)),
            Err(_) if bytes.is_empty() => {
                self.is_over = true;
                Ok(None)
            }
            Err(_) => Err(self.cut_off()),
        }
    }

    fn message<'a>(&self, metadata: &'a [u8]) -> Result<Message<'a>> {
        root_as_message(metadata).map_err(|error| {
            let problem =
                format!("it is no Arrow file, or damaged: a message cannot be read ({error})");
            self.broken(problem)
        })
    }

    /// Checks that the file has as many bytes more.
    fn expect(&self, bytes: u64) -> Result<()> {
        match self.left {
            Some(left) if left < bytes => {
                let problem = format!(
                    "it is no Arrow file, damaged or cut off: a message claims {bytes} bytes, but {left} are left"
                );
                Err(self.broken(problem))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, error: std::io::Error) -> FilesError {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.cut_off(),
            _ => FilesError::read(&self.path, error),
        }
    }

    fn cut_off(&self) -> FilesError {
        self.broken("it is cut off within a message")
    }

    pub(super) fn broken(&self, problem: impl Into<String>) -> FilesError {
        FilesError::data(&self.path, None, problem)
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

fn no_arrow(input: &Input, why: &str) -> FilesError {
    FilesError::data(input.path(), None, format!("it is no Arrow file: {why}"))
}

/// Bytes of the stream within a file: what lies between the magic word and the footer.
fn stream_bytes(input: &Input, file_bytes: u64) -> Result<u64> {
    let fail = |error| FilesError::read(input.path(), error);
    let cut_off = || no_arrow(input, "it does not end as one: it is cut off or damaged");
    let tail_start = file_bytes.checked_sub(TAIL_BYTES).ok_or_else(cut_off)?;
    let mut file = input.open_raw()?;
    file.seek(SeekFrom::Start(tail_start)).map_err(fail)?;
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact(&mut tail).map_err(fail)?;
    let (length, magic) = tail.split_at(4);
    let length = length.try_into().map(u32::from_le_bytes).map_err(|_| cut_off())?;
    if magic != MAGIC {
        return Err(cut_off());
    }
    let before_footer = tail_start.checked_sub(u64::from(length));
    before_footer.and_then(|end| end.checked_sub(MAGIC_BYTES)).ok_or_else(cut_off)
}
