//! What the fuzz targets call: the decoders of the database's files, which are nobody else's business.
//!
//! None may panic, whatever the bytes, and what can be read is written and read again as it was.

use crate::manifest::Manifest;
use crate::row_group::RowGroup;
use crate::schema::TableSchema;
use crate::statistics::Statistics;
use crate::wire::{Reader, Writer};

/// Reads a whole manifest file.
pub fn manifest_file(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        check_manifest(&manifest);
    }
}

/// Reads what a manifest file has between its header and its padding, which no checksum is in the way of.
///
/// # Panics
/// If it is not read again as it was.
pub fn manifest_body(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::read_body(1, [0; 16], bytes) {
        check_manifest(&manifest);
    }
}

fn check_manifest(manifest: &Manifest) {
    let written = manifest.encode();
    let read = Manifest::decode(&written).expect("a manifest that was just written");
    assert_eq!(read.encode(), written);
    // Whatever it says: that it does not panic matters.
    std::hint::black_box(manifest.live_extents().is_ok());
}

/// Reads row groups of a table's directory, of as many columns as the first byte says.
///
/// # Panics
/// If they are not read again as they were.
pub fn row_groups(bytes: &[u8]) {
    let Some((columns, bytes)) = bytes.split_first() else { return };
    let columns = usize::from(columns % 8);
    let mut reader = Reader::new(bytes);
    while let Ok(group) = RowGroup::read(&mut reader, columns) {
        let mut written = Writer::default();
        group.write(&mut written);
        let read = RowGroup::read(&mut Reader::new(&written.0), columns);
        let mut again = Writer::default();
        read.expect("a row group that was just written").write(&mut again);
        assert_eq!(again.0, written.0);
    }
}

/// Reads the statistics of a table.
///
/// # Panics
/// If they are not read again as they were.
pub fn statistics(bytes: &[u8], schema: &TableSchema) {
    let Ok(statistics) = Statistics::decode(bytes, 1, schema) else { return };
    let written = statistics.encode(1).expect("a sample that was decoded");
    let read = Statistics::decode(&written, 1, schema).expect("statistics that were just written");
    assert_eq!(read.encode(1).expect("the same sample"), written);
}
