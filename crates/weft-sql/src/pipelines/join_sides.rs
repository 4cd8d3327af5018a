//! What becomes of the tuples of both sides of a join.

use datafusion::common::JoinType;
use weft_exec::join::Which;

use super::join::JoinColumn;

/// Which input is the build side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    BuildLeft,
    BuildRight,
}

/// What becomes of the tuples of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Pairs, and tuples of the probe side without a match if those are `outer`, and those of the build side if they
    /// are `rest`.
    Pairs { outer: bool, rest: bool },
    /// Tuples of the probe side that have a match, or have none.
    Probe { matched: bool },
    /// Tuples of the probe side, and whether they have a match.
    ProbeMarked,
    /// Some of the tuples of the build side.
    Build(Which),
}

impl Fate {
    /// True if tuples of the probe side without a match are of no consequence.
    pub(super) fn drops_probe(self) -> bool {
        match self {
            Fate::Pairs { outer, .. } => !outer,
            Fate::Probe { matched } => matched,
            Fate::ProbeMarked => false,
            Fate::Build(_) => true,
        }
    }
}

/// What a join of this type does.
pub(super) fn fate(join_type: JoinType, sides: Sides) -> Fate {
    use JoinType::{
        Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi,
    };
    let join_type = if sides == Sides::BuildRight { join_type.swap() } else { join_type };
    match join_type {
        Inner => Fate::Pairs { outer: false, rest: false },
        Left => Fate::Pairs { outer: false, rest: true },
        Right => Fate::Pairs { outer: true, rest: false },
        Full => Fate::Pairs { outer: true, rest: true },
        LeftSemi => Fate::Build(Which::Matched),
        LeftAnti => Fate::Build(Which::Unmatched),
        LeftMark => Fate::Build(Which::All),
        RightSemi => Fate::Probe { matched: true },
        RightAnti => Fate::Probe { matched: false },
        RightMark => Fate::ProbeMarked,
    }
}

/// The number of a column of the build side.
pub(super) fn of_build(column: JoinColumn, sides: Sides) -> Option<usize> {
    match (column, sides) {
        (JoinColumn::Left(column), Sides::BuildLeft)
        | (JoinColumn::Right(column), Sides::BuildRight) => Some(column),
        _ => None,
    }
}
