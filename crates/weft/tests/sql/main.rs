//! The database through its public interface: statements of all kinds by sessions of one process.

#![forbid(unsafe_code)]

mod access;
mod attach;
mod cancellation;
mod copy;
mod files;
mod index_changes;
mod index_joins;
mod index_joins_compiled;
mod index_only;
mod index_orders;
mod kept;
mod kept_changes;
mod parquet;
mod pipelines;
mod point_queries;
mod remote;
mod row_waits;
mod sessions;
mod support;
mod tables;
mod transactions;
mod web_server;
