//! The journal: commits of few rows, made durable by one write and one sync.
//!
//! A commit that only deletes and adds few rows, or sets options, is applied in memory as any other one is: rows are written to row
//! groups, but the segments that name these and the pages of indexes stay in memory. What makes it durable is a record of its changes at
//! the end of the journal, a file beside the manifest. The manifest is written by the next commit that changes anything else, when the
//! journal is full or much space waits for it, and when the database is closed; what the journal says is superseded by that. Opened after
//! a crash, a database applies the records that follow its manifest, in order, and writes a manifest.
//!
//! A record has the generation that its commit makes. Records count from the beginning of the file as long as each one is whole and has
//! the next generation: what lies behind them is left from before the manifest. As the next record is written when
//! the one before is durable, a whole record behind one that is not tells of damage.
//!
//! Space that these commits free, and places of index pages, are still named by the manifest on the disk: they are reused when that is
//! written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::ArrayRef;
use weft_codec::{Block, Options};
use weft_rt::io::{Access, File, IoBuf};

use crate::FORMAT_VERSION;
use crate::change::Change;
use crate::device::DatabaseId;
use crate::directory::{Directory, SECTOR_BYTES, WRITE_BYTES_MAX, off_worker, read_file};
use crate::draft::Draft;
use crate::error::{Result, StoreError, is_unsupported};
use crate::extent::{Extent, UNIT_BYTES};
use crate::file_header::{header_checksum, seal_header};
use crate::index::version::IndexHandle;
use crate::row_set::RowSet;
use crate::schema::scan_type;
use crate::table::TableVersion;
use crate::wire::{Reader, WireResult, Writer, wrong};
use crate::writer::WrittenGroups;

/// The file's name.
const NAME: &str = "JOURNAL";

/// How every record begins.
const MAGIC: [u8; 8] = *b"WEFTJRNL";

/// Bytes of a record before its body: kind, version, checksum, generation, database, and the body's length.
const HEADER_BYTES: usize = 48;

/// The file's length. Applying as much after a crash takes seconds.
const JOURNAL_BYTES: u64 = 16 << 20;

/// Space that may wait for the next manifest to be reused.
const FREED_BYTES_MAX: u64 = 128 << 20;

/// Rows of a batch that a record may have.
const BATCH_ROWS_MAX: usize = 1 << 16;

/// The journal of an open database. One commit uses it at a time.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    /// Where the next record begins.
    end: u64,
    since: Since,
}

/// What has become of the database since its manifest was written.
#[derive(Debug, Default)]
pub(crate) struct Since {
    /// Indexes that were changed, and are not written as they are.
    pub(crate) indexes: Vec<Arc<IndexHandle>>,
    /// Space that the manifest names, or a generation after it had, and the newest one does not have.
    pub(crate) freed: Vec<Extent>,
}

/// The changes of one generation, as the journal has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Vec<u8>);

/// Records that follow a manifest.
#[derive(Debug)]
pub(crate) struct Found {
    file: File,
    /// The generations that they make, and their bodies.
    records: Vec<(u64, Vec<u8>)>,
}

