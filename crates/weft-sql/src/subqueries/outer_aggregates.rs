//! Aggregates in a subquery that are those of the query around it.
//!
//! In SQL, an aggregate whose arguments use columns of a query further out only is an aggregate of that query, of its
//! rows and groups: `SELECT (SELECT sum(t.a)) FROM t` is `SELECT sum(t.a) FROM t`. DataFusion computes it in the
//! subquery. Here it moves to where it belongs, and the subquery takes its value from there.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, Result as DfResult};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, EmptyRelation, Expr, LogicalPlan, Projection, Subquery};
use datafusion::optimizer::AnalyzerRule;

use super::{Names, is_subquery_in, rewrite_nodes, with_input};
use crate::error::{ErrorKind, SqlError};

/// Moves aggregates to the query whose columns they use. To be applied after types were coerced, before subqueries
/// are unnested.
#[derive(Debug, Default)]
pub(crate) struct OuterAggregates {
    names: Names,
}

impl AnalyzerRule for OuterAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_nodes(plan, |plan| self.rewrite(plan))
    }

    fn name(&self) -> &str {
        "outer_aggregates"
    }
}

impl OuterAggregates {
    fn rewrite(&self, plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        if !plan.expressions().iter().any(is_subquery_in) {
            return Ok(Transformed::no(plan));
        }
        // What the query groups, or would group.
        let (select, aggregate) = match &plan {
            LogicalPlan::Sort(sort) => match sort.input.as_ref() {
                LogicalPlan::Projection(projection) => {
                    (projection.input.as_ref(), aggregate_of(&projection.input))
                }
                other => (other, None),
            },
            other => match other.inputs()[..] {
                [input] => (input, aggregate_of(input)),
                _ => return self.refuse(plan),
            },
        };
        let grouped = aggregate.map_or(select, |aggregate| aggregate.input.as_ref());
        let mut moves = Moves { grouped: grouped.schema(), names: &self.names, moved: Vec::new() };
        let rewritten = moves.take_from_expressions(plan.clone(), &[])?;
        if moves.moved.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let plan = match rewritten {
            LogicalPlan::Projection(projection) => {
                let input = with_aggregates(&projection.input, moves.moved)?;
                for expr in &projection.expr {
                    require_grouped(expr, grouped.schema(), input.schema())?;
                }
                LogicalPlan::Projection(Projection::try_new(projection.expr, Arc::new(input))?)
            }
            LogicalPlan::Filter(filter) if aggregate.is_some() => {
                let input = with_aggregates(&filter.input, moves.moved)?;
                with_input(LogicalPlan::Filter(filter), input)?
            }
            LogicalPlan::Sort(sort) => {
                let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
                    return Err(misplaced());
                };
                let input = with_aggregates(&projection.input, moves.moved)?;
                for expr in &projection.expr {
                    require_grouped(expr, grouped.schema(), input.schema())?;
                }
                let exprs = projection.expr.clone();
                let projection = Projection::try_new(exprs, Arc::new(input))?;
                with_input(LogicalPlan::Sort(sort), LogicalPlan::Projection(projection))?
            }
            _ => return Err(misplaced()),
        };
        Ok(Transformed::yes(plan))
    }

    /// No aggregate of a query is computed in the conditions of its joins.
    fn refuse(&self, plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let mut schema = DFSchema::empty();
        for input in plan.inputs() {
            schema.merge(input.schema());
        }
        let mut moves = Moves { grouped: &schema, names: &self.names, moved: Vec::new() };
        moves.take_from_expressions(plan.clone(), &[])?;
        match moves.moved.is_empty() {
            true => Ok(Transformed::no(plan)),
            false => Err(misplaced()),
        }
    }
}

/// The grouping of a query, below its HAVING and window functions.
fn aggregate_of(plan: &LogicalPlan) -> Option<&Aggregate> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => Some(aggregate),
        LogicalPlan::Filter(filter) => aggregate_of(&filter.input),
        LogicalPlan::Window(window) => aggregate_of(&window.input),
        // The keys of grouping sets get their names above it.
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            LogicalPlan::Aggregate(aggregate) if has_sets(aggregate) => Some(aggregate),
            _ => None,
        },
        _ => None,
    }
}

fn has_sets(aggregate: &Aggregate) -> bool {
    matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)])
}

