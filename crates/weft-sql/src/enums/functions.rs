//! Functions of enumerations. The functions that a statement calls (`enum_code(e)`) learn of the type from the field of their argument, and are
//! replaced (`casts.rs`) by functions that have the type in them, or by constants.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, UInt32Type};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::EnumType;

/// The function that makes values of texts.
pub(super) const OF: &str = "enum_of";

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    /// The value whose label is a text.
    Of,
    /// As [`Does::Of`], with NULL for what is no label.
    OfOrNull,
    /// The label as a plain text.
    Text,
    /// The place of the label.
    Code,
    /// The value of a code.
    Label,
}

/// The values whose labels are the texts of an expression; with `is_lenient`, NULL for what is no label.
pub(super) fn value_of(ty: &Arc<EnumType>, texts: Expr, is_lenient: bool) -> Expr {
    let (name, does) = if is_lenient { ("try_enum_of", Does::OfOrNull) } else { (OF, Does::Of) };
    call(name, does, Some(ty), texts)
}

/// The labels of the values of an expression.
pub(super) fn text_of(values: Expr) -> Expr {
    static TEXT: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(function("enum_text", Does::Text, None))));
    TEXT.call(vec![values])
}

/// The codes of the values of an expression.
pub(super) fn code_of(ty: &Arc<EnumType>, values: Expr) -> Expr {
    call("enum_code", Does::Code, Some(ty), values)
}

/// The values of the codes of an expression.
pub(super) fn label_of(ty: &Arc<EnumType>, codes: Expr) -> Expr {
    call("enum_label", Does::Label, Some(ty), codes)
}

fn call(name: &'static str, does: Does, ty: Option<&Arc<EnumType>>, argument: Expr) -> Expr {
    ScalarUDF::from(function(name, does, ty.cloned())).call(vec![argument])
}

fn function(name: &'static str, does: Does, ty: Option<Arc<EnumType>>) -> EnumFunction {
    EnumFunction { name, does, ty, signature: Signature::any(1, Volatility::Immutable) }
}

/// The functions that statements call.
pub(crate) fn enum_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let asking = [
        ("enum_code", Asks::Code, 1..=1),
        ("enum_first", Asks::First, 1..=1),
        ("enum_last", Asks::Last, 1..=1),
        ("enum_range", Asks::Range, 1..=2),
        ("enum_range_boundary", Asks::Range, 2..=2),
    ];
    asking.into_iter().map(|(name, asks, counts)| {
        let signatures = counts.map(datafusion::logical_expr::TypeSignature::Any).collect();
        let signature = Signature::one_of(signatures, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Asking { name, asks, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct EnumFunction {
    name: &'static str,
    does: Does,
    ty: Option<Arc<EnumType>>,
    signature: Signature,
}

impl ScalarUDFImpl for EnumFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(match (self.does, &self.ty) {
            (Does::Code, Some(ty)) => ty.code_type(),
            _ => DataType::Utf8View,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let field = match (&self.ty, self.does) {
            (Some(ty), Does::Of | Does::OfOrNull | Does::Label) => ty.field(self.name),
            (Some(ty), Does::Code) => Field::new(self.name, ty.code_type(), true),
            _ => Field::new(self.name, DataType::Utf8View, true),
        };
        Ok(Arc::new(field.with_nullable(is_nullable || self.does == Does::OfOrNull)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let computed = self.computed(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(self.computed(values)?)),
            _ => plan_err!("{} has one argument", self.name),
        }
    }
}

impl EnumFunction {
    fn computed(&self, values: &ArrayRef) -> DfResult<ArrayRef> {
        let Some(ty) = &self.ty else { return Ok(cast(values, &DataType::Utf8View)?) };
        match self.does {
            Does::Of => checked(ty, values),
            Does::OfOrNull => {
                let texts = cast(values, &DataType::Utf8View)?;
                let known =
                    texts.as_string_view().iter().map(|text| text.filter(|text| ty.has(text)));
                Ok(Arc::new(known.collect::<StringViewArray>()))
            }
            Does::Text => Ok(cast(values, &DataType::Utf8View)?),
            Does::Code => Ok(cast(&codes(ty, values)?, &ty.code_type())?),
            Does::Label => {
                let codes = cast(values, &DataType::UInt32)?;
                Ok(Arc::new(labels(ty, codes.as_primitive::<UInt32Type>())))
            }
        }
    }
}

/// The texts, all of which are labels.
///
/// # Errors
/// The first one that is none.
fn checked(ty: &EnumType, values: &ArrayRef) -> DfResult<ArrayRef> {
    let texts = cast(values, &DataType::Utf8View)?;
    let mut last = None;
    for text in texts.as_string_view().iter().flatten() {
        if last != Some(text) && !ty.has(text) {
            return Err(ty.no_label(text).into());
        }
        last = Some(text);
    }
    Ok(texts)
}

/// The codes of labels.
///
/// # Errors
/// The first text that is none.
pub(super) fn codes(ty: &EnumType, values: &ArrayRef) -> DfResult<ArrayRef> {
    let texts = cast(values, &DataType::Utf8View)?;
    let mut last: Option<(&str, u32)> = None;
    let code =
        |text: Option<&'_ str>| text.map(|text| ty.code(text).ok_or_else(|| ty.no_label(text)));
    let mut codes = Vec::with_capacity(texts.len());
    let texts = texts.as_string_view();
    for text in texts {
        let found = match (text, last) {
            (Some(text), Some((known, code))) if known == text => Some(code),
            _ => code(text).transpose()?,
        };
        last = text.zip(found);
        codes.push(found);
    }
    Ok(Arc::new(UInt32Array::from(codes)))
}

/// The labels of codes.
fn labels(ty: &EnumType, codes: &UInt32Array) -> StringViewArray {
    let label = |code: u32| ty.labels().get(code as usize).map(String::as_str);
    codes.iter().map(|code| code.and_then(label)).collect()
}

/// What a function asks about a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asks {
    Code,
    First,
    Last,
    /// All labels, or those from one value to another.
    Range,
}

/// A function as a statement calls it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Asking {
    name: &'static str,
    asks: Asks,
    signature: Signature,
}

/// What a function of this name asks.
pub(super) fn asks(function: &ScalarUDF) -> Option<Asks> {
    function.inner().downcast_ref::<Asking>().map(|asking| asking.asks)
}

impl ScalarUDFImpl for Asking {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(match self.asks {
            Asks::Code => DataType::UInt8,
            Asks::First | Asks::Last => DataType::Utf8View,
            Asks::Range => DataType::new_list(DataType::Utf8View, true),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let ty = args.arg_fields.iter().find_map(|field| EnumType::of_field(field));
        let data_type = match (self.asks, ty) {
            (Asks::Code, Some(ty)) => ty.code_type(),
            _ => self.return_type(&[])?,
        };
        Ok(Arc::new(Field::new(self.name, data_type, true)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        plan_err!("{} takes a value of an ENUM", self.name)
    }
}
