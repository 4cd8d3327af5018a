//! Functions of one argument that are computed for an array at a time.

use datafusion::arrow::array::ArrayRef;
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::ColumnarValue;

/// The values of the function called `name`, which `compute` has for an array: an array for an array, one for one.
///
/// # Errors
/// Those of `compute`; a plan error if there is not one argument.
pub(crate) fn compute_one(
    name: &str,
    args: &[ColumnarValue],
    compute: impl Fn(&ArrayRef) -> DfResult<ArrayRef>,
) -> DfResult<ColumnarValue> {
    match args {
        [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(compute(values)?)),
        [ColumnarValue::Scalar(value)] => {
            let computed = compute(&value.to_array()?)?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?))
        }
        _ => plan_err!("{name} has one argument"),
    }
}
