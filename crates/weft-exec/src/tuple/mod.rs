//! Materialized tuples: rows on pages, for every pipeline breaker alike (Umami: Spilly, sections 4.2 and 5.3).
//!
//! [`Layout`] says how a tuple lies in memory, [`Page`] holds tuples of one layout, [`Materializer`] stores the tuples
//! of a pipeline on pages, partitioned or not, and [`Materialized`] is what it leaves. An operator refers to a tuple by
//! its address, and reads its fields by [`load()`]; nothing in it refers to an address, but for the chain that an
//! operator may make in memory.

pub(crate) mod allowed;
pub(crate) mod behind;
pub(crate) mod budget;
mod codebook;
mod copy;
pub(crate) mod dense;
pub mod layout;
mod leaving;
pub mod load;
pub mod materialized;
pub mod materializer;
pub(crate) mod pack;
pub(crate) mod packing;
pub mod page;
mod patience;
mod pressure;
mod spilling;
mod through;
mod write;

pub(crate) use layout::hash_at;
pub use layout::{Field, Layout, Storage};
pub use load::load;
pub use materialized::Materialized;
pub use materializer::Materializer;
pub use page::Page;
pub use weft_codec::Sketch;
