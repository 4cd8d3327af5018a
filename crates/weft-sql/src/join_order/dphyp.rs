//! Dynamic programming over the connected subgraphs of a join graph: DPhyp (Moerkotte and Neumann, SIGMOD 2008).
//!
//! Each pair of connected sets that an edge connects is looked at once. Conditions on more than two relations are
//! hyperedges, whose sides are sets.

use std::collections::HashMap;

use super::graph::{Graph, Plan};
use super::set::RelationSet;

/// Finds the cheapest plan for all relations; `None` if that takes more than `sets_max` sets to be looked at, or if
/// edges do not connect all relations.
pub(super) fn enumerate(graph: &Graph, sets_max: usize) -> Option<HashMap<RelationSet, Plan>> {
    let mut search = Search { graph, plans: HashMap::new(), sets_left: sets_max };
    for relation in 0..graph.relations.len() {
        search.plans.insert(RelationSet::of(relation), graph.single(relation));
    }
    for relation in (0..graph.relations.len()).rev() {
        let set = RelationSet::of(relation);
        search.connected(set)?;
        search.grow(set, RelationSet::up_to(relation))?;
    }
    let all = (0..graph.relations.len()).collect();
    search.plans.contains_key(&all).then_some(search.plans)
}

struct Search<'a> {
    graph: &'a Graph,
    plans: HashMap<RelationSet, Plan>,
    sets_left: usize,
}

impl Search<'_> {
    /// Grows a connected set by its neighbours that are not `excluded` (EnumerateCsgRec).
    fn grow(&mut self, set: RelationSet, excluded: RelationSet) -> Option<()> {
        let neighbours = self.neighbours(set, excluded);
        for more in neighbours.subsets() {
            self.look()?;
            if self.plans.contains_key(&(set | more)) {
                self.connected(set | more)?;
            }
        }
        for more in neighbours.subsets() {
            self.grow(set | more, excluded | neighbours)?;
        }
        Some(())
    }

    /// Looks for the partners of a connected set (EmitCsg).
    fn connected(&mut self, set: RelationSet) -> Option<()> {
        let excluded = set | RelationSet::up_to(set.first());
        let neighbours = self.neighbours(set, excluded);
        for relation in neighbours.iter().rev() {
            let partner = RelationSet::of(relation);
            if self.graph.connects(set, partner) {
                self.pair(set, partner)?;
            }
            let lower = RelationSet::up_to(relation) & neighbours;
            self.grow_partner(set, partner, excluded | lower)?;
        }
        Some(())
    }

    /// Grows the partner of a set (EnumerateCmpRec).
    fn grow_partner(
        &mut self,
        set: RelationSet,
        partner: RelationSet,
        excluded: RelationSet,
    ) -> Option<()> {
        let neighbours = self.neighbours(partner, excluded);
        for more in neighbours.subsets() {
            self.look()?;
            let partner = partner | more;
            if self.plans.contains_key(&partner) && self.graph.connects(set, partner) {
                self.pair(set, partner)?;
            }
        }
        for more in neighbours.subsets() {
            self.grow_partner(set, partner | more, excluded | neighbours)?;
        }
        Some(())
    }

    /// Counts a set that is looked at.
    fn look(&mut self) -> Option<()> {
        self.sets_left = self.sets_left.checked_sub(1)?;
        Some(())
    }

    /// A plan for the two together (EmitCsgCmp).
    fn pair(&mut self, a: RelationSet, b: RelationSet) -> Option<()> {
        let plan = self.graph.join(&self.plans[&a], &self.plans[&b]);
        let known = self.plans.get(&plan.set);
        if known.is_none_or(|known| plan.cost < known.cost) {
            self.plans.insert(plan.set, plan);
        }
        Some(())
    }

    /// What edges lead to from a set, the least relation standing for each side of a hyperedge.
    fn neighbours(&self, set: RelationSet, excluded: RelationSet) -> RelationSet {
        let mut neighbours = RelationSet::EMPTY;
        for edge in &self.graph.edges {
            for (from, to) in [(edge.left, edge.right), (edge.right, edge.left)] {
                if set.contains(from) && !to.meets(set | excluded) && !to.meets(neighbours) {
                    neighbours = neighbours | RelationSet::of(to.first());
                }
            }
        }
        neighbours
    }
}
