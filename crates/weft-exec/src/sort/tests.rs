//! Sorts of entries by all digits of their keys against a sort that compares tuples.

use std::collections::HashSet;
use std::sync::Arc;

use futures::executor::block_on;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

use super::digit::Digit;
use super::entries::{Entry, PIECE, all_entries, bytes_to_sort, entries_of, sort};
use super::groups::{cut_between_groups, sort_groups};
use super::order::{Order, SortKey};
use super::radix::sort_by_bits;
use crate::for_lane;
use crate::lane::{Lane, Value, for_short_integer};
use crate::pace::Pace;
use crate::program::Register;
use crate::query::{Context, PartitionMode};
use crate::registers::Registers;
use crate::text::Str;
use crate::tuple::{Layout, Materialized, Materializer};
use crate::vector::VECTOR_ROWS_MAX;

/// Random values of a lane, of which many have much in common.
struct Values {
    lane: Lane,
    /// How many differ, at most; some have any value.
    few: u64,
    /// Strings begin with it.
    prefix: Vec<u8>,
    /// Lengths of what follows.
    length_max: usize,
    alphabet: &'static [u8],
}

impl Values {
    fn new(lane: Lane, random: &mut fastrand::Rng) -> Values {
        let few = [1, 3, 100, u64::MAX][random.usize(..4)];
        let lengths = [0, 1, 6, 7, 8, 9, 12, 13, 15, 22, 100];
        let prefix = vec![b'p'; lengths[random.usize(..lengths.len())]];
        let length_max = lengths[random.usize(..lengths.len())];
        let alphabets: [&[u8]; 4] = [b"\0", b"\0a", b"ab\xff", b"abcdefghijklmnopqrstuvwxyz"];
        Values { lane, few, prefix, length_max, alphabet: alphabets[random.usize(..4)] }
    }

    fn string(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut string = self.prefix.clone();
        // Some are cut off.
        string.truncate(if random.u8(..) < 20 {
            random.usize(..=string.len())
        } else {
            usize::MAX
        });
        let length = random.usize(..=self.length_max);
        string.extend((0..length).map(|_| self.alphabet[random.usize(..self.alphabet.len())]));
        string
    }

    /// The bytes of a value of up to 16 bytes.
    fn bytes(&self, random: &mut fastrand::Rng) -> [u8; 16] {
        let small = random.u64(..).checked_rem(self.few).unwrap_or_default();
        match self.lane {
            Lane::Bool => u128::from(random.bool()).to_le_bytes(),
            Lane::F64 => {
                let values = [-0.0, 0.0, f64::NAN, -f64::NAN, f64::INFINITY, -1.5, small as f64];
                u128::from(values[random.usize(..values.len())].to_bits()).to_le_bytes()
            }
            Lane::F32 => {
                let values = [-0.0, 0.0, f32::NAN, -f32::NAN, f32::NEG_INFINITY, 2.5, small as f32];
                u128::from(values[random.usize(..values.len())].to_bits()).to_le_bytes()
            }
            // Some differ in the upper half, some in the lower one.
            Lane::I128 => {
                let halves = [small, u64::MAX - small, 0, u64::MAX, 1 << 63];
                let mut half = || u128::from(halves[random.usize(..halves.len())]);
                (half() << 64 | half()).to_le_bytes()
            }
            _ => u128::from(small).to_le_bytes(),
        }
    }
}

/// Tuples in memory, and an order of them.
struct Case {
    order: Arc<Order>,
    stored: Arc<Vec<Materialized>>,
}

impl Case {
    fn random(tuples: usize, random: &mut fastrand::Rng) -> Case {
        // Strings are what it is about.
        let lane = |random: &mut fastrand::Rng| {
            let lanes: Vec<Lane> = Lane::ALL.iter().copied().chain([Lane::Str; 12]).collect();
            lanes[random.usize(..lanes.len())]
        };
        let fields: Vec<(Lane, bool)> =
            (0..random.usize(1..5)).map(|_| (lane(random), random.bool())).collect();
        let layout = Arc::new(Layout::new(&fields));
        let values: Vec<Values> =
            fields.iter().map(|(lane, _)| Values::new(*lane, random)).collect();
        let bounds = |values: &Values| {
            for_short_integer!(values.lane, T => {
                (T::try_from(values.few).is_ok()).then_some((0, i128::from(values.few)))
            }, else None)
        };
        let keys = (0..random.usize(1..4)).map(|_| {
            let field = random.usize(..fields.len());
            let (descending, nulls_first) = (random.bool(), random.bool());
            SortKey { field, descending, nulls_first, bounds: bounds(&values[field]) }
        });
        let order = Arc::new(Order::new(layout, keys.collect()));
        let stored = store(&order, &values, tuples, random);
        Case { order, stored: Arc::new(vec![stored]) }
    }

    fn entries(&self) -> Vec<Entry> {
        let pages = self.stored.iter().flat_map(|stored| &stored.pages);
        block_on(entries_of(pages.map(|stored| &stored.page)))
    }

