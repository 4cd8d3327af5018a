//! Tables as a snapshot has them.

use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use weft_codec::{Block as Decoder, Predicate, Scalar, Zone};
use weft_rt::sync::block_on;

use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::index::version::IndexVersion;
use crate::index::{Constraints, IndexDefinition};
use crate::manifest::TableEntry;
use crate::page_io::Wanted;
use crate::pages::{PageKind, Stored};
use crate::row_group::{Block, RowGroup};
use crate::schema::TableSchema;
use crate::segment::{Loaded, Segment};
use crate::snapshot::Access;
use crate::space::Pin;
use crate::statistics::Statistics;
use crate::wire::WireError;

/// What a commit left of a table; shared by all snapshots in which it is the same.
#[derive(Debug)]
pub(crate) struct TableVersion {
    pub(crate) id: u64,
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) arrow_schema: SchemaRef,
    pub(crate) next_row_id: u64,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Of each column, over all rows.
    zones: OnceLock<Vec<Zone>>,
    /// Where the statistics lie, if there are some.
    pub(crate) stored_statistics: Option<Stored>,
    statistics: OnceLock<Option<Arc<Statistics>>>,
    pub(crate) indexes: Vec<IndexVersion>,
    pub(crate) constraints: Arc<Constraints>,
}

impl TableVersion {
    /// A table without indexes and constraints.
    pub(crate) fn new(
        id: u64,
        schema: Arc<TableSchema>,
        next_row_id: u64,
        segments: Vec<Arc<Segment>>,
        stored_statistics: Option<Stored>,
    ) -> TableVersion {
        let arrow_schema = schema.arrow_schema();
        let (zones, statistics) = (OnceLock::new(), OnceLock::new());
        TableVersion {
            id,
            schema,
            arrow_schema,
            next_row_id,
            segments,
            zones,
            stored_statistics,
            statistics,
            indexes: Vec::new(),
            constraints: Arc::default(),
        }
    }

    /// The same rows with these indexes and constraints.
    pub(crate) fn with_keys(
        self,
        indexes: Vec<IndexVersion>,
        constraints: Arc<Constraints>,
    ) -> TableVersion {
        TableVersion { indexes, constraints, ..self }
    }

    /// The same with another name.
    pub(crate) fn with_schema(self, schema: Arc<TableSchema>) -> TableVersion {
        TableVersion { schema, ..self }
    }

    /// A copy, of which no zones are known.
    pub(crate) fn copied(&self) -> TableVersion {
        let (schema, segments) = (self.schema.clone(), self.segments.clone());
        let copy =
            TableVersion::new(self.id, schema, self.next_row_id, segments, self.stored_statistics)
                .with_keys(self.indexes.clone(), self.constraints.clone());
        match self.known_statistics() {
            Some(statistics) => copy.with_statistics(statistics),
            None => copy,
        }
    }

    /// The same with other segments; for a copy, of which no zones are known.
    pub(crate) fn with_segments(self, segments: Vec<Arc<Segment>>) -> TableVersion {
        TableVersion { segments, ..self }
    }

    /// The same with statistics that lie nowhere.
    pub(crate) fn with_statistics(self, statistics: Arc<Statistics>) -> TableVersion {
        TableVersion { statistics: OnceLock::from(Some(statistics)), ..self }
    }

    /// The statistics, if they were read or made already.
    pub(crate) fn known_statistics(&self) -> Option<Arc<Statistics>> {
        self.statistics.get().cloned().flatten()
    }

    /// The table's identity among those of the open database: its number, and how often its definition was changed.
    pub(crate) fn identity(&self) -> u64 {
        self.id ^ u64::from(self.constraints.alterations).rotate_right(16)
    }

    /// True if the rows are those of another version of the table: rows that are added take new ids, others only go.
    pub(crate) fn has_rows_of(&self, other: &TableVersion) -> bool {
        self.identity() == other.identity()
            && self.next_row_id == other.next_row_id
            && self.rows() == other.rows()
    }

    /// The unique index of these columns, in whatever order.
    pub(crate) fn unique_index(&self, columns: &[usize]) -> Option<&IndexVersion> {
        self.indexes.iter().find(|index| {
            let definition = index.definition();
            definition.is_unique
                && definition.columns.len() == columns.len()
                && definition.columns.iter().all(|of| columns.contains(&of.column))
        })
    }

