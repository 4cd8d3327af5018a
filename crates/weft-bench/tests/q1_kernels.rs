//! Every kernel of query 1 against sums computed tuple by tuple in 128 bits.

use std::collections::BTreeMap;

use fastrand::Rng;
use weft_bench::SizeClass;
use weft_bench::tpch::layout::{Tuple, seal};
use weft_bench::tpch::lineitem_page::Q1Tuple;
use weft_bench::tpch::q1::{LAST_SHIPDATE, Q1Groups, Q1Sums};
use weft_bench::tpch::{Q1Kernel, Q1Page, Q1State, Table, TpchError};
use weft_buffer::page::PageId;
use weft_rt::Ahead;

fn page_of(tuples: &[Q1Tuple], class: SizeClass) -> Vec<u64> {
    let mut words = vec![0u64; class.bytes() / 8];
    let page = bytemuck::cast_slice_mut(&mut words);
    Q1Tuple::write_page(tuples, page);
    seal(Table::LineitemQ1, page, tuples.len(), PageId::new(0, 0, class.bytes()));
    words
}

/// The definition of the query, without any of the engine's code.
fn expected(tuples: &[Q1Tuple]) -> Q1Groups {
    let mut groups: BTreeMap<(u8, u8), Q1Sums> = BTreeMap::new();
    for t in tuples.iter().filter(|t| t.shipdate <= 10471) {
        let group = groups.entry((t.returnflag, t.linestatus)).or_default();
        let disc_price = t.extendedprice as i128 * (100 - t.discount as i128);
        group.quantity += t.quantity as i128;
        group.base_price += t.extendedprice as i128;
        group.discount += t.discount as i128;
        group.disc_price += disc_price;
        group.charge += disc_price * (100 + t.tax as i128);
        group.count += 1;
    }
    groups
}

fn check(tuples: &[Q1Tuple], class: SizeClass, exact: bool, what: &str) {
    let words = page_of(tuples, class);
    let page = Q1Page::new(bytemuck::cast_slice(&words)).expect("a page");
    for kernel in Q1Kernel::available() {
        let mut state = Q1State::with_kernel(kernel);
        state.add_page(page, Ahead::NOTHING).expect("no overflow");
        assert_eq!(*state.groups().expect("no overflow"), expected(tuples), "{kernel:?}, {what}");
        assert_eq!(state.exact_pages(), u64::from(exact), "{kernel:?}, {what}");
    }
}

fn like_tpch(random: &mut Rng) -> Q1Tuple {
    let (returnflag, linestatus) =
        [(b'A', b'F'), (b'N', b'F'), (b'N', b'O'), (b'R', b'F')][random.usize(..4)];
    Q1Tuple {
        quantity: 100 * random.i64(1..=50),
        extendedprice: random.i64(90_000..=10_495_000),
        discount: random.i64(0..=10),
        tax: random.i64(0..=8),
        shipdate: LAST_SHIPDATE + random.i32(-100..=5),
        returnflag,
        linestatus,
    }
}

/// Values at the borders of what the fast kernels take.
fn at_the_borders(random: &mut Rng) -> Q1Tuple {
    Q1Tuple {
        quantity: [0, (1 << 24) - 1][random.usize(..2)],
        extendedprice: [0, (1 << 24) - 1][random.usize(..2)],
        discount: [0, 100, 101, 127][random.usize(..4)],
        tax: [0, 127][random.usize(..2)],
        shipdate: [LAST_SHIPDATE, LAST_SHIPDATE + 1, i32::MIN, i32::MAX][random.usize(..4)],
        ..like_tpch(random)
    }
}

fn seeds() -> [u64; 4] {
    let fresh = fastrand::u64(..);
    println!("fresh seed {fresh}");
    [1, 2, 3, fresh]
}

#[test]
fn every_tuple_count() {
    for seed in seeds() {
        let mut random = Rng::with_seed(seed);
        for count in (0..=107).chain([128, 129, 1000, 1723, 1724]) {
            let class = SizeClass::from_bytes(if count <= 107 { 4096 } else { 65536 });
            let tuples: Vec<_> = (0..count).map(|_| like_tpch(&mut random)).collect();
            check(&tuples, class.expect("a class"), false, &format!("{count} tuples, seed {seed}"));
            let tuples: Vec<_> = (0..count).map(|_| at_the_borders(&mut random)).collect();
            check(
                &tuples,
                class.expect("a class"),
                false,
                &format!("{count} borders, seed {seed}"),
            );
        }
    }
}

#[test]
fn every_page_size_when_full_of_the_largest_values() {
    for class in (0..=8).filter_map(SizeClass::from_index) {
        let largest = Q1Tuple {
            quantity: (1 << 24) - 1,
            extendedprice: (1 << 24) - 1,
            discount: 127,
            tax: 127,
            shipdate: 0,
            returnflag: b'R',
            linestatus: b'F',
        };
        let tuples = vec![largest; Table::LineitemQ1.capacity(class)];
        check(&tuples, class, false, "discounts of 1.27");
        let tuples = vec![Q1Tuple { discount: 0, ..largest }; tuples.len()];
        check(&tuples, class, false, "no discount");
    }
}

