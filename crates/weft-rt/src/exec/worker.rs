//! A worker: one thread, its tasks, its reactor.

use std::cell::{Cell, RefCell, RefMut};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};

use super::current::{self, Polled, poll_coroutine};
use super::lookahead::Announcements;
use super::share::{Share, Shares};
use super::task::Task;
use super::timer::Timers;
use super::waker::{Owner, ReadyCore};
use crate::io::bandwidth::Bandwidth;
use crate::io::driver::{Driver, Notify};
use crate::io::reactor::{Aftermath, Reactor};
use crate::sync::ready_set::{READY_SET_CAPACITY_MAX, ReadySet};
use crate::sync::sleep::SleepFlag;

/// Words of the bitmap of one ready-set.
const WORDS_PER_CORE: usize = READY_SET_CAPACITY_MAX / 64;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Makes a task on the worker that is to run it.
pub(crate) type MakeTask = Box<dyn FnOnce() -> Task + Send>;

/// Something of a share, or of none.
type Of<T> = (Option<Share>, T);

/// The part of a worker that other threads see.
pub(crate) struct WorkerShared {
    id: u64,
    inbox: Mutex<Vec<Of<MakeTask>>>,
    has_mail: AtomicBool,
    shutdown: AtomicBool,
    sleep: SleepFlag,
    notifier: OnceLock<Arc<dyn Notify>>,
}

impl WorkerShared {
    pub(crate) fn new() -> Arc<WorkerShared> {
        Arc::new(WorkerShared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            inbox: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            shutdown: AtomicBool::new(false),
            sleep: SleepFlag::default(),
            notifier: OnceLock::new(),
        })
    }

    /// Puts a task of a share into the inbox; dropped unmade if the worker has shut down.
    pub(crate) fn send(&self, share: Option<Share>, make: MakeTask) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shutdown.load(Ordering::Acquire) {
            return;
        }
        inbox.push((share, make));
        self.has_mail.store(true, Ordering::Release);
        drop(inbox);
        self.work_arrived();
    }

    /// False from the moment on that the worker is asked to end.
    pub(crate) fn is_running(&self) -> bool {
        !self.shutdown.load(Ordering::Acquire)
    }

    /// Asks the worker to drop its tasks and end.
    pub(crate) fn shut_down(&self) {
        self.shutdown.store(true, Ordering::Release);
        self.work_arrived();
    }

    /// Wakes the worker if it sleeps; called after something was added for it to do.
    pub(crate) fn work_arrived(&self) {
        if !current::is_worker(self.id)
            && self.sleep.must_notify()
            && let Some(notifier) = self.notifier.get()
        {
            notifier.notify();
        }
    }

    /// Takes no more tasks; gives those that have not been taken in.
    fn close(&self) -> Vec<Of<MakeTask>> {
        self.shutdown.store(true, Ordering::Release);
        self.take_inbox()
    }

    fn take_mail(&self) -> Vec<Of<MakeTask>> {
        if !self.has_mail.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.take_inbox()
    }

    fn take_inbox(&self) -> Vec<Of<MakeTask>> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Ordering::Relaxed);
        mem::take(&mut *inbox)
    }
}

/// What the coroutines of a worker reach through the thread: its reactor, timers and spawn queue.
pub(crate) struct WorkerContext {
    shared: Arc<WorkerShared>,
    index: usize,
    reactor: RefCell<Reactor>,
    timers: RefCell<Timers>,
    announcements: RefCell<Announcements>,
    spawned: RefCell<Vec<Of<Task>>>,
    /// Of the task that runs.
    share: Cell<Option<Share>>,
    bandwidth: Arc<Bandwidth>,
}

impl WorkerContext {
    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// The part of the worker that other threads see.
    pub(crate) fn shared(&self) -> &Arc<WorkerShared> {
        &self.shared
    }

    /// The worker's number in its runtime.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn reactor(&self) -> RefMut<'_, Reactor> {
        self.reactor.borrow_mut()
    }

    pub(crate) fn timers(&self) -> RefMut<'_, Timers> {
        self.timers.borrow_mut()
    }

    /// What the transfers of all workers share.
    pub(crate) fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    fn take_spawned(&self) -> Vec<Of<Task>> {
        mem::take(&mut *self.spawned.borrow_mut())
    }

    pub(crate) fn announcements(&self) -> RefMut<'_, Announcements> {
        self.announcements.borrow_mut()
    }

    /// The share of the task that runs.
    pub(crate) fn share(&self) -> Option<Share> {
        self.share.get()
    }

    /// Adds a task of a share to this worker.
    pub(crate) fn spawn(&self, share: Option<Share>, task: Task) {
        self.spawned.borrow_mut().push((share, task));
    }
}

