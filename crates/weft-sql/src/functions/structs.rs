//! Functions of structs: fields that are added, changed, or found by their place, and structs put together.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, StringViewArray, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::elements::Chosen;
use super::list_types::unnamed_fields;
use super::scalar::{Call, Rows, Scalar, Types, list_of};
use crate::types::type_name;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let changing = [Change::Insert, Change::Update, Change::Extract].map(|change| {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Changed { change, signature }))
    });
    let others = [
        Scalar::function(&["struct_concat"], concat_types, concat),
        Scalar::function(&["struct_keys"], keys_types, keys),
        Scalar::function(&["struct_values"], values_types, values),
    ];
    changing.into_iter().chain(others).collect()
}

/// The fields of an argument that has to be a struct.
fn fields_of<'a>(name: &str, argument: Option<&'a DataType>) -> DfResult<&'a Fields> {
    match argument {
        Some(DataType::Struct(fields)) => Ok(fields),
        Some(other) => plan_err!("{name} takes a STRUCT, not {}", type_name(other)),
        None => plan_err!("{name} has no argument"),
    }
}

fn concat_types(call: &Call<'_>) -> DfResult<Types> {
    let mut all: Vec<FieldRef> = Vec::new();
    for argument in call.types {
        for field in fields_of(call.name, Some(argument))? {
            if all.iter().any(|known| known.name() == field.name()) {
                return plan_err!("{}: two structs have a field {}", call.name, field.name());
            }
            all.push(Arc::new(field.as_ref().clone().with_nullable(true)));
        }
    }
    Ok(Types { arguments: call.types.to_vec(), result: DataType::Struct(all.into()) })
}

/// The struct of an argument, with a value for each row.
fn struct_of(rows: &Rows<'_>, argument: usize) -> DfResult<StructArray> {
    let argument = &rows.arguments[argument];
    let values = match argument.is_constant && rows.count != 1 {
        true => ScalarValue::try_from_array(&argument.values, 0)?.to_array_of_size(rows.count)?,
        false => Arc::clone(&argument.values),
    };
    Ok(values.as_struct().clone())
}

/// The values of fields, which are NULL where the struct is.
fn columns(of: &StructArray) -> DfResult<Vec<ArrayRef>> {
    let (_, columns, nulls) = of.clone().into_parts();
    let Some(nulls) = nulls else { return Ok(columns) };
    let is_null = BooleanArray::new(!nulls.inner(), None);
    let masked = columns.iter().map(|column| Ok(nullif(column, &is_null)?));
    masked.collect()
}

fn concat(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let mut all = Vec::new();
    for argument in 0..rows.arguments.len() {
        all.extend(columns(&struct_of(rows, argument)?)?);
    }
    struct_array(rows.result, all, None)
}

fn struct_array(
    to: &DataType,
    columns: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
) -> DfResult<ArrayRef> {
    let fields = fields_of("the result", Some(to))?.clone();
    Ok(Arc::new(StructArray::try_new(fields, columns, nulls)?))
}

fn keys_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    fields_of(call.name, call.types.first())?;
    Ok(Types { arguments: call.types.to_vec(), result: list_of(DataType::Utf8View) })
}

/// The names of the fields.
fn keys(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let fields = fields_of(rows.name, Some(rows.arguments[0].values.data_type()))?;
    let names: StringViewArray = fields.iter().map(|field| Some(field.name())).collect();
    let names: ArrayRef = Arc::new(names);
    let mut lists = Chosen::default();
    for row in 0..rows.count {
        let is_known = rows.arguments[0].known(row).is_some();
        lists.extend((0..names.len()).filter(|_| is_known));
        lists.end(is_known)?;
    }
    lists.finish(&names, rows.result)
}

fn values_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    let fields = fields_of(call.name, call.types.first())?;
    let types: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
    let result = DataType::Struct(unnamed_fields(&types).into());
    Ok(Types { arguments: call.types.to_vec(), result })
}

