//! Scalar functions that a program adds to a session. They run code that Weft knows nothing of, which may take long or wait
//! for a lock: no worker executes them. The thread of the statement that does tells the others' threads to go on without it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::error::{ErrorKind, Result, SqlError};

/// Code of a function.
pub trait FunctionCode: Send + Sync {
    /// The values for the rows of arrays, which have the parameters' types.
    ///
    /// # Errors
    /// What the code says.
    fn call(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef>;
}

/// A function that a program adds to a session.
#[derive(Clone)]
pub struct SessionFunction {
    /// Its name in SQL.
    pub name: String,
    /// The types of its parameters. Arguments are cast to them.
    pub parameters: Vec<DataType>,
    /// The type of its value.
    pub returns: DataType,
    /// It may give different values for one row.
    pub is_volatile: bool,
    /// It is an aggregate function: its code gets all values of a group, and returns one.
    pub is_aggregate: bool,
    /// The code.
    pub code: Arc<dyn FunctionCode>,
}

impl SessionFunction {
    /// The function as DataFusion calls it.
    pub(crate) fn into_udf(self) -> ScalarUDF {
        let volatility = match self.is_volatile {
            true => Volatility::Volatile,
            false => Volatility::Immutable,
        };
        let signature = match self.parameters.is_empty() {
            true => Signature::nullary(volatility),
            false => Signature::exact(self.parameters.clone(), volatility),
        };
        ScalarUDF::from(ForeignFunction { function: self, signature })
    }
}

struct ForeignFunction {
    function: SessionFunction,
    signature: Signature,
}

impl ForeignFunction {
    fn code(&self) -> *const () {
        Arc::as_ptr(&self.function.code).cast()
    }
}

impl PartialEq for ForeignFunction {
    fn eq(&self, other: &ForeignFunction) -> bool {
        self.function.name == other.function.name && self.code() == other.code()
    }
}

impl Eq for ForeignFunction {}

impl Hash for ForeignFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl fmt::Debug for ForeignFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignFunction({})", self.function.name)
    }
}

impl ScalarUDFImpl for ForeignFunction {
    fn name(&self) -> &str {
        &self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.function.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let arguments = args
            .args
            .into_iter()
            .map(|argument| argument.into_array(rows))
            .collect::<DfResult<Vec<_>>>()?;
        let call = || self.function.code.call(&arguments, rows);
        let values = tokio::task::block_in_place(call).map_err(DataFusionError::from)?;
        if values.len() != rows || *values.data_type() != self.function.returns {
            let message = format!(
                "the function {} was to return {rows} values of {}, and returned {} of {}",
                self.function.name,
                self.function.returns,
                values.len(),
                values.data_type(),
            );
            return Err(SqlError::new(ErrorKind::Data, message).into());
        }
        Ok(ColumnarValue::Array(values))
    }
}

/// The name of a function among those that an expression calls which no worker executes.
pub(crate) fn foreign_call(expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
    let mut found = None;
    // The walk itself does not fail.
    let walked = expr.apply(|node| {
        let call = node.downcast_ref::<ScalarFunctionExpr>();
        let function = call.and_then(|call| call.fun().inner().downcast_ref::<ForeignFunction>());
        Ok(match function {
            Some(function) => {
                found = Some(function.name().to_owned());
                TreeNodeRecursion::Stop
            }
            None => TreeNodeRecursion::Continue,
        })
    });
    walked.ok().and(found)
}
