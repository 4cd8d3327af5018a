//! How long memory is waited for while nobody gives any back. Who has it may never do so: another query, whose rows nobody
//! fetches, or this one. How much time has passed proves nothing, as on a busy machine those who would give some back may not
//! have run meanwhile. So who waits looks now and then whether the process does anything at all: nothing will come of it if it does
//! not, or if it has computed for long and nothing was given back.

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use weft_rt::memory::Ledger;
use weft_rt::process_time;

/// How often whoever waits looks.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The process does nothing if it has computed for less than this part of the time.
const STILL_PART: u32 = 16;

/// A look that comes so many times later than it was meant to tells nothing: it was this process that could not run.
const LATE: u32 = 3;

/// So many looks while nothing is done prove that nothing will be.
const STILL_LOOKS_MAX: usize = 10;

/// What each processor could have computed meanwhile. Who has given nothing back then will go on for long.
const COMPUTED_MAX: Duration = Duration::from_secs(4);

/// And in any case memory is waited for no longer than this without any being given back.
const WAITED_MAX: Duration = Duration::from_secs(60);

/// What has been seen since memory was given back the last time.
#[derive(Debug)]
pub(super) struct Patience {
    freed_bytes: u64,
    began: State,
    looked: State,
    still_looks: usize,
    processors: u32,
}

/// A time, and what the process had computed by then.
#[derive(Clone, Copy, Debug)]
struct State {
    at: Instant,
    computed: Duration,
}

impl State {
    fn now() -> State {
        State { at: Instant::now(), computed: process_time() }
    }
}

impl Patience {
    /// That of one who begins to wait.
    pub(super) fn new(ledger: &Ledger) -> Patience {
        let now = State::now();
        let processors = available_parallelism().map_or(1, |processors| processors.get() as u32);
        let freed_bytes = ledger.freed_for_others();
        Patience { freed_bytes, began: now, looked: now, still_looks: 0, processors }
    }

    /// Looks, which is to be done every [`LOOK`]; true if nothing is to be expected any more.
    pub(super) fn is_out(&mut self, ledger: &Ledger) -> bool {
        self.look(ledger.freed_for_others(), State::now())
    }

    fn look(&mut self, freed_bytes: u64, now: State) -> bool {
        if freed_bytes != self.freed_bytes {
            (self.freed_bytes, self.began, self.still_looks) = (freed_bytes, now, 0);
        }
        let passed = now.at.saturating_duration_since(self.looked.at);
        let computed = now.computed.saturating_sub(self.looked.computed);
        self.looked = now;
        if computed * STILL_PART > passed {
            self.still_looks = 0;
        } else if passed <= LOOK * LATE {
            self.still_looks += 1;
        }
        let computed = now.computed.saturating_sub(self.began.computed);
        let waited = now.at.saturating_duration_since(self.began.at);
        self.still_looks >= STILL_LOOKS_MAX
            || computed >= COMPUTED_MAX * self.processors
            || waited >= WAITED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until patience is out, each `late` times as long after the other as it should be, while the process computes for a part
    /// of the time, in 256ths, and gives something back now and then; the number of looks.
    fn looks(late: u32, computed_part: u32, gives_back_every: usize) -> usize {
        let ledger = Ledger::new(0);
        let mut patience = Patience { processors: 2, ..Patience::new(&ledger) };
        let mut now = patience.began;
        for look in 1..10_000 {
            now.at += LOOK * late;
            now.computed += LOOK * late * computed_part / 256;
            if patience.look((look / gives_back_every) as u64, now) {
                return look;
            }
        }
        10_000
    }

    #[test]
    fn memory_is_waited_for_as_long_as_something_is_done() {
        let never = usize::MAX;
        // Nobody does anything.
        assert_eq!(looks(1, 0, never), STILL_LOOKS_MAX);
        assert_eq!(looks(1, 5, never), STILL_LOOKS_MAX);
        // All processors compute, or another process has most of them.
        assert_eq!(looks(1, 512, never), 40);
        assert_eq!(looks(1, 64, never), 320);
        assert_eq!(looks(1, 20, never), 600);
        // Nobody computes, as nobody can.
        assert_eq!(looks(20, 0, never), 30);
        // Somebody gives something back.
        assert_eq!(looks(1, 0, 9), 10_000);
        assert_eq!(looks(1, 512, 39), 10_000);
        assert_eq!(looks(1, 0, 11), 10);
    }
}
