//! Weft's own engine executes: physical plans of DataFusion become pipelines of `weft-exec`.
//!
//! - [`rule`] finds the parts of a plan that have pipelines. Each becomes one node ([`exec`]); what has none stays
//!   DataFusion's, with the reason ([`fallback`]), and feeds the pipelines above it ([`input`], [`feed`]), as foreign leaves do ([`leaf`]).
//! - [`translate`] goes through a part from its leaves on ([`source`]) and keeps [`open`] pipelines, whose columns are
//!   [`term`]s. `join` (`join_build`, `join_probe`, `join_sides`), `aggregate`, `aggregate_function`, `row_keys`, `sort`, `window`
//!   (`window_function`, `window_accumulator`, `window_frame`, `window_way`) and `scalar` end pipelines and begin new ones; [`stored`] is how
//!   columns come through. [`asks`] are the filters of build sides on their way to where they are asked. [`shared`] has
//!   what occurs more than once run once: `same` knows what is the same, `worth` what is worth it.
//! - [`expressions`] turns expressions into steps: `logic`, `compare`, `arithmetic`, `cast`, `functions`; and `call`
//!   has DataFusion evaluate the rest over the vector. `condition` is that of a scan of files, which the scan runs itself. [`bounds`] say where numbers fit into fewer bits, and need no
//!   checks.
//! - `description` has pipelines in words, and `report` what they have done.

mod aggregate;
mod aggregate_function;
mod arithmetic;
mod asks;
mod bounds;
mod call;
mod cast;
mod compare;
mod condition;
mod description;
mod exec;
mod expressions;
mod fallback;
mod feed;
mod functions;
mod index_choice;
mod index_join;
mod input;
mod join;
mod join_build;
mod join_probe;
mod join_sides;
mod leaf;
mod logic;
mod open;
mod report;
mod row_keys;
mod rule;
mod same;
mod scalar;
mod shared;
mod sort;
mod source;
mod stored;
mod term;
mod translate;
mod window;
mod window_accumulator;
mod window_frame;
mod window_function;
mod window_varying;
mod window_way;
mod worth;

pub(crate) use exec::PipelinesExec;
pub(crate) use leaf::file_scan;
pub(crate) use report::{Totals, code, lines, seconds};
pub(crate) use rule::{ByPipelines, Pipelines};
