//! Comparisons of values and rows with the rows of a query.
//!
//! - `= ANY (query)` is IN, `<> ALL (query)` is NOT IN; other comparisons with ANY or ALL rows of a query
//!   ask whether there are rows for which they are true, false or unknown. So does `(a, b) IN (query)`.
//! - `(a, b) = (query)` is compared in a query over that one, which stands for a value: without a row it is NULL.
//!
//! Where unknown is as good as false, `subqueries/attach.rs` asks for the first of these only.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SelectItem, SetExpr, UnaryOperator,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::comparisons::{compare, row};
use crate::error::{ErrorKind, SqlError, internal};
use crate::text::DIALECT;

/// Replaces a comparison with the rows of a query by one that is understood.
///
/// # Errors
/// [`ErrorKind::Semantic`] if a row and the query have different numbers of columns, as far as that can be seen.
pub(crate) fn rewrite(expr: &mut Expr) -> ControlFlow<SqlError> {
    let replaced = match &*expr {
        Expr::AnyOp { left, compare_op, right, .. } => quantified(left, compare_op, right, false)?,
        Expr::AllOp { left, compare_op, right } => quantified(left, compare_op, right, true)?,
        Expr::InSubquery { expr: value, subquery, negated } => {
            let Some(columns) = row(value) else { return ControlFlow::Continue(()) };
            let found = among(columns, subquery)?;
            Some(match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) },
                false => found,
            })
        }
        Expr::BinaryOp { left, op, right } => match (&**left, &**right) {
            (Expr::Tuple(columns), Expr::Subquery(query)) => Some(with_one(columns, op, query)?),
            (Expr::Subquery(query), Expr::Tuple(columns)) => match turned(op) {
                Some(op) => Some(with_one(columns, &op, query)?),
                None => None,
            },
            _ => None,
        },
        _ => None,
    };
    if let Some(replaced) = replaced {
        *expr = replaced;
    }
    ControlFlow::Continue(())
}

/// A comparison with ANY or ALL rows of a query; nothing if it is one with the elements of a list.
fn quantified(
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    is_all: bool,
) -> ControlFlow<SqlError, Option<Expr>> {
    let Expr::Subquery(query) = right else { return ControlFlow::Continue(None) };
    let negated = match (op, is_all) {
        (BinaryOperator::Eq, false) => Some(false),
        (BinaryOperator::NotEq, true) => Some(true),
        _ => None,
    };
    if let Some(negated) = negated {
        let value = Box::new(left.clone());
        let mut within = Expr::InSubquery { expr: value, subquery: query.clone(), negated };
        rewrite(&mut within)?;
        return ControlFlow::Continue(Some(within));
    }
    let (rows, compared) = match row(left) {
        Some(columns) => {
            let rows = Rows::new(columns, query)?;
            let compared = rows.compared(op)?;
            (rows, compared)
        }
        None => {
            let rows = Rows::new(std::slice::from_ref(left), query)?;
            let compared = format!("(({left}) {op} {})", column(0));
            (rows, compared)
        }
    };
    let (decisive, result, otherwise) = match is_all {
        true => (rows.exist(&format!("NOT {compared}")), "false", "true"),
        false => (rows.exist(&compared), "true", "false"),
    };
    let unknown = rows.exist(&format!("{compared} IS NULL"));
    let sql = format!(
        "(CASE WHEN {decisive} THEN {result} WHEN {unknown} THEN NULL ELSE {otherwise} END)"
    );
    ControlFlow::Continue(Some(parse(&sql)?))
}

