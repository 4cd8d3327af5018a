//! Join graphs: relations, and the conditions that connect them, with what they let through.

use super::set::RelationSet;

/// What a relation is to the relations that it is joined with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// Joined freely.
    Inner,
    /// It only decides about the rows of what its one edge connects it with: the right side of a semi, anti, mark or
    /// left outer join. `factor` rows are left, on average, of each of those.
    Attached {
        /// 0 to 1 for semi and anti joins, 1 for mark joins, 1 or more for outer joins.
        factor: f64,
    },
}

/// An input of the joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relation {
    /// Rows, after the conditions on this relation alone.
    pub(super) rows: f64,
    pub(super) role: Role,
}

/// A condition that connects relations: all of `left` with all of `right`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) left: RelationSet,
    pub(super) right: RelationSet,
    /// The part of all pairs that satisfies it; of no account at an attached relation.
    pub(super) selectivity: f64,
    /// A bit for each class of equal expressions that it is about. What is equal within both sides of a join is
    /// compared once.
    pub(super) classes: u64,
}

/// What is to be joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) relations: Vec<Relation>,
    pub(super) edges: Vec<Edge>,
    /// Conditions that connect nothing, and the part of the rows that each lets through once all of its relations are
    /// joined.
    pub(super) filters: Vec<(RelationSet, f64)>,
}

/// An order: what is joined with what.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    /// A relation.
    Leaf(usize),
    /// The rows of `build` go into a hash table, those of `probe` look there; or the other way round for an attached
    /// relation, which is always the build side as far as this tree is concerned.
    Join { probe: Box<Tree>, build: Box<Tree>, rows: f64 },
}

/// The best way that is known to join a set of relations.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) set: RelationSet,
    pub(super) rows: f64,
    pub(super) cost: f64,
    /// Probe and build side; none for a single relation.
    pub(super) sides: Option<(RelationSet, RelationSet)>,
}

/// A tuple that is put into a hash table costs about as much as so many that look there.
const BUILD_COST: f64 = 2.0;

impl Graph {
    pub(super) fn single(&self, relation: usize) -> Plan {
        let rows = self.relations[relation].rows;
        Plan { set: RelationSet::of(relation), rows, cost: 0.0, sides: None }
    }

    /// True if some edge connects the two.
    pub(super) fn connects(&self, a: RelationSet, b: RelationSet) -> bool {
        self.edges.iter().any(|edge| {
            a.contains(edge.left) && b.contains(edge.right)
                || a.contains(edge.right) && b.contains(edge.left)
        })
    }

    /// The factor of an attached relation, if the set is one.
    pub(super) fn attached(&self, set: RelationSet) -> Option<f64> {
        match self.relations[set.first()].role {
            Role::Attached { factor } if set.len() == 1 => Some(factor),
            _ => None,
        }
    }

    /// The join of two plans, the cheaper way round.
    pub(super) fn join(&self, a: &Plan, b: &Plan) -> Plan {
        let set = a.set | b.set;
        let (rows, forced) = match (self.attached(a.set), self.attached(b.set)) {
            (_, Some(factor)) => (a.rows * factor, Some((a, b))),
            (Some(factor), None) => (b.rows * factor, Some((b, a))),
            (None, None) => (a.rows * b.rows * self.selectivity(a.set, b.set), None),
        };
        let (probe, build) = forced.unwrap_or(if b.rows <= a.rows { (a, b) } else { (b, a) });
        // Whoever runs the join may build on either side of an attached relation as well.
        let (small, large) = if build.rows <= probe.rows { (build, probe) } else { (probe, build) };
        let own = BUILD_COST * small.rows + large.rows + rows;
        Plan { set, rows, cost: a.cost + b.cost + own, sides: Some((probe.set, build.set)) }
    }

    /// What all conditions between the two let through that could not be checked within either.
    fn selectivity(&self, a: RelationSet, b: RelationSet) -> f64 {
        let whole = a | b;
        let is_between = |edge: &&Edge| {
            let needs = edge.left | edge.right;
            whole.contains(needs) && !a.contains(needs) && !b.contains(needs)
        };
        let between: Vec<&Edge> = self.edges.iter().filter(is_between).collect();
        let filters = self.filters.iter().filter(|(needs, _)| {
            whole.contains(*needs) && !a.contains(*needs) && !b.contains(*needs)
        });
        of_edges(between) * filters.map(|(_, part)| *part).product::<f64>()
    }

    /// What an order costs.
    pub(super) fn cost(&self, tree: &Tree) -> f64 {
        self.plan(tree).cost
    }

    fn plan(&self, tree: &Tree) -> Plan {
        match tree {
            Tree::Leaf(relation) => self.single(*relation),
            Tree::Join { probe, build, .. } => self.join(&self.plan(probe), &self.plan(build)),
        }
    }

    /// The sets of relations that can be joined by edges alone. A condition on several relations of one side needs
    /// those to be joined before.
    pub(super) fn components(&self) -> Vec<RelationSet> {
        let mut components: Vec<RelationSet> =
            (0..self.relations.len()).map(RelationSet::of).collect();
        let of = |components: &[RelationSet], set: RelationSet| {
            components.iter().position(|component| component.contains(set))
        };
        loop {
            let joins = self.edges.iter().find_map(|edge| {
                let (a, b) = (of(&components, edge.left)?, of(&components, edge.right)?);
                (a != b).then_some((a.min(b), a.max(b)))
            });
            let Some((a, b)) = joins else { return components };
            let joined = components.swap_remove(b);
            components[a] = components[a] | joined;
        }
    }
}

/// What conditions let through together. One that says nothing of a class that others have not said does not count. Those
/// with most classes are asked first, and then those that let most through: they are about the values that are left where a
/// class has fewest.
fn of_edges(mut edges: Vec<&Edge>) -> f64 {
    let by_classes = |edge: &&Edge| std::cmp::Reverse(edge.classes.count_ones());
    edges.sort_by(|a, b| {
        by_classes(a).cmp(&by_classes(b)).then(b.selectivity.total_cmp(&a.selectivity))
    });
    let mut said = 0;
    let says_more = |edge: &&&Edge| {
        let is_new = edge.classes == 0 || edge.classes & !said != 0;
        said |= edge.classes;
        is_new
    };
    edges.iter().filter(says_more).map(|edge| edge.selectivity).product()
}
