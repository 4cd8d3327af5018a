//! TPC-H query 14 as an index-nested-loop join: Figure 8 of the ADMS paper (section 3.2).
//!
//! Lineitem is in memory; the hash index on part maps a key to a swip and a tuple offset. Every
//! lookup is a chain of waits: bucket, entry, and page are prefetched, or the page is read.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use weft_buffer::{Choice, StaticPool};
use weft_rt::{MorselQueue, Runtime, prefetch};

use crate::args::{LookupArgs, distinct};
use crate::data;
use crate::error::BenchError;
use crate::harness::{Config, Runs, Target, compare_with_blocking, configs};
use crate::report::{Machine, Point};
use crate::size_class::SizeClass;
use crate::tpch::{
    Answers, LineitemColumns, PageTable, PartEntry, PartIndex, PartPage, Q14Sum, Table,
    part_page_accesses, q14, ship_month_rows,
};

/// I/O depths where none are given.
const DEPTHS: [u32; 2] = [64, 512];

/// Page size of the lineitem file, which is read once, into memory.
const LINEITEM_PAGE: usize = 64 << 10;

/// What the query joins.
struct Join {
    lineitem: LineitemColumns,
    index: PartIndex,
    tuples_per_morsel: u64,
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a device fails or an answer is wrong.
pub fn run(args: &LookupArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    args.device.check()?;
    let directories = args.device.directories(&args.common);
    let class = SizeClass::from_bytes(LINEITEM_PAGE).expect("a page size");
    let table = data::table(Table::LineitemQ14, args.table.scale, class, &directories)?;
    let mut lineitem = LineitemColumns::load(&table)?;
    let mut points = Vec::new();
    for class in distinct(&args.page_size) {
        let parts = data::table(Table::Part, args.table.scale, class, &directories)?;
        let index = PartIndex::build(&parts)?;
        let join = Arc::new(Join { lineitem, index, tuples_per_morsel: u64::from(args.morsel) });
        points.extend(sweep(args, &parts, &join, machine)?);
        lineitem = Arc::into_inner(join).expect("all runs have ended").lineitem;
    }
    compare_with_blocking(&mut points);
    Ok(points)
}

fn sweep(
    args: &LookupArgs,
    parts: &PageTable,
    join: &Arc<Join>,
    machine: &Machine,
) -> Result<Vec<Point>, BenchError> {
    let answers = Answers::of(&parts.spec)?;
    let accesses = part_page_accesses(&join.lineitem, &join.index, parts.page_ids.len());
    let lookups: u64 = accesses.iter().map(|&count| u64::from(count)).sum();
    let depths = args.device.depths(&DEPTHS);
    let configs = configs(&args.common, &args.device, &depths, &args.table.boundary);
    let seed = args.common.seed;
    let fractions = args.table.fractions();
    let most = fractions.last().copied().unwrap_or(0.0);
    let mut targets = Target::all(parts, &args.device, &configs, seed, &machine.device, most)?;
    let bar = data::measuring("lookup", fractions.len() * configs.len(), &args.common);
    let mut points = Vec::new();
    for fraction in fractions {
        for target in &mut targets {
            target.grow_cache(Choice::Accesses(fraction, &accesses))?;
        }
        let mut runs: Vec<Runs> = configs.iter().map(|_| Runs::default()).collect();
        for _ in 0..args.common.repeat {
            for (config, runs) in configs.iter().zip(&mut runs) {
                let target = Target::of(&mut targets, config.driver);
                runs.measure(target, config, |runtime| {
                    let sum = look_up(runtime, &target.pool, config, join)?;
                    Ok(q14::check(&sum, &answers.q14)?)
                })?;
                bar.inc(1);
            }
        }
        for (config, runs) in configs.iter().zip(&mut runs) {
            let target = Target::of(&mut targets, config.driver);
            let mut point = runs.point("lookup", config, target);
            point.cached = Some(fraction);
            point.scale = Some(parts.spec.scale_factor);
            point.lookups_per_s = Some(lookups as f64 / point.seconds);
            points.push(point);
        }
    }
    Ok(points)
}

/// What the coroutines of a worker share.
#[derive(Default)]
struct Local {
    sum: Cell<Q14Sum>,
    /// Vectors of row numbers that no coroutine uses at the moment.
    spare_rows: RefCell<Vec<Vec<u32>>>,
}

/// One run of the query.
fn look_up(
    runtime: &Runtime,
    pool: &Arc<StaticPool>,
    config: &Config,
    join: &Arc<Join>,
) -> Result<Q14Sum, BenchError> {
    let queue = MorselQueue::new(join.lineitem.len() as u64, join.tuples_per_morsel);
    let (pool, join) = (pool.clone(), join.clone());
    let run = runtime.run_morsels(
        &config.morsel_options(),
        move |_| queue.next(),
        |_| Local::default(),
        move |local, morsel| look_up_morsel(pool.clone(), join.clone(), local, morsel),
    );
    let mut total = Q14Sum::default();
    for local in run.wait()? {
        total.merge(local.sum.get());
    }
    Ok(total)
}

/// The coroutine of a morsel.
async fn look_up_morsel(
    pool: Arc<StaticPool>,
    join: Arc<Join>,
    local: Rc<Local>,
    morsel: Range<u64>,
) -> Result<(), BenchError> {
    let (start, end) = (morsel.start as usize, morsel.end as usize);
    let mut rows = local.spare_rows.borrow_mut().pop().unwrap_or_default();
    rows.clear();
    ship_month_rows(&join.lineitem.shipdate[start..end], None, &mut rows);
    for &row in &rows {
        let row = start + row as usize;
        let Some(entry) = find(&join.index, join.lineitem.partkey[row]).await else { continue };
        let page = pool.fix(pool.table().swip(entry.page as usize)).await?;
        let part = PartPage::new(&page)
            .map_err(|source| BenchError::layout(&pool, entry.page as usize, source))?;
        let is_promo = part.is_promo(usize::from(entry.tuple));
        let mut sum = local.sum.get();
        sum.add(join.lineitem.extendedprice[row], join.lineitem.discount[row], is_promo);
        local.sum.set(sum);
    }
    local.spare_rows.borrow_mut().push(rows);
    Ok(())
}

/// The entry of a part: prefetches and suspends at each step of the chain.
async fn find(index: &PartIndex, partkey: u32) -> Option<&PartEntry> {
    let bucket = index.bucket(partkey);
    prefetch(index.bucket_address(bucket)).await;
    let mut next = index.first(bucket);
    while let Some(entry) = next {
        prefetch(index.entry_address(entry)).await;
        let entry = index.entry(entry);
        if entry.key == partkey {
            return Some(entry);
        }
        next = entry.next();
    }
    None
}
