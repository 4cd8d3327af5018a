//! Keys as bytes that compare as rows are ordered: of several values, and of lists and structs, whose lanes do not.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::Result as DfResult;
use weft_exec::Lane;
use weft_exec::program::{self, Register, Step};

use super::expressions::{Expr, Expressions};

/// The bytes of keys, each in its order.
///
/// # Errors
/// Those of the keys.
pub(super) fn row_keys<'a>(
    code: &mut Expressions<'_>,
    keys: impl Iterator<Item = (&'a Expr, SortOptions)>,
) -> DfResult<Register> {
    let (mut inputs, mut input_types, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for (key, options) in keys {
        let term = code.term(key)?;
        let data_type = key.data_type(code.schema)?;
        inputs.push(code.in_register(&term));
        fields.push(SortField::new_with_options(data_type.clone(), options));
        input_types.push(data_type);
    }
    let out = code.register(Lane::Str);
    let function = Arc::new(RowKeys { input_types, fields });
    code.push(Step::Call { function, inputs, out });
    Ok(out)
}

/// True if values of a type have such bytes.
pub(super) fn has_row_keys(data_type: &DataType) -> bool {
    RowConverter::supports_fields(&[SortField::new(data_type.clone())])
}

/// Columns as bytes that compare as rows are ordered.
#[derive(Debug)]
struct RowKeys {
    input_types: Vec<DataType>,
    fields: Vec<SortField>,
}

impl program::Function for RowKeys {
    fn name(&self) -> &str {
        "row_key"
    }

    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn output_type(&self) -> &DataType {
        &DataType::Binary
    }

    fn call(&self, inputs: &[ArrayRef], _: usize) -> weft_exec::Result<ArrayRef> {
        let rows = RowConverter::new(self.fields.clone())?.convert_columns(inputs)?;
        let keys = rows.iter().map(|row| row.data().to_vec());
        Ok(Arc::new(BinaryArray::from_iter_values(keys)))
    }
}
