//! A device: a data file with a header that says whose it is.
//!
//! The header is the first 4 KiB: a database, a number and the version of the format, so that a file that
//! is missing, belongs to another database or was swapped with another device is noticed at open.

use std::path::{Path, PathBuf};

use weft_rt::io::{Access, File, IoBuf};

use crate::directory::{Directory, SECTOR_BYTES, off_worker, write_file};
use crate::error::{Result, StoreError};
use crate::file_header::{header_checksum, seal_header};
use crate::place::{self, Place};
use crate::{FORMAT_VERSION, FORMAT_VERSION_OLDEST};

/// How every data file begins.
pub(crate) const MAGIC: [u8; 8] = *b"WEFTDATA";

/// Identity of a database, chosen when it is made.
pub(crate) type DatabaseId = [u8; 16];

/// Devices of a database, at most.
pub const DEVICES_MAX: usize = 256;

/// The name of a device's data file.
pub(crate) fn file_name(number: usize) -> String {
    format!("data-{number}.weft")
}

/// The bytes of a header.
pub(crate) fn header(database: &DatabaseId, number: usize) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(database);
    bytes[32..36].copy_from_slice(&(number as u32).to_le_bytes());
    seal_header(&mut bytes);
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Whether the bytes begin with the header of device `number`, of whatever database.
pub(crate) fn is_header_of(bytes: &[u8], number: usize) -> bool {
    bytes[..8] == MAGIC && u32_at(bytes, 32) as usize == number
}

fn check_header(bytes: &[u8], database: &DatabaseId, number: usize, path: &Path) -> Result<()> {
    let wrong = |problem: String| StoreError::Device { number, path: path.into(), problem };
    if bytes[..8] != MAGIC {
        return Err(wrong("it is no data file of Weft, or its header is damaged".into()));
    }
    if header_checksum(bytes) != u32_at(bytes, 12) {
        return Err(wrong("its header is damaged; restore the database from a backup".into()));
    }
    let version = u32_at(bytes, 8);
    if !(FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&version) {
        let (path, supported) = (path.into(), FORMAT_VERSION);
        return Err(StoreError::FormatVersion { path, found: version, supported });
    }
    if bytes[16..32] != database[..] {
        return Err(wrong("it belongs to another database: check the paths of the devices".into()));
    }
    let found = u32_at(bytes, 32) as usize;
    if found != number {
        return Err(wrong(format!("it is device {found}: the paths of the devices were swapped")));
    }
    Ok(())
}

/// Makes the data file of a device, or takes a block device: just the header, durable with `sync`.
///
/// # Errors
/// [`StoreError::Device`] if there is a data file with more than a header already, or the block device
/// carries data.
pub(crate) async fn create(
    place: &Place,
    database: &DatabaseId,
    number: usize,
    sync: bool,
) -> Result<File> {
    let directory = match place {
        Place::File(directory) => directory.clone(),
        Place::Block(path) => {
            let file = place::open_block(path, Access::ReadWrite).await?;
            place::check_blank(&file, number).await?;
            write_file(&file, &header(database, number), sync).await?;
            return Ok(file);
        }
    };
    let at = directory.clone();
    let file = off_worker(move || create_file(&at, number)).await??;
    write_file(&file, &header(database, number), sync).await?;
    if sync {
        off_worker(move || directory.sync().and_then(|()| directory.sync_parents())).await??;
    }
    Ok(file)
}

fn create_file(directory: &Directory, number: usize) -> Result<File> {
    let name = file_name(number);
    directory.create()?;
    if let Some(file) = directory.open_file(&name, Access::Read)?
        && file.size()? > SECTOR_BYTES as u64
    {
        let problem = "there is a data file already: it may belong to another database, or to one \
                       whose manifest was lost; remove it if it is not needed";
        let (path, problem) = (file.path().into(), problem.into());
        return Err(StoreError::Device { number, path, problem });
    }
    directory.create_file(&name)
}

/// Opens the data file of a device and checks its header.
pub(crate) async fn open(
    place: &Place,
    database: &DatabaseId,
    number: usize,
    read_only: bool,
) -> Result<File> {
    let path: PathBuf = place.path(number);
    let access = if read_only { Access::Read } else { Access::ReadWrite };
    let wrong = |problem: &str| StoreError::Device {
        number,
        path: path.clone(),
        problem: problem.to_owned(),
    };
    let Some(file) = place.open(number, access).await? else {
        return Err(wrong("the data file is missing: check that the device is attached"));
    };
    if file.is_block_device() && file.size()? == 0 {
        return Err(wrong("the block device is empty: check that it is attached"));
    }
    if file.size()? < SECTOR_BYTES as u64 {
        return Err(wrong("the data file is truncated; restore the database from a backup"));
    }
    let (result, buffer) = file.read_exact(IoBuf::zeroed(SECTOR_BYTES), 0).await;
    result?;
    check_header(&buffer, database, number, &path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_header_counts() {
        let (database, path) = ([7; 16], Path::new("data-3.weft"));
        let good = header(&database, 3);
        check_header(&good, &database, 3, path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(check_header(&bad, &database, 3, path).is_err(), "byte {at}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let path = Path::new("data-1.weft");
        let message =
            |bytes: &[u8]| check_header(bytes, &[7; 16], 1, path).unwrap_err().to_string();
        assert!(message(&header(&[8; 16], 1)).contains("another database"));
        assert!(message(&header(&[7; 16], 2)).contains("it is device 2"));
        let mut newer = header(&[7; 16], 1);
        newer[8] = 200;
        seal_header(&mut newer);
        assert!(message(&newer).contains("format version 200"));
        assert!(message(&[0; 4096]).contains("no data file of Weft"));
    }
}
