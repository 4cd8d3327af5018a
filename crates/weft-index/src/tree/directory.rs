//! The directory of a tree: where each of its nodes lies on the devices.
//!
//! Nodes know each other by number, so a changed node that is written elsewhere leaves its parents as they
//! are. The places of all numbers are the entries of directory pages, whose places are the entries of others,
//! up to one page, the *root reference*, which a manifest names. A flush writes the changed nodes and those
//! pages of the directory that lead to them, all at new places: before the manifest names the new
//! root reference nothing that the old one leads to has changed, and whatever of it is not needed any more
//! is the caller's to give back after that.

use std::collections::HashSet;

use weft_buffer::page::{self, PageHeader};
use weft_buffer::{PAGE_HEADER_BYTES, PageError, PageId, PageTable};
use weft_rt::io::IoBuf;
use weft_rt::{Batch, Boundary};

use super::{CHUNK_FIRST, CHUNKS, LEVELS_MAX, NUMBER_BYTES, ROOT, Tree, TreeForm, locked};
use crate::error::IndexError;
use crate::node::KIND_DIRECTORY;
use crate::node::check::{NODE_BYTES_MAX, check_node};
use crate::tree::places::Space;

/// The first bytes behind the header: this is a page of a directory, of this version of the format.
const MAGIC: [u8; 4] = *b"WIX1";
const LEVEL_AT: usize = 20;
const FORM_AT: usize = 21;
const COUNT_AT: usize = 24;
const ENTRIES_AT: usize = 32;
const LEVEL_COUNTS_AT: usize = 40;
const IDS_AT: usize = LEVEL_COUNTS_AT + 4 * LEVELS_MAX;

const IS_UNIQUE: u8 = 1;
const HAS_INCLUDED: u8 = 2;

/// Pages of a directory that are read or written at a time.
const DEPTH: usize = 32;

/// What a flush has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// The root reference: what the tree is opened from.
    pub root: PageId,
    /// Places that only the tree before needs: to be given back once the new root reference is durable.
    pub released: Vec<PageId>,
}

/// A page of a directory that was read.
pub(crate) struct DirectoryPage {
    level: u8,
    form: TreeForm,
    entries: u64,
    level_counts: [u32; LEVELS_MAX],
    ids: Vec<Option<PageId>>,
}

fn ids_per_page(page_bytes: usize) -> usize {
    (page_bytes - IDS_AT) / 8
}

/// Parses a page of a directory.
pub(crate) fn parse(page: &[u8], id: PageId) -> Result<DirectoryPage, &'static str> {
    if page.len() > NODE_BYTES_MAX || page[6] != KIND_DIRECTORY || page[16..20] != MAGIC {
        return Err("it is no page of an index's directory of this version");
    }
    let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
    let count = u32_at(COUNT_AT) as usize;
    if count > ids_per_page(page.len()) || usize::from(page[LEVEL_AT]) >= LEVELS_MAX {
        return Err("it has more entries than fit");
    }
    if page[FORM_AT] & !(IS_UNIQUE | HAS_INCLUDED) != 0 {
        return Err("its form is unknown");
    }
    let mut ids = Vec::with_capacity(count);
    for index in 0..count {
        let Some(entry) = PageId::from_bits(u64_at(IDS_AT + 8 * index)) else {
            return Err("an entry is no place");
        };
        if entry.bytes() != id.bytes() {
            return Err("an entry is of another size");
        }
        ids.push((!entry.is_vacant()).then_some(entry));
    }
    let form = TreeForm {
        node_bytes: page.len(),
        is_unique: page[FORM_AT] & IS_UNIQUE != 0,
        has_included: page[FORM_AT] & HAS_INCLUDED != 0,
    };
    let level_counts = std::array::from_fn(|level| u32_at(LEVEL_COUNTS_AT + 4 * level));
    Ok(DirectoryPage {
        level: page[LEVEL_AT],
        form,
        entries: u64_at(ENTRIES_AT),
        level_counts,
        ids,
    })
}

impl Tree {
    /// The tree that a root reference leads to.
    ///
    /// # Errors
    /// [`IndexError::File`] if a device fails, [`IndexError::Directory`] if a page of the directory is damaged,
    /// [`IndexError::Damaged`] if there is no root, [`IndexError::Memory`] if there is no memory for the directory.
    pub async fn open(
        pool: std::sync::Arc<weft_buffer::BufferPool>,
        space: std::sync::Arc<dyn Space>,
        root: PageId,
    ) -> Result<Tree, IndexError> {
        let top = read_page(&pool, root).await?;
        let mut tree = Tree::without_nodes(pool, space, top.form);
        let mut levels = vec![vec![root]];
        let mut ids = top.ids;
        for level in (0..top.level).rev() {
            let places: Option<Vec<PageId>> = ids.iter().copied().collect();
            let Some(places) = places else {
                return Err(tree.damaged("a page of its directory is missing".into()));
            };
            ids = Vec::new();
            // A few at a time, as they are a thousandth of the nodes.
            for group in places.chunks(DEPTH) {
                for page in read_pages(&tree.pool, group).await? {
                    if page.level != level {
                        return Err(tree.damaged("a page of its directory is elsewhere".into()));
                    }
                    ids.extend(page.ids);
                }
            }
            levels.insert(0, places);
        }
        tree.take_ids(&ids).await?;
        *locked(&tree.directory) = levels;
        for (level, &count) in top.level_counts.iter().enumerate() {
            tree.level_counts[level] = count.into();
        }
        tree.note_nodes(0, 0);
        tree.note_entries(top.entries.try_into().unwrap_or(i64::MAX));
        Ok(tree)
    }

