//! SQL: the only crate that names DataFusion.
//!
//! A [`Session`] parses a statement, plans it on what the database holds at that moment, and runs it on the threads of
//! the [`Engine`], which all sessions share together with the memory budget. DataFusion parses, binds and optimizes,
//! and executes unless Weft's own engine is chosen; what its grammar lacks is parsed here, and tables, loading,
//! settings, memory and errors are Weft's.
//!
//! **API boundary:** types of DataFusion do not leave this crate; results are Arrow's.

#![forbid(unsafe_code)]

mod assign;
mod catalog;
mod char_length;
mod checked_sum;
mod collected;
mod comparisons;
mod constraints;
mod control;
mod copy_from;
mod copy_options;
mod copy_statement;
mod copy_to;
mod csv_diagnosis;
mod date_times;
mod date_trunc;
mod ddl;
mod decimal_digits;
mod dependents;
mod depth;
mod describe;
mod distinct_groups;
mod duplicates;
mod economy;
mod engine;
mod error;
mod exact_quantiles;
mod explain;
mod file_readers;
mod files;
mod filters;
mod float_extremes;
mod floats;
mod foreign;
mod functions;
mod grammar;
mod grouping_sets;
mod groupings;
mod hex;
mod identifiers;
mod information_schema;
mod insert;
mod insert_diagnosis;
mod integer_text;
mod interval_products;
mod intervals;
mod join_conditions;
mod join_order;
mod known_aggregates;
mod locate;
mod materialized;
mod memory;
mod merge_joins;
mod mixed_numbers;
mod moments;
mod named_windows;
mod names;
mod narrowing_casts;
mod no_rows;
mod nullif;
mod one_argument;
mod open;
mod ordered_texts;
mod overflow;
mod own_functions;
mod patterns;
mod physical_rule;
mod pipelines;
mod plan_node;
mod plan_walk;
mod powers;
mod pushdown;
mod pushed_filters;
mod query_comparisons;
mod range_frames;
mod ranked;
mod represented;
mod rewrite;
mod rounding;
mod run;
mod running;
mod same_names;
mod scan;
mod session;
mod set_statement;
mod settings;
mod show;
mod signed_ranks;
mod sizes;
mod spill_files;
mod statement;
mod statement_option;
mod struct_types;
mod subqueries;
mod suggest;
mod table;
mod text;
mod timestamp_casts;
mod tree_explained;
mod types;
mod unsupported;
mod using_joins;
mod value;
mod whole_orders;
mod window_filters;
mod write;
mod yielding;

pub use control::CancelHandle;
pub use engine::{Counters, Engine, EngineOptions};
pub use error::{ErrorKind, Position, Result, SqlError};
pub use identifiers::quoted;
pub use running::{ResultKind, Running};
pub use session::Session;
pub use settings::Setting;
pub use sizes::grouped;
pub use text::{Statement, count_parameters, is_incomplete, split_statements};
pub use value::Value;
pub use weft_exec::spill::{LEVELS as SPILL_LEVELS, level_name as spill_level_name};