/// The tasks of a worker, by their slots.
#[derive(Default)]
struct Table {
    wakers: Vec<Waker>,
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
}

impl Table {
    /// Polls the task in a slot, if there is one.
    fn poll(&mut self, slot: usize, shares: &mut Shares, worker: &WorkerContext) -> Polled<()> {
        let Some(task) = &mut self.tasks[slot] else { return Polled::Parked };
        worker.share.set(shares.of(slot));
        let polled = poll_task(task, &mut Context::from_waker(&self.wakers[slot]));
        if let Polled::Ready(()) = polled {
            shares.leave(slot);
            self.free.push(slot);
            discard(self.tasks[slot].take());
        }
        polled
    }
}

/// The loop of a worker thread.
pub(crate) struct Worker {
    shared: Arc<WorkerShared>,
    context: Rc<WorkerContext>,
    /// One for every [`READY_SET_CAPACITY_MAX`] tasks.
    cores: Vec<Arc<ReadyCore>>,
    table: Table,
    runnable: Vec<u64>,
    shares: Shares,
    after: Aftermath,
}

impl Worker {
    /// A worker for this thread.
    pub(crate) fn new(
        shared: Arc<WorkerShared>,
        index: usize,
        driver: Box<dyn Driver>,
        bandwidth: Arc<Bandwidth>,
    ) -> Worker {
        let reactor = Reactor::new(driver);
        assert!(shared.notifier.set(reactor.notifier()).is_ok(), "a worker runs once");
        let context = Rc::new(WorkerContext {
            shared: shared.clone(),
            index,
            reactor: RefCell::new(reactor),
            timers: RefCell::default(),
            announcements: RefCell::default(),
            spawned: RefCell::default(),
            share: Cell::default(),
            bandwidth,
        });
        Worker {
            shared,
            context,
            cores: Vec::new(),
            table: Table::default(),
            runnable: Vec::new(),
            shares: Shares::default(),
            after: Aftermath::default(),
        }
    }

    /// Runs tasks until shutdown; what is left is dropped with the worker.
    pub(crate) fn run(mut self) {
        current::set_worker(Some(self.context.clone()));
        while !self.shared.shutdown.load(Ordering::Acquire) {
            self.admit();
            let busy = self.poll_tasks();
            self.turn(busy);
        }
    }

    /// Takes in tasks from other threads and from this worker's own coroutines.
    fn admit(&mut self) {
        for (share, make) in self.shared.take_mail() {
            self.context.spawn(share, make());
        }
        for (share, task) in self.context.take_spawned() {
            let slot = self.free_slot();
            self.table.tasks[slot] = Some(task);
            self.shares.enter(slot, share);
            self.stays_runnable(slot);
        }
    }

    fn free_slot(&mut self) -> usize {
        loop {
            match self.table.free.pop() {
                Some(slot) => return slot,
                None => self.grow(),
            }
        }
    }

    /// Makes room for 64 more tasks.
    fn grow(&mut self) {
        let start = self.table.tasks.len();
        let in_core = start % READY_SET_CAPACITY_MAX;
        if in_core == 0 {
            let set = ReadySet::new(READY_SET_CAPACITY_MAX);
            let owner = Owner::Worker(self.shared.clone());
            self.cores.push(Arc::new(ReadyCore { set, owner }));
        }
        let core = self.cores.last().expect("the one just made, or one with room");
        self.table.wakers.extend(core.wakers(in_core..in_core + 64));
        self.table.tasks.extend((0..64).map(|_| None));
        self.runnable.push(0);
        self.table.free.extend((start..start + 64).rev());
    }

    /// The task of a slot is to be polled in the next round.
    fn stays_runnable(&mut self, slot: usize) {
        self.runnable[slot / 64] |= 1 << (slot % 64);
    }

