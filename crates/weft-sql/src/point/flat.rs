//! Projections of one relation as expressions over the columns of its rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as ColumnName, DFSchema, Result as DfResult, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Volatility};
use datafusion::physical_expr::PhysicalExpr;

use super::change_shape::is_parameter;
use crate::error::Result;
use crate::types::ZONE;

/// The column that has the time at which the statement starts.
const NOW: &str = "now\n";

/// Expressions that depend on nothing but the columns of a row, the time at which the statement starts, and values of sequences.
#[derive(Debug)]
pub(super) struct FlatExprs {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// The parts of the expressions that no column of a row is in: an error of theirs is one of the statement without a row, too.
    constants: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns of the relation, the time, and a column for each value of a sequence.
    base: SchemaRef,
    /// The sequences of which a value is taken, as they are named.
    pub(super) sequences: Vec<String>,
}

impl FlatExprs {
    /// The first `count` columns of an analyzed plan, if it is nothing but projections of one relation; all of them without `count`.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) fn of(
        state: &SessionState,
        plan: &LogicalPlan,
        count: Option<usize>,
    ) -> Result<Option<FlatExprs>> {
        let (Some(relation), Some(mut exprs)) = (relation_of(plan), flattened(plan)?) else {
            return Ok(None);
        };
        exprs.truncate(count.unwrap_or(exprs.len()));
        let mut sequences = Vec::new();
        for expr in &mut exprs {
            let before = sequences.len();
            let bound = std::mem::take(expr).transform_down(|expr| bind(expr, &mut sequences))?;
            *expr = bound.data;
            if !holds(expr, is_pure)? || sequences.len() > before && !holds(expr, has_all_parts)? {
                return Ok(None);
            }
        }
        let mut fields: Vec<Field> =
            relation.fields().iter().map(|of| of.as_ref().clone()).collect();
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into()));
        fields.push(Field::new(NOW, time, false));
        let values =
            (0..sequences.len()).map(|number| Field::new(value(number), DataType::Int64, true));
        fields.extend(values);
        let base = Arc::new(Schema::new(fields));
        let schema = DFSchema::try_from(Arc::clone(&base))?;
        let mut constants = Vec::new();
        for expr in &exprs {
            constants.append(&mut constant_parts(expr)?);
        }
        let compiled = |exprs: Vec<Expr>| {
            let exprs = exprs.into_iter().map(|expr| state.create_physical_expr(expr, &schema));
            exprs.collect::<DfResult<Vec<_>>>()
        };
        let (exprs, constants) = (compiled(exprs)?, compiled(constants)?);
        Ok(Some(FlatExprs { exprs, constants, base, sequences }))
    }

    /// Computes what is computed without a row, of the columns of the relation with NULL in those of the row.
    ///
    /// # Errors
    /// What goes wrong with a part of an expression that no column of a row is in.
    pub(super) fn check_constants(&self, parameters: Vec<ArrayRef>, now: i64) -> Result<()> {
        if self.constants.is_empty() {
            return Ok(());
        }
        let null = |of: &Arc<Field>| new_null_array(of.data_type(), 1);
        let (of_relation, of_sequences) =
            self.base.fields().split_at(self.base.fields().len() - self.sequences.len());
        let of_row = of_relation.len() - parameters.len() - 1;
        let mut columns: Vec<ArrayRef> = of_relation.iter().take(of_row).map(null).collect();
        columns.extend(parameters);
        columns.push(time(now)?);
        columns.extend(of_sequences.iter().map(null));
        let fields = self.base.fields().iter();
        let fields = fields.map(|of| of.as_ref().clone().with_nullable(true));
        let base = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(base, columns)?;
        self.constants.iter().try_for_each(|constant| constant.evaluate(&batch).map(|_| ()))?;
        Ok(())
    }

    /// The values for one row: `columns` are those of the relation, `now` is in microseconds since 1970-01-01 UTC, and `taken` are the
    /// values of the sequences.
    ///
    /// # Errors
    /// What goes wrong with an expression.
    pub(super) fn evaluate(
        &self,
        mut columns: Vec<ArrayRef>,
        now: i64,
        taken: &[i64],
    ) -> Result<Vec<ArrayRef>> {
        columns.push(time(now)?);
        for value in taken {
            columns.push(ScalarValue::Int64(Some(*value)).to_array()?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.base), columns, &options)?;
        let values = self.exprs.iter().map(|expr| expr.evaluate(&batch)?.into_array(1));
        Ok(values.collect::<DfResult<_>>()?)
    }
}

