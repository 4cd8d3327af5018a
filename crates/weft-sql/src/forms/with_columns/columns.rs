//! COLUMNS(…): an expression for each of several columns. In the select list, GROUP BY and ORDER BY it becomes that many expressions; in WHERE,
//! HAVING and QUALIFY all of them have to hold. `*COLUMNS(…)` as an argument of a call becomes that many arguments.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr as LogicalExpr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, LambdaFunction, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions, With,
};

use super::item;
use super::probe::{FromColumn, columns_of};
use super::star::{Picked, picked, places};
use crate::depth::tree;
use crate::error::{ErrorKind, Result, SqlError};
use crate::functions::call;
use crate::same_names::free_name;
use crate::statement::fold;

/// The name of the call with as many arguments as columns (`tokens/columns.rs`).
const SPREAD: &str = "columns_spread";

/// True of an expression with COLUMNS in it, which becomes one for each column.
pub(crate) fn has_columns(expr: &Expr) -> bool {
    let mut calls = Calls::default();
    Visit::visit(expr, &mut calls).is_break() || calls.found.is_some_and(|call| !is_spread(&call))
}

/// True of a call of COLUMNS.
pub(super) fn is_columns(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if is_call(function))
}

fn is_call(function: &Function) -> bool {
    let last = function.name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|name| {
        let is_named = |word: &str| name.value.eq_ignore_ascii_case(word);
        name.quote_style.is_none() && (is_named("columns") || is_named(SPREAD))
    })
}

fn is_spread(function: &Function) -> bool {
    is_call(function) && function.name.to_string().eq_ignore_ascii_case(SPREAD)
}

/// Writes out COLUMNS in the clauses of a query, and its ORDER BY.
///
/// # Errors
/// [`ErrorKind::Semantic`] if no column is meant, or different ones in one expression.
pub(super) fn write_out(
    select: &mut Select,
    order: Option<&mut OrderBy>,
    state: &SessionState,
    withs: &[With],
) -> Result<()> {
    let from = select.from.clone();
    let scope = Scope { from: &from, state, withs };
    let mut written = Vec::with_capacity(select.projection.len());
    for old in std::mem::take(&mut select.projection) {
        scope.item(old, &mut written)?;
    }
    name_apart(&mut written);
    select.projection = written;
    for condition in [&mut select.selection, &mut select.having, &mut select.qualify] {
        let Some(expr) = condition else { continue };
        let all = scope.expressions(expr.clone())?;
        let nested = all.into_iter().map(|(expr, _)| expr).collect();
        *condition = Some(tree(nested, &BinaryOperator::And));
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        let mut all = Vec::with_capacity(keys.len());
        for key in std::mem::take(keys) {
            all.extend(scope.expressions(key)?.into_iter().map(|(expr, _)| expr));
        }
        *keys = all;
    }
    if let Some(OrderBy { kind: OrderByKind::Expressions(terms), .. }) = order {
        let mut all = Vec::with_capacity(terms.len());
        for term in std::mem::take(terms) {
            for (expr, _) in scope.expressions(term.expr.clone())? {
                let mut term = term.clone();
                term.expr = expr;
                all.push(term);
            }
        }
        *terms = all;
    }
    Ok(())
}

/// Gives names of their own to items with the name of an earlier one.
fn name_apart(items: &mut [SelectItem]) {
    let mut taken = HashSet::new();
    for item in items {
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            let name = fold(alias.value.clone(), alias.quote_style);
            if !taken.insert(name.clone()) {
                *alias = Ident::with_quote('"', free_name(&name, &mut taken));
            }
        }
    }
}

/// Where COLUMNS stands.
struct Scope<'a> {
    from: &'a [TableWithJoins],
    state: &'a SessionState,
    withs: &'a [With],
}

