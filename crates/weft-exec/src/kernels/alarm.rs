//! What a loop keeps of failures: bits that tell, combined by OR, which vectorizes as a branch would not.

/// Traces of failures.
pub(crate) trait Alarm: Copy + Default {
    /// True if there may have been one.
    fn rang(self) -> bool;
}

/// For what cannot fail.
impl Alarm for () {
    fn rang(self) -> bool {
        false
    }
}

impl Alarm for bool {
    fn rang(self) -> bool {
        self
    }
}

/// Rings if the highest bit is set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sign<T>(pub T);

/// Rings if any bit is set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Any<T>(pub T);

/// The bits of all left factors and of all right ones, but for their signs. Rings if a product could be too large.
///
/// A product of 64 bits has no cheap bits that tell whether it was too large. How large the factors are says nearly
/// always that it was not.
#[derive(Clone, Copy, Default)]
pub(crate) struct Factors<T>(pub T, pub T);

macro_rules! alarms {
    ($($value:ty),*) => {$(
        impl Alarm for Sign<$value> {
            fn rang(self) -> bool {
                self.0 < 0
            }
        }

        impl Alarm for Any<$value> {
            fn rang(self) -> bool {
                self.0 != 0
            }
        }
    )*};
}
alarms!(i32, i64, i128);

macro_rules! unsigned_alarms {
    ($($value:ty),*) => {$(
        impl Alarm for Any<$value> {
            fn rang(self) -> bool {
                self.0 != 0
            }
        }
    )*};
}
unsigned_alarms!(u32, u64);

impl Alarm for Factors<i64> {
    fn rang(self) -> bool {
        // Of m and n bits besides the sign, they are at most 2^m and 2^n in magnitude.
        128 - self.0.leading_zeros() - self.1.leading_zeros() > 62
    }
}

impl Alarm for Factors<u64> {
    fn rang(self) -> bool {
        128 - self.0.leading_zeros() - self.1.leading_zeros() > 64
    }
}
