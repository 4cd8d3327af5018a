//! Assignment: what a query returns becomes rows of a table. Values are cast as CAST casts them, and must
//! be there where a column is NOT NULL and be no longer than a column allows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::catalog::empty::EmptyTable;
use datafusion::common::{Column as ColumnName, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_expr::PhysicalExpr;
use weft_store::{Column, TableSchema};

use crate::enums::ENUM;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::keys::Checks;
use crate::optimize::analyzed;
use crate::text_casts::cast_to;
use crate::text_kinds::{TextKind, declared_length, marked};

/// The name of what is assigned, while the casts are planned.
const SOURCE: &str = "source";

/// Characters of a value that is too long which its error shows.
const SHOWN_MAX: usize = 40;

/// Turns batches of one schema into those of a table.
#[derive(Debug)]
pub(crate) struct Assignment {
    schema: TableSchema,
    arrow: SchemaRef,
    /// A cast for each column that needs one.
    casts: Vec<Option<Arc<dyn PhysicalExpr>>>,
    checks: Checks,
}

impl Assignment {
    /// The assignment of batches with the columns of `source` to the columns of a table, by position.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`], with the column's name, for types that cannot be cast.
    pub(crate) fn new(
        state: &SessionState,
        schema: &TableSchema,
        source: &Schema,
    ) -> Result<Assignment> {
        let arrow = schema.arrow_schema();
        let marked = marked_schema(schema);
        if source.fields().len() != arrow.fields().len() {
            return Err(internal("a query has not as many columns as the table that it fills"));
        }
        let pairs = source.fields().iter().zip(marked.fields());
        let casts = pairs
            .map(|(from, to)| {
                let kind = TextKind::of_field(to);
                // Texts of an enumeration are looked at even where the plan says that they are labels.
                let same = from.data_type() == to.data_type()
                    && TextKind::of_field(from) == kind
                    && !matches!(kind, Some(TextKind::Enum(_)));
                let cast = || {
                    plan_cast(state, from, to)
                        .map_err(|error| in_column(&error, &schema.name, to.name()))
                };
                (!same).then(cast).transpose()
            })
            .collect::<Result<_>>()?;
        Ok(Assignment { schema: schema.clone(), arrow, casts, checks: Checks::default() })
    }

    /// The same to a table whose rows have to satisfy conditions.
    pub(crate) fn with_checks(self, checks: Checks) -> Assignment {
        Assignment { checks, ..self }
    }

    /// The batch with the table's types, checked.
    ///
    /// # Errors
    /// [`ErrorKind::Data`], with the column's name, for values that do not fit; [`ErrorKind::CheckViolation`].
    pub(crate) fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
        for (number, column) in self.schema.columns.iter().enumerate() {
            let array = self.column(number, batch)?;
            if !column.nullable && array.logical_null_count() > 0 {
                return Err(not_null(&self.schema.name, &column.name));
            }
            check_length(&self.schema.name, column, &array)?;
            columns.push(array);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.arrow), columns)?;
        self.checks.check(&self.schema.name, &batch)?;
        Ok(batch)
    }

    /// A column of the batch with the table's type.
    ///
    /// # Errors
    /// [`ErrorKind::Data`], with the column's name, for values that cannot be cast.
    pub(crate) fn column(&self, number: usize, batch: &RecordBatch) -> Result<ArrayRef> {
        let Some(cast) = &self.casts[number] else { return Ok(Arc::clone(batch.column(number))) };
        let cast = cast.evaluate(&batch.project(&[number])?);
        cast.and_then(|value| value.into_array(batch.num_rows())).map_err(|error| {
            let column = &self.schema.columns[number].name;
            in_column(&SqlError::from(error), &self.schema.name, column)
        })
    }
}

/// The schema of a table's rows, in which JSON, UUIDs and enumerations are marked.
pub(crate) fn marked_schema(schema: &TableSchema) -> SchemaRef {
    let arrow = schema.arrow_schema();
    let fields = arrow.fields().iter().zip(&schema.columns);
    let fields = fields.map(|(field, column)| marked(field.as_ref().clone(), column));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A cast of a batch's column, after all rules that change what casts do.
fn plan_cast(state: &SessionState, from: &Field, to: &Field) -> Result<Arc<dyn PhysicalExpr>> {
    let mut from = from.clone().with_name(SOURCE).with_nullable(true);
    from.metadata_mut().remove(ENUM);
    let schema = Arc::new(Schema::new(vec![from]));
    let source = provider_as_source(Arc::new(EmptyTable::new(schema)));
    let scan = LogicalPlanBuilder::scan(TableReference::bare(SOURCE), source, None)?;
    let value = Expr::Column(ColumnName::new(Some(SOURCE), SOURCE));
    let cast = match TextKind::of_field(to) {
        Some(_) => Expr::Cast(Cast::new_from_field(Box::new(value), Arc::new(to.clone()))),
        None => cast_to(value, to.data_type(), scan.schema())?,
    };
    let plan = scan.project([cast])?.build()?;
    let plan = analyzed(state, plan, || {})?;
    match plan {
        LogicalPlan::Projection(plan) => match plan.expr.as_slice() {
            [cast] => Ok(state.create_physical_expr(cast.clone(), plan.input.schema())?),
            _ => Err(internal("a cast is planned as several")),
        },
        _ => Err(internal("a cast is planned as something else")),
    }
}

/// An error of a value for a column.
pub(crate) fn in_column(error: &SqlError, table: &str, column: &str) -> SqlError {
    let message = format!("column {column} of table {table}: {}", error.message());
    error.clone().with_message(message).about(column)
}

/// NULL for a column that must have a value.
pub(crate) fn not_null(table: &str, column: &str) -> SqlError {
    SqlError::new(
        ErrorKind::Data,
        format!("column {column} of table {table} is NOT NULL, but a row has NULL there"),
    )
}

/// Checks that no value is longer than its column allows.
fn check_length(table: &str, column: &Column, array: &ArrayRef) -> Result<()> {
    let declared = declared_length(column.max_length);
    let Some(max) = declared.and_then(|max| usize::try_from(max).ok()) else {
        return Ok(());
    };
    let (unit, found) = match array.data_type() {
        DataType::Utf8View => {
            let mut texts = array.as_string_view().iter().flatten();
            // No text has more characters than bytes.
            let longer = |text: &&str| text.len() > max && text.chars().count() > max;
            let found = texts.find(longer).map(|text| {
                let start: String = text.chars().take(SHOWN_MAX).collect();
                let more = if start.len() < text.len() { "…" } else { "" };
                format!("{}: '{start}{more}'", text.chars().count())
            });
            ("characters", found)
        }
        DataType::BinaryView => {
            let mut values = array.as_binary_view().iter().flatten();
            let found = values.find(|value| value.len() > max);
            ("bytes", found.map(|value| value.len().to_string()))
        }
        _ => return Ok(()),
    };
    let Some(found) = found else { return Ok(()) };
    let name = &column.name;
    let message =
        format!("column {name} of table {table} holds at most {max} {unit}, but a row has {found}");
    Err(SqlError::new(ErrorKind::Data, message).about(name))
}
