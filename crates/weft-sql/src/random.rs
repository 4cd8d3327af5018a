//! `random()`, whose numbers follow from `setseed(x)` once a session has called it: as a sequence, whose numbers the rows of a
//! statement take as they are computed.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::Float64Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::functions::math::random;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{ErrorKind, Result, SqlError};
use crate::postgres::Surroundings;
use crate::statement_option::StatementOption;

/// The state of a session's random numbers, once `setseed` was called.
#[derive(Debug, Default)]
pub(crate) struct Seed {
    state: Mutex<Option<u64>>,
}

impl Seed {
    /// Begins the numbers that belong to a seed from -1 to 1.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] for other numbers.
    pub(crate) fn set(&self, seed: f64) -> Result<()> {
        if !(-1.0..=1.0).contains(&seed) {
            let message = format!("setseed takes a number from -1 to 1, not {seed}");
            return Err(SqlError::new(ErrorKind::Data, message));
        }
        // One zero, whatever its sign.
        let bits = (seed + 0.0).to_bits();
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(bits);
        Ok(())
    }

    /// The next numbers, from 0 on and below 1; `None` without a seed.
    fn numbers(&self, count: usize) -> Option<Vec<f64>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.as_mut()?;
        Some((0..count).map(|_| number(state)).collect())
    }
}

/// The next number of SplitMix64, of which the upper 53 bits count.
fn number(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// The function in place of DataFusion's.
pub(crate) fn random_function() -> Arc<ScalarUDF> {
    let signature = Signature::nullary(Volatility::Volatile);
    Arc::new(ScalarUDF::from(Random { signature }))
}

/// `random()`
#[derive(Debug, PartialEq, Eq, Hash)]
struct Random {
    signature: Signature,
}

impl ScalarUDFImpl for Random {
    fn name(&self) -> &str {
        "random"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let told = args.config_options.extensions.get::<StatementOption<Surroundings>>();
        let seeded = told.and_then(|StatementOption(around)| around.seed.numbers(args.number_rows));
        match seeded {
            Some(numbers) => Ok(ColumnarValue::Array(Arc::new(Float64Array::from(numbers)))),
            None => random().invoke_with_args(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_begins_the_same_numbers_again() {
        let seed = Seed::default();
        assert_eq!(seed.numbers(1), None);
        seed.set(0.5).unwrap();
        let first = seed.numbers(3).unwrap();
        assert!(first.iter().all(|number| (0.0..1.0).contains(number)));
        assert_ne!(first[0], first[1]);
        seed.set(0.5).unwrap();
        assert_eq!(seed.numbers(3).unwrap(), first);
        assert!(seed.set(2.0).is_err() && seed.set(f64::NAN).is_err());
    }
}
