//! Pages, swips and frames: what lies between the runtime's raw reads and the data structures that
//! are made of pages.
//!
//! A [`PageTable`] refers to each of its pages by a [`Swip`]: an address if the page is in memory, a
//! [`PageId`] if it is not. [`BufferPool::fix`] turns that into a guard on the page's bytes, and suspends
//! the coroutine while they are read. The pool keeps pages of all sizes in memory within the budget.
//!
//! Pages of a table may change their places, and come and go: [`PageGuardMut::relocate`],
//! [`BufferPool::create`], [`PageGuardMut::vacate`]. [`BufferPool::try_optimistic`] reads a page in memory
//! without a pin.
//!
//! [`StaticPool`] is the pool of the ADMS experiments, with a chosen fraction of permanent pages.

#[cfg(not(loom))]
mod cooling;
#[cfg(not(loom))]
pub mod devices;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
mod frame_size;
#[cfg(any(not(loom), test))]
mod frame_state;
#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod give_back;
#[cfg(not(loom))]
pub mod guard;
#[cfg(not(loom))]
mod hits;
#[cfg(not(loom))]
pub mod optimistic;
pub mod page;
#[cfg(not(loom))]
mod page_cache;
#[cfg(not(loom))]
pub mod page_table;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
mod run;
#[cfg(not(loom))]
mod shelf;
#[cfg(not(loom))]
pub mod static_cache;
#[cfg(not(loom))]
mod static_frames;
#[cfg(not(loom))]
pub mod static_pool;
pub mod swip;
#[cfg(not(loom))]
mod write_back;

pub use page::{
    PAGE_BYTES_MAX, PAGE_HEADER_BYTES, PAGE_UNIT_BYTES, PageError, PageHeader, PageId, is_page_size,
};
pub use swip::{Swip, SwipState};
#[cfg(not(loom))]
pub use {
    devices::Devices,
    error::BufferError,
    guard::{PageGuard, PageGuardMut},
    optimistic::OptimisticPage,
    page_table::{PageCheck, PageTable},
    pool::{BufferPool, CacheStats, PoolOptions},
    static_cache::{Choice, StaticCache},
    static_pool::{PoolStats, StaticGuard, StaticPool},
};

/// The atomics of swips and frames: the standard library's, or loom's when it model-checks them.
mod primitives {
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
}
