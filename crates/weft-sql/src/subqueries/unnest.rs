//! Subqueries of any form without their correlation, after *Unnesting Arbitrary Queries* (Neumann,
//! Kemper; BTW 2015).
//!
//! What a subquery takes from the query around it, each combination of values once, is its *domain*.
//! It is computed for the whole domain at once: the domain is joined where the values are used, and
//! every operator above carries its columns on.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DataFusionError, JoinType, NullEquality, Result as DfResult,
};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, FetchType, Filter, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, Projection, SkipType, SubqueryAlias, Union, Window,
    WindowFunctionDefinition, lit,
};

use super::Names;
use crate::error::SqlError;
use crate::exclusions;

/// A subquery, computed for all of its domain.
pub(super) struct Unnested {
    pub(super) plan: LogicalPlan,
    /// The columns of the domain in it, in the order of the columns that they are taken from.
    pub(super) domain: Vec<Column>,
}

/// What a subquery is freed from.
pub(super) struct Unnest<'a> {
    /// The rows that it is evaluated for.
    pub(super) around: &'a LogicalPlan,
    /// The columns of these that it uses.
    pub(super) outer: Vec<Column>,
    pub(super) names: &'a Names,
}

/// The columns of `around` that a subquery uses.
pub(super) fn outer_columns(subquery: &LogicalPlan, around: &DFSchema) -> DfResult<Vec<Column>> {
    let mut columns = Vec::new();
    for expr in subquery.all_out_ref_exprs() {
        if let Expr::OuterReferenceColumn(_, column) = expr
            && around.has_column(&column)
            && !columns.contains(&column)
        {
            columns.push(column);
        }
    }
    Ok(columns)
}

