//! `lag(coalesce(a, b) IGNORE NULLS)`: the words are the outer function's, but the parser gives them to the call that they follow,
//! and DataFusion overlooks them there.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    NullTreatment, ObjectName,
};

/// Has `any_value(x ORDER BY y)` be the first value in this order that is not NULL: DataFusion's takes no order.
pub(crate) fn take_in_order(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let is_ordered =
        |clause: &FunctionArgumentClause| matches!(clause, FunctionArgumentClause::OrderBy(_));
    let is_any = function.name.to_string().eq_ignore_ascii_case("any_value");
    if is_any && list.clauses.iter().any(is_ordered) {
        function.name = ObjectName::from(vec![Ident::new("first_value")]);
        function.null_treatment = Some(NullTreatment::IgnoreNulls);
    }
}

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
