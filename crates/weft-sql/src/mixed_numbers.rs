//! Where values of different kinds meet: DataFusion means something else than SQL does, or fails.
//!
//! - A floating point number and a decimal meet as floating point numbers. DataFusion compares them as
//!   decimals, which large numbers do not fit. So do integers of 64 bits without a sign, which are decimals beside others.
//! - A date and a timestamp meet as timestamps of that precision. DataFusion takes nanoseconds, which have no dates before 1677
//!   or after 2262.
//! - Decimals are divided as floating point numbers: DataFusion keeps only four digits more than the
//!   dividend has.
//! - The median of integers may lie between two of them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Subquery, Union, Values,
    cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{recompute_all, retype, rewrite_expressions};

/// Functions whose arguments have one type.
const OF_ONE_TYPE: [&str; 6] = ["coalesce", "greatest", "least", "make_array", "nullif", "nvl"];

/// Casts the numbers. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct MixedNumbers;

impl AnalyzerRule for MixedNumbers {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Values(values) => meet_in_rows(values),
            other => Ok(Transformed::no(other)),
        })?;
        // The types of rows are those of all that is above them.
        let plan = match plan.transformed {
            true => recompute_all(plan.data)?,
            false => plan.data,
        };
        let plan = rewrite_expressions(plan, rewrite)?;
        let plan = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Union(union) => align(union),
            LogicalPlan::Join(mut join) => {
                let (left, right) = (Arc::clone(&join.left), Arc::clone(&join.right));
                let mut changed = false;
                for (one, other) in &mut join.on {
                    let types = [one.get_type(left.schema())?, other.get_type(right.schema())?];
                    if let Some(met) = meeting(&types) {
                        *one = meet_as(one.clone(), &types[0], &met);
                        *other = meet_as(other.clone(), &types[1], &met);
                        changed = true;
                    }
                }
                Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
            }
            other => Ok(Transformed::no(other)),
        })?;
        match plan.transformed {
            true => recompute_all(plan.data),
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
        Expr::InSubquery(mut list) => {
            let changed = meet_rows(&mut list.expr, &mut list.subquery, schema)?;
            Ok(Transformed::new_transformed(Expr::InSubquery(list), changed))
        }
        Expr::SetComparison(mut comparison) => {
            let changed = meet_rows(&mut comparison.expr, &mut comparison.subquery, schema)?;
            Ok(Transformed::new_transformed(Expr::SetComparison(comparison), changed))
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
    let met = if divides { Some(DataType::Float64) } else { meeting(&types) };
    let met = met.filter(|_| divides || is_numeric(op));
    if let Some(met) = &met {
        let [left_type, right_type] = types;
        left = Box::new(meet_as(*left, &left_type, met));
        right = Box::new(meet_as(*right, &right_type, met));
    }
    let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
    Ok(Transformed::new_transformed(expr, met.is_some()))
}

/// Makes a value and the rows of a subquery that it is compared with meet.
fn meet_rows(expr: &mut Expr, subquery: &mut Subquery, schema: &DFSchema) -> DfResult<bool> {
    let rows = &subquery.subquery;
    let Some(column) = rows.schema().columns().into_iter().next() else { return Ok(false) };
    let types = [expr.get_type(schema)?, rows.schema().field(0).data_type().clone()];
    let Some(met) = meeting(&types) else { return Ok(false) };
    *expr = meet_as(std::mem::take(expr), &types[0], &met);
    let row = meet_as(Expr::Column(column.clone()), &types[1], &met);
    let row = row.alias_qualified(column.relation, column.name);
    let rows = Projection::try_new(vec![row], Arc::clone(rows))?;
    subquery.subquery = Arc::new(LogicalPlan::Projection(rows));
    Ok(true)
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

/// Makes expressions meet if they are of different kinds.
fn meet<'a>(exprs: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> DfResult<bool> {
    let exprs: Vec<&mut Expr> = exprs.into_iter().collect();
    let types: Vec<DataType> =
        exprs.iter().map(|expr| expr.get_type(schema)).collect::<DfResult<_>>()?;
    let Some(met) = meeting(&types) else { return Ok(false) };
    for (expr, data_type) in exprs.into_iter().zip(&types) {
        *expr = meet_as(std::mem::take(expr), data_type, &met);
    }
    Ok(true)
}

/// The type that values of different kinds meet as; `None` if that is DataFusion's business.
fn meeting(types: &[DataType]) -> Option<DataType> {
    let any = |is: fn(&DataType) -> bool| types.iter().any(is);
    let is_date = |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Date64);
    let is_wide = |data_type: &DataType| data_type.is_decimal() || *data_type == DataType::UInt64;
    if any(DataType::is_floating) && types.iter().any(is_wide) {
        return Some(DataType::Float64);
    }
    let timestamps =
        || types.iter().filter(|data_type| matches!(data_type, DataType::Timestamp(..)));
    let first = types.iter().any(is_date).then(|| timestamps().next())??;
    timestamps().all(|other| other == first).then(|| first.clone())
}

