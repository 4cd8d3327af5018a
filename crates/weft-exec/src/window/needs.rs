//! What functions need to be evaluated while the rows of their partition come, of which not all are in memory at any time.

use super::frames::{Bound, Frame};
use super::functions::{Function, Kind};

/// Most rows before a row, or behind it, that are kept at hand.
const ROWS_MAX: u64 = 16 << 10;

/// The rows around one that have to be at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) before: usize,
    pub(super) behind: usize,
    /// All of its peers.
    pub(super) peers: bool,
    /// Something is carried over from all rows before; else the rows around say all.
    pub(super) running: bool,
}

/// The end of frames that begin with their partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// So many rows behind the row, or before it.
    Rows(isize),
    /// With the last peer.
    Peers,
}

impl Needs {
    /// Those of a function; `None` if it has to see whole partitions.
    pub(super) fn of(function: &Function) -> Option<Needs> {
        match &function.kind {
            Kind::RowNumber => Some(Needs { running: true, ..Needs::default() }),
            // Whether a row is a peer of the one before.
            Kind::Rank | Kind::DenseRank => {
                Some(Needs { before: 1, running: true, ..Needs::default() })
            }
            Kind::Shift(shift) if !shift.ignores_nulls => {
                let rows = few(shift.back.unsigned_abs())?;
                Some(match shift.back {
                    0.. => Needs { before: rows, ..Needs::default() },
                    _ => Needs { behind: rows, ..Needs::default() },
                })
            }
            Kind::Nth { row, frame, ignores_nulls } => match bounded(frame) {
                Some(needs) => Some(needs),
                None if *ignores_nulls => None,
                None => {
                    let needs = from_start(frame)?;
                    if *row > 0 {
                        return Some(needs);
                    }
                    // The last rows of a frame lie near its end.
                    let before = needs.before + few(row.unsigned_abs())?;
                    Some(Needs { before, running: false, ..needs })
                }
            },
            Kind::Aggregate(_, frame) => bounded(frame).or_else(|| from_start(frame)),
            Kind::Foreign(_, frame) => bounded(frame),
            _ => None,
        }
    }

    /// Those of several functions.
    pub(super) fn join(self, other: Needs) -> Needs {
        Needs {
            before: self.before.max(other.before),
            behind: self.behind.max(other.behind),
            peers: self.peers || other.peers,
            running: self.running || other.running,
        }
    }
}

/// The end of a frame that begins with its partition, if it can be found while rows come.
pub(super) fn end(frame: &Frame) -> Option<End> {
    match frame {
        Frame::Rows(Bound::Unbounded, end) => match end {
            Bound::Unbounded => None,
            Bound::Preceding(rows) => Some(End::Rows(-few(*rows)?.cast_signed())),
            Bound::CurrentRow => Some(End::Rows(0)),
            Bound::Following(rows) => Some(End::Rows(few(*rows)?.cast_signed())),
        },
        Frame::Groups(Bound::Unbounded, Bound::CurrentRow)
        | Frame::Range { start: Bound::Unbounded, end: Bound::CurrentRow, .. } => Some(End::Peers),
        _ => None,
    }
}

fn from_start(frame: &Frame) -> Option<Needs> {
    let running = Needs { running: true, ..Needs::default() };
    Some(match end(frame)? {
        End::Rows(rows) if rows < 0 => Needs { before: rows.unsigned_abs(), ..running },
        End::Rows(rows) => Needs { behind: rows.unsigned_abs(), ..running },
        End::Peers => Needs { peers: true, ..running },
    })
}

/// The needs of frames of which both ends are near.
fn bounded(frame: &Frame) -> Option<Needs> {
    match frame {
        Frame::Rows(start, end) => Some(of_bound(*start)?.join(of_bound(*end)?)),
        Frame::Groups(Bound::CurrentRow, Bound::CurrentRow)
        | Frame::Range { start: Bound::CurrentRow, end: Bound::CurrentRow, .. } => {
            Some(Needs { peers: true, ..Needs::default() })
        }
        _ => None,
    }
}

fn of_bound(bound: Bound<u64>) -> Option<Needs> {
    match bound {
        Bound::Unbounded => None,
        Bound::CurrentRow => Some(Needs::default()),
        Bound::Preceding(rows) => Some(Needs { before: few(rows)?, ..Needs::default() }),
        Bound::Following(rows) => Some(Needs { behind: few(rows)?, ..Needs::default() }),
    }
}

fn few(rows: u64) -> Option<usize> {
    (rows <= ROWS_MAX).then_some(rows as usize)
}
