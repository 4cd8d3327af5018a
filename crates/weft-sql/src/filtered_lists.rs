//! `array_agg(x) FILTER (WHERE c)` over a window: a list has nulls in it, so that those of rows that are left out have to be told from
//! others. Where `c` holds there is a list of one, elsewhere none, and the lists are put together.

use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, NullTreatment, helpers::attached_token::AttachedToken,
};

use crate::functions::call;

/// Puts such a call in terms of one without FILTER.
pub(crate) fn rewrite(expr: &mut Expr) {
    if let Expr::Function(function) = expr
        && let Some(lists) = lists(function)
    {
        *expr = lists;
    }
}

fn lists(function: &Function) -> Option<Expr> {
    let is_list = function.name.to_string().eq_ignore_ascii_case("array_agg");
    let condition = function.filter.as_ref().filter(|_| is_list && function.over.is_some())?;
    let mut function = function.clone();
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = &mut list.args[..] else {
        return None;
    };
    let has_nulls = function.null_treatment != Some(NullTreatment::IgnoreNulls)
        && !list
            .clauses
            .contains(&FunctionArgumentClause::IgnoreOrRespectNulls(NullTreatment::IgnoreNulls));
    let result = match has_nulls {
        true => call("make_array", [value.clone()]),
        false => value.clone(),
    };
    *value = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: (**condition).clone(), result }],
        else_result: None,
    };
    function.filter = None;
    if has_nulls {
        list.clauses
            .retain(|clause| !matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(_)));
        function.null_treatment = Some(NullTreatment::IgnoreNulls);
        return Some(call("flatten", [Expr::Function(function)]));
    }
    Some(Expr::Function(function))
}
