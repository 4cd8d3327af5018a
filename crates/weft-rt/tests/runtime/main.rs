//! The runtime through its public interface, over every driver.

mod abandoned;
mod bandwidth;
mod drivers;
mod executor;
mod foreign;
mod panics;
mod shares;
mod shutdown;
mod tokio_tasks;
mod transfers;
