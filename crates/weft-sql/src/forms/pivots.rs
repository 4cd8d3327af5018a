//! PIVOT, between its tokens (`tokens/pivots.rs`) and its query (`with_columns/pivots.rs`): the calls that hold what the grammar's PIVOT
//! cannot, and the values of columns that no list names. These are found by a query that runs before the statement is planned (`values.rs`).

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    PivotValueSource, Query, TableFactor, Value,
};

use crate::error::{ErrorKind, Result, SqlError};
use crate::functions::call;
use crate::statement::parse_query;

/// The columns whose values become columns.
pub(super) const ON: &str = "pivot_on";

/// The values of one of them.
pub(super) const VALUES: &str = "pivot_values";

/// All values of one of them, which are not known yet.
pub(super) const ANY: &str = "pivot_any";

/// All values of one of them, as texts.
pub(super) const TEXTS: &str = "pivot_texts";

/// A value and the name of its column.
pub(super) const NAMED: &str = "pivot_named";

/// An aggregate, and its name.
pub(super) const AGGREGATE: &str = "pivot_aggregate";

/// The keys of the rows.
pub(super) const GROUPS: &str = "pivot_groups";

/// Values of a column that become columns, at most.
pub(super) const VALUES_MAX: usize = 10_000;

/// The arguments of a call of this marker.
pub(super) fn arguments<'a>(expr: &'a Expr, marker: &str) -> Option<Vec<&'a Expr>> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    if name.to_string() != marker {
        return None;
    }
    let argument = |argument: &'a FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().map(argument).collect()
}

/// The columns of a PIVOT, and where the values of each come from.
pub(super) fn columns_and_sources(table: &TableFactor) -> Option<(Vec<&Expr>, Vec<&Expr>)> {
    let TableFactor::Pivot { value_column, value_source, .. } = table else { return None };
    let PivotValueSource::List(sources) = value_source else { return None };
    let [column] = value_column.as_slice() else { return None };
    let columns = arguments(column, ON)?;
    let sources: Vec<&Expr> = sources.iter().map(|source| &source.expr).collect();
    (columns.len() == sources.len()).then_some((columns, sources))
}

/// The query for the values of the first column of which they are not known.
pub(super) fn values_query(table: &TableFactor) -> Option<Result<Query>> {
    let (columns, sources) = columns_and_sources(table)?;
    let unknown = sources.iter().position(|source| arguments(source, ANY).is_some())?;
    let TableFactor::Pivot { table, .. } = table else { return None };
    let column = columns[unknown];
    Some(parse_query(&format!(
        "SELECT CAST(value AS VARCHAR) FROM (SELECT DISTINCT {column} AS value FROM {table}) AS t \
         WHERE value IS NOT NULL ORDER BY value"
    )))
}

/// Puts the values of the first column of which they are not known in their place.
///
/// # Errors
/// [`ErrorKind::Semantic`] for too many of them.
pub(super) fn put_values(table: &mut TableFactor, batches: &[RecordBatch]) -> Result<()> {
    let TableFactor::Pivot { value_source: PivotValueSource::List(sources), .. } = table else {
        return Ok(());
    };
    let is_unknown = |source: &&mut ExprWithAlias| arguments(&source.expr, ANY).is_some();
    let Some(source) = sources.iter_mut().find(is_unknown) else { return Ok(()) };
    let mut texts: Vec<Expr> = Vec::new();
    for batch in batches {
        let values = cast(batch.column(0), &DataType::Utf8View)?;
        let values = values.as_string_view();
        texts.extend((0..values.len()).map(|row| {
            Expr::Value(Value::SingleQuotedString(values.value(row).to_owned()).into())
        }));
        if texts.len() > VALUES_MAX {
            let message = format!("PIVOT would make over {VALUES_MAX} columns of values");
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("name the values that are wanted: ON column IN (…)"));
        }
    }
    source.expr = call(TEXTS, texts);
    Ok(())
}
