//! What a run says to a claim: small measurements over the points of one experiment on one device, each
//! as a sentence with its numbers, `None` where the points for it are missing.

use super::Point;
use super::series::{Dim, group, widest_slice};
use super::units::{number, percent, plural, ratio};

/// A rate and its unit.
#[derive(Clone, Copy)]
pub struct Rate {
    of: fn(&Point) -> Option<f64>,
    unit: &'static str,
}

/// Throughput of a scan or of reads.
pub const SCAN: Rate = Rate { of: |point| point.gb_per_s, unit: "GB/s" };
/// Index lookups.
pub const LOOKUPS: Rate = Rate { of: |point| point.lookups_per_s, unit: "lookups/s" };

impl Rate {
    fn best<'a>(self, points: impl IntoIterator<Item = &'a Point>) -> Option<(&'a Point, f64)> {
        let rated = points.into_iter().filter_map(|point| Some((point, (self.of)(point)?)));
        rated.filter(|(_, rate)| rate.is_finite() && *rate > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn text(self, value: f64) -> String {
        format!("{} {}", number(value), self.unit)
    }
}

/// The points at the cached fraction (and page size and scale) where the threads were swept.
pub fn thread_sweep<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let settings = group(points, &[Dim::PageSize, Dim::Scale]);
    let slices = settings.iter().map(|members| widest_slice(members, Dim::Threads));
    slices.max_by_key(|slice| Dim::Threads.values(slice).len()).unwrap_or_default()
}

