//! Forms of PostgreSQL's clients in terms that the planner knows.
//!
//! - `pg_catalog.f(x)` is `f(x)`, `a OPERATOR(pg_catalog.=) b` is `a = b`.
//! - `x COLLATE pg_catalog.default` is `x`: texts have one order, that of their bytes, which is PostgreSQL's `C`.
//! - `x::regclass` and the like are calls (`functions/names.rs`), `x::oid` and `x::name` casts to BIGINT and VARCHAR.
//! - `'{a,b}'::text[]`, and such a text behind ANY and ALL, are lists.
//! - `ARRAY(SELECT …)` is a subquery that collects its values.
//! - `generate_subscripts(…)` and `_pg_expandarray(…)`, which return rows, are lists that `unnest` takes apart.
//! - `pg_partition_ancestors(…)` in FROM has no rows: no table is a partition.
//! - `current_user` and the like are calls.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, LambdaFunction,
    LambdaFunctionParameter, LambdaSyntax, ObjectName, OneOrManyWithParens, OrderByExpr,
    OrderByKind, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Value, VisitMut,
    VisitorMut,
};

use crate::functions::call;
use crate::information_schema::INFORMATION_SCHEMA;
use crate::postgres::PG_CATALOG;
use crate::postgres::defined::{is_list, is_vector};
use crate::statement::{fold, parse_query};

/// Names without parentheses that are calls.
const CALLS: [&str; 5] =
    ["current_catalog", "current_role", "current_schema", "current_user", "session_user"];

/// Functions that return rows, and take no arguments: tables of the catalog.
const ROWS: [&str; 3] = ["pg_get_keywords", "pg_show_all_settings", "pg_timezone_names"];

/// Puts the forms in other terms.
pub(crate) struct Forms;

impl Forms {
    /// Puts the forms of a statement or query in other terms.
    pub(crate) fn rewrite(of: &mut impl VisitMut) {
        // The visitor never breaks.
        let _ = of.visit(&mut Forms);
    }
}

impl VisitorMut for Forms {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let Some(none) = no_ancestors(table) {
            *table = none;
        }
        if let TableFactor::Table { name, args, .. } = table {
            if let Some(found) = args
                && found.args.is_empty()
                && let Some(function) = last_of_system(name)
                && ROWS.contains(&function.as_str())
            {
                let table =
                    if function == "pg_show_all_settings" { "pg_settings" } else { &function };
                *name = ObjectName::from(vec![Ident::new(PG_CATALOG), Ident::new(table)]);
                *args = None;
            } else if args.is_some() {
                unqualify(name);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                unqualify(&mut function.name);
                name_sequence(function);
                let is_call = matches!(function.args, FunctionArguments::None)
                    && plain_name(&function.name)
                        .is_some_and(|name| CALLS.contains(&name.as_str()));
                if is_call {
                    *expr = call(&function.name.to_string().to_ascii_lowercase(), []);
                } else if let Some(rows) = rows(function) {
                    *expr = rows;
                }
            }
            Expr::Identifier(name)
                if name.quote_style.is_none()
                    && CALLS.contains(&name.value.to_ascii_lowercase().as_str()) =>
            {
                *expr = call(&name.value.to_ascii_lowercase(), []);
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq | BinaryOperator::NotEq, right }
                if is_list_of_catalog(left) =>
            {
                if let Some(mut list) = list_of_text(right) {
                    as_numbers(&mut list);
                    **right = list;
                }
            }
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(known) = operator(parts)
                {
                    *op = known;
                }
            }
            Expr::Collate { expr: inner, collation } if is_order_of_bytes(collation) => {
                *expr = (**inner).clone();
                return self.pre_visit_expr(expr);
            }
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Some(list) = list_of_text(right) {
                    **right = list;
                }
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: inner,
                data_type,
                ..
            } => {
                if let Some(name) = named_function(inner)
                    && matches!(casted(data_type), Casted::To(DataType::BigInt(None)))
                {
                    *expr = call("number_of_regproc", [name]);
                    return ControlFlow::Continue(());
                }
                match casted(data_type) {
                    Casted::Plain => {}
                    Casted::To(other) => *data_type = other,
                    Casted::Call(function) => *expr = call(function, [(**inner).clone()]),
                    Casted::Nothing => *expr = (**inner).clone(),
                }
                if let Expr::Cast { expr: inner, data_type: DataType::Array(_), .. } = expr
                    && let Some(list) = list_of_text(inner)
                {
                    **inner = list;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(Function { name, args: FunctionArguments::Subquery(query), .. }) =
            expr
            && plain_name(name).is_some_and(|name| name == "array")
            && let Some(collected) = collected(query)
        {
            *expr = collected;
        }
        ControlFlow::Continue(())
    }
}

