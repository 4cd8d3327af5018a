//! Altering a table: other names, types and defaults of columns, columns more or fewer. Columns that go, and other orders of columns,
//! change the directory only: what the blocks of a column that went occupy is free once their row group is written anew.
//! Values of other types, and of new columns, come as all rows anew.

use std::sync::Arc;

use crate::append::append;
use crate::delete::truncate;
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::index::version::{IndexEntry, IndexVersion};
use crate::index::{Constraints, ForeignKey, IndexColumn, IndexDefinition};
use crate::pages::{PageKind, PageRun, Stored, units_of};
use crate::row_group::RowGroup;
use crate::schema::{Column, TableSchema, scan_type};
use crate::segment::Segment;
use crate::snapshot::Access;
use crate::space::{Allocation, Space};
use crate::table::{Table, TableVersion};
use crate::writer::WrittenGroups;

/// What becomes of a table.
#[derive(Debug)]
pub struct Alteration {
    /// The columns as they will be; the table keeps its name.
    pub columns: TableSchema,
    /// For each of them the number of the column that it was; none for new columns.
    pub origins: Vec<Option<usize>>,
    /// The table as the statement saw it, if that relies on its rows: they must be the same.
    pub seen: Option<Arc<Table>>,
    /// All rows anew, if values change.
    pub rows: Option<WrittenGroups>,
}

/// A table with other columns.
#[derive(Debug)]
pub(crate) struct Altered {
    pub(crate) version: TableVersion,
    pub(crate) taken: Vec<Arc<Allocation>>,
    pub(crate) freed: Vec<Extent>,
    /// Its indexes have to be made anew.
    pub(crate) has_old_indexes: bool,
}

impl Alteration {
    /// The number that a column gets.
    pub(crate) fn number_of(&self, old: usize) -> Option<usize> {
        self.origins.iter().position(|origin| *origin == Some(old))
    }

    /// Foreign keys whose columns, and columns of `parent`, get other numbers; `None` if one of them goes.
    pub(crate) fn foreign_key(
        &self,
        key: &ForeignKey,
        own: bool,
        parent: u64,
    ) -> Option<ForeignKey> {
        let numbers = |columns: &[usize], is_of: bool| -> Option<Vec<usize>> {
            let number =
                |column: &usize| if is_of { self.number_of(*column) } else { Some(*column) };
            columns.iter().map(number).collect()
        };
        Some(ForeignKey {
            columns: numbers(&key.columns, own)?,
            parent_columns: numbers(&key.parent_columns, key.parent == parent)?,
            ..key.clone()
        })
    }

    fn check(&self, version: &TableVersion) -> Result<()> {
        let table = || version.schema.name.clone();
        let problem = |problem: String| StoreError::Schema { table: table(), problem };
        self.columns.check()?;
        assert_eq!(self.columns.name, version.schema.name, "an altered table keeps its name");
        assert_eq!(self.columns.columns.len(), self.origins.len(), "an origin for each column");
        if let Some(seen) = &self.seen
            && !version.has_rows_of(&seen.version)
        {
            return Err(StoreError::Conflict { table: table(), change: "changed" });
        }
        if self.rows.is_some() || version.segments.is_empty() {
            return Ok(());
        }
        for (column, origin) in self.columns.columns.iter().zip(&self.origins) {
            let old = origin.and_then(|number| version.schema.columns.get(number));
            let same = |old: &Column| scan_type(&old.data_type) == scan_type(&column.data_type);
            if !old.is_some_and(same) {
                let name = &column.name;
                return Err(problem(format!("the values of column {name} are not given")));
            }
        }
        Ok(())
    }
}

/// Alters a table, on a worker.
///
/// # Errors
/// [`StoreError::Schema`] if a table cannot be so; [`StoreError::Conflict`]; [`StoreError::Mismatch`] if the rows were
/// written for other columns.
pub(crate) async fn alter(
    version: &TableVersion,
    mut alteration: Alteration,
    space: &Arc<Space>,
    access: &Access,
) -> Result<Altered> {
    alteration.check(version)?;
    let rows = alteration.rows.take();
    let keys = Keys::of(version, &alteration)?;
    let has_old_indexes = keys.are_old || rows.is_some();
    let schema = Arc::new(alteration.columns.clone());
    let with = |segments, statistics| {
        TableVersion::new(version.id, schema.clone(), version.next_row_id, segments, statistics)
            .with_keys(keys.indexes.clone(), keys.constraints.clone())
    };
    let is_same = alteration.origins.len() == version.schema.columns.len()
        && alteration.origins.iter().enumerate().all(|(new, old)| *old == Some(new));
    if let Some(groups) = rows {
        let appended = append(&with(Vec::new(), None), groups, None, space, access).await?;
        let freed = [truncate(version).freed, appended.freed].concat();
        let (version, taken) = (appended.version, appended.taken);
        return Ok(Altered { version, taken, freed, has_old_indexes });
    }
    if version.segments.is_empty() {
        let freed = version.stored_statistics.iter().map(Stored::extent).collect();
        let version = with(Vec::new(), None);
        return Ok(Altered { version, taken: Vec::new(), freed, has_old_indexes });
    }
    if is_same {
        let version = with(version.segments.clone(), version.stored_statistics);
        return Ok(Altered { version, taken: Vec::new(), freed: Vec::new(), has_old_indexes });
    }
    let origins: Vec<usize> = alteration.origins.iter().copied().flatten().collect();
    let moved = with_columns(version, &origins, (space, access)).await?;
    let version = with(moved.segments, moved.statistics);
    let taken = moved.taken.into_iter().map(Arc::new).collect();
    Ok(Altered { version, taken, freed: moved.freed, has_old_indexes })
}

