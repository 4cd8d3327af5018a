//! Conditions of physical plans go down only where column names are unique.
//!
//! On its way down, DataFusion finds a condition's columns by their names, so that of two columns of one name, as a
//! join of tables has them, one is taken for the other: `CASE a.id WHEN b.id …` becomes `CASE b.id WHEN b.id …`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

/// What the names of DataFusion's rules that push conditions down begin with.
const PUSHING: &str = "FilterPushdown";

/// DataFusion's rules for physical plans, of which those that push conditions down leave out the parts of a plan
/// that have two columns of one name somewhere.
pub(crate) fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    for rule in rules.iter_mut().filter(|rule| rule.name().starts_with(PUSHING)) {
        *rule = Arc::new(WithUniqueNames { inner: Arc::clone(rule) });
    }
    rules
}

#[derive(Debug)]
struct WithUniqueNames {
    inner: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for WithUniqueNames {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        if has_unique_names(plan.as_ref()) {
            return self.inner.optimize(plan, options);
        }
        let children = plan.children().into_iter();
        let children = children.map(|child| self.optimize(Arc::clone(child), options));
        let children: Vec<_> = children.collect::<DfResult<_>>()?;
        if children.is_empty() {
            return Ok(plan);
        }
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        plan.replace_children(children, mode)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_check(&self) -> bool {
        self.inner.schema_check()
    }
}

/// True if no node of a plan gives two columns of one name.
fn has_unique_names(plan: &dyn ExecutionPlan) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::new();
    schema.fields().iter().all(|field| names.insert(field.name()))
        && plan.children().into_iter().all(|child| has_unique_names(child.as_ref()))
}