/// What is cast to `regproc` by an expression.
fn named_function(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Cast { expr: inner, data_type, .. }
            if matches!(casted(data_type), Casted::Call("cast_to_regproc")) =>
        {
            Some((**inner).clone())
        }
        _ => None,
    }
}

/// Takes the cast from `nextval('s'::regclass)`: functions of sequences take names.
fn name_sequence(function: &mut Function) {
    let is_of_sequence = plain_name(&function.name)
        .is_some_and(|name| matches!(name.as_str(), "nextval" | "currval" | "setval"));
    if let FunctionArguments::List(list) = &mut function.args
        && is_of_sequence
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut()
        && let Expr::Cast { expr: name, data_type, .. } = first
        && matches!(casted(data_type), Casted::Call("cast_to_regclass"))
    {
        *first = (**name).clone();
    }
}

/// A function that returns rows as the values of a list.
fn rows(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first() else {
        return None;
    };
    let number = |number: &str| Expr::Value(Value::Number(number.to_owned(), false).into());
    let values = match plain_name(&function.name)?.as_str() {
        "_pg_expandarray" => call("numbered_items", [first.clone()]),
        "generate_subscripts" => {
            let length = call("coalesce", [call("array_length", [first.clone()]), number("0")]);
            match is_vector_of_catalog(first) {
                true => call("range", [number("0"), length]),
                false => call("generate_series", [number("1"), length]),
            }
        }
        _ => return None,
    };
    Some(call("unnest", [values]))
}

/// The only part of a name, as the catalog has it.
fn plain_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(|ident| fold(ident.value.clone(), ident.quote_style)),
        _ => None,
    }
}

/// The last part of a name that is in no schema or in one of the system's.
fn last_of_system(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| part.as_ident())
        .map(|ident| fold(ident.value.clone(), ident.quote_style))
        .collect();
    match parts.as_slice() {
        [last] => Some(last.clone()),
        [schema, last] if schema == PG_CATALOG || schema == INFORMATION_SCHEMA => {
            Some(last.clone())
        }
        _ => None,
    }
}

/// Takes the system's schema off the name of a function.
fn unqualify(name: &mut ObjectName) {
    if name.0.len() == 2 && last_of_system(name).is_some() {
        name.0.remove(0);
    }
}

fn operator(parts: &[String]) -> Option<BinaryOperator> {
    let symbol = match parts {
        [symbol] => symbol,
        [schema, symbol] if schema.eq_ignore_ascii_case(PG_CATALOG) => symbol,
        _ => return None,
    };
    Some(match symbol.as_str() {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "||" => BinaryOperator::StringConcat,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        _ => return None,
    })
}

