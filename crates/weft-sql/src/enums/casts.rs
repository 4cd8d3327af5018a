//! Expressions of enumerations: casts, comparisons, and what chooses one of several values. Comparisons by order, `greatest`, `min` and
//! orders of rows are put on the codes. A constant that is compared with a value has to be a label of its type; other texts
//! are compared with the labels as texts. What may give a text that is no value of one type is a text.

use std::sync::Arc;

use arrow::array::StringViewArray;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, not_impl_err, plan_err};
use datafusion::logical_expr::expr::{
    AggregateFunction, InList, ScalarFunction, Sort, WindowFunction,
};
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, lit,
};
use datafusion::optimizer::AnalyzerRule;
use weft_json::is_json;

use super::functions::{Asks, OF, asks, code_of, label_of, text_of, value_of};
use super::nodes::finish;
use super::{EnumType, extremes::extreme, has_enum_within};
use crate::json::{json_as, json_value};
use crate::plan_walk::rewrite_nodes;
use crate::types::field_type_name;
use crate::uuids::CHOICES;

/// Aggregate and window functions that give a value of their first argument.
const OF_FIRST: [&str; 9] =
    ["first_value", "last_value", "nth_value", "lag", "lead", "any_value", "first", "last", "mode"];

/// Parts of the names of functions that compute a value between two.
const QUANTILES: [&str; 3] = ["quantile", "percentile", "median"];

/// Makes functions of casts to and from enumerations, and has what orders them order their codes.
#[derive(Debug)]
pub(crate) struct EnumCasts;

impl AnalyzerRule for EnumCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_nodes(plan, rewrite, finish)
    }

    fn name(&self) -> &str {
        "enum_casts"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    match expr {
        Expr::Cast(Cast { expr, field }) => cast(*expr, field, false, schema),
        Expr::TryCast(TryCast { expr, field }) => cast(*expr, field, true, schema),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            Ok(compared(*left, op, *right, schema)?.update_data(|(left, right)| {
                Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
            }))
        }
        Expr::Between(between) => between_compared(between, schema),
        Expr::InList(InList { expr, list, negated }) => {
            for item in &list {
                compared(expr.as_ref().clone(), Operator::Eq, item.clone(), schema)?;
            }
            Ok(Transformed::no(Expr::InList(InList { expr, list, negated })))
        }
        Expr::Case(case) => chosen(case, schema),
        Expr::ScalarFunction(call) => called(call, schema),
        Expr::AggregateFunction(call) => aggregated(call, schema),
        Expr::WindowFunction(call) => windowed(*call, schema),
        other => Ok(Transformed::no(other)),
    }
}

