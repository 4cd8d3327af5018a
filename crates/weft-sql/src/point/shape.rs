//! What the text of a point query says: a table, what is selected of a row, and what its key is equal to.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, SelectItem, SetExpr, Statement, TableFactor, UnaryOperator,
};

use crate::change_statement::{table_factor, template};
use crate::error::Result;
use crate::statement::{self, Parsed, fold};
use crate::text::count_parameters;
use crate::value::Value;

/// Functions of values alone that may be called with what is selected.
const FUNCTIONS: [&str; 9] =
    ["abs", "ceil", "character_length", "coalesce", "concat", "floor", "lower", "substr", "upper"];

/// A query of the form `SELECT items FROM table WHERE column = value AND …`.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(super) table: ObjectName,
    /// The query without its condition. It has no parameters.
    pub(super) query: ast::Query,
    /// The columns of the condition, by their names in the catalog, and what they are equal to.
    pub(super) conditions: Vec<(String, Operand)>,
    /// How many parameters the statement has.
    pub(super) parameters: usize,
}

/// What a column is equal to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    /// The value of the parameter with this number, from 0 on.
    Parameter(usize),
    Constant(Value),
}

impl Shape {
    /// The shape of a statement; `None` if it is no point query.
    ///
    /// # Errors
    /// Those of parsing.
    pub(crate) fn of(sql: &str) -> Result<Option<Shape>> {
        let parameters = count_parameters(sql)?;
        let Parsed::Sql(statement) = statement::parse(sql)? else { return Ok(None) };
        let DfStatement::Statement(statement) = *statement else { return Ok(None) };
        let Statement::Query(query) = *statement else { return Ok(None) };
        of_query(*query, parameters)
    }
}

fn of_query(mut query: ast::Query, parameters: usize) -> Result<Option<Shape>> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(None) };
    let Some(condition) = select.selection.take() else { return Ok(None) };
    let [from] = select.from.as_slice() else { return Ok(None) };
    let TableFactor::Table { name, alias, .. } = &from.relation else { return Ok(None) };
    let has_columns = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    let Some(last) = name.0.last().and_then(ObjectNamePart::as_ident) else { return Ok(None) };
    let called = alias.as_ref().map_or(last, |alias| &alias.name).clone();
    if has_columns || !from.joins.is_empty() || !is_plain(&from.relation)? {
        return Ok(None);
    }
    let table = name.clone();
    if !select.projection.iter().all(is_simple_item) || !is_without_more(&query)? {
        return Ok(None);
    }
    let mut conditions = Vec::new();
    let are_equalities = add_equalities(&condition, &folded(&called), &mut conditions);
    Ok(are_equalities.then_some(Shape { table, query, conditions, parameters }))
}

/// Whether a table stands there by its name, and perhaps an alias, alone.
pub(super) fn is_plain(relation: &TableFactor) -> Result<bool> {
    let TableFactor::Table { name, alias, .. } = relation else { return Ok(false) };
    let mut plain = table_factor(name.clone(), &Ident::new("t"))?;
    if let TableFactor::Table { alias: of_plain, .. } = &mut plain {
        of_plain.clone_from(alias);
    }
    Ok(plain == *relation)
}

/// Whether a query has nothing but a select list and FROM.
fn is_without_more(query: &ast::Query) -> Result<bool> {
    let mut plain = template()?;
    if let (SetExpr::Select(plain), SetExpr::Select(select)) =
        (plain.body.as_mut(), query.body.as_ref())
    {
        plain.projection.clone_from(&select.projection);
        plain.from.clone_from(&select.from);
    }
    Ok(*plain == *query)
}

pub(super) fn is_simple_item(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            is_simple(expr, Leaves::Columns)
        }
        SelectItem::Wildcard(options) => *options == ast::WildcardAdditionalOptions::default(),
        SelectItem::QualifiedWildcard(..) | SelectItem::ExprWithAliases { .. } => false,
    }
}

/// What simple expressions are made of, beside constants.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Leaves {
    Columns,
    ColumnsAndParameters,
}

/// Whether an expression depends on nothing but the columns of a row, and the parameters if these are among its leaves: not on the
/// time, the session or other rows.
pub(super) fn is_simple(expr: &Expr, leaves: Leaves) -> bool {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Value(value) => {
            leaves == Leaves::ColumnsAndParameters
                || !matches!(value.value, ast::Value::Placeholder(_))
        }
        Expr::Nested(inner)
        | Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::UnaryOp { expr: inner, .. } => is_simple(inner, leaves),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, .. } => {
            is_simple(inner, leaves)
        }
        Expr::BinaryOp { left, op, right } => {
            is_simple_operator(op) && is_simple(left, leaves) && is_simple(right, leaves)
        }
        Expr::Function(function) => is_simple_call(function, leaves),
        _ => false,
    }
}

fn is_simple_operator(op: &BinaryOperator) -> bool {
    use BinaryOperator as Op;
    matches!(
        op,
        Op::Plus
            | Op::Minus
            | Op::Multiply
            | Op::Divide
            | Op::Modulo
            | Op::StringConcat
            | Op::Eq
            | Op::NotEq
            | Op::Lt
            | Op::LtEq
            | Op::Gt
            | Op::GtEq
            | Op::And
            | Op::Or
    )
}

