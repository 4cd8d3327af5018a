//! Files here and elsewhere.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::file::RemoteFile;
use crate::reader::RemoteReader;

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file system.
    Local(PathBuf),
    /// In an object store, or on a web server.
    Remote(RemoteFile),
}

/// The bytes of a file, for a thread that blocks.
#[derive(Debug)]
pub enum PlaceReader {
    /// Of the file system.
    Local(File),
    /// Of requests.
    Remote(Box<RemoteReader>),
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Place {
        Place::Local(path)
    }
}

impl Place {
    /// Its path, or its address without a query.
    pub fn path(&self) -> &Path {
        match self {
            Place::Local(path) => path,
            Place::Remote(file) => file.path(),
        }
    }

    /// Its size in bytes, where it has one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bytes(&self) -> io::Result<u64> {
        match self {
            Place::Local(path) => Ok(std::fs::metadata(path)?.len()),
            Place::Remote(file) => Ok(file.bytes()),
        }
    }

    /// When it was changed.
    ///
    /// # Errors
    /// Those of the system, and if a server does not tell.
    pub fn modified(&self) -> io::Result<SystemTime> {
        match self {
            Place::Local(path) => std::fs::metadata(path)?.modified(),
            Place::Remote(file) => {
                let untold = || io::Error::other("the server does not tell when it was changed");
                file.modified().ok_or_else(untold)
            }
        }
    }

    /// True if it can be read from any byte on, which pipes cannot.
    pub fn is_seekable(&self) -> bool {
        match self {
            Place::Local(path) => std::fs::metadata(path).is_ok_and(|found| found.is_file()),
            Place::Remote(_) => true,
        }
    }

    /// Opens it at its first byte. Reads block.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(&self) -> io::Result<PlaceReader> {
        Ok(match self {
            Place::Local(path) => PlaceReader::Local(File::open(path)?),
            Place::Remote(file) => PlaceReader::Remote(Box::new(file.reader())),
        })
    }
}

impl Read for PlaceReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            PlaceReader::Local(file) => file.read(into),
            PlaceReader::Remote(reader) => reader.read(into),
        }
    }

    fn read_to_end(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            PlaceReader::Local(file) => file.read_to_end(into),
            PlaceReader::Remote(reader) => reader.read_to_end(into),
        }
    }
}

impl Seek for PlaceReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            PlaceReader::Local(file) => file.seek(to),
            PlaceReader::Remote(reader) => reader.seek(to),
        }
    }
}
