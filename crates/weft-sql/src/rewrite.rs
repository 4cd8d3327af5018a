//! What is changed in a statement, or refused, before DataFusion plans it: where DataFusion means
//! something else than SQL does, or does not cope.
//!
//! - Numbers with an exponent are floating point numbers, unless they are cast to decimals; DataFusion
//!   is told to take all others as decimals.
//! - Functions that other databases have are put in terms of those that DataFusion has.
//! - Items of a select list that DataFusion would give the same name, or one that ORDER BY may mean, get
//!   names (`same_names.rs`).
//! - ROLLUP, CUBE and GROUPING SETS are put as grouping sets where DataFusion refuses them (`groupings.rs`).
//! - Windows that are based on others are written out (`named_windows.rs`).
//! - Functions that look at no frame forget what it leaves out (`exclusions.rs`).
//! - Numbers that the rows of an aggregate are ordered by are left out (`constant_orders.rs`).
//! - Lists over windows have FILTER in terms of lists of one (`filtered_lists.rs`).
//! - IGNORE NULLS behind an argument that is a call is the outer function's (`null_treatments.rs`).
//! - SEMI JOIN and ANTI JOIN are those of the left side. Joins that lack their condition are refused (`join_conditions.rs`).
//! - ASOF and POSITIONAL joins get marks (`forms/joins`).
//! - VALUES with subqueries are queries (`forms/value_rows.rs`), those with JSON, UUIDs or enumerations have them in all rows (`value_kinds.rs`).
//! - Forms of PostgreSQL's clients are put in terms of others (`postgres/syntax.rs`).
//! - TABLESAMPLE is a condition (`forms/samples`).
//! - Intervals of a number that is computed are products (`forms/intervals.rs`), and functions in FROM get names (`forms/unnests.rs`).
//! - What is nested too deep is refused (`depth.rs`).
//! - What is compared by IS DISTINCT FROM ends where AND or OR begins (`distinctness.rs`).
//! - `json_each` and `json_tree` in FROM are UNNEST of lists (`json/each.rs`).
//! - COLLATE is a function of what is compared (`collations.rs`).
//! - Comparisons are `comparisons.rs`' and `query_comparisons.rs`' business, patterns `patterns.rs`', powers `powers.rs`', functions `functions.rs`'. Joins with
//!   USING and NATURAL wait for the catalog (`using_joins.rs`).

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, DateTimeField, ExactNumberInfo, Expr, Ident,
    JoinOperator, Query, Select, SelectItem, SetExpr, Subscript, TableFactor, UnaryOperator, Value,
    VisitMut, VisitorMut,
};

use crate::at_time_zone;
use crate::cast_arguments;
use crate::collations;
use crate::comparisons;
use crate::constant_orders;
use crate::cte_names::CteNames;
use crate::depth::{Depth, check_queries};
use crate::distinctness;
use crate::error::{Result, SqlError};
use crate::exclusions;
use crate::filtered_lists;
use crate::forms::{intervals, joins, samples, unnests, value_rows};
use crate::functions::{self, call};
use crate::groupings;
use crate::join_conditions;
use crate::json::each;
use crate::named_windows;
use crate::names::{name_columns, name_columns_of};
use crate::null_treatments;
use crate::patterns;
use crate::postgres::Forms;
use crate::powers;
use crate::row_counts;
use crate::same_names::{free_name, name_alias_columns};
use crate::statement::fold;
use crate::value_kinds;
use crate::values_queries;

