//! Tuples go to pages and come back: random schemas, nulls, strings short and long, selections, partition modes,
//! budgets that suffice or do not.

use std::collections::HashMap;
use std::sync::Arc;

use weft_exec::lane::{Bool, Value};
use weft_exec::program::Register;
use weft_exec::query::PartitionMode;
use weft_exec::registers::Registers;
use weft_exec::tuple::materializer::{PAGE_BYTES_MAX, PARTITIONS};
use weft_exec::tuple::{Layout, Materialized, Materializer, Storage, load};
use weft_exec::{ExecError, Lane, Str, VECTOR_ROWS_MAX, Vector, for_lane};
use weft_rt::memory::Ledger;

/// A column's values as bytes, for any lane; `None` for null.
type Column = Vec<Option<Vec<u8>>>;

struct Data {
    fields: Vec<(Lane, bool, Storage)>,
    columns: Vec<Column>,
    hashes: Vec<u64>,
    /// Rows that are stored, the others are not selected.
    is_selected: Vec<bool>,
}

impl Data {
    fn random(random: &mut fastrand::Rng, rows: usize, long_bytes_max: usize) -> Data {
        let fields: Vec<(Lane, bool, Storage)> = (0..random.usize(0..12))
            .map(|_| {
                let lane = Lane::ALL[random.usize(..Lane::ALL.len())];
                (lane, random.bool(), storage(random, lane))
            })
            .collect();
        let value = |random: &mut fastrand::Rng, lane: Lane, storage: Storage| -> Vec<u8> {
            let bytes = match lane {
                _ if let Storage::Narrow(narrow) = storage => {
                    return few_bits(random, lane, narrow);
                }
                Lane::Bool => return vec![random.bool().into()],
                Lane::Str if storage == Storage::Coded => {
                    let number = random.u16(..300);
                    return "one of few".repeat((number % 4).into()).into_bytes();
                }
                Lane::Str if random.bool() => random.usize(..=14),
                Lane::Str => random.usize(..=long_bytes_max),
                lane => lane.width(),
            };
            (0..bytes).map(|_| random.u8(..)).collect()
        };
        let column = |(lane, nullable, storage): &(Lane, bool, Storage)| -> Column {
            let one = |random: &mut fastrand::Rng| {
                (!nullable || random.u8(..) > 50).then(|| value(random, *lane, *storage))
            };
            let mut random = random.fork();
            (0..rows).map(|_| one(&mut random)).collect()
        };
        let columns = fields.iter().map(column).collect();
        let all = random.bool();
        Data {
            fields,
            columns,
            hashes: (0..rows).map(|_| random.u64(..)).collect(),
            is_selected: (0..rows).map(|_| all || random.u8(..) < 150).collect(),
        }
    }

    fn rows(&self) -> usize {
        self.hashes.len()
    }

    /// Registers for the fields, and then for the hash.
    fn registers(&self) -> Registers {
        let lanes: Vec<Lane> =
            self.fields.iter().map(|(lane, ..)| *lane).chain([Lane::U64]).collect();
        Registers::of(&lanes)
    }

    fn load(&self, start: usize, rows: usize, registers: &mut Registers) {
        registers.begin(rows);
        for (number, column) in self.columns.iter().enumerate() {
            let vector = registers.vector_mut(Register(number as u16));
            vector.validity.set_all();
            for_lane!(vector.lane(), T => vector.values_mut::<T>()[..rows].fill(T::default()));
            for (row, value) in column[start..start + rows].iter().enumerate() {
                match value {
                    Some(bytes) => for_lane!(vector.lane(), T => write::<T>(vector, row, bytes)),
                    None => vector.validity.set(row, false),
                }
            }
        }
        let hashes = registers.vector_mut(Register(self.columns.len() as u16));
        hashes.values_mut()[..rows].copy_from_slice(&self.hashes[start..start + rows]);
        registers.selection.retain(|row| self.is_selected[start + row]);
    }

    async fn store(
        &self,
        materializer: &mut Materializer,
        rows_max: usize,
    ) -> weft_exec::Result<()> {
        let mut registers = self.registers();
        let fields: Vec<Register> = (0..self.columns.len() as u16).map(Register).collect();
        let hash = Register(self.columns.len() as u16);
        for start in (0..self.rows()).step_by(rows_max) {
            self.load(start, rows_max.min(self.rows() - start), &mut registers);
            materializer.store(&registers, hash, &fields).await?;
        }
        Ok(())
    }

