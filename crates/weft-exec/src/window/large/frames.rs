//! The frames of the rows of a block, by the numbers of rows in the partition.

use std::ops::Range;
use std::sync::Arc;

use super::super::exclusion::{Exclusion, Kept, all};
use super::super::frames::{Bound, Distance, Frame};
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
use super::key_end::{KeyEnd, key_end};
use crate::error::Result;
use crate::pace::Pace;

/// Rows between two looks at the clock.
const STRIDE: usize = 256;

/// Rows of a block, by their numbers in it, that have a frame.
#[derive(Clone, Debug)]
pub(super) struct Framed {
    pub(super) rows: Range<usize>,
    /// Some of it may be left out.
    pub(super) frame: Range<usize>,
    /// Their peers, if it matters who these are.
    peers: Range<usize>,
}

/// The frames of one block's rows after the other's.
#[derive(Debug)]
pub(super) struct Frames {
    start: End,
    end: End,
    runs: Runs,
    exclusion: Option<Exclusion>,
    /// The set of fields whose changes end peers.
    set: usize,
    peers: Peers,
}

/// Which rows have the same frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    All,
    Peers,
    None,
}

/// The peers of a row, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Peers {
    start: usize,
    /// Or less than the row.
    end: usize,
}

/// One end of frames.
#[derive(Debug)]
enum End {
    /// The partition's.
    Unbounded,
    Rows(Bound<u64>),
    /// The peers'.
    Peers,
    /// So many groups of peers away.
    Groups(Box<Groups>),
    Key(Box<Keyed>),
}

#[derive(Debug)]
struct Groups {
    bound: Bound<u64>,
    /// Where a group was looked for.
    cursor: Cursor,
    /// The group of the frame before, and where it begins.
    group: usize,
    at: usize,
}

#[derive(Debug)]
struct Keyed {
    end: Box<dyn KeyEnd>,
    /// The keys of the block's rows.
    own: Cursor,
    limits: Option<Cursor>,
    /// The keys of those where the end is looked for.
    passed: Cursor,
    /// The end of the frame before.
    at: usize,
}

impl Peers {
    /// The first peer of a row of a block; rows come in their order.
    pub(super) fn start_of(&mut self, row: usize, here: &Loaded, set: usize) -> usize {
        if here.starts[set].begins(row - here.first) {
            self.start = row;
        }
        self.start
    }

    /// The peers of a row of a block; rows come in their order.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`].
    pub(super) async fn of(
        &mut self,
        row: usize,
        here: &Loaded,
        set: usize,
        blocks: &mut Blocks,
    ) -> Result<Range<usize>> {
        if row >= self.end {
            let place = row - here.first;
            let end = here.starts[set].next(place, here.rows());
            self.start = row;
            self.end = here.first + end;
            if end == here.rows() {
                self.end = blocks.next_start(here.number, set).await?;
            }
        }
        Ok(self.start..self.end)
    }
}

impl Frames {
    pub(super) fn new(frame: &Frame, set: usize, blocks: &Blocks) -> Frames {
        let lane = |field: usize| blocks.shared.layout.field(field).lane;
        let (start, end) = match frame.whole() {
            Frame::Rows(start, end) => (End::of_rows(*start), End::of_rows(*end)),
            Frame::Groups(start, end) => (End::of_groups(*start), End::of_groups(*end)),
            Frame::Range { key, start, end } => {
                let of = |bound: &Bound<Distance>, is_end| {
                    let Some(end) = key_end(*key, lane(key.field), bound, is_end) else {
                        return match bound {
                            Bound::Unbounded => End::Unbounded,
                            _ => End::Peers,
                        };
                    };
                    let cursor = || Cursor::new(Some(key.field));
                    let limits = bound.field().map(|field| Cursor::new(Some(field)));
                    End::Key(Box::new(Keyed {
                        end,
                        own: cursor(),
                        limits,
                        passed: cursor(),
                        at: 0,
                    }))
                };
                (of(start, false), of(end, true))
            }
            Frame::Excluding(..) => unreachable!("a whole frame leaves nothing out"),
        };
        let runs = match (&start, &end) {
            (End::Unbounded, End::Unbounded) => Runs::All,
            (End::Rows(_), _) | (_, End::Rows(_)) => Runs::None,
            _ => Runs::Peers,
        };
        let exclusion = frame.exclusion();
        Frames { start, end, runs, exclusion, set, peers: Peers::default() }
    }

    /// True if frames end with the partition.
    pub(super) fn is_to_end(&self) -> bool {
        matches!(self.end, End::Unbounded)
    }

    /// True if frames leave rows out.
    pub(super) fn excludes(&self) -> bool {
        self.exclusion.is_some()
    }

    /// What is kept of the frame of rows of a block.
    pub(super) fn kept(&self, framed: &Framed, here: &Loaded) -> Kept {
        let Framed { rows, frame, peers } = framed;
        match self.exclusion {
            None => all(frame.clone()),
            Some(exclusion) => exclusion.kept(frame, here.first + rows.start, peers),
        }
    }

