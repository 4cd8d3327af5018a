//! The cores that workers may be bound to.

use std::io;

/// The cores that this process may run on.
pub(crate) fn allowed_cores() -> Vec<usize> {
    // SAFETY: a CPU set is plain bits, for which zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes at most the given size to `set`.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: the indexes lie inside the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Binds this thread to a core, if the system lets it.
pub(crate) fn pin_to(core: usize) {
    // SAFETY: a CPU set is plain bits; `core` came from one; the call reads `set` only.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if result != 0 {
        log::warn!("cannot pin a worker to core {core}: {}", io::Error::last_os_error());
    }
}