    /// Numbers the nodes of a tree that is being opened.
    async fn take_ids(&self, ids: &[Option<PageId>]) -> Result<(), IndexError> {
        if !matches!(ids.first(), Some(Some(_))) {
            return Err(self.damaged("it has no root".into()));
        }
        let vacant = PageId::vacant(self.form.node_bytes);
        let mut start = 0;
        for chunk in 0..CHUNKS {
            if start >= ids.len() {
                break;
            }
            let numbers = (CHUNK_FIRST as usize) << chunk;
            let memory = self.pool.ledger().reserve(numbers as u64 * NUMBER_BYTES).await?;
            let id = |number: usize| ids.get(number).copied().flatten().unwrap_or(vacant);
            let table = PageTable::with_check((start..start + numbers).map(id), check_node);
            table.keep_alive(std::sync::Arc::new(self.space.clone()));
            self.chunks[chunk].set(table).expect("the chunks of a new tree are unset");
            locked(&self.memory).push(memory);
            start += numbers;
        }
        let mut places = self.places();
        places.next = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let vacant = (0..places.next).filter(|&number| ids[number as usize].is_none());
        places.unused = vacant.collect();
        Ok(())
    }

    /// Writes what has changed to new places, makes it durable, and gives the new root reference. Waits for
    /// those who change entries, who wait meanwhile; readers go on.
    ///
    /// # Errors
    /// [`IndexError::Buffer`] and [`IndexError::File`] if a page cannot be written, [`IndexError::Space`] if there is no
    /// place: the tree in memory has all changes, the old root reference leads to what it led to before, and
    /// the flush can be tried again.
    pub async fn flush(&self) -> Result<Flushed, IndexError> {
        let flushed = self.write().await?;
        self.sync().await?;
        Ok(flushed)
    }

    /// As [`Tree::flush`], but nothing is durable before the devices of the pool have been synchronized.
    ///
    /// # Errors
    /// As [`Tree::flush`].
    pub async fn write(&self) -> Result<Flushed, IndexError> {
        let _alone = self.writers.exclusive().await;
        self.write_nodes().await?;
        let changed: HashSet<usize> =
            self.places().changed.iter().map(|&number| number as usize).collect();
        let mut levels = locked(&self.directory).clone();
        let (mut made, mut old) = (Vec::new(), Vec::new());
        let root = match self.write_directory(&changed, &mut levels, &mut made, &mut old).await {
            Ok(root) => root,
            Err(error) => {
                made.into_iter().for_each(|id| self.space.release(id));
                return Err(error);
            }
        };
        *locked(&self.directory) = levels;
        let mut places = self.places();
        places.changed.clear();
        places.fresh.clear();
        let mut released = std::mem::take(&mut places.released);
        released.extend(old);
        Ok(Flushed { root, released })
    }

    /// Writes the nodes that are dirty where they are: then no page of a tree that is to be forgotten is on its way to a device.
    ///
    /// # Errors
    /// [`IndexError::Buffer`]: the first that comes, after all were tried.
    pub async fn settle_writes(&self) -> Result<(), IndexError> {
        let _alone = self.writers.exclusive().await;
        self.write_nodes().await
    }

    async fn write_nodes(&self) -> Result<(), IndexError> {
        let mut written = Ok(());
        for table in self.chunks.iter().filter_map(|chunk| chunk.get()) {
            written = written.and(self.pool.write_table(table).await);
        }
        Ok(written?)
    }

    /// All places that the durable tree consists of, and the nodes as they are now.
    pub fn pages(&self) -> Vec<PageId> {
        let next = self.places().next;
        let nodes = (0..next).filter_map(|number| self.place_of(number));
        let directory: Vec<PageId> = locked(&self.directory).iter().flatten().copied().collect();
        nodes.chain(directory).collect()
    }

    /// Where a node lies; `None` if there is none of this number.
    fn place_of(&self, number: u32) -> Option<PageId> {
        let (table, page) = self.slot(number)?;
        Some(table.id(page)).filter(|id| !id.is_vacant())
    }

