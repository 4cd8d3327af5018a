//! Functions that say where a row is in a large partition.

use std::sync::Arc;

use super::super::column::Column;
use super::super::functions::{Given, Kind};
use super::super::ranks::{part_of, parts_of, write_part_of};
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
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
    /// How many parts each row wants of ntile.
    parts: Option<Cursor>,
}

impl Ranked {
    pub(super) fn new(kind: &Kind, set: usize) -> Ranked {
        let parts = match kind {
            Kind::Ntile(parts) => parts.field().map(|field| Cursor::new(Some(field))),
            _ => None,
        };
        Ranked { kind: kind.clone(), set, peers: Peers::default(), parts }
    }

    /// True if all rows of the partition have to be seen first.
    pub(super) fn is_to_end(&self) -> bool {
        matches!(self.kind, Kind::Ntile(_) | Kind::PercentRank | Kind::CumeDist)
    }

    /// The results for a block.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`]; [`ExecError::NotPositive`](crate::ExecError::NotPositive).
    pub(super) async fn write(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        out: &mut Column,
        pace: &mut Pace,
    ) -> Result<()> {
        let set = self.set;
        let all = if self.is_to_end() { blocks.reach(usize::MAX).await? } else { 0 };
        if let Some(parts) = &mut self.parts {
            parts.set(here.clone(), blocks).await?;
        }
        let keys_before = blocks.begun_before(here.number, set);
        for start in (0..here.rows()).step_by(STRIDE) {
            for row in start..here.rows().min(start + STRIDE) {
                let number = here.first + row;
                let rank = match self.kind {
                    Kind::RowNumber => number,
                    Kind::Rank => self.peers.start_of(number, here, set),
                    Kind::DenseRank => keys_before + here.starts[set].count(row + 1) - 1,
                    Kind::Ntile(Given::Constant(parts)) => {
                        part_of(number as u64, all as u64, parts.unsigned_abs()) as usize
                    }
                    Kind::Ntile(Given::Field(_)) => {
                        let parts = self.parts.as_ref().and_then(Cursor::column);
                        let of = parts_of(parts.expect("numbers of parts are in a field"), row)?;
                        let part = of.map(|of| part_of(number as u64, all as u64, of));
                        write_part_of(part, out, row);
                        continue;
                    }
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
