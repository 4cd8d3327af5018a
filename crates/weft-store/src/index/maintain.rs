//! Indexes follow their tables: what a commit adds to a table comes into its indexes, and what it deletes leaves them.
//!
//! The keys of new rows are read from the row groups that were just written, a row group at a time, and sorted in runs as
//! long as memory permits. A run that is short beside the index goes into the tree that readers use: all
//! keys are looked up first where they have to be unique, so that a violation changes nothing. Else a new tree is made of
//! the old one's entries and the run. Entries of few deleted rows leave the tree, and are kept in memory for readers of earlier
//! snapshots (`past.rs`). What fails later is taken back: keys are removed or inserted, a new tree is forgotten.

use std::sync::Arc;

use weft_index::{BulkLoad, Direction, IndexError, Tree};
use weft_rt::yield_now;

use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::fetch::fetch;
use crate::index::definition::{EntryEncoder, IndexDefinition};
use crate::index::key_run::KeyRun;
use crate::index::new_rows::{NewRows, RowIds};
use crate::index::overlay::Overlay;
use crate::index::space::IndexSpace;
use crate::index::version::{IndexVersion, Opened, ensure_places};
use crate::row_set::RowSet;
use crate::schema::TableSchema;
use crate::snapshot::Access;
use crate::table::{TableVersion, get};

/// A tree is made anew if it gets at least this part of its entries, and so many.
const REMAKE_SHARE_DIVISOR: u64 = 4;
const REMAKE_ROWS_MIN: u64 = 2_000;
/// It is made anew, too, if it loses this part of its entries, or more than so many.
const REMAKE_REMOVED_MAX: u64 = 20_000;

/// Keys that are looked up at a time, and lookups that run beside each other.
const LOOKUP_KEYS: usize = 1_024;
const LOOKUP_WIDTH: usize = 16;

/// Keys after which others may run.
const TURN_KEYS: usize = 256;

/// Pages that a load needs at once, at most.
const LOAD_PAGES: usize = 64;

/// What has become of an index, and can be taken back.
#[derive(Debug)]
pub(crate) enum IndexWork {
    /// Keys came into its tree.
    Added { version: IndexVersion, run: KeyRun },
    /// Keys left its tree.
    Removed { version: IndexVersion, run: KeyRun },
    /// A tree was made.
    Made { version: IndexVersion },
}

/// What work on the indexes of a table needs.
pub(crate) struct Maintenance<'a> {
    pub(crate) version: &'a TableVersion,
    pub(crate) access: &'a Access,
}