/// Best asynchronous and best blocking point of one slice.
fn rivals<'a>(points: &[&'a Point], rate: Rate) -> Option<[(&'a Point, f64); 2]> {
    let asynchronous = rate.best(points.iter().copied().filter(|point| point.is_asynchronous()))?;
    let blocking = rate.best(points.iter().copied().filter(|point| point.is_blocking()))?;
    Some([asynchronous, blocking])
}

fn gain(points: &[&Point], rate: Rate) -> Option<String> {
    let [(fast, high), (_, low)] = rivals(points, rate)?;
    Some(format!(
        "{} with {} at depth {}: {} against {}",
        ratio(high / low),
        plural(fast.threads, "thread"),
        fast.depth,
        rate.text(high),
        rate.text(low)
    ))
}

/// Asynchronous against blocking with the fewest threads that have both.
pub fn fewest_threads_gain(points: &[&Point], rate: Rate) -> Option<String> {
    group(points, &[Dim::Threads]).iter().find_map(|slice| gain(slice, rate))
}

/// Asynchronous against blocking with the most threads that have both.
pub fn most_threads_gain(points: &[&Point], rate: Rate) -> Option<String> {
    let slices = group(points, &[Dim::Threads]);
    if slices.len() < 2 {
        return None;
    }
    slices.iter().rev().find_map(|slice| gain(slice, rate))
}

/// The fewest asynchronous threads that reach the best that any number of blocking ones does.
pub fn fewer_threads(points: &[&Point], rate: Rate) -> Option<String> {
    let [_, (slow, target)] = rivals(points, rate)?;
    if Dim::Threads.values(points).len() < 2 {
        return None;
    }
    let slices = group(points, &[Dim::Threads]);
    let enough = slices.iter().find_map(|slice| {
        rate.best(slice.iter().copied().filter(|p| p.is_asynchronous()))
            .filter(|(_, r)| *r >= target)
    });
    let best =
        format!("blocking is best with {}: {}", plural(slow.threads, "thread"), rate.text(target));
    Some(match enough {
        Some((point, reached)) => {
            let threads = plural(point.threads, "asynchronous thread");
            let reach = if point.threads == 1 { "reaches" } else { "reach" };
            format!("{threads} {reach} {}; {best}", rate.text(reached))
        }
        None => format!("no asynchronous point reaches it; {best}"),
    })
}

/// The least depth that comes close to the best, with the fewest threads.
pub fn depth_needed(points: &[&Point], rate: Rate) -> Option<String> {
    let slices = group(points, &[Dim::Threads]);
    slices.iter().find_map(|slice| {
        let asynchronous: Vec<&Point> =
            slice.iter().copied().filter(|point| point.is_asynchronous()).collect();
        if Dim::Depth.values(&asynchronous).len() < 2 {
            return None;
        }
        let (_, best) = rate.best(asynchronous.iter().copied())?;
        let enough = |point: &&&Point| (rate.of)(point).is_some_and(|rate| rate >= 0.95 * best);
        let least = asynchronous.iter().filter(enough).min_by_key(|point| point.depth)?;
        let threads = plural(least.threads, "thread");
        Some(format!("depth {} comes within 5 % of the best with {threads}", least.depth))
    })
}

fn at_cached(points: &[&Point], cached: f64, wanted: fn(&Point) -> bool) -> Option<f64> {
    let near =
        |point: &&Point| point.cached.is_some_and(|c| (c - cached).abs() < 0.005) && wanted(point);
    SCAN.best(points.iter().copied().filter(near)).map(|(_, rate)| rate)
}

/// A statement per thread count at which the cached fraction was swept.
fn per_thread_count(
    points: &[&Point],
    statement: impl Fn(&[&Point]) -> Option<String>,
) -> Option<String> {
    let slices = group(points, &[Dim::Threads]);
    let swept = slices.iter().filter(|slice| Dim::Cached.values(slice).len() > 1);
    let statements: Vec<String> = swept
        .filter_map(|slice| {
            Some(format!("{}: {}", plural(slice[0].threads, "thread"), statement(slice)?))
        })
        .collect();
    (!statements.is_empty()).then(|| statements.join("; "))
}

/// Asynchronous against blocking with an empty cache.
pub fn nothing_cached(points: &[&Point]) -> Option<String> {
    per_thread_count(points, |slice| {
        let fast = at_cached(slice, 0.0, Point::is_asynchronous)?;
        let slow = at_cached(slice, 0.0, Point::is_blocking)?;
        let (fast_text, slow_text) = (SCAN.text(fast), SCAN.text(slow));
        Some(format!("{fast_text} asynchronous, {slow_text} blocking ({})", ratio(fast / slow)))
    })
}

/// How much faster joins of each query are asynchronously than blocking, where this share is cached.
pub fn joins_gain(points: &[&Point], cached: f64) -> Option<String> {
    let queries = group(points, &[Dim::Pattern, Dim::Threads]);
    let gains = queries.iter().filter_map(|members| {
        let seconds = |wanted: fn(&Point) -> bool| {
            let near = |point: &&&Point| {
                let is_near = point.cached.is_some_and(|of| (of - cached).abs() < 0.005);
                is_near && wanted(point) && point.seconds > 0.0
            };
            members.iter().filter(near).map(|point| point.seconds).reduce(f64::min)
        };
        let (fast, slow) = (seconds(Point::is_asynchronous)?, seconds(Point::is_blocking)?);
        let query = members[0].pattern.clone().unwrap_or_default();
        let threads = plural(members[0].threads, "thread");
        Some(format!("{query} with {threads}: {} ({} s)", ratio(slow / fast), number(fast)))
    });
    let gains: Vec<String> = gains.collect();
    (!gains.is_empty()).then(|| gains.join("; "))
}

/// How many times the index probes of one variant another has, each with the batch that is best for it.
pub fn probes_gain(points: &[&Point], of: &str, over: &str) -> Option<String> {
    let indexes = group(points, &[Dim::Pattern, Dim::Threads]);
    let gains = indexes.iter().filter_map(|members| {
        let best = |variant: &str| {
            let of_variant =
                members.iter().filter(|point| point.variant.as_deref() == Some(variant));
            of_variant
                .filter_map(|point| point.probes_per_s)
                .filter(|rate| *rate > 0.0)
                .reduce(f64::max)
        };
        let gain = best(of)? / best(over)?;
        let keys = members[0].pattern.clone().unwrap_or_default();
        Some(format!("{keys}, {}: {}", plural(members[0].threads, "thread"), ratio(gain)))
    });
    let gains: Vec<String> = gains.collect();
    (!gains.is_empty()).then(|| gains.join("; "))
}

/// How many times the transactions of one variant another has per second of processor time, with the same settings, each with the
/// batch that is best for it.
pub fn transactions_gain(
    points: &[&Point],
    workload: &str,
    of: &str,
    over: &str,
) -> Option<String> {
    let of_workload: Vec<&Point> = points
        .iter()
        .copied()
        .filter(|point| point.workload.as_deref() == Some(workload))
        .collect();
    let settings =
        group(&of_workload, &[Dim::Pattern, Dim::Suppliers, Dim::Isolation, Dim::Threads]);
    let gains = settings.iter().filter_map(|members| {
        let best = |variant: &str| {
            let of_variant =
                members.iter().filter(|point| point.variant.as_deref() == Some(variant));
            of_variant
                .filter_map(|point| point.txn_per_processor_s)
                .filter(|rate| *rate > 0.0)
                .reduce(f64::max)
        };
        let gain = best(of)? / best(over)?;
        let (threads, isolation) = (plural(members[0].threads, "thread"), &members[0].isolation);
        let mut words = vec![threads];
        words.extend(isolation.iter().filter(|level| *level != "SI").cloned());
        if workload == "tpcch" {
            words.insert(0, Dim::Suppliers.key(members[0]).label);
        }
        Some(format!("{}: {}", words.join(", "), ratio(gain)))
    });
    let gains: Vec<String> = gains.collect();
    (!gains.is_empty()).then(|| gains.join("; "))
}

/// Bytes of the coroutines of the engine's operations, flat and fully nested.
pub fn frame_sizes(points: &[&Point]) -> Option<String> {
    let bytes = |operation: &str, variant: &str| {
        let pattern = format!("frame: {operation}");
        let mut frames = points.iter().filter(|point| {
            point.pattern.as_ref() == Some(&pattern) && point.variant.as_deref() == Some(variant)
        });
        frames.find_map(|point| point.frame_bytes)
    };
    let sizes = ["read", "update", "insert"].into_iter().filter_map(|operation| {
        let (flat, boxed) = (bytes(operation, "corobase")?, bytes(operation, "corobase-fn")?);
        Some(format!("{operation} {flat} (corobase-fn {boxed})"))
    });
    let sizes: Vec<String> = sizes.collect();
    (!sizes.is_empty()).then(|| format!("{} bytes", sizes.join(", ")))
}

/// Blocking with 90 % cached against asynchronous with an empty cache.
pub fn mostly_cached(points: &[&Point]) -> Option<String> {
    per_thread_count(points, |slice| {
        let empty = at_cached(slice, 0.0, Point::is_asynchronous)?;
        let blocking = at_cached(slice, 0.9, Point::is_blocking)?;
        let side = if blocking < empty { "below" } else { "above" };
        Some(format!(
            "blocking at 90 % cached is {} {side} ({} against {})",
            SCAN.text((empty - blocking).abs()),
            number(blocking),
            number(empty)
        ))
    })
}

/// What is left of the in-memory throughput with 80 % cached.
pub fn kept_at_80_percent(points: &[&Point]) -> Option<String> {
    per_thread_count(points, |slice| {
        let kept = |wanted: fn(&Point) -> bool| {
            Some(at_cached(slice, 0.8, wanted)? / at_cached(slice, 1.0, wanted)?)
        };
        let (fast, slow) = (kept(Point::is_asynchronous)?, kept(Point::is_blocking)?);
        let whole = |share: f64| percent((share * 100.0).round() / 100.0);
        Some(format!("asynchronous keeps {}, blocking {}", whole(fast), whole(slow)))
    })
}

/// Asynchronous throughput as a share of the theoretical optimum.
pub fn share_of_optimum(points: &[&Point]) -> Option<String> {
    per_thread_count(points, |slice| {
        let best = group(slice, &[Dim::Cached]).into_iter().filter_map(|same| {
            let (point, rate) = SCAN.best(same.iter().copied().filter(|p| p.is_asynchronous()))?;
            point.optimum_gb_per_s.filter(|optimum| *optimum > 0.0).map(|optimum| rate / optimum)
        });
        let shares: Vec<f64> = best.collect();
        let low = shares.iter().copied().reduce(f64::min)?;
        let high = shares.iter().copied().reduce(f64::max)?;
        Some(format!("{:.0} to {:.0} % of the optimum", low * 100.0, high * 100.0))
    })
}

/// The best bandwidth of a pattern, and the fewest threads that come close to it.
pub fn best_bandwidth(points: &[&Point], pattern: &str) -> Option<String> {
    let ours: Vec<&Point> = points
        .iter()
        .copied()
        .filter(|point| point.pattern.as_deref() == Some(pattern) && point.driver != "fio")
        .collect();
    let (_, best) = SCAN.best(ours.iter().copied())?;
    let enough = |point: &&&Point| point.gb_per_s.is_some_and(|rate| rate >= 0.97 * best);
    let least = ours.iter().filter(enough).min_by_key(|point| (point.threads, point.depth))?;
    let mut text = format!("{} with {}", SCAN.text(best), plural(least.threads, "thread"));
    if least.depth > 1 {
        text.push_str(&format!(" at depth {}", least.depth));
    }
    Some(text)
}

/// Latency of random reads of the smallest size with the least parallelism.
pub fn lone_read_latency(points: &[&Point]) -> Option<String> {
    let random = points.iter().filter(|point| {
        point.pattern.as_deref() == Some("random")
            && point.driver != "fio"
            && point.latency_us.is_some()
    });
    let lone = random
        .min_by_key(|point| (point.page_size, point.threads, point.depth, !point.is_blocking()))?;
    let latency = lone.latency_us?;
    let size = lone
        .page_size
        .map_or(String::new(), |bytes| format!(" for {}", super::units::bytes(bytes)));
    let setting = format!("{}, depth {}", plural(lone.threads, "thread"), lone.depth);
    Some(format!(
        "{} µs{size} (median; {} µs at 99 %; {setting})",
        number(latency.p50),
        number(latency.p99)
    ))
}

/// Shortest time of a memory access.
pub fn memory_latency(points: &[&Point]) -> Option<String> {
    let memory =
        points.iter().filter(|p| p.pattern.as_ref().is_some_and(|name| name.starts_with("dram")));
    let least =
        memory.filter_map(|point| point.ns_per_op).filter(|ns| ns.is_finite()).reduce(f64::min)?;
    Some(format!("{} ns", number(least)))
}

/// The range of ratios to fio.
pub fn against_fio(points: &[&Point]) -> Option<String> {
    let ratios: Vec<f64> = points.iter().filter_map(|point| point.ratio_to_fio).collect();
    let low = ratios.iter().copied().reduce(f64::min)?;
    let high = ratios.iter().copied().reduce(f64::max)?;
    let (low, high) = (ratio(low), ratio(high));
    let range = if low == high { low } else { format!("{low} to {high}") };
    Some(format!("{range} of fio's rate over {}", plural(ratios.len() as u32, "point")))
}

/// The points of accesses to memory, not to the cache, where there is no latency to hide.
fn of_memory<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let in_cache =
        |point: &Point| point.pattern.as_ref().is_some_and(|name| name.starts_with("cache"));
    points.iter().copied().filter(|point| !in_cache(point)).collect()
}

