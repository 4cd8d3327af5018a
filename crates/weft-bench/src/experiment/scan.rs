//! TPC-H query 1 over pages of which a chosen fraction is in memory: Figures 5, 6 and 7 of the ADMS
//! paper (sections 3.1.1 and 3.1.2).

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use weft_buffer::{Choice, StaticPool};
use weft_rt::{Ahead, MorselQueue, Runtime, announce, announced};

use crate::args::{ScanArgs, distinct};
use crate::data;
use crate::dram;
use crate::error::BenchError;
use crate::fio::{self, FioJob};
use crate::harness::{Config, Runs, Target, compare_with_blocking, configs};
use crate::optimum::Optimum;
use crate::report::{Machine, Point};
use crate::tpch::{Answers, PageTable, Q1Page, Q1State, Table, q1};

/// I/O depths where none are given.
const DEPTHS: [u32; 2] = [64, 128];

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a device fails or an answer is wrong.
pub fn run(args: &ScanArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let mut points = Vec::new();
    args.device.check()?;
    for class in distinct(&args.page_size) {
        let directories = args.device.directories(&args.common);
        let table = data::table(Table::LineitemQ1, args.table.scale, class, &directories)?;
        points.extend(sweep(args, &table, machine)?);
    }
    compare_with_blocking(&mut points);
    Ok(points)
}

fn sweep(args: &ScanArgs, table: &PageTable, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let answers = Answers::of(&table.spec)?;
    let depths = args.device.depths(&DEPTHS);
    let configs = configs(&args.common, &args.device, &depths, &args.table.boundary);
    let seed = args.common.seed;
    let fractions = args.table.fractions();
    let most = fractions.last().copied().unwrap_or(0.0);
    let mut targets = Target::all(table, &args.device, &configs, seed, &machine.device, most)?;
    let bar = data::measuring("scan", fractions.len() * configs.len(), &args.common);
    let pages_per_morsel =
        u64::from(args.morsel).div_ceil(Table::LineitemQ1.capacity(table.spec.class) as u64);
    let mut optimum = Optimum::new(&args.common.threads(), args.common.repeat, &args.device.sim)?;
    let mut points = Vec::new();
    for fraction in fractions {
        for target in &mut targets {
            target.grow_cache(Choice::Pages(fraction))?;
        }
        let mut runs: Vec<Runs> = configs.iter().map(|_| Runs::default()).collect();
        let mut fio_gb_per_s: Vec<(u32, f64)> = Vec::new();
        for _ in 0..args.common.repeat {
            optimum.measure_devices(&configs, &targets)?;
            for (config, runs) in configs.iter().zip(&mut runs) {
                let target = Target::of(&mut targets, config.driver);
                runs.measure(target, config, |runtime| {
                    let rows = scan(runtime, &target.pool, config, pages_per_morsel)?.rows()?;
                    Ok(q1::check(&rows, &answers.q1)?)
                })?;
                bar.inc(1);
            }
            if args.device.fio && fraction == 0.0 {
                for threads in args.common.threads() {
                    fio_gb_per_s.push((threads, fio_bandwidth(table, &depths, threads)?));
                }
            }
        }
        for (config, runs) in configs.iter().zip(&mut runs) {
            let target = Target::of(&mut targets, config.driver);
            let mut point = runs.point("scan", config, target);
            let gb_per_s = target.pool.table().bytes() as f64 / point.seconds / 1e9;
            let of_fio = fio_gb_per_s.iter().filter(|(threads, _)| *threads == config.threads);
            let of_fio: Vec<f64> = of_fio.map(|(_, gb_per_s)| *gb_per_s).collect();
            if !of_fio.is_empty() && !config.driver.is_simulated() {
                point.ratio_to_fio = Some(gb_per_s / dram::median(of_fio.into_iter()));
            }
            point.cached = Some(fraction);
            point.scale = Some(table.spec.scale_factor);
            point.gb_per_s = Some(gb_per_s);
            point.optimum_gb_per_s = Some(optimum.gb_per_s(config, fraction));
            points.push(point);
        }
    }
    Ok(points)
}

/// One run of the query.
fn scan(
    runtime: &Runtime,
    pool: &Arc<StaticPool>,
    config: &Config,
    pages_per_morsel: u64,
) -> Result<Q1State, BenchError> {
    let queue = MorselQueue::new(pool.table().len() as u64, pages_per_morsel);
    let pool = pool.clone();
    let run = runtime.run_morsels(
        &config.morsel_options(),
        move |_| queue.next(),
        |_| RefCell::new(Q1State::new()),
        move |state, morsel| scan_morsel(pool.clone(), state, morsel),
    );
    let mut total = Q1State::new();
    for state in run.wait()? {
        total.merge(state.into_inner())?;
    }
    Ok(total)
}

/// The coroutine of a morsel.
async fn scan_morsel(
    pool: Arc<StaticPool>,
    state: Rc<RefCell<Q1State>>,
    morsel: Range<u64>,
) -> Result<(), BenchError> {
    for number in morsel {
        let swips = pool.table().swips();
        let swip = &swips[number as usize];
        let (page, mut ahead) = match pool.try_fix(swip) {
            Some(page) => {
                let ahead = announce(&page).await;
                (page, ahead)
            }
            // Whoever read the page has just verified it: it is in the cache.
            None => (pool.fix(swip).await?, announced()),
        };
        if ahead.is_empty()
            && let Some(next) = swips.get(number as usize + 1).and_then(|swip| pool.try_fix(swip))
        {
            // Nobody else is about to run: the page after this one is likely the next.
            ahead = Ahead::of(&next);
        }
        let columns = Q1Page::new(&page)
            .map_err(|source| BenchError::layout(&pool, number as usize, source))?;
        state.borrow_mut().add_page(columns, ahead)?;
    }
    Ok(())
}

/// Bandwidth of fio reading the same files in order.
fn fio_bandwidth(table: &PageTable, depths: &[u32], threads: u32) -> Result<f64, BenchError> {
    let job = FioJob {
        files: table.stripes.clone(),
        block_bytes: table.spec.class.bytes(),
        depth: depths.iter().copied().max().unwrap_or(1),
        threads,
        random: false,
        seconds: 1.0,
    };
    Ok(fio::run(&job)?.gb_per_s)
}
