//! The store through its public interface.

mod basics;
mod concurrency;
mod crash;
mod damage;
mod failures;
mod format;
mod support;
