//! Cuts a file between its values.

use std::io::Read;
use std::path::PathBuf;

use weft_json::JsonError;

use super::JsonOptions;
use crate::error::{FilesError, Result};
use crate::input::Input;

/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// Bytes of a file from which its layout is told.
const LAYOUT_BYTES: usize = 64 << 10;

/// How values lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One value a line.
    Lines,
    /// One array, whose elements are the values.
    Array,
    /// One after the other, with or without blanks between.
    Values,
}

/// Some values of a file, whole.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) text: String,
    /// The line of the file that the text begins in, from 1 on.
    pub(super) line: u64,
    /// How the values lie in it.
    pub(super) layout: Layout,
}

impl Cut {
    /// Calls `see` for each value: it gets the text and where to look, and returns the byte after the value, or `None` if only
    /// blanks follow.
    pub(super) fn each_value(
        &self,
        mut see: impl FnMut(&str, usize) -> weft_json::Result<Option<usize>>,
    ) -> weft_json::Result<()> {
        if self.layout == Layout::Lines {
            return self.each_line(see);
        }
        let text = self.text.as_bytes();
        let mut at = 0;
        while let Some(end) = see(&self.text, at)? {
            at = end;
            if self.layout == Layout::Values {
                continue;
            }
            at += text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            match text.get(at) {
                None => return Ok(()),
                Some(b',') if text[at + 1..].trim_ascii().is_empty() => {
                    return Err(broken(at, "a value is missing after the comma"));
                }
                Some(b',') => at += 1,
                Some(_) => {
                    return Err(broken(at, "a comma is missing between two elements of the array"));
                }
            }
        }
        Ok(())
    }

    /// Each line is a value or blank.
    fn each_line(
        &self,
        mut see: impl FnMut(&str, usize) -> weft_json::Result<Option<usize>>,
    ) -> weft_json::Result<()> {
        let mut start = 0;
        while start < self.text.len() {
            let found = memchr::memchr(b'\n', &self.text.as_bytes()[start..]);
            let end = found.map_or(self.text.len(), |found| start + found);
            let line = &self.text[..end];
            if let Some(after) = see(line, start)?
                && !line[after..].trim_ascii().is_empty()
            {
                return Err(broken(after, "there is more after the value of the line"));
            }
            start = end + 1;
        }
        Ok(())
    }
}

fn broken(offset: usize, problem: &str) -> JsonError {
    JsonError { offset, problem: problem.to_owned(), column: None }
}

/// Where the bytes so far end in the structure of the file.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes of the buffer that have been looked at.
    seen: usize,
    depth: usize,
    in_text: bool,
    /// The byte after the last one that values may be parted at.
    boundary: usize,
    /// The bracket that closes the array.
    closed: Option<usize>,
}

/// Reads a file and cuts it.
pub(super) struct Cutter {
    source: Box<dyn Read + Send>,
    path: PathBuf,
    value_bytes_max: usize,
    layout: Layout,
    buffer: Vec<u8>,
    scan: Scan,
    line: u64,
    is_read: bool,
    is_over: bool,
    /// An element of the array was returned.
    has_begun: bool,
}

impl Cutter {
    /// Opens a file and finds out its layout, unless that is said.
    pub(super) fn open(
        input: &Input,
        layout: Option<Layout>,
        options: &JsonOptions,
    ) -> Result<Cutter> {
        let value_bytes_max = options.value_bytes_max;
        let mut cutter = Cutter {
            source: input.open_text()?,
            path: input.path().to_owned(),
            value_bytes_max,
            layout: Layout::Values,
            buffer: Vec::new(),
            scan: Scan::default(),
            line: 1,
            is_read: false,
            is_over: false,
            has_begun: false,
        };
        // Blanks at the start may be many.
        loop {
            cutter.skip_blanks();
            if cutter.is_read || cutter.buffer.len() >= LAYOUT_BYTES {
                break;
            }
            cutter.read()?;
        }
        cutter.layout = match layout {
            Some(layout) => layout,
            None => cutter.find_layout(options.ignore_errors)?,
        };
        if cutter.layout == Layout::Array {
            match cutter.buffer.first() {
                Some(b'[') => {
                    cutter.buffer.remove(0);
                }
                None => cutter.is_over = true,
                Some(_) => return Err(cutter.broken(0, "an array was expected")),
            }
        }
        Ok(cutter)
    }

