//! `sum` of integers and decimals that says when the result is too large: DataFusion's wraps.
//!
//! Integers are summed as decimals of 38 digits, which 2^63 rows do not exceed, decimals of as many as decimals of 76, and
//! narrowed at the end.
//! All other types are DataFusion's business.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;

use crate::represented::{Representation, represented};

/// What integers are summed as.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// The function.
pub(crate) fn checked_sum() -> Arc<AggregateUDF> {
    represented(sum_udaf(), Wide)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wide;

impl Representation for Wide {
    fn of(self, result: &DataType) -> Option<DataType> {
        match result {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale) => {
                Some(DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale))
            }
            result => result.is_integer().then_some(WIDE),
        }
    }

    fn represent(self, values: &ArrayRef) -> DfResult<ArrayRef> {
        let to = match values.data_type() {
            DataType::Decimal128(_, scale) => {
                DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale)
            }
            _ => WIDE,
        };
        Ok(cast(values, &to)?)
    }

    fn restore(self, sums: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let Ok(narrowed) = cast_with_options(sums, to, &options) else {
            let hint = if to.is_integer() { ": cast what is summed to DECIMAL" } else { "" };
            return exec_err!("the sum is out of the range of {to}{hint}");
        };
        Ok(narrowed)
    }

    fn slides_distinct(self) -> bool {
        // There is no other sliding sum of distinct values than that of DataFusion.
        false
    }
}
