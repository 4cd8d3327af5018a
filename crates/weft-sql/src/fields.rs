//! Fields of structs and values of maps: DataFusion's `get_field` looks at what lies below a struct or map that is NULL,
//! and compares keys that are lists or structs with as many keys as it is given, of which there is one.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, MapArray, UInt32Array, make_array, make_comparator,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::functions::core::get_field;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// The function in place of DataFusion's.
pub(crate) fn fields() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Fields { inner: get_field() }))
}

/// `get_field(x, name, …)`: NULL for what is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fields {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Fields {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let is_nullable = args.arg_fields.first().is_none_or(|field| field.is_nullable());
        let field = self.inner.return_field_from_args(args)?;
        let is_nullable = is_nullable || field.is_nullable();
        Ok(Arc::new(field.as_ref().clone().with_nullable(is_nullable)))
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        self.inner.inner().schema_name(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let ([base, names @ ..], [base_field, name_fields @ ..]) =
            (&args.args[..], &args.arg_fields[..])
        else {
            return internal_err!("a field has a name");
        };
        let (mut current, mut field) = (base.clone(), Arc::clone(base_field));
        for (name, name_field) in names.iter().zip(name_fields) {
            let fields = [Arc::clone(&field), Arc::clone(name_field)];
            let key = match name {
                ColumnarValue::Scalar(key) => Some(key),
                ColumnarValue::Array(_) => None,
            };
            let of_args = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &[None, key] };
            field = self.inner.return_field_from_args(of_args)?;
            if current.data_type().is_null() {
                return Ok(ColumnarValue::Scalar(ScalarValue::Null));
            }
            let is_scalar = matches!(current, ColumnarValue::Scalar(_));
            let values = match &current {
                ColumnarValue::Scalar(value) => value.to_array()?,
                ColumnarValue::Array(values) => Arc::clone(values),
            };
            let found = match (values.data_type(), key) {
                (DataType::Map(..), Some(key)) if is_compared(values.as_map(), key) => {
                    value_of(values.as_map(), key)?
                }
                _ => {
                    let inner_args = ScalarFunctionArgs {
                        args: vec![ColumnarValue::Array(Arc::clone(&values)), name.clone()],
                        arg_fields: fields.to_vec(),
                        number_rows: values.len(),
                        return_field: Arc::clone(&field),
                        config_options: Arc::clone(&args.config_options),
                    };
                    self.inner.invoke_with_args(inner_args)?.into_array(values.len())?
                }
            };
            let found = without(found, values.logical_nulls())?;
            current = match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
                false => ColumnarValue::Array(found),
            };
        }
        Ok(current)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The values, but NULL where `nulls` are.
fn without(values: ArrayRef, nulls: Option<NullBuffer>) -> DfResult<ArrayRef> {
    if nulls.as_ref().is_none_or(|nulls| nulls.null_count() == 0) || values.data_type().is_null() {
        return Ok(values);
    }
    let nulls = NullBuffer::union(values.nulls(), nulls.as_ref());
    Ok(make_array(values.to_data().into_builder().nulls(nulls).build()?))
}

/// True of a key that DataFusion does not find: a list, a struct, or a text in another form than those of the maps.
fn is_compared(maps: &MapArray, key: &ScalarValue) -> bool {
    let (keys, key) = (maps.keys().data_type(), key.data_type());
    key.is_nested() || (key.is_string() && keys.is_string() && key != *keys)
}

/// The value of a key that DataFusion does not find in each map.
fn value_of(maps: &MapArray, key: &ScalarValue) -> DfResult<ArrayRef> {
    let key = key.cast_to(maps.keys().data_type())?.to_array()?;
    let compare = make_comparator(maps.keys().as_ref(), key.as_ref(), SortOptions::default())?;
    let places: UInt32Array = (0..maps.len())
        .map(|row| {
            let offsets = maps.value_offsets();
            let mut entries = offsets[row]..offsets[row + 1];
            let found = entries.find(|entry| compare(*entry as usize, 0).is_eq());
            found.map(|entry| entry as u32)
        })
        .collect();
    Ok(take(maps.values().as_ref(), &places, None)?)
}
