//! DISTINCT aggregates without sets of values, for a statement whose sets do not fit into memory: rows are grouped by the keys and
//! the argument first, by GROUPING SETS if there are several arguments or other aggregates, and the groups by the keys
//! then. Groups spill, however many values one of the keys has.
//!
//! `SELECT k, count(DISTINCT a), sum(b) FROM t GROUP BY k` becomes
//!
//! ```sql
//! SELECT k, count(a) FILTER (WHERE id = 0), first_value(b) FILTER (WHERE id = 1) FROM (
//!     SELECT k, a, sum(b) AS b, grouping(a) AS id FROM t GROUP BY GROUPING SETS ((k, a), (k))
//! ) GROUP BY k
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DfResult, ScalarValue};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::control::Control;
use crate::statement_option::{StatementOption, Told};

/// A number of a grouping set has a bit for each of the columns that are grouped by.
const COLUMNS_MAX: usize = 64;

/// Says, among the options of a statement, what becomes of its DISTINCT aggregates.
#[derive(Clone, Debug)]
pub(crate) struct DistinctOptions {
    /// Is told of them.
    pub(crate) control: Arc<Control>,
    /// They are planned without sets.
    pub(crate) by_groups: bool,
}

impl Told for DistinctOptions {
    const NAME: &'static str = "weft_distinct";
}

/// Plans DISTINCT aggregates as groups. To be applied before the keys of grouping sets are computed.
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

/// An argument of DISTINCT aggregates, and the condition on rows that they have.
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
    /// Of rows: the aggregate of that number.
    Other(usize),
}

/// An aggregation that is to be split in two.
#[derive(Debug)]
struct Split<'a> {
    aggregate: &'a Aggregate,
    arguments: Vec<Argument>,
    /// Those that are not DISTINCT.
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
    /// Nothing if there are no DISTINCT aggregates, or some are of several values, or DataFusion groups by the only argument
    /// itself.
    fn of(plan: &'a LogicalPlan) -> Option<Split<'a>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return None };
        if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
            return None;
        }
        let mut split =
            Split { aggregate, arguments: Vec::new(), others: Vec::new(), parts: Vec::new() };
        for expr in &aggregate.aggr_expr {
            split.add(expr)?;
        }
        let is_alone = split.arguments.len() == 1
            && split.others.is_empty()
            && split.arguments[0].filter.is_none();
        let columns = aggregate.group_expr.len() + 2 * split.arguments.len();
        (!split.arguments.is_empty() && !is_alone && columns <= COLUMNS_MAX).then_some(split)
    }

    fn add(&mut self, expr: &Expr) -> Option<()> {
        let Expr::AggregateFunction(call) = expr.clone().unalias() else { return None };
        let params = &call.params;
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
        let filter = params.filter.as_deref().cloned();
        let argument = Argument { value: value.clone(), filter };
        let found = self.arguments.iter().position(|other| *other == argument);
        let number = found.unwrap_or_else(|| {
            self.arguments.push(argument);
            self.arguments.len() - 1
        });
        self.parts.push(Part::Distinct(number, call));
        Some(())
    }

    /// The columns that groups of an argument's values have beside the keys.
    fn columns_of(&self, number: usize) -> Vec<String> {
        let filter = self.arguments[number].filter.as_ref().map(|_| condition(number));
        [value(number)].into_iter().chain(filter).collect()
    }

    /// The two aggregations in place of the one.
    fn plan(&self) -> DfResult<LogicalPlan> {
        let inner = self.inner()?;
        let schema = Arc::clone(inner.schema());
        let keys: Vec<Expr> = (0..self.keys()).map(|number| column(key(number))).collect();
        let other_columns = schema.columns().split_off(schema.fields().len() - self.others.len());
        let id = column(Aggregate::INTERNAL_GROUPING_ID.to_owned());
        let id_type = schema.field_with_unqualified_name(Aggregate::INTERNAL_GROUPING_ID)?;
        let is_of_set = |set: Option<usize>| -> DfResult<Expr> {
            let number = ScalarValue::UInt64(Some(self.number(set)));
            Ok(id.clone().eq(lit(number.cast_to(id_type.data_type())?)))
        };
        let aggregate = |part: &Part| -> DfResult<Expr> {
            let (func, params) = match part {
                Part::Other(number) => {
                    let params = AggregateFunctionParams {
                        args: vec![Expr::Column(other_columns[*number].clone())],
                        distinct: false,
                        filter: Some(Box::new(is_of_set(None)?)),
                        order_by: Vec::new(),
                        null_treatment: None,
                    };
                    (first_value_udaf(), params)
                }
                Part::Distinct(number, call) => {
                    let mut params = call.params.clone();
                    params.distinct = false;
                    params.args[0] = column(value(*number));
                    params
                        .order_by
                        .iter_mut()
                        .for_each(|order| order.expr = column(value(*number)));
                    let is_of_set = is_of_set(Some(*number))?;
                    let filter = match self.arguments[*number].filter {
                        Some(_) => is_of_set.and(column(condition(*number))),
                        None => is_of_set,
                    };
                    params.filter = Some(Box::new(filter));
                    (Arc::clone(&call.func), params)
                }
            };
            Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
        };
        let aggregates: DfResult<Vec<Expr>> = self
            .parts
            .iter()
            .enumerate()
            .map(|(number, part)| Ok(aggregate(part)?.alias(result(number))))
            .collect();
        let outer =
            LogicalPlanBuilder::from(inner).aggregate(keys.clone(), aggregates?)?.build()?;
        let results = self.parts.iter().enumerate().map(|(number, part)| {
            let result = column(result(number));
            let place = self.keys() + number;
            let field = self.aggregate.schema.field(place);
            match part {
                // A count is never null, as DataFusion knows.
                Part::Other(_) if !field.is_nullable() && field.data_type().is_integer() => {
                    let none = ScalarValue::new_zero(field.data_type())?;
                    Ok(coalesce(vec![result, lit(none)]))
                }
                _ => Ok(result),
            }
        });
        let results: DfResult<Vec<Expr>> = results.collect();
        let columns =
            keys.into_iter().chain(results?).zip(self.aggregate.schema.iter()).map(
                |(expr, (relation, field))| expr.alias_qualified(relation.cloned(), field.name()),
            );
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(outer).project(columns)?.build()
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
        let input = LogicalPlanBuilder::from(Arc::clone(input)).project(columns)?.build()?;
        let grouped = Aggregate::try_new(Arc::new(input), sets, others.collect())?;
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

fn result(number: usize) -> String {
    format!("__result_{number}")
}
