//! Casts between text and lists, structs, maps, BLOBs, decimals and intervals, with the texts that DuckDB reads and writes: `[1, NULL]`,
//! `{'a': 1, 'b': x y}`, `{k=v}`, `\xAB`, `1e3`.
//!
//! What is written is read as the same value again, so that files of text (CSV) keep it.

mod blobs;
mod decimals;
pub(crate) mod intervals;
mod read;
mod split;
mod write;

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, plan_err};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// Puts functions in the place of the casts. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct TextCasts {
    written: Arc<ScalarUDF>,
}

impl TextCasts {
    pub(crate) fn new() -> TextCasts {
        TextCasts { written: Arc::new(ScalarUDF::from(Written)) }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let (inner, to, is_try) = match &expr {
            Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
            Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
            _ => return Ok(Transformed::no(expr)),
        };
        // A parameter may have no type yet.
        let Ok(from) = inner.get_type(schema) else { return Ok(Transformed::no(expr)) };
        if from.is_string() && (has_text_of_its_own(to) || to.is_decimal() || is_interval(to)) {
            let read = ScalarUDF::from(Read { to: to.clone(), is_try });
            return Ok(Transformed::yes(read.call(vec![inner.as_ref().clone()])));
        }
        if to.is_string() && has_text_of_its_own(&from) {
            let text = Box::new(self.written.call(vec![inner.as_ref().clone()]));
            return Ok(Transformed::yes(Expr::Cast(Cast::new(text, to.clone()))));
        }
        Ok(Transformed::no(expr))
    }
}

impl AnalyzerRule for TextCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "text_casts"
    }
}

/// The expression, cast to a type: also from text, or to text, where DataFusion knows of no cast.
///
/// # Errors
/// If no value of the one type is one of the other.
pub(crate) fn cast_to(expr: Expr, to: &DataType, schema: &DFSchema) -> DfResult<Expr> {
    let from = expr.get_type(schema)?;
    match (from.is_string() && has_text_of_its_own(to))
        || (has_text_of_its_own(&from) && to.is_string())
    {
        true => Ok(Expr::Cast(Cast::new(Box::new(expr), to.clone()))),
        false => expr.cast_to(to, schema),
    }
}

/// True of types whose texts Arrow does not read, or writes in another form than SQL.
pub(crate) fn has_text_of_its_own(data_type: &DataType) -> bool {
    is_nested(data_type) || is_binary(data_type)
}

fn is_nested(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::Struct(_)
            | DataType::Map(..)
    )
}

fn is_binary(data_type: &DataType) -> bool {
    data_type.is_binary() || matches!(data_type, DataType::FixedSizeBinary(_))
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

static ANY_ONE: LazyLock<Signature> = LazyLock::new(|| Signature::any(1, Volatility::Immutable));

/// The text of a value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Written;

impl ScalarUDFImpl for Written {
    fn name(&self) -> &str {
        "value_text"
    }

    fn signature(&self) -> &Signature {
        &ANY_ONE
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, write::texts)
    }
}

/// The value of a text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Read {
    to: DataType,
    /// What cannot be read is NULL instead of an error.
    is_try: bool,
}

impl ScalarUDFImpl for Read {
    fn name(&self) -> &str {
        if self.is_try { "try_text_value" } else { "text_value" }
    }

    fn signature(&self) -> &Signature {
        &ANY_ONE
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        plan_err!("{} returns what its field says", self.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let is_nullable = self.is_try || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |texts| read::values(texts, &self.to, self.is_try))
    }
}
