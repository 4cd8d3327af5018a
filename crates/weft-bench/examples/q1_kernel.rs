//! How fast the kernels of queries 1 and 14 are on one core: in the L2 cache and from memory, with the
//! plain read bandwidth beside them. Medians of several runs, GB/s of page bytes per CPU second.
//!
//! `cargo run --release -p weft-bench --example q1_kernel [page size in bytes]`

use std::hint::black_box;

use memmap2::{Advice, MmapMut};
use rustix::time::{ClockId, clock_gettime};
use weft_bench::SizeClass;
use weft_bench::tpch::layout::{Tuple, seal};
use weft_bench::tpch::lineitem_page::Q1Tuple;
use weft_bench::tpch::{FilterKernel, Q1Kernel, Q1Page, Q1State, Table, ship_month_rows};
use weft_buffer::page::PageId;
use weft_rt::Ahead;

const MEMORY_BYTES: usize = 1 << 30;
const CACHE_BYTES: usize = 1 << 20;
const RUNS: usize = 9;

fn main() {
    let page_bytes = std::env::args().nth(1).map_or(65536, |text| text.parse().expect("bytes"));
    let class = SizeClass::from_bytes(page_bytes).expect("a power of two from 4096 to 1048576");
    let mut memory = MmapMut::map_anon(MEMORY_BYTES).expect("1 GiB of memory");
    if let Err(error) = memory.advise(Advice::HugePage) {
        println!("no huge pages: {error}");
    }
    fill(&mut memory, class);
    let tuples = Table::LineitemQ1.capacity(class);
    println!("page size {class:?}, {tuples} tuples a page");

    let small = &memory[..CACHE_BYTES];
    let read = |bytes: &[u8]| {
        let words: &[u64] = bytemuck::cast_slice(bytes);
        black_box(words.iter().fold(0, |or, word| or | word));
    };
    let row = |name: &str, cache: f64, memory: f64, per_byte: f64| {
        println!(
            "{name:<18} {cache:7.1} GB/s in L2 ({:6.0} M tuples/s)  {memory:7.1} GB/s from memory ({:6.0} M tuples/s)",
            cache * 1000.0 * per_byte,
            memory * 1000.0 * per_byte,
        );
    };
    let per_byte = tuples as f64 / page_bytes as f64;
    let plain = [speed(small, 200, read), speed(&memory, 1, read)];
    row("plain read", plain[0], plain[1], per_byte);
    for kernel in Q1Kernel::available() {
        let sum = |bytes: &[u8]| {
            let mut state = Q1State::with_kernel(kernel);
            for page in bytes.chunks_exact(page_bytes) {
                state
                    .add_page(Q1Page::new(page).expect("a page"), Ahead::NOTHING)
                    .expect("no overflow");
            }
            assert_eq!(state.exact_pages(), 0);
            black_box(state.rows().expect("no overflow"));
        };
        let name = format!("Q1 {kernel:?}");
        row(&name, speed(small, 200, sum), speed(&memory, 1, sum), per_byte);
    }

    // The filter of query 14 reads dates only: the same memory, now dates over 7 years.
    let mut random = fastrand::Rng::with_seed(2);
    let dates: &mut [i32] = bytemuck::cast_slice_mut(&mut memory);
    dates.fill_with(|| random.i32(8036..10562));
    let small = &memory[..CACHE_BYTES];
    let mut rows = Vec::with_capacity(MEMORY_BYTES / 64);
    for kernel in FilterKernel::available() {
        let mut filter = |bytes: &[u8]| {
            rows.clear();
            ship_month_rows(bytemuck::cast_slice(bytes), Some(kernel), &mut rows);
            black_box(&rows);
        };
        let cache = speed(small, 200, &mut filter);
        let name = format!("Q14 filter {kernel:?}");
        row(&name, cache, speed(&memory, 1, &mut filter), 0.25);
    }
}

/// Time that this thread had a core, so that other load on the machine counts less.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Median GB/s of `work` over `bytes`, `times` times a run.
fn speed(bytes: &[u8], times: usize, mut work: impl FnMut(&[u8])) -> f64 {
    work(bytes);
    let mut speeds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = cpu_seconds();
            for _ in 0..times {
                work(black_box(bytes));
            }
            (bytes.len() * times) as f64 / (cpu_seconds() - start) / 1e9
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    speeds[RUNS / 2]
}

/// Full pages of tuples with TPC-H's distributions of values, flags and dates.
fn fill(memory: &mut [u8], class: SizeClass) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut tuple = || {
        let shipdate = random.i32(8036..10562);
        let group = match (shipdate, random.bool()) {
            (..9280, true) => (b'A', b'F'),
            (..9280, false) => (b'R', b'F'),
            (9280..9299, _) => (b'N', b'F'),
            _ => (b'N', b'O'),
        };
        Q1Tuple {
            quantity: 100 * random.i64(1..=50),
            extendedprice: random.i64(90_000..=10_495_000),
            discount: random.i64(0..=10),
            tax: random.i64(0..=8),
            shipdate,
            returnflag: group.0,
            linestatus: group.1,
        }
    };
    let capacity = Table::LineitemQ1.capacity(class);
    for (number, page) in memory.chunks_exact_mut(class.bytes()).enumerate() {
        let tuples: Vec<_> = (0..capacity).map(|_| tuple()).collect();
        Q1Tuple::write_page(&tuples, page);
        let id = PageId::new(0, (number * class.bytes()) as u64, class.bytes());
        seal(Table::LineitemQ1, page, capacity, id);
    }
}
