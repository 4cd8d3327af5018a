//! Functions that people know from DuckDB and PostgreSQL and that DataFusion lacks, in terms of those
//! that it has.
//!
//! A call is replaced before it is planned by the expression that stands for it in the list. What
//! follows a call of an aggregate function (DISTINCT, FILTER, OVER) goes to the aggregate in it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{ErrorKind, SqlError};
use crate::text::DIALECT;

/// `name(parameters) = expression`, one for each number of arguments.
const DEFINITIONS: &str = "
sign(x) = CAST(CASE WHEN x > 0 THEN 1 WHEN x < 0 THEN -1 WHEN x IS NOT NULL THEN 0 END AS TINYINT)
mod(x, y) = x % y
fmod(x, y) = CAST(x AS DOUBLE) % CAST(y AS DOUBLE)
fdiv(x, y) = floor(CAST(x AS DOUBLE) / CAST(y AS DOUBLE))
divide(x, y) = x / y
multiply(x, y) = x * y
add(x, y) = x + y
subtract(x, y) = x - y
xor(x, y) = (x | y) - (x & y)
ceiling(x) = ceil(x)
isinf(x) = abs(x) = CAST('inf' AS DOUBLE)
isfinite(x) = abs(x) < CAST('inf' AS DOUBLE)
greatest_common_divisor(x, y) = gcd(x, y)
least_common_multiple(x, y) = lcm(x, y)
if(condition, x, y) = CASE WHEN condition THEN x ELSE y END
iff(condition, x, y) = CASE WHEN condition THEN x ELSE y END
pg_typeof(x) = typeof(x)
gen_random_uuid() = uuid()
uuidv4() = uuid()
len(x) = character_length(x)
strlen(x) = octet_length(x)
lcase(x) = lower(x)
ucase(x) = upper(x)
unicode(x) = CASE WHEN x = '' THEN -1 ELSE ascii(x) END
ord(x) = CASE WHEN x = '' THEN -1 ELSE ascii(x) END
prefix(x, y) = starts_with(x, y)
suffix(x, y) = ends_with(x, y)
editdist3(x, y) = levenshtein(x, y)
split(x, separator) = string_to_array(x, separator)
str_split(x, separator) = string_to_array(x, separator)
string_split(x, separator) = string_to_array(x, separator)
regexp_matches(x, pattern) = regexp_like(x, pattern)
regexp_matches(x, pattern, flags) = regexp_like(x, pattern, flags)
regexp_full_match(x, pattern) = regexp_like(x, '^(?:' || pattern || ')$')
regexp_extract(x, pattern) = CASE WHEN x IS NOT NULL THEN coalesce(regexp_match(x, '(' || pattern || ')')[1], '') END
regexp_extract(x, pattern, place) = CASE WHEN x IS NOT NULL THEN coalesce(regexp_match(x, '(' || pattern || ')')[place + 1], '') END
to_base64(x) = encode(x, 'base64pad')
base64(x) = encode(x, 'base64pad')
from_base64(x) = decode(x, 'base64pad')
unhex(x) = decode(x, 'hex')
from_hex(x) = decode(x, 'hex')
century(x) = CASE WHEN date_part('year', x) > 0 THEN (CAST(date_part('year', x) AS BIGINT) + 99) / 100 ELSE CAST(date_part('year', x) AS BIGINT) / 100 - 1 END
millennium(x) = CASE WHEN date_part('year', x) > 0 THEN (CAST(date_part('year', x) AS BIGINT) + 999) / 1000 ELSE CAST(date_part('year', x) AS BIGINT) / 1000 - 1 END
year(x) = CAST(date_part('year', x) AS BIGINT)
quarter(x) = CAST(date_part('quarter', x) AS BIGINT)
month(x) = CAST(date_part('month', x) AS BIGINT)
week(x) = CAST(date_part('week', x) AS BIGINT)
weekofyear(x) = CAST(date_part('week', x) AS BIGINT)
day(x) = CAST(date_part('day', x) AS BIGINT)
dayofmonth(x) = CAST(date_part('day', x) AS BIGINT)
dayofweek(x) = CAST(date_part('dow', x) AS BIGINT)
weekday(x) = CAST(date_part('dow', x) AS BIGINT)
isodow(x) = CAST((date_part('dow', x) + 6) % 7 + 1 AS BIGINT)
last_day(x) = CAST(date_trunc('month', x) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)
dayofyear(x) = CAST(date_part('doy', x) AS BIGINT)
hour(x) = CAST(date_part('hour', x) AS BIGINT)
minute(x) = CAST(date_part('minute', x) AS BIGINT)
second(x) = CAST(date_part('second', x) AS BIGINT)
decade(x) = CAST(date_part('year', x) AS BIGINT) / 10
epoch(x) = date_part('epoch', x)
epoch_us(x) = CAST(CAST(x AS TIMESTAMP) AS BIGINT)
epoch_ms(x) = CAST(CAST(x AS TIMESTAMP) AS BIGINT) / 1000
epoch_ns(x) = CAST(CAST(x AS TIMESTAMP) AS BIGINT) * 1000
dayname(x) = to_char(x, '%A')
monthname(x) = to_char(x, '%B')
strftime(x, format) = to_char(x, format)
strptime(x, format) = CAST(to_timestamp(x, format) AS TIMESTAMP)
make_timestamp(x) = CAST(CAST(x AS BIGINT) AS TIMESTAMP)
make_timestamp(y, mo, d, h, mi, s) = CAST(CAST(make_date(y, mo, d) AS VARCHAR) || ' ' || lpad(CAST(h AS VARCHAR), 2, '0') || ':' || lpad(CAST(mi AS VARCHAR), 2, '0') || ':' || CASE WHEN s < 10 THEN '0' ELSE '' END || CAST(CAST(s AS DECIMAL(8, 6)) AS VARCHAR) AS TIMESTAMP)
last_day(x) = CAST(date_trunc('month', x) + INTERVAL '1' MONTH - INTERVAL '1' DAY AS DATE)
date_add(x, y) = x + y
transaction_timestamp() = now()
get_current_timestamp() = now()
localtimestamp() = CAST(now() AS TIMESTAMP)
current_localtimestamp() = CAST(now() AS TIMESTAMP)
to_years(x) = CAST(CAST(x AS VARCHAR) || ' years' AS INTERVAL)
to_months(x) = CAST(CAST(x AS VARCHAR) || ' months' AS INTERVAL)
to_weeks(x) = CAST(CAST(x AS VARCHAR) || ' weeks' AS INTERVAL)
to_days(x) = CAST(CAST(x AS VARCHAR) || ' days' AS INTERVAL)
to_hours(x) = CAST(CAST(x AS VARCHAR) || ' hours' AS INTERVAL)
to_minutes(x) = CAST(CAST(x AS VARCHAR) || ' minutes' AS INTERVAL)
to_seconds(x) = CAST(CAST(x AS VARCHAR) || ' seconds' AS INTERVAL)
date_diff_decade(x, y) = CAST(date_part('year', y) / 10 - date_part('year', x) / 10 AS BIGINT)
date_diff_year(x, y) = CAST(date_part('year', y) - date_part('year', x) AS BIGINT)
date_diff_quarter(x, y) = CAST((date_part('year', y) - date_part('year', x)) * 4 + date_part('quarter', y) - date_part('quarter', x) AS BIGINT)
date_diff_month(x, y) = CAST((date_part('year', y) - date_part('year', x)) * 12 + date_part('month', y) - date_part('month', x) AS BIGINT)
date_diff_week(x, y) = CAST(CAST(y AS DATE) - CAST(x AS DATE) AS BIGINT) / 7
date_diff_day(x, y) = CAST(CAST(y AS DATE) - CAST(x AS DATE) AS BIGINT)
date_diff_hour(x, y) = (CAST(date_trunc('hour', CAST(y AS TIMESTAMP)) AS BIGINT) - CAST(date_trunc('hour', CAST(x AS TIMESTAMP)) AS BIGINT)) / 3600000000
date_diff_minute(x, y) = (CAST(date_trunc('minute', CAST(y AS TIMESTAMP)) AS BIGINT) - CAST(date_trunc('minute', CAST(x AS TIMESTAMP)) AS BIGINT)) / 60000000
date_diff_second(x, y) = (CAST(date_trunc('second', CAST(y AS TIMESTAMP)) AS BIGINT) - CAST(date_trunc('second', CAST(x AS TIMESTAMP)) AS BIGINT)) / 1000000
date_diff_millisecond(x, y) = (CAST(date_trunc('millisecond', CAST(y AS TIMESTAMP)) AS BIGINT) - CAST(date_trunc('millisecond', CAST(x AS TIMESTAMP)) AS BIGINT)) / 1000
date_diff_microsecond(x, y) = CAST(CAST(y AS TIMESTAMP) AS BIGINT) - CAST(CAST(x AS TIMESTAMP) AS BIGINT)
list_unique(x) = array_length(array_distinct(x))
list_reverse_sort(x) = array_sort(x, 'DESC')
array_reverse_sort(x) = array_sort(x, 'DESC')
approx_count_distinct(x) = approx_distinct(x)
approx_quantile(x, fraction) = approx_percentile_cont(x, fraction)
arbitrary(x) = first_value(x)
first(x) = first_value(x)
last(x) = last_value(x)
arg_max(x, y) = first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
argmax(x, y) = first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
max_by(x, y) = first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
arg_min(x, y) = first_value(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
argmin(x, y) = first_value(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
min_by(x, y) = first_value(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL)
count_star() = count(*)
count_if(condition) = count(CASE WHEN condition THEN 1 END)
countif(condition) = count(CASE WHEN condition THEN 1 END)
every(condition) = bool_and(condition)
variance(x) = var_samp(x)
sem(x) = stddev_pop(x) / sqrt(CAST(count(x) AS DOUBLE))
geomean(x) = exp(avg(ln(x)))
geometric_mean(x) = exp(avg(ln(x)))
list(x) = array_agg(x)
group_concat(x) = string_agg(x, ',')
group_concat(x, separator) = string_agg(x, separator)
listagg(x) = string_agg(x, ',')
listagg(x, separator) = string_agg(x, separator)
string_agg(x) = string_agg(x, ',')
rank_dense() = dense_rank()
";

/// Aggregate and window functions in the definitions.
const AGGREGATES: [&str; 14] = [
    "approx_distinct",
    "approx_percentile_cont",
    "array_agg",
    "avg",
    "bool_and",
    "count",
    "dense_rank",
    "first_value",
    "last_value",
    "stddev_pop",
    "string_agg",
    "sum",
    "var_samp",
    "var_pop",
];

/// A function: its parameters, and what stands for a call.
struct Definition {
    parameters: Vec<String>,
    body: Expr,
}

/// The functions by name and number of arguments.
static FUNCTIONS: LazyLock<HashMap<(String, usize), Definition>> =
    LazyLock::new(|| DEFINITIONS.lines().filter(|line| !line.is_empty()).map(parse).collect());

/// Names in the list that DataFusion does not have, for completion.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let names = FUNCTIONS.keys().map(|(name, _)| name);
    let names = names.filter(|name| !name.starts_with(DATE_DIFF)).cloned();
    names.chain(["date_diff".to_owned(), "datediff".to_owned()])
}

/// Start of the names of definitions for `date_diff` with one part of a date each.
const DATE_DIFF: &str = "date_diff_";

fn parse(line: &str) -> ((String, usize), Definition) {
    let definition = || {
        let (head, body) = line.split_once(" = ")?;
        let (name, parameters) = head.strip_suffix(')')?.split_once('(')?;
        let parameters: Vec<String> = parameters
            .split(", ")
            .filter(|parameter| !parameter.is_empty())
            .map(str::to_owned)
            .collect();
        let mut parser = Parser::new(&DIALECT).try_with_sql(body).ok()?;
        let body = parser.parse_expr().ok()?;
        Some(((name.to_owned(), parameters.len()), Definition { parameters, body }))
    };
    definition().unwrap_or_else(|| panic!("not a definition of a function: {line}"))
}

/// Replaces a call of one of the functions by what stands for it.
pub(crate) fn rewrite(expr: &mut Expr) -> ControlFlow<SqlError> {
    let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
    let mut name = function.name.to_string().to_lowercase();
    let Some(mut arguments) = arguments_of(function) else { return ControlFlow::Continue(()) };
    if matches!(name.as_str(), "date_diff" | "datediff") && arguments.len() == 3 {
        name = format!("{DATE_DIFF}{}", date_part(&arguments.remove(0))?);
    }
    if matches!(name.as_str(), "date_part" | "datepart")
        && let [Expr::Value(part), _] = &arguments[..]
        && let Some(part) = part.value.clone().into_string().map(|part| part.to_lowercase())
        && matches!(part.as_str(), "century" | "decade" | "millennium")
    {
        name = part;
        arguments.remove(0);
    }
    let Some(definition) = FUNCTIONS.get(&(name, arguments.len())) else {
        return ControlFlow::Continue(());
    };
    let mut body = definition.body.clone();
    let mut call =
        Call { parameters: &definition.parameters, arguments: &arguments, outer: function };
    body.visit(&mut call)?;
    *expr = match body {
        // Beside an operator, a body with operators keeps together.
        body @ (Expr::BinaryOp { .. } | Expr::UnaryOp { .. }) => Expr::Nested(Box::new(body)),
        body => body,
    };
    ControlFlow::Continue(())
}

/// A call of a function.
pub(crate) fn call(name: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let unnamed = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The arguments of a call, if they are expressions.
fn arguments_of(function: &Function) -> Option<Vec<Expr>> {
    match &function.args {
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            })
            .collect(),
    }
}

