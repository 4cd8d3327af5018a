//! Contexts whose operators spill to a simulated disk, and what they must have left in the end.

use std::sync::Arc;
use std::time::Duration;

use weft_exec::query::Context;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimClock, SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::Directory;
use weft_store::spill::{SpillArea, SpillStats};

use crate::spill_compression::spilling;

/// A context whose operators spill to a simulated disk, on which every request suspends. Several workers go by the machine's
/// clock: simulated time would end their patience before others have had a turn.
pub fn context(workers: usize, bytes: u64, faults: SimFaults) -> Context {
    let clock = if workers == 1 { SimClock::Virtual } else { SimClock::Real };
    let disk = SimDisk::new(SimOptions { clock, faults, ..SimOptions::testing(bytes) });
    let driver = DriverKind::Sim(disk.clone());
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    let runtime = Runtime::new(&options).expect("workers");
    let mut context = Context::new(Arc::new(runtime), Ledger::new(bytes));
    let directory = Directory::Sim(disk, "spill".into());
    context.spilling = Some(spilling(SpillArea::new(vec![directory], 1 << 40)));
    context
}

/// What was spilled.
pub fn stats(context: &Context) -> SpillStats {
    context.spilling.as_ref().expect("a place to spill to").area().stats()
}

/// Neither memory nor space on the disk.
pub fn assert_nothing_is_left(context: &Context) {
    assert_eq!(context.ledger.used(), 0, "memory");
    assert_eq!((stats(context).used_bytes, stats(context).file_bytes), (0, 0), "space");
}

/// The same soon: requests that were on their way when something failed end first.
pub fn settled(context: &Context) {
    for _ in 0..500 {
        if context.ledger.used() == 0 && stats(context).file_bytes == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_nothing_is_left(context);
}
