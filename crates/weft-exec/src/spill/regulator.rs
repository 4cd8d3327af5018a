//! Self-regulating compression of what a worker writes (Spilly, section 4.4, listing 3): where the device is the bottleneck
//! pages are compressed more, where the processor is, less.
//!
//! After every run of pages the costs of a byte are compared: of the operator and of compression, in processor time of the worker's thread,
//! and of the device, as the spill area measures it. One thing differs from the listing: compression goes to the place on the scale
//! where writing and reading back are expected to take the least time, instead of one place up whenever the device costs more than the
//! processor: next to a device that is only a little too slow, compression would cost more than it saves. Where the device would cost more
//! even there, the places next to it are tried once, as pages may be smaller by them than expected.

use std::array;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use weft_store::spill::{Moved, Rate, SCALE, Scheme, SpillRates, operator_time};

/// Pages between decisions, for each that may be on its way at once.
const RUN_PAGES: usize = 2;

/// How much of what was known of pages a run leaves.
const KEPT: f64 = 0.5;

/// And of what the operator does, which computes or reads for some runs, and spills for others.
const KEPT_OF_RUNS: f64 = 0.9;

/// After so many runs without compression, other pages may have come, which it makes smaller.
const UNCOMPRESSED_RUNS: u32 = 32;

/// The most bytes for each of a page that tables are read for, of a run: much may have happened since the last.
const OTHERS_MAX: u64 = 8;

/// If a place saves so much more or less than before, other pages have come.
const OTHERS: f64 = 0.2;

/// Of what an operator takes for a byte that goes to disk, what it is expected to take for one that comes back, as aggregations do.
const BACK: f64 = 0.5;

/// Of the shorter of computing and moving, the part that is not done during the longer one, as measured over bandwidths.
const ALONE: f64 = 0.2;

/// Compression begins if it is better by more than this factor: the processor is there for others, too, and what
/// is expected is not what happens. Once it has begun the first place of the scale is taken that costs little more than the best.
const SLACK_OFF: f64 = 1.05;
const SLACK: f64 = 1.02;

/// How a database compresses what is spilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpillCompression {
    /// Where that makes spilling faster.
    #[default]
    Auto,
    /// By one scheme.
    Fixed(Scheme),
}

impl SpillCompression {
    /// What `auto`, `off`, `lz4` and `zstd:` with a level mean.
    pub fn parse(name: &str) -> Option<SpillCompression> {
        match name {
            "auto" => Some(SpillCompression::Auto),
            other => Scheme::parse(other).map(SpillCompression::Fixed),
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            SpillCompression::Auto => "auto".into(),
            SpillCompression::Fixed(scheme) => scheme.name(),
        }
    }
}

/// What is known of the pages, which every writer of a database goes on from.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Of the scale.
    place: usize,
    /// How much longer compressing takes than the scale says.
    slowness: f64,
    /// How much of what the scale says is saved, as was seen last.
    fit: f64,
    /// The same of places where it was seen, of pages such as those that are written now.
    fits: [Option<f64>; SCALE.len()],
    /// Runs that said nothing of that.
    uncompressed_runs: u32,
}

impl Default for Known {
    fn default() -> Known {
        Known { place: 0, slowness: 1.0, fit: 1.0, fits: [None; SCALE.len()], uncompressed_runs: 0 }
    }
}

/// What the writers of a database know together.
#[derive(Clone, Debug, Default)]
pub(super) struct Experience {
    known: Arc<Mutex<Known>>,
}

impl Experience {
    fn get(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, known: Known) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// What a page was written in.
#[derive(Clone, Copy, Debug)]
pub struct PageCosts {
    /// The scheme that it was to be compressed by.
    pub scheme: Scheme,
    /// Bytes before compression.
    pub raw_bytes: usize,
    /// Bytes on disk.
    pub written_bytes: usize,
    /// Processor time that compression took.
    pub compressing: Duration,
}

/// Pages since the last decision.
#[derive(Debug, Default)]
struct Run {
    pages: u32,
    /// All bytes of these.
    page_bytes: usize,
    /// What the thread has done meanwhile, as far as it was the same.
    raw_bytes: f64,
    computing: Duration,
    /// Of those that were to be compressed by the scheme of the place.
    of_place: Compressed,
}

#[derive(Debug, Default)]
struct Compressed {
    raw_bytes: f64,
    written_bytes: f64,
    compressing: Duration,
}

/// So much of something for so many bytes of pages, the less the longer ago.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    much: f64,
    raw_bytes: f64,
}