impl Maintenance<'_> {
    /// Makes an index of the rows from `first_row` on.
    pub(crate) async fn make(
        &self,
        definition: Arc<IndexDefinition>,
        first_row: u64,
    ) -> Result<IndexWork> {
        self.make_from(definition, first_row, true).await
    }

    /// Makes an index of the rows from `first_row` on for a transaction: no commit names it, and it is not written.
    pub(crate) async fn make_own(
        &self,
        definition: Arc<IndexDefinition>,
        first_row: u64,
    ) -> Result<IndexWork> {
        self.make_from(definition, first_row, false).await
    }

    async fn make_from(
        &self,
        definition: Arc<IndexDefinition>,
        first_row: u64,
        is_written: bool,
    ) -> Result<IndexWork> {
        let mut runs = Runs::new(self, &definition, first_row)?;
        let first = runs.next().await?;
        self.make_of(definition, None, (first, runs), is_written).await
    }

    /// Brings the rows from `first_row` on into an index, without writing a tree that takes them; gives its next version, the work, and
    /// what the old one does not need any more; `None` if there are no such rows.
    pub(crate) async fn add(
        &self,
        index: &IndexVersion,
        first_row: u64,
    ) -> Result<Option<(IndexVersion, IndexWork, Vec<Extent>)>> {
        let schema = &self.version.schema;
        let opened = index.open_to_change(schema, self.access).await?;
        let definition = index.definition().clone();
        let mut runs = Runs::new(self, &definition, first_row)?;
        let run = runs.next().await?;
        let entries = opened.tree.len();
        let remake = (entries / REMAKE_SHARE_DIVISOR).max(REMAKE_ROWS_MIN);
        if run.len() as u64 >= remake || !runs.is_done() {
            let work = self.make_of(definition, Some(&opened.tree), (run, runs), true).await?;
            return Ok(Some((work.version().clone(), work, index.entry.extents.clone())));
        }
        if run.is_empty() {
            return Ok(None);
        }
        if definition.is_unique {
            self.check_new(&definition, &opened.tree, &run).await?;
        }
        let inserted = self.insert(&definition, opened, &run).await;
        let work = IndexWork::Added { version: index.clone(), run };
        match inserted {
            Ok(()) => Ok(Some((index.clone(), work, Vec::new()))),
            Err(error) => {
                work.take_back(schema).await?;
                Err(error)
            }
        }
    }

    /// Takes the entries of rows, which the table has and is about to lose, from an index, without writing it; gives its next
    /// version, and the work. `None` if they are many beside its entries, or there is no memory for them: then a new
    /// tree has to be made.
    pub(crate) async fn remove(
        &self,
        index: &IndexVersion,
        rows: &RowSet,
    ) -> Result<Option<(IndexVersion, IndexWork)>> {
        let schema = &self.version.schema;
        let opened = index.open_to_change(schema, self.access).await?;
        let definition = index.definition();
        let remake = (opened.tree.len() / REMAKE_SHARE_DIVISOR).min(REMAKE_REMOVED_MAX);
        if rows.len() > remake {
            return Ok(None);
        }
        let Some(run) = self.keys_of(definition, rows).await? else { return Ok(None) };
        let form = opened.tree.form();
        let full_key = |key: &[u8], row| form.full_key(key, row);
        let Some(moment) = index.handle.past.keep(&run, full_key, &self.access.ledger) else {
            return Ok(None);
        };
        if let Err(error) = self.take_out(index, opened, &run).await {
            IndexWork::Removed { version: index.clone(), run }.take_back(schema).await?;
            return Err(error);
        }
        let version = IndexVersion { moment, ..index.clone() };
        let work = IndexWork::Removed { version: version.clone(), run };
        Ok(Some((version, work)))
    }

    async fn take_out(&self, index: &IndexVersion, opened: &Opened, run: &KeyRun) -> Result<()> {
        for (number, (key, row)) in run.iter().enumerate() {
            ensure_places(opened).await?;
            let removed = opened.tree.remove(key, row).await;
            if !removed.map_err(|source| self.error(index.definition(), source))? {
                return Err(index.damaged(&self.version.schema, "it lacks the entry of a row"));
            }
            if number % TURN_KEYS == TURN_KEYS - 1 {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// The keys of rows, which the table has; `None` if there is no memory for all of them.
    async fn keys_of(&self, definition: &IndexDefinition, rows: &RowSet) -> Result<Option<KeyRun>> {
        let encoder = definition.entry_encoder(&self.version.schema)?;
        let numbers = definition.all_numbers();
        let mut run = KeyRun::new(&self.access.ledger, definition.is_unique);
        let mut ids = rows.iter().peekable();
        while ids.peek().is_some() {
            let some: Vec<u64> = ids.by_ref().take(LOOKUP_KEYS).collect();
            let columns = fetch(self.version, self.access, &some, &numbers, LOOKUP_WIDTH).await?;
            let added = run.add(&encoder, &columns, &RowIds::Listed(some));
            added.map_err(|source| self.error(definition, source))?;
            if !run.has_room() {
                return Ok(None);
            }
        }
        run.sort();
        Ok(Some(run))
    }

    /// Checks that no row that the transaction began with, and has not deleted, has a key of the rows from `first_row` on.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`]; those of reading.
    pub(crate) async fn check_shared(
        &self,
        index: &IndexVersion,
        overlay: &Overlay,
        first_row: u64,
    ) -> Result<()> {
        let shared = index.with_overlay(Overlay { own: None, ..overlay.clone() });
        let definition = index.definition();
        let mut runs = Runs::new(self, definition, first_row)?;
        while !runs.is_done() {
            let run = runs.next().await?;
            for start in (0..run.len()).step_by(LOOKUP_KEYS) {
                let end = run.len().min(start + LOOKUP_KEYS);
                let keys: Vec<&[u8]> = (start..end).map(|number| run.get(number).0).collect();
                let found = shared.find(&keys, self.version, self.access).await?;
                if let Some(at) = found.iter().position(Option::is_some) {
                    return Err(self.duplicate(definition, run.get(start + at).1).await);
                }
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Checks that none of these keys is there.
    async fn check_new(
        &self,
        definition: &IndexDefinition,
        tree: &Tree,
        run: &KeyRun,
    ) -> Result<()> {
        for start in (0..run.len()).step_by(LOOKUP_KEYS) {
            let end = run.len().min(start + LOOKUP_KEYS);
            let keys: Vec<&[u8]> = (start..end).map(|index| run.get(index).0).collect();
            let found = tree.multi_get(&keys, LOOKUP_WIDTH).await;
            let found = found.map_err(|source| self.error(definition, source))?;
            if let Some(at) = found.iter().position(Option::is_some) {
                return Err(self.duplicate(definition, run.get(start + at).1).await);
            }
            yield_now().await;
        }
        Ok(())
    }

    async fn insert(
        &self,
        definition: &IndexDefinition,
        opened: &Opened,
        run: &KeyRun,
    ) -> Result<()> {
        for (number, (key, row, included)) in run.entries().enumerate() {
            ensure_places(opened).await?;
            let there = opened.tree.insert(key, row, included).await;
            if there.map_err(|source| self.error(definition, source))?.is_some() {
                return Err(self.duplicate(definition, row).await);
            }
            if number % TURN_KEYS == TURN_KEYS - 1 {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Makes a tree of another one's entries and of runs, and writes it if it `is_written`.
    async fn make_of(
        &self,
        definition: Arc<IndexDefinition>,
        old: Option<&Tree>,
        (first, mut runs): (KeyRun, Runs<'_>),
        is_written: bool,
    ) -> Result<IndexWork> {
        let form = definition.form();
        let space = IndexSpace::new(self.access.space.clone(), form.node_bytes);
        let pool = self.access.source.pool().clone();
        let load = BulkLoad::new(pool, space.clone(), form);
        let tree = self.load(&definition, load, &space, old, &first).await?;
        let opened = Opened { tree: Arc::new(tree), space };
        drop(first);
        let mut made = Ok(());
        while made.is_ok() && !runs.is_done() {
            made = match runs.next().await {
                Ok(run) => self.insert(&definition, &opened, &run).await,
                Err(error) => Err(error),
            };
        }
        let kept = opened.clone();
        let made = match made {
            Ok(()) if is_written => {
                IndexVersion::made(definition, &self.version.schema, opened).await
            }
            Ok(()) => Ok(IndexVersion::unwritten(definition, opened)),
            Err(error) => Err(error),
        };
        match made {
            Ok(version) => Ok(IndexWork::Made { version }),
            Err(error) => {
                forget(kept).await;
                Err(error)
            }
        }
    }

    /// Loads a tree; what is left of it after an error is forgotten.
    async fn load(
        &self,
        definition: &IndexDefinition,
        mut load: BulkLoad,
        space: &Arc<IndexSpace>,
        old: Option<&Tree>,
        run: &KeyRun,
    ) -> Result<Tree> {
        let loaded = self.merge(definition, &mut load, space, old, run).await;
        let loaded = match loaded {
            Ok(()) => space.ensure(LOAD_PAGES).await,
            Err(error) => Err(error),
        };
        if let Err(error) = loaded {
            if let Err(reason) = load.abandon().await {
                note_kept(space, &reason);
            }
            return Err(error);
        }
        load.finish().await.map_err(|source| self.error(definition, source))
    }

    /// Loads what a tree and a run have, in order.
    async fn merge(
        &self,
        definition: &IndexDefinition,
        load: &mut BulkLoad,
        space: &IndexSpace,
        old: Option<&Tree>,
        run: &KeyRun,
    ) -> Result<()> {
        let failed = |source| self.error(definition, source);
        let mut range = old.map(|tree| tree.range(None, None, Direction::Forwards));
        let mut there = None;
        if let Some(range) = &mut range {
            there = range.next().await.map_err(failed)?.cloned();
        }
        let mut at = 0;
        for turn in 1_usize.. {
            space.ensure(LOAD_PAGES).await?;
            if turn.is_multiple_of(TURN_KEYS) {
                yield_now().await;
            }
            let new = (at < run.len()).then(|| run.get(at));
            let takes_new = match (&there, new) {
                (None, None) => return Ok(()),
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(entry), Some((key, row))) => {
                    if definition.is_unique && entry.key == key {
                        return Err(self.duplicate(definition, row).await);
                    }
                    (key, row) < (&entry.key, entry.row)
                }
            };
            match (takes_new, new, &mut range) {
                (true, Some((key, row)), _) => {
                    match load.push(key, row, run.included(at)).await {
                        Err(IndexError::Order { .. }) => {
                            return Err(self.duplicate(definition, row).await);
                        }
                        pushed => pushed.map_err(failed)?,
                    }
                    at += 1;
                }
                (_, _, Some(range)) => {
                    if let Some(entry) = &there {
                        let pushed = load.push(&entry.key, entry.row, &entry.included).await;
                        pushed.map_err(failed)?;
                    }
                    there = range.next().await.map_err(failed)?.cloned();
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn error(&self, definition: &IndexDefinition, source: IndexError) -> StoreError {
        definition.error(&self.version.schema, source)
    }

    /// The error of a row whose key is there already.
    async fn duplicate(&self, definition: &IndexDefinition, row: u64) -> StoreError {
        let schema = &self.version.schema;
        let numbers = definition.numbers();
        let values = match get(self.version, self.access, row, &numbers).await {
            Ok(values) => values.unwrap_or_default(),
            Err(error) => return error,
        };
        let names = numbers.iter().map(|number| schema.columns[*number].name.clone());
        StoreError::Duplicate {
            table: schema.name.clone(),
            constraint: definition.name.clone(),
            is_primary: definition.is_primary,
            key: names.zip(values).collect(),
            types: numbers.iter().map(|number| schema.columns[*number].data_type.clone()).collect(),
        }
    }
}

/// The keys of rows, in sorted runs.
struct Runs<'a> {
    work: &'a Maintenance<'a>,
    definition: Arc<IndexDefinition>,
    rows: NewRows<'a>,
    encoder: EntryEncoder,
    numbers: Vec<usize>,
    is_done: bool,
}

impl<'a> Runs<'a> {
    fn new(
        work: &'a Maintenance<'a>,
        definition: &Arc<IndexDefinition>,
        first_row: u64,
    ) -> Result<Runs<'a>> {
        let encoder = definition.entry_encoder(&work.version.schema)?;
        let rows = NewRows::new(work, first_row);
        let numbers = definition.all_numbers();
        Ok(Runs { work, definition: definition.clone(), rows, encoder, numbers, is_done: false })
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    /// The next run; checked for keys that it has twice, if there may be none.
    async fn next(&mut self) -> Result<KeyRun> {
        let ledger = &self.work.access.ledger;
        let mut run = KeyRun::new(ledger, self.definition.is_unique);
        loop {
            let Some((ids, columns)) = self.rows.next(&self.numbers).await? else {
                self.is_done = true;
                break;
            };
            let added = run.add(&self.encoder, &columns, &ids);
            added.map_err(|source| self.work.error(&self.definition, source))?;
            if !run.has_room() {
                break;
            }
        }
        run.sort();
        if self.definition.is_unique
            && let Some(row) = run.duplicate()
        {
            return Err(self.work.duplicate(&self.definition, row).await);
        }
        Ok(run)
    }
}

impl IndexWork {
    /// The index as it will be.
    pub(crate) fn version(&self) -> &IndexVersion {
        match self {
            IndexWork::Added { version, .. }
            | IndexWork::Removed { version, .. }
            | IndexWork::Made { version } => version,
        }
    }

    /// The commit that it belongs to is durable.
    pub(crate) fn settle(&self) {
        self.version().settle();
    }

    /// The transaction that it belongs to has it: no commit names it.
    pub(crate) fn recycle(&self) {
        self.version().recycle();
    }

    /// Takes the work back, on a worker: readers find the index as it was.
    ///
    /// # Errors
    /// If keys could not be removed or inserted: the index takes no more changes then.
    pub(crate) async fn take_back(self, schema: &TableSchema) -> Result<()> {
        match self {
            IndexWork::Made { version } => {
                if let Some(opened) = version.opened().cloned() {
                    drop(version);
                    forget(opened).await;
                }
                Ok(())
            }
            IndexWork::Added { version, run } => {
                let removed = remove(&version, &run, schema).await;
                removed.inspect_err(|error| version.note_broken(error))
            }
            IndexWork::Removed { version, run } => {
                let restored = restore(&version, &run, schema).await;
                restored.inspect_err(|error| version.note_broken(error))
            }
        }
    }
}

/// Removes the keys of a run, and writes the tree, so that none of its pages is dirty whatever becomes of it.
async fn remove(version: &IndexVersion, run: &KeyRun, schema: &TableSchema) -> Result<()> {
    let Some(opened) = version.opened() else { return Ok(()) };
    for (key, row) in run.iter() {
        ensure_places(opened).await?;
        let removed = opened.tree.remove(key, row).await;
        removed.map_err(|source| version.definition().error(schema, source))?;
    }
    version.changed(schema).await.map(drop)
}

/// Inserts the keys of a run again, as far as they are not there, and writes the tree.
async fn restore(version: &IndexVersion, run: &KeyRun, schema: &TableSchema) -> Result<()> {
    let Some(opened) = version.opened() else { return Ok(()) };
    for (key, row, included) in run.entries() {
        ensure_places(opened).await?;
        let inserted = opened.tree.insert(key, row, included).await;
        let there = inserted.map_err(|source| version.definition().error(schema, source))?;
        if there.is_some_and(|there| there != row) {
            return Err(version.damaged(schema, "another row has the key of one"));
        }
    }
    version.changed(schema).await?;
    let form = opened.tree.form();
    version.handle.past.forget(run, |key, row| form.full_key(key, row));
    Ok(())
}

/// Forgets a tree that nothing refers to: its places are free once none of its pages is on its way to a device.
async fn forget(opened: Opened) {
    if let Err(error) = opened.tree.settle_writes().await {
        note_kept(&opened.space, &error);
    }
}

/// Keeps the places of a tree whose pages may be on their way to a device, until the database is opened again.
fn note_kept(space: &IndexSpace, error: &IndexError) {
    log::warn!("pages of an index that was given up stay where they are: {error}");
    space.settle();
}
