//! What rows of a repeatable sample are chosen by: a number between 0 and 1 that follows from a seed and the row alone.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Bits of a hash that a double holds.
const BITS: u32 = 53;

/// The function: its arguments are the seed, a number of the row among those that are equal to it, and the columns.
pub(super) fn sample_key() -> ScalarUDF {
    ScalarUDF::from(SampleKey { signature: Signature::variadic_any(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SampleKey {
    signature: Signature,
}

impl ScalarUDFImpl for SampleKey {
    fn name(&self) -> &str {
        "sample_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays: Vec<ArrayRef> = ColumnarValue::values_to_arrays(&args.args)?;
        let mut hashes = vec![0; arrays.first().map_or(args.number_rows, |array| array.len())];
        create_hashes(&arrays, &RandomState::with_seed(0), &mut hashes)?;
        let unit = |hash: u64| (mixed(hash) >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64;
        let keys: Float64Array = hashes.into_iter().map(unit).map(Some).collect();
        Ok(ColumnarValue::Array(Arc::new(keys)))
    }
}

/// A hash whose bits all depend on all of its bits (the finalizer of SplitMix64).
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
