//! The processor time of this process: by it a wait tells whether somebody still computes.

use std::time::Duration;

/// What all threads of this process have computed so far; zero where the system does not tell.
pub fn process_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which lives until it returns.
    let is_told = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) } == 0;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    if is_told { Duration::new(seconds, nanoseconds) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_while_somebody_computes() {
        let begin = process_time();
        let mut number = 1_u64;
        while process_time() < begin + Duration::from_millis(5) {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(process_time() > begin && number > 0);
    }
}
