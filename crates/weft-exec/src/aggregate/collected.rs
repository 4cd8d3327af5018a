//! What is made of all values of a group: quantiles and texts.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::fold::Ordered;
use super::kept::Keep;
use super::list::Chain;
use super::memory::Memory;
use super::quantile::{Quantile, between};
use super::state::{Needs, Outcome, Tuple};
use super::sum::Number;
use super::turns::{self, AT_ONCE};
use crate::error::{Result, check_length};
use crate::lane::{Lane, Value};
use crate::pace::{Pace, at_once};
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

    fn values(&self, tuple: Tuple) -> u64 {
        self.chain.count.get(tuple)
    }

    fn write_in_turns<'a>(
        &'a self,
        tuples: &'a [Tuple],
        out: &'a mut Vector,
        _: &'a mut Memory,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            out.validity.set_all();
            for (at, tuple) in tuples.iter().enumerate() {
                let values = not_null(&self.chain, *tuple, pace).await;
                out.validity.set(at, !values.is_empty());
                if !values.is_empty() {
                    let number = self.quantile.place(values.len());
                    out.values_mut::<T>()[at] = turns::select(values, number, pace).await.0;
                }
                pace.keep().await;
            }
            Ok(())
        })
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()> {
        at_once(self.write_in_turns(tuples, out, memory, &mut Pace::unbroken()))
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

    fn values(&self, tuple: Tuple) -> u64 {
        self.chain.count.get(tuple)
    }

    fn write_in_turns<'a>(
        &'a self,
        tuples: &'a [Tuple],
        out: &'a mut Vector,
        _: &'a mut Memory,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            out.validity.set_all();
            for (at, tuple) in tuples.iter().enumerate() {
                let values = not_null(&self.chain, *tuple, pace).await;
                out.validity.set(at, !values.is_empty());
                if !values.is_empty() {
                    let (number, part) = self.quantile.position(values.len());
                    let (low, high) = turns::select(values, number, pace).await;
                    let value = self.between(low, high.unwrap_or(low), part);
                    out.values_mut::<O>()[at] =
                        value.ok_or_else(|| super::sum::overflow("a quantile", O::LANE))?;
                }
                pace.keep().await;
            }
            Ok(())
        })
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()> {
        at_once(self.write_in_turns(tuples, out, memory, &mut Pace::unbroken()))
    }
}

/// The values of a group that are not null.
async fn not_null<T: Keep>(chain: &Chain<T>, tuple: Tuple, pace: &mut Pace) -> Vec<T> {
    let values = chain.values_in_turns(tuple, pace).await;
    let mut found = Vec::with_capacity(values.len());
    for some in values.chunks(AT_ONCE) {
        found.extend(some.iter().flatten());
        pace.keep().await;
    }
    found
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
        self.with_separators(tuple, self.chain.needs(tuple))
    }

    fn needs_in_turns<'a>(&'a self, tuple: Tuple, pace: &'a mut Pace) -> LocalBoxFuture<'a, Needs> {
        Box::pin(async move {
            self.with_separators(tuple, self.chain.needs_in_turns(tuple, pace).await)
        })
    }

    fn values(&self, tuple: Tuple) -> u64 {
        self.chain.count.get(tuple)
    }

    fn write_in_turns<'a>(
        &'a self,
        tuples: &'a [Tuple],
        out: &'a mut Vector,
        _: &'a mut Memory,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            out.validity.set_all();
            let mut joined = Joined::default();
            for (at, tuple) in tuples.iter().enumerate() {
                for some in self.chain.values_in_turns(*tuple, pace).await.chunks(AT_ONCE) {
                    joined.add(some, &self.separator);
                    pace.keep().await;
                }
                joined.write(at, out)?;
            }
            Ok(())
        })
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()> {
        at_once(self.write_in_turns(tuples, out, memory, &mut Pace::unbroken()))
    }
}

impl JoinedTexts {
    fn with_separators(&self, tuple: Tuple, mut needs: Needs) -> Needs {
        let between_bytes = self.chain.count.get(tuple) * self.separator.len() as u64;
        needs.making_bytes += between_bytes;
        needs.result_bytes += between_bytes;
        needs
    }
}

/// Texts being joined.
#[derive(Default)]
struct Joined {
    bytes: Vec<u8>,
    texts: usize,
}

impl Joined {
    /// Adds texts of a list.
    fn add(&mut self, texts: &[Option<Str>], separator: &[u8]) {
        for text in texts.iter().flatten() {
            if self.texts > 0 {
                self.bytes.extend_from_slice(separator);
            }
            // SAFETY: texts of a list lie in the operator's memory.
            self.bytes.extend_from_slice(unsafe { text.bytes() });
            self.texts += 1;
        }
    }

    /// Writes what was joined, NULL if there are no texts, and begins anew.
    fn write(&mut self, at: usize, out: &mut Vector) -> Result<()> {
        out.validity.set(at, self.texts > 0);
        check_length("a text of string_agg", self.bytes.len(), Str::BYTES_MAX)?;
        let text = out.arena.add_made(&mut self.bytes);
        out.values_mut::<Str>()[at] = text;
        self.texts = 0;
        Ok(())
    }
}
