//! SQL: the only crate that names DataFusion.
//!
//! A [`Session`] parses a statement, plans it on what the database holds at that moment, and runs it
//! on the threads of the [`Engine`], which all sessions share together with the memory budget.
//! DataFusion parses, binds, optimizes and executes; what its grammar lacks is parsed here, and tables,
//! loading, settings, memory and errors are Weft's.
//!
//! **API boundary:** types of DataFusion do not leave this crate; results are Arrow's.

#![forbid(unsafe_code)]

mod catalog;
mod checked_sum;
mod constraints;
mod control;
mod copy_from;
mod copy_options;
mod copy_to;
mod csv_diagnosis;
mod date_times;
mod ddl;
mod describe;
mod engine;
mod error;
mod files;
mod locate;
mod memory;
mod names;
mod open;
mod overflow;
mod pushdown;
mod rewrite;
mod run;
mod running;
mod scan;
mod session;
mod settings;
mod show;
mod sizes;
mod statement;
mod suggest;
mod table;
mod text;
mod types;
mod unsupported;
mod value;
mod write;
mod yielding;

pub use control::CancelHandle;
pub use engine::{Counters, Engine, EngineOptions};
pub use error::{ErrorKind, Position, Result, SqlError};
pub use running::{ResultKind, Running};
pub use session::Session;
pub use settings::Setting;
pub use text::{Statement, count_parameters, is_incomplete, split_statements};
pub use value::Value;
