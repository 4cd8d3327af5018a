//! The store through its public interface.

mod basics;
mod support;
