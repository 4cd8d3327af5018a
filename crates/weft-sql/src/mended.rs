//! Functions and operators of DataFusion's that are wrong for some values, replaced before types are coerced.
//!
//! - Values are compared in types that have all of them (`compared_types.rs`), and have one in each column of VALUES
//!   (`value_types.rs`).
//! - Lists and structs are less and greater as ORDER BY has them (`nested_comparisons.rs`).
//! - Fields of what is NULL are NULL (`fields.rs`).
//! - `length(list)` is the number of elements.
//! - A text that is a number is an interval of seconds, and years of intervals have 365.25 days.
//! - `x ~ '.*'` is NULL where `x` is: DataFusion takes it for `x IS NOT NULL`.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Case, Cast, Expr, ExprSchemable, Like, LogicalPlan, Operator, ScalarUDF,
    binary_expr, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::compared_types::compared;
use crate::fields::fields;
use crate::nested_comparisons::{ordered, ordered_within};
use crate::plan_walk::rewrite_expressions;
use crate::value_types::unified;

/// What DataFusion takes for a pattern that everything matches, NULL among it.
const ANYTHING: &str = ".*";

/// Puts what is right in place of what is not.
#[derive(Debug)]
pub(crate) struct Mended;

impl AnalyzerRule for Mended {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(unified(plan)?, mend)
    }

    fn name(&self) -> &str {
        "mended"
    }
}

fn mend(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(call) if is_epoch(&call, schema) => {
            Transformed::yes(with_long_years(call))
        }
        Expr::ScalarFunction(call) if call.func.name() == "character_length" => {
            length(call, schema)
        }
        Expr::ScalarFunction(mut call) if call.func.name() == "get_field" => {
            call.func = Arc::clone(&FIELDS);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        Expr::BinaryExpr(operation) => match is_match(operation.op) {
            Some(negated) => matched(operation, negated),
            None => {
                let paired = compared(Expr::BinaryExpr(operation), schema)?;
                paired.transform_data(|comparison| ordered(comparison, schema))?
            }
        },
        between @ Expr::Between(_) => {
            let written = compared(between, schema)?;
            written.transform_data(|comparisons| ordered_within(comparisons, schema))?
        }
        Expr::Cast(to) if is_interval(&to) && is_text(&to.expr, schema) => {
            let text = Box::new(with_unit(*to.expr));
            Transformed::yes(Expr::Cast(Cast { expr: text, ..to }))
        }
        other => compared(other, schema)?,
    })
}

fn is_interval(cast: &Cast) -> bool {
    matches!(cast.field.data_type(), DataType::Interval(_))
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_string())
}

/// A text of an interval, which is in seconds if it is a number alone: Arrow takes it for months.
fn with_unit(text: Expr) -> Expr {
    let number =
        binary_expr(text.clone(), Operator::RegexMatch, lit(r"^\s*[-+]?[0-9]*\.?[0-9]+\s*$"));
    let seconds = binary_expr(text.clone(), Operator::StringConcat, lit(" seconds"));
    Expr::Case(Case::new(None, vec![(Box::new(number), Box::new(seconds))], Some(Box::new(text))))
}

/// True of the seconds of an interval.
fn is_epoch(call: &ScalarFunction, schema: &DFSchema) -> bool {
    call.func.name() == "date_part"
        && matches!(&call.args[..], [Expr::Literal(part, _), of]
            if part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch"))
                && matches!(of.get_type(schema), Ok(DataType::Interval(_))))
}

/// Seconds of days that a year has beyond twelve months of 30 days.
const LONG_YEAR_SECONDS: f64 = 5.25 * 86_400.0;

/// The seconds of an interval, with 365.25 days a year, as in PostgreSQL.
fn with_long_years(call: ScalarFunction) -> Expr {
    let interval = call.args.get(1).cloned().unwrap_or_default();
    let years = call.func.call(vec![lit("year"), interval]);
    let years = Expr::Cast(Cast::new(Box::new(years), DataType::Float64));
    Expr::ScalarFunction(call) + years * lit(LONG_YEAR_SECONDS)
}

/// The length of a list is the number of its elements, not that of its text.
fn length(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let elements = match &call.args[..] {
        [of] => of.get_type(schema).ok().filter(|data_type| {
            use DataType::{FixedSizeList, LargeList, LargeListView, List, ListView};
            matches!(
                data_type,
                List(_) | LargeList(_) | FixedSizeList(..) | ListView(_) | LargeListView(_)
            )
        }),
        _ => None,
    };
    match elements {
        Some(_) => {
            let func = array_length_udf();
            let count = Expr::ScalarFunction(ScalarFunction { func, ..call });
            Transformed::yes(Expr::Cast(Cast::new(Box::new(count), DataType::Int64)))
        }
        None => Transformed::no(Expr::ScalarFunction(call)),
    }
}

static FIELDS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(fields);

/// Whether an operator that looks for a pattern is negated.
fn is_match(op: Operator) -> Option<bool> {
    match op {
        Operator::RegexMatch | Operator::RegexIMatch => Some(false),
        Operator::RegexNotMatch | Operator::RegexNotIMatch => Some(true),
        _ => None,
    }
}

fn matched(operation: BinaryExpr, negated: bool) -> Transformed<Expr> {
    let is_anything = match operation.right.as_ref() {
        Expr::Literal(pattern, _) => pattern.try_as_str() == Some(Some(ANYTHING)),
        // What becomes a literal later on is not that one.
        other if !other.any_column_refs() => {
            let concat = |left, right| binary_expr(left, Operator::StringConcat, right);
            let pattern = concat(concat(lit("(?:"), other.clone()), lit(")"));
            let pattern = Box::new(pattern);
            return Transformed::yes(Expr::BinaryExpr(BinaryExpr { right: pattern, ..operation }));
        }
        _ => false,
    };
    if !is_anything {
        return Transformed::no(Expr::BinaryExpr(operation));
    }
    let anything = Expr::Literal(ScalarValue::Utf8(Some("%".to_owned())), None);
    let like = Like::new(negated, operation.left, Box::new(anything), None, false);
    Transformed::yes(Expr::Like(like))
}
