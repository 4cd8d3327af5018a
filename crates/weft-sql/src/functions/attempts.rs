//! `TRY(x)`: the value of an expression, NULL in rows where it fails.
//!
//! The expression is the body of a function without parameters, which is evaluated for all rows, and row by row if that
//! fails.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, NullArray, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use crate::error::{ErrorKind, SqlError};

/// The function.
pub(crate) fn attempt() -> Arc<HigherOrderUDF> {
    let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
    Arc::new(HigherOrderUDF::new_from_impl(Attempt { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Attempt {
    signature: HigherOrderSignature,
}

/// The one argument, the expression.
fn body<V, L>(args: &[ValueOrLambda<V, L>]) -> DfResult<&L> {
    match args {
        [ValueOrLambda::Lambda(body)] => Ok(body),
        _ => plan_err!("TRY has one argument"),
    }
}

impl HigherOrderUDFImpl for Attempt {
    fn name(&self) -> &str {
        "try"
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        match types {
            [] => Ok(Vec::new()),
            _ => plan_err!("TRY has one argument"),
        }
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> DfResult<LambdaParametersProgress> {
        body(fields)?;
        Ok(LambdaParametersProgress::Complete(vec![Vec::new()]))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> DfResult<FieldRef> {
        let result = body(args.arg_fields)?;
        Ok(Arc::new(Field::new(self.name(), result.data_type().clone(), true)))
    }

    /// Nothing in it is evaluated elsewhere, where it would fail.
    fn short_circuits(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> DfResult<ColumnarValue> {
        let body = body(&args.args)?;
        if let Some(values) = evaluate(body, 0, args.number_rows)? {
            return Ok(ColumnarValue::Array(values));
        }
        let to = args.return_type();
        let nothing = ScalarValue::try_new_null(to)?.to_array()?;
        let mut values = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            values.push(evaluate(body, row, 1)?.unwrap_or_else(|| Arc::clone(&nothing)));
        }
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(match values.is_empty() {
            true => new_empty_array(to),
            false => concat(&values)?,
        }))
    }
}

/// The values for some rows, nothing if one of them fails.
///
/// # Errors
/// Those that say nothing of the values: memory that is missing, and the end of the statement.
fn evaluate(body: &LambdaArgument, from: usize, count: usize) -> DfResult<Option<ArrayRef>> {
    // Tells the number of rows to an expression without columns.
    let rows = || Ok(Arc::new(NullArray::new(count)) as ArrayRef);
    let values = body.evaluate(&[&rows], |columns| {
        Ok(columns.iter().map(|column| column.slice(from, count)).collect())
    });
    match values.and_then(|values| values.into_array(count)) {
        Ok(values) => Ok(Some(values)),
        Err(error) if is_of_values(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True of an error that values make.
fn is_of_values(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) | DataFusionError::IoError(_) => false,
        DataFusionError::External(error) => match error.downcast_ref::<SqlError>() {
            Some(error) => error.kind() == ErrorKind::Data,
            None => false,
        },
        _ => true,
    }
}
