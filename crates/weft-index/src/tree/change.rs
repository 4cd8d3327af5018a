//! Changes: entries come and go, nodes split and merge.
//!
//! An entry is changed in its leaf, which the writer has alone for that; nothing else is held. Where a leaf
//! has to be split, or could be merged, the writer takes the latch of the tree's structure, and then the
//! nodes concerned from the leaf upwards: as no other coroutine holds two, none waits in a circle. All that can
//! fail (pages, places) comes before the first node is changed.

use weft_buffer::{BufferError, PageGuardMut, PageId};

use super::mode::{Coroutines, Mode};
use super::{ROOT, Tree};
use crate::error::IndexError;
use crate::node::Node;
use crate::node::image::{NodeImage, Value};

/// Nodes that use less than this part of their bytes are merged with a neighbour.
const UNDERFULL_DIVISOR: usize = 4;

/// A node that is about to be changed.
struct Change {
    number: u32,
    guard: PageGuardMut,
    image: NodeImage,
    /// Its new place, unless it may be written where it is.
    place: Option<PageId>,
}

/// How far a node's image is from what it was.
fn is_underfull(image: &NodeImage) -> bool {
    let bytes = image.bytes().len();
    bytes - image.free_bytes() < bytes / UNDERFULL_DIVISOR
}

impl Tree {
    /// Adds a row. `included` is empty unless the tree's form has such. Gives the id of another row that has the key
    /// in a unique tree, which then stays as it is; in others a row that is there already has its `included` replaced.
    ///
    /// # Errors
    /// [`IndexError::TooLong`]; [`IndexError::Space`], [`IndexError::Buffer`] and [`IndexError::Damaged`] if
    /// a node cannot be read, or there is no place or memory for one. Then the tree is as it was before.
    pub async fn insert(
        &self,
        key: &[u8],
        row: u64,
        included: &[u8],
    ) -> Result<Option<u64>, IndexError> {
        self.insert_in(Coroutines, key, row, included).await
    }

