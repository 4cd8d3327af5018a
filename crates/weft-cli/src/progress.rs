//! The progress bar of a statement that takes over a second: on standard error, only on a terminal,
//! and gone when the statement is done.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use weft::ProgressSnapshot;

use crate::output::{text, units};

/// How long a statement runs before its bar appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at the counters.
const INTERVAL: Duration = Duration::from_millis(100);
/// Columns of the terminal that the bar and the percentage take.
const BAR_COLUMNS: usize = 32;
/// How long to wait where nothing is to be drawn.
const FOREVER: Duration = Duration::from_secs(3600);

/// Whether there is anybody to show progress to.
pub fn is_visible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !dumb
}

/// The bar of one statement; taken away when dropped.
pub struct Progress {
    started: Instant,
    visible: bool,
    bar: Option<Bar>,
}

struct Bar {
    bar: ProgressBar,
    /// How the terminal was before the bar appeared.
    terminal: Option<Termios>,
}

impl Bar {
    /// A bar on a terminal that writes nothing that is typed, which would move the bar. What is typed
    /// is read afterwards all the same.
    fn new() -> Bar {
        let terminal = termios::tcgetattr(io::stderr()).ok();
        if let Some(before) = &terminal {
            let mut quiet = before.clone();
            quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHOCTL);
            set_terminal(&quiet);
        }
        let target = ProgressDrawTarget::stderr();
        Bar { bar: ProgressBar::with_draw_target(Some(1000), target), terminal }
    }
}

/// Changes how the terminal behaves; where that fails, nothing worse happens than a bar that stays.
fn set_terminal(attributes: &Termios) {
    termios::tcsetattr(io::stderr(), OptionalActions::Now, attributes).unwrap_or_default();
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some(before) = &self.terminal {
            set_terminal(before);
        }
    }
}

impl Progress {
    /// The bar of a statement that starts now, if it is to be seen at all.
    pub fn start(visible: bool) -> Progress {
        Progress { started: Instant::now(), visible, bar: None }
    }

    /// How long to wait before the bar is to be drawn.
    pub fn wait(&self) -> Duration {
        match &self.bar {
            _ if !self.visible => FOREVER,
            None => PATIENCE.saturating_sub(self.started.elapsed()),
            Some(_) => INTERVAL,
        }
    }

    /// Draws the bar if the statement has run for long enough.
    pub fn draw(&mut self, now: &ProgressSnapshot) {
        let elapsed = self.started.elapsed();
        if !self.visible || elapsed < PATIENCE {
            return;
        }
        let bar = &self.bar.get_or_insert_with(Bar::new).bar;
        bar.set_style(style(now.units_total > 0));
        bar.set_position(permille(now));
        let room = columns().saturating_sub(BAR_COLUMNS + 4);
        bar.set_message(text::shortened(&words(now, elapsed), room).into_owned());
        bar.tick();
    }

    /// Takes the bar away for good, as when rows are about to be written to the same terminal.
    pub fn end(&mut self) {
        self.visible = false;
        drop(self.bar.take());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// A bar if it is known how much there is to do.
fn style(known: bool) -> ProgressStyle {
    let template = if known { "{bar:24} {percent:>3} %  {msg}" } else { "{spinner} {msg}" };
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("█▉▊▋▌▍▎▏ ")
}

/// Columns of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

/// The share of the work known so far that is done.
fn permille(now: &ProgressSnapshot) -> u64 {
    match now.units_total {
        0 => 0,
        total => now.units_done.min(total).saturating_mul(1000) / total,
    }
}

/// Rows, bytes and time; memory, too, once it does not suffice.
fn words(now: &ProgressSnapshot, elapsed: Duration) -> String {
    let mut words = Vec::new();
    if now.rows > 0 {
        words.push(units::counted(now.rows, "row"));
    }
    for (bytes, what) in [(now.bytes_read, "read"), (now.bytes_written, "written")] {
        if bytes > 0 {
            words.push(format!("{} {what}", units::bytes(bytes)));
        }
    }
    if now.spilled_bytes > 0 {
        words.push(spilled(now));
        if now.memory_bytes > 0 {
            words.push(format!("{} in memory", units::bytes(now.memory_bytes)));
        }
    }
    words.push(units::clock(elapsed));
    if let Some(left) = time_left(now, elapsed) {
        words.push(format!("about {} left", units::clock(left)));
    }
    words.join(", ")
}

/// What was spilled, and as how much if it was compressed.
fn spilled(now: &ProgressSnapshot) -> String {
    let (raw, written) = (units::bytes(now.spilled_bytes_raw), units::bytes(now.spilled_bytes));
    if raw == written { format!("{raw} spilled") } else { format!("{raw} spilled as {written}") }
}

/// The time that the rest takes if it goes on as it did; none before that can be told.
fn time_left(now: &ProgressSnapshot, elapsed: Duration) -> Option<Duration> {
    let (done, total) = (now.units_done as f64, now.units_total as f64);
    let known = done / total >= 0.02 && done < total;
    known.then(|| elapsed.mul_f64((total - done) / done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_tell_rows_bytes_and_time() {
        let mut now = ProgressSnapshot { units_total: 100, units_done: 25, ..Default::default() };
        (now.rows, now.bytes_read) = (1_234_567, 5_000_000);
        let told = words(&now, Duration::from_secs(20));
        assert_eq!(told, "1,234,567 rows, 5.0 MB read, 20 s, about 1:00 left");
        (now.spilled_bytes_raw, now.spilled_bytes, now.memory_bytes) =
            (3_000_000, 1_000_000, 9_000);
        let told = words(&now, Duration::from_secs(20));
        let middle = "5.0 MB read, 3.0 MB spilled as 1.0 MB, 9.0 kB in memory, 20 s";
        assert!(told.contains(middle), "{told}");
        now.spilled_bytes = 3_000_000;
        assert!(words(&now, Duration::from_secs(20)).contains("read, 3.0 MB spilled, 9.0 kB"));
        assert_eq!(permille(&now), 250);
        assert_eq!(permille(&ProgressSnapshot::default()), 0);
        let unknown = ProgressSnapshot { rows: 1, ..Default::default() };
        assert_eq!(words(&unknown, Duration::from_secs(2)), "1 row, 2 s");
    }
}
