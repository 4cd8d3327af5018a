//! An index as a commit left it.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weft_buffer::PageId;
use weft_index::{Tree, TreeForm};
use weft_rt::memory::Ledger;

use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::index::definition::IndexDefinition;
use crate::index::overlay::Overlay;
use crate::index::past::{Moment, Past};
use crate::index::space::IndexSpace;
use crate::schema::TableSchema;
use crate::snapshot::Access;
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Pages that a change of one key may need, for each level and beside.
const PAGES_PER_LEVEL: usize = 4;
const PAGES_BESIDE: usize = 8;
/// Places of nodes in a page of a tree's directory, at least.
const PLACES_PER_PAGE: u64 = 400;

/// What the manifest says of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexEntry {
    pub(crate) definition: Arc<IndexDefinition>,
    /// Where its directory begins.
    pub(crate) root: PageId,
    /// The chunks that its pages lie in, sorted and joined.
    pub(crate) extents: Vec<Extent>,
}

/// An index of a snapshot's table.
#[derive(Clone, Debug)]
pub(crate) struct IndexVersion {
    pub(crate) entry: IndexEntry,
    pub(crate) handle: Arc<IndexHandle>,
    /// Entries that left the tree after it count.
    pub(crate) moment: Arc<Moment>,
    /// What the transaction whose version this is has made of the index, which it began with.
    pub(crate) overlay: Option<Overlay>,
}

/// The tree that all versions of an index share.
pub(crate) struct IndexHandle {
    opened: OnceLock<Opened>,
    /// One opens it at a time: a budget of 1.
    opening: Ledger,
    /// Why it cannot be changed any more.
    broken: Mutex<Option<String>>,
    /// Entries that have left the tree.
    pub(crate) past: Past,
}

/// A tree, and where its pages lie.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) tree: Arc<Tree>,
    pub(crate) space: Arc<IndexSpace>,
}

impl fmt::Debug for IndexHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = self.opened.get().map(|opened| &opened.tree);
        f.debug_struct("IndexHandle").field("tree", &tree).finish_non_exhaustive()
    }
}

impl IndexHandle {
    fn new(opened: OnceLock<Opened>) -> Arc<IndexHandle> {
        let (opening, broken, past) = (Ledger::new(1), Mutex::default(), Past::default());
        Arc::new(IndexHandle { opened, opening, broken, past })
    }
}

impl IndexHandle {
    /// Sees to it that no page of a tree that is to be forgotten is on its way to a device, on a worker; one that cannot be written keeps
    /// the tree's places until the database is opened again.
    pub(crate) async fn settle_writes(&self) {
        let Some(Opened { tree, space }) = self.opened.get() else { return };
        if let Err(error) = tree.settle_writes().await {
            log::warn!("pages of an index that was given up stay where they are: {error}");
            space.settle();
        }
    }
}

impl IndexEntry {
    pub(crate) fn write(&self, writer: &mut Writer) {
        self.definition.write(writer);
        writer.u64(self.root.to_bits());
        writer.len(self.extents.len());
        self.extents.iter().for_each(|extent| extent.write(writer));
    }

    pub(crate) fn read(reader: &mut Reader<'_>, columns: usize) -> WireResult<IndexEntry> {
        let definition = Arc::new(IndexDefinition::read(reader, columns)?);
        let root = PageId::from_bits(reader.u64()?);
        let Some(root) = root.filter(|root| !root.is_vacant()) else {
            return wrong(format!("index {} begins at an impossible place", definition.name));
        };
        let extents = (0..reader.count(17)?).map(|_| Extent::read(reader));
        let extents: Vec<Extent> = extents.collect::<WireResult<_>>()?;
        Ok(IndexEntry { definition, root, extents })
    }
}

impl IndexVersion {
    /// An index that was not opened yet.
    pub(crate) fn stored(entry: IndexEntry) -> IndexVersion {
        IndexVersion::of_tree(entry, OnceLock::new())
    }

    /// The first version of a tree.
    fn of_tree(entry: IndexEntry, opened: OnceLock<Opened>) -> IndexVersion {
        let handle = IndexHandle::new(opened);
        let moment = handle.past.moment();
        IndexVersion { entry, handle, moment, overlay: None }
    }

    /// An index that was just made of a tree, and is written.
    pub(crate) async fn made(
        definition: Arc<IndexDefinition>,
        schema: &TableSchema,
        opened: Opened,
    ) -> Result<IndexVersion> {
        let (root, extents) = write(&opened, &definition, schema).await?;
        let entry = IndexEntry { definition, root, extents };
        Ok(IndexVersion::of_tree(entry, OnceLock::from(opened)))
    }

    /// An index that was just made of a tree for a transaction: nothing on a device leads to it.
    pub(crate) fn unwritten(definition: Arc<IndexDefinition>, opened: Opened) -> IndexVersion {
        let root = PageId::vacant(definition.form().node_bytes);
        let entry = IndexEntry { definition, root, extents: Vec::new() };
        IndexVersion::of_tree(entry, OnceLock::from(opened))
    }