/// The part of a date that `date_diff` counts.
fn date_part(expr: &Expr) -> ControlFlow<SqlError, String> {
    let part = match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(part) => Some(part.to_lowercase()),
            _ => None,
        },
        Expr::Identifier(part) => Some(part.value.to_lowercase()),
        _ => None,
    };
    let part = part.map(|part| part.trim_end_matches('s').to_owned());
    match part {
        Some(part) if FUNCTIONS.contains_key(&(format!("{DATE_DIFF}{part}"), 2)) => {
            ControlFlow::Continue(part)
        }
        _ => ControlFlow::Break(
            SqlError::new(ErrorKind::Semantic, format!("date_diff cannot count {expr}")).with_hint(
                "the first argument is 'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', \
                 'second', 'millisecond' or 'microsecond'",
            ),
        ),
    }
}

/// Puts arguments in place of parameters, and what follows the call behind the aggregate in the body.
struct Call<'a> {
    parameters: &'a [String],
    arguments: &'a [Expr],
    outer: &'a Function,
}

impl VisitorMut for Call<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Identifier(name) if name.quote_style.is_none() => {
                let at = self.parameters.iter().position(|parameter| *parameter == name.value);
                if let Some(at) = at {
                    *expr = Expr::Nested(Box::new(self.arguments[at].clone()));
                }
            }
            Expr::Function(function)
                if AGGREGATES.contains(&function.name.to_string().as_str()) =>
            {
                self.follow(function);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Call<'_> {
    fn follow(&self, function: &mut Function) {
        let outer = self.outer;
        function.over.clone_from(&outer.over);
        if outer.null_treatment.is_some() {
            function.null_treatment = outer.null_treatment;
        }
        function.filter = match (function.filter.take(), outer.filter.clone()) {
            (Some(left), Some(right)) => Some(Box::new(Expr::BinaryOp {
                left: Box::new(Expr::Nested(left)),
                op: BinaryOperator::And,
                right: Box::new(Expr::Nested(right)),
            })),
            (left, right) => left.or(right),
        };
        if let (FunctionArguments::List(to), FunctionArguments::List(from)) =
            (&mut function.args, &outer.args)
        {
            to.duplicate_treatment = from.duplicate_treatment;
            if to.clauses.is_empty() {
                to.clauses.clone_from(&from.clauses);
            }
        }
        if function.within_group.is_empty() {
            function.within_group.clone_from(&outer.within_group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
        match rewrite(&mut expr) {
            ControlFlow::Continue(()) => expr.to_string(),
            ControlFlow::Break(error) => error.to_string(),
        }
    }

    #[test]
    fn arguments_stand_for_parameters() {
        assert_eq!(rewritten("mod(a + 1, b)"), "((a + 1) % (b))");
        assert_eq!(rewritten("mod(a)"), "mod(a)");
        assert_eq!(rewritten("unknown(a)"), "unknown(a)");
    }

    #[test]
    fn what_follows_a_call_goes_to_its_aggregate() {
        assert_eq!(
            rewritten("count_if(a) FILTER (WHERE b) OVER (PARTITION BY c)"),
            "count(CASE WHEN (a) THEN 1 END) FILTER (WHERE b) OVER (PARTITION BY c)"
        );
        assert_eq!(rewritten("list(DISTINCT a ORDER BY b)"), "array_agg(DISTINCT (a) ORDER BY b)");
    }

    #[test]
    fn differences_of_dates_are_counted_in_parts() {
        assert!(rewritten("date_diff('days', a, b)").contains("CAST((b) AS DATE)"));
        assert_eq!(rewritten("date_diff('fortnight', a, b)"), "date_diff cannot count 'fortnight'");
    }
}
