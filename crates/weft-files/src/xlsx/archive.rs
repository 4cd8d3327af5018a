//! The parts of a workbook's archive, unpacked as streams of XML whose events have an end.
//!
//! The directory of a zip archive says where parts lie, and how they are packed. It is read here, as what a crate would do for that
//! takes memory by what the file claims.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Take};

use flate2::read::DeflateDecoder;
use quick_xml::events::Event;
use weft_remote::PlaceReader;

use crate::error::{FilesError, Result};
use crate::input::Input;

/// Bytes of an element's tag or of a text between two tags, at most: Excel's cells have up to 32,767 characters.
pub(super) const EVENT_BYTES_MAX: u64 = 1 << 20;

/// Parts that an archive may have.
const PARTS_MAX: usize = 10_000;

/// Bytes of an archive's directory, at most.
const DIRECTORY_BYTES_MAX: u64 = 4 << 20;

/// A part that unpacks to more than [`UNPACKED_BYTES_FREE`] may have this many times its packed size.
const UNPACKED_RATIO_MAX: u64 = 200;

/// Bytes that a part may unpack to, whatever its packed size.
const UNPACKED_BYTES_FREE: u64 = 64 << 20;

/// Bytes at the end of an archive where its directory may be found.
const END_BYTES: u64 = (1 << 16) + 22;

/// The places of parts in a file.
#[derive(Debug)]
pub(super) struct Archive {
    input: Input,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    /// Where its header begins.
    header: u64,
    packed_bytes: u64,
    is_deflated: bool,
}

/// A part that is being unpacked.
pub(super) struct Xml {
    name: String,
    input: Input,
    reader: quick_xml::Reader<Bounded>,
    buffer: Vec<u8>,
}

/// Bytes of a part as they are unpacked, so many for an event and for all of it.
struct Bounded {
    source: BufReader<Box<dyn Read + Send>>,
    event_bytes: u64,
    unpacked_bytes: u64,
    unpacked_bytes_max: u64,
}

/// What is wrong with a file that is no workbook.
fn no_workbook(input: &Input, problem: &str) -> FilesError {
    let problem = format!("it is no .xlsx file: {problem}");
    FilesError::data(input.path(), None, problem)
}

impl Archive {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// For what is no archive, has too many parts, or has encrypted ones.
    pub(super) fn open(input: &Input) -> Result<Archive> {
        let mut reader = BufReader::new(input.open_raw()?);
        let directory = read_directory(input, &mut reader)?;
        let mut parts = Vec::new();
        let mut rest = directory.as_slice();
        while rest.starts_with(ENTRY) {
            let Some((part, behind)) = entry(rest) else {
                return Err(no_workbook(input, "its directory is damaged"));
            };
            rest = behind;
            match part {
                Entry::Part(part) => parts.push(part),
                Entry::Encrypted => return Err(no_workbook(input, "it has a password")),
                Entry::Other => {}
            }
            if parts.len() > PARTS_MAX {
                return Err(no_workbook(input, "it has too many parts"));
            }
        }
        Ok(Archive { input: input.clone(), parts })
    }

    /// A part by its name, whose letters may be of either case.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn part(&self, name: &str) -> Result<Option<Xml>> {
        let part = self.parts.iter().find(|part| part.name.eq_ignore_ascii_case(name));
        let Some(part) = part else { return Ok(None) };
        let mut file = self.input.open_raw()?;
        let failed = |error| FilesError::read(self.input.path(), error);
        file.seek(SeekFrom::Start(part.header)).map_err(failed)?;
        let mut header = Vec::new();
        file.by_ref().take(HEADER_BYTES).read_to_end(&mut header).map_err(failed)?;
        if header.len() as u64 != HEADER_BYTES || !header.starts_with(HEADER) {
            return Err(wrong(&self.input, &part.name, "its header is missing"));
        }
        let behind = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        let start = part.header.saturating_add(HEADER_BYTES + behind);
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        let packed: Take<PlaceReader> = file.take(part.packed_bytes);
        let source: Box<dyn Read + Send> = match part.is_deflated {
            true => Box::new(DeflateDecoder::new(packed)),
            false => Box::new(packed),
        };
        let most = part.packed_bytes.saturating_mul(UNPACKED_RATIO_MAX).max(UNPACKED_BYTES_FREE);
        let mut reader = quick_xml::Reader::from_reader(Bounded {
            source: BufReader::new(source),
            event_bytes: 0,
            unpacked_bytes: 0,
            unpacked_bytes_max: most,
        });
        reader.config_mut().expand_empty_elements = true;
        Ok(Some(Xml {
            name: part.name.clone(),
            input: self.input.clone(),
            reader,
            buffer: Vec::new(),
        }))
    }

    /// The same of a part that a workbook has to have.
    ///
    /// # Errors
    /// If it is not there, too.
    pub(super) fn needed_part(&self, name: &str) -> Result<Xml> {
        let missing = || no_workbook(&self.input, &format!("the part {name} is missing"));
        self.part(name)?.ok_or_else(missing)
    }
}

/// What an archive begins a part with, and an entry of its directory, and the record at its end.
const HEADER: &[u8] = b"PK\x03\x04";
const ENTRY: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";

