//! What is changed in a statement, or refused, before DataFusion plans it: where DataFusion means
//! something else than SQL does, or does not cope.
//!
//! - Numbers with more digits than a floating point number keeps are decimals. (Those with fewer are
//!   floating point numbers: DataFusion would compare a column of doubles with a decimal as decimals,
//!   which large doubles do not fit.) So are numbers that are cast to one.
//! - Items of a select list that DataFusion would give the same name, or one that ORDER BY may mean, get
//!   names.
//! - SEMI JOIN and ANTI JOIN are those of the left side.
//! - `= ANY (query)` is IN, `<> ALL (query)` is NOT IN; the other quantified comparisons are refused, and
//!   so are INTERSECT ALL and EXCEPT ALL, which DataFusion would answer wrongly.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Ident, JoinOperator, Query, Select,
    SelectItem, SetExpr, SetOperator, SetQuantifier, UnaryOperator, Value, VisitMut, VisitorMut,
};

use crate::error::{Result, SqlError};
use crate::names::{name_columns, name_columns_of};

/// Prepares a statement for planning.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) for what would be answered wrongly.
pub(crate) fn statement(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => {
            name_columns_of(statement);
            finish(statement.visit(&mut Rewriter))
        }
        DfStatement::Explain(explain) => self::statement(&mut explain.statement),
        DfStatement::CreateExternalTable(_) | DfStatement::CopyTo(_) | DfStatement::Reset(_) => {
            Ok(())
        }
    }
}

/// Prepares a query for planning.
///
/// # Errors
/// As [`statement`].
pub(crate) fn query(query: &mut Query) -> Result<()> {
    name_columns(query);
    finish(query.visit(&mut Rewriter))
}

fn finish(flow: ControlFlow<SqlError>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Decimal digits that every floating point number of 64 bits keeps.
const FLOAT_DIGITS: usize = 15;

/// Most digits of a decimal.
const DECIMAL_DIGITS_MAX: usize = 38;

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let (Some(_), SetExpr::Select(select)) = (&query.order_by, &mut *query.body) {
            name_casts(&mut select.projection);
        }
        check_set_operations(&query.body)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        name_apart(&mut select.projection);
        for join in select.from.iter_mut().flat_map(|table| &mut table.joins) {
            let operator = match &join.join_operator {
                JoinOperator::Semi(on) => JoinOperator::LeftSemi(on.clone()),
                JoinOperator::Anti(on) => JoinOperator::LeftAnti(on.clone()),
                _ => continue,
            };
            join.join_operator = operator;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Value(value) = expr
            && let Value::Number(digits, _) = &value.value
            && let Some(data_type) = exact_type(digits)
        {
            let text = Value::SingleQuotedString(digits.clone());
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Value(text.with_span(value.span))),
                data_type: DataType::Decimal(data_type),
                array: false,
                format: None,
            };
        }
        if let Expr::Cast {
            expr: inner,
            data_type: DataType::Decimal(_) | DataType::Numeric(_),
            ..
        } = expr
            && let Some(number) = number_of(inner)
        {
            **inner = Expr::Value(Value::SingleQuotedString(number).into());
        }
        quantified(expr)
    }
}

/// The decimal type of a number that a floating point number or a 64-bit integer would not keep.
fn exact_type(number: &str) -> Option<ExactNumberInfo> {
    if number.contains(['e', 'E']) || number.parse::<u64>().is_ok() {
        return None;
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let significant = whole.trim_start_matches('0').len() + fraction.len();
    let precision = significant.max(1);
    let is_exact = significant > FLOAT_DIGITS && precision <= DECIMAL_DIGITS_MAX;
    is_exact.then_some(ExactNumberInfo::PrecisionAndScale(precision as u64, fraction.len() as i64))
}

/// A number as it was written, with its sign.
fn number_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number_of(expr)
            .filter(|number| !number.starts_with('-'))
            .map(|number| format!("-{number}")),
        _ => None,
    }
}

/// Turns a comparison with ANY or ALL rows of a query into IN or NOT IN, or refuses it.
fn quantified(expr: &mut Expr) -> ControlFlow<SqlError> {
    let (left, op, right, is_all) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, true),
        _ => return ControlFlow::Continue(()),
    };
    let Expr::Subquery(subquery) = &**right else { return ControlFlow::Continue(()) };
    let negated = match (&*op, is_all) {
        (BinaryOperator::Eq, false) => false,
        (BinaryOperator::NotEq, true) => true,
        (op, is_all) => {
            let quantifier = if is_all { "ALL" } else { "ANY" };
            let error = SqlError::not_supported(format!("{op} {quantifier} (query)"));
            return ControlFlow::Break(error.with_hint(
                "compare with the query's min or max, or write EXISTS with the comparison inside",
            ));
        }
    };
    *expr = Expr::InSubquery { expr: left.clone(), subquery: subquery.clone(), negated };
    ControlFlow::Continue(())
}

/// Refuses INTERSECT ALL and EXCEPT ALL.
fn check_set_operations(body: &SetExpr) -> ControlFlow<SqlError> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else {
        return ControlFlow::Continue(());
    };
    let is_all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    if is_all && !matches!(op, SetOperator::Union) {
        let error = SqlError::not_supported(format!("{op} ALL"));
        return ControlFlow::Break(error.with_hint(format!("{op} without ALL works")));
    }
    check_set_operations(left)?;
    check_set_operations(right)
}

/// Gives names to casts: DataFusion would give them the name of what is cast, which ORDER BY may mean.
fn name_casts(items: &mut [SelectItem]) {
    for item in items {
        if let SelectItem::UnnamedExpr(expr @ (Expr::Cast { .. } | Expr::Nested(_))) = item {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Gives names to items that would get the name of an earlier one.
fn name_apart(items: &mut [SelectItem]) {
    let mut names = HashSet::new();
    for item in items.iter_mut() {
        let (name, expr) = match item {
            SelectItem::UnnamedExpr(expr) => (name_of(expr), Some(expr)),
            SelectItem::ExprWithAlias { alias, .. } => (alias.value.clone(), None),
            _ => continue,
        };
        if names.insert(name) {
            continue;
        }
        if let Some(expr) = expr {
            let text = expr.to_string();
            let mut numbered = (1..).map(|number| format!("{text}_{number}"));
            let free = numbered.find(|name| names.insert(name.clone()));
            let alias = Ident::with_quote('"', free.expect("there is a free name"));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// A name that two expressions share if DataFusion gives them the same one: casts and parentheses do
/// not show in its names, nor do subqueries.
fn name_of(expr: &Expr) -> String {
    let mut expr = expr.clone();
    // The visitor below never breaks.
    let _ = expr.visit(&mut Plain);
    expr.to_string().chars().filter(|char| !matches!(char, '(' | ')')).collect()
}

struct Plain;

impl VisitorMut for Plain {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => *expr = (**inner).clone(),
            Expr::Subquery(_) => *expr = Expr::Identifier(Ident::new("subquery")),
            Expr::Identifier(name) if name.quote_style.is_none() => {
                name.value = name.value.to_lowercase();
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
