//! `INTERVAL (x) DAY`: intervals of a number that is computed, as a product. Of days, months and all that is longer than a second, whole
//! numbers count.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, DateTimeField, ExactNumberInfo, Expr, Interval, Value,
};

use crate::functions::call;

/// Makes a product of an interval whose number is no literal.
pub(crate) fn rewrite(expr: &mut Expr) {
    let Expr::Interval(interval) = expr else { return };
    let Interval { value, leading_field: Some(field), last_field: None, .. } = interval else {
        return;
    };
    if matches!(**value, Expr::Value(_)) || is_signed_literal(value) {
        return;
    }
    let as_type = |expr: Expr, data_type: DataType| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    };
    let number = as_type((**value).clone(), DataType::Double(ExactNumberInfo::None));
    let number = match field {
        DateTimeField::Second | DateTimeField::Seconds => number,
        _ => as_type(call("trunc", [number]), DataType::BigInt(None)),
    };
    let one = Interval {
        value: Box::new(Expr::Value(Value::SingleQuotedString("1".to_owned()).into())),
        leading_field: Some(field.clone()),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    };
    *expr = Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(number),
        op: BinaryOperator::Multiply,
        right: Box::new(Expr::Interval(one)),
    }));
}

/// True of a number with a sign.
fn is_signed_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::UnaryOp { expr, .. } if matches!(**expr, Expr::Value(_)))
}