/// The type of what an expression gives; `None` for other values than those of enumerations.
pub(super) fn enum_of(expr: &Expr, schema: &DFSchema) -> Option<Arc<EnumType>> {
    EnumType::of_field(&expr.to_field(schema).ok()?.1)
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, IsDistinctFrom, IsNotDistinctFrom, NotEq};
    is_ordering(op) || matches!(op, Eq | NotEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_ordering(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// The text of a constant, which may be cast to VARCHAR; the inner `None` for NULL.
fn constant(expr: &Expr) -> Option<Option<&str>> {
    match expr {
        Expr::Literal(ScalarValue::Null, _) => Some(None),
        Expr::Literal(value, metadata) if metadata.is_none() => value.try_as_str(),
        // As which parameters come.
        Expr::Cast(Cast { expr, field })
            if field.data_type().is_string() && field.metadata().is_empty() =>
        {
            constant(expr)
        }
        _ => None,
    }
}

/// Checks that a constant, if it is one, is a label or NULL.
fn check_constant(ty: &EnumType, expr: &Expr) -> DfResult<()> {
    match constant(expr) {
        Some(Some(text)) if !ty.has(text) => Err(ty.no_label(text).into()),
        _ => Ok(()),
    }
}

/// Both sides of a comparison: their codes, if it is one by order of values of one type, or of a value and a label.
///
/// # Errors
/// A constant that is no label.
fn compared(
    left: Expr,
    op: Operator,
    right: Expr,
    schema: &DFSchema,
) -> DfResult<Transformed<(Expr, Expr)>> {
    let (of_left, of_right) = (enum_of(&left, schema), enum_of(&right, schema));
    let ty = match (of_left, of_right) {
        (Some(left), Some(right)) if left == right => left,
        (Some(ty), None) if constant(&right).is_some() => {
            check_constant(&ty, &right)?;
            ty
        }
        (None, Some(ty)) if constant(&left).is_some() => {
            check_constant(&ty, &left)?;
            ty
        }
        _ => return Ok(Transformed::no((left, right))),
    };
    if !is_ordering(op) {
        return Ok(Transformed::no((left, right)));
    }
    let code = |side: Expr| -> DfResult<Expr> {
        match constant(&side) {
            Some(text) => {
                let code = text.and_then(|text| ty.code(text));
                let code = ScalarValue::UInt32(code).cast_to(&ty.code_type())?;
                Ok(lit(code))
            }
            None => Ok(code_of(&ty, side)),
        }
    };
    Ok(Transformed::yes((code(left)?, code(right)?)))
}

fn between_compared(between: Between, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let sides = [&between.expr, &between.low, &between.high];
    let has_enum = sides.iter().any(|side| enum_of(side, schema).is_some());
    if !has_enum || between.expr.is_volatile() {
        return Ok(Transformed::no(Expr::Between(between)));
    }
    let Between { expr, negated, low, high } = between;
    let (value, least) = compared(expr.as_ref().clone(), Operator::GtEq, *low, schema)?.data;
    let low = value.gt_eq(least);
    let (value, most) = compared(*expr, Operator::LtEq, *high, schema)?.data;
    let within = low.and(value.lt_eq(most));
    Ok(Transformed::yes(if negated { Expr::Not(Box::new(within)) } else { within }))
}

/// The type that all of these are values of, apart from NULL.
fn common<'a>(values: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Option<Arc<EnumType>> {
    let mut common: Option<Arc<EnumType>> = None;
    for value in values {
        if constant(value) == Some(None) {
            continue;
        }
        let ty = enum_of(value, schema)?;
        match &common {
            Some(common) if *common != ty => return None,
            _ => common = Some(ty),
        }
    }
    common
}

fn chosen(case: Case, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    if let Some(operand) = &case.expr {
        for (when, _) in &case.when_then_expr {
            compared(operand.as_ref().clone(), Operator::Eq, when.as_ref().clone(), schema)?;
        }
    }
    let then = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
    let common = common(then.chain(case.else_expr.as_deref()), schema);
    let case = Expr::Case(case);
    Ok(match common {
        Some(ty) => Transformed::yes(value_of(&ty, case, false)),
        None => Transformed::no(case),
    })
}

fn called(mut call: ScalarFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    if let Some(asks) = asks(&call.func) {
        return answered(asks, call, schema);
    }
    let name = call.func.name();
    if name == "typeof"
        && let [value] = &call.args[..]
        && let Some(ty) = enum_of(value, schema)
    {
        let name = ScalarValue::Utf8View(Some(ty.to_string()));
        return Ok(Transformed::yes(Expr::Literal(name, None)));
    }
    let aliases = call.func.aliases();
    let choice =
        CHOICES.iter().find(|one| **one == name || aliases.iter().any(|alias| alias == **one));
    let Some(choice) = choice else { return Ok(Transformed::no(Expr::ScalarFunction(call))) };
    if *choice == "nullif"
        && let [value, other] = &call.args[..]
        && let Some(ty) = enum_of(value, schema)
    {
        compared(value.clone(), Operator::Eq, other.clone(), schema)?;
        return Ok(Transformed::yes(value_of(&ty, Expr::ScalarFunction(call), false)));
    }
    let Some(ty) = common(call.args.iter(), schema) else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    Ok(Transformed::yes(match *choice {
        "greatest" | "least" => {
            let code = |value| match constant(&value) {
                Some(_) => lit(ScalarValue::Null),
                None => code_of(&ty, value),
            };
            call.args = call.args.into_iter().map(code).collect();
            label_of(&ty, Expr::ScalarFunction(call))
        }
        _ => value_of(&ty, Expr::ScalarFunction(call), false),
    }))
}

/// What a function tells about the type of its arguments.
fn answered(asks: Asks, call: ScalarFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let ty = call.args.iter().find_map(|arg| enum_of(arg, schema));
    let Some(ty) = ty else {
        return plan_err!("{} takes a value of an ENUM", call.func.name());
    };
    let text = |label: Option<&String>| lit(ScalarValue::Utf8View(label.cloned()));
    Ok(Transformed::yes(match (asks, call.args) {
        (Asks::Code, mut args) => code_of(&ty, args.remove(0)),
        (Asks::First, _) => text(ty.labels().first()),
        (Asks::Last, _) => text(ty.labels().last()),
        (Asks::Range, args) => {
            let [first, last] = match &args[..] {
                [from, to] => [bound(&ty, from)?, bound(&ty, to)?],
                _ => [None, None],
            };
            let first = first.unwrap_or(0);
            let last = last.map_or(ty.labels().len(), |last| last + 1);
            let labels = ty.labels().get(first..last).unwrap_or_default();
            let labels = labels.iter().map(|label| Some(label.as_str()));
            let labels = Arc::new(labels.collect::<StringViewArray>());
            let list = datafusion::common::utils::SingleRowListArrayBuilder::new(labels);
            lit(list.build_list_scalar())
        }
    }))
}

/// The place of a constant value; `None` for NULL.
fn bound(ty: &EnumType, value: &Expr) -> DfResult<Option<usize>> {
    let label = match value {
        Expr::ScalarFunction(call) if call.func.name() == OF => {
            call.args.first().and_then(constant)
        }
        other => constant(other),
    };
    match label {
        Some(None) => Ok(None),
        Some(Some(label)) => match ty.code(label) {
            Some(code) => Ok(Some(code as usize)),
            None => Err(ty.no_label(label).into()),
        },
        None => not_impl_err!("enum_range with bounds that are no constants"),
    }
}

/// A sort whose key is the codes of values.
pub(super) fn sorted(sort: Sort, schema: &DFSchema) -> Transformed<Sort> {
    match enum_of(&sort.expr, schema) {
        Some(ty) => Transformed::yes(Sort { expr: code_of(&ty, sort.expr), ..sort }),
        None => Transformed::no(sort),
    }
}

fn all_sorted(sorts: &mut Vec<Sort>, schema: &DFSchema) -> bool {
    let mut changed = false;
    let sorted = std::mem::take(sorts).into_iter().map(|sort| {
        let sorted = sorted(sort, schema);
        changed |= sorted.transformed;
        sorted.data
    });
    *sorts = sorted.collect();
    changed
}

/// Checks the arguments of an aggregate or window function.
///
/// # Errors
/// Functions of several values of a type between which one is computed, and a constant beside values that is no label.
fn check_arguments(name: &str, args: &[Expr], schema: &DFSchema) -> DfResult<()> {
    let Some(ty) = args.first().and_then(|first| enum_of(first, schema)) else { return Ok(()) };
    if QUANTILES.iter().any(|part| name.contains(part)) {
        return not_impl_err!("{name} of values of the type {ty}");
    }
    match args.get(2).filter(|_| ["lag", "lead"].contains(&name)) {
        Some(default) => check_constant(&ty, default),
        None => Ok(()),
    }
}

fn aggregated(mut call: AggregateFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let params = &mut call.params;
    let name = call.func.name().to_owned();
    check_arguments(&name, &params.args, schema)?;
    let mut changed = false;
    if let [value] = &params.args[..]
        && let Some(ty) = enum_of(value, schema)
        && let Some(extreme) = extreme(&name, &ty)
    {
        call.func = extreme;
        changed = true;
    }
    let is_ordered = all_sorted(&mut params.order_by, schema);
    if is_ordered && params.distinct {
        return not_impl_err!("{name}(DISTINCT …) with ORDER BY values of an ENUM");
    }
    changed |= is_ordered;
    Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed))
}