/// The fastest batch and the slowest point without one.
fn batch_rivals<'a>(points: &[&'a Point]) -> Option<[(&'a Point, f64); 2]> {
    let timed =
        points.iter().filter_map(|point| Some((*point, point.ns_per_op.filter(|ns| *ns > 0.0)?)));
    let (single, batched): (Vec<_>, Vec<_>) = timed.partition(|(point, _)| point.depth <= 1);
    let fastest = batched.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_coroutine =
        |point: &Point| point.pattern.as_ref().is_some_and(|p| p.contains("coroutine"));
    let plain = single.into_iter().filter(|(point, _)| !is_coroutine(point));
    Some([fastest, plain.max_by(|a, b| a.1.total_cmp(&b.1))?])
}

/// The fastest batch of coroutines against execution one after the other.
pub fn batch_gain(points: &[&Point]) -> Option<String> {
    let points = &of_memory(points);
    let coroutines: Vec<&Point> = points
        .iter()
        .copied()
        .filter(|p| {
            p.depth <= 1 || p.pattern.as_ref().is_some_and(|name| name.contains("coroutine"))
        })
        .collect();
    let [(fast, least), (_, most)] = batch_rivals(&coroutines).or_else(|| batch_rivals(points))?;
    let (gain, batch) = (ratio(most / least), fast.depth);
    Some(format!(
        "{gain} with a batch of {batch}: {} ns against {} ns",
        number(least),
        number(most)
    ))
}

/// The least batch that comes close to the best.
pub fn best_batch(points: &[&Point]) -> Option<String> {
    let points = &of_memory(points);
    let [(_, least), _] = batch_rivals(points)?;
    let near =
        |point: &&&Point| point.depth > 1 && point.ns_per_op.is_some_and(|ns| ns <= 1.05 * least);
    let batch = points.iter().filter(near).map(|point| point.depth).min()?;
    Some(format!("a batch of {batch} comes within 5 % of the best"))
}
