//! Rules for physical plans that need nothing but the plan, by themselves or around a rule of DataFusion's.

use std::fmt;
use std::sync::Arc;

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

/// A rule of a physical optimizer.
pub(crate) type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Has those of the rules that have this name applied to what `before` makes of a plan, and `after` to what they give.
pub(crate) fn put_around(
    rules: &mut [Rule],
    name: &str,
    before: fn(Plan) -> DfResult<Plan>,
    after: fn(Plan) -> DfResult<Plan>,
) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == name) {
        *rule = Arc::new(Around { inner: Arc::clone(rule), before, after });
    }
}

struct Around {
    inner: Rule,
    before: fn(Plan) -> DfResult<Plan>,
    after: fn(Plan) -> DfResult<Plan>,
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalOptimizerRule for Around {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> DfResult<Plan> {
        (self.after)(self.inner.optimize((self.before)(plan)?, options)?)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_check(&self) -> bool {
        self.inner.schema_check()
    }
}