/// Prepares a statement for planning.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) for what would be answered wrongly.
pub(crate) fn statement(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => {
            name_columns_of(statement);
            Forms::rewrite(statement);
            // The visitor never breaks.
            let _ = statement.visit(&mut CteNames::default());
            finish(statement.visit(&mut Rewriter::default()))
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
    Forms::rewrite(query);
    // The visitor never breaks.
    let _ = query.visit(&mut CteNames::default());
    finish(query.visit(&mut Rewriter::default()))
}

fn finish(flow: ControlFlow<SqlError>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Most digits of a decimal.
const DECIMAL_DIGITS_MAX: usize = 38;

#[derive(Default)]
struct Rewriter {
    depth: Depth,
}

impl VisitorMut for Rewriter {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        value_rows::rewrite(&mut query.body);
        value_kinds::rewrite(&mut query.body);
        collations::order_query(query)?;
        check_queries(&mut query.body)?;
        values_queries::as_queries(&mut query.body)?;
        if let SetExpr::Select(select) = &mut *query.body {
            row_counts::count_rows(select, query.order_by.as_mut())?;
        }
        if let (Some(_), SetExpr::Select(select)) = (&query.order_by, &mut *query.body) {
            name_casts(&mut select.projection);
            name_apart(&mut select.projection);
            cast_arguments::tell_apart(select, query.order_by.as_mut());
        }
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            name_alias_columns(&mut table.alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<SqlError> {
        samples::rewrite(table);
        each::rewrite(table);
        unnests::rewrite(table);
        if let TableFactor::NestedJoin { table_with_joins, .. } = table {
            for join in &mut table_with_joins.joins {
                joins::rewrite(&mut join.join_operator)?;
            }
            join_conditions::check(table_with_joins)?;
        }
        if let TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Table { alias: Some(alias), .. } = table
        {
            name_alias_columns(alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        row_counts::count_rows(select, None)?;
        collations::show(select)?;
        named_windows::write_out(select)?;
        name_apart(&mut select.projection);
        cast_arguments::tell_apart(select, None);
        groupings::expand(select)?;
        for join in select.from.iter_mut().flat_map(|table| &mut table.joins) {
            joins::rewrite(&mut join.join_operator)?;
        }
        for table in &select.from {
            join_conditions::check(table)?;
        }
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

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        self.depth.enter(expr)?;
        distinctness::rewrite(expr);
        patterns::write_out(expr)?;
        collations::rewrite(expr)?;
        comparisons::rewrite(expr)?;
        patterns::rewrite(expr)?;
        powers::rewrite(expr);
        intervals::rewrite(expr);
        match expr {
            // Before the number in it is seen: a decimal does not become a floating point number first, nor that a decimal.
            Expr::Cast {
                expr: inner,
                data_type:
                    DataType::Decimal(_)
                    | DataType::Numeric(_)
                    | DataType::Double(_)
                    | DataType::DoublePrecision
                    | DataType::Float8
                    | DataType::Float64,
                ..
            } => {
                if let Some(number) = number_of(inner) {
                    **inner = Expr::Value(Value::SingleQuotedString(number).into());
                }
            }
            Expr::Function(function) => {
                exclusions::forget_frames(function);
                constant_orders::leave_out(function);
                null_treatments::take_in_order(function);
                null_treatments::take_from_argument(function);
                functions::rewrite(expr)?;
                filtered_lists::rewrite(expr);
            }
            Expr::Extract { field, expr: from, .. } if has_function(field) => {
                *expr = call(&field.to_string().to_lowercase(), [(**from).clone()]);
                functions::rewrite(expr)?;
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                // Names behind a name are those of a column of a table, or of a field of a struct that is one: `t.l[1]`.
                let is_name = |access: &&mut AccessExpr| {
                    matches!(access, AccessExpr::Dot(Expr::Identifier(_)))
                };
                let is_named = matches!(**root, Expr::Identifier(_));
                let others = access_chain.iter_mut().skip_while(|one| is_named && is_name(one));
                // A field by its name, as of `{'a': 1}.a`.
                for access in others {
                    if let AccessExpr::Subscript(Subscript::Slice {
                        lower_bound,
                        upper_bound,
                        ..
                    }) = access
                    {
                        let number = |number: &str| {
                            Expr::Value(Value::Number(number.to_owned(), false).into())
                        };
                        lower_bound.get_or_insert_with(|| number("1"));
                        upper_bound.get_or_insert_with(|| number("-1"));
                    }
                    if let AccessExpr::Dot(field) = access
                        && let Expr::Identifier(name) = &*field
                    {
                        let name = fold(name.value.clone(), name.quote_style);
                        *field = Expr::Value(Value::SingleQuotedString(name).into());
                    }
                }
            }
            Expr::Array(array) if !array.elem.is_empty() => {
                // As a call, its elements may be columns of a query around this one.
                *expr = call("make_array", std::mem::take(&mut array.elem));
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: bits } => {
                *expr = call("bitwise_not", [(**bits).clone()]);
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                let arguments = [(**time_zone).clone(), (**timestamp).clone()];
                *expr = call(at_time_zone::NAME, arguments);
            }
            Expr::BinaryOp {
                left,
                op:
                    op @ (BinaryOperator::PGOverlap | BinaryOperator::AtArrow | BinaryOperator::ArrowAt),
                right,
            } => {
                let (left, right) = ((**left).clone(), (**right).clone());
                *expr = match op {
                    BinaryOperator::PGOverlap => call("list_has_any", [left, right]),
                    BinaryOperator::AtArrow => call("list_has_all", [left, right]),
                    _ => call("list_has_all", [right, left]),
                };
            }
            Expr::BinaryOp { op: op @ BinaryOperator::DuckIntegerDivide, .. } => {
                // Integers are divided as such anyway.
                *op = BinaryOperator::Divide;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        self.depth.leave();
        collations::left_over(expr)?;
        if let Expr::Value(value) = expr
            && let Value::Number(digits, _) = &value.value
            && is_float(digits)
        {
            let text = Value::SingleQuotedString(digits.replace('_', ""));
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Value(text.with_span(value.span))),
                data_type: DataType::Double(ExactNumberInfo::None),
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    }
}

/// True of what DataFusion cannot extract from a date, and `functions.rs` has a function for.
fn has_function(field: &DateTimeField) -> bool {
    match field {
        DateTimeField::Century
        | DateTimeField::Decade
        | DateTimeField::Millennium
        | DateTimeField::Isoyear
        | DateTimeField::Julian => true,
        DateTimeField::Custom(name) => {
            ["yearweek", "era"].iter().any(|known| name.value.eq_ignore_ascii_case(known))
        }
        _ => false,
    }
}

/// True of a number with an exponent, and of one with more digits than a decimal has.
fn is_float(number: &str) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    number.contains(['e', 'E']) && !number.starts_with("0x") || digits > DECIMAL_DIGITS_MAX
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
        let (name, text, expr) = match &*item {
            SelectItem::UnnamedExpr(expr) => (name_of(expr), expr.to_string(), expr.clone()),
            SelectItem::ExprWithAlias { alias, expr } => {
                let name = fold(alias.value.clone(), alias.quote_style);
                (name.clone(), name, expr.clone())
            }
            _ => continue,
        };
        if names.insert(name) {
            continue;
        }
        let alias = Ident::with_quote('"', free_name(&text, &mut names));
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
}

/// A name that two expressions share if DataFusion gives them the same one: casts and parentheses do
/// not show in its names, nor do subqueries.
pub(crate) fn name_of(expr: &Expr) -> String {
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
