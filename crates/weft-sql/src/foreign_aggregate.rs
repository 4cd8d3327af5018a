//! Aggregate functions that a program adds to a session. Their code is called once for each group, with all of its values, which
//! are kept until then; as other foreign code (`foreign_function.rs`) it runs on no worker.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{DataFusionError, Result as DfResult, ScalarValue, not_impl_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use crate::error::{ErrorKind, SqlError};
use crate::foreign_function::SessionFunction;

/// The function as DataFusion calls it: its code gets all values of a group, and returns one.
pub(crate) fn into_udaf(function: SessionFunction) -> AggregateUDF {
    let signature = Signature::exact(function.parameters.clone(), Volatility::Immutable);
    AggregateUDF::from(ForeignAggregate { function, signature })
}

/// True if a function is one that no worker executes.
pub(crate) fn is_foreign(function: &AggregateUDF) -> bool {
    function.inner().downcast_ref::<ForeignAggregate>().is_some()
}

struct ForeignAggregate {
    function: SessionFunction,
    signature: Signature,
}

impl ForeignAggregate {
    fn code(&self) -> *const () {
        Arc::as_ptr(&self.function.code).cast()
    }
}

impl PartialEq for ForeignAggregate {
    fn eq(&self, other: &ForeignAggregate) -> bool {
        self.function.name == other.function.name && self.code() == other.code()
    }
}

impl Eq for ForeignAggregate {}

impl Hash for ForeignAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl fmt::Debug for ForeignAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignAggregate({})", self.function.name)
    }
}

impl AggregateUDFImpl for ForeignAggregate {
    fn name(&self) -> &str {
        &self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.function.returns.clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        let field = |(number, field): (usize, &FieldRef)| {
            let item = Field::new_list_field(field.data_type().clone(), true);
            Arc::new(Field::new_list(format!("{}[{number}]", args.name), item, true))
        };
        Ok(args.input_fields.iter().enumerate().map(field).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let name = self.name();
        if args.is_distinct {
            return not_impl_err!("DISTINCT in {name}: select the distinct values in a subquery");
        }
        if !args.order_bys.is_empty() {
            return not_impl_err!("ORDER BY in {name}: its code gets the values in any order");
        }
        let columns = self.function.parameters.iter().map(|_| Vec::new()).collect();
        Ok(Box::new(Held { function: self.function.clone(), columns }))
    }
}

/// The values of a group: pieces of a column for each parameter.
struct Held {
    function: SessionFunction,
    columns: Vec<Vec<ArrayRef>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.function.name)
    }
}

impl Held {
    fn arguments(&self) -> DfResult<Vec<ArrayRef>> {
        let columns = self.columns.iter().zip(&self.function.parameters);
        let whole = |(pieces, data_type): (&Vec<ArrayRef>, &DataType)| match pieces.is_empty() {
            true => Ok(new_empty_array(data_type)),
            false => {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                Ok(concat(&pieces)?)
            }
        };
        columns.map(whole).collect()
    }
}

impl Accumulator for Held {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for (pieces, values) in self.columns.iter_mut().zip(values) {
            if !values.is_empty() {
                // A piece of a larger array would hold all of it.
                pieces.push(concat(&[values.as_ref()])?);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let arguments = self.arguments()?;
        let rows = arguments.first().map_or(0, |argument| argument.len());
        let call = || self.function.code.call(&arguments, rows);
        let value = tokio::task::block_in_place(call).map_err(DataFusionError::from)?;
        if value.len() != 1 || *value.data_type() != self.function.returns {
            let message = format!(
                "the function {} was to return one value of {}, and returned {} of {}",
                self.function.name,
                self.function.returns,
                value.len(),
                value.data_type(),
            );
            return Err(SqlError::new(ErrorKind::Data, message).into());
        }
        ScalarValue::try_from_array(&value, 0)
    }

    fn size(&self) -> usize {
        let pieces = self.columns.iter().flatten().map(|piece| piece.get_array_memory_size());
        size_of_val(self) + pieces.sum::<usize>()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let arguments = self.arguments()?.into_iter();
        let list = |values| SingleRowListArrayBuilder::new(values).build_list_scalar();
        Ok(arguments.map(list).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        for (pieces, lists) in self.columns.iter_mut().zip(states) {
            let lists = lists.as_list::<i32>().iter().flatten();
            pieces.extend(lists.filter(|values| !values.is_empty()));
        }
        Ok(())
    }
}
