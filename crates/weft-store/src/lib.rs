//! The database directory.