impl Scope<'_> {
    fn item(&self, old: SelectItem, written: &mut Vec<SelectItem>) -> Result<()> {
        let (expr, alias) = match old {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            other => {
                written.push(other);
                return Ok(());
            }
        };
        for (expr, column) in self.expressions(expr)? {
            written.push(match (&alias, column) {
                (Some(alias), Some(column)) => SelectItem::ExprWithAlias {
                    expr,
                    alias: Ident::with_quote('"', column.called(alias)?),
                },
                (Some(alias), None) => SelectItem::ExprWithAlias { expr, alias: alias.clone() },
                (None, Some(column)) => item(expr, &column.picked.name),
                (None, None) => SelectItem::UnnamedExpr(expr),
            });
        }
        Ok(())
    }

    /// An expression for each column that COLUMNS in this one means; itself if there is no COLUMNS.
    fn expressions(&self, mut expr: Expr) -> Result<Vec<(Expr, Option<Meant>)>> {
        if self.spread(&mut expr)? == Found::Nothing {
            return Ok(vec![(expr, None)]);
        }
        let mut calls = Calls::default();
        if let ControlFlow::Break(error) = Visit::visit(&expr, &mut calls) {
            return Err(error);
        }
        let Some(function) = calls.found else { return Ok(vec![(expr, None)]) };
        let meant = self.meant(&function)?;
        if meant.is_empty() {
            let message = format!("no column is meant by {function}");
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        let put = |column: Meant| {
            let mut expr = expr.clone();
            // The visitor never breaks.
            let _ = VisitMut::visit(&mut expr, &mut Put(&column.picked.expr));
            (expr, Some(column))
        };
        Ok(meant.into_iter().map(put).collect())
    }

    /// Puts arguments in place of `*COLUMNS(…)`, and tells whether there is any COLUMNS.
    fn spread(&self, expr: &mut Expr) -> Result<Found> {
        let mut spread = Spread { scope: self, found: Found::Nothing, depth: 0 };
        match VisitMut::visit(expr, &mut spread) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(spread.found),
        }
    }

    /// The columns that a call of COLUMNS means.
    fn meant(&self, function: &Function) -> Result<Vec<Meant>> {
        let FunctionArguments::List(list) = &function.args else {
            return Err(bad_argument(function));
        };
        let [FunctionArg::Unnamed(argument)] = list.args.as_slice() else {
            return Err(bad_argument(function));
        };
        let mut options = WildcardAdditionalOptions::default();
        let mut table = function.name.0[..function.name.0.len() - 1].to_vec();
        match argument {
            FunctionArgExpr::QualifiedWildcard(name) => table = name.0.clone(),
            FunctionArgExpr::WildcardWithOptions(given) => options = given.clone(),
            _ => {}
        }
        let all = match table.is_empty() {
            true => SelectItem::Wildcard(options.clone()),
            false => {
                let kind = SelectItemQualifiedWildcardKind::ObjectName(ObjectName(table));
                SelectItem::QualifiedWildcard(kind, options.clone())
            }
        };
        if let FunctionArgExpr::Expr(Expr::Array(array)) = argument {
            return self.listed(all, &array.elem, function);
        }
        if let FunctionArgExpr::Expr(Expr::Function(array)) = argument
            && array.name.to_string() == "make_array"
        {
            return self.listed(all, &arguments(array), function);
        }
        let columns = picked(self.from, all, &options, self.state, self.withs)?;
        let mut meant = Vec::new();
        for picked in columns {
            let pattern = match argument {
                FunctionArgExpr::Expr(Expr::Value(value)) => match &value.value {
                    Value::SingleQuotedString(pattern) => Some(pattern.clone()),
                    _ => return Err(bad_argument(function)),
                },
                FunctionArgExpr::Expr(Expr::Lambda(lambda)) => {
                    if self.holds(lambda, &picked.name)? {
                        meant.push(Meant { picked, pattern: None, state: self.state.clone() });
                    }
                    continue;
                }
                FunctionArgExpr::Expr(_) => return Err(bad_argument(function)),
                _ => None,
            };
            if let Some(pattern) = &pattern {
                let like = call("regexp_like", [text(&picked.name), text(pattern)]);
                if !self.is_true(&like)? {
                    continue;
                }
            }
            meant.push(Meant { picked, pattern, state: self.state.clone() });
        }
        Ok(meant)
    }

    /// Columns of a list of names.
    fn listed(&self, all: SelectItem, names: &[Expr], function: &Function) -> Result<Vec<Meant>> {
        let columns = columns_of(self.state, self.from, all, self.withs)?;
        let mut wanted = vec![false; columns.len()];
        for name in names {
            let Expr::Value(value) = name else { return Err(bad_argument(function)) };
            let Value::SingleQuotedString(name) = &value.value else {
                return Err(bad_argument(function));
            };
            for place in places(&columns, None, &Ident::new(name), "COLUMNS")? {
                wanted[place] = true;
            }
        }
        let wanted = columns.iter().zip(wanted).filter(|(_, wanted)| *wanted);
        let meant = |(column, _): (&FromColumn, bool)| {
            let picked = Picked { expr: column.expr(), name: column.name.clone() };
            Meant { picked, pattern: None, state: self.state.clone() }
        };
        Ok(wanted.map(meant).collect())
    }

    /// Whether a lambda holds of a column's name.
    fn holds(&self, lambda: &LambdaFunction, column: &str) -> Result<bool> {
        let mut parameters = lambda.params.iter();
        let (Some(parameter), None) = (parameters.next(), parameters.next()) else {
            let message = "the lambda of COLUMNS has one parameter: the name of a column";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        };
        let name = fold(parameter.name.value.clone(), parameter.name.quote_style);
        let mut condition = (*lambda.body).clone();
        // The visitor never breaks.
        let _ = VisitMut::visit(&mut condition, &mut Named { name: &name, column });
        self.is_true(&condition)
    }

    /// Whether a condition without columns holds.
    fn is_true(&self, condition: &Expr) -> Result<bool> {
        match constant(self.state, &condition.to_string())? {
            ScalarValue::Boolean(value) => Ok(value == Some(true)),
            _ => Err(SqlError::new(
                ErrorKind::Semantic,
                format!("the condition of COLUMNS has to be true or false: {condition}"),
            )),
        }
    }
}

