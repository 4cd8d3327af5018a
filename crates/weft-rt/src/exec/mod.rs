//! The executor: workers, tasks, batches of coroutines, and the waits that need no device.
//!
//! A worker is one thread with a ring of its own. It polls *tasks* (boxed futures: few, one per
//! pipeline and worker); a task may hold a [`Batch`](batch::Batch) of same-typed coroutines, which
//! lie inline in one array and are polled round-robin without any allocation. Both levels find
//! what is runnable in a [`ReadySet`](crate::sync::ready_set::ReadySet).

pub mod batch;
pub(crate) mod cores;
pub(crate) mod current;
pub mod lookahead;
pub mod morsel;
pub mod prefetch;
pub mod runtime;
pub mod share;
pub mod task;
pub mod timer;
pub(crate) mod waker;
pub(crate) mod worker;
pub mod worker_ref;
