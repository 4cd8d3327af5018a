//! Functions that say where a row is in a large partition.

use super::super::column::Column;
use super::super::functions::Kind;
use super::super::ranks::part_of;
use super::blocks::{Blocks, Loaded};
use super::frames::Peers;
use crate::error::Result;
use crate::for_lanes;
use crate::pace::Pace;

/// Rows between two looks at the clock.
const STRIDE: usize = 1 << 10;

/// Such a function on its way through the partition.
#[derive(Debug)]
pub(super) struct Ranked {
    kind: Kind,
    /// The set of fields whose changes end peers.
    set: usize,
    peers: Peers,
}

impl Ranked {
    pub(super) fn new(kind: &Kind, set: usize) -> Ranked {
        Ranked { kind: kind.clone(), set, peers: Peers::default() }
    }

    /// True if all rows of the partition have to be seen first.
    pub(super) fn is_to_end(&self) -> bool {
        matches!(self.kind, Kind::Ntile(_) | Kind::PercentRank | Kind::CumeDist)
    }

    /// The results for a block.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`].
    pub(super) async fn write(
        &mut self,
        here: &Loaded,
        blocks: &mut Blocks,
        out: &mut Column,
        pace: &mut Pace,
    ) -> Result<()> {
        let set = self.set;
        let all = if self.is_to_end() { blocks.reach(usize::MAX).await? } else { 0 };
        let keys_before = blocks.begun_before(here.number, set);
        for start in (0..here.rows()).step_by(STRIDE) {
            for row in start..here.rows().min(start + STRIDE) {
                let number = here.first + row;
                let rank = match self.kind {
                    Kind::RowNumber => number,
                    Kind::Rank => self.peers.start_of(number, here, set),
                    Kind::DenseRank => keys_before + here.starts[set].count(row + 1) - 1,
                    Kind::Ntile(parts) => part_of(number as u64, all as u64, parts) as usize,
                    Kind::PercentRank => {
                        let before = self.peers.start_of(number, here, set) as f64;
                        out.values_mut::<f64>()[row] = before / (all as f64 - 1.0).max(1.0);
                        continue;
                    }
                    Kind::CumeDist => {
                        let end = self.peers.of(number, here, set, blocks).await?.end as f64;
                        out.values_mut::<f64>()[row] = end / all as f64;
                        continue;
                    }
                    _ => unreachable!("no function by ranks"),
                };
                for_lanes!(out.lane(), T => out.values_mut::<T>()[row] = (rank + 1) as T,
                    [I64: i64, U64: u64], else panic!("ranks in {}", out.lane()));
            }
            pace.keep().await;
        }
        Ok(())
    }
}
