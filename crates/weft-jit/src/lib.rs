//! Compiled pipelines: a second back end for the steps of [`weft_exec::program`], by Cranelift.
//!
//! A [`Run`](run::Run) is a part of a program whose steps are expressions over numbers and truth values: arithmetic, comparisons, logic,
//! casts, decimals, CASE and filters. It becomes one function over a vector: a loop with one turn per selected tuple, in which values
//! stay in the processor's registers, so that only what later steps read is written to vectors. Everything else stays a kernel of the
//! interpreter: what looks at strings, decodes, hashes or is better done with vector instructions.
//!
//! - [`run`] finds the runs of a program and gives each a *shape*: its steps with registers numbered anew and constants taken out.
//! - `emit` makes Cranelift's intermediate code of a shape, `emit_numbers` has arithmetic, casts and decimals.
//! - `native` has pages of machine code, which are writable or executable and never both.
//! - [`compiler`] compiles programs, keeps code by shape within the memory budget, and explains it. `call` executes code on registers.
//! - [`coroutine`] is what a generated function is that waits: a frame, a function that starts it, one that resumes it.
//! - `probe` is the coroutine of an index-nested-loop join: it makes keys of tuples and awaits the descents of an index.
//!
//! *Errors.* Generated code notices overflow, division by zero and casts without a result, and leaves the vector to the interpreter: which
//! error there is, and of which row, is the interpreter's to say.
//!
//! *Architecture invariant*: nothing here decides when to compile ([`weft_exec::compile`] does), and nothing of the steps' meaning is
//! defined here.

mod call;
pub mod compiler;
pub mod coroutine;
mod emit;
mod emit_numbers;
mod helpers;
mod native;
mod probe;
pub mod run;

pub use compiler::JitCompiler;