impl Journal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The journal of a database that is being opened: what was found in its file counts until the next manifest.
    pub(crate) fn of(found: Option<&Found>) -> Journal {
        let file = found.map(|found| found.file.clone());
        Journal(Mutex::new(State { file, ..State::default() }))
    }

    /// True if there are commits that the manifest does not have.
    pub(crate) fn has_commits(&self) -> bool {
        self.state().end > 0
    }

    /// Indexes that were changed since the manifest was written.
    pub(crate) fn changed_indexes(&self) -> Vec<Arc<IndexHandle>> {
        self.state().since.indexes.clone()
    }

    /// Whether a record may be appended by a commit that frees some space: if not, it is time for a manifest.
    pub(crate) fn has_room(&self, record: &Record, freed: &[Extent]) -> bool {
        let state = self.state();
        let waiting = state.since.freed.iter().chain(freed).map(|extent| extent.units);
        state.end + record.bytes() <= JOURNAL_BYTES
            && waiting.sum::<u64>() * UNIT_BYTES <= FREED_BYTES_MAX
    }

    /// Makes the record of a generation durable, on a worker.
    ///
    /// # Errors
    /// [`JournalError`].
    pub(crate) async fn append(
        &self,
        directory: &Directory,
        (database, generation): (&DatabaseId, u64),
        record: Record,
    ) -> std::result::Result<(), JournalError> {
        let (file, end) = {
            let state = self.state();
            (state.file.clone(), state.end)
        };
        let file = match file {
            Some(file) => file,
            None => create(directory).await.map_err(JournalError::NotWritten)?,
        };
        let bytes = record.seal(database, generation);
        for (at, chunk) in bytes.chunks(WRITE_BYTES_MAX).enumerate() {
            let mut buffer = IoBuf::zeroed(chunk.len());
            buffer.copy_from_slice(chunk);
            let (result, buffer) = file.write(buffer, end + (at * WRITE_BYTES_MAX) as u64).await;
            let needed_bytes = buffer.len() as u64;
            let failed = |error| StoreError::of_write(error, file.path(), needed_bytes);
            result.map_err(|error| JournalError::NotWritten(failed(error)))?;
        }
        file.sync().await.map_err(|error| JournalError::InDoubt(error.into()))?;
        let mut state = self.state();
        (state.file, state.end) = (Some(file), end + bytes.len() as u64);
        Ok(())
    }

    /// Notes what a commit that the journal has has left to the next manifest.
    pub(crate) fn note(&self, since: Since) {
        let mut state = self.state();
        for handle in since.indexes {
            if !state.since.indexes.iter().any(|of| Arc::ptr_eq(of, &handle)) {
                state.since.indexes.push(handle);
            }
        }
        state.since.freed.extend(since.freed);
    }

    /// A manifest is durable that has everything: the journal begins anew. Gives the space that nothing on the disk names any more.
    pub(crate) fn supersede(&self) -> Vec<Extent> {
        let mut state = self.state();
        state.end = 0;
        std::mem::take(&mut state.since).freed
    }

    /// Removes the file of a journal that is superseded; it is made anew when it is needed.
    pub(crate) fn remove(&self, directory: &Directory) {
        let mut state = self.state();
        if state.end == 0 && state.file.take().is_some() {
            // One that stays is read when the database is opened, and found to be superseded.
            directory.remove(NAME).ok();
        }
    }
}

/// Why the journal does not have a record.
#[derive(Debug)]
pub(crate) enum JournalError {
    /// It could not be written, and counts for nothing once a manifest of its generation is written.
    NotWritten(StoreError),
    /// It was written, and may or may not be durable.
    InDoubt(StoreError),
}

/// Makes the file, and its name durable.
async fn create(directory: &Directory) -> Result<File> {
    let at = directory.clone();
    let file = off_worker(move || at.create_file(NAME)).await??;
    match file.allocate(0, JOURNAL_BYTES).await {
        Err(error) if !is_unsupported(&error) => {
            return Err(StoreError::of_write(error, file.path(), JOURNAL_BYTES));
        }
        _ => {}
    }
    let at = directory.clone();
    off_worker(move || at.sync()).await??;
    Ok(file)
}

impl Record {
    /// Bytes that it takes in the journal.
    fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.0.len()).next_multiple_of(SECTOR_BYTES) as u64
    }

    /// Adds changes that are about to be applied to a draft; false if the journal cannot have them.
    pub(crate) fn add(&mut self, changes: &[Change], draft: &Draft) -> bool {
        let len_before = self.0.len();
        let mut writer = Writer(std::mem::take(&mut self.0));
        let mut next_rows = BTreeMap::new();
        let are_added =
            changes.iter().all(|change| write(change, draft, &mut next_rows, &mut writer));
        self.0 = writer.0;
        if !are_added {
            self.0.truncate(len_before);
        }
        are_added
    }

    /// Forgets what was added after it had so many bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Bytes of its body.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All bytes of the record.
    fn seal(&self, database: &DatabaseId, generation: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(database);
        bytes.extend_from_slice(&(self.0.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.0);
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        seal_header(&mut bytes);
        bytes
    }
}

/// Kinds of changes.
const DELETE: u8 = 0;
const APPEND: u8 = 1;
const SET_OPTION: u8 = 2;

/// Writes a change; false if a journal cannot have it.
fn write(
    change: &Change,
    draft: &Draft,
    next_rows: &mut BTreeMap<String, u64>,
    writer: &mut Writer,
) -> bool {
    match change {
        Change::Delete { table, rows, .. } => {
            let Some(version) = draft.tables.get(table) else { return false };
            writer.u8(DELETE);
            writer.str(table);
            writer.u64(version.id);
            writer.len(rows.len() as usize);
            rows.iter().for_each(|row| writer.u64(row));
            true
        }
        Change::Append { table, groups, .. } => {
            let Some(version) = draft.tables.get(table) else { return false };
            if !groups.groups.is_empty() || groups.statistics.is_some() {
                return false;
            }
            let next_row = next_rows.entry(table.clone()).or_insert(version.next_row_id);
            writer.u8(APPEND);
            writer.str(table);
            writer.u64(version.id);
            writer.u64(*next_row);
            writer.len(groups.row_group_rows);
            writer.len(groups.loose.len());
            *next_row += groups.rows();
            groups.loose.iter().all(|columns| write_columns(columns, writer))
        }
        Change::SetOption { name, value } => {
            writer.u8(SET_OPTION);
            writer.str(name);
            writer.option_str(value.as_deref());
            true
        }
        _ => false,
    }
}

