//! Functions of DataFusion's that panic where there are no rows and their arguments are the same for all of them: as
//! many values as rows are computed, of which there is no first one. Here there is always a row.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DfResult;
use datafusion::functions::math::{ceil, floor, round, trunc};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::far_digits::rounded;

/// The functions.
pub(crate) fn with_rows() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let with_row = |inner| Arc::new(ScalarUDF::from(WithRow { inner }));
    [ceil(), floor(), round(), trunc()].into_iter().map(with_row)
}

/// A function that is computed for a row at least if its arguments are the same for all.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WithRow {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for WithRow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        if let Some(rounded) = rounded(self.name(), &args)? {
            return Ok(rounded);
        }
        if args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
            args.number_rows = args.number_rows.max(1);
        }
        self.inner.invoke_with_args(args)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        context: &SimplifyContext,
    ) -> DfResult<PreimageResult> {
        self.inner.inner().preimage(args, literal, context)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> DfResult<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> DfResult<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::common::config::ConfigOptions;

    use super::*;

    #[test]
    fn constants_need_no_rows() {
        for function in with_rows() {
            let value = ScalarValue::Decimal128(Some(15), 3, 1);
            let field = Arc::new(Field::new("x", value.data_type(), false));
            let fields = [Arc::clone(&field)];
            let scalar_arguments = [Some(&value)];
            let args = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &scalar_arguments };
            let result = function.invoke_with_args(ScalarFunctionArgs {
                return_field: function.return_field_from_args(args).unwrap(),
                args: vec![ColumnarValue::Scalar(value)],
                arg_fields: vec![field],
                number_rows: 0,
                config_options: Arc::new(ConfigOptions::default()),
            });
            assert!(matches!(result, Ok(ColumnarValue::Scalar(_))), "{}", function.name());
        }
    }
}