    /// Looks at every tuple, through [`load`] in batches of up to `rows_max`.
    fn check(&self, stored: &Materialized, rows_max: usize) {
        let selected = self.is_selected.iter().filter(|selected| **selected).count();
        assert_eq!(stored.tuples(), selected);
        let of_hash: HashMap<u64, usize> =
            self.hashes.iter().enumerate().map(|(row, hash)| (*hash, row)).collect();
        let mut is_found = vec![false; self.rows()];
        for page in &stored.pages {
            let tuples = (0..page.page.tuples()).map(|tuple| page.page.tuple(tuple) as u64);
            let tuples: Vec<u64> = tuples.collect();
            for tuples in tuples.chunks(rows_max) {
                let rows: Vec<usize> = tuples
                    .iter()
                    // SAFETY: a tuple begins with its hash.
                    .map(|tuple| of_hash[&unsafe { (*tuple as *const u64).read() }])
                    .collect();
                for row in &rows {
                    assert!(
                        self.is_selected[*row] && !std::mem::replace(&mut is_found[*row], true)
                    );
                    let partition = (self.hashes[*row] >> 56) as usize;
                    assert!(page.partition.is_none_or(|number| number == partition));
                }
                self.check_batch(&stored.layout, tuples, &rows);
            }
        }
    }

    fn check_batch(&self, layout: &Layout, tuples: &[u64], rows: &[usize]) {
        // Every third tuple is none at all, for a second look.
        let with_none: Vec<u64> = tuples
            .iter()
            .enumerate()
            .map(|(at, tuple)| if at % 3 == 0 { 0 } else { *tuple })
            .collect();
        for (field, column) in self.columns.iter().enumerate() {
            let lane = self.fields[field].0;
            let mut vector = Vector::new(lane);
            let mut registers = Registers::of(&[Lane::U64]);
            for (tuples, is_all) in [(tuples, true), (&with_none, false)] {
                registers.begin(tuples.len());
                if !is_all {
                    registers.selection.retain(|at| at % 5 != 0);
                }
                // SAFETY: they are tuples of that layout, and alive.
                unsafe { load(tuples, registers.selected(), layout, field, &mut vector) };
                registers.selected().for_each(|at| {
                    let expected = if tuples[at] == 0 { None } else { column[rows[at]].clone() };
                    let found = vector
                        .validity
                        .is_valid(at)
                        .then(|| for_lane!(lane, T => read::<T>(&vector, at)));
                    assert_eq!(found, expected, "field {field}, {lane}");
                });
            }
        }
    }
}

/// A way in which values of a lane may lie in tuples.
fn storage(random: &mut fastrand::Rng, lane: Lane) -> Storage {
    let narrow: Vec<Lane> = Lane::ALL.into_iter().filter(|narrow| narrow.widens_to(lane)).collect();
    match lane {
        _ if random.bool() => Storage::Whole,
        Lane::Str => Storage::Coded,
        _ if narrow.is_empty() => Storage::Whole,
        _ => Storage::Narrow(narrow[random.usize(..narrow.len())]),
    }
}

/// A value of `lane` that fits into a narrower one, whose extremes are frequent.
fn few_bits(random: &mut fastrand::Rng, lane: Lane, narrow: Lane) -> Vec<u8> {
    let bits = 8 * narrow.width() as u32;
    let value = match random.u8(..4) {
        0 => 1i64 << (bits - 1),
        1 => (1i64 << (bits - 1)) - 1,
        _ => random.i64(..),
    };
    let is_signed = matches!(lane, Lane::I16 | Lane::I32 | Lane::I64);
    let value = match is_signed {
        true => value << (64 - bits) >> (64 - bits),
        false => ((value as u64) << (64 - bits) >> (64 - bits)) as i64,
    };
    value.to_le_bytes()[..lane.width()].to_vec()
}

fn write<T: Value>(vector: &mut Vector, row: usize, bytes: &[u8]) {
    if T::LANE == Lane::Str {
        vector.values_mut::<Str>()[row] = Str::new(bytes);
    } else {
        vector.values_mut::<T>()[row] = bytemuck::pod_read_unaligned(bytes);
    }
}

fn read<T: Value>(vector: &Vector, row: usize) -> Vec<u8> {
    match T::LANE {
        // SAFETY: the page that has the bytes is alive.
        Lane::Str => unsafe { vector.values::<Str>()[row].bytes() }.to_vec(),
        Lane::Bool => vec![vector.values::<Bool>()[row].0],
        _ => bytemuck::bytes_of(&vector.values::<T>()[row]).to_vec(),
    }
}

const MODES: [PartitionMode; 3] =
    [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never];

