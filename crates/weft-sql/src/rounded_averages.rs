//! `avg` of decimals rounds its last digit: DataFusion's cuts off what is behind it.
//!
//! It is computed with one more digit, which is all that rounding looks at.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType};
use datafusion::common::Result as DfResult;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::AggregateUDF;

use crate::represented::{Representation, represented};

/// The function.
pub(crate) fn rounded_averages() -> Arc<AggregateUDF> {
    represented(avg_udaf(), OneMoreDigit)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OneMoreDigit;

impl Representation for OneMoreDigit {
    fn of(self, result: &DataType) -> Option<DataType> {
        match result {
            DataType::Decimal128(precision, scale)
                if *precision < DECIMAL128_MAX_PRECISION && *scale < DECIMAL128_MAX_SCALE =>
            {
                Some(DataType::Decimal128(precision + 1, scale + 1))
            }
            _ => None,
        }
    }

    fn represent(self, values: &ArrayRef) -> DfResult<ArrayRef> {
        Ok(Arc::clone(values))
    }

    fn restore(self, results: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
        Ok(cast(results, to)?)
    }

    fn slides_distinct(self) -> bool {
        false
    }
}
