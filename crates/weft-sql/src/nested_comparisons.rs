//! `<`, `<=`, `>` and `>=` of lists and structs: an element or field that is NULL is greater than any other and equal to another one, as
//! ORDER BY has it. DataFusion takes it for less.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::types::type_name;

/// Compares lists and structs by their order.
///
/// # Errors
/// None that are known of.
pub(crate) fn ordered(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return Ok(Transformed::no(expr));
    };
    let is_nested = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| has_parts(&of));
    match Order::of(op) {
        Some(order) if is_nested(&left) && is_nested(&right) => {
            let signature = Signature::user_defined(Volatility::Immutable);
            let function = ScalarUDF::from(NestedOrder { order, signature });
            Ok(Transformed::yes(function.call(vec![*left, *right])))
        }
        _ => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
    }
}

/// As [`ordered`], of what an expression was put as.
///
/// # Errors
/// None that are known of.
pub(crate) fn ordered_within(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    expr.transform(|inner| ordered(inner, schema))
}

/// True of types whose values have parts that are compared one after the other.
fn has_parts(data_type: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Struct};
    matches!(data_type, List(_) | LargeList(_) | FixedSizeList(..) | Struct(_))
}

/// What is asked of the order of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn of(op: Operator) -> Option<Order> {
        match op {
            Operator::Lt => Some(Order::Less),
            Operator::LtEq => Some(Order::LessOrEqual),
            Operator::Gt => Some(Order::Greater),
            Operator::GtEq => Some(Order::GreaterOrEqual),
            _ => None,
        }
    }

    fn holds(self, found: Ordering) -> bool {
        match self {
            Order::Less => found.is_lt(),
            Order::LessOrEqual => found.is_le(),
            Order::Greater => found.is_gt(),
            Order::GreaterOrEqual => found.is_ge(),
        }
    }
}

/// A comparison of values with parts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NestedOrder {
    order: Order,
    signature: Signature,
}

impl ScalarUDFImpl for NestedOrder {
    fn name(&self) -> &str {
        match self.order {
            Order::Less => "is_less",
            Order::LessOrEqual => "is_less_or_equal",
            Order::Greater => "is_greater",
            Order::GreaterOrEqual => "is_greater_or_equal",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let [left, right] = types else { return internal_err!("a comparison has two sides") };
        match comparison_coercion(left, right) {
            Some(common) => Ok(vec![common; 2]),
            None => {
                plan_err!("a {} cannot be compared with a {}", type_name(left), type_name(right))
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = &arrays[..] else {
            return internal_err!("a comparison has two sides");
        };
        let order = SortOptions { descending: false, nulls_first: false };
        let compare = make_comparator(left, right, order)?;
        let found: BooleanArray = (0..left.len())
            .map(|row| {
                let is_known = !left.is_null(row) && !right.is_null(row);
                is_known.then(|| self.order.holds(compare(row, row)))
            })
            .collect();
        let found: ArrayRef = Arc::new(found);
        match is_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
            false => Ok(ColumnarValue::Array(found)),
        }
    }
}
