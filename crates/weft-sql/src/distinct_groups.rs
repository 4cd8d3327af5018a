//! DISTINCT aggregates without sets of values, for a statement whose sets do not fit into memory: rows are grouped by the keys and
//! the argument first, by GROUPING SETS if there are several arguments or other aggregates, and the groups by the keys
//! then. Groups spill, however many values one of the keys has. Medians, quantiles and modes are planned so, too
//! (`ranked.rs`).
//!
//! `SELECT k, count(DISTINCT a), sum(b) FROM t GROUP BY k` becomes
//!
//! ```sql
//! SELECT k, count(a) FILTER (WHERE id = 0), first_value(b) FILTER (WHERE id = 1) FROM (
//!     SELECT k, a, sum(b) AS b, grouping(a) AS id FROM t GROUP BY GROUPING SETS ((k, a), (k))
//! ) GROUP BY k
//! ```

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DfResult, ScalarValue, internal_err};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprFunctionExt, GroupingSet, LogicalPlan, LogicalPlanBuilder, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::control::Control;
use crate::ranked::{Ranked, Ranks};
use crate::statement_option::{StatementOption, Told};

/// A number of a grouping set has a bit for each of the columns that are grouped by.
const COLUMNS_MAX: usize = 64;

/// The column with how many values there are in a group of equal ones.
const ROWS: &str = "__rows";

/// Says, among the options of a statement, what becomes of its aggregates that need all values of a group.
#[derive(Clone, Debug)]
pub(crate) struct DistinctOptions {
    /// Is told of them.
    pub(crate) control: Arc<Control>,
    /// They are planned without sets and lists.
    pub(crate) by_groups: bool,
}

impl Told for DistinctOptions {
    const NAME: &'static str = "weft_distinct";
}

/// Plans DISTINCT aggregates, and those of values with some rank, as groups. To be applied before the keys of grouping sets are computed.
#[derive(Debug)]
pub(crate) struct DistinctGroups;

impl AnalyzerRule for DistinctGroups {
    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> DfResult<LogicalPlan> {
        let Some(StatementOption(options)) =
            options.extensions.get::<StatementOption<DistinctOptions>>()
        else {
            return Ok(plan);
        };
        let rewrite = |plan| match Split::of(&plan) {
            None => Ok(Transformed::no(plan)),
            Some(split) => {
                options.control.note_distinct();
                match options.by_groups {
                    true => Ok(Transformed::yes(split.plan()?)),
                    false => Ok(Transformed::no(plan)),
                }
            }
        };
        Ok(plan.transform_up_with_subqueries(rewrite)?.data)
    }

    fn name(&self) -> &str {
        "distinct_groups"
    }
}

/// An argument of such aggregates, and the condition on rows that they have.
#[derive(Debug, PartialEq)]
struct Argument {
    value: Expr,
    filter: Option<Expr>,
}

/// What an aggregate is made of.
#[derive(Debug)]
enum Part {
    /// Of the values of an argument.
    Distinct(usize, AggregateFunction),
    /// Of some of the values of an argument.
    Ranked(usize, Ranked, AggregateFunction),
    /// Of rows: the aggregate of that number.
    Other(usize),
}

/// An aggregation that is to be split in two.
#[derive(Debug)]
struct Split<'a> {
    aggregate: &'a Aggregate,
    arguments: Vec<Argument>,
    /// Those that are neither.
    others: Vec<Expr>,
    parts: Vec<Part>,
}