    pub(crate) fn entry(&self) -> TableEntry {
        TableEntry {
            id: self.id,
            schema: self.schema.clone(),
            next_row_id: self.next_row_id,
            segments: self.segments.iter().map(|segment| segment.entry.clone()).collect(),
            statistics: self.stored_statistics,
            indexes: self.indexes.iter().map(|index| index.entry.clone()).collect(),
            constraints: self.constraints.clone(),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.entry.rows).sum()
    }

    /// The whole directory, on a worker.
    pub(crate) async fn load(&self, access: &Access) -> Result<Vec<Arc<Loaded>>> {
        let mut directory = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let groups = segment.load(access, self.id, self.schema.columns.len()).await;
            let groups = groups.map_err(|error| error.at(format!("table {}", self.schema.name)))?;
            directory.push(groups.clone());
        }
        Ok(directory)
    }

    /// All that the table occupies.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> {
        let segments = self.segments.iter();
        let extents = segments.flat_map(|segment| segment.entry.extents.iter().copied());
        let indexes = self.indexes.iter().flat_map(|index| index.entry.extents.iter().copied());
        extents.chain(self.stored_statistics.iter().map(Stored::extent)).chain(indexes)
    }

    /// The statistics, on a worker; `None` if there are none that say much about the rows as they are now. Those that
    /// are damaged are worth a line in the log: queries do without.
    pub(crate) async fn statistics(&self, access: &Access) -> Option<&Arc<Statistics>> {
        if self.statistics.get().is_none() {
            let read = match self.stored_statistics {
                None => None,
                Some(stored) => match self.read_statistics(&stored, access).await {
                    Ok(statistics) => Some(Arc::new(statistics)),
                    Err(error) => {
                        log::warn!("statistics of table {}: {error}", self.schema.name);
                        None
                    }
                },
            };
            self.statistics.get_or_init(|| read);
        }
        let statistics = self.statistics.get().and_then(Option::as_ref);
        statistics.filter(|statistics| statistics.rows() * 2 >= self.rows())
    }

    async fn read_statistics(&self, stored: &Stored, access: &Access) -> Result<Statistics> {
        let bytes = access.source.read_once(stored, PageKind::Statistics).await?;
        Statistics::decode(&bytes, self.id, &self.schema).map_err(|WireError(problem)| {
            StoreError::Damaged {
                path: access.source.path(stored.device),
                place: format!("statistics at byte {}", stored.extent().offset()),
                problem,
            }
        })
    }

    /// The zones, on a worker.
    async fn zones(&self, access: &Access) -> Result<&Vec<Zone>> {
        if let Some(zones) = self.zones.get() {
            return Ok(zones);
        }
        let directory = self.load(access).await?;
        let empty = || Zone { min: None, max: None, null_count: 0, exact: false };
        let mut zones: Vec<Zone> = self.schema.columns.iter().map(|_| empty()).collect();
        let mut rows = 0;
        for group in directory.iter().flat_map(|segment| &segment.groups) {
            for (zone, chunk) in zones.iter_mut().zip(group.chunks.iter()) {
                zone.merge(rows, chunk.zone(), group.rows.into());
                // Values that bound the others, and NULLs, may be those of deleted rows.
                zone.exact &= group.deleted.is_none();
            }
            rows += u64::from(group.rows);
        }
        Ok(self.zones.get_or_init(|| zones))
    }
}

/// Blocks that are looked at to know how many are in memory.
const SAMPLED_BLOCKS: usize = 512;

/// What columns of a table take, and where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColumnResidence {
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Number of their blocks.
    pub blocks: u64,
    /// The share of the blocks that is in memory, 0 to 1, of some that are looked at.
    pub cached: f64,
}

/// A table of a [`Snapshot`](crate::Snapshot), which stays readable while this is kept.
#[derive(Debug)]
pub struct Table {
    pub(crate) version: Arc<TableVersion>,
    pub(crate) access: Arc<Access>,
    pub(crate) _pin: Pin,
}

impl Table {
    /// The table's identity, for changes that rely on it: another table, even one of the same name made later, has another,
    /// and so has the same one after its columns or constraints were altered.
    pub fn id(&self) -> u64 {
        self.version.identity()
    }

    /// The number by which foreign keys name the table: no other table ever has it.
    pub fn number(&self) -> u64 {
        self.version.id
    }

