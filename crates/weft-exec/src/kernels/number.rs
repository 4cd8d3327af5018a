//! Numbers of one lane as numbers of another.

use std::fmt;

use crate::lane::{Bool, Value};

/// A number that can be cast.
pub(crate) trait Number: Value + fmt::Display {}

/// A number as one of another type: what it becomes, and whether that is right.
pub(crate) trait To<B: Number>: Number {
    /// The other number, and true if this one has no place there; the other then means nothing.
    fn to(self) -> (B, bool);
}

macro_rules! numbers {
    ($($value:ty),*) => {$(
        impl Number for $value {}
    )*};
}
numbers!(Bool, i8, i16, i32, i64, u8, u16, u32, u64, i128, f32, f64);

impl fmt::Display for Bool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), formatter)
    }
}

macro_rules! from_integer {
    ($from:ty => integers $($into:ty)*) => {$(
        impl To<$into> for $from {
            #[inline(always)]
            fn to(self) -> ($into, bool) {
                (self as $into, <$into>::try_from(self).is_err())
            }
        }
    )*};
}

macro_rules! from_integers {
    ($($from:ty)*) => {$(
        from_integer!($from => integers i8 i16 i32 i64 u8 u16 u32 u64 i128);

        impl To<f32> for $from {
            #[inline(always)]
            fn to(self) -> (f32, bool) {
                (self as f32, false)
            }
        }

        impl To<f64> for $from {
            #[inline(always)]
            fn to(self) -> (f64, bool) {
                (self as f64, false)
            }
        }

        impl To<Bool> for $from {
            #[inline(always)]
            fn to(self) -> (Bool, bool) {
                (Bool::from(self != 0), false)
            }
        }

        impl To<$from> for Bool {
            #[inline(always)]
            fn to(self) -> ($from, bool) {
                (self.0 as $from, false)
            }
        }
    )*};
}
from_integers!(i8 i16 i32 i64 u8 u16 u32 u64 i128);

macro_rules! from_float {
    ($from:ident => $($into:ident)*) => {$(
        impl To<$into> for $from {
            #[inline(always)]
            fn to(self) -> ($into, bool) {
                // The least number, and the one after the greatest, are powers of two, which floats have.
                let whole = self.trunc();
                let least = $into::MIN as $from;
                let end = ($into::MAX / 2 + 1) as $from * 2.0;
                (whole as $into, !((whole >= least) & (whole < end)))
            }
        }
    )*};
}

macro_rules! from_floats {
    ($($from:ident)*) => {$(
        from_float!($from => i8 i16 i32 i64 u8 u16 u32 u64 i128);

        impl To<Bool> for $from {
            #[inline(always)]
            fn to(self) -> (Bool, bool) {
                (Bool::from(self != 0.0), false)
            }
        }

        impl To<$from> for Bool {
            #[inline(always)]
            fn to(self) -> ($from, bool) {
                (self.0.into(), false)
            }
        }
    )*};
}
from_floats!(f32 f64);

macro_rules! floats {
    ($($from:ident => $into:ident),*) => {$(
        impl To<$into> for $from {
            #[inline(always)]
            fn to(self) -> ($into, bool) {
                (self as $into, false)
            }
        }
    )*};
}
floats!(f32 => f32, f32 => f64, f64 => f32, f64 => f64);

impl To<Bool> for Bool {
    #[inline(always)]
    fn to(self) -> (Bool, bool) {
        (self, false)
    }
}