/// The value of an expression without columns.
fn constant(state: &SessionState, sql: &str) -> Result<ScalarValue> {
    let schema = DFSchema::empty();
    let expr = state.create_logical_expr(sql, &schema)?;
    let context = SimplifyContext::builder().with_schema(schema.into()).build();
    let simplifier = ExprSimplifier::new(context);
    let expr = simplifier.coerce(expr, &DFSchema::empty())?;
    match simplifier.simplify(expr)? {
        LogicalExpr::Literal(value, _) => Ok(value),
        _ => Err(SqlError::new(ErrorKind::Semantic, format!("{sql} has no value of its own"))),
    }
}

/// A column that COLUMNS means.
struct Meant {
    picked: Picked,
    /// The regular expression that its name matches.
    pattern: Option<String>,
    state: SessionState,
}

impl Meant {
    /// The name of an item for this column: `\1` in it is what the first group of the pattern matched.
    fn called(&self, alias: &Ident) -> Result<String> {
        let Some(pattern) = self.pattern.as_ref().filter(|_| alias.value.contains('\\')) else {
            return Ok(fold(alias.value.clone(), alias.quote_style));
        };
        let first = call("regexp_match", [text(&self.picked.name), text(pattern)]);
        let mut name = alias.value.clone();
        for group in 0..10 {
            let mark = format!("\\{group}");
            if !name.contains(&mark) {
                continue;
            }
            let sql = match group {
                0 => format!(
                    "regexp_match({}, {})[1]",
                    text(&self.picked.name),
                    text(&format!("({pattern})"))
                ),
                _ => format!("{first}[{group}]"),
            };
            let matched = constant(&self.state, &sql)?;
            name = name.replace(&mark, matched.try_as_str().flatten().unwrap_or_default());
        }
        Ok(name)
    }
}

fn arguments(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().filter_map(argument).collect()
}

fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

fn bad_argument(function: &Function) -> SqlError {
    let message =
        format!("{function}: COLUMNS takes *, a regular expression, a list of names or a lambda");
    SqlError::new(ErrorKind::Semantic, message)
        .with_hint("COLUMNS('^a'), COLUMNS(['a', 'b']), COLUMNS(* EXCLUDE (a)), COLUMNS(lambda c: c LIKE 'a%')")
}

/// Finds the calls of COLUMNS in an expression, which have to be one.
#[derive(Default)]
struct Calls {
    found: Option<Function>,
    depth: usize,
}

impl Visitor for Calls {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        if self.depth > 0 || !is_call(function) {
            return ControlFlow::Continue(());
        }
        match &self.found {
            Some(other) if other.to_string() != function.to_string() => {
                let message =
                    format!("{other} and {function} in one expression mean different columns");
                ControlFlow::Break(SqlError::new(ErrorKind::Semantic, message))
            }
            _ => {
                self.found = Some(function.clone());
                ControlFlow::Continue(())
            }
        }
    }
}

/// Puts a column in place of COLUMNS.
struct Put<'a>(&'a Expr);

impl VisitorMut for Put<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if is_columns(expr) {
            *expr = self.0.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Puts the name of a column in place of a lambda's parameter.
struct Named<'a> {
    name: &'a str,
    column: &'a str,
}

impl VisitorMut for Named<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr
            && fold(ident.value.clone(), ident.quote_style) == self.name
        {
            *expr = text(self.column);
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression has COLUMNS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Columns,
}

/// Puts arguments in place of `*COLUMNS(…)`.
struct Spread<'a> {
    scope: &'a Scope<'a>,
    found: Found,
    depth: usize,
}

impl VisitorMut for Spread<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if is_call(function) {
            self.found = Found::Columns;
        }
        let FunctionArguments::List(list) = &mut function.args else {
            return ControlFlow::Continue(());
        };
        let is_spread = |argument: &FunctionArg| {
            matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(call)))
                if is_spread(call))
        };
        if !list.args.iter().any(is_spread) {
            return ControlFlow::Continue(());
        }
        let mut spread = Vec::with_capacity(list.args.len());
        for argument in std::mem::take(&mut list.args) {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(call)))
                    if is_call(&call) && self::is_spread(&call) =>
                {
                    match self.scope.meant(&call) {
                        Ok(meant) => spread.extend(meant.into_iter().map(|column| {
                            FunctionArg::Unnamed(FunctionArgExpr::Expr(column.picked.expr))
                        })),
                        Err(error) => return ControlFlow::Break(error),
                    }
                }
                other => spread.push(other),
            }
        }
        list.args = spread;
        ControlFlow::Continue(())
    }
}