/// The indexes and constraints of a table that is altered.
struct Keys {
    indexes: Vec<IndexVersion>,
    constraints: Arc<Constraints>,
    /// Keys of indexes are made of other values, or in another way.
    are_old: bool,
}

impl Keys {
    fn of(version: &TableVersion, alteration: &Alteration) -> Result<Keys> {
        let schema = &alteration.columns;
        let mut indexes = Vec::with_capacity(version.indexes.len());
        let mut are_old = false;
        for index in &version.indexes {
            let definition = renumbered(index.definition(), alteration, &version.schema)?;
            definition.check(schema)?;
            for of in &definition.columns {
                let old = alteration.origins[of.column].map(|old| &version.schema.columns[old]);
                let new = &schema.columns[of.column];
                are_old |= old.is_none_or(|old| {
                    (&old.data_type, old.nullable) != (&new.data_type, new.nullable)
                });
            }
            for number in &definition.included {
                let old = alteration.origins[*number].map(|old| &version.schema.columns[old]);
                let new = &schema.columns[*number];
                are_old |= old.is_none_or(|old| old.data_type != new.data_type);
            }
            let entry = IndexEntry { definition: Arc::new(definition), ..index.entry.clone() };
            let (handle, moment) = (index.handle.clone(), index.moment.clone());
            indexes.push(IndexVersion { entry, handle, moment, overlay: None });
        }
        let mut constraints = version.constraints.altered();
        for key in &mut constraints.foreign_keys {
            let Some(followed) = alteration.foreign_key(key, true, version.id) else {
                let problem = format!("a column that goes is one of the foreign key {}", key.name);
                return Err(StoreError::Schema { table: schema.name.clone(), problem });
            };
            *key = followed;
        }
        Ok(Keys { indexes, constraints: Arc::new(constraints), are_old })
    }
}

/// A directory with other columns.
struct Moved {
    segments: Vec<Arc<Segment>>,
    statistics: Option<Stored>,
    taken: Vec<Allocation>,
    freed: Vec<Extent>,
}

/// The directory of a table with some of its columns.
async fn with_columns(
    version: &TableVersion,
    origins: &[usize],
    (space, access): (&Arc<Space>, &Access),
) -> Result<Moved> {
    let (mut segments, mut taken, mut freed) = (Vec::new(), Vec::new(), Vec::new());
    for segment in &version.segments {
        let at_table = |error: StoreError| error.at(format!("table {}", version.schema.name));
        let columns = version.schema.columns.len();
        let loaded = segment.load(access, version.id, columns).await.map_err(at_table)?;
        let groups = loaded.groups.iter().map(|group| {
            let chunks = origins.iter().map(|old| group.chunks[*old].clone()).collect();
            RowGroup { chunks, ..group.clone() }
        });
        segments.push(Arc::new(Segment::unwritten(groups.collect(), &access.ledger)));
        freed.extend(segment.stored());
    }
    freed.extend(version.stored_statistics.iter().map(Stored::extent));
    let Some(statistics) = version.statistics(access).await else {
        return Ok(Moved { segments, statistics: None, taken, freed });
    };
    let failed = |source| StoreError::Encode {
        place: format!("statistics of table {}", version.schema.name),
        source,
    };
    let bytes = statistics.of_columns(origins).encode(version.id).map_err(failed)?;
    let allocation = space.allocate(units_of(bytes.len())).await?;
    let mut run = PageRun::new(allocation.extent(), [bytes.len()].into_iter());
    let stored = run.push(&bytes, PageKind::Statistics);
    run.write(space).await?;
    taken.push(allocation);
    Ok(Moved { segments, statistics: Some(stored), taken, freed })
}

/// An index of a table whose columns get other numbers.
fn renumbered(
    definition: &IndexDefinition,
    alteration: &Alteration,
    schema: &TableSchema,
) -> Result<IndexDefinition> {
    let column = |of: &IndexColumn| match alteration.number_of(of.column) {
        Some(column) => Ok(IndexColumn { column, ..*of }),
        None => {
            let name = &schema.columns[of.column].name;
            let problem = format!("index {} has column {name}, which goes", definition.name);
            Err(StoreError::Schema { table: schema.name.clone(), problem })
        }
    };
    let columns = definition.columns.iter().map(column).collect::<Result<_>>()?;
    let included = definition.included.iter().map(|number| {
        let of = IndexColumn { column: *number, is_descending: false, nulls_first: false };
        column(&of).map(|of| of.column)
    });
    let included = included.collect::<Result<_>>()?;
    Ok(IndexDefinition { columns, included, ..definition.clone() })
}
