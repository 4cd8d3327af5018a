//! PIVOT as a query with an aggregate for each value, and UNPIVOT as one that unnests a list of columns.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, NullInclusion, Query, SelectItem, SetExpr, TableFactor, Value, Visit,
    VisitMut, Visitor, VisitorMut,
};

use super::Writer;
use super::probe::columns_of_query;
use crate::error::{ErrorKind, Result, SqlError};
use crate::forms::pivots::{
    AGGREGATE, GROUPS, NAMED, TEXTS, VALUES, VALUES_MAX, arguments, columns_and_sources,
};
use crate::identifiers::quoted;
use crate::statement::parse_query;

/// True of PIVOT and UNPIVOT.
pub(super) fn is_one(table: &TableFactor) -> bool {
    matches!(table, TableFactor::Pivot { .. } | TableFactor::Unpivot { .. })
}

/// Puts a query in the place of PIVOT or UNPIVOT.
///
/// # Errors
/// For names that are not those of columns, and for forms that are not built.
pub(super) fn write_out(writer: &mut Writer<'_>, table: &mut TableFactor) -> Result<()> {
    let (sql, alias) = match &*table {
        TableFactor::Pivot { alias, .. } => (pivoted(writer, table)?, alias.clone()),
        TableFactor::Unpivot { alias, .. } => (unpivoted(writer, table)?, alias.clone()),
        _ => return Ok(()),
    };
    let subquery = Box::new(parse_query(&sql)?);
    *table = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(())
}

/// The columns of a table of FROM.
fn columns_of(writer: &Writer<'_>, table: &TableFactor) -> Result<Vec<String>> {
    let query = parse_query(&format!("SELECT * FROM {table}"))?;
    let columns = columns_of_query(writer.state, query, &writer.withs)?;
    Ok(columns.into_iter().map(|column| column.name).collect())
}

/// The columns of a table that these expressions do not name.
fn others(columns: Vec<String>, exprs: &[&Expr]) -> Vec<String> {
    let mut names = Names::default();
    for expr in exprs {
        // The visitor never breaks.
        let _ = Visit::visit(*expr, &mut names);
    }
    let is_named = |column: &String| {
        names.found.iter().any(|(name, is_quoted)| match is_quoted {
            true => name == column,
            false => name.to_lowercase() == column.to_lowercase(),
        })
    };
    columns.into_iter().filter(|column| !is_named(column)).collect()
}

/// Names of columns in expressions, and whether they are in quotes.
#[derive(Default)]
struct Names {
    found: Vec<(String, bool)>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        self.found.extend(name.map(|name| (name.value.clone(), name.quote_style.is_some())));
        ControlFlow::Continue(())
    }
}

/// A value that becomes a column: the condition of its rows, and the name.
#[derive(Clone)]
struct Cell {
    condition: String,
    name: String,
}