impl Average {
    fn add(&mut self, much: f64, raw_bytes: f64) {
        self.much = self.much * KEPT_OF_RUNS + much;
        self.raw_bytes = self.raw_bytes * KEPT_OF_RUNS + raw_bytes;
    }

    /// For a byte.
    fn get(&self) -> f64 {
        if self.raw_bytes > 0.0 { self.much / self.raw_bytes } else { 0.0 }
    }
}

thread_local! {
    /// Bytes of pages that were written for this thread's writers.
    static RAW_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// What a thread has computed, but for compressing, and the bytes of the pages that came of it: of all its writers, as whatever a
/// thread computes keeps it from compressing.
#[derive(Clone, Copy, Debug)]
struct Done {
    thread: ThreadId,
    computing: Duration,
    raw_bytes: u64,
}

impl Done {
    fn now() -> Done {
        let thread = std::thread::current().id();
        Done { thread, computing: operator_time(), raw_bytes: RAW_BYTES.get() }
    }
}

/// What one writer's pages are compressed by.
#[derive(Debug)]
pub struct Regulator {
    experience: Experience,
    known: Known,
    /// Nanoseconds that the operator computes.
    computing: Average,
    /// Bytes that the device moves beside those of pages, such as what tables are read for.
    others: Average,
    /// What was moved when that was looked at last.
    moved: Option<Moved>,
    run: Run,
    /// What the thread had done when the last page was written, or the first was to be.
    since: Option<Done>,
    run_pages: u32,
    /// Who share the device.
    workers: f64,
}

impl Regulator {
    /// One that goes on from what others know, for a writer, one for each of so many workers, with `depth` pages on their way at once.
    pub(super) fn new(experience: Experience, depth: usize, workers: usize) -> Regulator {
        let (known, run_pages) = (experience.get(), (RUN_PAGES * depth) as u32);
        Regulator {
            experience,
            known,
            computing: Average::default(),
            others: Average::default(),
            moved: None,
            run: Run::default(),
            since: None,
            run_pages,
            workers: workers as f64,
        }
    }

    /// The scheme for the next page.
    pub fn scheme(&mut self, compression: SpillCompression) -> Scheme {
        match compression {
            SpillCompression::Fixed(scheme) => scheme,
            SpillCompression::Auto => {
                self.since.get_or_insert_with(Done::now);
                SCALE[self.known.place].scheme
            }
        }
    }

    /// Counts a page that was written. `rates` tells how fast the devices are.
    pub fn note_written(&mut self, page: PageCosts, rates: impl FnOnce() -> SpillRates) {
        self.run.pages += 1;
        self.run.page_bytes += page.raw_bytes;
        RAW_BYTES.set(RAW_BYTES.get() + page.raw_bytes as u64);
        // Others were on their way when the place changed.
        if page.scheme == SCALE[self.known.place].scheme {
            let of_place = &mut self.run.of_place;
            of_place.raw_bytes += page.raw_bytes as f64;
            of_place.written_bytes += page.written_bytes as f64;
            of_place.compressing += page.compressing;
        }
        let Some(since) = &mut self.since else { return };
        let now = Done::now();
        let before = std::mem::replace(since, now);
        // Writers go on on other threads: what one has done is its own.
        if before.thread == now.thread {
            self.run.computing += now.computing.saturating_sub(before.computing);
            self.run.raw_bytes += (now.raw_bytes - before.raw_bytes) as f64;
        }
        if self.run.pages >= self.run_pages && self.run.raw_bytes > 0.0 {
            self.decide(rates());
        }
    }

    fn decide(&mut self, rates: SpillRates) {
        let run = std::mem::take(&mut self.run);
        self.learn(&run.of_place);
        self.computing.add(run.computing.as_nanos() as f64, run.raw_bytes);
        let operator_ns = self.computing.get();
        if let Some(before) = self.moved.replace(rates.moved) {
            let Moved { all_bytes, written_bytes, read_bytes, raw_bytes } =
                rates.moved.since(before);
            let others = all_bytes.saturating_sub(written_bytes).saturating_sub(read_bytes);
            let others = others.min(raw_bytes * OTHERS_MAX);
            self.others.add(others as f64, raw_bytes as f64);
        }
        let others = self.others.get();
        // Until something has come back, that is expected to take as long as to be written.
        let [written, read] = [rates.written, rates.read.or(rates.written)];
        let device = Device {
            pages: f64::from(run.pages) / run.page_bytes as f64,
            workers: self.workers,
            written,
            read,
            others,
        };
        let ways: [[Way; 2]; SCALE.len()] =
            array::from_fn(|place| self.known.ways(place, operator_ns, &device));
        let ns = ways.map(|ways| ways.iter().map(Way::ns).sum::<f64>());
        let least_ns = ns.iter().copied().fold(f64::INFINITY, f64::min);
        let slack = |place| match (place, self.known.place) {
            (0, 0) => SLACK_OFF,
            (0, _) => 1.0,
            _ => SLACK,
        };
        let is_good = |place: &usize| ns[*place] <= least_ns * slack(*place);
        let mut place = (0..ns.len()).find(is_good).unwrap_or(0);
        // Where pages move for longer than anybody computes, to see what a place saves costs nothing.
        let is_unknown = |other: &usize| {
            self.known.fits.get(*other) == Some(&None) && ways[*other].iter().all(Way::is_moving)
        };
        if let Some(unknown) =
            [place + 1, place.saturating_sub(1).max(1)].into_iter().find(is_unknown)
            && place > 0
            && self.known.fits[place].is_some()
        {
            place = unknown;
        }
        log::trace!(
            "a byte of a page takes {operator_ns:.2} ns to make, {ns:.2?} in all, on {device:.5?}: {}",
            SCALE[place].scheme.name()
        );
        self.known.place = place;
        self.experience.set(self.known);
    }

    /// What pages of a run tell of pages.
    fn learn(&mut self, run: &Compressed) {
        let known = &mut self.known;
        let (grade, towards) =
            (&SCALE[known.place], |old: f64, new: f64| old * KEPT + new * (1.0 - KEPT));
        if grade.scheme == Scheme::Off {
            known.uncompressed_runs += 1;
            if known.uncompressed_runs >= UNCOMPRESSED_RUNS {
                (known.fit, known.uncompressed_runs) = (1.0, 0);
                known.fits = [None; SCALE.len()];
            }
            return;
        }
        known.uncompressed_runs = 0;
        if run.raw_bytes == 0.0 {
            return;
        }
        let saved = ((run.raw_bytes / run.written_bytes - 1.0) / (grade.ratio - 1.0)).max(0.0);
        let before = known.fits[known.place];
        if before.is_some_and(|before| (saved - before).abs() > before.max(OTHERS) * OTHERS) {
            known.fits = [None; SCALE.len()];
        }
        known.fit = before.map_or(saved, |before| towards(before, saved));
        known.fits[known.place] = Some(known.fit);
        let compress_ns = run.compressing.as_nanos() as f64 / run.raw_bytes;
        known.slowness = towards(known.slowness, compress_ns / grade.compress_ns);
    }
}

/// What a byte of a page takes on its way to the device or back, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Way {
    computing_ns: f64,
    moving_ns: f64,
}

