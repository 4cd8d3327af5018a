//! ASOF JOIN: each row of the left side with the nearest one of the right side before it, or behind it, among those with equal keys.
//!
//! Both sides' rows go through one window: its partitions are the keys, and within each the rows of both sides are in the order of what
//! is compared. The last row of the right side up to a row of the left one is what the join finds. A row of the right side with NULL
//! among its keys is nobody's, and one of the left side finds none.

use datafusion::common::{Column, JoinType, Result as DfResult, ScalarValue};
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::functions_window::expr_fn::last_value;
use datafusion::logical_expr::expr::NullTreatment;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    WindowFrame, WindowFrameBound, WindowFrameUnits, lit, when,
};

use super::mark;
use crate::error::{ErrorKind, SqlError};

/// What a join asks for.
struct Conditions {
    /// Equal values of the left and right side.
    keys: Vec<(Expr, Expr)>,
    /// What is compared of the left and right side, and how.
    compared: (Expr, Operator, Expr),
}

/// The join as a window.
pub(super) fn plan(join: Join) -> DfResult<LogicalPlan> {
    let conditions = Conditions::of(&join)?;
    let (left_compared, operator, right_compared) = conditions.compared.clone();
    // The rows of the right side that are equal come first if they count, and last if they do not.
    let comes_first = matches!(operator, Operator::GtEq | Operator::LtEq);
    let ascending = matches!(operator, Operator::GtEq | Operator::Gt);
    let (left_side, right_side) = if comes_first { (1_i64, 0_i64) } else { (0, 1) };

    let left_columns = join.left.schema().columns();
    let right_columns = join.right.schema().columns();
    let own = |columns: &[Column]| columns.iter().cloned().map(Expr::Column).collect::<Vec<_>>();
    let nulls = |of: &LogicalPlan| -> DfResult<Vec<Expr>> {
        let types = of.schema().fields().iter().map(|field| field.data_type().clone());
        types.map(|data_type| Ok(Expr::Literal(ScalarValue::try_from(&data_type)?, None))).collect()
    };
    let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = conditions.keys.into_iter().unzip();
    let rows = |own: Vec<Expr>, keys: Vec<Expr>, compared: Expr, side: i64| {
        let columns =
            own.into_iter().enumerate().map(|(at, expr)| expr.alias(format!("__column_{at}")));
        let keys = keys.into_iter().enumerate().map(|(at, expr)| expr.alias(format!("__key_{at}")));
        let rest = [compared.alias("__compared"), lit(side).alias("__side")];
        columns.chain(keys).chain(rest).collect::<Vec<_>>()
    };
    let key_count = left_keys.len();
    let left_row = [own(&left_columns), nulls(&join.right)?].concat();
    let left = LogicalPlanBuilder::from(join.left.as_ref().clone())
        .project(rows(left_row, left_keys, left_compared, left_side))?
        .build()?;
    let are_there = right_keys.iter().chain([&right_compared]).cloned().map(Expr::is_not_null);
    let right_row = [nulls(&join.left)?, own(&right_columns)].concat();
    let right = LogicalPlanBuilder::from(join.right.as_ref().clone())
        .filter(conjunction(are_there).unwrap_or_else(|| lit(true)))?
        .project(rows(right_row, right_keys.clone(), right_compared, right_side))?
        .build()?;

    let named = |name: String| Expr::Column(Column::from_name(name));
    let column = |at: usize| named(format!("__column_{at}"));
    let side = || named("__side".to_owned());
    let found = (0..right_columns.len())
        .flat_map(|at| [lit(format!("c{at}")), column(left_columns.len() + at)]);
    let row = when(side().eq(lit(right_side)), named_struct(found.collect())).end()?;
    let sorts = vec![named("__compared".to_owned()).sort(ascending, true), side().sort(true, true)];
    let frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    let last = last_value(row)
        .partition_by((0..key_count).map(|at| named(format!("__key_{at}"))).collect())
        .order_by(sorts)
        .window_frame(frame)
        .null_treatment(NullTreatment::IgnoreNulls)
        .build()?;
    let windowed = LogicalPlanBuilder::from(left).union(right)?.window([last])?.build()?;
    let Some(found) = windowed.schema().columns().pop().map(Expr::Column) else {
        return Err(conditions_expected().into());
    };
    let mut of_left = side().eq(lit(left_side));
    if join.join_type == JoinType::Inner {
        of_left = of_left.and(found.clone().is_not_null());
    }
    let columns = join.schema.iter().enumerate().map(|(at, (table, field))| {
        let value = match at.checked_sub(left_columns.len()) {
            None => column(at),
            Some(at) => get_field(found.clone(), format!("c{at}")),
        };
        value.alias_qualified(table.cloned(), field.name())
    });
    LogicalPlanBuilder::from(windowed).filter(of_left)?.project(columns)?.build()
}

impl Conditions {
    fn of(join: &Join) -> DfResult<Conditions> {
        let (mut keys, mut compared) = (join.on.clone(), None);
        for condition in join.filter.iter().cloned().flat_map(split_conjunction_owned) {
            if mark(&condition).is_some() {
                continue;
            }
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
                return Err(conditions_expected().into());
            };
            let (left, op, right) = if is_of(&left, join, true) && is_of(&right, join, false) {
                (*left, op, *right)
            } else if is_of(&left, join, false) && is_of(&right, join, true) {
                let Some(op) = op.swap() else { return Err(conditions_expected().into()) };
                (*right, op, *left)
            } else {
                return Err(conditions_expected().into());
            };
            match op {
                Operator::Eq => keys.push((left, right)),
                Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq
                    if compared.is_none() =>
                {
                    compared = Some((left, op, right));
                }
                _ => return Err(conditions_expected().into()),
            }
        }
        let compared = compared.ok_or_else(conditions_expected)?;
        Ok(Conditions { keys, compared })
    }
}

/// True of an expression of columns of one side.
fn is_of(expr: &Expr, join: &Join, of_left: bool) -> bool {
    let schema = if of_left { join.left.schema() } else { join.right.schema() };
    let columns = expr.column_refs();
    !columns.is_empty() && columns.into_iter().all(|column| schema.has_column(column))
}

fn conditions_expected() -> SqlError {
    SqlError::new(
        ErrorKind::Semantic,
        "an ASOF JOIN needs one comparison by >=, >, <= or < of its two sides, and beside it nothing but equalities of them",
    )
    .with_hint("a ASOF JOIN b ON a.key = b.key AND a.time >= b.time; filter in WHERE")
}
