//! Variances, covariances and correlations: counts, means and sums of products of deviations, which are numerically stable
//! to update (Welford, 1962) and to merge (Chan, Golub and LeVeque, 1979).

use super::functions::Moment;
use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Register;
use crate::selection::Selected;
use crate::vector::Vector;

/// Places for the moments of two variables, or of one that takes both parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) count: Place<f64>,
    pub(super) mean_x: Place<f64>,
    pub(super) mean_y: Place<f64>,
    pub(super) square_x: Place<f64>,
    pub(super) square_y: Place<f64>,
    pub(super) product: Place<f64>,
}

/// The moments of some pairs (x, y).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pairs {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    square_x: f64,
    square_y: f64,
    product: f64,
}

impl Pairs {
    /// One more pair.
    #[inline(always)]
    pub(crate) fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        let (dx, dy) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += dx / self.count;
        self.mean_y += dy / self.count;
        let after_y = y - self.mean_y;
        self.square_x += dx * (x - self.mean_x);
        self.square_y += dy * after_y;
        self.product += dx * after_y;
    }

    /// The pairs of both.
    pub(crate) fn merge(&mut self, other: &Pairs) {
        if other.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            *self = *other;
            return;
        }
        let count = self.count + other.count;
        let (dx, dy) = (other.mean_x - self.mean_x, other.mean_y - self.mean_y);
        let weight = self.count * other.count / count;
        self.mean_x += dx * (other.count / count);
        self.mean_y += dy * (other.count / count);
        self.square_x += other.square_x + dx * dx * weight;
        self.square_y += other.square_y + dy * dy * weight;
        self.product += other.product + dx * dy * weight;
        self.count = count;
    }
}

impl Moment {
    /// The moment of some pairs, of one variable twice if it is asked about one; `None` if they are too few.
    pub(crate) fn of(self, pairs: &Pairs) -> Option<f64> {
        let count = pairs.count;
        let sample = (count > 1.0).then_some(count - 1.0);
        let population = (count > 0.0).then_some(count);
        match self {
            Moment::VarianceSample => Some(pairs.square_x / sample?),
            Moment::VariancePopulation => Some(pairs.square_x / population?),
            Moment::DeviationSample => Some((pairs.square_x / sample?).sqrt()),
            Moment::DeviationPopulation => Some((pairs.square_x / population?).sqrt()),
            Moment::CovarianceSample => Some(pairs.product / sample?),
            Moment::CovariancePopulation => Some(pairs.product / population?),
            Moment::Correlation => {
                let scale = (pairs.square_x * pairs.square_y).sqrt();
                (scale != 0.0 && sample.is_some()).then(|| pairs.product / scale)
            }
            Moment::Skewness | Moment::KurtosisSample | Moment::KurtosisPopulation => {
                unreachable!("these are made of shapes")
            }
        }
    }
}

impl Places {
    fn get(&self, tuple: Tuple) -> Pairs {
        Pairs {
            count: self.count.get(tuple),
            mean_x: self.mean_x.get(tuple),
            mean_y: self.mean_y.get(tuple),
            square_x: self.square_x.get(tuple),
            square_y: self.square_y.get(tuple),
            product: self.product.get(tuple),
        }
    }

    fn set(&self, tuple: Tuple, pairs: &Pairs) {
        self.count.set(tuple, pairs.count);
        self.mean_x.set(tuple, pairs.mean_x);
        self.mean_y.set(tuple, pairs.mean_y);
        self.square_x.set(tuple, pairs.square_x);
        self.square_y.set(tuple, pairs.square_y);
        self.product.set(tuple, pairs.product);
    }
}

/// The moments of two registers of floats, which may be the same one.
#[derive(Debug)]
pub(super) struct Moments {
    pub(super) x: Register,
    pub(super) y: Register,
    pub(super) places: Places,
}

impl State for Moments {
    fn begin(&self, tuple: Tuple) {
        self.places.set(tuple, &Pairs::default());
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let (xs, ys) = (feed.registers.values(self.x), feed.registers.values(self.y));
        for (tuple, row) in tuples.iter().zip(rows) {
            let mut pairs = self.places.get(*tuple);
            pairs.add(xs[usize::from(*row)], ys[usize::from(*row)]);
            self.places.set(*tuple, &pairs);
        }
        Ok(())
    }

    fn add_to_one(&self, tuple: Tuple, rows: Selected<'_>, feed: &mut Feed<'_>) -> Result<()> {
        let (xs, ys) = (feed.registers.values(self.x), feed.registers.values(self.y));
        let mut pairs = self.places.get(tuple);
        rows.for_each(|row| pairs.add(xs[row], ys[row]));
        self.places.set(tuple, &pairs);
        Ok(())
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], _: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            let mut pairs = self.places.get(*into);
            pairs.merge(&self.places.get(*from));
            self.places.set(*into, &pairs);
        }
        Ok(())
    }
}

/// What is asked about the moments.
#[derive(Debug)]
pub(super) struct MomentOutcome {
    pub(super) places: Places,
    pub(super) moment: Moment,
}

impl Outcome for MomentOutcome {
    fn lane(&self) -> Lane {
        Lane::F64
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            match self.moment.of(&self.places.get(*tuple)) {
                Some(value) => out.values_mut::<f64>()[at] = value,
                None => out.validity.set(at, false),
            }
        }
        Ok(())
    }
}