fn windowed(mut call: WindowFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let name = call.fun.name().to_owned();
    let params = &mut call.params;
    check_arguments(&name, &params.args, schema)?;
    let mut changed = false;
    if let [value] = &params.args[..]
        && let Some(ty) = enum_of(value, schema)
        && let Some(extreme) = extreme(&name, &ty)
    {
        call.fun = WindowFunctionDefinition::AggregateUDF(extreme);
        changed = true;
    }
    if has_distances(&params.window_frame)
        && let Some(ty) = params.order_by.iter().find_map(|sort| enum_of(&sort.expr, schema))
    {
        return plan_err!("values of the type {ty} have no distances for a frame by RANGE");
    }
    changed |= all_sorted(&mut params.order_by, schema);
    Ok(Transformed::new_transformed(Expr::WindowFunction(Box::new(call)), changed))
}

/// True of a frame of rows whose values differ by no more than some distance.
fn has_distances(frame: &WindowFrame) -> bool {
    let is_distance = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => {
            !distance.is_null()
        }
        WindowFrameBound::CurrentRow => false,
    };
    frame.units == WindowFrameUnits::Range
        && (is_distance(&frame.start_bound) || is_distance(&frame.end_bound))
}

/// The type that an aggregate or window function gives values of; `None` for other values. Not known of other expressions.
pub(super) fn made(expr: &Expr, schema: &DFSchema) -> Option<Option<Arc<EnumType>>> {
    let (name, args) = match expr {
        Expr::Alias(alias) => return made(&alias.expr, schema),
        Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => (call.fun.name(), &call.params.args),
        _ => return None,
    };
    if ["enum_min", "enum_max"].contains(&name) {
        return Some(enum_of(args.first()?, schema));
    }
    if !OF_FIRST.contains(&name) {
        return Some(None);
    }
    let ty = args.first().and_then(|first| enum_of(first, schema));
    let default = args.get(2).filter(|_| ["lag", "lead"].contains(&name));
    Some(ty.filter(|ty| {
        default.is_none_or(|default| {
            constant(default).is_some() || enum_of(default, schema).as_ref() == Some(ty)
        })
    }))
}

