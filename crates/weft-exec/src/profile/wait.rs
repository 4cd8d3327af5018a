//! How long the tasks of a pipeline run, and what they wait for.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_store::spill::thread_time;

use super::{PartName, Profile};

/// What tasks are measured for.
#[derive(Clone, Debug)]
pub(crate) struct Measuring {
    pub(crate) profile: Arc<Profile>,
    /// The part of the pipeline that they work for, if it is one.
    pub(crate) part: Option<PartName>,
}

impl Measuring {
    /// A task has run for so long, and has had the processor for so long.
    pub(crate) fn note_run(&self, cpu: Duration, ran: Duration) {
        self.profile.note_run(cpu, ran);
        if let Some(part) = self.part {
            self.profile.note_part(part, ran);
        }
    }

    /// Another thread has had the processor for so long, for a task.
    fn note_apart(&self, cpu: Duration) {
        self.profile.note_apart(cpu);
        if let Some(part) = self.part {
            self.profile.note_part(part, cpu);
        }
    }
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A device.
    Device,
    /// Memory that others have.
    Memory,
    /// Something else, or nothing: it lets others run.
    Other,
}

thread_local! {
    /// What the task that runs on this thread has waited for last, and where, as far as somebody has said.
    static WAIT: Cell<(Wait, Option<PartName>)> = const { Cell::new((Wait::Other, None)) };
    /// Processor time that other threads have had for tasks of this thread, up to now.
    static APART: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Another thread has had the processor for so long, for the task that runs on this one.
pub(crate) fn note_apart(cpu: Duration) {
    APART.set(APART.get() + cpu);
}

/// All that [`note_apart`] was told on this thread.
pub(super) fn apart() -> Duration {
    APART.get()
}

/// Waits for `future`, and says for what.
pub(crate) async fn waiting<T>(wait: Wait, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            WAIT.set((wait, None));
        }
        polled
    })
    .await
}

/// Waits for `future`, and says in which part of the pipeline, unless it has said so itself.
pub(crate) async fn waiting_in<T>(part: PartName, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            let (wait, within) = WAIT.get();
            WAIT.set((wait, within.or(Some(part))));
        }
        polled
    })
    .await
}

/// Runs `future`, which is a task, and measures it if somebody wants to know.
pub(crate) async fn measured<T>(
    measuring: Option<Measuring>,
    future: impl Future<Output = T>,
) -> T {
    measured_from(measuring, future, false).await
}

/// The same for a task that begins within another ([`weft_rt::spawn_begun`]), which is measured until this waits.
pub(crate) async fn measured_within<T>(
    measuring: Option<Measuring>,
    future: impl Future<Output = T>,
) -> T {
    measured_from(measuring, future, true).await
}

async fn measured_from<T>(
    measuring: Option<Measuring>,
    future: impl Future<Output = T>,
    mut is_within: bool,
) -> T {
    let Some(measuring) = measuring else { return future.await };
    let mut future = pin!(future);
    let mut waits: Option<((Wait, Option<PartName>), Instant)> = None;
    poll_fn(|context| {
        if std::mem::take(&mut is_within) {
            let of_other = WAIT.replace((Wait::Other, None));
            let polled = future.as_mut().poll(context);
            waits = polled.is_pending().then(|| (WAIT.get(), Instant::now()));
            WAIT.set(of_other);
            return polled;
        }
        let began = Instant::now();
        if let Some(((wait, part), since)) = waits.take() {
            measuring.profile.note_waited(wait, part.or(measuring.part), began - since);
        }
        WAIT.set((Wait::Other, None));
        let (cpu_before, apart_before) = (thread_time(), apart());
        let polled = future.as_mut().poll(context);
        let (cpu, ended) = (thread_time().saturating_sub(cpu_before), Instant::now());
        measuring.note_run(cpu, ended - began);
        measuring.note_apart(apart() - apart_before);
        if polled.is_pending() {
            waits = Some((WAIT.get(), ended));
        }
        polled
    })
    .await
}

/// What the task that runs on this thread waits for, and in which part of the pipeline, if nothing else is said after this.
pub(crate) fn note_wait(wait: Wait, part: PartName) {
    WAIT.set((wait, Some(part)));
}
