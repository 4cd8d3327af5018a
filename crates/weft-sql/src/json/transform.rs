//! JSON values as values of other types: casts from JSON, `json_transform` and `from_json`, whose second argument says the type.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result as DfResult, exec_datafusion_err, plan_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use weft_json::{Decoder, Kind, elements, json_field, kind, members, unescaped};

use super::texts::{json_texts, malformed, only_value};
use crate::types::field_named;

/// `json_transform` and `from_json`, and those of them that are strict.
pub(super) fn transforms() -> [Arc<ScalarUDF>; 2] {
    let function = |name: &'static str, alias: &str, is_lenient| {
        let aliases = vec![alias.to_owned()];
        Arc::new(ScalarUDF::from(Transform { name, aliases, to: None, is_lenient }))
    };
    [
        function("json_transform", "from_json", true),
        function("json_transform_strict", "from_json_strict", false),
    ]
}

/// JSON cast to a type. With `is_lenient`, what does not fit is NULL.
pub(crate) fn json_as(json: Expr, data_type: &DataType, is_lenient: bool) -> Expr {
    to_type(data_type, is_lenient).call(vec![json])
}

/// The function that casts JSON to a type. With `is_lenient`, what does not fit is NULL.
pub(super) fn to_type(data_type: &DataType, is_lenient: bool) -> ScalarUDF {
    let to = Some(data_type.clone());
    ScalarUDF::from(Transform { name: "json_to", aliases: Vec::new(), to, is_lenient })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Transform {
    name: &'static str,
    aliases: Vec<String>,
    /// The type, where it is no argument.
    to: Option<DataType>,
    is_lenient: bool,
}

impl ScalarUDFImpl for Transform {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        static ANY: std::sync::LazyLock<Signature> =
            std::sync::LazyLock::new(|| Signature::variadic_any(Volatility::Immutable));
        &ANY
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        plan_err!("{} returns what its second argument says", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        if let Some(to) = &self.to {
            return Ok(Arc::new(Field::new(self.name, to.clone(), true)));
        }
        let structure = match args.scalar_arguments {
            [_, Some(structure)] => structure.try_as_str().flatten(),
            _ => None,
        };
        let Some(structure) = structure else {
            return plan_err!(
                "{} takes JSON and a constant text with its structure, such as '{{\"a\": \"BIGINT\"}}'",
                self.name
            );
        };
        field_of(structure, self.name)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = matches!(args.args.first(), Some(ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let Some(values) = args.args.first() else {
            return plan_err!("{} has arguments", self.name);
        };
        let values = values.to_array(rows)?;
        let texts = json_texts(&values, &args.arg_fields[0])?;
        let mut decoder = Decoder::new(Arc::clone(&args.return_field), self.is_lenient, false);
        for text in &texts {
            match text {
                Some(text) => decoder.push_text(text).map_err(|error| match error.column {
                    Some(_) => exec_datafusion_err!("cannot cast from JSON: {}", error.problem),
                    None => malformed(&error, text),
                })?,
                None => decoder.push_null(),
            }
        }
        let array: ArrayRef = decoder
            .finish()
            .map_err(|error| exec_datafusion_err!("cannot cast from JSON: {}", error.problem))?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(only_value(&array)?),
            false => ColumnarValue::Array(array),
        })
    }
}

/// The field that a structure describes: a type's name, an array with the structure of its elements, or an object with that of
/// each key.
fn field_of(structure: &str, name: &str) -> DfResult<FieldRef> {
    let bad = |error: &dyn std::fmt::Display| {
        plan_datafusion_err!("'{structure}' is no structure of JSON: {error}")
    };
    match kind(structure) {
        Kind::Object => {
            let members = members(structure).map_err(|error| bad(&error))?.unwrap_or_default();
            let fields = members.into_iter().map(|(key, part)| field_of(part, &key));
            let fields: Fields = fields.collect::<DfResult<_>>()?;
            Ok(Arc::new(Field::new(name, DataType::Struct(fields), true)))
        }
        Kind::Array => match elements(structure).map_err(|error| bad(&error))?.as_deref() {
            Some([element]) => {
                let item = field_of(element, "item")?;
                Ok(Arc::new(Field::new(name, DataType::List(item), true)))
            }
            _ => Err(bad(&"an array has one element")),
        },
        Kind::Text => {
            let type_name = unescaped(structure.trim()).map_err(|error| bad(&error))?;
            if type_name == "NULL" {
                return Ok(Arc::new(json_field(name, true)));
            }
            let field = field_named(name, &type_name).map_err(|error| bad(&error.message()))?;
            Ok(Arc::new(field))
        }
        _ => Err(bad(&"it is neither the name of a type nor an array or object of such")),
    }
}
