//! The same loop compiled for several generations of processors, of which the best one is run.
//!
//! A loop is a [`Kernel`] whose `run` is always inlined: into a function for AVX-512, one for AVX2, one for whatever
//! the target has at least. The compiler vectorizes each for what it may use. Unoptimized builds have only the last,
//! since nothing is vectorized there.

/// A loop, with whatever it works on.
pub trait Kernel {
    /// What it gives.
    type Output;

    /// Runs it. To be marked `#[inline(always)]`, as everything that it calls per row.
    fn run(self) -> Self::Output;
}

/// Runs a loop as the processor can do it best.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
            // SAFETY: the features that the function is compiled for were just detected.
            return unsafe { x86::avx512(kernel) };
        }
        if has!("avx2") && has!("bmi1") && has!("bmi2") {
            // SAFETY: the features that the function is compiled for were just detected.
            return unsafe { x86::avx2(kernel) };
        }
    }
    kernel.run()
}

#[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
mod x86 {
    use super::Kernel;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
}