/// Writes the columns of some rows; false if they cannot be encoded as they are.
fn write_columns(columns: &[ArrayRef], writer: &mut Writer) -> bool {
    let rows = columns[0].len();
    writer.len(rows);
    rows <= BATCH_ROWS_MAX
        && columns.iter().all(|column| {
            let encoded =
                weft_codec::encode(column, &Options { cascade_depth: 0, ..Options::default() });
            encoded.map(|bytes| writer.bytes(&bytes)).is_ok()
        })
}

/// The changes of a record's body, one after the other.
pub(crate) struct Changes<'a>(Reader<'a>);

impl<'a> Changes<'a> {
    pub(crate) fn of(body: &'a [u8]) -> Changes<'a> {
        Changes(Reader::new(body))
    }

    /// The next change, on top of a draft to which those before it were applied.
    pub(crate) fn next(
        &mut self,
        tables: &BTreeMap<String, Arc<TableVersion>>,
    ) -> WireResult<Option<Change>> {
        let reader = &mut self.0;
        if reader.rest().is_empty() {
            return Ok(None);
        }
        let kind = reader.u8()?;
        let name = reader.str()?;
        if kind == SET_OPTION {
            return Ok(Some(Change::SetOption { name, value: reader.option_str()? }));
        }
        let id = reader.u64()?;
        let Some(version) = tables.get(&name).filter(|version| version.id == id) else {
            return wrong(format!("there is no table {name} with the number {id}"));
        };
        match kind {
            DELETE => {
                let count = reader.count(8)?;
                let mut rows = RowSet::default();
                for _ in 0..count {
                    rows.insert(reader.u64()?);
                }
                Ok(Some(Change::Delete { table: name, expected: None, rows }))
            }
            APPEND => {
                let groups = read_groups(reader, version)?;
                Ok(Some(Change::Append { table: name, expected: None, groups }))
            }
            kind => wrong(format!("{kind} is no kind of change")),
        }
    }
}

fn read_groups(reader: &mut Reader<'_>, version: &TableVersion) -> WireResult<WrittenGroups> {
    let (name, next_row) = (&version.schema.name, reader.u64()?);
    if next_row != version.next_row_id {
        let next = version.next_row_id;
        return wrong(format!("row {next_row} of table {name} is added where row {next} is next"));
    }
    let row_group_rows = reader.u32()? as usize;
    if !(1..=crate::ROW_GROUP_ROWS_MAX).contains(&row_group_rows) {
        return wrong(format!("row groups of {row_group_rows} rows"));
    }
    let batches = reader.count(4)?;
    let mut loose = Vec::with_capacity(batches);
    for _ in 0..batches {
        let rows = reader.u32()? as usize;
        let column = |column: &crate::schema::Column| -> WireResult<ArrayRef> {
            let bytes = reader.bytes()?;
            let data_type = scan_type(&column.data_type);
            let decoded = Block::open(bytes).and_then(|block| block.decode_as(&data_type));
            match decoded {
                Ok(array) if array.len() == rows => Ok(array),
                Ok(array) => wrong(format!("{} values of {rows} rows", array.len())),
                Err(error) => wrong(format!("column {} of table {name}: {error}", column.name)),
            }
        };
        loose.push(version.schema.columns.iter().map(column).collect::<WireResult<Vec<_>>>()?);
    }
    let schema = version.schema.clone();
    Ok(WrittenGroups { schema, groups: Vec::new(), loose, row_group_rows, statistics: None })
}

/// Reads the journal that follows the manifest of a generation, on a worker; `None` if there is no file.
///
/// # Errors
/// [`StoreError::Damaged`] if a record is not whole that others follow; those of reading.
pub(crate) async fn read(
    directory: &Directory,
    (database, generation): (&DatabaseId, u64),
    access: Access,
) -> Result<Option<Found>> {
    let Some(file) = directory.open_file(NAME, access)? else { return Ok(None) };
    let bytes = read_file(&file).await?;
    let (mut records, mut at) = (Vec::new(), 0);
    let mut next = generation + 1;
    while let Some((of, body, len)) = record_at(&bytes[at..], database)
        && of == next
    {
        records.push((of, body.to_vec()));
        at += len;
        next += 1;
    }
    let mut rest = at;
    while rest < bytes.len() {
        let Some((of, _, len)) = record_at(&bytes[rest..], database) else {
            rest += SECTOR_BYTES;
            continue;
        };
        if of >= next {
            return Err(StoreError::Damaged {
                path: file.path().into(),
                place: format!("the record of commit {next} at byte {at}"),
                problem: format!("it is not whole, and that of commit {of} follows"),
            });
        }
        rest += len;
    }
    Ok(Some(Found { file, records }))
}

/// Generation, body and length of the record that these bytes begin with, if it is one of this database.
fn record_at<'a>(bytes: &'a [u8], database: &DatabaseId) -> Option<(u64, &'a [u8], usize)> {
    let header = bytes.get(..HEADER_BYTES)?;
    if header[..8] != MAGIC || header[24..40] != database[..] {
        return None;
    }
    let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let body_bytes = usize::try_from(u64_at(40)).ok()?;
    let len = HEADER_BYTES.checked_add(body_bytes)?.checked_next_multiple_of(SECTOR_BYTES)?;
    let bytes = bytes.get(..len)?;
    let (version, stored) = (u64_at(8) as u32, (u64_at(8) >> 32) as u32);
    if stored != header_checksum(bytes) || version != FORMAT_VERSION {
        return None;
    }
    Some((u64_at(16), &bytes[HEADER_BYTES..HEADER_BYTES + body_bytes], len))
}

