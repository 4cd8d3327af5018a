//! Pages, swips and frames: what lies between the runtime's raw reads and the data structures that
//! are made of pages.
//!
//! A data structure refers to a page by a [`Swip`]: an address if the page is in
//! memory, a [`PageId`] if it is not. [`BufferPool::fix`] turns
//! a swip into a guard on the page's bytes, and suspends the coroutine while they are read.

#[cfg(not(loom))]
pub mod devices;
#[cfg(not(loom))]
mod frame;
#[cfg(any(not(loom), test))]
mod frame_state;
pub mod page;
pub mod page_table;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod static_cache;
pub mod swip;

pub use page::{PAGE_HEADER_BYTES, PageError, PageHeader, PageId, SizeClass};
pub use page_table::PageTable;
pub use swip::{Swip, SwipState};
#[cfg(not(loom))]
pub use {
    devices::Devices,
    pool::{BufferError, BufferPool, PageGuard, PoolStats},
    static_cache::{Choice, StaticCache},
};

/// The atomics of swips and frames: the standard library's, or loom's when it model-checks them.
mod primitives {
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}
