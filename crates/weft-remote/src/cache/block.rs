//! A block as a file: what it is a block of, and its bytes, with a checksum.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `WEFTBLK1` |
//! | 4 | CRC-32C of all bytes behind it |
//! | 4 | bytes of the key |
//! | 8 | the number of the block |
//! | … | the key |
//! | … | the bytes |
//!
//! Numbers are little-endian. The file's name follows from key and number, but what it is a block of is told by the key in it.

use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::ObjectMeta;

use crate::url::RemoteUrl;

const MAGIC: [u8; 8] = *b"WEFTBLK1";

/// Bytes in front of the key.
const HEADER_BYTES: usize = 24;

/// Where the bytes begin that the checksum is of.
const CHECKED_FROM: usize = 12;

/// The extension of a file that is a block.
const EXTENSION: &str = "block";

/// The extension of a file that is to be one.
pub(super) const PARTIAL: &str = "partial";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// One version of one file.
#[derive(Clone, Debug)]
pub(crate) struct FileKey {
    text: String,
    size: u64,
}

impl FileKey {
    /// The version of a file that its store tells; `None` if it tells nothing that other versions would not have.
    pub(crate) fn of(url: &RemoteUrl, object: &ObjectMeta) -> Option<FileKey> {
        let is_strong = |tag: &&String| !tag.starts_with("W/") && !tag.is_empty();
        let seconds = object.last_modified.timestamp();
        let version = match object.e_tag.as_ref().filter(is_strong) {
            Some(tag) => format!("tag {tag}"),
            None if seconds > 0 => {
                let nanoseconds = object.last_modified.timestamp_subsec_nanos();
                let tag = object.e_tag.as_deref().unwrap_or_default();
                format!("time {seconds}.{nanoseconds:09} {tag}")
            }
            None => return None,
        };
        let number = object.version.as_deref().unwrap_or_default();
        let account = url.account.as_deref().unwrap_or_default();
        // A query may be a signature, which is not to lie on a disk.
        let query = url.web.as_ref().and_then(|web| web.query());
        let query = query.map_or(0, |query| hash_of(&query));
        let text = format!("{}\n{account}\n{query:x}\n{version}\n{number}", url.name());
        Some(FileKey::new(text, object.size))
    }

    pub(super) fn new(text: String, size: u64) -> FileKey {
        FileKey { text: format!("{text}\n{size}"), size }
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the file of a block with so many.
    pub(super) fn file_bytes(&self, bytes: u64) -> u64 {
        (HEADER_BYTES + self.text.len()) as u64 + bytes
    }

    pub(super) fn block_name(&self, number: u64) -> BlockName {
        BlockName([hash_of(&(&self.text, number)), hash_of(&(number, &self.text))])
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The name of a block. Two blocks with one name make way for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockName([u64; 2]);

impl fmt::Display for BlockName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl BlockName {
    pub(super) fn file_name(self) -> String {
        format!("{self}.{EXTENSION}")
    }

    /// The block whose file has this name.
    pub(super) fn parse(file_name: &str) -> Option<BlockName> {
        let digits = file_name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
        if digits.len() != 32 || !digits.is_ascii() {
            return None;
        }
        let part = |digits: &str| u64::from_str_radix(digits, 16).ok();
        Some(BlockName([part(&digits[..16])?, part(&digits[16..])?]))
    }
}

fn header(key: &FileKey, number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + key.text.len());
    header.extend(MAGIC);
    header.extend([0; 4]);
    header.extend((key.text.len() as u32).to_le_bytes());
    header.extend(number.to_le_bytes());
    header.extend(key.text.as_bytes());
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[CHECKED_FROM..]);
    digest.update(bytes);
    let checksum = digest.finalize() as u32;
    header[8..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The `length` bytes of a block, or `None` if the file is damaged or of another block.
///
/// # Errors
/// If there is no such file, or the system refuses.
pub(super) fn read_block(
    path: &Path,
    key: &FileKey,
    number: u64,
    length: usize,
) -> io::Result<Option<Bytes>> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() != key.file_bytes(length as u64) {
        return Ok(None);
    }
    let mut bytes = vec![0; HEADER_BYTES + key.text.len() + length];
    file.read_exact(&mut bytes)?;
    let bytes = Bytes::from(bytes);
    let start = HEADER_BYTES + key.text.len();
    let is_right = header(key, number, &bytes[start..]) == bytes[..start];
    Ok(is_right.then(|| bytes.slice(start..)))
}

/// Writes the file of a block, which appears when it is whole.
///
/// # Errors
/// If the system refuses.
pub(super) fn write_block(path: &Path, key: &FileKey, number: u64, bytes: &[u8]) -> io::Result<()> {
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let partial = path.with_extension(format!("{}-{unique}.{PARTIAL}", std::process::id()));
    let write = || {
        let mut file = File::create_new(&partial)?;
        file.write_all(&header(key, number, bytes))?;
        file.write_all(bytes)?;
        fs::rename(&partial, path)
    };
    write().inspect_err(|_| {
        // It may not even be there.
        fs::remove_file(&partial).ok();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_blocks_are_read_back() {
        let name = FileKey::new("x".to_owned(), 7).block_name(3);
        assert_eq!(BlockName::parse(&name.file_name()), Some(name));
        for other in ["x.block", "00.block", "", "0123456789abcdef0123456789abcdef.partial"] {
            assert_eq!(BlockName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_version_is_told_by_a_strong_tag_or_a_time() {
        let url = RemoteUrl::parse("https://host/x.csv?signature=secret").unwrap();
        let object = |tag: Option<&str>, seconds: i64| ObjectMeta {
            location: object_store::path::Path::from("x"),
            last_modified: chrono::DateTime::from_timestamp(seconds, 0).unwrap(),
            size: 5,
            e_tag: tag.map(str::to_owned),
            version: None,
        };
        let text = |tag, seconds| FileKey::of(&url, &object(tag, seconds)).map(|key| key.text);
        assert_eq!(text(None, 0), None);
        assert_eq!(text(Some("W/\"a\""), 0), None);
        let known = text(Some("\"a\""), 0).unwrap();
        assert!(!known.contains("secret"), "{known}");
        assert_ne!(Some(&known), text(Some("\"b\""), 0).as_ref());
        assert_ne!(text(None, 1), text(None, 2));
        assert_eq!(text(Some("\"a\""), 1), text(Some("\"a\""), 2));
        let other = RemoteUrl::parse("https://host/x.csv?signature=other").unwrap();
        assert_ne!(Some(known), FileKey::of(&other, &object(Some("\"a\""), 0)).map(|key| key.text));
    }
}
