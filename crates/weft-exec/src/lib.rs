//! The execution engine: queries as pipelines over vectors of tuples.
//!
//! A *pipeline* is a source, a flat [`Program`] of typed steps, and a sink that is a pipeline
//! breaker or the query's result. Its morsels are coroutines on the runtime's workers. The steps are the contract
//! between an interpreter, which runs one step after the other over a whole vector, and a compiler, which
//! may fuse them.
//!
//! - [`lane`] and [`text`] are the values that steps know, [`vector`] holds up to [`VECTOR_ROWS_MAX`] of one lane,
//!   [`selection`] says which of them count.
//! - [`interpret`] runs programs by [`kernels`], one per step; [`expand`] is what makes several tuples of one.
//! - [`mod@compile`] decides when compiled code takes the place of interpreted steps.
//! - [`program`] has the step set, [`registers`] what it works on, [`pipeline`] what lies around it, [`query`] the
//!   whole.
//! - [`Query::run`](query::Query::run) drives: a task per worker and pipeline, many morsels waiting for devices at
//!   once. [`source`]s give tuples, from Arrow's arrays by [`arrow`].
//! - [`aggregate`] is hash aggregation.
//! - [`mod@tuple`] materializes rows on pages (Umami), for every pipeline breaker alike.
//! - [`spill`] is what operators do that outgrow memory.
//! - [`profile`] measures what the parts of a pipeline do, if somebody wants to know.
//! - [`join`] is the unified hash join: its build side's sink, the step that looks up, the source of what is left.
//! - [`sort`] sorts all tuples or keeps the first ones, [`window`] evaluates functions over sorted ones, [`sink`] has the other ends of pipelines: results, limits.
//!
//! Whoever makes a program knows SQL's types; here are only lanes. Types of a query planner are unknown to this crate.

pub mod aggregate;
mod apart;
pub mod arrow;
mod barrier;
pub mod compile;
mod constant;
mod copies;
mod drive;
pub mod error;
pub mod expand;
pub mod interpret;
pub mod join;
pub mod kernels;
pub mod lane;
mod late;
pub mod pace;
mod parallel;
pub mod pipeline;
pub mod profile;
pub mod program;
pub mod query;
pub mod registers;
pub mod selection;
pub mod sink;
pub mod sort;
pub mod source;
pub mod spill;
mod tasks;
pub mod text;
pub mod tuple;
pub mod validity;
pub mod vector;
pub mod window;
mod work;
mod zeroed;

pub use error::{ExecError, Result};
pub use interpret::Interpreter;
pub use lane::{Lane, Value};
pub use program::Program;
pub use tasks::QueryTask;
pub use text::Str;
pub use vector::{VECTOR_ROWS_MAX, Vector};