    async fn write_directory(
        &self,
        changed: &HashSet<usize>,
        levels: &mut Vec<Vec<PageId>>,
        made: &mut Vec<PageId>,
        old: &mut Vec<PageId>,
    ) -> Result<PageId, IndexError> {
        let vacant = PageId::vacant(self.form.node_bytes);
        let per_page = ids_per_page(self.form.node_bytes);
        let numbers = self.places().next;
        let mut changed: HashSet<usize> = changed.iter().map(|number| number / per_page).collect();
        let mut count = numbers as usize;
        for level in 0.. {
            let pages = count.div_ceil(per_page).max(1);
            if levels.len() == level {
                levels.push(Vec::new());
            }
            let is_root = pages == 1;
            // A page of which others have become, or which counts what has changed, is written anew.
            changed.extend(levels[level].len()..pages);
            if is_root {
                changed.insert(0);
            }
            let mut writes = Vec::new();
            // Ascending, so that each new page comes right behind the pages that the level has.
            let mut in_order: Vec<usize> = changed.iter().copied().collect();
            in_order.sort_unstable();
            for page in in_order {
                let id = self.space.allocate(self.form.node_bytes)?;
                made.push(id);
                let first = page * per_page;
                let ids = (first..count.min(first + per_page)).map(|index| match level {
                    0 => self.place_of(index as u32).unwrap_or(vacant),
                    _ => levels[level - 1][index],
                });
                writes.push((id, self.directory_page(level as u8, ids)));
                match levels[level].get_mut(page) {
                    Some(place) => old.push(std::mem::replace(place, id)),
                    None => levels[level].push(id),
                }
            }
            self.write_pages(writes).await?;
            if is_root {
                for level in levels.drain(level + 1..) {
                    old.extend(level);
                }
                return Ok(levels[level][0]);
            }
            changed = changed.iter().map(|page| page / per_page).collect();
            count = pages;
        }
        unreachable!("each level has fewer pages than the one below")
    }

    fn directory_page(&self, level: u8, ids: impl Iterator<Item = PageId>) -> IoBuf {
        let mut page = IoBuf::zeroed(self.form.node_bytes);
        page[16..20].copy_from_slice(&MAGIC);
        page[LEVEL_AT] = level;
        let unique = if self.form.is_unique { IS_UNIQUE } else { 0 };
        page[FORM_AT] = unique | if self.form.has_included { HAS_INCLUDED } else { 0 };
        let mut count = 0_u32;
        for id in ids {
            let at = IDS_AT + 8 * count as usize;
            page[at..at + 8].copy_from_slice(&id.to_bits().to_le_bytes());
            count += 1;
        }
        page[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
        page[ENTRIES_AT..ENTRIES_AT + 8].copy_from_slice(&self.len().to_le_bytes());
        for (level, count) in self.level_counts.iter().enumerate() {
            let at = LEVEL_COUNTS_AT + 4 * level;
            let count = count.load(std::sync::atomic::Ordering::Relaxed);
            page[at..at + 4].copy_from_slice(&count.to_le_bytes());
        }
        page
    }

    async fn write_pages(&self, writes: Vec<(PageId, IoBuf)>) -> Result<(), IndexError> {
        let mut writes = writes.into_iter();
        let batch = Batch::new(DEPTH, Boundary::Weak, || {
            let (id, mut page) = writes.next()?;
            page::seal(&mut page, PageHeader { tuple_count: 0, kind: KIND_DIRECTORY, id });
            Some(async move {
                let device = self.pool.devices().of(id);
                device.write(page, id.offset()).await.0?;
                Ok::<(), IndexError>(())
            })
        });
        batch.await
    }

    async fn sync(&self) -> Result<(), IndexError> {
        for device in self.pool.devices().files() {
            device.sync().await?;
        }
        Ok(())
    }
}

async fn read_page(
    pool: &weft_buffer::BufferPool,
    id: PageId,
) -> Result<DirectoryPage, IndexError> {
    let Some(device) = pool.devices().get(id) else {
        let devices = pool.devices().count();
        return Err(weft_buffer::BufferError::Device { id, devices }.into());
    };
    let (result, page) = device.read_exact(IoBuf::zeroed(id.bytes()), id.offset()).await;
    result?;
    debug_assert!(page.len() > PAGE_HEADER_BYTES);
    let verified = page::verify(&page, id)
        .and_then(|_| parse(&page, id).map_err(|reason| PageError::Content { reason }));
    verified.map_err(|source| IndexError::Directory { id, source })
}

async fn read_pages(
    pool: &weft_buffer::BufferPool,
    ids: &[PageId],
) -> Result<Vec<DirectoryPage>, IndexError> {
    let pages: Vec<_> = ids.iter().map(|_| std::cell::RefCell::new(None)).collect();
    let mut numbered = ids.iter().zip(&pages);
    Batch::new(DEPTH, Boundary::Weak, || {
        let (&id, place) = numbered.next()?;
        Some(async move {
            let page = read_page(pool, id).await?;
            *place.borrow_mut() = Some(page);
            Ok::<(), IndexError>(())
        })
    })
    .await?;
    Ok(pages.into_iter().filter_map(std::cell::RefCell::into_inner).collect())
}

/// The chunk of a number is what the directory's order of ids relies on.
const _: () = assert!(CHUNK_FIRST.is_power_of_two() && ROOT == 0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::chunk_of;

    #[test]
    fn chunks_follow_each_other() {
        let mut expected = (0, 0);
        for number in 0..100_000 {
            assert_eq!(chunk_of(number), expected, "{number}");
            expected.1 += 1;
            if expected.1 == (CHUNK_FIRST as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
