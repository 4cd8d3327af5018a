//! Weft for Python: the extension module below the package `weft`.
//!
//! What lies here is what Python cannot do: sessions and results of the crate `weft`, values and record batches on their
//! way between the languages, and waiting, during which other threads of Python run. What people use (connections,
//! cursors, relations, frames) is written in Python, in `python/weft`, over the classes of this module.
//!
//! - A wait ends when a signal comes (`wait.rs`), or is none at all: coroutines are woken through a pipe (`wakeups.rs`).
//! - The interpreter waits for functions that run when it ends (`calls.rs`).
//! - Objects of a process are of no use after a fork (`process.rs`).
//! - The module is a driver of ADBC, too: managers of drivers load it, and call the entry point of the crate `weft-adbc`.
//! - Record batches go through Arrow's C data interface, without a copy (`stream.rs`).

mod build;
mod calls;
mod database;
mod error;
mod function;
mod parameter;
mod process;
mod read;
mod relation;
mod session;
mod statement;
mod stream;
mod wait;
mod wakeups;

use std::alloc::System;

// Its entry points are found by their names in the library that this module is.
use adbc_driver_weft as _;
use pyo3::prelude::*;
use weft::{CountingAllocator, KeepingAllocator};

/// Counts, so that the memory limit holds for all that Weft has; keeps some of what is freed.
#[global_allocator]
static ALLOCATOR: CountingAllocator<KeepingAllocator<System>> =
    CountingAllocator::new(KeepingAllocator::new(System));

/// The extension module.
///
/// It needs no lock of the interpreter: classes are frozen, what changes in them lies behind locks of Rust or is atomic, and none of these
/// locks is held while code of Python runs or a thread waits for the interpreter.
#[pymodule(gil_used = false)]
mod _weft {
    #[pymodule_export]
    use super::calls::end_calls;
    #[pymodule_export]
    use super::database::Database;
    #[pymodule_export]
    use super::relation::Relation;
    #[pymodule_export]
    use super::session::{Session, insert_of_rows, quoted, relation_names, split};
    #[pymodule_export]
    use super::statement::{Batch, Statement};
    #[pymodule_export]
    use super::wakeups::Wakeups;
}
