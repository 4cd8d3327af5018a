//! Whatever has no steps is evaluated by DataFusion, over the vector: the pipeline goes on.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as DfResult, not_impl_err};
use datafusion::physical_expr::expressions::Column;
use weft_exec::program::{Function, Step};
use weft_exec::{ExecError, Lane};

use super::expressions::{Expr, Expressions};
use super::term::Term;
use crate::foreign_function::foreign_call;

/// The value of an expression by a call.
///
/// # Errors
/// If it is no expression over these columns, or calls a function that no worker executes.
pub(super) fn call(code: &mut Expressions<'_>, expr: &Expr) -> DfResult<Term> {
    if let Some(name) = foreign_call(expr) {
        return not_impl_err!("no worker executes the function {name}");
    }
    let mut columns: Vec<usize> = Vec::new();
    let over_inputs = expr.clone().transform_up(|node| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        let known = columns.iter().position(|known| *known == column.index());
        let index = known.unwrap_or(columns.len());
        if known.is_none() {
            columns.push(column.index());
        }
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), index)) as Expr))
    })?;
    let fields: Vec<Field> =
        columns.iter().map(|column| code.schema.field(*column).clone()).collect();
    let (data_type, is_nullable) = (expr.data_type(code.schema)?, expr.nullable(code.schema)?);
    let inputs = columns
        .iter()
        .map(|column| {
            let term = code.columns[*column].clone();
            code.in_register(&term)
        })
        .collect();
    let function = Arc::new(Evaluated {
        name: expr.to_string(),
        expr: over_inputs.data,
        input_types: fields.iter().map(|field| field.data_type().clone()).collect(),
        schema: Arc::new(Schema::new(fields)),
        output_type: data_type.clone(),
    });
    let lane = Lane::of(&data_type);
    let out = code.register(lane);
    code.push(Step::Call { function, inputs, out });
    Ok(Term::new(out, lane, &data_type, is_nullable))
}

/// An expression over arrays.
#[derive(Debug)]
struct Evaluated {
    name: String,
    expr: Expr,
    schema: SchemaRef,
    input_types: Vec<DataType>,
    output_type: DataType,
}

impl Function for Evaluated {
    fn name(&self) -> &str {
        &self.name
    }

    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn output_type(&self) -> &DataType {
        &self.output_type
    }

    fn call(&self, inputs: &[ArrayRef], rows: usize) -> weft_exec::Result<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(self.schema.clone(), inputs.to_vec(), &options)?;
        let value = self.expr.evaluate(&batch).and_then(|value| value.into_array(rows));
        value.map_err(|error| ExecError::Function(Box::new(error)))
    }
}
