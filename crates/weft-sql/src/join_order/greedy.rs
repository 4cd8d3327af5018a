//! Greedy operator ordering (Fegaras, 1998) for graphs that are too large for dynamic programming: the join with the
//! smallest result is made first, and so on.

use std::collections::HashMap;

use super::graph::{Graph, Plan};
use super::set::RelationSet;

/// A plan for all relations, and those that it consists of. Edges connect all relations.
pub(super) fn order(graph: &Graph) -> HashMap<RelationSet, Plan> {
    let mut plans = HashMap::new();
    let mut open: Vec<Plan> = Vec::new();
    // The joins that could be made next, of open plans.
    let mut joins: Vec<Plan> = Vec::new();
    let mut next: Vec<Plan> =
        (0..graph.relations.len()).map(|relation| graph.single(relation)).collect();
    loop {
        for plan in next {
            let with = open.iter().filter(|other| graph.connects(plan.set, other.set));
            joins.extend(with.map(|other| graph.join(&plan, other)));
            open.push(plan);
        }
        let Some(best) = joins.iter().min_by(|a, b| a.rows.total_cmp(&b.rows)).cloned() else {
            plans.extend(open.into_iter().map(|plan| (plan.set, plan)));
            return plans;
        };
        joins.retain(|join| !join.set.meets(best.set));
        let joined = open.extract_if(.., |plan| best.set.contains(plan.set));
        plans.extend(joined.map(|plan| (plan.set, plan)));
        next = vec![best];
    }
}
