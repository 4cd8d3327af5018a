//! Functions that people know from DuckDB and PostgreSQL and that DataFusion lacks, in terms of those
//! that it has.
//!
//! A call is replaced before it is planned by the expression that stands for it in the list. What
//! follows a call of an aggregate function (DISTINCT, FILTER, OVER) goes to the aggregate in it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::SqlError;
use crate::text::DIALECT;

pub(crate) mod attempts;
mod calendar;
mod definitions;
mod distances;
mod elements;
mod formats;
pub(crate) mod lambda_syntax;
pub(crate) mod lambdas;
pub(crate) mod list_aggregates;
mod list_facts;
mod list_orders;
mod list_types;
mod lists;
mod maps;
mod numbers;
mod paths;
mod patterns;
mod scalar;
mod slices;
mod structs;
mod syntactic;
mod texts;
mod time_formats;
mod time_parsing;
mod to_char;
mod vectors;

use definitions::DEFINITIONS;

/// The scalar functions in the modules below.
pub(crate) fn scalar_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [
        calendar::functions,
        distances::functions,
        formats::functions,
        list_facts::functions,
        list_orders::functions,
        lists::functions,
        maps::functions,
        numbers::functions,
        paths::functions,
        patterns::functions,
        slices::functions,
        structs::functions,
        texts::functions,
        time_formats::functions,
        time_parsing::functions,
        to_char::functions,
        vectors::functions,
    ]
    .into_iter()
    .flat_map(|functions| functions())
}

/// Aggregate and window functions in the definitions.
const AGGREGATES: [&str; 17] = [
    "approx_distinct",
    "approx_percentile_cont",
    "array_agg",
    "avg",
    "bool_and",
    "count",
    "dense_rank",
    "first_value",
    "last_value",
    "percentile_cont",
    "quantile_cont",
    "quantile_disc",
    "stddev_pop",
    "string_agg",
    "sum",
    "var_samp",
    "var_pop",
];

/// A function: its parameters, and what stands for a call.
struct Definition {
    parameters: Vec<String>,
    body: Expr,
}

/// The functions by name and number of arguments.
static FUNCTIONS: LazyLock<HashMap<(String, usize), Definition>> =
    LazyLock::new(|| DEFINITIONS.lines().filter(|line| !line.is_empty()).map(parse).collect());

/// Names in the list that DataFusion does not have, for completion.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let names = FUNCTIONS.keys().map(|(name, _)| name);
    names.cloned().chain(SYNTACTIC.map(str::to_owned))
}

/// Functions that become others by their arguments, not by a definition.
const SYNTACTIC: [&str; 7] = [
    "list_aggregate",
    "list_aggr",
    "array_aggregate",
    "list_value",
    "list_pack",
    "array_value",
    "struct_pack",
];

fn parse(line: &str) -> ((String, usize), Definition) {
    let definition = || {
        let (head, body) = line.split_once(" = ")?;
        let (name, parameters) = head.strip_suffix(')')?.split_once('(')?;
        let parameters: Vec<String> = parameters
            .split(", ")
            .filter(|parameter| !parameter.is_empty())
            .map(str::to_owned)
            .collect();
        let mut parser = Parser::new(&DIALECT).try_with_sql(body).ok()?;
        let body = parser.parse_expr().ok()?;
        Some(((name.to_owned(), parameters.len()), Definition { parameters, body }))
    };
    definition().unwrap_or_else(|| panic!("not a definition of a function: {line}"))
}

/// Replaces a call of one of the functions by what stands for it.
pub(crate) fn rewrite(expr: &mut Expr) -> ControlFlow<SqlError> {
    let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
    lambda_syntax::rewrite(function)?;
    syntactic::take_names(function);
    syntactic::name_unit(function);
    let mut name = function.name.to_string().to_lowercase();
    check_scale(&name, function)?;
    let Some(mut arguments) = arguments_of(function) else { return ControlFlow::Continue(()) };
    if syntactic::is_aggregate_of_list(&mut name, &mut arguments) {
        *expr = call(&name, arguments);
        return rewrite(expr);
    }
    if let Some(other) = syntactic::instead(&name, &arguments) {
        *expr = other;
        return ControlFlow::Continue(());
    }
    syntactic::check_count(&name, &arguments)?;
    if syntactic::take_part(&mut name, &mut arguments) {
        *expr = call(&name, arguments);
        return match name.as_str() {
            "date_part" => ControlFlow::Continue(()),
            _ => rewrite(expr),
        };
    }
    if let Some(body) = syntactic::of_each(&name, &arguments) {
        let mut body = body;
        let mut call = Call { parameters: &[], arguments: &[], outer: function };
        body.visit(&mut call)?;
        *expr = body;
        return ControlFlow::Continue(());
    }
    let Some(definition) = FUNCTIONS.get(&(name, arguments.len())) else {
        return ControlFlow::Continue(());
    };
    let mut body = definition.body.clone();
    let mut call =
        Call { parameters: &definition.parameters, arguments: &arguments, outer: function };
    body.visit(&mut call)?;
    *expr = match body {
        // Beside an operator, a body with operators keeps together.
        body @ (Expr::BinaryOp { .. } | Expr::UnaryOp { .. }) => Expr::Nested(Box::new(body)),
        body => body,
    };
    ControlFlow::Continue(())
}

