//! A rule for physical plans that needs nothing but the plan.

use std::fmt;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;

use crate::plan_node::Plan;

/// A rule that leaves the columns of a plan as they are.
pub(crate) struct PhysicalRule {
    /// Its name in `EXPLAIN VERBOSE`.
    pub(crate) name: &'static str,
    /// What it makes of a plan.
    pub(crate) rewrite: fn(Plan) -> DfResult<Plan>,
}

impl fmt::Debug for PhysicalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PhysicalOptimizerRule for PhysicalRule {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> DfResult<Plan> {
        (self.rewrite)(plan)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}
