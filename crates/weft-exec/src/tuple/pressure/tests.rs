//! What was stored under pressure is in memory or on disk, as it was.

use std::sync::Arc;

use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimDisk, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::Directory;
use weft_store::spill::SpillArea;

use super::*;
use crate::lane::Lane;
use crate::program::Register;
use crate::query::{Context, PartitionMode};
use crate::registers::Registers;
use crate::spill::Spilling;
use crate::spill::reader::Reader;
use crate::text::Str;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::materializer::PARTITIONS;
use crate::tuple::pack::unpack;
use crate::tuple::{Layout, Materialized};

const ROWS: u64 = 30_000;

fn hash(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text(number: u64) -> String {
    // Some take more than a page.
    let bytes = if number % 5_000 == 1 { 70_000 } else { number as usize % 80 };
    format!("{number} and {}", "x".repeat(bytes))
}

fn context(bytes: u64) -> Context {
    let disk = SimDisk::new(SimOptions::testing(1));
    let driver = DriverKind::Sim(disk.clone());
    let options = RuntimeOptions { workers: 1, driver, ..RuntimeOptions::default() };
    let mut context = Context::new(Arc::new(Runtime::new(&options).unwrap()), Ledger::new(bytes));
    let area = SpillArea::new(vec![Directory::Sim(disk, "spill".into())], 1 << 40);
    context.spilling = Some(Spilling::new(area));
    context
}

/// Stores numbers and texts, vector by vector, of which every third row is not selected.
async fn store(materializer: &mut Materializer, vector_rows: usize) -> Result<()> {
    let mut registers = Registers::of(&[Lane::U64, Lane::Str, Lane::U64]);
    for start in (0..ROWS).step_by(vector_rows) {
        let numbers: Vec<u64> = (start..ROWS).take(vector_rows).collect();
        let texts: Vec<String> = numbers.iter().map(|number| text(*number)).collect();
        registers.begin(numbers.len());
        for (row, number) in numbers.iter().enumerate() {
            registers.vector_mut(Register(0)).values_mut::<u64>()[row] = *number;
            let string = Str::new(texts[row].as_bytes());
            registers.vector_mut(Register(1)).values_mut::<Str>()[row] = string;
            registers.vector_mut(Register(2)).values_mut::<u64>()[row] = hash(*number);
        }
        (0..3).for_each(|register| registers.vector_mut(Register(register)).validity.set_all());
        if vector_rows > 1 {
            registers.selection.retain(|row| !numbers[row].is_multiple_of(3));
        }
        let fields = [Register(0), Register(1)];
        materializer.store(&registers, Register(2), &fields).await?;
    }
    Ok(())
}

/// # Safety
/// There is a tuple of the layout.
unsafe fn check_tuple(layout: &Layout, tuple: *mut u8, partition: Option<usize>, bits: u32) -> u64 {
    // SAFETY: as promised.
    unsafe {
        unpack(layout, tuple);
        let number = tuple.add(layout.field(0).offset).cast::<u64>().read_unaligned();
        let string = tuple.add(layout.field(1).offset).cast::<Str>().read_unaligned();
        assert_eq!(string.unpacked(tuple).bytes(), text(number).as_bytes());
        let stored = tuple.add(HASH_OFFSET).cast::<u64>().read();
        assert_eq!(stored, hash(number));
        assert!(partition.is_none_or(|partition| partition as u64 == stored >> (u64::BITS - bits)));
        number
    }
}

async fn numbers(stored: Materialized, spills: Spills, bits: u32) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for page in &stored.pages {
        let tuples = (0..page.page.tuples()).map(|number| page.page.tuple(number));
        // SAFETY: they were stored above.
        found.extend(
            tuples.map(|tuple| unsafe { check_tuple(&stored.layout, tuple, page.partition, bits) }),
        );
    }
    for page in stored.spilled {
        let (partition, memory) = (page.partition, spills.ledger.empty());
        let mut reader = Reader::new("a test", spills.clone(), vec![Arc::new(page)], memory);
        while let Some(page) = reader.next().await? {
            let tuples = (0..page.tuples()).map(|number| page.tuple(number));
            // SAFETY: they were stored above.
            found.extend(
                tuples.map(|tuple| unsafe {
                    check_tuple(&stored.layout, tuple, Some(partition), bits)
                }),
            );
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[test]
fn stored_tuples_are_in_memory_or_on_disk() {
    for mode in [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never] {
        for (vector_rows, bytes, bits) in [
            (2048, 1 << 20, 8),
            (7, 2 << 20, 8),
            (1, 3 << 20, 8),
            (2048, 2 << 20, 2),
            (7, 2 << 20, 3),
        ] {
            let context = context(bytes);
            let ledger = context.ledger.clone();
            let spills = Spills::new(&context).unwrap();
            let area = spills.spilling.area().clone();
            let layout = Arc::new(Layout::new(&[(Lane::U64, false), (Lane::Str, false)]));
            let work = move || async move {
                let ledger = spills.ledger.clone();
                let mut materializer = Materializer::new(layout, "a test", &ledger, mode, false)
                    .spilling(spills.clone());
                if bits < PARTITIONS.ilog2() {
                    materializer = materializer.partitioned(bits);
                }
                store(&mut materializer, vector_rows).await?;
                // A share of a page for each partition is ample.
                assert_eq!(materializer.has_gone_through(), bits < PARTITIONS.ilog2());
                materializer.settle().await?;
                let stored = materializer.finish();
                let tuples = stored.tuples();
                let found = numbers(stored, spills, bits).await?;
                assert_eq!(found.len(), tuples);
                Ok::<_, crate::ExecError>(found)
            };
            let found = context.runtime.block_on(work).unwrap().unwrap();
            let is_stored = |number: &u64| vector_rows == 1 || !number.is_multiple_of(3);
            assert_eq!(found, (0..ROWS).filter(is_stored).collect::<Vec<u64>>());
            assert!(area.stats().written_bytes > 0, "{mode:?}, {vector_rows}");
            assert_eq!((ledger.used(), area.stats().file_bytes), (0, 0));
        }
    }
}

/// What is stored so many times, by one worker, in four partitions: bytes for the disk that were written, and all tuples.
fn stored(times: usize, retains: bool) -> (u64, Vec<u64>) {
    let context = context(48 << 20);
    let ledger = context.ledger.clone();
    let spills = Spills::new(&context).unwrap();
    let area = spills.spilling.area().clone();
    let of_area = area.clone();
    let layout = Arc::new(Layout::new(&[(Lane::U64, false), (Lane::Str, false)]));
    let work = move || async move {
        let (ledger, adaptive) = (spills.ledger.clone(), PartitionMode::Adaptive);
        let mut materializer = Materializer::new(layout, "a test", &ledger, adaptive, false)
            .spilling(spills.clone())
            .partitioned(2);
        if retains {
            materializer = materializer.retaining();
        }
        for _ in 0..times {
            store(&mut materializer, 2048).await?;
        }
        let held_bytes = materializer.held_bytes();
        assert!(held_bytes <= ledger.limit(), "{held_bytes} bytes");
        materializer.settle().await?;
        let written_bytes = of_area.stats().written_bytes;
        let stored = materializer.finish();
        assert_eq!(stored.spilled.iter().any(SpilledPage::is_retained), retains);
        Ok::<_, crate::ExecError>((written_bytes, numbers(stored, spills, 2).await?))
    };
    let found = context.runtime.block_on(work).unwrap().unwrap();
    assert_eq!((ledger.used(), area.stats().file_bytes), (0, 0));
    found
}

#[test]
fn packed_tuples_stay_in_memory() {
    // Packed, there is memory for the former.
    for (times, may_write) in [(18, false), (36, true)] {
        let expected = (0..ROWS).filter(|number| !number.is_multiple_of(3));
        let expected: Vec<u64> =
            expected.flat_map(|number| std::iter::repeat_n(number, times)).collect();
        let (written, found) = stored(times, true);
        assert!(found == expected, "other tuples");
        assert_eq!(written > 0, may_write, "{written} bytes");
        let (all_written, found) = stored(times, false);
        assert!(found == expected, "other tuples");
        assert!(written < all_written, "{written} bytes, {all_written} if none stay");
    }
}
