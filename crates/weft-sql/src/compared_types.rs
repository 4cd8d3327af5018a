//! Comparisons of values of different types that DataFusion refuses, or compares as another type than SQL does: a timestamp
//! with a text as nanoseconds, which end in the year 2262, times of two precisions and a truth value with a text not at all.
//! BETWEEN is put as two comparisons, but if its value differs each time that it is computed: then as a function of it.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::and_kleene;
use datafusion::arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    Between, BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, binary_expr, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::types::type_name;
use crate::uuids::{self, compared_subquery};

/// Gives both sides of a comparison a type in which they are compared.
///
/// # Errors
/// None that are known of.
pub(crate) fn compared(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (left, right, changed) = all_paired(*left, *right, schema);
            let (left, right) = (Box::new(left), Box::new(right));
            let comparison = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Transformed::new_transformed(comparison, changed)
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (value, low, high) = (*expr, *low, *high);
            let between = if value.is_volatile() {
                between().call(vec![value, low, high])
            } else {
                let (value_low, low, _) = all_paired(value.clone(), low, schema);
                let (value_high, high, _) = all_paired(value, high, schema);
                value_low.gt_eq(low).and(value_high.lt_eq(high))
            };
            Transformed::yes(if negated { Expr::Not(Box::new(between)) } else { between })
        }
        Expr::InList(InList { expr, list, negated }) => {
            let mut changed = false;
            let pair = |item| {
                let (_, item, is_changed) = all_paired(expr.as_ref().clone(), item, schema);
                changed |= is_changed;
                item
            };
            let list = list.into_iter().map(pair).collect();
            Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), changed)
        }
        Expr::InSubquery(compared) => compared_subquery(compared, schema)?
            .map_data(|compared| Ok(Expr::InSubquery(compared)))?,
        other => Transformed::no(other),
    })
}

/// As [`paired`], also with UUIDs on both sides where they are on one.
fn all_paired(left: Expr, right: Expr, schema: &DFSchema) -> (Expr, Expr, bool) {
    let (left, right, changed) = uuids::paired(left, right, schema);
    match changed {
        true => (left, right, true),
        false => paired(left, right, schema),
    }
}

/// Brings the sides of comparisons together that have no type before they are.
#[derive(Debug)]
pub(crate) struct ComparedTypes;

impl ExprPlanner for ComparedTypes {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DfResult<PlannerResult<RawBinaryExpr>> {
        let op = match expr.op {
            BinaryOperator::Eq => Operator::Eq,
            BinaryOperator::NotEq => Operator::NotEq,
            BinaryOperator::Lt => Operator::Lt,
            BinaryOperator::LtEq => Operator::LtEq,
            BinaryOperator::Gt => Operator::Gt,
            BinaryOperator::GtEq => Operator::GtEq,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let RawBinaryExpr { left, right, .. } = expr;
        let (left, right, changed) = paired(left, right, schema);
        Ok(match changed {
            true => PlannerResult::Planned(binary_expr(left, op, right)),
            false => PlannerResult::Original(RawBinaryExpr { op: expr.op, left, right }),
        })
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Both sides of a comparison, cast where need be, and whether one was.
fn paired(left: Expr, right: Expr, schema: &DFSchema) -> (Expr, Expr, bool) {
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return (left, right, false);
    };
    if let Some(to) = read_as(&left_type, &right_type) {
        return (left, cast(right, to), true);
    }
    if let Some(to) = read_as(&right_type, &left_type) {
        return (cast(left, to), right, true);
    }
    match (&left_type, &right_type) {
        (DataType::Time64(a) | DataType::Time32(a), DataType::Time64(b) | DataType::Time32(b))
            if a != b =>
        {
            let finest = DataType::Time64(TimeUnit::Nanosecond);
            (cast(left, finest.clone()), cast(right, finest), true)
        }
        _ => (left, right, false),
    }
}

/// The type as which a text is read that is compared with a value of this type.
fn read_as(data_type: &DataType, other: &DataType) -> Option<DataType> {
    if !other.is_string() {
        return None;
    }
    match data_type {
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        DataType::Timestamp(..) | DataType::Boolean => Some(data_type.clone()),
        _ => None,
    }
}

fn between() -> ScalarUDF {
    ScalarUDF::from(BetweenOnce { signature: Signature::user_defined(Volatility::Immutable) })
}

/// `value BETWEEN low AND high` of a value that is computed once.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BetweenOnce {
    signature: Signature,
}

impl ScalarUDFImpl for BetweenOnce {
    fn name(&self) -> &str {
        "between"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let [value, low, high] = types else { return internal_err!("BETWEEN has two bounds") };
        let coerced =
            comparison_coercion(value, low).and_then(|common| comparison_coercion(&common, high));
        match coerced {
            Some(common) => Ok(vec![common; 3]),
            None => plan_err!(
                "a {} cannot be BETWEEN {} and {}",
                type_name(value),
                type_name(low),
                type_name(high)
            ),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [value, low, high] = &arrays[..] else {
            return internal_err!("BETWEEN has two bounds");
        };
        let found: ArrayRef = Arc::new(and_kleene(&gt_eq(value, low)?, &lt_eq(value, high)?)?);
        match is_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::from(
                found.as_boolean().iter().next().flatten(),
            ))),
            false => Ok(ColumnarValue::Array(found)),
        }
    }
}