#[test]
fn one_odd_tuple_anywhere_sends_the_page_to_the_exact_path() {
    let class = SizeClass::MIN;
    let mut random = Rng::with_seed(5);
    let tuples: Vec<_> =
        (0..107).map(|_| Q1Tuple { shipdate: 0, ..like_tpch(&mut random) }).collect();
    type Change = (&'static str, fn(&mut Q1Tuple));
    let changes: [Change; 17] = [
        ("price 2^24", |t| t.extendedprice = 1 << 24),
        ("price 2^31", |t| t.extendedprice = 1 << 31),
        ("price 2^32", |t| t.extendedprice = 1 << 32),
        ("price -1", |t| t.extendedprice = -1),
        ("largest price", |t| t.extendedprice = i64::MAX),
        ("smallest price", |t| t.extendedprice = i64::MIN),
        ("quantity 2^24", |t| t.quantity = 1 << 24),
        ("largest quantity", |t| t.quantity = i64::MAX),
        ("smallest quantity", |t| t.quantity = i64::MIN),
        ("discount 128", |t| t.discount = 128),
        ("discount 2^32", |t| t.discount = 1 << 32),
        ("discount -1", |t| t.discount = -1),
        ("smallest tax", |t| t.tax = i64::MIN),
        ("tax 128", |t| t.tax = 128),
        ("flag X", |t| t.returnflag = b'X'),
        ("status 0", |t| t.linestatus = 0),
        ("group AO", |t| (t.returnflag, t.linestatus) = (b'A', b'O')),
    ];
    for (what, change) in changes {
        for at in 0..tuples.len() {
            let mut tuples = tuples.clone();
            change(&mut tuples[at]);
            check(&tuples, class, true, &format!("{what} at {at}"));
        }
    }
    // After the query's date no flag matters.
    let mut tuples = tuples;
    tuples[50] = Q1Tuple { returnflag: 0, linestatus: 255, shipdate: 10472, ..tuples[50] };
    check(&tuples, class, false, "unknown flags after the date");
}

#[test]
fn any_flags_and_values_at_once() {
    for seed in seeds() {
        let mut random = Rng::with_seed(seed);
        let odd = |random: &mut Rng| Q1Tuple {
            quantity: random.i64(..),
            extendedprice: random.i64(..),
            discount: random.i64(-1 << 30..1 << 30),
            tax: random.i64(-1 << 30..1 << 30),
            shipdate: random.i32(..),
            returnflag: random.u8(..),
            linestatus: random.u8(..),
        };
        let tuples: Vec<_> = (0..1724).map(|_| odd(&mut random)).collect();
        let class = SizeClass::from_bytes(65536).expect("a class");
        check(&tuples, class, true, &format!("seed {seed}"));
    }
}

#[test]
fn many_pages_and_merged_states() {
    let class = SizeClass::MAX;
    let mut random = Rng::with_seed(9);
    // One group and the largest charges: they overflow 64 bits after 24 million tuples.
    let tuple = Q1Tuple {
        extendedprice: (1 << 24) - 1,
        discount: 0,
        tax: 127,
        shipdate: 0,
        ..like_tpch(&mut random)
    };
    let tuples = vec![tuple; Table::LineitemQ1.capacity(class)];
    let words = page_of(&tuples, class);
    let page = Q1Page::new(bytemuck::cast_slice(&words)).expect("a page");
    let pages = 901u64;
    for kernel in Q1Kernel::available() {
        let mut all = Q1State::with_kernel(kernel);
        let mut other = all.clone();
        other.add_page(page, Ahead::NOTHING).expect("no overflow");
        for _ in 1..pages {
            all.add_page(page, Ahead::NOTHING).expect("no overflow");
        }
        all.merge(other).expect("no overflow");
        for (key, sums) in expected(&tuples) {
            let times = |sum: i128| sum * i128::from(pages);
            let expected = Q1Sums {
                quantity: times(sums.quantity),
                base_price: times(sums.base_price),
                discount: times(sums.discount),
                disc_price: times(sums.disc_price),
                charge: times(sums.charge),
                count: sums.count * pages,
            };
            assert_eq!(all.groups().expect("no overflow")[&key], expected, "{kernel:?}");
        }
    }
}

#[test]
fn a_sum_beyond_128_bits_is_an_error() {
    let huge = Q1Tuple {
        quantity: 0,
        extendedprice: i64::MAX,
        discount: i64::MIN,
        tax: i64::MAX,
        shipdate: 0,
        returnflag: b'A',
        linestatus: b'F',
    };
    let words = page_of(&[huge], SizeClass::MIN);
    let page = Q1Page::new(bytemuck::cast_slice(&words)).expect("a page");
    for kernel in Q1Kernel::available() {
        let result = Q1State::with_kernel(kernel).add_page(page, Ahead::NOTHING);
        assert!(matches!(result, Err(TpchError::Overflow { query: 1 })), "{kernel:?}");
    }
}