fn is_simple_call(function: &ast::Function, leaves: Leaves) -> bool {
    let is_known = matches!(function.name.0.as_slice(), [part]
        if part.as_ident().is_some_and(|name| FUNCTIONS.contains(&folded(name).as_str())));
    let has_more = function.uses_odbc_syntax
        || function.parameters != FunctionArguments::None
        || function.filter.is_some()
        || function.null_treatment.is_some()
        || function.over.is_some()
        || !function.within_group.is_empty();
    let FunctionArguments::List(list) = &function.args else { return false };
    let is_argument = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => is_simple(expr, leaves),
        _ => false,
    };
    let is_list = list.duplicate_treatment.is_none() && list.clauses.is_empty();
    is_known && !has_more && is_list && list.args.iter().all(is_argument)
}

/// Adds the columns that a condition has equal to values; false if it says anything else.
pub(super) fn add_equalities(
    condition: &Expr,
    table: &str,
    conditions: &mut Vec<(String, Operand)>,
) -> bool {
    match condition {
        Expr::Nested(inner) => add_equalities(inner, table, conditions),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            add_equalities(left, table, conditions) && add_equalities(right, table, conditions)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let (column, value) = match column_of(left, table) {
                Some(column) => (column, right),
                None => match column_of(right, table) {
                    Some(column) => (column, left),
                    None => return false,
                },
            };
            let is_first = conditions.iter().all(|(before, _)| *before != column);
            match operand(value).filter(|_| is_first) {
                Some(operand) => {
                    conditions.push((column, operand));
                    true
                }
                None => false,
            }
        }
        _ => false,
    }
}

fn column_of(expr: &Expr, table: &str) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(names) => match names.as_slice() {
            [of, name] if folded(of) == table => Some(folded(name)),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn operand(expr: &Expr) -> Option<Operand> {
    if let Expr::Value(value) = expr
        && let ast::Value::Placeholder(name) = &value.value
    {
        let number: usize = name.strip_prefix('$')?.parse().ok()?;
        return Some(Operand::Parameter(number.checked_sub(1)?));
    }
    constant(expr).map(Operand::Constant)
}

/// The value of a constant of SQL, if its type is clear.
pub(crate) fn constant(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Nested(inner) => constant(inner),
        Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, false) => digits.parse().ok().map(Value::Integer),
            ast::Value::SingleQuotedString(text) => Some(Value::Text(text.clone())),
            ast::Value::Boolean(value) => Some(Value::Boolean(*value)),
            ast::Value::Null => Some(Value::Null),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match constant(expr)? {
            Value::Integer(value) => value.checked_neg().map(Value::Integer),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn folded(name: &Ident) -> String {
    fold(name.value.clone(), name.quote_style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(sql: &str) -> Option<Vec<(String, Operand)>> {
        Shape::of(sql).unwrap().map(|shape| shape.conditions)
    }

    #[test]
    fn equalities_are_found() {
        let id = |operand| Some(vec![("id".to_owned(), operand)]);
        assert_eq!(conditions("SELECT a FROM t WHERE id = $1"), id(Operand::Parameter(0)));
        assert_eq!(conditions("select * from s.t x where ? = X.ID;"), id(Operand::Parameter(0)));
        let minus_one = Operand::Constant(Value::Integer(-1));
        assert_eq!(conditions("SELECT a + 1, upper(s) AS u FROM t WHERE (id = -1)"), id(minus_one));
        let both = conditions("SELECT 1 FROM t WHERE \"A\" = 'x' AND b = $2").unwrap();
        let text = Operand::Constant(Value::Text("x".to_owned()));
        assert_eq!(both, [("A".to_owned(), text), ("b".to_owned(), Operand::Parameter(1))]);
    }

    #[test]
    fn other_statements_have_no_shape() {
        for sql in [
            "SELECT a FROM t",
            "SELECT a FROM t WHERE id > $1",
            "SELECT a FROM t WHERE id = $1 OR id = $2",
            "SELECT a FROM t WHERE id = $1 AND id = $2",
            "SELECT a FROM t WHERE id = a",
            "SELECT a FROM t WHERE other.id = $1",
            "SELECT a FROM t WHERE id = $1 + 1",
            "SELECT DISTINCT a FROM t WHERE id = $1",
            "SELECT a FROM t WHERE id = $1 LIMIT 1",
            "SELECT a FROM t WHERE id = $1 ORDER BY a",
            "SELECT a FROM t WHERE id = $1 GROUP BY a",
            "SELECT a FROM t, u WHERE id = $1",
            "SELECT a FROM t JOIN u ON true WHERE id = $1",
            "SELECT a FROM t TABLESAMPLE 10% WHERE id = $1",
            "SELECT a FROM t AS t(a, id) WHERE id = $1",
            "SELECT count(*) FROM t WHERE id = $1",
            "SELECT random() FROM t WHERE id = $1",
            "SELECT current_date FROM t WHERE id = $1",
            "SELECT (SELECT 1) FROM t WHERE id = $1",
            "SELECT $2 FROM t WHERE id = $1",
            "SELECT * EXCLUDE (a) FROM t WHERE id = $1",
            "SELECT a FROM t WHERE id = $1 UNION SELECT 1",
            "WITH t AS (SELECT 1 AS id, 2 AS a) SELECT a FROM t WHERE id = $1",
            "EXPLAIN SELECT a FROM t WHERE id = $1",
            "DELETE FROM t WHERE id = $1",
            "SHOW TABLES",
        ] {
            assert_eq!(conditions(sql), None, "{sql}");
        }
    }
}
