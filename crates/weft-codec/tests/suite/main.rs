//! What the crate promises, on seeded columns of every type and shape.

mod chooser;
mod corruption;
mod nested;
mod predicates;
mod round_trip;
mod support;
mod types;
