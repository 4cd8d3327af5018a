//! `array_agg(x ORDER BY 1)`: within a call a number is the same for all rows, and orders none. DataFusion takes it for the place
//! of an argument.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, OrderByExpr, Value,
};

/// Leaves out the numbers that the rows of a call are ordered by.
pub(crate) fn leave_out(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    list.clauses.retain_mut(|clause| {
        let FunctionArgumentClause::OrderBy(keys) = clause else { return true };
        keys.retain(|key| !is_number(key));
        !keys.is_empty()
    });
}

fn is_number(key: &OrderByExpr) -> bool {
    matches!(&key.expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}
