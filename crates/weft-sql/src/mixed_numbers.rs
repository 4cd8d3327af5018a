//! Where numbers of different kinds meet: DataFusion means something else than SQL does, or fails.
//!
//! - A floating point number and a decimal meet as floating point numbers. DataFusion compares them as
//!   decimals, which large numbers do not fit.
//! - Decimals are divided as floating point numbers: DataFusion keeps only four digits more than the
//!   dividend has.
//! - The median of integers may lie between two of them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{retype, rewrite_expressions};

/// Functions whose arguments have one type.
const OF_ONE_TYPE: [&str; 5] = ["coalesce", "greatest", "least", "nullif", "nvl"];

/// Casts the numbers. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct MixedNumbers;

impl AnalyzerRule for MixedNumbers {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let plan = rewrite_expressions(plan, rewrite)?;
        let plan = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Union(union) => align(union),
            LogicalPlan::Join(mut join) => {
                let (left, right) = (Arc::clone(&join.left), Arc::clone(&join.right));
                let mut changed = false;
                for (one, other) in &mut join.on {
                    let types = [one.get_type(left.schema())?, other.get_type(right.schema())?];
                    if mixes(&types) {
                        *one = to_float(one.clone(), &types[0]);
                        *other = to_float(other.clone(), &types[1]);
                        changed = true;
                    }
                }
                Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
            }
            other => Ok(Transformed::no(other)),
        })?;
        match plan.transformed {
            true => rewrite_expressions(plan.data, |expr, _| Ok(Transformed::no(expr))),
            false => Ok(plan.data),
        }
    }

    fn name(&self) -> &str {
        "mixed_numbers"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(binary) => rewrite_binary(binary, schema),
        Expr::Between(mut between) => {
            let parts = [&mut *between.expr, &mut *between.low, &mut *between.high];
            let changed = meet(parts, schema)?;
            Ok(Transformed::new_transformed(Expr::Between(between), changed))
        }
        Expr::InList(mut list) => {
            let parts = std::iter::once(&mut *list.expr).chain(&mut list.list);
            let changed = meet(parts, schema)?;
            Ok(Transformed::new_transformed(Expr::InList(list), changed))
        }
        Expr::Case(mut case) => {
            let mut changed = false;
            if let Some(tested) = &mut case.expr {
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
                changed |= meet(std::iter::once(&mut **tested).chain(whens), schema)?;
            }
            let thens = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            changed |= meet(thens.chain(case.else_expr.as_deref_mut()), schema)?;
            Ok(Transformed::new_transformed(Expr::Case(case), changed))
        }
        Expr::ScalarFunction(mut call) if OF_ONE_TYPE.contains(&call.func.name()) => {
            let changed = meet(&mut call.args, schema)?;
            Ok(Transformed::new_transformed(Expr::ScalarFunction(call), changed))
        }
        Expr::AggregateFunction(mut call) if call.func.name() == "median" => {
            let mut changed = false;
            for arg in &mut call.params.args {
                if is_exact(&arg.get_type(schema)?) {
                    *arg = cast(arg.clone(), DataType::Float64);
                    changed = true;
                }
            }
            Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn rewrite_binary(binary: BinaryExpr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let BinaryExpr { mut left, op, mut right } = binary;
    let types = match (left.get_type(schema), right.get_type(schema)) {
        (Ok(left), Ok(right)) => [left, right],
        _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
    };
    let divides = op == Operator::Divide
        && types.iter().any(DataType::is_decimal)
        && types.iter().all(DataType::is_numeric);
    let changed = divides || is_numeric(op) && mixes(&types);
    if changed {
        let [left_type, right_type] = types;
        left = Box::new(to_float(*left, &left_type));
        right = Box::new(to_float(*right, &right_type));
    }
    Ok(Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed))
}

/// True of comparisons and of arithmetic.
fn is_numeric(op: Operator) -> bool {
    use Operator::{
        Divide, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, Minus, Modulo, Multiply,
        NotEq, Plus,
    };
    let compares =
        matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom);
    compares || matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

/// Makes expressions floating point numbers if there are both such and decimals among them.
fn meet<'a>(exprs: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> DfResult<bool> {
    let exprs: Vec<&mut Expr> = exprs.into_iter().collect();
    let types: Vec<DataType> =
        exprs.iter().map(|expr| expr.get_type(schema)).collect::<DfResult<_>>()?;
    if !mixes(&types) {
        return Ok(false);
    }
    for (expr, data_type) in exprs.into_iter().zip(&types) {
        *expr = to_float(std::mem::take(expr), data_type);
    }
    Ok(true)
}

fn mixes(types: &[DataType]) -> bool {
    types.iter().any(DataType::is_floating) && types.iter().any(DataType::is_decimal)
}

fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

/// An integer or a decimal as a floating point number, one that is written out as the nearest one.
fn to_float(expr: Expr, data_type: &DataType) -> Expr {
    if !is_exact(data_type) {
        return expr;
    }
    let text = match &expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), _) => {
            Decimal128Type::format_decimal(*value, *precision, *scale)
        }
        Expr::Literal(ScalarValue::Decimal256(Some(value), precision, scale), _) => {
            Decimal256Type::format_decimal(*value, *precision, *scale)
        }
        _ => return cast(expr, DataType::Float64),
    };
    match text.parse::<f64>() {
        Ok(value) => Expr::Literal(ScalarValue::Float64(Some(value)), None),
        Err(_) => cast(expr, DataType::Float64),
    }
}

/// Makes the columns of a union that mix both kinds floating point numbers in all its queries.
fn align(union: Union) -> DfResult<Transformed<LogicalPlan>> {
    let width = union.schema.fields().len();
    let types = |column: usize| -> Vec<DataType> {
        let field = |input: &Arc<LogicalPlan>| input.schema().field(column).data_type().clone();
        union.inputs.iter().map(field).collect()
    };
    let same_width = union.inputs.iter().all(|input| input.schema().fields().len() == width);
    let mixed: Vec<bool> = (0..width).map(|column| same_width && mixes(&types(column))).collect();
    if !mixed.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union.inputs.into_iter().map(|input| {
        let columns = input.schema().columns().into_iter().enumerate().map(|(at, column)| {
            let expr = Expr::Column(column.clone());
            match mixed[at] && is_exact(input.schema().field(at).data_type()) {
                true => cast(expr, DataType::Float64)
                    .alias_qualified(column.relation.clone(), column.name.clone()),
                false => expr,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    });
    let inputs = inputs.collect::<DfResult<Vec<_>>>()?;
    let union = retype(Union { inputs, schema: union.schema })?;
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}
