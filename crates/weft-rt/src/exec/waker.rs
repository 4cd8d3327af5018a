//! Wakers of tasks and coroutines: one per slot, made once, reused by whatever runs in the slot.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use super::worker::WorkerShared;
use crate::sync::ready_set::ReadySet;

/// Whom to tell when a set of coroutines is no longer empty.
pub(crate) enum Owner {
    /// The worker's own loop.
    Worker(Arc<WorkerShared>),
    /// The task that polls the batch: its waker as of the last poll.
    Task(Mutex<Option<Waker>>),
}

/// A ready-set and its owner.
pub(crate) struct ReadyCore {
    pub(crate) set: ReadySet,
    pub(crate) owner: Owner,
}

impl ReadyCore {
    /// A waker for each of these slots of the set.
    pub(crate) fn wakers(self: &Arc<ReadyCore>, slots: Range<usize>) -> Vec<Waker> {
        slots.map(|index| Waker::from(Arc::new(SlotWaker { core: self.clone(), index }))).collect()
    }

    /// Remembers the waker of the task that polls the batch.
    pub(crate) fn set_task(&self, waker: &Waker) {
        let Owner::Task(task) = &self.owner else { return };
        let mut known = task.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn tell_owner(&self) {
        match &self.owner {
            Owner::Worker(worker) => worker.work_arrived(),
            Owner::Task(task) => {
                let waker = task.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }
}

struct SlotWaker {
    core: Arc<ReadyCore>,
    index: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<SlotWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<SlotWaker>) {
        if self.core.set.insert(self.index) {
            self.core.tell_owner();
        }
    }
}