/// Bytes of these, without the names and what else follows them.
const HEADER_BYTES: u64 = 30;
const ENTRY_BYTES: usize = 46;
const END_RECORD_BYTES: usize = 22;

/// What stands for a number of 32 bits that has more.
const LONG: u64 = u32::MAX as u64;

/// An entry of a directory.
enum Entry {
    Part(Part),
    Encrypted,
    /// A part that is packed in another way than those of workbooks.
    Other,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16_at(bytes, at)) | u64::from(u16_at(bytes, at + 2)) << 16
}

/// The directory of an archive, of a bounded size.
fn read_directory(input: &Input, reader: &mut (impl Read + Seek)) -> Result<Vec<u8>> {
    let failed = |error| FilesError::read(input.path(), error);
    let bytes = reader.seek(SeekFrom::End(0)).map_err(failed)?;
    reader.seek(SeekFrom::Start(bytes.saturating_sub(END_BYTES))).map_err(failed)?;
    let mut end = Vec::new();
    reader.take(END_BYTES).read_to_end(&mut end).map_err(failed)?;
    let record = end.windows(END.len()).rposition(|window| window == END);
    let record = record.and_then(|at| end.get(at..at + END_RECORD_BYTES));
    let Some(record) = record else {
        return Err(no_workbook(input, "it is no zip archive").with_hint(
            "a .xls file, or one with a password, has to be saved as .xlsx without one",
        ));
    };
    let (length, start) = (u32_at(record, 12), u32_at(record, 16));
    if length > DIRECTORY_BYTES_MAX || start.saturating_add(length) > bytes {
        return Err(no_workbook(input, "its directory is too long"));
    }
    reader.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut directory = Vec::new();
    reader.take(length).read_to_end(&mut directory).map_err(failed)?;
    Ok(directory)
}

/// The entry at the start of these bytes, and what lies behind it.
fn entry(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let fixed = bytes.get(..ENTRY_BYTES)?;
    let of = |at: usize| usize::from(u16_at(fixed, at));
    let (name, more) = bytes[ENTRY_BYTES..].split_at_checked(of(28))?;
    let (more, behind) = more.split_at_checked(of(30))?;
    let behind = behind.get(of(32)..)?;
    if u16_at(fixed, 8) & 1 != 0 {
        return Some((Entry::Encrypted, behind));
    }
    let is_deflated = match u16_at(fixed, 10) {
        0 => false,
        8 => true,
        _ => return Some((Entry::Other, behind)),
    };
    let (mut packed_bytes, mut header) = (u32_at(fixed, 20), u32_at(fixed, 42));
    let mut long = long_numbers(more).into_iter();
    if u32_at(fixed, 24) == LONG {
        long.next()?;
    }
    for number in [&mut packed_bytes, &mut header] {
        if *number == LONG {
            *number = long.next()?;
        }
    }
    let name = String::from_utf8_lossy(name).trim_start_matches('/').replace('\\', "/");
    Some((Entry::Part(Part { name, header, packed_bytes, is_deflated }), behind))
}

/// The numbers of 64 bits among what an entry has more.
fn long_numbers(mut more: &[u8]) -> Vec<u64> {
    while more.len() >= 4 {
        let (kind, length) = (u16_at(more, 0), usize::from(u16_at(more, 2)));
        let Some(data) = more.get(4..4 + length) else { break };
        if kind == 1 {
            let of = |eight: &[u8]| u32_at(eight, 0) | u32_at(eight, 4) << 32;
            return data.chunks_exact(8).map(of).collect();
        }
        more = &more[4 + length..];
    }
    Vec::new()
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(into.len());
        into[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Bounded {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let wrong = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        if self.event_bytes > EVENT_BYTES_MAX {
            return wrong(format!("an element has more than {EVENT_BYTES_MAX} bytes"));
        }
        if self.unpacked_bytes > self.unpacked_bytes_max {
            let most = self.unpacked_bytes_max;
            return wrong(format!("it unpacks to more than {most} bytes, as no sheet does"));
        }
        self.source.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.event_bytes += count as u64;
        self.unpacked_bytes += count as u64;
        self.source.consume(count);
    }
}

impl Xml {
    /// The next event. An empty element has an end of its own.
    ///
    /// # Errors
    /// For what is no XML, or has no end.
    pub(super) fn next(&mut self) -> Result<Event<'_>> {
        self.buffer.clear();
        self.reader.get_mut().event_bytes = 0;
        match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => Ok(event),
            Err(quick_xml::Error::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
                let error = io::Error::new(error.kind(), error.to_string());
                Err(FilesError::read(self.input.path(), error))
            }
            Err(error) => Err(wrong(&self.input, &self.name, &error.to_string())),
        }
    }

    /// Something is wrong in the part.
    pub(super) fn wrong(&self, problem: &str) -> FilesError {
        wrong(&self.input, &self.name, problem)
    }

    /// Bytes that were unpacked.
    pub(super) fn unpacked_bytes(&self) -> u64 {
        self.reader.get_ref().unpacked_bytes
    }
}

fn wrong(input: &Input, part: &str, problem: &str) -> FilesError {
    FilesError::data(input.path(), None, format!("its part {part} is damaged: {problem}"))
}
