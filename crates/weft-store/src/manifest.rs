//! The manifest: everything about a database that is not in its data files.
//!
//! It names the devices, tables, views and options, and for each table the segments of its directory with
//! the extents that they and their row groups occupy; what it does not name is free. It is written whole
//! by every commit, in two copies (see `manifest_file.rs`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::device::{DEVICES_MAX, DatabaseId};
use crate::directory::SECTOR_BYTES;
use crate::extent::{Extent, coalesce};
use crate::file_header::{header_checksum, seal_header};
use crate::index::Constraints;
use crate::index::version::IndexEntry;
use crate::pages::Stored;
use crate::schema::TableSchema;
use crate::wire::{Reader, WireError, WireResult, Writer, wrong};
use crate::{FORMAT_VERSION, FORMAT_VERSION_OLDEST};

const MAGIC: [u8; 8] = *b"WEFTMANI";
const HEADER_BYTES: usize = 48;

/// A generation of the database, as its manifest has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) generation: u64,
    pub(crate) database: DatabaseId,
    /// Directories of the devices, by number; empty for the database's own.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) options: BTreeMap<String, String>,
    /// SQL text by name.
    pub(crate) views: BTreeMap<String, String>,
    pub(crate) next_table_id: u64,
    /// By name.
    pub(crate) tables: BTreeMap<String, TableEntry>,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableEntry {
    /// Never used again, so that a table that was replaced is another one.
    pub(crate) id: u64,
    pub(crate) schema: Arc<TableSchema>,
    /// The id that the next row gets.
    pub(crate) next_row_id: u64,
    pub(crate) segments: Vec<SegmentEntry>,
    /// Where its statistics lie, if it has some.
    pub(crate) statistics: Option<Stored>,
    pub(crate) indexes: Vec<IndexEntry>,
    pub(crate) constraints: Arc<Constraints>,
}

/// A part of a table's directory: where it lies, and what it is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SegmentEntry {
    pub(crate) stored: Stored,
    pub(crate) row_groups: u32,
    pub(crate) rows: u64,
    /// Bytes of the encoded blocks.
    pub(crate) bytes: u64,
    /// What the row groups and the segment itself occupy, sorted and joined.
    pub(crate) extents: Vec<Extent>,
}

