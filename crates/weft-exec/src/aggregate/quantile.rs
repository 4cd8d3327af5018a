//! Where a quantile lies among sorted values.

/// A quantile: the value that a fraction of the values lie before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// 0 to 1.
    pub fraction: f64,
    /// Values are counted from the greatest on.
    pub is_descending: bool,
}

impl Quantile {
    /// The one that this fraction of the values, 0 to 1, lie below of.
    pub const fn ascending(fraction: f64) -> Quantile {
        Quantile { fraction, is_descending: false }
    }

    /// The one that this fraction of the values, 0 to 1, lie above of.
    pub const fn descending(fraction: f64) -> Quantile {
        Quantile { fraction, is_descending: true }
    }

    /// Which of `count` values, from the least on, it is: the first in the order whose share of the values up to it is at
    /// least the fraction.
    ///
    /// # Panics
    /// If there are no values.
    pub fn place(self, count: usize) -> usize {
        assert!(count > 0, "a quantile of no values");
        let up_to = (count as f64 * self.fraction).ceil() as usize;
        let place = up_to.clamp(1, count) - 1;
        if self.is_descending { count - 1 - place } else { place }
    }

    /// The place, from the least of `count` values on, that it lies at or behind, and how far of the way to the next: 0 to 1, less
    /// than 1.
    ///
    /// # Panics
    /// If there are no values.
    pub fn position(self, count: usize) -> (usize, f64) {
        assert!(count > 0, "a quantile of no values");
        let last = (count - 1) as f64;
        let before = last * self.fraction;
        // Mirrored: the fraction's difference from 1 would be rounded.
        let position = if self.is_descending { last - before } else { before };
        let place = (position.floor() as usize).min(count - 1);
        (place, position - place as f64)
    }
}

/// The number that lies so far, 0 to 1, on the way from one to another.
pub fn between(low: f64, high: f64, part: f64) -> f64 {
    let difference = high - low;
    if part == 0.0 {
        low
    } else if difference.is_finite() {
        low + difference * part
    } else {
        // Infinities, or numbers too far from each other.
        low * (1.0 - part) + high * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_standard() {
        let places = |fraction| [1, 2, 11].map(|count| Quantile::ascending(fraction).place(count));
        assert_eq!(places(0.0), [0, 0, 0]);
        assert_eq!(places(0.5), [0, 0, 5]);
        assert_eq!(places(0.7), [0, 1, 7]);
        assert_eq!(places(1.0), [0, 1, 10]);
        assert_eq!(Quantile::descending(0.7).place(11), 3);
        assert_eq!(Quantile::descending(0.5).place(2), 1);
    }

    #[test]
    fn positions_are_exact_from_both_ends() {
        assert_eq!(Quantile::ascending(0.25).position(3), (0, 0.5));
        assert_eq!(Quantile::descending(0.25).position(3), (1, 0.5));
        // 1 - 0.7 is not 0.3.
        assert_eq!(Quantile::descending(0.7).position(11), (3, 0.0));
        assert_eq!(Quantile::ascending(1.0).position(1), (0, 0.0));
        assert_eq!(Quantile::descending(0.0).position(5), (4, 0.0));
    }

    #[test]
    fn infinities_and_large_numbers_have_something_between() {
        let infinity = f64::INFINITY;
        assert_eq!(between(infinity, infinity, 0.5), infinity);
        assert_eq!(between(1.0, infinity, 0.5), infinity);
        assert_eq!(between(f64::MIN, f64::MAX, 0.5), 0.0);
        assert_eq!(between(1.0, 2.0, 0.25), 1.25);
        assert!(between(1.0, f64::NAN, 0.5).is_nan());
    }
}