/// Refuses casts to decimals of hundreds and the like, which DataFusion goes wrong with, and panics.
fn check_scale(name: &str, function: &Function) -> ControlFlow<SqlError> {
    let is_negative = |argument: &Expr| match argument {
        Expr::Value(value) => value.value.clone().into_string().is_some_and(|data_type| {
            let data_type = data_type.replace(' ', "");
            data_type.starts_with("Decimal") && data_type.contains(",-")
        }),
        _ => false,
    };
    let casts = matches!(name, "arrow_cast" | "arrow_try_cast");
    if !casts || !arguments_of(function).iter().flatten().any(is_negative) {
        return ControlFlow::Continue(());
    }
    let problem = "a decimal with less than no digits behind the point";
    ControlFlow::Break(SqlError::not_supported(problem).with_hint("use a scale of 0 or more"))
}

/// A call of a function.
pub(crate) fn call(name: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let unnamed = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The arguments of a call, if they are expressions.
fn arguments_of(function: &Function) -> Option<Vec<Expr>> {
    match &function.args {
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            })
            .collect(),
    }
}

/// Puts arguments in place of parameters, and what follows the call behind the aggregate in the body.
struct Call<'a> {
    parameters: &'a [String],
    arguments: &'a [Expr],
    outer: &'a Function,
}

impl VisitorMut for Call<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Identifier(name) if name.quote_style.is_none() => {
                let at = self.parameters.iter().position(|parameter| *parameter == name.value);
                if let Some(at) = at {
                    *expr = Expr::Nested(Box::new(self.arguments[at].clone()));
                }
            }
            Expr::Function(function)
                if AGGREGATES.contains(&function.name.to_string().as_str()) =>
            {
                self.follow(function);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Call<'_> {
    fn follow(&self, function: &mut Function) {
        let outer = self.outer;
        function.over.clone_from(&outer.over);
        if outer.null_treatment.is_some() {
            function.null_treatment = outer.null_treatment;
        }
        function.filter = match (function.filter.take(), outer.filter.clone()) {
            (Some(left), Some(right)) => Some(Box::new(Expr::BinaryOp {
                left: Box::new(Expr::Nested(left)),
                op: BinaryOperator::And,
                right: Box::new(Expr::Nested(right)),
            })),
            (left, right) => left.or(right),
        };
        if let (FunctionArguments::List(to), FunctionArguments::List(from)) =
            (&mut function.args, &outer.args)
        {
            to.duplicate_treatment = from.duplicate_treatment;
            if to.clauses.is_empty() {
                to.clauses.clone_from(&from.clauses);
            }
        }
        if function.within_group.is_empty() {
            function.within_group.clone_from(&outer.within_group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
        match rewrite(&mut expr) {
            ControlFlow::Continue(()) => expr.to_string(),
            ControlFlow::Break(error) => error.to_string(),
        }
    }

    #[test]
    fn arguments_stand_for_parameters() {
        assert_eq!(rewritten("mod(a + 1, b)"), "((a + 1) % (b))");
        assert_eq!(rewritten("mod(a)"), "mod(a)");
        assert_eq!(rewritten("unknown(a)"), "unknown(a)");
    }

    #[test]
    fn what_follows_a_call_goes_to_its_aggregate() {
        assert_eq!(
            rewritten("count_if(a) FILTER (WHERE b) OVER (PARTITION BY c)"),
            "count(CASE WHEN (a) THEN 1 END) FILTER (WHERE b) OVER (PARTITION BY c)"
        );
        assert_eq!(rewritten("list(DISTINCT a ORDER BY b)"), "array_agg(DISTINCT (a) ORDER BY b)");
    }

    #[test]
    fn units_are_texts_and_columns_stay() {
        assert_eq!(rewritten("date_diff(day, a, b)"), "date_diff('day', a, b)");
        assert_eq!(rewritten("date_diff(unit, a, b)"), "date_diff(unit, a, b)");
        assert_eq!(rewritten("date_part('yrs', a)"), "date_part('year', a)");
        assert_eq!(rewritten("date_part('isoyear', a)"), "isoyear(a)");
    }

    #[test]
    fn arguments_choose_functions() {
        assert_eq!(rewritten("list_aggregate(l, 'sum')"), "list_sum(l)");
        assert_eq!(rewritten("struct_pack(a := 1, b)"), "named_struct('a', 1, 'b', b)");
        assert_eq!(
            rewritten("quantile_disc(x, [0.1, 0.9]) FILTER (WHERE y)"),
            "CASE WHEN count(x) FILTER (WHERE y) > 0 THEN make_array(quantile_disc(x, 0.1) FILTER (WHERE y), \
             quantile_disc(x, 0.9) FILTER (WHERE y)) END"
        );
        assert!(rewritten("max(x, 0)").contains("more than 0"));
    }
}
