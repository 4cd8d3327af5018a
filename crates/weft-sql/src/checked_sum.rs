//! `sum` of integers that says when the result is too large: DataFusion's wraps.
//!
//! Integers are summed as decimals of 38 digits, which 2^63 rows do not exceed, and narrowed at the end.
//! All other types are DataFusion's business.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::DataType;
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
        result.is_integer().then_some(WIDE)
    }

    fn represent(self, values: &ArrayRef) -> DfResult<ArrayRef> {
        Ok(cast(values, &WIDE)?)
    }

    fn restore(self, sums: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let Ok(narrowed) = cast_with_options(sums, to, &options) else {
            return exec_err!(
                "the sum is out of the range of {to}: cast what is summed to DECIMAL"
            );
        };
        Ok(narrowed)
    }

    fn slides_distinct(self) -> bool {
        // There is no other sliding sum of distinct values than that of DataFusion.
        false
    }
}