/// Whether a row is among those of a query: unknown without an equal one, if one may be equal but for NULL.
fn among(columns: &[Expr], query: &Query) -> ControlFlow<SqlError, Expr> {
    let rows = Rows::new(columns, query)?;
    let equal = rows.compared(&BinaryOperator::Eq)?;
    let any_null = |terms: Vec<String>| {
        let terms: Vec<String> = terms.iter().map(|term| format!("{term} IS NULL")).collect();
        format!("({})", terms.join(" OR "))
    };
    // There are few rows with NULL on either side, and no other has to be compared with all.
    let null_here = any_null(columns.iter().map(|column| format!("({column})")).collect());
    let null_there = any_null((0..columns.len()).map(column).collect());
    let found = rows.exist(&equal);
    let unknown = rows.exist(&format!("{null_there} AND {equal} IS NULL"));
    let any_row = format!("{ANY_ROW}({})", column(0));
    let unknown_here = rows.exist(&format!("{null_here} = {any_row} AND {equal} IS NULL"));
    parse(&format!(
        "(CASE WHEN {found} THEN true WHEN {unknown} THEN NULL WHEN {unknown_here} THEN NULL ELSE false END)"
    ))
}

/// Compares a row with the one of a query.
fn with_one(columns: &[Expr], op: &BinaryOperator, query: &Query) -> ControlFlow<SqlError, Expr> {
    let rows = Rows::new(columns, query)?;
    let compared = rows.compared(op)?;
    parse(&format!("(SELECT {compared} FROM {})", rows.from))
}

/// The operator for the other order of operands; nothing for one that does not compare.
fn turned(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    Some(match op {
        Eq | NotEq => op.clone(),
        Lt => Gt,
        Gt => Lt,
        LtEq => GtEq,
        GtEq => LtEq,
        _ => return None,
    })
}

/// The rows of a query beside the columns of one that they are compared with.
struct Rows<'a> {
    columns: &'a [Expr],
    /// The query as a table whose columns are called by [`column`].
    from: String,
}

impl Rows<'_> {
    fn new<'a>(columns: &'a [Expr], query: &Query) -> ControlFlow<SqlError, Rows<'a>> {
        let (wanted, given) = (columns.len(), width(&query.body));
        if let Some(given) = given.filter(|given| *given != wanted) {
            let problem = match wanted {
                1 => format!("a value cannot be compared with a query of {given} columns"),
                _ => {
                    format!("a row of {wanted} columns cannot be compared with a query of {given}")
                }
            };
            return ControlFlow::Break(SqlError::new(ErrorKind::Semantic, problem));
        }
        let names: Vec<String> = (0..wanted).map(column).collect();
        let from = format!("({query}) AS __rows({})", names.join(", "));
        ControlFlow::Continue(Rows { columns, from })
    }

    /// The comparison with a row of the query.
    fn compared(&self, op: &BinaryOperator) -> ControlFlow<SqlError, String> {
        let names = (0..self.columns.len()).map(|at| Expr::Identifier(Ident::new(column(at))));
        let names: Vec<Expr> = names.collect();
        ControlFlow::Continue(compare(self.columns, op, &names)?.to_string())
    }

    /// Whether the query has rows for which this is true.
    fn exist(&self, condition: &str) -> String {
        format!("EXISTS (SELECT 1 FROM {} WHERE {condition})", self.from)
    }
}

/// The name of a column of a query's rows.
fn column(at: usize) -> String {
    format!("__row_{at}")
}

/// How many columns a query has, if its text tells.
fn width(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::Query(query) => width(&query.body),
        SetExpr::SetOperation { left, .. } => width(left),
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}

fn parse(sql: &str) -> ControlFlow<SqlError, Expr> {
    match Parser::new(&DIALECT).try_with_sql(sql).and_then(|mut parser| parser.parse_expr()) {
        Ok(parsed) => ControlFlow::Continue(parsed),
        Err(error) => ControlFlow::Break(internal(&error.to_string())),
    }
}

/// The name of the function that is true of any value.
const ANY_ROW: &str = "any_row";

/// The function: true, which nobody knows before it is computed. So a condition on one side of a join is a key, and
/// rows that do not meet it meet no other; a mere condition would be tested for all pairs of rows.
pub(crate) fn any_row() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(AnyRow { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AnyRow {
    signature: Signature,
}

impl ScalarUDFImpl for AnyRow {
    fn name(&self) -> &str {
        ANY_ROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let all = BooleanArray::from(vec![true; args.number_rows]);
        Ok(ColumnarValue::Array(Arc::new(all)))
    }
}
