//! Trees against `BTreeMap`, over every driver, with little memory, many writers, crashes and damage.

mod crash;
mod damage;
#[path = "../../../weft-rt/tests/runtime/drivers.rs"]
mod drivers;
mod oracle;
mod space;
