//! GROUPING SETS, ROLLUP and CUBE: their keys are computed before, and nothing is known of them.
//!
//! DataFusion takes a key that is constant before the grouping, as `x` is where `x = 1`, for constant
//! after it as well, though it is NULL in some of the groups: it drops it from ORDER BY, and takes groups for
//! complete that are not. So it does with the second of two keys that are equal before the grouping. It looks for the empty grouping set, which has a row even if there is nothing to
//! group, only where no key was renamed.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DfResult, ScalarValue, TableReference, plan_err};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Computes keys below the grouping, with [`Grouped`] around them.
#[derive(Debug)]
pub(crate) struct GroupingSets {
    grouped: Arc<ScalarUDF>,
    anything: Arc<ScalarUDF>,
}

impl GroupingSets {
    pub(crate) fn new() -> GroupingSets {
        GroupingSets {
            grouped: Arc::new(ScalarUDF::from(Grouped::new())),
            anything: Arc::new(ScalarUDF::from(Anything::new())),
        }
    }

    fn rewrite(&self, plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
        let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() else {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        };
        let mut columns: Vec<Expr> =
            aggregate.input.schema().columns().into_iter().map(Expr::Column).collect();
        // What each key is called, by its number.
        let mut keys: Vec<(Option<TableReference>, String)> = Vec::new();
        let mut key = |expr: &Expr| -> Expr {
            let called = expr.qualified_name();
            let number = keys.iter().position(|other| *other == called).unwrap_or_else(|| {
                let anything = self.anything.call(Vec::new());
                let own = lit(keys.len() as u64);
                let computed = self.grouped.call(vec![expr.clone().unalias(), anything, own]);
                columns.push(computed.alias(key_name(keys.len())));
                keys.push(called);
                keys.len() - 1
            });
            Expr::Column(Column::new_unqualified(key_name(number)))
        };
        let sets = match sets {
            GroupingSet::Rollup(exprs) => GroupingSet::Rollup(exprs.iter().map(&mut key).collect()),
            GroupingSet::Cube(exprs) => GroupingSet::Cube(exprs.iter().map(&mut key).collect()),
            GroupingSet::GroupingSets(sets) => GroupingSet::GroupingSets(
                sets.iter().map(|exprs| exprs.iter().map(&mut key).collect()).collect(),
            ),
        };
        let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(aggregate.input))
            .project(columns)?
            .build()?;
        let sets = vec![Expr::GroupingSet(sets)];
        let grouped = Aggregate::try_new(Arc::new(input), sets, aggregate.aggr_expr)?;
        let columns = grouped.schema.columns().into_iter().map(|column| {
            let number = (0..keys.len()).find(|&number| column.name == key_name(number));
            match number.map(|number| keys[number].clone()) {
                Some((relation, name)) => Expr::Column(column).alias_qualified(relation, name),
                None => Expr::Column(column),
            }
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped)).project(columns)?;
        Ok(Transformed::yes(plan.build()?))
    }
}

impl AnalyzerRule for GroupingSets {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|plan| self.rewrite(plan))?.data)
    }

    fn name(&self) -> &str {
        "grouping_sets"
    }
}

fn key_name(number: usize) -> String {
    format!("__key_{number}")
}

/// The first of three values, of which the optimizer knows nothing: what is computed of constants alone is
/// constant for it, however volatile the function, so the second is [`Anything`]; and what is computed of equal values is
/// equal, so the third is the number of the key.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Grouped {
    signature: Signature,
}

impl Grouped {
    fn new() -> Grouped {
        Grouped { signature: Signature::any(3, Volatility::Volatile) }
    }
}

/// The key that a physical expression only hides from rules; `None` if it is none.
pub(crate) fn key_of(expr: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    call.fun().inner().is::<Grouped>().then(|| call.args().first()).flatten()
}

impl ScalarUDFImpl for Grouped {
    fn name(&self) -> &str {
        "grouped"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type, _, _] => Ok(data_type.clone()),
            _ => plan_err!("grouped has three arguments"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => plan_err!("grouped has three arguments"),
        }
    }
}

/// A value that nobody looks at.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Anything {
    signature: Signature,
}

impl Anything {
    fn new() -> Anything {
        Anything { signature: Signature::nullary(Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for Anything {
    fn name(&self) -> &str {
        "anything"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(None)))
    }
}
