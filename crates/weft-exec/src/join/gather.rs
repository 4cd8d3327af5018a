//! Vectors of rows in another order: what a probe carries along to its matches.

use crate::for_lane;
use crate::lane::Value;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Makes `to` the values that `from` has at `rows`, one after the other. Strings refer to what `from` keeps alive.
///
/// # Panics
/// If lanes differ, or a row is beyond the vector.
pub fn gather(from: &Vector, rows: &[u16], to: &mut Vector) {
    assert!(rows.len() <= VECTOR_ROWS_MAX, "{} rows", rows.len());
    for_lane!(from.lane(), T => gather_values(from.values::<T>(), rows, to.values_mut()));
    let Some(words) = from.validity.words() else { return to.validity.set_all() };
    let gathered = to.validity.words_mut();
    for (word, rows) in gathered.iter_mut().zip(rows.chunks(64)) {
        let bit = |row: u16| words[usize::from(row) / 64] >> (row % 64) & 1;
        *word = rows.iter().enumerate().fold(0, |word, (at, row)| word | bit(*row) << at);
    }
}

fn gather_values<T: Value>(from: &[T], rows: &[u16], to: &mut [T]) {
    for (to, row) in to.iter_mut().zip(rows) {
        *to = from[usize::from(*row)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lane;

    #[test]
    fn values_and_nulls_are_gathered() {
        let mut from = Vector::new(Lane::I32);
        for (row, value) in from.values_mut::<i32>().iter_mut().enumerate() {
            *value = row as i32;
        }
        let rows: Vec<u16> = (0..2048).map(|at| (at * 7 % 2048) as u16).collect();
        let mut to = Vector::new(Lane::I32);
        gather(&from, &rows, &mut to);
        assert!(rows.iter().zip(to.values::<i32>()).all(|(row, value)| i32::from(*row) == *value));
        assert!(!to.validity.has_nulls());
        (0..2048).step_by(3).for_each(|row| from.validity.set(row, false));
        gather(&from, &rows[..100], &mut to);
        assert!((0..100).all(|at| to.validity.is_valid(at) != rows[at].is_multiple_of(3)));
    }
}
