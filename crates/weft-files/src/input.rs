//! Bytes of files: decompressed, and as UTF-8.

use std::io::{self, Read};
use std::path::Path;

use encoding_rs::{Decoder, UTF_8};
use weft_remote::{Place, PlaceReader};

use crate::error::{FilesError, Result};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, of any number of members.
    Gzip,
    /// bzip2, of any number of streams.
    Bzip2,
    /// xz, of any number of streams.
    Xz,
    /// Zstandard, of any number of frames.
    Zstd,
}

/// How a text file's characters are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

impl Encoding {
    /// The encoding of this name: `utf-8`, `utf-16`, `latin-1`, or any of the WHATWG's labels.
    ///
    /// # Errors
    /// [`FilesError::Option`] if there is none.
    pub fn named(name: &str) -> Result<Encoding> {
        let label = name.trim().to_ascii_lowercase().replace('_', "-");
        let label = match label.as_str() {
            "latin-1" | "iso-latin-1" => "latin1",
            "utf16" => "utf-16",
            "utf8" => "utf-8",
            other => other,
        };
        let found = encoding_rs::Encoding::for_label(label.as_bytes());
        found.map(Encoding).ok_or_else(|| {
            FilesError::option(format!("there is no encoding '{name}'")).with_hint(
                "encodings: 'utf-8', 'utf-16', 'latin-1', 'windows-1252' and others of the web",
            )
        })
    }
}

/// A file and how its bytes become those of a text.
#[derive(Clone, Debug)]
pub struct Input {
    /// Where the file is.
    pub place: Place,
    /// How it is compressed.
    pub compression: Compression,
    /// How its characters are encoded, where that is said. A byte order mark goes before it.
    pub encoding: Option<Encoding>,
}

impl Input {
    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.place.bytes().unwrap_or(0)
    }

    /// The file's bytes as they lie there, from any one on.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn open_raw(&self) -> Result<PlaceReader> {
        self.place.open().map_err(|error| FilesError::read(self.path(), error))
    }

    /// The file's bytes, decompressed.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self) -> Result<Box<dyn Read + Send>> {
        let file = self.open_raw()?;
        Ok(match self.compression {
            Compression::None => Box::new(file),
            Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Compression::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(file)),
            Compression::Xz => Box::new(liblzma::read::XzDecoder::new_multi_decoder(file)),
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::new(file);
                Box::new(decoder.map_err(|error| FilesError::read(self.path(), error))?)
            }
        })
    }

    /// The file's characters as UTF-8, without a byte order mark. UTF-8 is not checked.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_text(&self) -> Result<Box<dyn Read + Send>> {
        let mut source = self.open()?;
        let mut start = Vec::with_capacity(3);
        let read = source.by_ref().take(3).read_to_end(&mut start);
        read.map_err(|error| FilesError::read(self.path(), error))?;
        let (encoding, mark) = match encoding_rs::Encoding::for_bom(&start) {
            Some((encoding, length)) => (encoding, length),
            None => (self.encoding.map_or(UTF_8, |encoding| encoding.0), 0),
        };
        let rest = io::Cursor::new(start[mark..].to_vec()).chain(source);
        if encoding == UTF_8 {
            return Ok(Box::new(rest));
        }
        Ok(Box::new(Transcoder::new(rest, encoding.new_decoder_without_bom_handling())))
    }

    /// True if bytes of the text are those of the file, so that it can be read from any place on.
    pub fn is_seekable_text(&self) -> Result<bool> {
        if self.compression != Compression::None {
            return Ok(false);
        }
        let is_plain = self.place.is_seekable();
        let mut start = Vec::with_capacity(3);
        if is_plain {
            let read = self.open()?.take(3).read_to_end(&mut start);
            read.map_err(|error| FilesError::read(self.path(), error))?;
        }
        let encoding = match encoding_rs::Encoding::for_bom(&start) {
            Some((encoding, _)) => encoding,
            None => self.encoding.map_or(UTF_8, |encoding| encoding.0),
        };
        Ok(is_plain && encoding == UTF_8)
    }

    /// The path of the file, or its address.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

/// Makes UTF-8 of another encoding.
struct Transcoder<R> {
    source: R,
    decoder: Decoder,
    /// Bytes of the source, of which those from `at` to `end` were not decoded.
    raw: Vec<u8>,
    at: usize,
    end: usize,
    /// UTF-8, of which that from `taken` on was not taken.
    text: Vec<u8>,
    taken: usize,
    is_over: bool,
}

const RAW_BYTES: usize = 64 << 10;

impl<R: Read> Transcoder<R> {
    fn new(source: R, decoder: Decoder) -> Transcoder<R> {
        let (raw, text) = (vec![0; RAW_BYTES], Vec::new());
        Transcoder { source, decoder, raw, at: 0, end: 0, text, taken: 0, is_over: false }
    }

    fn refill(&mut self) -> io::Result<()> {
        if self.at == self.end {
            (self.at, self.end) = (0, self.source.read(&mut self.raw)?);
        }
        let last = self.end == 0;
        let room = self.decoder.max_utf8_buffer_length_without_replacement(self.end - self.at);
        self.text.resize(room.unwrap_or(4 * RAW_BYTES).max(16), 0);
        let (result, read, written) = self.decoder.decode_to_utf8_without_replacement(
            &self.raw[self.at..self.end],
            &mut self.text,
            last,
        );
        self.text.truncate(written);
        self.taken = 0;
        self.at += read;
        match result {
            encoding_rs::DecoderResult::Malformed(..) => {
                let name = self.decoder.encoding().name();
                Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("it is not encoded as {name}"),
                ))
            }
            encoding_rs::DecoderResult::InputEmpty => {
                self.is_over = last;
                Ok(())
            }
            encoding_rs::DecoderResult::OutputFull => Ok(()),
        }
    }
}

impl<R: Read> Read for Transcoder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.text.len() && !self.is_over {
            self.refill()?;
        }
        let count = into.len().min(self.text.len() - self.taken);
        into[..count].copy_from_slice(&self.text[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