fn is_constant(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

fn column(name: String) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn key(number: usize) -> String {
    format!("__group_{number}")
}

fn value(number: usize) -> String {
    format!("__distinct_{number}")
}

fn condition(number: usize) -> String {
    format!("__counts_{number}")
}

impl<'a> Split<'a> {
    /// Nothing if there are no such aggregates, or some DISTINCT ones are of several values, or DataFusion groups by the only
    /// argument itself.
    fn of(plan: &'a LogicalPlan) -> Option<Split<'a>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return None };
        if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
            return None;
        }
        let mut split =
            Split { aggregate, arguments: Vec::new(), others: Vec::new(), parts: Vec::new() };
        for expr in &aggregate.aggr_expr {
            split.add(expr, aggregate.input.schema())?;
        }
        let is_alone = split.arguments.len() == 1
            && split.others.is_empty()
            && split.arguments[0].filter.is_none()
            && !split.parts.iter().any(|part| matches!(part, Part::Ranked(..)));
        let columns = aggregate.group_expr.len() + 2 * split.arguments.len();
        (!split.arguments.is_empty() && !is_alone && columns <= COLUMNS_MAX).then_some(split)
    }

    fn add(&mut self, expr: &Expr, schema: &DFSchema) -> Option<()> {
        let Expr::AggregateFunction(call) = expr.clone().unalias() else { return None };
        let params = &call.params;
        if let Some(ranked) = Ranked::of(&call, schema) {
            let number = self.argument(&params.args[0], params.filter.as_deref());
            self.parts.push(Part::Ranked(number, ranked, call));
            return Some(());
        }
        if !params.distinct || matches!(call.func.name(), "min" | "max") {
            self.parts.push(Part::Other(self.others.len()));
            self.others.push(expr.clone());
            return Some(());
        }
        let (value, rest) = params.args.split_first()?;
        let is_of_one = rest.iter().all(is_constant)
            && params.order_by.iter().all(|order| order.expr == *value);
        if !is_of_one {
            return None;
        }
        let number = self.argument(value, params.filter.as_deref());
        self.parts.push(Part::Distinct(number, call));
        Some(())
    }

    /// The number of an argument.
    fn argument(&mut self, value: &Expr, filter: Option<&Expr>) -> usize {
        let argument = Argument { value: value.clone(), filter: filter.cloned() };
        let found = self.arguments.iter().position(|other| *other == argument);
        found.unwrap_or_else(|| {
            self.arguments.push(argument);
            self.arguments.len() - 1
        })
    }

    /// The arguments whose values are counted, in their order.
    fn counted(&self) -> Vec<usize> {
        let mut counted: Vec<usize> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Ranked(number, ..) => Some(*number),
                _ => None,
            })
            .collect();
        counted.sort_unstable();
        counted.dedup();
        counted
    }

    /// The columns that groups of an argument's values have beside the keys.
    fn columns_of(&self, number: usize) -> Vec<String> {
        let filter = self.arguments[number].filter.as_ref().map(|_| condition(number));
        [value(number)].into_iter().chain(filter).collect()
    }

    /// The two aggregations in place of the one.
    fn plan(&self) -> DfResult<LogicalPlan> {
        let groups = self.groups()?;
        let keys: Vec<Expr> = (0..self.keys()).map(|number| column(key(number))).collect();
        let mut aggregates: Vec<Expr> = Vec::new();
        let mut results: Vec<Expr> = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let field = self.aggregate.schema.field(self.keys() + number);
            let made = groups.aggregates(part)?.into_iter().enumerate().map(|(of_part, made)| {
                let name = result(number, of_part);
                aggregates.push(made.alias(name.clone()));
                column(name)
            });
            let mut made: Vec<Expr> = made.collect();
            results.push(match part {
                Part::Ranked(_, ranked, _) => ranked.result(made, field.data_type()),
                // A count is never null, as DataFusion knows.
                Part::Other(_) if !field.is_nullable() && field.data_type().is_integer() => {
                    made.push(lit(ScalarValue::new_zero(field.data_type())?));
                    coalesce(made)
                }
                _ => made.remove(0),
            });
        }
        let outer =
            LogicalPlanBuilder::from(groups.plan).aggregate(keys.clone(), aggregates)?.build()?;
        let columns =
            keys.into_iter().chain(results).zip(self.aggregate.schema.iter()).map(
                |(expr, (relation, field))| expr.alias_qualified(relation.cloned(), field.name()),
            );
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(outer).project(columns)?.build()
    }

    /// The inner aggregation, and what its columns are.
    fn groups(&self) -> DfResult<Groups<'_, 'a>> {
        let mut plan = self.inner()?;
        let schema = Arc::clone(plan.schema());
        let counted = self.counted();
        let made = self.others.len() + counted.len();
        let mut others = schema.columns().split_off(schema.fields().len() - made);
        let counts = others.split_off(self.others.len());
        let id = schema.field_with_unqualified_name(Aggregate::INTERNAL_GROUPING_ID)?;
        let mut groups =
            Groups { split: self, plan, others, id: id.data_type().clone(), ranks: None };
        if !counted.is_empty() {
            let mut rows = when(lit(false), lit(0i64));
            for (number, count) in counted.iter().zip(counts) {
                rows = rows.when(groups.is_of_set(Some(*number))?, Expr::Column(count));
            }
            let columns = schema.columns().into_iter().map(Expr::Column);
            let columns = columns.chain([rows.otherwise(lit(0i64))?.alias(ROWS)]);
            plan = LogicalPlanBuilder::from(groups.plan).project(columns)?.build()?;
            let keys = (0..self.keys()).map(|number| column(key(number)));
            let id = column(Aggregate::INTERNAL_GROUPING_ID.to_owned());
            let keys: Vec<Expr> = [id].into_iter().chain(keys).collect();
            // In each of the partitions, all but one of the values are null.
            let order = counted.iter().map(|number| column(value(*number))).collect::<Vec<_>>();
            let (plan, ranks) = Ranks::add(plan, &column(ROWS.to_owned()), &keys, &order)?;
            groups = Groups { plan, ranks: Some(ranks), ..groups };
        }
        Ok(groups)
    }

    /// The groups of the keys and each argument, and those of the keys alone with the other aggregates.
    fn inner(&self) -> DfResult<LogicalPlan> {
        let input = &self.aggregate.input;
        let mut columns: Vec<Expr> =
            input.schema().columns().into_iter().map(Expr::Column).collect();
        let keys = self.aggregate.group_expr.iter().enumerate();
        columns.extend(keys.map(|(number, expr)| expr.clone().unalias().alias(key(number))));
        for (number, argument) in self.arguments.iter().enumerate() {
            columns.push(argument.value.clone().unalias().alias(value(number)));
            if let Some(filter) = &argument.filter {
                columns.push(filter.clone().alias(condition(number)));
            }
        }
        let of_keys: Vec<Expr> = (0..self.keys()).map(|number| column(key(number))).collect();
        let of_argument = |number| {
            let more = self.columns_of(number).into_iter().map(column);
            of_keys.iter().cloned().chain(more).collect()
        };
        let mut sets: Vec<Vec<Expr>> = (0..self.arguments.len()).map(of_argument).collect();
        sets.push(of_keys.clone());
        let sets = vec![Expr::GroupingSet(GroupingSet::GroupingSets(sets))];
        let others = self.others.iter().map(|other| other.clone().unalias());
        let others =
            others.enumerate().map(|(number, other)| other.alias(format!("__of_all_{number}")));
        let counts = self.counted().into_iter().map(|number| {
            let count = count_udaf().call(vec![column(value(number))]);
            let count = match self.arguments[number].filter {
                Some(_) => count.filter(column(condition(number))).build()?,
                None => count,
            };
            Ok(count.alias(format!("__count_{number}")))
        });
        let aggregates: DfResult<Vec<Expr>> = others.map(Ok).chain(counts).collect();
        let input = LogicalPlanBuilder::from(Arc::clone(input)).project(columns)?.build()?;
        let grouped = Aggregate::try_new(Arc::new(input), sets, aggregates?)?;
        Ok(LogicalPlan::Aggregate(grouped))
    }

    fn keys(&self) -> usize {
        self.aggregate.group_expr.len()
    }

    /// The number of the grouping set of an argument, or of the keys alone: a bit for each column that is not in it, that of
    /// the last column being the lowest.
    fn number(&self, set: Option<usize>) -> u64 {
        let columns = (0..self.arguments.len())
            .flat_map(|number| self.columns_of(number).into_iter().map(move |_| number));
        columns.fold(0, |bits, number| bits << 1 | u64::from(set != Some(number)))
    }
}