/// The query of a PIVOT.
fn pivoted(writer: &Writer<'_>, pivot: &TableFactor) -> Result<String> {
    let TableFactor::Pivot { table, aggregate_functions, default_on_null, .. } = pivot else {
        return Err(unknown_form());
    };
    let (columns, sources) = columns_and_sources(pivot).ok_or_else(unknown_form)?;
    let aggregates: Vec<(&Expr, Option<String>)> = aggregate_functions
        .iter()
        .map(|aggregate| match arguments(&aggregate.expr, AGGREGATE).as_deref() {
            Some([expr]) => Ok((*expr, None)),
            Some([expr, name]) => Ok((*expr, text_of(name))),
            _ => Err(unknown_form()),
        })
        .collect::<Result<_>>()?;
    let groups: Vec<String> = match default_on_null {
        Some(groups) => {
            let groups = arguments(groups, GROUPS).ok_or_else(unknown_form)?;
            groups.into_iter().map(ToString::to_string).collect()
        }
        None => {
            let used = columns.iter().copied().chain(aggregates.iter().map(|(expr, _)| *expr));
            let used: Vec<&Expr> = used.collect();
            let left = others(columns_of(writer, table)?, &used);
            left.iter().map(|name| quoted(name)).collect()
        }
    };
    let mut cells = vec![Cell { condition: String::new(), name: String::new() }];
    for (column, source) in columns.iter().zip(sources) {
        let of_column = cells_of(column, source)?;
        let both = |cell: &Cell, next: &Cell| match cell.condition.is_empty() {
            true => next.clone(),
            false => Cell {
                condition: format!("{} AND {}", cell.condition, next.condition),
                name: format!("{}_{}", cell.name, next.name),
            },
        };
        cells =
            cells.iter().flat_map(|cell| of_column.iter().map(|next| both(cell, next))).collect();
        if cells.len() * aggregates.len() > VALUES_MAX {
            let message = format!("PIVOT would make over {VALUES_MAX} columns");
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
    }
    let mut items = groups.clone();
    for cell in &cells {
        for (aggregate, given) in &aggregates {
            let name = match given {
                Some(given) => format!("{}_{given}", cell.name),
                None if aggregates.len() > 1 => format!("{}_{aggregate}", cell.name),
                None => cell.name.clone(),
            };
            let value = filtered(aggregate, &cell.condition, writer.state)?;
            items.push(format!("{value} AS {}", quoted(&name)));
        }
    }
    if items.is_empty() {
        let message = "PIVOT has no columns: no row has a value there";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    let sql = format!("SELECT {} FROM {table}", items.join(", "));
    Ok(match groups.is_empty() {
        true => sql,
        false => format!("{sql} GROUP BY {}", groups.join(", ")),
    })
}

/// The values of a column.
fn cells_of(column: &Expr, source: &Expr) -> Result<Vec<Cell>> {
    if let Some(texts) = arguments(source, TEXTS) {
        let cell = |text: &Expr| Cell {
            condition: format!("CAST(({column}) AS VARCHAR) = {text}"),
            name: text_of(text).unwrap_or_default(),
        };
        return Ok(texts.into_iter().map(cell).collect());
    }
    let values = arguments(source, VALUES).ok_or_else(unknown_form)?;
    let cell = |value: &Expr| {
        let (value, given) = match arguments(value, NAMED).as_deref() {
            Some([value, name]) => (*value, text_of(name)),
            _ => (value, None),
        };
        if !matches!(
            value,
            Expr::Value(_) | Expr::UnaryOp { .. } | Expr::Cast { .. } | Expr::TypedString(_)
        ) {
            let message = format!("PIVOT takes values, not {value}");
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("leave IN out to have all values of a column"));
        }
        let is_null = matches!(value, Expr::Value(value) if value.value == Value::Null);
        let condition = match is_null {
            true => format!("({column}) IS NULL"),
            false => format!("({column}) = {value}"),
        };
        let name = given.or_else(|| text_of(value)).unwrap_or_else(|| value.to_string());
        Ok(Cell { condition, name })
    };
    values.into_iter().map(cell).collect()
}

/// The content of a text.
fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// An expression whose aggregates take the rows of a condition only.
fn filtered(expr: &Expr, condition: &str, state: &SessionState) -> Result<Expr> {
    let query = parse_query(&format!("SELECT {condition}"))?;
    let condition = match first_item(&query) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
            Expr::Nested(Box::new(expr.clone()))
        }
        _ => return Err(unknown_form()),
    };
    let mut filter = Filter { condition, state, is_found: false };
    let mut expr = expr.clone();
    // The visitor never breaks.
    let _ = VisitMut::visit(&mut expr, &mut filter);
    match filter.is_found {
        true => Ok(expr),
        false => {
            let message = format!("PIVOT takes aggregates, and {expr} is none");
            Err(SqlError::new(ErrorKind::Semantic, message).with_hint("write USING first(column)"))
        }
    }
}

fn first_item(query: &Query) -> Option<&SelectItem> {
    match query.body.as_ref() {
        SetExpr::Select(select) => select.projection.first(),
        _ => None,
    }
}

struct Filter<'a> {
    condition: Expr,
    state: &'a SessionState,
    is_found: bool,
}