    /// Polls runnable tasks: every one once, but those of shares as long as it is their turn. True if some task stays runnable.
    fn poll_tasks(&mut self) -> bool {
        let Worker { cores, runnable, .. } = self;
        for (core, runnable) in cores.iter().zip(runnable.chunks_mut(WORDS_PER_CORE)) {
            core.set.take(|word, bits| runnable[word] |= bits);
        }
        let in_turns = self.shares.are_several();
        if !in_turns {
            let queued: Vec<usize> = self.shares.take_queued().collect();
            queued.into_iter().for_each(|slot| self.stays_runnable(slot));
        }
        let mut busy = false;
        for word in 0..self.runnable.len() {
            let mut bits = mem::take(&mut self.runnable[word]);
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if in_turns && self.shares.enqueue(slot) {
                    continue;
                }
                let (shares, context) = (&mut self.shares, &self.context);
                let polled = self.table.poll(slot, shares, context);
                if matches!(polled, Polled::Runnable) {
                    self.stays_runnable(slot);
                    busy = true;
                }
            }
        }
        if in_turns {
            let Worker { shares, table, context, .. } = self;
            busy |= shares.round(|shares, slot| table.poll(slot, shares, context));
        }
        busy
    }

    /// Serves devices and timers; sleeps if there is nothing to run.
    fn turn(&mut self, busy: bool) {
        let deadline = self.context.timers().first();
        let idle = !busy && !self.has_work();
        let result = if idle {
            self.shared.sleep.announce_sleep();
            let result = if self.has_work() {
                self.context.reactor().turn(deadline, &mut self.after)
            } else {
                self.context.reactor().wait(deadline, &mut self.after)
            };
            self.shared.sleep.woke();
            result
        } else {
            self.context.reactor().turn(deadline, &mut self.after)
        };
        if let Err(error) = result {
            // Not a failed request, but a ring or thread pool that no longer works: the tasks'
            // handles report the shutdown.
            log::error!("worker {} stops, its I/O driver failed: {error}", self.context.index);
            self.shared.shutdown.store(true, Ordering::Release);
        }
        if deadline.is_some() {
            let now = self.context.reactor().now();
            self.context.timers().expire(now, &mut self.after.wakers);
        }
        self.after.settle();
    }

    fn has_work(&self) -> bool {
        self.cores.iter().any(|core| !core.set.is_empty())
            || self.shared.has_mail.load(Ordering::SeqCst)
            || self.shared.shutdown.load(Ordering::SeqCst)
            || !self.context.spawned.borrow().is_empty()
    }
}

impl Drop for Worker {
    /// Drops what is left, whether the worker was shut down or its thread panics.
    fn drop(&mut self) {
        self.shared.close().into_iter().for_each(discard);
        mem::take(&mut self.table.tasks).into_iter().for_each(discard);
        // A task that is dropped may spawn another.
        loop {
            let spawned = self.context.take_spawned();
            if spawned.is_empty() {
                break;
            }
            spawned.into_iter().for_each(discard);
        }
        // Whatever the dropped coroutines had in flight is waited for by the reactor's own drop.
        current::set_worker(None);
    }
}

/// Polls a task, which catches its future's panics itself.
pub(super) fn poll_task(task: &mut Task, context: &mut Context<'_>) -> Polled<()> {
    let poll = AssertUnwindSafe(|| poll_coroutine(task.as_mut(), context));
    catch_unwind(poll).unwrap_or_else(|_| {
        log::error!("a task panicked while its future or result was being dropped");
        Polled::Ready(())
    })
}

/// Drops what belongs to a task; a panic there must not end the worker.
pub(super) fn discard<T>(value: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
        log::error!("a task panicked while it was being dropped");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Instant;

    use super::*;
    use crate::exec::task::{JoinError, JoinHandle, join_channel, task};
    use crate::io::arena::Arena;
    use crate::io::blocking::BlockingDriver;
    use crate::io::driver::{Completion, Request, Submitted};

    /// Fails at the first wait, before which one more task is sent.
    struct Failing {
        bell: BlockingDriver,
        shared: Arc<WorkerShared>,
        last: Option<MakeTask>,
    }

    impl Driver for Failing {
        fn submit(&mut self, request: Request) -> Submitted {
            self.bell.submit(request)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn reap(&mut self, _: &mut Vec<Completion>) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, _: Option<Instant>) -> io::Result<()> {
            self.last.take().into_iter().for_each(|make| self.shared.send(None, make));
            Err(io::ErrorKind::OutOfMemory.into())
        }

        fn in_flight(&self) -> usize {
            0
        }

        fn notifier(&self) -> Arc<dyn Notify> {
            self.bell.notifier()
        }

        fn register(&mut self, _: &Arc<Arena>) -> bool {
            false
        }
    }

    fn parked() -> (MakeTask, JoinHandle<()>) {
        let (sender, handle) = join_channel();
        (Box::new(|| task(std::future::pending(), sender)), handle)
    }

    #[test]
    fn a_worker_whose_driver_fails_ends_all_tasks() {
        let shared = WorkerShared::new();
        let [(first, first_handle), (last, last_handle), (late, late_handle)] =
            std::array::from_fn(|_| parked());
        let seen = shared.clone();
        shared.send(None, first);
        let thread = std::thread::spawn(move || {
            let driver =
                Failing { bell: BlockingDriver::new(), shared: seen.clone(), last: Some(last) };
            Worker::new(seen, 0, Box::new(driver), Arc::default()).run();
        });
        thread.join().unwrap();
        shared.send(None, late);
        for handle in [first_handle, last_handle, late_handle] {
            assert_eq!(handle.wait(), Err(JoinError::Shutdown));
        }
    }
}
