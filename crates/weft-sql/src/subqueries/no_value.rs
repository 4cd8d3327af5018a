//! A subquery that stands for a value is NULL where it has no row: DataFusion takes the value for that of a column,
//! which is never NULL if it is a constant, or declared NOT NULL.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result as DfResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// Puts a function that may be NULL around the values of subqueries that may have no row. Those that use columns of the
/// query around become outer joins anyway.
#[derive(Debug)]
pub(crate) struct NoValue {
    or_null: Arc<ScalarUDF>,
}

impl NoValue {
    pub(crate) fn new() -> NoValue {
        let signature = Signature::any(1, Volatility::Immutable);
        NoValue { or_null: Arc::new(ScalarUDF::from(OrNull { signature })) }
    }

    fn rewrite(&self, expr: Expr) -> DfResult<Transformed<Expr>> {
        let Expr::ScalarSubquery(subquery) = expr else { return Ok(Transformed::no(expr)) };
        let query = subquery.subquery.as_ref();
        let is_nullable = query.schema().fields().iter().all(|field| field.is_nullable());
        if is_nullable || super::has_outer(query) || has_row(query) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        let values = query.schema().columns().into_iter().map(|column| {
            let (relation, name) = (column.relation.clone(), column.name.clone());
            self.or_null.call(vec![Expr::Column(column)]).alias_qualified(relation, name)
        });
        let values: Vec<Expr> = values.collect();
        let plan = LogicalPlanBuilder::from(query.clone()).project(values)?.build()?;
        let subquery = Subquery { subquery: Arc::new(plan), ..subquery };
        Ok(Transformed::yes(Expr::ScalarSubquery(subquery)))
    }
}

impl AnalyzerRule for NoValue {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, _| self.rewrite(expr))
    }

    fn name(&self) -> &str {
        "no_value"
    }
}

/// True of a query that has a row in any case: an aggregate of all rows.
fn has_row(query: &LogicalPlan) -> bool {
    match query {
        LogicalPlan::Projection(projection) => has_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// Its argument, which may be NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrNull {
    signature: Signature,
}

impl ScalarUDFImpl for OrNull {
    fn name(&self) -> &str {
        "or_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => plan_err!("or_null has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::new(Field::clone(field).with_nullable(true))),
            _ => plan_err!("or_null has one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |values| Ok(Arc::clone(values)))
    }
}