/// Makes numbers of the items of a list, if all of them are.
fn as_numbers(list: &mut Expr) {
    let Expr::Array(Array { elem, .. }) = list else { return };
    let number = |item: &Expr| match item {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) if text.parse::<i64>().is_ok() => {
                Some(Expr::Value(Value::Number(text.clone(), false).with_span(value.span)))
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(numbers) = elem.iter().map(number).collect() {
        *elem = numbers;
    }
}

/// True of a column that tables of the catalog have as a list.
fn is_list_of_catalog(expr: &Expr) -> bool {
    column_name(expr).is_some_and(|name| is_list(&name))
}

/// True of a column of the catalog whose items PostgreSQL counts from 0 on.
fn is_vector_of_catalog(expr: &Expr) -> bool {
    column_name(expr).is_some_and(|name| is_vector(&name))
}

/// The name of the column that an expression is, as the catalog has it.
fn column_name(expr: &Expr) -> Option<String> {
    let last = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    last.map(|name| fold(name.value.clone(), name.quote_style))
}

fn is_order_of_bytes(collation: &ObjectName) -> bool {
    last_of_system(collation).is_some_and(|name| {
        ["default", "c", "posix", "ucs_basic"].contains(&name.to_ascii_lowercase().as_str())
    })
}

/// What a cast to a type of PostgreSQL is.
enum Casted {
    /// As it is.
    Plain,
    /// A cast to another type.
    To(DataType),
    /// A call.
    Call(&'static str),
    /// What is cast, as it is.
    Nothing,
}

fn casted(data_type: &DataType) -> Casted {
    let name = match data_type {
        DataType::Regclass => return Casted::Call("cast_to_regclass"),
        DataType::Custom(name, _) => name,
        DataType::Array(ArrayElemTypeDef::SquareBracket(inner, length)) => {
            return match casted(inner) {
                Casted::To(inner) => {
                    let inner = ArrayElemTypeDef::SquareBracket(Box::new(inner), *length);
                    Casted::To(DataType::Array(inner))
                }
                _ => Casted::Plain,
            };
        }
        _ => return Casted::Plain,
    };
    let is_qualified = name.0.len() == 2;
    let Some(name) = last_of_system(name) else { return Casted::Plain };
    let list = |item| DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None));
    let text = DataType::Text;
    Casted::To(match name.as_str() {
        "regclass" => return Casted::Call("cast_to_regclass"),
        "regtype" => return Casted::Call("cast_to_regtype"),
        "regproc" | "regprocedure" | "regoper" | "regoperator" => {
            return Casted::Call("cast_to_regproc");
        }
        "regnamespace" => return Casted::Call("cast_to_regnamespace"),
        "regrole" => return Casted::Call("cast_to_regrole"),
        "anyarray" | "any" => return Casted::Nothing,
        "oid" | "xid" | "cid" => DataType::BigInt(None),
        "name" | "char" | "unknown" | "cstring" | "pg_node_tree" | "aclitem" => text,
        "sql_identifier" | "character_data" | "yes_or_no" => text,
        "cardinal_number" => DataType::Integer(None),
        "int2vector" => list(DataType::SmallInt(None)),
        "oidvector" | "_oid" => list(DataType::BigInt(None)),
        "_text" | "_name" | "_varchar" => list(text),
        "_int4" => list(DataType::Integer(None)),
        "text" | "varchar" | "bpchar" if is_qualified => text,
        "int2" if is_qualified => DataType::SmallInt(None),
        "int4" if is_qualified => DataType::Integer(None),
        "int8" if is_qualified => DataType::BigInt(None),
        "bool" if is_qualified => DataType::Boolean,
        "float4" if is_qualified => DataType::Real,
        "float8" if is_qualified => DataType::DoublePrecision,
        "date" if is_qualified => DataType::Date,
        _ => return Casted::Plain,
    })
}

/// The list that a text in PostgreSQL's form is: `{a,"b c",NULL}`.
fn list_of_text(expr: &Expr) -> Option<Expr> {
    let Expr::Value(value) = expr else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let span = value.span;
    let items = array_items(text)?.into_iter().map(|item| {
        let value = item.map_or(Value::Null, Value::SingleQuotedString);
        Expr::Value(value.with_span(span))
    });
    Some(Expr::Array(Array { elem: items.collect(), named: true }))
}

/// The items of PostgreSQL's text of an array of one dimension, `{1,"a b",NULL}`: NULL is `None`. Nothing is returned for
/// another text: without braces around it, with braces within, or with a quote that is not closed.
pub fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut found = Vec::new();
    if inner.trim().is_empty() {
        return Some(found);
    }
    let (mut item, mut was_quoted, mut is_quoted) = (String::new(), false, false);
    let mut letters = inner.chars();
    loop {
        let letter = letters.next();
        match letter {
            Some('\\') => item.push(letters.next()?),
            Some('"') => (is_quoted, was_quoted) = (!is_quoted, true),
            Some(',') | None if !is_quoted => {
                let is_null = !was_quoted && item.trim().eq_ignore_ascii_case("null");
                let whole = if was_quoted { item.clone() } else { item.trim().to_owned() };
                found.push((!is_null).then_some(whole));
                (item, was_quoted) = (String::new(), false);
                if letter.is_none() {
                    return Some(found);
                }
            }
            Some('{' | '}') if !is_quoted => return None,
            Some(letter) => item.push(letter),
            None => return None,
        }
    }
}

/// A subquery whose value is the list of a query's values, empty if there are none.
fn collected(query: &Query) -> Option<Expr> {
    if let Some(items) = items_of_list(query) {
        return Some(call("coalesce", [items, call("make_array", [])]));
    }
    let subquery = match simple_item(query) {
        Some(item) => {
            let mut query = query.clone();
            let order = match query.order_by.take().map(|order| order.kind) {
                Some(OrderByKind::Expressions(order)) => order,
                _ => Vec::new(),
            };
            if let SetExpr::Select(select) = &mut *query.body {
                select.projection = vec![SelectItem::UnnamedExpr(aggregate(item, order))];
            }
            query
        }
        None => {
            let sql = format!("SELECT array_agg(item) FROM ({query}) AS collected(item)");
            parse_query(&sql).ok()?
        }
    };
    Some(call("coalesce", [Expr::Subquery(Box::new(subquery)), call("make_array", [])]))
}

