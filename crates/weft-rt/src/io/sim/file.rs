//! A file of a simulated disk: what it holds now, and what a loss of power would leave of it.
//!
//! A write is volatile from its submission until a sync that was submitted after its completion
//! has completed. Until then a crash may find it lost, kept, or torn between sectors of 512 bytes,
//! whatever became of the others.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::content::Content;
use super::faults::CrashOdds;
use super::placement::Placement;
use super::random::Random;

/// Bytes that a device writes atomically.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// A file of a simulated disk.
#[derive(Debug)]
pub struct SimFile {
    disk: u64,
    placement: Placement,
    state: RwLock<State>,
    /// End of the part that counts against the disk's capacity.
    pub(super) allocated_end: AtomicU64,
    /// Has no name any more, so that it counts against nothing.
    pub(super) unlinked: AtomicBool,
    /// Never had a name: where it counts as long as it is open.
    counted: Option<Arc<Mutex<u64>>>,
}

#[derive(Debug)]
struct State {
    current: Content,
    /// Absent if the disk does not keep durable and volatile apart.
    durable: Option<Durable>,
}

#[derive(Debug)]
struct Durable {
    content: Content,
    /// By ticket, so in the order of submission.
    volatile: BTreeMap<u64, VolatileWrite>,
    next_ticket: u64,
    /// Writes completed so far.
    completed: u64,
}

#[derive(Debug)]
struct VolatileWrite {
    change: Change,
    /// Its position among the completed writes; none while in flight.
    completed: Option<u64>,
    /// A crash tears it in any case.
    torn: bool,
}

/// What a write or an allocation does to the bytes.
#[derive(Debug)]
pub(crate) enum Change {
    /// These bytes at this offset.
    Bytes(u64, Box<[u8]>),
    /// At least this long.
    Extend(u64),
}

impl Change {
    fn apply(&self, content: &mut Content) -> io::Result<()> {
        match self {
            Change::Bytes(offset, bytes) => content.write(*offset, bytes),
            Change::Extend(end) => content.extend_to(*end),
        }
    }

    /// Applies what survives of a torn write: each sector by the toss of a coin.
    fn apply_torn(&self, content: &mut Content, random: &mut Random) -> io::Result<()> {
        let Change::Bytes(offset, bytes) = self else {
            return if random.chance(0.5) { self.apply(content) } else { Ok(()) };
        };
        let mut at = 0;
        while at < bytes.len() {
            let sector_end = (offset + at as u64 + 1).next_multiple_of(SECTOR_BYTES);
            let end = bytes.len().min((sector_end - offset) as usize);
            if random.chance(0.5) {
                content.write(offset + at as u64, &bytes[at..end])?;
            }
            at = end;
        }
        Ok(())
    }
}

impl SimFile {
    /// A file of the disk with this id, whose content is durable from the start.
    pub(crate) fn new(
        disk: u64,
        placement: Placement,
        content: Content,
        volatile_writes: bool,
    ) -> SimFile {
        let allocated_end = AtomicU64::new(content.len());
        let durable = volatile_writes.then(|| Durable {
            content: content.clone(),
            volatile: BTreeMap::new(),
            next_ticket: 0,
            completed: 0,
        });
        let state = RwLock::new(State { current: content, durable });
        let unlinked = AtomicBool::new(false);
        SimFile { disk, placement, state, allocated_end, unlinked, counted: None }
    }