    /// As [`Tree::insert`], in another mode.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub async fn insert_in<M: Mode>(
        &self,
        mode: M,
        key: &[u8],
        row: u64,
        included: &[u8],
    ) -> Result<Option<u64>, IndexError> {
        assert!(included.is_empty() || self.form.has_included, "the form has no included bytes");
        let key = &self.form.full_key(key, row)[..];
        let value = Value::Row { row, included };
        self.check_length(key, included)?;
        let _writing = self.writers.shared().await;
        loop {
            let leaf = M::call(self.leaf_alone(mode, key)).await?;
            let Some((number, mut guard)) = leaf else { continue };
            let (index, is_equal) = Node(&guard[..]).lower_bound(key);
            if is_equal && self.form.is_unique {
                return Ok(Some(Node(&guard[..]).row(index)));
            }
            let mut image = NodeImage::of(&guard);
            if is_equal {
                image.remove(index);
            }
            if image.insert(index, key, value) {
                self.put(number, &mut guard, &image)?;
                self.note_entries(i64::from(!is_equal));
                return Ok(None);
            }
            let bytes = image.entry_bytes(key, value);
            drop(guard);
            // A box: few inserts split nodes.
            Box::pin(self.split_for(key, bytes)).await?;
        }
    }

    /// Takes a row away; false if it is not there.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub async fn remove(&self, key: &[u8], row: u64) -> Result<bool, IndexError> {
        self.remove_in(Coroutines, key, row).await
    }

    /// As [`Tree::remove`], in another mode.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub async fn remove_in<M: Mode>(
        &self,
        mode: M,
        key: &[u8],
        row: u64,
    ) -> Result<bool, IndexError> {
        let key = &self.form.full_key(key, row)[..];
        let _writing = self.writers.shared().await;
        loop {
            let leaf = M::call(self.leaf_alone(mode, key)).await?;
            let Some((number, mut guard)) = leaf else { continue };
            let (index, is_equal) = Node(&guard[..]).lower_bound(key);
            if !is_equal || (self.form.is_unique && Node(&guard[..]).row(index) != row) {
                return Ok(false);
            }
            let mut image = NodeImage::of(&guard);
            image.remove(index);
            self.put(number, &mut guard, &image)?;
            self.note_entries(-1);
            drop(guard);
            if is_underfull(&image) && number != ROOT {
                // The row is gone, whether nodes are merged or not.
                Box::pin(self.merge_at(key)).await.ok();
            }
            return Ok(true);
        }
    }

    pub(crate) fn check_length(&self, key: &[u8], included: &[u8]) -> Result<(), IndexError> {
        let (bytes, bytes_max) = (key.len() + included.len(), self.form.entry_bytes_max() - 32);
        if bytes > bytes_max {
            return Err(IndexError::TooLong { bytes, bytes_max });
        }
        Ok(())
    }

    /// The leaf that a key is for, for the caller alone; `None` if it is another one by now.
    async fn leaf_alone<M: Mode>(
        &self,
        mode: M,
        key: &[u8],
    ) -> Result<Option<(u32, PageGuardMut)>, IndexError> {
        let number = self.leaf_of(mode, key).await?.number;
        let Some(guard) = self.alone(number).await? else { return Ok(None) };
        let is_right = Node(&guard[..]).covers(0, key);
        Ok(is_right.then_some((number, guard)))
    }

    /// A node for the caller alone; `None` if there is none of this number by now.
    async fn alone(&self, number: u32) -> Result<Option<PageGuardMut>, IndexError> {
        let Some((table, page)) = self.slot(number) else {
            return Err(self.damaged(format!("there is no node {number}")));
        };
        match self.pool.fix_exclusive(table, page).await {
            Ok(guard) => Ok(Some(guard)),
            Err(BufferError::Vacant { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Tree::alone`], while the structure stays.
    async fn settled_alone(&self, number: u32) -> Result<PageGuardMut, IndexError> {
        let found = self.alone(number).await?;
        found.ok_or_else(|| self.damaged(format!("there is no node {number}")))
    }

    /// A new place for a node that may not be written where it is.
    fn place_for(&self, number: u32) -> Result<Option<PageId>, IndexError> {
        if self.places().fresh.contains(&number) {
            return Ok(None);
        }
        self.space.allocate(self.form.node_bytes).map(Some)
    }

    /// Changes one node.
    fn put(
        &self,
        number: u32,
        guard: &mut PageGuardMut,
        image: &NodeImage,
    ) -> Result<(), IndexError> {
        let place = self.place_for(number)?;
        self.put_at(number, guard, image, place);
        Ok(())
    }

    fn put_at(
        &self,
        number: u32,
        guard: &mut PageGuardMut,
        image: &NodeImage,
        place: Option<PageId>,
    ) {
        image.assert_whole();
        if let Some(place) = place {
            let old = guard.id();
            guard.relocate(place);
            let unused = self.places().note_moved(number, Some(old));
            assert!(unused.is_none(), "it was not fresh");
        }
        guard.replace(image.bytes());
    }

    /// Changes nodes: all, or none if there is no place for one.
    fn put_all(&self, mut changes: Vec<Change>) -> Result<(), IndexError> {
        for index in 0..changes.len() {
            match self.place_for(changes[index].number) {
                Ok(place) => changes[index].place = place,
                Err(error) => {
                    let places = changes.iter().filter_map(|change| change.place);
                    places.for_each(|place| self.space.release(place));
                    return Err(error);
                }
            }
        }
        for change in &mut changes {
            self.put_at(change.number, &mut change.guard, &change.image, change.place);
        }
        Ok(())
    }

    /// A node is no more.
    fn vacate(&self, number: u32, guard: PageGuardMut) {
        let place = guard.id();
        guard.vacate();
        let unused = self.places().note_gone(number, place);
        if let Some(place) = unused {
            self.space.release(place);
        }
    }

    /// The way from the root to the leaf that a key is for: the numbers of the nodes, and the slots that lead
    /// on. The caller holds the structure.
    async fn path_to(&self, key: &[u8], lowest: u8) -> Result<Vec<(u32, usize)>, IndexError> {
        let mut path = Vec::new();
        let (mut number, mut level) = (ROOT, None);
        loop {
            let Some((table, page)) = self.slot(number) else {
                return Err(self.damaged(format!("there is no node {number}")));
            };
            let guard = self.pool.fix(table, page).await?;
            let node = Node(&guard[..]);
            if level.is_some_and(|level| level != node.level()) || !node.covers(node.level(), key) {
                return Err(self.damaged(format!("node {number} is not where it belongs")));
            }
            if node.level() <= lowest {
                path.push((number, 0));
                return Ok(path);
            }
            let slot = node.child_slot(key);
            path.push((number, slot));
            level = Some(node.level() - 1);
            number = node.child(slot);
        }
    }

    /// Splits the leaf that a key is for, unless it has `bytes` bytes free, and whatever has to be for that.
    async fn split_for(&self, key: &[u8], bytes: usize) -> Result<(), IndexError> {
        let _structure = self.structure.exclusive().await;
        let path = self.path_to(key, 0).await?;
        let (mut changes, mut made) = (Vec::new(), Vec::new());
        match self.plan_split(&path, key, bytes, &mut changes, &mut made).await {
            Ok(levels) => {
                self.put_all(changes)?;
                levels.iter().for_each(|&level| self.note_nodes(level, 1));
                Ok(())
            }
            Err(error) => {
                drop(changes);
                for number in made {
                    // What cannot be brought into memory any more has no page that anybody refers to.
                    if let Ok(Some(guard)) = self.alone(number).await {
                        self.vacate(number, guard);
                    }
                }
                Err(error)
            }
        }
    }

    /// Takes the nodes of a split, makes the new ones, and says what is to become of the others. Gives the
    /// levels that have a node more.
    async fn plan_split(
        &self,
        path: &[(u32, usize)],
        key: &[u8],
        bytes: usize,
        changes: &mut Vec<Change>,
        made: &mut Vec<u32>,
    ) -> Result<Vec<u8>, IndexError> {
        let mut levels = Vec::new();
        // What the node above gets: a child, and the key that it begins with.
        let mut rising: Option<(Vec<u8>, u32)> = None;
        for &(number, slot) in path.iter().rev() {
            let guard = self.settled_alone(number).await?;
            let mut image = NodeImage::of(&guard);
            let level = image.node().level();
            if let Some((separator, child)) = &rising {
                if image.insert(slot + 1, separator, Value::Child(*child)) {
                    changes.push(Change { number, guard, image, place: None });
                    return Ok(levels);
                }
            } else if image.free_bytes() >= bytes || image.node().count() < 2 {
                return Ok(levels);
            }
            let count = image.node().count();
            let appends = match &rising {
                Some(_) => slot + 1 == count,
                None => image.node().lower_bound(key).0 == count,
            };
            let (mut left, between, mut right) = image.split(appends);
            if let Some((separator, child)) = rising.take() {
                let half = if separator < between { &mut left } else { &mut right };
                let at = half.node().child_slot(&separator) + 1;
                let fits = half.insert(at, &separator, Value::Child(child));
                assert!(fits, "half of a node has room for a key");
            }
            levels.push(level);
            let right_number = self.make_node(&right).await?;
            made.push(right_number);
            if number == ROOT {
                let left_number = self.make_node(&left).await?;
                made.push(left_number);
                let mut root = NodeImage::new(self.form.node_bytes, level + 1, 0, None, None);
                let fits = root.insert(0, &[], Value::Child(left_number))
                    && root.insert(1, &between, Value::Child(right_number));
                assert!(fits, "an empty node has room for a key");
                levels.push(level + 1);
                changes.push(Change { number, guard, image: root, place: None });
                return Ok(levels);
            }
            changes.push(Change { number, guard, image: left, place: None });
            rising = Some((between, right_number));
        }
        unreachable!("the root is the last of a path")
    }

    /// Merges the leaf that a key is for with a neighbour if one node can hold both, and so on upwards.
    async fn merge_at(&self, key: &[u8]) -> Result<(), IndexError> {
        let _structure = self.structure.exclusive().await;
        for level in 0.. {
            let path = self.path_to(key, level).await?;
            if path.len() < 2 || !self.merge_on(&path, level).await? {
                break;
            }
        }
        self.lower_root().await
    }

    /// Merges the last node of a path with one beside it; false if there is nothing to merge.
    async fn merge_on(&self, path: &[(u32, usize)], level: u8) -> Result<bool, IndexError> {
        let (parent_number, slot) = path[path.len() - 2];
        let mut parent = self.settled_alone(parent_number).await?;
        let node = Node(&parent[..]);
        if node.count() < 2 {
            return Ok(false);
        }
        let left_slot = if slot + 1 < node.count() { slot } else { slot - 1 };
        let (left_number, right_number) = (node.child(left_slot), node.child(left_slot + 1));
        let left_guard = self.settled_alone(left_number).await?;
        let right_guard = self.settled_alone(right_number).await?;
        let (left, right) = (NodeImage::of(&left_guard), NodeImage::of(&right_guard));
        if left.node().level() != level || right.node().level() != level {
            return Err(self.damaged(format!("node {left_number} is not where it belongs")));
        }
        if !is_underfull(&left) && !is_underfull(&right) {
            return Ok(false);
        }
        let Some(merged) = left.merged(&right) else { return Ok(false) };
        let mut parent_image = NodeImage::of(&parent);
        parent_image.remove(left_slot + 1);
        parent.mark_dirty();
        self.put_all(vec![
            Change { number: parent_number, guard: parent, image: parent_image, place: None },
            Change { number: left_number, guard: left_guard, image: merged, place: None },
        ])?;
        self.vacate(right_number, right_guard);
        self.note_nodes(level, -1);
        Ok(true)
    }

    /// Puts the root's only child in its place, as often as it has but one.
    async fn lower_root(&self) -> Result<(), IndexError> {
        loop {
            let root = self.settled_alone(ROOT).await?;
            let node = Node(&root[..]);
            let level = node.level();
            if level == 0 || node.count() > 1 {
                return Ok(());
            }
            let child_number = node.child(0);
            let child = self.settled_alone(child_number).await?;
            let image = NodeImage::of(&child);
            self.put_all(vec![Change { number: ROOT, guard: root, image, place: None }])?;
            self.vacate(child_number, child);
            self.note_nodes(level, -1);
        }
    }
}