/// A table without rows in the place of `pg_partition_ancestors(…)`, with the columns that it has: an oid, and its place.
fn no_ancestors(table: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, args: Some(_), alias, with_ordinality, .. } = table else {
        return None;
    };
    let place = if *with_ordinality { ", 1 AS ordinality" } else { "" };
    let name = last_of_system(name).filter(|name| name == "pg_partition_ancestors")?;
    let query = parse_query(&format!("SELECT CAST(NULL AS BIGINT) AS {name}{place} WHERE false"));
    Some(TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query.ok()?),
        alias: alias.clone(),
        sample: None,
    })
}

/// What `SELECT f(x) FROM unnest(list) AS x` gives, as a list: its query may use columns of the query around it so.
fn items_of_list(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && select.selection.is_none()
        && select.distinct.is_none();
    let [
        TableWithJoins {
            relation: TableFactor::Table { name, args: Some(args), alias, .. },
            joins,
        },
    ] = select.from.as_slice()
    else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))] = args.args.as_slice() else {
        return None;
    };
    let [SelectItem::UnnamedExpr(body) | SelectItem::ExprWithAlias { expr: body, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let alias = alias.as_ref()?;
    let name_of_item = match alias.columns.as_slice() {
        [] => alias.name.clone(),
        [column] => column.name.clone(),
        _ => return None,
    };
    if !is_plain || !joins.is_empty() || plain_name(name).as_deref() != Some("unnest") {
        return None;
    }
    let parameter = LambdaFunctionParameter { name: name_of_item, data_type: None };
    let lambda = Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::One(parameter),
        body: Box::new(body.clone()),
        syntax: LambdaSyntax::LambdaKeyword,
    });
    Some(call("list_transform", [list.clone(), lambda]))
}

/// The only item of a query that collects rows as they are, without groups, duplicates or limits.
fn simple_item(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    // A call may be one that returns rows, or an aggregate.
    let is_column = matches!(item, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    (is_plain && is_column).then(|| item.clone())
}

fn aggregate(item: Expr, mut order: Vec<OrderByExpr>) -> Expr {
    for by in &mut order {
        // A number stands for the only column.
        if let Expr::Value(value) = &by.expr
            && matches!(value.value, Value::Number(..))
        {
            by.expr = item.clone();
        }
    }
    let mut call = call("array_agg", [item]);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut call
        && !order.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
    call
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    fn rewritten(sql: &str) -> String {
        let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
        Forms::rewrite(&mut expr);
        expr.to_string()
    }

    #[test]
    fn the_forms_of_clients_are_put_in_other_terms() {
        for (from, to) in [
            ("pg_catalog.version()", "version()"),
            ("a OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default", "a ~ '^(t)$'"),
            ("'t'::pg_catalog.regclass::oid", "cast_to_regclass('t')::BIGINT"),
            ("'f'::pg_catalog.regproc::pg_catalog.oid", "number_of_regproc('f')"),
            ("c.oid::regclass", "cast_to_regclass(c.oid)"),
            ("x::pg_catalog.text", "x::TEXT"),
            ("x::\"char\"", "x::TEXT"),
            ("x = ANY ('{a,\"b,c\",NULL}'::text[])", "x = ANY(ARRAY['a', 'b,c', NULL]::TEXT[])"),
            ("x <> ALL ('{}')", "x <> ALL(ARRAY[])"),
            ("pol.polroles = '{0}'", "pol.polroles = ARRAY[0]"),
            ("t.x = '{0}'", "t.x = '{0}'"),
            (
                "array(select 'toast.' || x from pg_catalog.unnest(tc.reloptions) x)",
                "coalesce(list_transform(tc.reloptions, lambda x : 'toast.' || x), make_array())",
            ),
            ("current_user", "current_user()"),
            (
                "ARRAY(SELECT r.n FROM r WHERE r.o = 1 ORDER BY 1)",
                "coalesce((SELECT array_agg(r.n ORDER BY r.n) FROM r WHERE r.o = 1), make_array())",
            ),
        ] {
            assert_eq!(rewritten(from), to, "{from}");
        }
    }

    #[test]
    fn names_of_other_schemas_and_quoted_names_stay() {
        for text in ["\"current_user\"", "s.f(1)", "x::integer"] {
            assert_eq!(rewritten(text).to_lowercase(), text);
        }
    }
}
