//! The store through its public interface.

mod basics;
mod block_device;
mod concurrency;
mod crash;
mod damage;
mod delete;
mod failures;
mod format;
mod index_deletes;
mod indexes;
mod journal;
mod pieces;
mod small_transactions;
mod spill;
mod support;
mod tidy;
mod transactions;
