//! Much memory is given back on a thread of its own: for some gigabytes the system takes a second, which no worker has.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use weft_rt::background;
use weft_rt::memory::Reservation;

/// Bytes for which it takes many milliseconds.
const MUCH_BYTES: u64 = 256 << 20;

type Late = Box<dyn Send>;

/// True if what has this memory should rather be dropped late.
pub(crate) fn is_much(memory: &Reservation) -> bool {
    memory.bytes() >= MUCH_BYTES
}

/// Drops something on that thread, soon, with the reservation of its memory and whatever else should last until then; here and now if
/// there is no thread.
pub(crate) fn drop_late(large: impl Send + 'static) {
    static LATE: OnceLock<Option<Sender<Late>>> = OnceLock::new();
    let late = LATE.get_or_init(|| {
        let (sender, all) = channel::<Late>();
        background::spawn("weft-late", move || all.into_iter().for_each(drop)).ok().map(|()| sender)
    });
    if let Some(late) = late {
        // One that nobody takes is dropped here.
        drop(late.send(Box::new(large)));
    }
}