    /// True if no commit has changed the table between the snapshots of the two, apart from its name and its indexes.
    pub fn is_as(&self, other: &Table) -> bool {
        self.id() == other.id() && self.version.has_rows_of(&other.version)
    }

    /// Name and columns.
    pub fn schema(&self) -> &TableSchema {
        &self.version.schema
    }

    /// The schema of scans over all columns: strings and binary are views.
    pub fn arrow_schema(&self) -> SchemaRef {
        self.version.arrow_schema.clone()
    }

    /// Its indexes, in the order in which they were made.
    pub fn indexes(&self) -> impl Iterator<Item = &IndexDefinition> {
        self.version.indexes.iter().map(|index| &**index.definition())
    }

    /// What its rows have to be like, apart from columns and unique indexes.
    pub fn constraints(&self) -> &Constraints {
        &self.version.constraints
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        self.version.rows()
    }

    /// Bytes of the encoded columns.
    pub fn bytes(&self) -> u64 {
        self.version.segments.iter().map(|segment| segment.entry.bytes).sum()
    }

    /// Bytes that the table occupies in the data files.
    pub fn bytes_on_disk(&self) -> u64 {
        self.version.extents().map(|extent| extent.bytes()).sum()
    }

    /// Bytes that one of its indexes occupies in the data files, which [`Table::bytes_on_disk`] counts as well; `None` if there is none of
    /// the name.
    pub fn index_bytes_on_disk(&self, name: &str) -> Option<u64> {
        let index = self.version.indexes.iter().find(|index| index.definition().name == name)?;
        Some(index.entry.extents.iter().map(|extent| extent.bytes()).sum())
    }

    /// Row groups.
    pub fn row_groups(&self) -> usize {
        self.version.segments.iter().map(|segment| segment.entry.row_groups as usize).sum()
    }

    /// The zone of a column over the table: bounds of its values and the number of nulls, which may be
    /// those of deleted rows if the zone is not exact. Loads the
    /// table's directory if nobody has used the table yet. Blocks this thread, which must be no worker.
    ///
    /// # Errors
    /// Those of reading the directory; [`StoreError::Request`] if there is no such column.
    pub fn zone(&self, column: usize) -> Result<Zone> {
        self.check_columns([&column])?;
        if self.version.zones.get().is_none() {
            block_on(self.load())?;
        }
        Ok(self.version.zones.get().expect("loaded")[column].clone())
    }

    /// True if rows of the table were deleted whose values still count in its zones, or if its directory is not loaded.
    pub fn may_have_deleted_rows(&self) -> bool {
        let may_have = |segment: &Arc<Segment>| {
            let has_deleted =
                |loaded: &Loaded| loaded.groups.iter().any(|group| group.deleted.is_some());
            segment.known().is_none_or(has_deleted)
        };
        self.version.segments.iter().any(may_have)
    }