    pub(crate) fn definition(&self) -> &Arc<IndexDefinition> {
        &self.entry.definition
    }

    /// The tree, on a worker.
    pub(crate) async fn open(&self, schema: &TableSchema, access: &Access) -> Result<&Opened> {
        if let Some(opened) = self.handle.opened.get() {
            return Ok(opened);
        }
        let _turn = self.handle.opening.reserve(1).await?;
        if let Some(opened) = self.handle.opened.get() {
            return Ok(opened);
        }
        let (root, extents) = (self.entry.root, self.entry.extents.clone());
        let space = IndexSpace::committed(access.space.clone(), root.bytes(), extents);
        let pool = access.source.pool().clone();
        let tree = Tree::open(pool, space.clone(), root).await;
        let tree = tree.map_err(|source| self.definition().error(schema, source))?;
        let TreeForm { is_unique, has_included, .. } = tree.form();
        let form = self.definition().form();
        if is_unique != form.is_unique || has_included != form.has_included {
            return Err(self.damaged(schema, "its directory is that of another index"));
        }
        let used = tree.pages();
        if used.iter().any(|page| !self.has(*page)) {
            return Err(self.damaged(schema, "it has pages that the manifest does not name"));
        }
        space.note_used(used);
        Ok(self.handle.opened.get_or_init(|| Opened { tree: Arc::new(tree), space }))
    }

    /// Whether a page lies in the index's chunks.
    fn has(&self, page: PageId) -> bool {
        let unit = crate::extent::UNIT_BYTES;
        let (start, end) = (page.offset() / unit, (page.offset() + page.bytes() as u64) / unit);
        let extents = &self.entry.extents;
        let after = extents
            .partition_point(|extent| (extent.device, extent.start) <= (page.device(), start));
        after
            .checked_sub(1)
            .map(|index| extents[index])
            .is_some_and(|extent| extent.device == page.device() && end <= extent.end())
    }

    pub(crate) fn damaged(&self, schema: &TableSchema, reason: &str) -> StoreError {
        let source = weft_index::IndexError::Damaged {
            low: "the first key".into(),
            high: "the last".into(),
            reason: reason.into(),
        };
        self.definition().error(schema, source)
    }

    /// The tree, for a change.
    pub(crate) async fn open_to_change(
        &self,
        schema: &TableSchema,
        access: &Access,
    ) -> Result<&Opened> {
        let broken = self.handle.broken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match broken {
            Some(reason) => Err(self.damaged(schema, &reason)),
            None => self.open(schema, access).await,
        }
    }

    /// The tree takes no more changes.
    pub(crate) fn note_broken(&self, reason: &StoreError) {
        let mut broken = self.handle.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.get_or_insert_with(|| format!("a change could not be taken back: {reason}"));
    }

    /// The version after a change of its tree, which is written.
    pub(crate) async fn changed(&self, schema: &TableSchema) -> Result<IndexVersion> {
        let opened = self.handle.opened.get().expect("an index that was changed is open");
        let (root, extents) = write(opened, self.definition(), schema).await?;
        let entry = IndexEntry { definition: self.entry.definition.clone(), root, extents };
        let (handle, moment) = (self.handle.clone(), self.moment.clone());
        Ok(IndexVersion { entry, handle, moment, overlay: None })
    }

    /// The same, whose tree's chunks belong to the database, although no manifest names all of them yet.
    pub(crate) fn with_chunks_kept(&self) -> IndexVersion {
        let Some(opened) = self.handle.opened.get() else { return self.clone() };
        opened.space.keep_chunks();
        let entry = IndexEntry { extents: opened.space.extents(), ..self.entry.clone() };
        IndexVersion { entry, ..self.clone() }
    }

    /// A commit that names this version is durable.
    pub(crate) fn settle(&self) {
        if let Some(opened) = self.handle.opened.get() {
            opened.space.settle();
        }
    }

    /// No commit names this version: what its tree has left is free.
    pub(crate) fn recycle(&self) {
        if let Some(opened) = self.handle.opened.get() {
            opened.space.recycle();
        }
    }

    /// The opened tree, if there is one.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.handle.opened.get()
    }
}

/// Sees to it that there are places for the change of one key.
pub(crate) async fn ensure_places(opened: &Opened) -> Result<()> {
    opened.space.ensure(opened.tree.height() * PAGES_PER_LEVEL + PAGES_BESIDE).await
}

/// Writes what has changed, without making it durable; gives root and chunks of the tree as it is now.
async fn write(
    Opened { tree, space }: &Opened,
    definition: &IndexDefinition,
    schema: &TableSchema,
) -> Result<(PageId, Vec<Extent>)> {
    let directory_pages = (tree.nodes() / PLACES_PER_PAGE) as usize;
    space.ensure(directory_pages + PAGES_BESIDE).await?;
    let written = tree.write().await.map_err(|source| definition.error(schema, source))?;
    space.release_later(written.released);
    Ok((written.root, space.extents()))
}
