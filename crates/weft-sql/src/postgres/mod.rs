//! PostgreSQL's catalog and the forms of SQL that its clients use to ask it.
//!
//! Clients of PostgreSQL look at the tables of `pg_catalog`. These tables are made here for each statement, from the
//! statement's snapshot (`schema.rs`, `tables.rs`, `defined.rs`); the planner finds them in the schema `pg_catalog`, and by
//! their names alone where no table or view has the name. `numbers.rs` gives tables, views, indexes and roles the numbers
//! (OIDs) by which the catalog's tables refer to each other, `keys.rs` knows what indexes and constraints are in SQL, `procedures.rs`
//! what functions there are, and `types.rs` has PostgreSQL's types. The functions that clients call are
//! those of `functions/`; what they say about the connection comes from its [`Client`]. `syntax.rs` puts what the parser
//! reads but the planner does not know in other terms: qualified operators and functions, `::regclass`, `ARRAY(SELECT …)`.

mod client;
mod defined;
mod functions;
mod keys;
mod numbers;
mod procedures;
mod schema;
mod syntax;
mod tables;
mod types;

pub(crate) use client::Connected;
pub use client::{Backend, Client, ClientSetting};
pub use functions::POSTGRES_VERSION;
pub(crate) use functions::{Surroundings, postgres_functions};
pub use numbers::OWNER;
pub(crate) use numbers::ROLE_OPTION;
pub(crate) use schema::{PG_CATALOG, PgCatalog, table_named};
pub(crate) use syntax::Forms;
pub use syntax::array_items;
pub use types::POSTGRES_TYPE;
pub(crate) use types::postgres_type_name;