/// A query with more aggregates, below what is done with their values.
fn with_aggregates(plan: &LogicalPlan, moved: Vec<Expr>) -> DfResult<LogicalPlan> {
    if aggregate_of(plan).is_none() {
        if matches!(plan, LogicalPlan::Window(_)) {
            let error = SqlError::not_supported("a window function beside such an aggregate");
            return Err(error.with_hint("compute the aggregate in a subquery in FROM").into());
        }
        let aggregate = Aggregate::try_new(Arc::new(plan.clone()), Vec::new(), moved)?;
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let groups = aggregate.group_expr.clone();
            let aggregates = aggregate.aggr_expr.iter().cloned().chain(moved).collect();
            let input = Arc::clone(&aggregate.input);
            Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, groups, aggregates)?))
        }
        LogicalPlan::Projection(projection) => {
            let columns = moved.iter().map(|expr| Expr::Column(column_of(expr)));
            let exprs = projection.expr.iter().cloned().chain(columns).collect();
            let input = with_aggregates(&projection.input, moved)?;
            Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
        }
        other => {
            let [input] = other.inputs()[..] else { return Err(misplaced()) };
            with_input(other.clone(), with_aggregates(input, moved)?)
        }
    }
}

fn column_of(expr: &Expr) -> Column {
    Column::new_unqualified(expr.qualified_name().1)
}

/// An error if an expression beside an aggregate uses a column that is no key.
fn require_grouped(expr: &Expr, before: &DFSchema, after: &DFSchema) -> DfResult<()> {
    let column = expr.column_refs().into_iter().find(|column| !after.has_column(column));
    match column {
        Some(column) if before.has_column(column) => {
            let message =
                format!("column {column} must be in GROUP BY or in an aggregate function");
            Err(SqlError::new(ErrorKind::Semantic, message).into())
        }
        _ => Ok(()),
    }
}

fn misplaced() -> DataFusionError {
    let message = "an aggregate function of the columns of a query cannot be used where its rows are not grouped yet";
    SqlError::new(ErrorKind::Semantic, message)
        .with_hint("use it in SELECT, HAVING or ORDER BY, or let its arguments use columns of the subquery")
        .into()
}

/// Aggregates on their way from the subqueries to the query around.
struct Moves<'a> {
    /// The columns of the query around, before they are grouped.
    grouped: &'a DFSchema,
    names: &'a Names,
    moved: Vec<Expr>,
}

/// A part of a subquery without the aggregates that have moved.
struct Taken {
    plan: LogicalPlan,
    /// Columns that were there, and what stands for them now.
    replaced: Vec<(Column, Expr)>,
    /// True if all rows were one group, of which nothing is left: its input is there in its place.
    is_ungrouped: bool,
}

impl Taken {
    fn all(plan: LogicalPlan) -> Taken {
        Taken { plan, replaced: Vec::new(), is_ungrouped: false }
    }
}