/// True of an expression that uses a column of any query around it.
pub(super) fn has_outer(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// Joins two plans on columns of a domain, where NULL equals NULL; on nothing, if there are none.
pub(super) fn join_domains(
    left: LogicalPlan,
    right: LogicalPlan,
    kind: JoinType,
    left_columns: &[Column],
    right_columns: &[Column],
) -> DfResult<LogicalPlan> {
    if left_columns.is_empty() {
        return LogicalPlanBuilder::from(left).join_on(right, kind, [lit(true)])?.build();
    }
    let equal = |column: &Column| Expr::Column(column.clone());
    let on = left_columns.iter().map(equal).zip(right_columns.iter().map(equal)).collect();
    let nulls = NullEquality::NullEqualsNull;
    let (left, right) = (Arc::new(left), Arc::new(right));
    let join = Join::try_new(
        left,
        right,
        on,
        None,
        kind,
        datafusion::common::JoinConstraint::On,
        nulls,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

impl Unnest<'_> {
    /// The subquery without correlation to the rows around it.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) if an operator in it cannot carry
    /// the domain.
    pub(super) fn unnest(&self, plan: &LogicalPlan) -> DfResult<Unnested> {
        if let LogicalPlan::Subquery(lateral) = plan {
            return self.unnest(&lateral.subquery);
        }
        if !self.is_correlated(plan)? {
            return self.beside(plan.clone());
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = self.unnest(&projection.input)?;
                self.project(&projection.expr, input)
            }
            LogicalPlan::Filter(filter) => {
                let Unnested { plan, domain } = self.unnest(&filter.input)?;
                let predicate = self.replace(filter.predicate.clone(), &domain)?;
                let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?);
                Ok(Unnested { plan, domain })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Unnested { plan, domain } = self.unnest(&alias.input)?;
                let plan = SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?;
                let domain = domain
                    .into_iter()
                    .map(|column| Column::new(Some(alias.alias.clone()), column.name))
                    .collect();
                Ok(Unnested { plan: LogicalPlan::SubqueryAlias(plan), domain })
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Unnested { plan, domain } = self.unnest(input)?;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(plan)));
                Ok(Unnested { plan, domain })
            }
            // The order of a subquery's rows does not matter.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.unnest(&sort.input),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            _ => Err(not_supported()),
        }
    }

    fn is_correlated(&self, plan: &LogicalPlan) -> DfResult<bool> {
        Ok(!outer_columns(plan, self.around.schema())?.is_empty())
    }

    fn uses_outer(&self, expr: &Expr) -> bool {
        expr.exists(|expr| {
            Ok(matches!(expr, Expr::OuterReferenceColumn(_, column) if self.outer.contains(column)))
        })
        .unwrap_or(true)
    }

    /// The columns that the subquery uses, each combination of values once, under new names.
    fn domain(&self) -> DfResult<Unnested> {
        let mut volatile = false;
        self.around.apply(|node| {
            node.apply_expressions(|expr| {
                volatile |= exclusions::is_volatile(expr)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if volatile {
            return Err(not_supported());
        }
        let alias = self.names.next("domain");
        let named = |(at, column): (usize, &Column)| {
            Expr::Column(column.clone()).alias(format!("{alias}_{at}"))
        };
        let plan = LogicalPlanBuilder::from(self.around.clone())
            .project(self.outer.iter().enumerate().map(named))?
            .distinct()?
            .alias(alias)?
            .build()?;
        let domain = plan.schema().columns();
        Ok(Unnested { plan, domain })
    }

    /// A plan that needs nothing of the domain, for all of it.
    fn beside(&self, plan: LogicalPlan) -> DfResult<Unnested> {
        if self.outer.is_empty() {
            return Ok(Unnested { plan, domain: Vec::new() });
        }
        let domain = self.domain()?;
        let plan = LogicalPlanBuilder::from(domain.plan).cross_join(plan)?.build()?;
        Ok(Unnested { plan, domain: domain.domain })
    }

    /// An expression with the columns of the domain for those that it takes from outside.
    fn replace(&self, expr: Expr, domain: &[Column]) -> DfResult<Expr> {
        let replaced = expr.transform_up(|expr| {
            let at = match &expr {
                Expr::OuterReferenceColumn(_, column) => {
                    self.outer.iter().position(|outer| outer == column)
                }
                _ => None,
            };
            Ok(match at {
                Some(at) => Transformed::yes(Expr::Column(domain[at].clone())),
                None => Transformed::no(expr),
            })
        })?;
        Ok(replaced.data)
    }

    /// As [`replace`](Self::replace), under the name that the expression has.
    fn replace_named(&self, expr: &Expr, domain: &[Column]) -> DfResult<Expr> {
        let replaced = self.replace(expr.clone(), domain)?;
        Ok(keep_name(expr, replaced))
    }

    fn project(&self, exprs: &[Expr], input: Unnested) -> DfResult<Unnested> {
        let Unnested { plan, domain } = input;
        let mut projected = Vec::with_capacity(exprs.len() + domain.len());
        for expr in exprs {
            projected.push(self.replace_named(expr, &domain)?);
        }
        projected.extend(domain.iter().cloned().map(Expr::Column));
        let plan = LogicalPlan::Projection(Projection::try_new(projected, Arc::new(plan))?);
        Ok(Unnested { plan, domain })
    }

    fn aggregate(&self, aggregate: &Aggregate) -> DfResult<Unnested> {
        let mut input = self.unnest(&aggregate.input)?;
        if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
            return Err(not_supported());
        }
        let is_total = aggregate.group_expr.is_empty();
        let mut present = None;
        if is_total {
            // There is one row for every element of the domain, also for those without input.
            let name = self.names.next("present");
            let mut columns: Vec<Expr> =
                input.plan.schema().columns().into_iter().map(Expr::Column).collect();
            columns.push(lit(true).alias(&name));
            let marked = Projection::try_new(columns, Arc::new(input.plan))?;
            let domain = self.domain()?;
            let plan = join_domains(
                domain.plan,
                LogicalPlan::Projection(marked),
                JoinType::Left,
                &domain.domain,
                &input.domain,
            )?;
            input = Unnested { plan, domain: domain.domain };
            present = Some(Expr::Column(Column::new_unqualified(name)));
        }
        let Unnested { plan, domain } = input;
        let mut groups: Vec<Expr> = domain.iter().cloned().map(Expr::Column).collect();
        for expr in &aggregate.group_expr {
            groups.push(self.replace_named(expr, &domain)?);
        }
        let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            let mut replaced = self.replace(expr.clone(), &domain)?;
            if let Some(present) = &present {
                replaced = only_where(replaced, present)?;
            }
            aggregates.push(keep_name(expr, replaced));
        }
        let plan = Aggregate::try_new(Arc::new(plan), groups, aggregates)?;
        Ok(Unnested { plan: LogicalPlan::Aggregate(plan), domain })
    }

    /// The first rows for each element of the domain.
    fn limit(&self, limit: &Limit) -> DfResult<Unnested> {
        if let LogicalPlan::Projection(projection) = limit.input.as_ref() {
            // Below the projection, next to the sort that it belongs to.
            let inner = Limit { input: Arc::clone(&projection.input), ..limit.clone() };
            let inner = self.unnest(&LogicalPlan::Limit(inner))?;
            return self.project(&projection.expr, inner);
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Err(not_supported());
        };
        let (input, order) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) => (&sort.input, sort.expr.as_slice()),
            _ => (&limit.input, &[][..]),
        };
        let Unnested { plan, domain } = self.unnest(input)?;
        let mut sorts = Vec::with_capacity(order.len());
        for sort in order {
            let mut sort = sort.clone();
            sort.expr = self.replace(sort.expr, &domain)?;
            sorts.push(sort);
        }
        let columns = plan.schema().columns();
        let name = self.names.next("number");
        let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
        let number = Expr::from(WindowFunction::new(function, Vec::new()))
            .partition_by(domain.iter().cloned().map(Expr::Column).collect())
            .order_by(sorts)
            .build()?
            .alias(&name);
        let number_column = Expr::Column(Column::new_unqualified(name));
        let first = lit(u64::try_from(skip).unwrap_or(u64::MAX));
        let mut wanted = number_column.clone().gt(first);
        if let Some(fetch) = fetch {
            let last = u64::try_from(skip.saturating_add(fetch)).unwrap_or(u64::MAX);
            wanted = wanted.and(number_column.lt_eq(lit(last)));
        }
        let plan = LogicalPlanBuilder::from(plan)
            .window([number])?
            .filter(wanted)?
            .project(columns.into_iter().map(Expr::Column))?
            .build()?;
        Ok(Unnested { plan, domain })
    }

    /// Each window within one element of the domain.
    fn window(&self, window: &Window) -> DfResult<Unnested> {
        let Unnested { plan, domain } = self.unnest(&window.input)?;
        let mut functions = Vec::with_capacity(window.window_expr.len());
        for expr in &window.window_expr {
            let replaced = self.replace(expr.clone(), &domain)?.transform_up(|expr| {
                let Expr::WindowFunction(mut function) = expr else {
                    return Ok(Transformed::no(expr));
                };
                let columns = domain.iter().cloned().map(Expr::Column);
                function.params.partition_by.extend(columns);
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            })?;
            functions.push(keep_name(expr, replaced.data));
        }
        let plan = LogicalPlan::Window(Window::try_new(functions, Arc::new(plan))?);
        Ok(Unnested { plan, domain })
    }

    fn join(&self, join: &Join) -> DfResult<Unnested> {
        use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi};
        let keeps_left = matches!(join.join_type, Left | LeftAnti | LeftMark | LeftSemi);
        if join.null_aware || !(keeps_left || join.join_type == Inner) {
            return Err(not_supported());
        }
        let on_right = self.is_correlated(&join.right)?;
        let on_left = self.is_correlated(&join.left)?;
        let on_condition = join.filter.iter().any(|filter| self.uses_outer(filter))
            || join.on.iter().any(|(one, other)| self.uses_outer(one) || self.uses_outer(other));
        let carries_left = keeps_left || on_left || (on_condition && !on_right);
        let left = match carries_left {
            true => Some(self.unnest(&join.left)?),
            false => None,
        };
        let right = match on_right {
            true => Some(self.unnest(&join.right)?),
            false => None,
        };
        let mut filter = join.filter.clone();
        let mut require = |condition: Expr| {
            filter = Some(match filter.take() {
                Some(filter) => filter.and(condition),
                None => condition,
            });
        };
        let mut on = Vec::new();
        for (one, other) in &join.on {
            match self.uses_outer(one) || self.uses_outer(other) {
                true if join.null_equality == NullEquality::NullEqualsNull => {
                    return Err(not_supported());
                }
                true => require(one.clone().eq(other.clone())),
                false => on.push((one.clone(), other.clone())),
            }
        }
        if let (Some(left), Some(right)) = (&left, &right) {
            for (one, other) in left.domain.iter().zip(&right.domain) {
                let (one, other) = (Expr::Column(one.clone()), Expr::Column(other.clone()));
                require(datafusion::logical_expr::binary_expr(
                    one,
                    datafusion::logical_expr::Operator::IsNotDistinctFrom,
                    other,
                ));
            }
        }
        let domain = match (&left, &right) {
            (Some(side), _) | (None, Some(side)) => side.domain.clone(),
            (None, None) => return Err(not_supported()),
        };
        let filter = filter.map(|filter| self.replace(filter, &domain)).transpose()?;
        let left = left.map_or_else(|| Arc::clone(&join.left), |left| Arc::new(left.plan));
        let right = right.map_or_else(|| Arc::clone(&join.right), |right| Arc::new(right.plan));
        let plan = Join::try_new(
            left,
            right,
            on,
            filter,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            false,
        )?;
        Ok(Unnested { plan: LogicalPlan::Join(plan), domain })
    }

    fn union(&self, union: &Union) -> DfResult<Unnested> {
        let prefix = self.names.next("domain");
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let columns = input.schema().columns();
            let Unnested { plan, domain } = self.unnest(input)?;
            let domain = domain
                .into_iter()
                .enumerate()
                .map(|(at, column)| Expr::Column(column).alias(format!("{prefix}_{at}")));
            let exprs: Vec<Expr> = columns.into_iter().map(Expr::Column).chain(domain).collect();
            inputs.push(Arc::new(LogicalPlan::Projection(Projection::try_new(
                exprs,
                Arc::new(plan),
            )?)));
        }
        let own = union.schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field)));
        let width = union.schema.fields().len();
        let Some(first) = inputs.first() else { return Err(not_supported()) };
        let more = first.schema().iter().skip(width);
        let fields = own.chain(more.map(|(table, field)| (table.cloned(), Arc::clone(field))));
        let schema = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
        let domain = schema.columns().split_off(width);
        let plan = LogicalPlan::Union(Union { inputs, schema: Arc::new(schema) });
        Ok(Unnested { plan, domain })
    }
}

/// `to` under the name of `from`.
fn keep_name(from: &Expr, to: Expr) -> Expr {
    let (table, name) = from.qualified_name();
    match to.qualified_name() == (table.clone(), name.clone()) {
        true => to,
        false => to.alias_qualified(table, name),
    }
}

/// An aggregate function of those rows only for which a condition is true.
fn only_where(expr: Expr, condition: &Expr) -> DfResult<Expr> {
    let filtered = expr.transform_up(|expr| {
        let Expr::AggregateFunction(mut function) = expr else { return Ok(Transformed::no(expr)) };
        let filter = match function.params.filter.take() {
            Some(filter) => filter.and(condition.clone()),
            None => condition.clone(),
        };
        function.params.filter = Some(Box::new(filter));
        Ok(Transformed::yes(Expr::AggregateFunction(function)))
    })?;
    Ok(filtered.data)
}

fn not_supported() -> DataFusionError {
    SqlError::not_supported("a subquery that uses columns of the query around it in this way")
        .with_hint("join with it instead")
        .into()
}