    /// How the values lie in the file, by its start: one a line if each whole line there is a value; if some may be broken, the
    /// first one.
    fn find_layout(&mut self, may_be_broken: bool) -> Result<Layout> {
        let is_array = self.buffer.first() == Some(&b'[');
        let other = if is_array { Layout::Array } else { Layout::Values };
        // One line with an array may be all that there is, but for blanks.
        let end = memchr::memchr(b'\n', &self.buffer).unwrap_or(self.buffer.len());
        while is_array && !self.is_read && self.buffer[end..].trim_ascii().is_empty() {
            if self.buffer.len() > self.value_bytes_max {
                return Ok(other);
            }
            self.read()?;
        }
        if is_array && self.buffer[end..].trim_ascii().is_empty() {
            return Ok(other);
        }
        let known = &self.buffer[..self.buffer.len().min(LAYOUT_BYTES)];
        let known = match self.is_read && known.len() == self.buffer.len() {
            true => known,
            false => &known[..memchr::memrchr(b'\n', known).unwrap_or(0)],
        };
        let is_value = |line: &[u8]| {
            line.trim_ascii().is_empty()
                || std::str::from_utf8(line).is_ok_and(|line| weft_json::check(line).is_ok())
        };
        let mut lines = known.split(|byte| *byte == b'\n');
        let are_values = match may_be_broken {
            true => lines.next().is_some_and(is_value),
            false => lines.all(is_value),
        };
        let are_values = are_values && !known.is_empty();
        Ok(if are_values { Layout::Lines } else { other })
    }

