//! Databases and sessions.
