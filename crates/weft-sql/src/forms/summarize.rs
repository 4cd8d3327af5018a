//! SUMMARIZE of a table, a file or a query: what its columns have, a row for each. One query computes it all over the rows, as lists with a value
//! for each column, which are unnested beside each other.

use datafusion::arrow::datatypes::DataType;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement};
use weft_store::Column;

use crate::catalog::StatementCatalog;
use crate::error::Result;
use crate::run::{Run, Started};
use crate::statement::parse_query;
use crate::text_kinds::column_of;
use crate::types::column_type_name;

impl Run {
    /// SUMMARIZE.
    pub(crate) async fn summarize(
        &self,
        catalog: &StatementCatalog,
        query: Query,
    ) -> Result<Started> {
        let text = query.to_string();
        let statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(query))));
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        let columns: Vec<Column> =
            plan.schema().fields().iter().map(|field| column_of(field)).collect();
        let summary = parse_query(&summary_of(&text, &columns))?;
        let statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(summary))));
        let plan = catalog.plan(&state, statement).await?;
        self.rows(&state, plan).await
    }
}

/// The query for the summary of a query with these columns.
fn summary_of(query: &str, columns: &[Column]) -> String {
    let of_each = |name: &str, value: &dyn Fn(usize, &Column) -> String| {
        let values: Vec<String> =
            columns.iter().enumerate().map(|(place, column)| value(place, column)).collect();
        format!("unnest([{}]) AS {name}", values.join(", "))
    };
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let shown = |value: String| format!("CAST({value} AS VARCHAR)");
    let none = || "CAST(NULL AS VARCHAR)".to_owned();
    let ordered = |function: &'static str| {
        move |place: usize, column: &Column| match column.data_type.is_nested()
            || column.data_type.is_null()
        {
            true => "CAST(NULL AS VARCHAR)".to_owned(),
            false => format!("CAST({function}(c{place}) AS VARCHAR)"),
        }
    };
    let number = |function: &'static str| {
        move |place: usize, column: &Column| match column.data_type.is_numeric() {
            true => format!("CAST({function}(CAST(c{place} AS DOUBLE)) AS VARCHAR)"),
            false => "CAST(NULL AS VARCHAR)".to_owned(),
        }
    };
    let quartile = |share: &'static str| {
        move |place: usize, column: &Column| match column.data_type.is_numeric() {
            true => {
                shown(format!("approx_percentile_cont({share}) WITHIN GROUP (ORDER BY c{place})"))
            }
            false => none(),
        }
    };
    let distinct = |place: usize, column: &Column| match is_countable(&column.data_type) {
        true => format!("CAST(approx_distinct(c{place}) AS BIGINT)"),
        false => "CAST(NULL AS BIGINT)".to_owned(),
    };
    let share_of_nulls = |place: usize, _: &Column| {
        format!(
            "CAST(round(100.0 * (count(*) - count(c{place})) / nullif(count(*), 0), 2) AS DECIMAL(9, 2))"
        )
    };
    let items = [
        of_each("column_name", &|_, column| text(&column.name)),
        of_each("column_type", &|_, column| text(&column_type_name(column))),
        of_each("min", &ordered("min")),
        of_each("max", &ordered("max")),
        of_each("approx_unique", &distinct),
        of_each("avg", &number("avg")),
        of_each("std", &number("stddev")),
        of_each("q25", &quartile("0.25")),
        of_each("q50", &quartile("0.5")),
        of_each("q75", &quartile("0.75")),
        of_each("count", &|_, _| "count(*)".to_owned()),
        of_each("null_percentage", &share_of_nulls),
    ];
    let names: Vec<String> = (0..columns.len()).map(|place| format!("c{place}")).collect();
    format!("SELECT {} FROM ({query}) AS s({})", items.join(", "), names.join(", "))
}

/// True of types whose different values are counted.
fn is_countable(data_type: &DataType) -> bool {
    !data_type.is_nested() && !data_type.is_null() && *data_type != DataType::Boolean
}