impl Manifest {
    /// All bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.len(self.devices.len());
        for device in &self.devices {
            body.str(&device.to_string_lossy());
        }
        for texts in [&self.options, &self.views] {
            body.len(texts.len());
            for (name, text) in texts {
                body.str(name);
                body.str(text);
            }
        }
        body.u64(self.next_table_id);
        body.len(self.tables.len());
        for table in self.tables.values() {
            table.write(&mut body);
        }
        let body = body.0;

        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + SECTOR_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.database);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        seal_header(&mut bytes);
        bytes
    }

    /// The manifest in the bytes of a file.
    ///
    /// # Errors
    /// [`ManifestError`] for every other sequence of bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        if bytes.len() < HEADER_BYTES {
            return Err(damaged(format!("{} bytes are no manifest: truncated", bytes.len())));
        }
        if bytes[..8] != MAGIC {
            return Err(damaged("it does not begin as a manifest does"));
        }
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let version = u64_at(8) as u32;
        let (stored, computed) = ((u64_at(8) >> 32) as u32, header_checksum(bytes));
        if stored != computed {
            return Err(damaged(format!(
                "checksum mismatch: stored {stored:#010x}, computed {computed:#010x} (format version \
                 {version})"
            )));
        }
        if !(FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&version) {
            return Err(ManifestError::Version(version));
        }
        let body_bytes = u64_at(40);
        let len = body_bytes
            .checked_add(HEADER_BYTES as u64)
            .and_then(|len| len.checked_next_multiple_of(SECTOR_BYTES as u64));
        if len != Some(bytes.len() as u64) {
            return Err(damaged(format!("a body of {body_bytes} bytes in {}", bytes.len())));
        }
        let body = &bytes[HEADER_BYTES..HEADER_BYTES + body_bytes as usize];
        let database = bytes[24..40].try_into().expect("16 bytes");
        Manifest::read_body(u64_at(16), database, body)
            .map_err(|WireError(problem)| ManifestError::Damaged(problem))
    }

    pub(crate) fn read_body(
        generation: u64,
        database: DatabaseId,
        body: &[u8],
    ) -> WireResult<Manifest> {
        let mut reader = Reader::new(body);
        let count = reader.count(4)?;
        if !(1..=DEVICES_MAX).contains(&count) {
            return wrong(format!("{count} devices"));
        }
        let devices =
            (0..count).map(|_| Ok(reader.str()?.into())).collect::<WireResult<Vec<_>>>()?;
        let options = read_texts(&mut reader)?;
        let views = read_texts(&mut reader)?;
        let next_table_id = reader.u64()?;
        let mut tables = BTreeMap::new();
        for _ in 0..reader.count(24)? {
            let table = TableEntry::read(&mut reader)?;
            if table.id >= next_table_id {
                return wrong(format!("table id {} of {next_table_id}", table.id));
            }
            tables.insert(table.schema.name.clone(), table);
        }
        reader.end()?;
        Ok(Manifest { generation, database, devices, options, views, next_table_id, tables })
    }

    /// What the tables occupy on each device, sorted and joined.
    ///
    /// # Errors
    /// If two of them overlap, or one lies on a device that there is not.
    pub(crate) fn live_extents(&self) -> WireResult<Vec<Vec<Extent>>> {
        let extents = self.tables.values().flat_map(TableEntry::extents);
        let all = coalesce(extents.collect());
        let mut devices = vec![Vec::new(); self.devices.len()];
        for extent in all {
            let Some(device) = devices.get_mut(usize::from(extent.device)) else {
                return wrong(format!("space on device {}, which there is not", extent.device));
            };
            if device.last().is_some_and(|last: &Extent| last.end() > extent.start) {
                return wrong(format!(
                    "unit {} of device {} has two uses",
                    extent.start, extent.device
                ));
            }
            device.push(extent);
        }
        Ok(devices)
    }
}

fn read_texts(reader: &mut Reader<'_>) -> WireResult<BTreeMap<String, String>> {
    (0..reader.count(8)?).map(|_| Ok((reader.str()?, reader.str()?))).collect()
}

impl TableEntry {
    /// All that it occupies.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> {
        let segments = self.segments.iter().flat_map(|segment| segment.extents.iter().copied());
        let indexes = self.indexes.iter().flat_map(|index| index.extents.iter().copied());
        segments.chain(self.statistics.iter().map(Stored::extent)).chain(indexes)
    }

    fn write(&self, writer: &mut Writer) {
        self.schema.write(writer);
        writer.u64(self.id);
        writer.u64(self.next_row_id);
        writer.len(self.segments.len());
        for segment in &self.segments {
            segment.stored.write(writer);
            writer.u32(segment.row_groups);
            writer.u64(segment.rows);
            writer.u64(segment.bytes);
            writer.len(segment.extents.len());
            segment.extents.iter().for_each(|extent| extent.write(writer));
        }
        writer.u8(self.statistics.is_some().into());
        if let Some(statistics) = &self.statistics {
            statistics.write(writer);
        }
        writer.len(self.indexes.len());
        self.indexes.iter().for_each(|index| index.write(writer));
        self.constraints.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> WireResult<TableEntry> {
        let schema = TableSchema::read(reader)?;
        let (id, next_row_id) = (reader.u64()?, reader.u64()?);
        let count = reader.count(40)?;
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            let stored = Stored::read(reader)?;
            let (row_groups, rows, bytes) = (reader.u32()?, reader.u64()?, reader.u64()?);
            let extents = (0..reader.count(17)?).map(|_| Extent::read(reader));
            let extents = extents.collect::<WireResult<Vec<_>>>()?;
            segments.push(SegmentEntry { stored, row_groups, rows, bytes, extents });
        }
        let statistics = if reader.bool()? { Some(Stored::read(reader)?) } else { None };
        let columns = schema.columns.len();
        let indexes = (0..reader.count(26)?).map(|_| IndexEntry::read(reader, columns));
        let indexes = indexes.collect::<WireResult<Vec<_>>>()?;
        let constraints = Arc::new(Constraints::read(reader, columns)?);
        let schema = Arc::new(schema);
        Ok(TableEntry { id, schema, next_row_id, segments, statistics, indexes, constraints })
    }
}

