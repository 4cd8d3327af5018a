//! ASOF JOIN and POSITIONAL JOIN: joins whose condition has a *mark*, a function without arguments, by which the planned join is known and
//! put in terms of windows and other joins before anything looks at it (`asof.rs`, `positional.rs`).

mod asof;
mod positional;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as DfResult, not_impl_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr as LogicalExpr, Join, LogicalPlan, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, JoinConstraint, JoinOperator};

use crate::error::SqlError;
use crate::functions::call;

/// The mark of ASOF JOIN.
pub(super) const ASOF: &str = "asof_join";
/// The mark of ASOF LEFT JOIN.
pub(super) const ASOF_LEFT: &str = "asof_left_join";
/// The mark of POSITIONAL JOIN.
const POSITIONAL: &str = "positional_join";

/// Puts marks into the conditions of joins.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) for other joins that the grammar writes so.
pub(crate) fn rewrite(operator: &mut JoinOperator) -> ControlFlow<SqlError> {
    match operator {
        JoinOperator::InnerArrayJoin => {
            *operator = JoinOperator::FullOuter(JoinConstraint::On(call(POSITIONAL, [])));
        }
        JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin => {
            let error = SqlError::not_supported("ARRAY JOIN");
            return ControlFlow::Break(error.with_hint("write FROM t, UNNEST(t.list)"));
        }
        JoinOperator::AsOf { match_condition, constraint } => {
            if !is_mark(match_condition) {
                let error = SqlError::not_supported("MATCH_CONDITION");
                return ControlFlow::Break(
                    error.with_hint("write it among the conditions behind ON"),
                );
            }
            // USING waits for the columns (`using_joins.rs`).
            if let JoinConstraint::On(condition) = constraint {
                *operator = marked(match_condition, condition.clone());
            }
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

/// A join with a mark and a condition.
fn marked(mark: &Expr, condition: Expr) -> JoinOperator {
    let condition = JoinConstraint::On(Expr::BinaryOp {
        left: Box::new(mark.clone()),
        op: BinaryOperator::And,
        right: Box::new(Expr::Nested(Box::new(condition))),
    });
    match mark.to_string().starts_with(ASOF_LEFT) {
        true => JoinOperator::LeftOuter(condition),
        false => JoinOperator::Inner(condition),
    }
}

fn is_mark(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if [ASOF, ASOF_LEFT].contains(&function.name.to_string().as_str()))
}

/// An ASOF JOIN with USING, whose keys are written out as equalities: the last one is the one that is not.
pub(crate) fn finish_using(operator: &mut JoinOperator) {
    if let JoinOperator::AsOf { match_condition, constraint: JoinConstraint::On(condition) } =
        operator
    {
        let mut condition = condition.clone();
        let mut last = &mut condition;
        while let Expr::BinaryOp { op: BinaryOperator::And, right, .. } = last {
            last = right;
        }
        if let Expr::BinaryOp { op, .. } = last {
            *op = BinaryOperator::GtEq;
        }
        *operator = marked(match_condition, condition);
    }
}

/// Puts the joins with marks in terms of others.
///
/// # Errors
/// For conditions that such a join cannot have.
pub(crate) fn planned(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let planned = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Join(join) = node else { return Ok(Transformed::no(node)) };
        match mark_of(&join) {
            Some(POSITIONAL) => Ok(Transformed::yes(positional::plan(join)?)),
            Some(_) => Ok(Transformed::yes(asof::plan(join)?)),
            None => Ok(Transformed::no(LogicalPlan::Join(join))),
        }
    })?;
    Ok(planned.data)
}

/// The mark of a join.
fn mark_of(join: &Join) -> Option<&'static str> {
    let mut found = None;
    // Nothing in it fails.
    let _ = join.filter.as_ref()?.exists(|expr| {
        found = found.or(mark(expr));
        Ok(found.is_some())
    });
    found
}

/// The mark that an expression is.
fn mark(expr: &LogicalExpr) -> Option<&'static str> {
    let LogicalExpr::ScalarFunction(function) = expr else { return None };
    [ASOF, ASOF_LEFT, POSITIONAL].into_iter().find(|mark| *mark == function.func.name())
}

/// The marks, as functions.
pub(crate) fn marks() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [ASOF, ASOF_LEFT, POSITIONAL].into_iter().map(|name| {
        let signature = Signature::nullary(Volatility::Volatile);
        Arc::new(ScalarUDF::from(Mark { name, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        not_impl_err!("{} outside of the condition of a join", self.name)
    }
}
