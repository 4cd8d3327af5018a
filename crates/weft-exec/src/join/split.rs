//! Units that do not fit into memory are partitioned anew, both sides, by the next bits of the hash: by as many as make parts of them
//! that fit, but so few that there is memory for a page of some size for each of them. Pages of a few tuples would take more to
//! write and read than what there is to be had.

use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::aside::Aside;
use super::spilled::number_tuples;
use super::unit::{Side, Unit};
use super::{BUILD, PROBE};
use crate::error::Result;
use crate::pace::Pace;
use crate::query::PartitionMode;
use crate::spill::any_page::AnyPage;
use crate::spill::reader::Reader;
use crate::spill::writer::{SPARE_BYTES, Spills};
use crate::tuple::pack::Form;
use crate::tuple::{Layout, Materializer};

/// Units are not split any further when all of their tuples have so many bits in common.
pub(super) const SKIPPED_BITS_MAX: u32 = 40;
/// Tuples after which others may run.
const TUPLES_PER_TURN: usize = 512;

/// True if partitioning a unit, whose sides have so many bytes, anew costs less than going through its probe side once for
/// each of so many blocks of its build side.
pub(super) fn pays((build_bytes, probe_bytes): (u64, u64), blocks: u64) -> bool {
    let again_bytes = probe_bytes.saturating_mul(blocks.saturating_sub(1));
    again_bytes > 2 * (build_bytes + probe_bytes)
}

/// The units that a unit falls into by so many further bits of the hash, the one to be served first last. There is `working` memory for
/// what is read.
///
/// # Errors
/// [`ExecError::Memory`](crate::ExecError::Memory); what went wrong with spilling.
pub(super) async fn split(
    aside: &Aside,
    unit: Unit,
    bits: u32,
    working: &mut Reservation,
) -> Result<Vec<Unit>> {
    let Unit { skipped_bits, build, probe, .. } = unit;
    let tuples = build.tuples();
    let layout = aside.probe.join.layout();
    let splitting = |operator, spills| Splitting { aside, operator, spills, skipped_bits, bits };
    let build = splitting(BUILD, &aside.spilled.spills)
        .run(build, layout.clone(), aside.keeps_marks(), working)
        .await?;
    let layout = aside.layout.clone();
    let probe = splitting(PROBE, &aside.spills).run(probe, layout, false, working).await?;
    let skipped_bits = skipped_bits + bits;
    let pairs = build.into_iter().zip(probe).filter(|(_, probe)| probe.tuples() > 0);
    let unit = |(build, probe): (Side, Side)| {
        let is_heavy = build.tuples() > tuples / 2;
        Unit { skipped_bits, in_memory: None, is_heavy, build, probe }
    };
    let mut units: Vec<Unit> = pairs.map(unit).collect();
    units.sort_by_key(|unit| unit.build.reservation.bytes() + unit.probe.reservation.bytes());
    Ok(units)
}

/// A side being partitioned.
struct Splitting<'a> {
    aside: &'a Aside,
    operator: &'static str,
    spills: &'a Spills,
    skipped_bits: u32,
    /// Those that lead to a partition.
    bits: u32,
}

impl Splitting<'_> {
    /// The partitions of a side; its tuples have their numbers in their chain words then, if they are `numbered`.
    async fn run(
        self,
        mut side: Side,
        layout: Arc<Layout>,
        numbered: bool,
        working: &mut Reservation,
    ) -> Result<Vec<Side>> {
        let (ledger, assured) = (&self.spills.ledger, &self.aside.assured);
        side.unsettle();
        // Their numbers go to disk with them.
        let layout = match numbered {
            true => Arc::new(Layout::clone(&layout).with_chains_on_disk()),
            false => layout,
        };
        let mut parts =
            Materializer::new(layout, self.operator, ledger, PartitionMode::Always, false)
                .spilling(self.spills.anew())
                .packed(self.skipped_bits)
                .keeping(assured.reserve_or_none(SPARE_BYTES))
                .assured(assured.clone(), assured.bytes().saturating_sub(SPARE_BYTES))
                .partitioned(self.bits);
        for page in side.pages {
            let bytes = page.bytes() as u64;
            store(&mut parts, &AnyPage::Stored(page)).await?;
            side.reservation.shrink(bytes);
        }
        let firsts: Vec<Option<u64>> = side.spilled.iter().map(|page| page.first).collect();
        let pages = side.spilled.into_iter().map(|page| page.page).collect();
        let of_reader = working.split(working.bytes());
        let mut reader = Reader::new(self.operator, self.spills.clone(), pages, of_reader);
        for first in firsts {
            let Some(page) = reader.next().await? else { break };
            let page = AnyPage::Read(page);
            if let Some(first) = first.filter(|_| numbered) {
                // SAFETY: the page was just read.
                unsafe { number_tuples(&page, first) };
            }
            store(&mut parts, &page).await?;
            if let AnyPage::Read(page) = page {
                reader.forget(page.into_memory());
            }
        }
        working.merge(reader.end());
        if parts.needs_assured() {
            // The next ones need it.
            parts.spill_all().await?;
        }
        parts.settle().await?;
        let spilling = &self.aside.spills.spilling;
        Ok(Side::by_partition(parts.finish(), self.bits, spilling).await)
    }
}

/// Stores copies of a page's tuples.
async fn store(parts: &mut Materializer, page: &AnyPage) -> Result<()> {
    let mut pace = Pace::default();
    for number in 0..page.tuples() {
        // SAFETY: tuples of a page are complete, and nobody writes to them.
        unsafe { parts.store_packed(page.tuple(number), Form::Packed).await? };
        if number % TUPLES_PER_TURN == 0 {
            pace.keep().await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_pays_where_the_probe_side_would_be_read_often() {
        assert!(pays((1 << 20, 1 << 20), 6) && !pays((1 << 20, 1 << 20), 5));
        assert!(!pays((16 << 20, 1 << 20), 30));
    }
}