    /// The same without a name: what it allocates of the disk's bytes is given back with it.
    pub(super) fn counted_while_open(mut self, allocated_bytes: Arc<Mutex<u64>>) -> SimFile {
        self.counted = Some(allocated_bytes);
        self
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.state().current.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which devices hold the file.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The id of the disk that the file belongs to.
    pub(crate) fn disk(&self) -> u64 {
        self.disk
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what there is from `offset` on into `target`; returns how many bytes.
    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) -> usize {
        self.state().current.read(offset, target)
    }

    /// True if writes must be announced with [`begin`](SimFile::begin).
    pub(crate) fn keeps_volatile_writes(&self) -> bool {
        self.state().durable.is_some()
    }

    /// A write or allocation is under way: from now on a crash may find it on the disk.
    pub(crate) fn begin(&self, change: Change, torn: bool) -> Option<u64> {
        let mut state = self.state_mut();
        let durable = state.durable.as_mut()?;
        let ticket = durable.next_ticket;
        durable.next_ticket += 1;
        durable.volatile.insert(ticket, VolatileWrite { change, completed: None, torn });
        Some(ticket)
    }

    /// The write or allocation with this ticket is complete: reads see it.
    ///
    /// # Errors
    /// `EFBIG` if the file would become too long; the ticket is void then.
    pub(crate) fn complete(&self, ticket: u64) -> io::Result<()> {
        let mut state = self.state_mut();
        let State { current, durable: Some(durable) } = &mut *state else {
            unreachable!("a ticket of a file that gives none");
        };
        let write = durable.volatile.get_mut(&ticket).expect("a write completes once");
        debug_assert!(write.completed.is_none());
        if let Err(error) = write.change.apply(current) {
            durable.volatile.remove(&ticket);
            return Err(error);
        }
        write.completed = Some(durable.completed);
        durable.completed += 1;
        Ok(())
    }

    /// Writes at once, for disks that do not keep durable and volatile apart.
    ///
    /// # Errors
    /// `EFBIG` if the file would become too long.
    pub(crate) fn write_through(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.state_mut().current.write(offset, source)
    }

    /// The same for an allocation.
    ///
    /// # Errors
    /// `EFBIG` if the file would become too long.
    pub(crate) fn extend_through(&self, end: u64) -> io::Result<()> {
        self.state_mut().current.extend_to(end)
    }

    /// A sync is under way: it covers the writes completed by now, which its ticket counts.
    pub(crate) fn begin_sync(&self) -> Option<u64> {
        self.state().durable.as_ref().map(|durable| durable.completed)
    }

    /// The sync with this ticket is complete.
    pub(crate) fn complete_sync(&self, covered: u64) {
        let mut state = self.state_mut();
        let Some(Durable { content, volatile, .. }) = &mut state.durable else {
            unreachable!("a ticket of a file that gives none");
        };
        let mut synced: Vec<(u64, u64)> = volatile
            .iter()
            .filter_map(|(ticket, write)| write.completed.map(|order| (order, *ticket)))
            .filter(|(order, _)| *order < covered)
            .collect();
        synced.sort_unstable();
        for (_, ticket) in synced {
            let write = volatile.remove(&ticket).expect("listed above");
            write.change.apply(content).expect("it fitted when it completed");
        }
    }

    /// What a loss of power at this moment leaves on the device.
    pub(crate) fn after_crash(&self, odds: CrashOdds, random: &mut Random) -> Content {
        let state = self.state();
        let Some(durable) = &state.durable else { return state.current.clone() };
        let mut image = durable.content.clone();
        let mut writes: Vec<&VolatileWrite> = durable.volatile.values().collect();
        random.shuffle(&mut writes);
        for write in writes {
            let fate = random.unit();
            // A write that would make the file too long was never going to reach the device.
            if write.torn || fate < odds.torn {
                write.change.apply_torn(&mut image, random).ok();
            } else if fate >= odds.torn + odds.lost {
                write.change.apply(&mut image).ok();
            }
        }
        image
    }

    /// Bytes by which a write that ends at `end` lengthens the part that counts.
    pub(super) fn growth(&self, end: u64) -> u64 {
        if self.unlinked.load(Ordering::Relaxed) {
            return 0;
        }
        end.saturating_sub(self.allocated_end.load(Ordering::Relaxed))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Some(allocated_bytes) = &self.counted {
            let mut allocated = allocated_bytes.lock().unwrap_or_else(PoisonError::into_inner);
            *allocated -= self.allocated_end.load(Ordering::Relaxed);
        }
    }
}