/// The struct with places as names.
fn values(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let (_, columns, nulls) = struct_of(rows, 0)?.into_parts();
    struct_array(rows.result, columns, nulls)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    /// New fields: `struct_insert(s, b := 2)`.
    Insert,
    /// New values of fields, and new fields: `struct_update(s, a := 2)`.
    Update,
    /// The field at a place: `struct_extract_at(s, 1)`.
    Extract,
}

/// Functions whose result depends on names or places among their arguments. Names of arguments are arguments in front of them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Changed {
    change: Change,
    signature: Signature,
}

impl Changed {
    /// The fields of the result, each with the place of its value: of a field of the struct, or of an argument.
    fn fields(
        &self,
        types: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> DfResult<Vec<(FieldRef, Place)>> {
        let old = fields_of(self.name(), types.first())?;
        let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
        let mut fields: Vec<(FieldRef, Place)> =
            old.iter().enumerate().map(|(at, field)| (nullable(field), Place::Field(at))).collect();
        for at in (2..types.len()).step_by(2) {
            let name = constants[at - 1].and_then(|name| name.try_as_str().flatten());
            let Some(name) = name else {
                return plan_err!("{0} takes named values: {0}(s, x := 1)", self.name());
            };
            let new = (Arc::new(Field::new(name, types[at].clone(), true)), Place::Argument(at));
            let known =
                |(field, _): &&mut (FieldRef, Place)| field.name().eq_ignore_ascii_case(name);
            match fields.iter_mut().find(known) {
                Some(field) if self.change == Change::Update => field.1 = new.1,
                Some(_) => return plan_err!("{}: the struct has a field {name}", self.name()),
                None => fields.push(new),
            }
            if let Some((field, Place::Argument(_))) = fields.iter_mut().find(known) {
                *field = Arc::new(field.as_ref().clone().with_data_type(types[at].clone()));
            }
        }
        Ok(fields)
    }

    /// The place of the field that is to be extracted.
    fn extracted(&self, fields: &Fields, place: Option<&ScalarValue>) -> DfResult<usize> {
        let place = place.and_then(|place| place.cast_to(&DataType::Int64).ok());
        let Some(ScalarValue::Int64(Some(place))) = place else {
            return plan_err!("the place of {} has to be a constant number", self.name());
        };
        match usize::try_from(place - 1).ok().filter(|place| *place < fields.len()) {
            Some(place) => Ok(place),
            None => plan_err!("{}: there is no field {place} of {}", self.name(), fields.len()),
        }
    }
}

#[derive(Clone, Copy)]
enum Place {
    Field(usize),
    Argument(usize),
}

impl ScalarUDFImpl for Changed {
    fn name(&self) -> &str {
        match self.change {
            Change::Insert => "struct_insert",
            Change::Update => "struct_update",
            Change::Extract => "struct_extract_at",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        plan_err!("{} of {} arguments without their values", self.name(), types.len())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let result = match self.change {
            Change::Extract => {
                let fields = fields_of(self.name(), types.first())?;
                let place = args.scalar_arguments.get(1).copied().flatten();
                fields[self.extracted(fields, place)?].data_type().clone()
            }
            _ => {
                let fields = self.fields(&types, args.scalar_arguments)?;
                DataType::Struct(fields.into_iter().map(|(field, _)| field).collect())
            }
        };
        Ok(Arc::new(Field::new(self.name(), result, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let constants: Vec<Option<&ScalarValue>> = args
            .args
            .iter()
            .map(|value| match value {
                ColumnarValue::Scalar(value) => Some(value),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let old = arrays[0].as_struct();
        if self.change == Change::Extract {
            let place = self.extracted(old.fields(), constants.get(1).copied().flatten())?;
            return Ok(ColumnarValue::Array(Arc::clone(&columns(old)?[place])));
        }
        let fields = self.fields(&types, &constants)?;
        let values = fields.iter().map(|(_, place)| match *place {
            Place::Field(at) => Arc::clone(old.column(at)),
            Place::Argument(at) => Arc::clone(&arrays[at]),
        });
        let to = args.return_field.data_type();
        let values = struct_array(to, values.collect(), old.nulls().cloned())?;
        Ok(ColumnarValue::Array(values))
    }
}