    fn check(&self, entries: &[Entry]) {
        let mut expected = self.entries();
        assert_eq!(entries.len(), expected.len());
        // SAFETY: the tuples are alive, and of the order.
        unsafe {
            let compare = |a: &Entry, b: &Entry| {
                self.order.compare(a.tuple as *const u8, b.tuple as *const u8)
            };
            expected.sort_by(compare);
            let pairs = entries.iter().zip(&expected);
            for (number, (entry, expected)) in pairs.enumerate() {
                assert!(compare(entry, expected).is_eq(), "entry {number} by {:?}", self.order);
                assert_eq!(*entry, Entry::of(entry.tuple as *const u8), "bits are put back");
            }
        }
        let tuples: HashSet<u64> = entries.iter().map(|entry| entry.tuple).collect();
        assert_eq!(tuples.len(), entries.len(), "no tuple comes twice");
    }
}

fn store(
    order: &Order,
    values: &[Values],
    tuples: usize,
    random: &mut fastrand::Rng,
) -> Materialized {
    let layout = order.layout();
    let lanes: Vec<Lane> = values.iter().map(|of| of.lane).chain([Lane::U64]).collect();
    let mut registers = Registers::of(&lanes);
    let fields: Vec<Register> = (0..values.len() as u16).map(Register).collect();
    let bits = Register(values.len() as u16);
    let ledger = Ledger::new(1 << 30);
    let mut materializer =
        Materializer::new(layout.clone(), "a test", &ledger, PartitionMode::Never, false);
    for start in (0..tuples).step_by(VECTOR_ROWS_MAX) {
        let rows = VECTOR_ROWS_MAX.min(tuples - start);
        registers.begin(rows);
        let mut strings = Vec::new();
        for (number, of) in values.iter().enumerate() {
            let vector = registers.vector_mut(Register(number as u16));
            vector.validity.set_all();
            let is_nullable = layout.field(number).null_bit.is_some();
            for row in 0..rows {
                if is_nullable && random.u8(..) < 60 {
                    vector.validity.set(row, false);
                }
                if of.lane == Lane::Str {
                    strings.push(of.string(random));
                    vector.values_mut::<Str>()[row] = Str::new(&strings[strings.len() - 1]);
                } else {
                    let bytes = of.bytes(random);
                    for_lane!(of.lane, T => vector.values_mut::<T>()[row] = value::<T>(&bytes));
                }
            }
        }
        order.prepare(&mut registers, &fields, bits);
        block_on(materializer.store(&registers, bits, &fields)).expect("memory");
    }
    materializer.finish()
}

fn value<T: Value>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()])
}

#[test]
fn digits_order_tuples_as_comparisons_do() {
    for seed in [1, 2, 3, fastrand::u64(..)] {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..50 {
            let few = [2, 10, 300, 3000][random.usize(..4)];
            let tuples = if round < 2 { 2 * PIECE } else { few };
            let case = Case::random(tuples, &mut random);
            let mut entries = case.entries();
            let mut pace = Pace::default();
            let digit = Digit::of_headers(&case.order);
            block_on(sort_by_bits(&mut entries, &mut pace));
            let most = [1, 10, PIECE][random.usize(..3)];
            for part in block_on(cut_between_groups(&entries, most, &mut pace)) {
                let part = &mut entries[part];
                // SAFETY: the tuples are alive, and of the order.
                block_on(unsafe { sort_groups(part, &digit, &case.order, &mut pace) });
            }
            case.check(&entries);
        }
    }
}

#[test]
fn long_strings_are_compared_to_their_ends() {
    let mut random = fastrand::Rng::with_seed(4);
    let values = Values {
        lane: Lane::Str,
        few: 0,
        prefix: vec![b'x'; 100_000],
        length_max: 2,
        alphabet: b"\0a",
    };
    let layout = Arc::new(Layout::new(&[(Lane::Str, true)]));
    for descending in [false, true] {
        let keys = vec![SortKey { descending, ..SortKey::default() }];
        let order = Arc::new(Order::new(layout.clone(), keys));
        let stored = store(&order, std::slice::from_ref(&values), 500, &mut random);
        let case = Case { order, stored: Arc::new(vec![stored]) };
        let mut entries = case.entries();
        let mut pace = Pace::default();
        let digit = Digit::of_headers(&case.order);
        block_on(sort_by_bits(&mut entries, &mut pace));
        // SAFETY: the tuples are alive, and of the order.
        block_on(unsafe { sort_groups(&mut entries, &digit, &case.order, &mut pace) });
        case.check(&entries);
    }
}

#[test]
fn workers_sort_groups_of_any_size() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for workers in [1, 3] {
        let options =
            RuntimeOptions { workers, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
        let runtime = Arc::new(Runtime::new(&options).expect("a runtime"));
        let context = Context::new(runtime, Ledger::new(1 << 30));
        for pieces in [1, 2, 3, 5] {
            let tuples = pieces * PIECE - random.usize(..PIECE);
            let case = Arc::new(Case::random(tuples, &mut random));
            let (sorting, context_of_task) = (case.clone(), context.clone());
            let sorted = context.on_a_worker(move || async move {
                let (case, context) = (sorting, context_of_task);
                let entries = all_entries(&case.stored, &context).await?;
                let bytes = bytes_to_sort(entries.len());
                let mut memory = context.ledger.try_reserve(bytes).expect("memory");
                // SAFETY: the tuples are alive, and of the order.
                let sorted = unsafe {
                    sort(entries, &case.order, &case.stored, &mut memory, &context).await
                };
                assert_eq!(memory.bytes(), bytes / 2);
                sorted
            });
            case.check(&block_on(sorted).expect("nothing goes wrong"));
        }
    }
}
