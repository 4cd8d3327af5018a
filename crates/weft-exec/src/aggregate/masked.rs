//! Very few groups: each sums up all rows of a vector, with zero in place of those that are others'. That costs less than
//! to sort rows by group, as whole vectors of the processor are added.

use weft_codec::dispatch::{Kernel, dispatch};

use super::state::Tuple;
use crate::lane::Value;
use crate::vector::VECTOR_ROWS_MAX;

/// Most groups that are so few.
pub(super) const MASKED_MAX: usize = 8;
/// In place of a group's number where a row is not selected.
pub(super) const NOBODY: u8 = u8::MAX;

/// The groups of a vector's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masked<'a> {
    /// By number, [`MASKED_MAX`] at most.
    pub(super) groups: &'a [Tuple],
    /// How many rows each has.
    pub(super) counts: &'a [u16],
    /// The number of each row's group, or [`NOBODY`].
    pub(super) numbers: &'a [u8],
}

/// The sum of one group, in a loop so plain that it becomes one over whole vectors.
struct Sum<'a, T, F> {
    values: &'a [T],
    numbers: &'a [u8],
    group: u8,
    of: F,
}

impl<T: Value, F: Fn(T) -> i64> Kernel for Sum<'_, T, F> {
    type Output = i64;

    #[inline(always)]
    fn run(self) -> i64 {
        let mut sum = 0i64;
        for (value, number) in self.values.iter().zip(self.numbers) {
            // Whatever lies where no row is selected may overflow, and does not count.
            let term = if *number == self.group { (self.of)(*value) } else { 0 };
            sum = sum.wrapping_add(term);
        }
        sum
    }
}

/// The sum for each group of what `of` makes of the values. Sums must not overflow.
pub(super) fn sums<T: Value>(
    values: &[T],
    masked: Masked<'_>,
    of: impl Fn(T) -> i64 + Copy,
) -> [i64; MASKED_MAX] {
    let numbers = masked.numbers;
    let values = &values[..numbers.len()];
    let mut sums = [0; MASKED_MAX];
    for (group, sum) in (0..).zip(&mut sums[..masked.groups.len()]) {
        *sum = dispatch(Sum { values, numbers, group, of });
    }
    sums
}

/// True if all of the values are so small that a vector's do not overflow 64 bits together.
pub(super) fn are_small<T: Value>(values: &[T], of: impl Fn(T) -> i64) -> bool {
    dispatch(AreSmall { values, of })
}

struct AreSmall<'a, T, F> {
    values: &'a [T],
    of: F,
}

impl<T: Value, F: Fn(T) -> i64> Kernel for AreSmall<'_, T, F> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        const BITS: u32 = i64::BITS - 1 - VECTOR_ROWS_MAX.ilog2();
        // A negative number is as large as its complement.
        let all = self.values.iter().fold(0, |all, value| {
            let value = (self.of)(*value);
            all | (value ^ (value >> (i64::BITS - 1)))
        });
        all >> (BITS - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_do_not_overflow_together() {
        let most = (1i64 << (i64::BITS - 2 - VECTOR_ROWS_MAX.ilog2())) - 1;
        assert!(are_small(&[0, most, !most], |value: i64| value));
        assert!(!are_small(&[0, most + 1], |value: i64| value));
        assert!(!are_small(&[!most - 1], |value: i64| value));
        assert!(most.checked_mul(VECTOR_ROWS_MAX as i64).is_some());
    }

    #[test]
    fn each_group_has_the_sum_of_its_rows() {
        let groups = [Tuple::NONE; 5];
        let values: Vec<i32> = (0..101).map(|at| at * at - 999).collect();
        let numbers: Vec<u8> =
            (0..101).map(|at| if at % 7 == 6 { NOBODY } else { at % 5 }).collect();
        let masked = Masked { groups: &groups, counts: &[], numbers: &numbers };
        let sums = sums(&values, masked, i64::from);
        for (group, sum) in (0..).zip(sums) {
            let own = values.iter().zip(&numbers).filter(|(_, number)| **number == group);
            assert_eq!(sum, own.map(|(value, _)| i64::from(*value)).sum::<i64>(), "group {group}");
        }
    }
}
