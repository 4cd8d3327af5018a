//! What is made of all values of a group: quantiles and texts.

use std::marker::PhantomData;
use std::sync::Arc;

use super::fold::Ordered;
use super::kept::Keep;
use super::list::Chain;
use super::memory::Memory;
use super::quantile::{Quantile, between};
use super::state::{Needs, Outcome, Tuple};
use super::sum::Number;
use crate::error::Result;
use crate::lane::{Lane, Value};
use crate::text::Str;
use crate::vector::Vector;

/// A quantile that is one of the values.
#[derive(Debug)]
pub(super) struct DiscreteQuantile<T> {
    pub(super) chain: Chain<T>,
    pub(super) quantile: Quantile,
}

impl<T: Keep + Ordered> Outcome for DiscreteQuantile<T> {
    fn lane(&self) -> Lane {
        T::LANE
    }

    fn needs(&self, tuple: Tuple) -> Needs {
        Needs { result_bytes: 0, ..self.chain.needs(tuple) }
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            let mut values: Vec<T> = self.chain.values(*tuple).into_iter().flatten().collect();
            if values.is_empty() {
                out.validity.set(at, false);
                continue;
            }
            let number = self.quantile.place(values.len());
            let (_, value, _) = values.select_nth_unstable_by(number, |a, b| a.order(*b));
            out.values_mut::<T>()[at] = *value;
        }
        Ok(())
    }
}

/// As [`DiscreteQuantile`], but between two values where it lies.
#[derive(Debug)]
pub(super) struct ContinuousQuantile<T, O> {
    pub(super) chain: Chain<T>,
    pub(super) quantile: Quantile,
    pub(super) out: PhantomData<O>,
}

impl<T: Keep + Ordered + Number, O: Value + Number> ContinuousQuantile<T, O> {
    fn between(&self, low: T, high: T, part: f64) -> Option<O> {
        if matches!(O::LANE, Lane::F32 | Lane::F64) {
            return O::from_f64(between(low.to_f64(), high.to_f64(), part));
        }
        let (low, high) = (low.to_i128()?, high.to_i128()?);
        // Toward zero, exactly for the median; sum and difference of two values of 128 bits may be too large.
        let value = if part == 0.0 {
            low
        } else if part == 0.5 {
            match low.checked_add(high) {
                Some(sum) => sum / 2,
                None => low / 2 + high / 2 + (low % 2 + high % 2) / 2,
            }
        } else {
            match high.checked_sub(low) {
                Some(difference) => low + (difference as f64 * part) as i128,
                None => (low as f64 + (high as f64 - low as f64) * part) as i128,
            }
        };
        O::from_i128(value)
    }
}

impl<T: Keep + Ordered + Number, O: Value + Number> Outcome for ContinuousQuantile<T, O> {
    fn lane(&self) -> Lane {
        O::LANE
    }

    fn needs(&self, tuple: Tuple) -> Needs {
        Needs { result_bytes: 0, ..self.chain.needs(tuple) }
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            let mut values: Vec<T> = self.chain.values(*tuple).into_iter().flatten().collect();
            if values.is_empty() {
                out.validity.set(at, false);
                continue;
            }
            let (number, part) = self.quantile.position(values.len());
            let (_, low, above) = values.select_nth_unstable_by(number, |a, b| a.order(*b));
            let low = *low;
            let high = above.iter().copied().min_by(|a, b| a.order(*b)).unwrap_or(low);
            let value = self.between(low, high, part);
            out.values_mut::<O>()[at] =
                value.ok_or_else(|| super::sum::overflow("a quantile", O::LANE))?;
        }
        Ok(())
    }
}

/// The texts of a group, with something between each two.
#[derive(Debug)]
pub(super) struct JoinedTexts {
    pub(super) chain: Chain<Str>,
    pub(super) separator: Arc<[u8]>,
}

impl Outcome for JoinedTexts {
    fn lane(&self) -> Lane {
        Lane::Str
    }

    fn needs(&self, tuple: Tuple) -> Needs {
        let mut needs = self.chain.needs(tuple);
        let between_bytes = self.chain.count.get(tuple) * self.separator.len() as u64;
        needs.making_bytes += between_bytes;
        needs.result_bytes += between_bytes;
        needs
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        let mut joined = Vec::new();
        for (at, tuple) in tuples.iter().enumerate() {
            joined.clear();
            let mut texts = 0;
            for text in self.chain.values(*tuple).iter().flatten() {
                if texts > 0 {
                    joined.extend_from_slice(&self.separator);
                }
                // SAFETY: texts of a list lie in the operator's memory.
                joined.extend_from_slice(unsafe { text.bytes() });
                texts += 1;
            }
            out.validity.set(at, texts > 0);
            let text = out.arena.add(&joined);
            out.values_mut::<Str>()[at] = text;
        }
        Ok(())
    }
}
