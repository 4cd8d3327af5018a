//! Calls that become others by what their arguments are: names of arguments, parts of dates, names of aggregate functions,
//! and lists of fractions.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    Value,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::call;
use super::distances::is_unit;
use super::lambda_syntax::lambda;
use crate::error::{ErrorKind, SqlError};
use crate::text::DIALECT;

/// Makes arguments of the names of arguments of functions that make structs: `struct_pack(a := 1)`.
pub(super) fn take_names(function: &mut Function) {
    let name = function.name.to_string().to_lowercase();
    if !matches!(name.as_str(), "struct_pack" | "struct_insert" | "struct_update") {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    let mut args = Vec::new();
    for argument in list.args.drain(..) {
        let (name, value) = match argument {
            FunctionArg::Named { name, arg, .. } => (name.value, FunctionArg::Unnamed(arg)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(column)))
                if name == "struct_pack" =>
            {
                let value = FunctionArgExpr::Expr(Expr::Identifier(column.clone()));
                (column.value, FunctionArg::Unnamed(value))
            }
            unnamed => {
                args.push(unnamed);
                continue;
            }
        };
        args.extend([FunctionArg::Unnamed(FunctionArgExpr::Expr(text(name))), value]);
    }
    list.args = args;
    if name == "struct_pack" {
        function.name = ObjectName::from(vec![Ident::new("named_struct")]);
    }
}

/// Makes a text of the unit of a distance that is written as a name: `date_diff(day, a, b)`.
pub(super) fn name_unit(function: &mut Function) {
    let name = function.name.to_string().to_lowercase();
    if !matches!(name.as_str(), "date_diff" | "datediff" | "date_sub" | "datesub") {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.first_mut()
        && let Expr::Identifier(unit) = argument
        && unit.quote_style.is_none()
        && is_unit(&unit.value)
    {
        *argument = text(std::mem::take(&mut unit.value));
    }
}

fn text(text: String) -> Expr {
    Expr::value(Value::SingleQuotedString(text))
}

/// The text of a constant.
fn constant(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => value.value.clone().into_string(),
        _ => None,
    }
}

/// Makes `list_sum(l)` of `list_aggregate(l, 'sum')`, and tells whether it was one.
pub(super) fn is_aggregate_of_list(name: &mut String, arguments: &mut Vec<Expr>) -> bool {
    const NAMES: [&str; 4] = ["list_aggregate", "list_aggr", "array_aggregate", "array_aggr"];
    if !NAMES.contains(&name.as_str()) {
        return false;
    }
    let Some(aggregate) = arguments.get(1).and_then(constant) else { return false };
    *name = format!("list_{}", aggregate.to_lowercase());
    arguments.remove(1);
    true
}

/// What stands for a call with these arguments, if they alone say so.
pub(super) fn instead(name: &str, arguments: &[Expr]) -> Option<Expr> {
    match (name, arguments) {
        ("list_value" | "list_pack" | "array_value" | "unpivot_list", _) => {
            Some(call("make_array", arguments.to_vec()))
        }
        ("try", [Expr::Lambda(_)]) => None,
        ("try", [expr]) => {
            let mut expr = expr.clone();
            // Constants are cast when the statement is planned.
            if let Expr::Cast { kind, .. } = &mut expr {
                *kind = CastKind::TryCast;
            }
            Some(call("try", [lambda(Vec::new(), expr)]))
        }
        // DataFusion takes any two arguments of map for a key and its value.
        ("map", [] | [_, _]) => Some(call("map_from_lists", arguments.to_vec())),
        ("struct_extract", [of, place]) => Some(match constant(place) {
            Some(field) => call("get_field", [of.clone(), text(field)]),
            None => call("struct_extract_at", [of.clone(), place.clone()]),
        }),
        ("regexp_extract", [of, pattern, Expr::Array(names), options @ ..]) => {
            let mut fields = Vec::new();
            for (group, name) in names.elem.iter().enumerate() {
                let group = Expr::value(Value::Number((group + 1).to_string(), false));
                let mut arguments = vec![of.clone(), pattern.clone(), group];
                arguments.extend(options.iter().cloned());
                fields.extend([text(constant(name)?), call("regexp_extract", arguments)]);
            }
            Some(call("named_struct", fields))
        }
        _ => None,
    }
}