impl VisitorMut for Filter<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let name = function.name.to_string().to_lowercase();
        if function.over.is_some() || !self.state.aggregate_functions().contains_key(&name) {
            return ControlFlow::Continue(());
        }
        self.is_found = true;
        let condition = Box::new(self.condition.clone());
        function.filter = Some(match function.filter.take() {
            None => condition,
            Some(given) => Box::new(Expr::BinaryOp {
                left: Box::new(Expr::Nested(given)),
                op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
                right: condition,
            }),
        });
        ControlFlow::Continue(())
    }
}

/// The query of an UNPIVOT.
fn unpivoted(writer: &mut Writer<'_>, unpivot: &TableFactor) -> Result<String> {
    let TableFactor::Unpivot { table, value, name, columns, null_inclusion, .. } = unpivot else {
        return Err(unknown_form());
    };
    let values: Vec<String> = elements(value).iter().map(|value| value.to_string()).collect();
    let mut rows: Vec<(String, Vec<Expr>)> = Vec::new();
    for column in columns {
        for (expr, given) in expanded(writer, table, column)? {
            let exprs: Vec<Expr> = elements(&expr).into_iter().cloned().collect();
            if exprs.len() != values.len() {
                let message = format!(
                    "UNPIVOT has {} columns for values, but {expr} has {}",
                    values.len(),
                    exprs.len()
                );
                return Err(SqlError::new(ErrorKind::Semantic, message));
            }
            let of_columns = || {
                let mut names = Names::default();
                // The visitor never breaks.
                let _ = Visit::visit(&exprs, &mut names);
                let names: Vec<String> = names.found.into_iter().map(|(name, _)| name).collect();
                names.join("_")
            };
            rows.push((given.unwrap_or_else(of_columns), exprs));
        }
    }
    let used: Vec<&Expr> = rows.iter().flat_map(|(_, exprs)| exprs).collect();
    let left = others(columns_of(writer, table)?, &used);
    let mut items: Vec<String> = left.iter().map(|name| quoted(name)).collect();
    let names: Vec<String> =
        rows.iter().map(|(name, _)| format!("'{}'", name.replace('\'', "''"))).collect();
    items.push(format!("unnest([{}]) AS {name}", names.join(", ")));
    for (place, value) in values.iter().enumerate() {
        let exprs: Vec<String> = rows.iter().map(|(_, exprs)| exprs[place].to_string()).collect();
        items.push(format!("unnest([{}]) AS {value}", exprs.join(", ")));
    }
    let sql = format!("SELECT {} FROM {table}", items.join(", "));
    if matches!(null_inclusion, Some(NullInclusion::IncludeNulls)) {
        return Ok(sql);
    }
    let conditions: Vec<String> =
        values.iter().map(|value| format!("{value} IS NOT NULL")).collect();
    Ok(format!("SELECT * FROM ({sql}) AS unpivoted WHERE {}", conditions.join(" AND ")))
}

/// The expressions of a tuple, or the one.
fn elements(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Tuple(exprs) => exprs.iter().collect(),
        Expr::Nested(expr) => vec![expr],
        expr => vec![expr],
    }
}

/// A column of UNPIVOT with its name, or those that COLUMNS stands for.
fn expanded(
    writer: &mut Writer<'_>,
    table: &TableFactor,
    column: &ExprWithAlias,
) -> Result<Vec<(Expr, Option<String>)>> {
    let given = column.alias.as_ref().map(|alias| alias.value.clone());
    if !super::has_columns(&column.expr) {
        return Ok(vec![(column.expr.clone(), given)]);
    }
    let mut query = parse_query(&format!("SELECT {} FROM {table}", column.expr))?;
    writer.query(&mut query, None)?;
    let SetExpr::Select(select) = *query.body else { return Err(unknown_form()) };
    let item = |item: SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => Ok((expr, given.clone())),
        SelectItem::ExprWithAlias { expr, .. } => Ok((expr, given.clone())),
        _ => Err(unknown_form()),
    };
    select.projection.into_iter().map(item).collect()
}

fn unknown_form() -> SqlError {
    SqlError::not_supported("this form of PIVOT or UNPIVOT").with_hint(
        "write PIVOT t ON column USING sum(value) GROUP BY key, or t PIVOT (sum(value) FOR column IN (1, 2)); \
         UNPIVOT t ON a, b INTO NAME n VALUE v, or t UNPIVOT (v FOR n IN (a, b))",
    )
}