#[test]
fn tuples_come_back() {
    for seed in [1, 2, 3, fastrand::u64(..)] {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..30 {
            let rows = [0, 1, 500, 3000][random.usize(..4)];
            // Now and then strings that are larger than any page.
            let rows_are_short = round % 10 != 0;
            let long_bytes_max = if rows_are_short { 60 } else { 3 * PAGE_BYTES_MAX };
            let rows = if rows_are_short { rows } else { rows / 10 };
            let data = Data::random(&mut random, rows, long_bytes_max);
            let ledger = Ledger::new(1 << 30);
            let layout = Arc::new(Layout::compact(&data.fields));
            let rows_max = [1, 7, VECTOR_ROWS_MAX][random.usize(..3)];
            let mode = MODES[random.usize(..3)];
            // Two workers' parts, put together.
            let mut parts: Vec<Materializer> = (0..2)
                .map(|_| Materializer::new(layout.clone(), "a test", &ledger, mode, true))
                .collect();
            futures::executor::block_on(data.store(&mut parts[0], rows_max)).unwrap();
            let stored: u64 = parts.iter().map(Materializer::bytes).sum();
            assert_eq!(ledger.used(), stored);
            let parts = parts.into_iter().map(Materializer::finish);
            let whole = futures::executor::block_on(Materialized::gather(parts)).unwrap();
            data.check(&whole, rows_max);
            // Few long strings may be as large as what adaptive materializers partition.
            if mode != PartitionMode::Adaptive || rows_are_short {
                let is_partitioned = mode == PartitionMode::Always && whole.tuples() > 0;
                assert_eq!(whole.is_partitioned(), is_partitioned);
            }
            drop(whole);
            assert_eq!(ledger.used(), 0);
        }
    }
}

/// Pages grow until partitions are worth it; each of their tuples is on a page of its partition.
#[test]
fn many_tuples_are_partitioned() {
    let mut random = fastrand::Rng::with_seed(17);
    for mode in MODES {
        let mut data = Data::random(&mut random, 60_000, 30);
        data.fields.push((Lane::Str, true, Storage::Whole));
        let text = |row: usize| {
            (!row.is_multiple_of(9)).then(|| format!("text number {row}").into_bytes())
        };
        data.columns.push((0..data.rows()).map(text).collect());
        data.is_selected.fill(true);
        let ledger = Ledger::new(1 << 30);
        let layout = Arc::new(Layout::compact(&data.fields));
        let mut materializer = Materializer::new(layout, "a test", &ledger, mode, true);
        futures::executor::block_on(data.store(&mut materializer, VECTOR_ROWS_MAX)).unwrap();
        let is_partitioned = mode != PartitionMode::Never;
        assert_eq!(materializer.partitions(), if is_partitioned { PARTITIONS } else { 1 });
        let whole = materializer.finish();
        assert_eq!(whole.is_partitioned(), is_partitioned);
        assert_eq!(
            whole.pages.iter().any(|page| page.partition.is_none()),
            mode != PartitionMode::Always
        );
        assert!(whole.pages.is_sorted_by_key(|page| page.partition));
        let error = whole.sketch.as_ref().unwrap().estimate().abs_diff(60_000);
        assert!(error < 4000, "{error} off");
        data.check(&whole, VECTOR_ROWS_MAX);
        drop(whole);
        assert_eq!(ledger.used(), 0);
    }
}

#[test]
fn tiny_budgets_are_refused_clearly() {
    let mut random = fastrand::Rng::with_seed(23);
    for round in 0..60 {
        let data = Data::random(&mut random, 3000, 40);
        let ledger = Ledger::new([0, 100, 5000, 20_000, 100_000][round % 5]);
        let layout = Arc::new(Layout::compact(&data.fields));
        let mode = MODES[round % 3];
        let mut materializer = Materializer::new(layout, "a test", &ledger, mode, false);
        let result = futures::executor::block_on(data.store(&mut materializer, 2048));
        match result {
            Ok(()) => assert!(round % 5 > 2, "{} bytes", materializer.bytes()),
            Err(error) => {
                assert!(matches!(error, ExecError::Memory { .. }), "{error}");
                assert!(error.to_string().contains("a test needs more memory"), "{error}");
            }
        }
        assert_eq!(ledger.used(), materializer.bytes());
        assert!(ledger.used() <= ledger.limit());
        drop(materializer);
        assert_eq!(ledger.used(), 0);
    }
}

/// No page has room for texts of 4 GiB and more in one row, however much memory there is.
#[test]
fn rows_of_too_long_texts_are_refused() {
    let fields = [(Lane::Str, false, Storage::Whole); 3];
    let mut registers = Registers::of(&[Lane::Str, Lane::Str, Lane::Str, Lane::U64]);
    registers.begin(2);
    for field in 0..3 {
        let vector = registers.vector_mut(Register(field));
        vector.validity.set_all();
        let head = u64::from(b'x') << 32 | 2_000_000_000;
        // Nobody gets to read it.
        let long = Str::at(head, std::ptr::dangling());
        vector.values_mut::<Str>()[..2].copy_from_slice(&[Str::new(b"short"), long]);
    }
    registers.vector_mut(Register(3)).values_mut::<u64>()[..2].fill(7);
    for mode in MODES {
        let ledger = Ledger::new(1 << 40);
        let layout = Arc::new(Layout::compact(&fields));
        let mut materializer = Materializer::new(layout, "a test", &ledger, mode, false);
        let registers_of = [0, 1, 2].map(Register);
        let stored = materializer.store(&registers, Register(3), &registers_of);
        let problem = futures::executor::block_on(stored).unwrap_err();
        assert!(matches!(problem, ExecError::TooLong { .. }), "{problem}");
    }
}