/// A value as what it meets others as.
fn meet_as(expr: Expr, data_type: &DataType, met: &DataType) -> Expr {
    match (met, data_type) {
        (DataType::Float64, _) => to_float(expr, data_type),
        (met, DataType::Date32 | DataType::Date64) => cast(expr, met.clone()),
        _ => expr,
    }
}

fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

/// An integer or a decimal as a floating point number, one that is written out as the nearest one.
pub(crate) fn to_float(expr: Expr, data_type: &DataType) -> Expr {
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

/// Makes the columns of a list of rows that mix both kinds floating point numbers. DataFusion has cast
/// them to decimals.
fn meet_in_rows(values: Values) -> DfResult<Transformed<LogicalPlan>> {
    let Values { schema, values: mut rows } = values;
    let no_columns = DFSchema::empty();
    let is_cast_float = |expr: &Expr| match expr {
        Expr::Cast(cast) => {
            cast.expr.get_type(&no_columns).is_ok_and(|data_type| data_type.is_floating())
        }
        _ => false,
    };
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut any_mixed = false;
    for (column, (table, field)) in schema.iter().enumerate() {
        let floats = rows.iter().filter(|row| is_cast_float(&row[column])).count();
        let is_mixed = field.data_type().is_decimal() && floats > 0 && floats < rows.len();
        let data_type = if is_mixed { DataType::Float64 } else { field.data_type().clone() };
        let field = field.as_ref().clone().with_data_type(data_type);
        fields.push((table.cloned(), Arc::new(field)));
        if !is_mixed {
            continue;
        }
        any_mixed = true;
        for row in &mut rows {
            let value = match std::mem::take(&mut row[column]) {
                Expr::Cast(cast) => *cast.expr,
                value => value,
            };
            row[column] = match value.get_type(&no_columns)? {
                DataType::Float64 => value,
                data_type if is_exact(&data_type) => to_float(value, &data_type),
                _ => cast(value, DataType::Float64),
            };
        }
    }
    let schema = match any_mixed {
        true => Arc::new(DFSchema::new_with_metadata(fields, schema.metadata().clone())?),
        false => schema,
    };
    let values = LogicalPlan::Values(Values { schema, values: rows });
    Ok(Transformed::new_transformed(values, any_mixed))
}

/// Makes the columns of a union that mix kinds meet in all its queries.
fn align(union: Union) -> DfResult<Transformed<LogicalPlan>> {
    let width = union.schema.fields().len();
    let types = |column: usize| -> Vec<DataType> {
        let field = |input: &Arc<LogicalPlan>| input.schema().field(column).data_type().clone();
        union.inputs.iter().map(field).collect()
    };
    let same_width = union.inputs.iter().all(|input| input.schema().fields().len() == width);
    if !same_width {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let met: Vec<Option<DataType>> = (0..width).map(|column| meeting(&types(column))).collect();
    if met.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union.inputs.into_iter().map(|input| {
        let columns = input.schema().columns().into_iter().enumerate().map(|(at, column)| {
            let (expr, data_type) =
                (Expr::Column(column.clone()), input.schema().field(at).data_type());
            match &met[at] {
                Some(met) if met != data_type => meet_as(expr, data_type, met)
                    .alias_qualified(column.relation.clone(), column.name.clone()),
                _ => expr,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    });
    let inputs = inputs.collect::<DfResult<Vec<_>>>()?;
    let union = retype(Union { inputs, schema: union.schema })?;
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}