    /// How the values lie in the file.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The next values, about `piece_bytes` of them.
    pub(super) fn next_cut(&mut self, piece_bytes: usize) -> Result<Option<Cut>> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            self.scan_buffer();
            if let Some(end) = self.scan.closed {
                return self.last_of_array(end);
            }
            if self.is_read {
                return self.last();
            }
            if self.scan.boundary > 0 && self.buffer.len() >= piece_bytes.max(1) {
                return self.cut_at_boundary().map(Some);
            }
            if self.buffer.len() > self.value_bytes_max {
                let limit = self.value_bytes_max >> 20;
                let problem = format!("a value has more than {limit} MiB");
                let error = self.broken(0, problem);
                let advice =
                    "set maximum_object_size to its size in bytes, or memory_limit to more";
                return Err(error.with_hint(advice));
            }
            self.read()?;
        }
    }

    fn cut_at_boundary(&mut self) -> Result<Cut> {
        let boundary = self.scan.boundary;
        let rest = self.buffer.split_off(boundary);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        let newlines = count_lines(&bytes);
        if self.layout == Layout::Array {
            // The comma.
            bytes.pop();
            self.has_begun = true;
            if bytes.trim_ascii().is_empty() {
                return Err(self.broken(0, "a value is missing before the comma"));
            }
        }
        self.scan.seen -= boundary;
        self.scan.boundary = 0;
        let cut = self.cut(bytes)?;
        self.line += newlines;
        Ok(cut)
    }

    /// What is left of an array that closes at this byte.
    fn last_of_array(&mut self, end: usize) -> Result<Option<Cut>> {
        let mut after = self.buffer.split_off(end);
        let bytes = std::mem::take(&mut self.buffer);
        self.is_over = true;
        let cut = self.cut(bytes)?;
        let line = self.line + count_lines(cut.text.as_bytes());
        if self.has_begun && cut.text.trim_ascii().is_empty() {
            return Err(FilesError::data(
                &self.path,
                Some(line),
                "a value is missing after the comma",
            ));
        }
        // The bracket, and what follows it.
        after.remove(0);
        loop {
            if !after.trim_ascii().is_empty() {
                let problem = "there is more after the end of the array";
                return Err(FilesError::data(&self.path, Some(line), problem));
            }
            if self.is_read {
                return Ok(Some(cut));
            }
            self.read()?;
            after = std::mem::take(&mut self.buffer);
        }
    }

    /// What is left of the file.
    fn last(&mut self) -> Result<Option<Cut>> {
        self.is_over = true;
        if self.layout == Layout::Array {
            let line = self.line + count_lines(&self.buffer);
            let problem = "the array is not closed: the file is cut off";
            return Err(FilesError::data(&self.path, Some(line), problem));
        }
        let bytes = std::mem::take(&mut self.buffer);
        match bytes.trim_ascii().is_empty() {
            true => Ok(None),
            false => self.cut(bytes).map(Some),
        }
    }

    fn cut(&self, bytes: Vec<u8>) -> Result<Cut> {
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = self.line + count_lines(&error.as_bytes()[..at]);
            FilesError::data(&self.path, Some(line), "it is not encoded as UTF-8")
                .with_hint("say how it is encoded: (encoding 'latin-1')")
        })?;
        Ok(Cut { text, line: self.line, layout: self.layout })
    }

    fn broken(&self, offset: usize, problem: impl Into<String>) -> FilesError {
        let line = self.line + count_lines(&self.buffer[..offset]);
        FilesError::data(&self.path, Some(line), problem)
    }

    fn read(&mut self) -> Result<()> {
        let start = self.buffer.len();
        let mut source = self.source.by_ref().take(READ_BYTES as u64);
        let count = source
            .read_to_end(&mut self.buffer)
            .map_err(|error| FilesError::read(&self.path, error))?;
        debug_assert_eq!(start + count, self.buffer.len());
        self.is_read = count == 0;
        Ok(())
    }

    fn skip_blanks(&mut self) {
        let blanks = self.buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.line += count_lines(&self.buffer[..blanks]);
        self.buffer.drain(..blanks);
    }

    /// Looks at the bytes that were read last.
    fn scan_buffer(&mut self) {
        let scan = &mut self.scan;
        if self.layout == Layout::Lines {
            let new = &self.buffer[scan.seen..];
            if let Some(at) = memchr::memrchr(b'\n', new) {
                scan.boundary = scan.seen + at + 1;
            }
            scan.seen = self.buffer.len();
            return;
        }
        let is_array = self.layout == Layout::Array;
        let bytes = &self.buffer[..];
        let mut at = scan.seen;
        while at < bytes.len() {
            if scan.in_text {
                let Some(next) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else { break };
                at += next;
                if bytes[at] == b'\\' {
                    if at + 1 == bytes.len() {
                        // What is escaped is not there yet.
                        scan.seen = at;
                        return;
                    }
                    at += 2;
                    continue;
                }
                scan.in_text = false;
            } else {
                match bytes[at] {
                    b'"' => scan.in_text = true,
                    b'{' | b'[' => scan.depth += 1,
                    b']' if is_array && scan.depth == 0 => {
                        scan.closed = Some(at);
                        scan.seen = at;
                        return;
                    }
                    b'}' | b']' => {
                        scan.depth = scan.depth.saturating_sub(1);
                        if scan.depth == 0 && !is_array {
                            scan.boundary = at + 1;
                        }
                    }
                    b',' if is_array && scan.depth == 0 => scan.boundary = at + 1,
                    byte if scan.depth == 0 && !is_array && byte.is_ascii_whitespace() => {
                        scan.boundary = at + 1;
                    }
                    _ => {}
                }
            }
            at += 1;
        }
        scan.seen = bytes.len();
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
