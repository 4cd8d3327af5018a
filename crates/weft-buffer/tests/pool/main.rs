//! The buffer pools under contention, cancellation, errors and damage, over every driver.

mod changes;
mod contention;
#[path = "../../../weft-rt/tests/runtime/drivers.rs"]
mod drivers;
mod errors;
mod given_up;
mod mixed;
mod pages;
mod residence;
mod scans;
mod static_cache;