/// Why bytes are no manifest that this program can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ManifestError {
    /// Another version of the format.
    Version(u32),
    Damaged(String),
}

fn damaged(problem: impl Into<String>) -> ManifestError {
    ManifestError::Damaged(problem.into())
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use weft_buffer::PageId;

    use super::*;
    use crate::index::{Check, ForeignKey, IndexColumn, IndexDefinition};
    use crate::schema::Column;

    fn manifest() -> Manifest {
        let column = Column {
            name: "n".into(),
            data_type: DataType::Utf8,
            nullable: false,
            default: Some("'x'".into()),
            max_length: Some(20),
            kind: Some("a kind".into()),
        };
        let schema = TableSchema { name: "t".into(), columns: vec![column] };
        let extent = |start, units| Extent { device: 1, start, units };
        let segment = SegmentEntry {
            stored: Stored { device: 1, start: 9, bytes: 70, checksum: 5 },
            row_groups: 2,
            rows: 10,
            bytes: 100,
            extents: vec![extent(3, 4), extent(9, 1)],
        };
        let table = TableEntry {
            id: 4,
            schema: Arc::new(schema),
            next_row_id: 10,
            segments: vec![segment],
            statistics: Some(Stored { device: 0, start: 70, bytes: 5000, checksum: 6 }),
            indexes: vec![IndexEntry {
                definition: Arc::new(IndexDefinition {
                    name: "t_pkey".into(),
                    columns: vec![IndexColumn {
                        column: 0,
                        is_descending: true,
                        nulls_first: true,
                    }],
                    included: vec![0],
                    is_unique: true,
                    is_primary: true,
                    is_constraint: true,
                }),
                root: PageId::new(0, 80 * 4096, 8192),
                extents: vec![Extent { device: 0, start: 80, units: 8 }],
            }],
            constraints: Arc::new(Constraints {
                checks: vec![Check { name: "t_check".into(), sql: "n <> ''".into() }],
                foreign_keys: vec![ForeignKey {
                    name: "t_n_fkey".into(),
                    columns: vec![0],
                    parent: 4,
                    parent_columns: vec![0],
                }],
                ..Constraints::default()
            }),
        };
        Manifest {
            generation: 12,
            database: [3; 16],
            devices: vec!["".into(), "/ssd".into()],
            options: [("threads".into(), "2".into())].into(),
            views: [("v".into(), "SELECT 1".into())].into(),
            next_table_id: 5,
            tables: [("t".into(), table)].into(),
        }
    }

    #[test]
    fn comes_back() {
        let manifest = manifest();
        assert_eq!(Manifest::decode(&manifest.encode()).as_ref(), Ok(&manifest));
        assert_eq!(manifest.live_extents().unwrap()[1].len(), 2);
    }

    #[test]
    fn every_byte_and_every_length_counts() {
        let good = manifest().encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Manifest::decode(&bad).is_err(), "bit {bit} of byte {at}");
            }
            assert!(Manifest::decode(&good[..at]).is_err(), "{at} bytes");
        }
        let long = [good, vec![0; 4096]].concat();
        assert!(Manifest::decode(&long).is_err());
    }

    #[test]
    fn no_body_makes_it_panic() {
        let good = manifest().encode();
        let body = u64::from_le_bytes(good[40..48].try_into().unwrap()) as usize;
        for at in HEADER_BYTES..HEADER_BYTES + body {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good[HEADER_BYTES..HEADER_BYTES + body].to_vec();
                bad[at - HEADER_BYTES] = value;
                // Whole by its checksum, wrong by its content.
                if let Ok(read) = Manifest::read_body(12, [3; 16], &bad) {
                    read.live_extents().ok();
                }
            }
        }
    }

    #[test]
    fn space_has_one_use() {
        let mut manifest = manifest();
        let twice = manifest.tables["t"].clone();
        manifest.tables.insert("u".into(), twice);
        assert!(manifest.live_extents().is_err());
    }
}