impl Way {
    fn ns(&self) -> f64 {
        let Way { computing_ns, moving_ns } = *self;
        computing_ns.max(moving_ns) + computing_ns.min(moving_ns) * ALONE
    }

    /// True if the device is the bottleneck.
    fn is_moving(&self) -> bool {
        self.moving_ns > self.computing_ns
    }
}

/// What is known of the devices for pages such as those that are written now.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// Pages, for each of their bytes before compression.
    pages: f64,
    /// Who share them.
    workers: f64,
    /// They cost nothing if they were never busy.
    written: Option<Rate>,
    read: Option<Rate>,
    /// Bytes that they move beside a byte of a page while it is made.
    others: f64,
}

impl Device {
    /// Nanoseconds of one worker's part for a byte of a page that is compressed to so many bytes, and others.
    fn ns(&self, rate: Option<Rate>, compressed: f64, others: f64) -> f64 {
        rate.map_or(0.0, |rate| self.workers * rate.ns(self.pages, compressed + others))
    }
}

impl Known {
    /// What a byte of a page is expected to take at a place of the scale, to be written and to come back.
    fn ways(&self, place: usize, operator_ns: f64, device: &Device) -> [Way; 2] {
        let grade = &SCALE[place];
        let ratio = 1.0 + (grade.ratio - 1.0) * self.fits[place].unwrap_or(self.fit);
        let write = Way {
            computing_ns: operator_ns + grade.compress_ns * self.slowness,
            moving_ns: device.ns(device.written, 1.0 / ratio, device.others),
        };
        let read = Way {
            computing_ns: operator_ns * BACK + grade.decompress_ns * self.slowness,
            moving_ns: device.ns(device.read, 1.0 / ratio, 0.0),
        };
        [write, read]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: usize = 8;

    /// A run of one of two workers that computes so long per byte of a page, on devices that take so long per byte on disk; pages are as
    /// the scale says, or cannot be compressed.
    fn run(regulator: &mut Regulator, operator_ns: f64, device_ns: [f64; 2], fits: bool) -> Scheme {
        run_with(regulator, operator_ns, rates(device_ns, Moved::default()), fits)
    }

    /// Devices that take so long for a byte, and nothing for a page.
    fn rates(device_ns: [f64; 2], moved: Moved) -> SpillRates {
        let rate = |ns: f64| Rate { piece_bytes: 1.0, piece_ns: ns, of_bytes: 1.0 };
        let [written, read] = device_ns.map(|ns| (ns > 0.0).then(|| rate(ns)));
        SpillRates { written, read, moved }
    }

    fn run_with(
        regulator: &mut Regulator,
        operator_ns: f64,
        rates: SpillRates,
        fits: bool,
    ) -> Scheme {
        let grade = &SCALE[regulator.known.place];
        let raw_bytes = 65_536.0 * f64::from(regulator.run_pages);
        let written_bytes = if fits { raw_bytes / grade.ratio } else { raw_bytes };
        let nanos = |per_byte: f64| Duration::from_nanos((per_byte * raw_bytes) as u64);
        let compressing = nanos(grade.compress_ns);
        let pages = regulator.run_pages;
        let of_place = Compressed { raw_bytes, written_bytes, compressing };
        let (page_bytes, computing) = (65_536 * pages as usize, nanos(operator_ns));
        regulator.run = Run { pages, page_bytes, raw_bytes, computing, of_place };
        regulator.decide(rates);
        regulator.scheme(SpillCompression::Auto)
    }

    fn regulator() -> Regulator {
        Regulator::new(Experience::default(), DEPTH, 2)
    }

    fn settled(regulator: &mut Regulator, operator_ns: f64, device_ns: [f64; 2]) -> Scheme {
        for _ in 0..20 {
            run(regulator, operator_ns, device_ns, true);
        }
        run(regulator, operator_ns, device_ns, true)
    }

    #[test]
    fn slow_devices_are_spared() {
        let mut regulator = regulator();
        assert_eq!(regulator.scheme(SpillCompression::Auto), Scheme::Off);
        // Nothing is known; the device keeps up; it is a little too slow, so that compression would be slower still.
        assert_eq!(settled(&mut regulator, 1.5, [0.0; 2]), Scheme::Off);
        assert_eq!(settled(&mut regulator, 1.5, [0.5; 2]), Scheme::Off);
        assert_eq!(settled(&mut regulator, 1.5, [1.0; 2]), Scheme::Off);
        // It is far too slow, or only what comes back is.
        assert_eq!(settled(&mut regulator, 1.5, [3.0; 2]), Scheme::Lz4);
        assert_eq!(settled(&mut regulator, 1.5, [0.5, 1.0]), Scheme::Off);
        assert_eq!(settled(&mut regulator, 1.5, [0.5, 4.0]), Scheme::Lz4);
        assert_eq!(settled(&mut regulator, 1.5, [60.0; 2]), Scheme::Zstd(3));
        // Nothing has come back.
        assert_eq!(settled(&mut regulator, 1.5, [60.0, 0.0]), Scheme::Zstd(3));
        // A writer of the same database begins there.
        let mut other = Regulator::new(regulator.experience.clone(), DEPTH, 2);
        assert_eq!(other.scheme(SpillCompression::Auto), Scheme::Zstd(3));
        // The neighbour is gone.
        assert_eq!(settled(&mut regulator, 1.5, [0.3; 2]), Scheme::Off);
    }

    /// Twice as much is read from tables as is spilled: that makes the device the bottleneck.
    #[test]
    fn what_tables_are_read_for_takes_its_part_of_the_device() {
        let last = |other_bytes: u64| {
            let (mut regulator, mut moved) = (regulator(), Moved::default());
            let page_bytes: u64 = 1 << 20;
            let mut next = || {
                moved.all_bytes += page_bytes + other_bytes;
                moved.written_bytes += page_bytes;
                moved.raw_bytes += page_bytes;
                run_with(&mut regulator, 8.0, rates([2.5; 2], moved), true)
            };
            (0..20).fold(Scheme::Off, |_, _| next())
        };
        assert_eq!([0, 2 << 20].map(last), [Scheme::Off, Scheme::Lz4]);
    }

    /// A page takes about as long on the device however small it is.
    #[test]
    fn nothing_is_gained_where_small_pages_take_as_long() {
        let schemes = [1.0, 0.1].map(|of_bytes| {
            let mut regulator = regulator();
            let rate = Some(Rate { piece_bytes: 65_536.0, piece_ns: 3.0 * 65_536.0, of_bytes });
            let rates = SpillRates { written: rate, read: rate, moved: Moved::default() };
            (0..20).fold(Scheme::Off, |_, _| run_with(&mut regulator, 1.5, rates, true))
        });
        assert_eq!(schemes, [Scheme::Lz4, Scheme::Off]);
    }

    /// An operator computes, and then spills a partition, many pages at once.
    #[test]
    fn what_the_operator_costs_is_seen_over_many_runs() {
        let mut regulator = regulator();
        let mut compressed = 0;
        for at in 0..100 {
            let operator_ns = if at % 4 == 0 { 20.0 } else { 0.1 };
            let scheme = run(&mut regulator, operator_ns, [1.0; 2], true);
            compressed += u32::from(scheme != Scheme::Off);
        }
        assert!(compressed < 5, "{compressed} of 100 runs");
    }

    #[test]
    fn writers_go_on_on_other_threads() {
        let mut regulator = regulator();
        let page = PageCosts {
            scheme: Scheme::Off,
            raw_bytes: 65_536,
            written_bytes: 65_536,
            compressing: Duration::ZERO,
        };
        for pages in [1000, 10] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..pages {
                        regulator.scheme(SpillCompression::Auto);
                        regulator.note_written(page, SpillRates::default);
                    }
                });
            });
        }
        assert_eq!(regulator.scheme(SpillCompression::Auto), Scheme::Off);
    }

    /// Pages that become smaller at one place than the scale says, next to a device that is slow.
    #[test]
    fn places_are_tried_where_the_device_is_slow() {
        let mut regulator = regulator();
        let pages = |regulator: &mut Regulator, ratios: [f64; SCALE.len()], device_ns: f64| {
            let grade = &SCALE[regulator.known.place];
            let raw_bytes = 65_536.0 * f64::from(regulator.run_pages);
            let nanos = |per_byte: f64| Duration::from_nanos((per_byte * raw_bytes) as u64);
            let compressing = nanos(grade.compress_ns);
            let written_bytes = raw_bytes / ratios[regulator.known.place];
            let of_place = Compressed { raw_bytes, written_bytes, compressing };
            let pages = regulator.run_pages;
            let (page_bytes, computing) = (65_536 * pages as usize, nanos(4.0));
            regulator.run = Run { pages, page_bytes, raw_bytes, computing, of_place };
            regulator.decide(rates([device_ns; 2], Moved::default()));
            regulator.scheme(SpillCompression::Auto)
        };
        let levels = [1.0, 1.43, 1.66, 1.67, 1.88];
        let schemes: Vec<Scheme> = (0..30).map(|_| pages(&mut regulator, levels, 10.0)).collect();
        assert!(schemes[10..].iter().all(|scheme| *scheme == Scheme::Zstd(3)), "{schemes:?}");
        // Level 3 makes others no smaller than level 1 does: it is tried, and given up.
        let mut regulator = self::regulator();
        let levels = [1.0, 1.6, 1.7, 2.3, 2.0];
        let schemes: Vec<Scheme> = (0..30).map(|_| pages(&mut regulator, levels, 10.0)).collect();
        assert!(schemes[10..].iter().all(|scheme| *scheme == Scheme::Zstd(1)), "{schemes:?}");
        // It is not slow: nothing is tried.
        let schemes: Vec<Scheme> = (0..30).map(|_| pages(&mut regulator, levels, 1.0)).collect();
        assert!(schemes[1..].iter().all(|scheme| *scheme == Scheme::Off), "{schemes:?}");
    }

    #[test]
    fn what_cannot_be_compressed_is_not() {
        let mut regulator = regulator();
        let mut compressed = 0;
        for _ in 0..100 {
            let scheme = run(&mut regulator, 1.0, [10.0; 2], false);
            compressed += u32::from(scheme != Scheme::Off);
        }
        assert!(compressed < 30, "{compressed} of 100 runs");
    }

    #[test]
    fn names_are_read_back() {
        let fixed = SpillCompression::Fixed(Scheme::Lz4);
        let mut regulator = regulator();
        assert_eq!(regulator.scheme(fixed), Scheme::Lz4);
        for compression in [fixed, SpillCompression::Auto] {
            assert_eq!(SpillCompression::parse(&compression.name()), Some(compression));
        }
    }
}
