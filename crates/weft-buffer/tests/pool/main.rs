//! The buffer pool under contention, cancellation, errors and damage, over every driver.

mod contention;
#[path = "../../../weft-rt/tests/runtime/drivers.rs"]
mod drivers;
mod errors;
mod given_up;
mod pages;
mod static_cache;
