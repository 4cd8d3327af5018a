//! What takes long for one group, cut into turns: its values may be millions, and others are served in between.

use std::cmp::Ordering;

use super::fold::Ordered;
use crate::pace::Pace;

/// Values that are gone through at once.
pub(super) const AT_ONCE: usize = 4096;
/// Values that are searched at once, and values that are sorted: to compare two texts may take some ten nanoseconds.
const SEARCHED_AT_ONCE: usize = 8192;
const SORTED_AT_ONCE: usize = 1024;
/// Values by which a pivot is chosen, and places among these by which it lies beside what is looked for: the part that is left is
/// small then, most of the time.
const SAMPLE: usize = 512;
const MARGIN: usize = 24;

/// The value at a place in the order of `values`, and the one at the next place, if there is one.
pub(super) async fn select<T: Ordered>(
    mut values: Vec<T>,
    mut place: usize,
    pace: &mut Pace,
) -> (T, Option<T>) {
    // The least of what was left out behind.
    let mut next = None;
    while values.len() > SEARCHED_AT_ONCE {
        let pivot = pivot(&values, place);
        let (mut below, mut above, mut equal) = (Vec::new(), Vec::new(), 0);
        for some in values.chunks(AT_ONCE) {
            for value in some {
                match value.order(pivot) {
                    Ordering::Less => below.push(*value),
                    Ordering::Equal => equal += 1,
                    Ordering::Greater => above.push(*value),
                }
            }
            pace.keep().await;
        }
        if place < below.len() {
            (next, values) = (Some(pivot), below);
        } else if place >= below.len() + equal {
            place -= below.len() + equal;
            values = above;
        } else if place + 1 < below.len() + equal {
            return (pivot, Some(pivot));
        } else {
            for some in above.chunks(AT_ONCE) {
                next = some.iter().copied().chain(next).min_by(|a, b| a.order(*b));
                pace.keep().await;
            }
            return (pivot, next);
        }
    }
    let (_, value, above) = values.select_nth_unstable_by(place, |a, b| a.order(*b));
    let behind = above.iter().copied().min_by(|a, b| a.order(*b));
    (*value, behind.or(next))
}

/// A value beside the one at a place, so that most values lie on the other side of it, or both are among few.
fn pivot<T: Ordered>(values: &[T], place: usize) -> T {
    let mut sample: Vec<T> = (0..SAMPLE).map(|number| values[scattered(number, values)]).collect();
    sample.sort_unstable_by(|a, b| a.order(*b));
    let at = (place as u128 * SAMPLE as u128 / values.len() as u128) as usize;
    let beside = if at < SAMPLE / 2 { at + MARGIN } else { at - MARGIN };
    sample[beside]
}

/// A place for each number, without a pattern that values may have, too.
fn scattered<T>(number: usize, values: &[T]) -> usize {
    let mut bits = (number + 1) as u64 ^ (values.len() as u64) << 20;
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        bits = (bits ^ bits >> 30).wrapping_mul(factor);
    }
    ((bits ^ bits >> 31) % values.len() as u64) as usize
}

/// Sorts; what compares as equal stays in its order.
pub(super) async fn sort<T: Copy>(
    values: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
    pace: &mut Pace,
) {
    for run in values.chunks_mut(SORTED_AT_ONCE) {
        run.sort_by(&compare);
        pace.keep().await;
    }
    let mut run = SORTED_AT_ONCE;
    let mut merged = Vec::with_capacity(if values.len() > run { values.len() } else { 0 });
    while run < values.len() {
        merged.clear();
        for pair in values.chunks(2 * run) {
            let (mut left, mut right) = pair.split_at(run.min(pair.len()));
            while let ([a, ..], [b, ..]) = (left, right) {
                let from = if compare(b, a) == Ordering::Less { &mut right } else { &mut left };
                merged.push(from[0]);
                *from = &from[1..];
                if merged.len() % AT_ONCE == 0 {
                    pace.keep().await;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
            pace.keep().await;
        }
        std::mem::swap(values, &mut merged);
        run *= 2;
    }
}

#[cfg(test)]
mod tests {
    use weft_rt::sync::block_on;

    use super::*;

    #[test]
    fn selects_as_sorting_does() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for count in [1, 2, 100, SEARCHED_AT_ONCE, SEARCHED_AT_ONCE + 1, 100_000] {
            for different in [1, 2, 3, 1000, i64::MAX] {
                let values: Vec<i64> = (0..count).map(|_| random.i64(0..different)).collect();
                let mut sorted = values.clone();
                sorted.sort_unstable();
                let inside = random.usize(..count);
                for place in [0, count / 2, (count - 1) / 2, count - 1, inside] {
                    let found = block_on(select(values.clone(), place, &mut Pace::default()));
                    let expected = (sorted[place], sorted.get(place + 1).copied());
                    assert_eq!(found, expected, "{place} of {count}, {different} different");
                }
            }
        }
    }

    #[test]
    fn sorts_and_keeps_what_is_equal_in_its_order() {
        for count in [0, 1, SORTED_AT_ONCE, SORTED_AT_ONCE * 2 + 1, SORTED_AT_ONCE * 5 + 77] {
            let mut values: Vec<(u32, usize)> =
                (0..count).map(|at| (fastrand::u32(..1000), at)).collect();
            let mut expected = values.clone();
            expected.sort();
            block_on(sort(&mut values, |a, b| a.0.cmp(&b.0), &mut Pace::default()));
            assert_eq!(values, expected);
        }
    }
}