impl Found {
    /// True if there are no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records: the generations that they make, and their bodies.
    pub(crate) fn records(&self) -> &[(u64, Vec<u8>)] {
        &self.records
    }

    /// The error of a record whose changes cannot be applied.
    pub(crate) fn unapplied(&self, generation: u64, error: StoreError) -> StoreError {
        match error {
            error @ (StoreError::DiskFull { .. } | StoreError::File(_)) => error,
            error => self.damaged(generation, error.to_string()),
        }
    }

    /// The error of a record that is not as records are.
    pub(crate) fn damaged(&self, generation: u64, problem: String) -> StoreError {
        StoreError::Damaged {
            path: self.file.path().into(),
            place: format!("the record of commit {generation}"),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StringViewArray};
    use arrow_schema::DataType;

    use super::*;
    use crate::schema::{Column, TableSchema};

    fn tables() -> BTreeMap<String, Arc<TableVersion>> {
        let column = |name: &str, data_type| Column {
            name: name.to_owned(),
            data_type,
            nullable: true,
            default: None,
            max_length: None,
            kind: None,
        };
        let columns = vec![column("n", DataType::Int64), column("s", DataType::Utf8)];
        let schema = Arc::new(TableSchema { name: "t".into(), columns });
        let version = TableVersion::new(7, schema, 5, Vec::new(), None);
        BTreeMap::from([("t".to_owned(), Arc::new(version))])
    }

    /// The body of a record with a change of each kind.
    fn body() -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(DELETE);
        writer.str("t");
        writer.u64(7);
        writer.len(2);
        writer.u64(1);
        writer.u64(4);
        writer.u8(APPEND);
        writer.str("t");
        writer.u64(7);
        writer.u64(5);
        writer.len(100);
        writer.len(1);
        let columns: [ArrayRef; 2] = [
            Arc::new(Int64Array::from(vec![Some(3), None])),
            Arc::new(StringViewArray::from(vec![None, Some("a text of more than twelve bytes")])),
        ];
        assert!(write_columns(&columns, &mut writer));
        writer.u8(SET_OPTION);
        writer.str("threads");
        writer.option_str(Some("2"));
        writer.0
    }

    fn read_all(body: &[u8]) -> WireResult<Vec<Change>> {
        let (tables, mut changes) = (tables(), Changes::of(body));
        std::iter::from_fn(|| changes.next(&tables).transpose()).collect()
    }

    #[test]
    fn changes_come_back() {
        let changes = read_all(&body()).unwrap();
        let [
            Change::Delete { rows, .. },
            Change::Append { groups, .. },
            Change::SetOption { name, value },
        ] = &changes[..]
        else {
            panic!("{changes:?}");
        };
        assert_eq!(rows.iter().collect::<Vec<_>>(), [1, 4]);
        assert_eq!((groups.rows(), groups.row_group_rows), (2, 100));
        assert_eq!((name.as_str(), value.as_deref()), ("threads", Some("2")));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let good = body();
        for at in 0..good.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                read_all(&bad).ok();
            }
            read_all(&good[..at]).ok();
        }
        assert!(read_all(&good[1..]).is_err());
    }

    #[test]
    fn a_record_is_told_from_other_bytes() {
        let database = [3; 16];
        let bytes = Record(body()).seal(&database, 9);
        let (generation, found, len) = record_at(&bytes, &database).unwrap();
        assert_eq!((generation, found, len), (9, &body()[..], bytes.len()));
        assert!(record_at(&bytes, &[4; 16]).is_none(), "of another database");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(record_at(&bad, &database).is_none(), "byte {at}");
            assert!(record_at(&bytes[..at], &database).is_none());
        }
    }
}