fn time(now: i64) -> DfResult<ArrayRef> {
    ScalarValue::TimestampMicrosecond(Some(now), Some(ZONE.into())).to_array()
}

/// The largest parts of an expression that are computed for each row and in which no column of a row is.
fn constant_parts(expr: &Expr) -> DfResult<Vec<Expr>> {
    let mut parts = Vec::new();
    expr.apply(|part| {
        let is_constant = holds(part, |part| match part {
            Expr::Column(column) => is_parameter(&column.name),
            _ => true,
        })?;
        Ok(match (is_constant, part) {
            (_, Expr::Column(_) | Expr::Literal(..)) => TreeNodeRecursion::Jump,
            (true, _) => {
                parts.push(part.clone().unalias());
                TreeNodeRecursion::Jump
            }
            (false, _) if has_all_parts(part) => TreeNodeRecursion::Continue,
            (false, _) => TreeNodeRecursion::Jump,
        })
    })?;
    Ok(parts)
}

/// The schema of the relation that a plan projects.
fn relation_of(plan: &LogicalPlan) -> Option<&Schema> {
    match plan {
        LogicalPlan::Projection(of) => relation_of(&of.input),
        LogicalPlan::SubqueryAlias(of) => relation_of(&of.input),
        LogicalPlan::TableScan(scan) => Some(scan.projected_schema.as_arrow()),
        _ => None,
    }
}

/// The columns of a plan over those of the relation that it projects, by their names.
fn flattened(plan: &LogicalPlan) -> DfResult<Option<Vec<Expr>>> {
    match plan {
        LogicalPlan::SubqueryAlias(of) => flattened(&of.input),
        LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => {
            let fields = scan.projected_schema.fields().iter();
            let column = |field: &Arc<Field>| {
                Expr::Column(ColumnName::new_unqualified(field.name().clone()))
            };
            Ok(Some(fields.map(column).collect()))
        }
        LogicalPlan::Projection(of) => {
            let Some(below) = flattened(&of.input)? else { return Ok(None) };
            let schema = of.input.schema();
            let put = |expr: &Expr| {
                let put = expr.clone().transform_down(|expr| match &expr {
                    Expr::Column(column) => {
                        let at = schema.index_of_column(column)?;
                        let below = below[at].clone().unalias();
                        Ok(Transformed::new(below, true, TreeNodeRecursion::Jump))
                    }
                    _ => Ok(Transformed::no(expr)),
                });
                put.map(|put| put.data)
            };
            of.expr.iter().map(put).collect::<DfResult<_>>().map(Some)
        }
        _ => Ok(None),
    }
}

/// Puts a column in place of the time and of the next value of a sequence.
fn bind(expr: Expr, sequences: &mut Vec<String>) -> DfResult<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    let column = |name: String| {
        let column = Expr::Column(ColumnName::new_unqualified(name));
        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
    };
    match (call.func.name(), call.args.as_slice()) {
        ("now", []) => column(NOW.to_owned()),
        ("nextval", [Expr::Literal(literal, _)]) => match literal.try_as_str() {
            Some(Some(name)) => {
                sequences.push(name.to_owned());
                column(value(sequences.len() - 1))
            }
            _ => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    }
}

/// The column that has a value of a sequence.
fn value(number: usize) -> String {
    format!("value\n{number}")
}

fn holds(expr: &Expr, of_part: impl Fn(&Expr) -> bool) -> DfResult<bool> {
    let mut holds = true;
    expr.apply(|part| {
        holds &= of_part(part);
        Ok(if holds { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(holds)
}

/// Whether an expression, but for its parts, depends on nothing but the values of a row.
pub(crate) fn is_pure(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::BinaryExpr(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::Not(_)
        | Expr::Negative(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Case(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Between(_)
        | Expr::InList(_) => true,
        _ => false,
    }
}

/// Whether all parts of an expression are computed for each row.
fn has_all_parts(expr: &Expr) -> bool {
    match expr {
        Expr::Case(_) => false,
        Expr::BinaryExpr(binary) => !matches!(binary.op, Operator::And | Operator::Or),
        Expr::ScalarFunction(call) => call.func.name() != "coalesce",
        _ => true,
    }
}