    /// The frames of a block's rows.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`] and [`Blocks::load`].
    pub(super) async fn of_block(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<Vec<Framed>> {
        for end in [&mut self.start, &mut self.end] {
            if let End::Key(keyed) = end {
                keyed.own.set(here.clone(), blocks).await?;
                if let Some(limits) = &mut keyed.limits {
                    limits.set(here.clone(), blocks).await?;
                }
            }
        }
        let (rows, mut framed) = (here.rows(), Vec::new());
        let mut row = 0;
        while row < rows {
            let number = here.first + row;
            let mut peers = number..number + 1;
            if self.runs == Runs::Peers || self.exclusion.is_some_and(Exclusion::has_peers) {
                peers = self.peers.of(number, here, self.set, blocks).await?;
            }
            let end = match (self.runs, self.exclusion) {
                (Runs::None, _) | (_, Some(Exclusion::CurrentRow | Exclusion::Ties)) => row + 1,
                (Runs::Peers, _) | (_, Some(Exclusion::Group)) => rows.min(peers.end - here.first),
                (Runs::All, None) => rows,
            };
            let start = self.start.find(&peers, here, row, self.set, false, blocks).await?;
            let last = self.end.find(&peers, here, row, self.set, true, blocks).await?;
            framed.push(Framed { rows: row..end, frame: start..last.max(start), peers });
            if framed.len() % STRIDE == 0 {
                pace.keep().await;
            }
            row = end;
        }
        Ok(framed)
    }

    /// The first row that has to be looked at to find frames.
    pub(super) fn needs_from(&self) -> usize {
        let from = |end: &End| match end {
            End::Groups(groups) => groups.at,
            End::Key(keyed) => keyed.at,
            _ => usize::MAX,
        };
        from(&self.start).min(from(&self.end))
    }
}

fn few(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}

impl End {
    fn of_rows(bound: Bound<u64>) -> End {
        if bound == Bound::Unbounded { End::Unbounded } else { End::Rows(bound) }
    }

    fn of_groups(bound: Bound<u64>) -> End {
        match bound {
            Bound::Unbounded => End::Unbounded,
            Bound::CurrentRow => End::Peers,
            bound => {
                let cursor = Cursor::new(None);
                End::Groups(Box::new(Groups { bound, cursor, group: 0, at: 0 }))
            }
        }
    }

    /// Where the frame begins, or ends, of a row of the block and its peers.
    async fn find(
        &mut self,
        peers: &Range<usize>,
        here: &Loaded,
        row: usize,
        set: usize,
        is_end: bool,
        blocks: &mut Blocks,
    ) -> Result<usize> {
        let one_more = usize::from(is_end);
        match self {
            End::Unbounded if is_end => blocks.reach(usize::MAX).await,
            End::Unbounded => Ok(0),
            End::Peers if is_end => Ok(peers.end),
            End::Peers => Ok(peers.start),
            End::Rows(bound) => {
                let number = here.first + row + one_more;
                Ok(match bound {
                    Bound::Preceding(rows) => number.saturating_sub(few(*rows)),
                    Bound::Following(rows) => {
                        let end = number.saturating_add(few(*rows));
                        if end <= blocks.rows() { end } else { end.min(blocks.reach(end).await?) }
                    }
                    _ => number,
                })
            }
            End::Groups(groups) => {
                let own = blocks.begun_before(here.number, set) + here.starts[set].count(row + 1);
                groups.find(own - 1 + one_more, set, blocks).await
            }
            End::Key(keyed) => keyed.find(peers, row, is_end, blocks).await,
        }
    }
}

impl Groups {
    /// Where the group begins that is so far away from another one; the partition's ends are beyond all groups.
    async fn find(&mut self, from: usize, set: usize, blocks: &mut Blocks) -> Result<usize> {
        let group = match self.bound {
            Bound::Preceding(groups) => from.saturating_sub(few(groups)),
            Bound::Following(groups) => from.saturating_add(few(groups)),
            _ => from,
        };
        if group == self.group {
            return Ok(self.at);
        }
        let Some((block, before)) = blocks.of_begun(group, set).await? else {
            (self.group, self.at) = (group, blocks.rows());
            return Ok(self.at);
        };
        let has_moved = self.cursor.go(blocks.first(block), blocks).await?;
        let loaded = self.cursor.block();
        let (starts, rows) = (&loaded.starts[set], loaded.rows());
        let (mut known, mut row) = (self.group, self.at.wrapping_sub(loaded.first));
        if has_moved || known < before {
            (known, row) = (before, if starts.begins(0) { 0 } else { starts.next(0, rows) });
        }
        for _ in known..group {
            row = starts.next(row, rows);
        }
        (self.group, self.at) = (group, loaded.first + row);
        Ok(self.at)
    }
}

impl Keyed {
    async fn find(
        &mut self,
        peers: &Range<usize>,
        row: usize,
        is_end: bool,
        blocks: &mut Blocks,
    ) -> Result<usize> {
        let keys = self.own.column().expect("keys have a field");
        if !keys.is_valid(row) {
            return Ok(if is_end { peers.end } else { peers.start });
        }
        self.end.aim(keys, self.limits.as_ref().and_then(Cursor::column), row);
        loop {
            if self.at == blocks.rows() && blocks.extend().await?.is_none() {
                return Ok(self.at);
            }
            self.passed.go(self.at, blocks).await?;
            let (first, end) = (self.passed.block().first, self.passed.block().end());
            let keys = self.passed.column().expect("keys have a field");
            self.at = first + self.end.pass(keys, self.at - first..end - first);
            if self.at < end {
                return Ok(self.at);
            }
        }
    }
}
