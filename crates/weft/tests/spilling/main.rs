//! Statements that spill, on a simulated disk: what goes wrong in the middle of it, in every operator, at its first requests and some
//! between; and many of them at once, at a limit that fits one or that changes meanwhile; and imports.

#![forbid(unsafe_code)]

mod bench;
mod budget;
mod faults;
mod foreign;
mod imports;
mod operators;