    /// Least and most rows that satisfy all of these predicates, as the zones of row groups tell once the directory is loaded.
    /// Predicates on columns that there are not tell nothing.
    pub fn rows_within(&self, predicates: &[(usize, Predicate)]) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for segment in &self.version.segments {
            let Some(loaded) = segment.known() else {
                most += segment.entry.rows;
                continue;
            };
            for group in &loaded.groups {
                let (rows, live_rows) = (u64::from(group.rows), u64::from(group.live_rows()));
                let all = |holds: fn(&Predicate, &Zone, u64) -> bool, unknown: bool| {
                    predicates.iter().all(|(column, predicate)| {
                        let chunk = group.chunks.get(*column);
                        chunk.map_or(unknown, |chunk| holds(predicate, chunk.zone(), rows))
                    })
                };
                least += if all(Predicate::must_match, false) { live_rows } else { 0 };
                most += if all(Predicate::may_match, true) { live_rows } else { 0 };
            }
        }
        (least, most)
    }

    /// What some columns take, and which part of them is in memory, as far as the table's directory is loaded. Columns that
    /// there are not take nothing.
    pub fn residence(&self, columns: &[usize]) -> ColumnResidence {
        let loaded = || self.version.segments.iter().filter_map(|segment| segment.known());
        let groups = || loaded().flat_map(|loaded| &loaded.groups);
        let blocks = || {
            groups().flat_map(|group| {
                let chunks = columns.iter().filter_map(|column| group.chunks.get(*column));
                chunks.flat_map(|chunk| &chunk.blocks).map(move |block| (group, block))
            })
        };
        let (mut bytes, mut count) = (0, 0);
        blocks().for_each(|(_, block)| {
            bytes += u64::from(block.stored.bytes);
            count += 1;
        });
        let step = (count as usize).div_ceil(SAMPLED_BLOCKS).max(1);
        let (mut sampled, mut hot) = (0_u32, 0_u32);
        for (group, block) in blocks().step_by(step) {
            let swip = group.pages.swip(block.first_page as usize);
            sampled += 1;
            hot += u32::from(matches!(swip.state(), weft_buffer::SwipState::Hot(_)));
        }
        let cached = f64::from(hot) / f64::from(sampled.max(1));
        ColumnResidence { bytes, blocks: count, cached }
    }

    /// What is known of the values from loads; `None` if nothing is, or the table has grown to more than twice as many
    /// rows since. On any executor.
    ///
    /// # Errors
    /// If the runtime is being shut down.
    pub async fn statistics(&self) -> Result<Option<Arc<Statistics>>> {
        let (version, access) = (self.version.clone(), self.access.clone());
        let read = self
            .access
            .runtime
            .spawn(move || async move { version.statistics(&access).await.cloned() });
        Ok(read.await?)
    }

    /// Loads the directory, so that [`Table::zone`] and scans need not wait for it; on any executor.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub async fn load(&self) -> Result<()> {
        let (version, access) = (self.version.clone(), self.access.clone());
        let loaded = self
            .access
            .runtime
            .spawn(move || async move { version.zones(&access).await.map(drop) });
        loaded.await?
    }

    /// One row's values in the columns of `projection`: a block of each is read and one value of it
    /// decoded. `None` if there is no such row. On any executor.
    ///
    /// # Errors
    /// Those of reading; [`StoreError::Request`] if there is no such column.
    pub async fn get(&self, row_id: u64, projection: &[usize]) -> Result<Option<Vec<Scalar>>> {
        self.check_columns(projection)?;
        let (version, access) = (self.version.clone(), self.access.clone());
        let projection = projection.to_vec();
        let found = self
            .access
            .runtime
            .spawn(move || async move { get(&version, &access, row_id, &projection).await });
        found.await?
    }

    pub(crate) fn check_columns<'a>(
        &self,
        columns: impl IntoIterator<Item = &'a usize>,
    ) -> Result<()> {
        let count = self.version.schema.columns.len();
        match columns.into_iter().find(|column| **column >= count) {
            None => Ok(()),
            Some(column) => Err(StoreError::Request {
                table: self.version.schema.name.clone(),
                problem: format!("there is no column number {column}, only {count} columns"),
            }),
        }
    }
}

pub(crate) async fn get(
    version: &TableVersion,
    access: &Access,
    row_id: u64,
    projection: &[usize],
) -> Result<Option<Vec<Scalar>>> {
    let source = &access.source;
    let directory = version.load(access).await?;
    let ends_behind = |group: &RowGroup| group.end_row() > row_id;
    let ends_before = |segment: &Arc<Loaded>| !segment.groups.last().is_some_and(ends_behind);
    let Some(segment) = directory.get(directory.partition_point(ends_before)) else {
        return Ok(None);
    };
    let number = segment.groups.partition_point(|group| !ends_behind(group));
    let Some(group) = segment.groups.get(number).filter(|group| group.first_row <= row_id) else {
        return Ok(None);
    };
    let Some(row) = group.place_of(row_id).filter(|_| group.has_live(row_id)) else {
        return Ok(None);
    };
    let block_of = |column: &usize| {
        let chunk = &group.chunks[*column];
        &chunk.blocks[(row / chunk.block_rows) as usize]
    };
    let blocks: Vec<&Block> = projection.iter().map(block_of).collect();
    let mut values = Vec::with_capacity(blocks.len());
    let read =
        source.visit(&group.pages, &blocks, PageKind::Block, Wanted::ByPoint, |at, bytes| {
            let within = row % group.chunks[projection[at]].block_rows;
            let value = Decoder::open(bytes).and_then(|block| block.value(within as usize));
            let undecodable = |error| source.undecodable(&blocks[at].stored, error);
            values.push(value.map_err(undecodable)?);
            Ok(())
        });
    read.await.map_err(|(at, error)| {
        let column = &version.schema.columns[projection[at]].name;
        error.at(format!("table {}, row {row_id}, column {column}", version.schema.name))
    })?;
    Ok(Some(values))
}
