//! Lists that are looked up for one value stay apart while expressions are simplified.
//!
//! DataFusion puts `x IN (1) AND x IN (2)` as false and `x NOT IN (1) OR x NOT IN (2)` as true, which they are not where
//! `x` is NULL. So each list that is not the only one for a value that may be NULL has another operand meanwhile: a call
//! that stands for the value.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DfResult, internal_err};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The expressions of a node with lists that are kept apart.
pub(crate) fn kept_apart(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&scan.projected_schema);
    }
    let names = NamePreserver::new(&plan);
    let apart = plan.map_expressions(|expr| {
        if !has_several_lists(&expr)? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let apart = expr.transform_down(|expr| Ok(as_list(expr)))?.data;
        let apart = number_lists(apart, &schema)?;
        Ok(Transformed::yes(name.restore(apart)))
    })?;
    Ok(apart.data)
}

/// The expressions of a node with the values that calls stand for.
pub(crate) fn put_together(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let names = NamePreserver::new(&plan);
    let together = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let shown = expr.transform_up(|expr| match expr {
            Expr::ScalarFunction(mut call) if call.func.inner().is::<StandIn>() => {
                match call.args.pop() {
                    Some(value) => Ok(Transformed::yes(value)),
                    None => internal_err!("a stand-in stands for nothing"),
                }
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(shown.update_data(|expr| name.restore(expr)))
    })?;
    Ok(together.data)
}

/// True if an expression may have more than one list for a value.
fn has_several_lists(expr: &Expr) -> DfResult<bool> {
    let mut count = 0;
    expr.apply(|expr| {
        let is_list = matches!(expr, Expr::InList(_));
        let is_chain = matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }));
        count += usize::from(is_list || is_chain);
        Ok(if count > 1 { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(count > 1)
}

/// `x = 1 OR x = 2` as the list that DataFusion would make of it.
fn as_list(expr: Expr) -> Transformed<Expr> {
    let mut values = Vec::new();
    let column = match equalities(&expr, None, &mut values) {
        Some(column) if values.len() > 1 => column.clone(),
        _ => return Transformed::no(expr),
    };
    let list = InList { expr: Box::new(column), list: values, negated: false };
    Transformed::new(Expr::InList(list), true, TreeNodeRecursion::Jump)
}

/// The column that an expression compares with literals by nothing but `=` and OR, and the literals.
fn equalities<'a>(
    expr: &'a Expr,
    column: Option<&'a Expr>,
    values: &mut Vec<Expr>,
) -> Option<&'a Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return None };
    match op {
        Operator::Or => {
            let column = equalities(left, column, values)?;
            equalities(right, Some(column), values)
        }
        Operator::Eq => {
            let (found, value) = match (left.as_ref(), right.as_ref()) {
                (found @ Expr::Column(_), value @ Expr::Literal(..))
                | (value @ Expr::Literal(..), found @ Expr::Column(_)) => (found, value),
                _ => return None,
            };
            values.push(value.clone());
            (column.is_none() || column == Some(found)).then_some(found)
        }
        _ => None,
    }
}

/// Gives all lists of a value that may be NULL operands of their own, if it has more than one.
fn number_lists(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let mut counts: Vec<(Expr, usize)> = Vec::new();
    expr.apply(|expr| {
        if let Expr::InList(list) = expr {
            match counts.iter_mut().find(|(value, _)| value == list.expr.as_ref()) {
                Some((_, count)) => *count += 1,
                None => counts.push((list.expr.as_ref().clone(), 1)),
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut number = 0;
    let numbered = expr.transform_up(|expr| match expr {
        Expr::InList(list)
            if counts.iter().any(|(value, count)| *count > 1 && value == list.expr.as_ref())
                && list.expr.nullable(schema).unwrap_or(true) =>
        {
            number += 1;
            let func = Arc::new(ScalarUDF::from(StandIn::new(number)));
            let call = ScalarFunction { func, args: vec![*list.expr] };
            let operand = Box::new(Expr::ScalarFunction(call));
            Ok(Transformed::yes(Expr::InList(InList { expr: operand, ..list })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(numbered.data)
}

/// Stands for its argument, and is another function for each number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StandIn {
    number: usize,
    signature: Signature,
}

impl StandIn {
    fn new(number: usize) -> StandIn {
        StandIn { number, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for StandIn {
    fn name(&self) -> &str {
        "stand_in"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("a stand-in stands for one value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::clone(field)),
            _ => internal_err!("a stand-in stands for one value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([value]) => Ok(value),
            Err(_) => internal_err!("a stand-in stands for one value"),
        }
    }
}