/// A cast as a function, if it is one to or from an enumeration.
fn cast(
    inner: Expr,
    to: FieldRef,
    is_lenient: bool,
    schema: &DFSchema,
) -> DfResult<Transformed<Expr>> {
    let again = |inner, field| match is_lenient {
        true => Expr::TryCast(TryCast { expr: Box::new(inner), field }),
        false => Expr::Cast(Cast { expr: Box::new(inner), field }),
    };
    // A parameter may have no type yet.
    let Ok((_, from)) = inner.to_field(schema) else {
        return Ok(Transformed::no(again(inner, to)));
    };
    if has_enum_within(to.data_type()) {
        return not_impl_err!("a cast to values with an ENUM within them");
    }
    Ok(match (EnumType::of_field(&from), EnumType::of_field(&to)) {
        (Some(from), Some(to)) if from == to => Transformed::yes(inner),
        (_, Some(ty)) => {
            let is_text = from.data_type().is_string() || from.data_type().is_null();
            let texts = match is_json(&from) {
                true => json_as(inner, &DataType::Utf8View, is_lenient),
                false if is_text => inner,
                false => {
                    return plan_err!("{} cannot be cast to {ty}", field_type_name(&from));
                }
            };
            Transformed::yes(value_of(&ty, texts, is_lenient))
        }
        (Some(_), None) if is_json(&to) => Transformed::yes(json_value(text_of(inner))),
        (Some(_), None) if to.data_type().is_string() && to.metadata().is_empty() => {
            Transformed::yes(text_of(inner))
        }
        (Some(_), None) => Transformed::yes(again(text_of(inner), to)),
        (None, None) => Transformed::no(again(inner, to)),
    })
}
