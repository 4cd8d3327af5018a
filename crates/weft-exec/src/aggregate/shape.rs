//! Skewness and kurtosis: a count, a mean and sums of powers of deviations up to the fourth, which are numerically stable to
//! update and to merge (Pébay, 2008), whatever the number of values.

use super::functions::Moment;
use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Register;
use crate::selection::Selected;
use crate::vector::Vector;

/// How values lie about their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// How many values there are.
    pub count: f64,
    /// Their mean.
    pub mean: f64,
    /// The sums of the second, third and fourth powers of what they deviate from it.
    pub sums: [f64; 3],
}

impl Shape {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        let before = self.count;
        self.count += 1.0;
        let n = self.count;
        let delta = value - self.mean;
        let step = delta / n;
        let square = delta * step * before;
        let [second, third, fourth] = &mut self.sums;
        *fourth += square * step * step * (n * n - 3.0 * n + 3.0) + 6.0 * step * step * *second
            - 4.0 * step * *third;
        *third += square * step * (n - 2.0) - 3.0 * step * *second;
        *second += square;
        self.mean += step;
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &Shape) {
        if other.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            *self = *other;
            return;
        }
        let (a, b) = (self.count, other.count);
        let n = a + b;
        let delta = other.mean - self.mean;
        let step = delta / n;
        let [second, third, fourth] = self.sums;
        let [other_second, other_third, other_fourth] = other.sums;
        let square = delta * step * a * b;
        self.sums = [
            second + other_second + square,
            third
                + other_third
                + square * step * (a - b)
                + 3.0 * step * (a * other_second - b * second),
            fourth
                + other_fourth
                + square * step * step * (a * a - a * b + b * b)
                + 6.0 * step * step * (a * a * other_second + b * b * second)
                + 4.0 * step * (a * other_third - b * third),
        ];
        self.count = n;
        self.mean += step * b;
    }

    /// What they are skewed by, as those of which they are a sample; nothing if there are too few, or all are equal.
    pub fn skewness(&self) -> Option<f64> {
        let (n, [second, third, _]) = (self.count, self.sums);
        (n > 2.0 && second != 0.0).then(|| {
            let skewness = third / n / (second / n).powf(1.5);
            (n * (n - 1.0)).sqrt() / (n - 2.0) * skewness
        })
    }

    /// The excess kurtosis of those of which they are a sample, or nothing as above.
    pub fn kurtosis(&self) -> Option<f64> {
        let (n, ratio) = (self.count, self.ratio()?);
        (n > 3.0)
            .then(|| (n - 1.0) * ((n + 1.0) * ratio - 3.0 * (n - 1.0)) / ((n - 2.0) * (n - 3.0)))
    }

    /// Their own excess kurtosis, or nothing as above.
    pub fn kurtosis_of_population(&self) -> Option<f64> {
        let ratio = self.ratio()?;
        (self.count > 1.0).then_some(ratio - 3.0)
    }

    /// The fourth moment by the square of the second one.
    fn ratio(&self) -> Option<f64> {
        let (n, [second, _, fourth]) = (self.count, self.sums);
        (second != 0.0).then(|| fourth / n / (second / n * (second / n)))
    }
}

/// Places for a shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) count: Place<f64>,
    pub(super) mean: Place<f64>,
    pub(super) sums: [Place<f64>; 3],
}

impl Places {
    fn get(&self, tuple: Tuple) -> Shape {
        Shape {
            count: self.count.get(tuple),
            mean: self.mean.get(tuple),
            sums: self.sums.map(|place| place.get(tuple)),
        }
    }

    fn set(&self, tuple: Tuple, shape: &Shape) {
        self.count.set(tuple, shape.count);
        self.mean.set(tuple, shape.mean);
        self.sums.iter().zip(shape.sums).for_each(|(place, sum)| place.set(tuple, sum));
    }
}

/// The shape of a register of floats.
#[derive(Debug)]
pub(super) struct Shapes {
    pub(super) argument: Register,
    pub(super) places: Places,
}

impl State for Shapes {
    fn begin(&self, tuple: Tuple) {
        self.places.set(tuple, &Shape::default());
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let values = feed.registers.values(self.argument);
        for (tuple, row) in tuples.iter().zip(rows) {
            let mut shape = self.places.get(*tuple);
            shape.add(values[usize::from(*row)]);
            self.places.set(*tuple, &shape);
        }
        Ok(())
    }

    fn add_to_one(&self, tuple: Tuple, rows: Selected<'_>, feed: &mut Feed<'_>) -> Result<()> {
        let values = feed.registers.values(self.argument);
        let mut shape = self.places.get(tuple);
        rows.for_each(|row| shape.add(values[row]));
        self.places.set(tuple, &shape);
        Ok(())
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], _: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            let mut shape = self.places.get(*into);
            shape.merge(&self.places.get(*from));
            self.places.set(*into, &shape);
        }
        Ok(())
    }
}

/// What is asked about a shape.
#[derive(Debug)]
pub(super) struct ShapeOutcome {
    pub(super) places: Places,
    pub(super) of: fn(&Shape) -> Option<f64>,
}

impl ShapeOutcome {
    /// How a moment is made of a shape, if it is.
    pub(super) fn of(moment: Moment) -> Option<fn(&Shape) -> Option<f64>> {
        match moment {
            Moment::Skewness => Some(Shape::skewness),
            Moment::KurtosisSample => Some(Shape::kurtosis),
            Moment::KurtosisPopulation => Some(Shape::kurtosis_of_population),
            _ => None,
        }
    }
}

impl Outcome for ShapeOutcome {
    fn lane(&self) -> Lane {
        Lane::F64
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            match (self.of)(&self.places.get(*tuple)) {
                Some(value) => out.values_mut::<f64>()[at] = value,
                None => out.validity.set(at, false),
            }
        }
        Ok(())
    }
}