impl Moves<'_> {
    fn take(&mut self, plan: &LogicalPlan) -> DfResult<Taken> {
        match plan {
            LogicalPlan::Aggregate(aggregate) => self.take_from_aggregate(aggregate),
            LogicalPlan::Filter(filter) => {
                let Taken { plan: input, replaced, is_ungrouped } = self.take(&filter.input)?;
                // HAVING makes one group of all rows, also if no aggregate is left.
                let input = match is_ungrouped {
                    true => LogicalPlan::EmptyRelation(EmptyRelation {
                        produce_one_row: true,
                        schema: Arc::new(DFSchema::empty()),
                    }),
                    false => input,
                };
                let plan = self.take_from_expressions(plan.clone(), &replaced)?;
                let plan = with_input(plan, input)?;
                Ok(Taken { plan, replaced, is_ungrouped: false })
            }
            LogicalPlan::Projection(projection) => {
                let Taken { plan: input, replaced, .. } = self.take(&projection.input)?;
                let plan = self.take_from_expressions(plan.clone(), &replaced)?;
                let plan = with_input(plan, input)?;
                Ok(Taken::all(plan))
            }
            LogicalPlan::Window(window) => {
                let Taken { plan: input, replaced, .. } = self.take(&window.input)?;
                let plan = self.take_from_expressions(plan.clone(), &replaced)?;
                let plan = with_input(plan, input)?;
                Ok(Taken { plan, replaced, is_ungrouped: false })
            }
            other => {
                let taken = other
                    .clone()
                    .map_children(|child| Ok(Transformed::yes(self.take(&child)?.plan)))?;
                Ok(Taken::all(self.take_from_expressions(taken.data, &[])?))
            }
        }
    }

    fn take_from_aggregate(&mut self, aggregate: &Aggregate) -> DfResult<Taken> {
        let input = self.take(&aggregate.input)?.plan;
        let columns = aggregate.schema.iter().skip(columns_before(aggregate));
        let mut replaced = Vec::new();
        let mut left = Vec::new();
        for (expr, (table, field)) in aggregate.aggr_expr.iter().zip(columns) {
            match self.belonging(expr)? {
                Some(moved) => {
                    let name = self.names.next("outer_aggregate");
                    let column = Column::from((table, field));
                    let field = Arc::new(field.as_ref().clone().with_name(&name));
                    let outer = Column::new_unqualified(&name);
                    replaced.push((column, Expr::OuterReferenceColumn(field, outer)));
                    self.moved.push(moved.alias(name));
                }
                None => left.push(expr.clone()),
            }
        }
        if left.is_empty() && aggregate.group_expr.is_empty() {
            return Ok(Taken { plan: input, replaced, is_ungrouped: true });
        }
        let plan = Aggregate::try_new(Arc::new(input), aggregate.group_expr.clone(), left)?;
        let plan = self.take_from_expressions(LogicalPlan::Aggregate(plan), &[])?;
        Ok(Taken { plan, replaced, is_ungrouped: false })
    }

    /// An aggregate as one of the query around; nothing if it is one of the subquery, or of one further out.
    fn belonging(&self, expr: &Expr) -> DfResult<Option<Expr>> {
        let expr = expr.clone().unalias_nested().data;
        if expr.any_column_refs() || is_subquery_in(&expr) {
            return Ok(None);
        }
        let moved = expr.transform_up(|expr| {
            Ok(match expr {
                Expr::OuterReferenceColumn(_, column) if self.grouped.has_column(&column) => {
                    Transformed::yes(Expr::Column(column))
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(moved.transformed.then_some(moved.data))
    }

    /// A node without the aggregates in the subqueries of its expressions, and with other expressions for its columns.
    fn take_from_expressions(
        &mut self,
        plan: LogicalPlan,
        replaced: &[(Column, Expr)],
    ) -> DfResult<LogicalPlan> {
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| self.take_from_expression(expr, replaced))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?;
        Ok(rewritten.data)
    }

    fn take_from_expression(
        &mut self,
        expr: Expr,
        replaced: &[(Column, Expr)],
    ) -> DfResult<Transformed<Expr>> {
        Ok(Transformed::yes(match expr {
            Expr::Column(column) => {
                let other = replaced.iter().find(|(name, _)| *name == column);
                match other {
                    Some((_, other)) => other.clone(),
                    None => return Ok(Transformed::no(Expr::Column(column))),
                }
            }
            Expr::Exists(exists) => {
                let subquery = self.take_from_subquery(exists.subquery)?;
                Expr::Exists(Exists { subquery, ..exists })
            }
            Expr::InSubquery(within) => {
                let subquery = self.take_from_subquery(within.subquery)?;
                Expr::InSubquery(InSubquery { subquery, ..within })
            }
            Expr::SetComparison(comparison) => {
                let subquery = self.take_from_subquery(comparison.subquery)?;
                Expr::SetComparison(SetComparison { subquery, ..comparison })
            }
            Expr::ScalarSubquery(subquery) => {
                Expr::ScalarSubquery(self.take_from_subquery(subquery)?)
            }
            other => return Ok(Transformed::no(other)),
        }))
    }

    fn take_from_subquery(&mut self, subquery: Subquery) -> DfResult<Subquery> {
        let plan = Arc::new(self.take(&subquery.subquery)?.plan);
        let outer_ref_columns = plan.all_out_ref_exprs();
        Ok(Subquery { subquery: plan, outer_ref_columns, spans: subquery.spans })
    }
}

/// How many columns of a grouping are no aggregates.
fn columns_before(aggregate: &Aggregate) -> usize {
    aggregate.schema.fields().len() - aggregate.aggr_expr.len()
}
