//! `lag(coalesce(a, b) IGNORE NULLS)`: the words are the outer function's, but the parser gives them to the call that they follow,
//! and DataFusion overlooks them there.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
};

/// Functions that may have the words behind their arguments.
const OWN: [&str; 7] =
    ["any_value", "array_agg", "first_value", "lag", "last_value", "lead", "nth_value"];

/// Gives a function the words behind its last argument.
pub(crate) fn take_from_argument(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(inner)))) =
        list.args.last_mut()
    else {
        return;
    };
    let name = inner.name.to_string().to_lowercase();
    if inner.over.is_some() || OWN.contains(&name.as_str()) {
        return;
    }
    if let Some(treatment) = inner.null_treatment.take() {
        list.clauses.push(FunctionArgumentClause::IgnoreOrRespectNulls(treatment));
    }
}