/// The groups of an inner aggregation.
struct Groups<'s, 'a> {
    split: &'s Split<'a>,
    plan: LogicalPlan,
    /// The columns of aggregates over all rows.
    others: Vec<Column>,
    /// The type of the grouping set's number.
    id: DataType,
    /// If some values are counted.
    ranks: Option<Ranks>,
}

impl Groups<'_, '_> {
    /// True of the groups of an argument, or of the keys alone.
    fn is_of_set(&self, set: Option<usize>) -> DfResult<Expr> {
        let number = ScalarValue::UInt64(Some(self.split.number(set)));
        let id = column(Aggregate::INTERNAL_GROUPING_ID.to_owned());
        Ok(id.eq(lit(number.cast_to(&self.id)?)))
    }

    /// True of the groups of an argument whose rows count.
    fn are_counted(&self, number: usize) -> DfResult<Expr> {
        let is_of_set = self.is_of_set(Some(number))?;
        Ok(match self.split.arguments[number].filter {
            Some(_) => is_of_set.and(column(condition(number))),
            None => is_of_set,
        })
    }

    /// The aggregates of groups that a part is made of.
    fn aggregates(&self, part: &Part) -> DfResult<Vec<Expr>> {
        let (func, params) = match part {
            Part::Other(number) => {
                let params = AggregateFunctionParams {
                    args: vec![Expr::Column(self.others[*number].clone())],
                    distinct: false,
                    filter: Some(Box::new(self.is_of_set(None)?)),
                    order_by: Vec::new(),
                    null_treatment: None,
                };
                (first_value_udaf(), params)
            }
            Part::Distinct(number, call) => {
                let mut params = call.params.clone();
                params.distinct = false;
                params.args[0] = column(value(*number));
                params.order_by.iter_mut().for_each(|order| order.expr = column(value(*number)));
                params.filter = Some(Box::new(self.are_counted(*number)?));
                (Arc::clone(&call.func), params)
            }
            Part::Ranked(number, ranked, call) => {
                let Some(ranks) = &self.ranks else { return internal_err!("no ranks") };
                let value = column(value(*number));
                return ranked.aggregates(call, &value, ranks, &self.are_counted(*number)?);
            }
        };
        Ok(vec![Expr::AggregateFunction(AggregateFunction { func, params })])
    }
}

fn result(number: usize, of_part: usize) -> String {
    format!("__result_{number}_{of_part}")
}
