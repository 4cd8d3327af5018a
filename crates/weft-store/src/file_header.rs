//! The first 16 bytes of manifests and data files: what the file is, of which version, and a checksum.
//!
//! Every version of the format keeps to this, so that a file of another version is told from a damaged one.
//! Bytes 0 to 8 say what the file is, 8 to 12 the version, and 12 to 16 are the CRC-32C of everything else.

use weft_buffer::page::checksum;

/// The checksum of what begins with a file header.
///
/// # Panics
/// If that is shorter than a header.
pub(crate) fn header_checksum(bytes: &[u8]) -> u32 {
    let (head, rest) = (&bytes[..12], &bytes[16..]);
    checksum(&[head, &checksum(rest).to_le_bytes()].concat())
}

/// Writes the checksum: the last thing done to a header.
///
/// # Panics
/// If there are fewer bytes than in a header.
pub(crate) fn seal_header(bytes: &mut [u8]) {
    let crc = header_checksum(bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}
