//! Waits that stay runnable: a prefetch and a plain yield.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::current::stay_runnable;

/// Asks for the cache line at `ptr` and lets the other coroutines of the batch run meanwhile
/// (CoroBase, section 3: prefetch and suspend at every data-dependent pointer).
///
/// The address need not be valid: a prefetch never faults.
#[inline]
pub fn prefetch<T>(ptr: *const T) -> YieldNow {
    prefetch_line(ptr);
    yield_now()
}

/// Asks for the cache line at `ptr` without suspending. The address need not be valid.
#[inline]
pub fn prefetch_line<T>(ptr: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(ptr.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch is a hint; it never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) ptr, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = ptr;
}

/// Asks for the cache line at `ptr` in the second-level cache, without suspending: for memory that is
/// read soon, but not at once. The address need not be valid.
#[inline(always)]
pub fn prefetch_line_to_l2<T>(ptr: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(ptr.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch is a hint; it never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{0}]", in(reg) ptr, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = ptr;
}

/// Lets every other runnable coroutine of the batch run once.
#[inline]
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`] and [`prefetch`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        stay_runnable(context);
        Poll::Pending
    }
}
