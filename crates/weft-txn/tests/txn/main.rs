//! Transactions: anomalies as small histories, random histories against a checker, rows against a map, garbage, waits.

mod anomalies;
mod drivers;
mod fixture;
mod garbage;
mod histories;
mod log;
mod rows;
