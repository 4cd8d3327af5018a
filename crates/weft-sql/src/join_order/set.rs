//! Sets of a few small numbers: the relations of a join graph, a bit each.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

/// Relations that a set can hold.
pub(super) const RELATIONS_MAX: usize = 128;

/// A set of relations.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RelationSet(u128);

impl RelationSet {
    pub(super) const EMPTY: RelationSet = RelationSet(0);

    /// The set of one relation.
    pub(super) fn of(relation: usize) -> RelationSet {
        RelationSet(1 << relation)
    }

    /// The relations from 0 up to `relation`, itself included.
    pub(super) fn up_to(relation: usize) -> RelationSet {
        RelationSet(u128::MAX >> (RELATIONS_MAX - 1 - relation))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn contains(self, other: RelationSet) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn meets(self, other: RelationSet) -> bool {
        self.0 & other.0 != 0
    }

    /// The least relation; the set is not empty.
    pub(super) fn first(self) -> usize {
        debug_assert!(!self.is_empty());
        self.0.trailing_zeros() as usize
    }

    /// The relations, ascending.
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..RELATIONS_MAX).filter(move |relation| self.0 >> relation & 1 == 1)
    }

    /// All subsets but the empty one.
    pub(super) fn subsets(self) -> impl Iterator<Item = RelationSet> {
        let mut subset = 0u128;
        std::iter::from_fn(move || {
            subset = subset.wrapping_sub(self.0) & self.0;
            (subset != 0).then_some(RelationSet(subset))
        })
    }
}

impl BitOr for RelationSet {
    type Output = RelationSet;

    fn bitor(self, other: RelationSet) -> RelationSet {
        RelationSet(self.0 | other.0)
    }
}

impl BitAnd for RelationSet {
    type Output = RelationSet;

    fn bitand(self, other: RelationSet) -> RelationSet {
        RelationSet(self.0 & other.0)
    }
}

impl Sub for RelationSet {
    type Output = RelationSet;

    fn sub(self, other: RelationSet) -> RelationSet {
        RelationSet(self.0 & !other.0)
    }
}

impl FromIterator<usize> for RelationSet {
    fn from_iter<I: IntoIterator<Item = usize>>(relations: I) -> RelationSet {
        RelationSet(relations.into_iter().fold(0, |set, relation| set | 1 << relation))
    }
}

impl fmt::Debug for RelationSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}