/// Checks how many of the largest or smallest values are asked for.
pub(super) fn check_count(name: &str, arguments: &[Expr]) -> ControlFlow<SqlError> {
    let count = match (name, arguments) {
        ("max" | "min", [_, count]) => count,
        ("arg_max" | "arg_min" | "argmax" | "argmin" | "max_by" | "min_by", [_, _, count]) => count,
        _ => return ControlFlow::Continue(()),
    };
    let is_positive = match count {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<u32>().is_ok_and(|count| count > 0),
            _ => false,
        },
        _ => false,
    };
    match is_positive {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(SqlError::new(
            ErrorKind::Semantic,
            format!(
                "the number of values of {name} has to be a constant of more than 0, not {count}"
            ),
        )),
    }
}

/// Makes a call of the function of a part of `date_part('isoyear', x)`, and gives other parts their usual name.
/// Tells whether the call was one of `date_part`.
pub(super) fn take_part(name: &mut String, arguments: &mut Vec<Expr>) -> bool {
    if !matches!(name.as_str(), "date_part" | "datepart") || arguments.len() != 2 {
        return false;
    }
    let Some(part) = constant(&arguments[0]).map(|part| part.to_lowercase()) else { return false };
    let part = match part.as_str() {
        "c" | "cent" | "centuries" => "century",
        "dec" | "decs" | "decades" => "decade",
        "mil" | "millennia" | "millenniums" => "millennium",
        "y" | "yr" | "yrs" | "years" => "year",
        "quarters" => "quarter",
        "mon" | "mons" | "months" => "month",
        "w" | "weeks" | "weekofyear" => "week",
        "d" | "days" | "dayofmonth" => "day",
        "dayofweek" | "weekday" => "dow",
        "dayofyear" => "doy",
        "h" | "hr" | "hrs" | "hours" => "hour",
        "m" | "min" | "mins" | "minutes" => "minute",
        "s" | "sec" | "secs" | "seconds" => "second",
        "ms" | "msec" | "msecs" | "milliseconds" => "millisecond",
        "us" | "usec" | "usecs" | "microseconds" => "microsecond",
        other => other,
    };
    match part {
        "century" | "decade" | "millennium" | "isoyear" | "yearweek" | "era" | "julian"
        | "isodow" | "millisecond" | "microsecond" | "nanosecond" => {
            *name = part.to_owned();
            arguments.remove(0);
        }
        other => {
            "date_part".clone_into(name);
            arguments[0] = text(other.to_owned());
        }
    }
    true
}

/// A list of the quantiles of a list of fractions, NULL if there are no values.
pub(super) fn of_each(name: &str, arguments: &[Expr]) -> Option<Expr> {
    let function = match name {
        "quantile" | "quantile_disc" => "quantile_disc",
        "quantile_cont" | "percentile_cont" => "quantile_cont",
        "approx_quantile" => "approx_percentile_cont",
        _ => return None,
    };
    let [values, Expr::Array(fractions)] = arguments else { return None };
    let quantiles =
        fractions.elem.iter().map(|fraction| call(function, [values.clone(), fraction.clone()]));
    let list = call("make_array", quantiles);
    let mut parser = Parser::new(&DIALECT).try_with_sql("CASE WHEN 1 > 0 THEN 1 END").ok()?;
    let mut body = parser.parse_expr().ok()?;
    if let Expr::Case { conditions, .. } = &mut body
        && let Some(condition) = conditions.first_mut()
    {
        condition.result = list;
        if let Expr::BinaryOp { left, .. } = &mut condition.condition {
            **left = call("count", [values.clone()]);
        }
    }
    Some(body)
}
