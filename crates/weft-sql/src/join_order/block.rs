//! A block of joins: taken apart into a graph, and put together in another order.
//!
//! Inner joins, filters above them and projections that only leave out columns become relations and conditions. Semi
//! and anti joins attach their right side to the relations that their conditions are about. Whatever else there is, an
//! outer join say, is a relation of its own, whose inside is ordered apart.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result as DfResult};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Projection,
};

use super::classes::Classes;
use super::estimate::{Estimator, guess};
use super::graph::{Edge, Graph, Relation, Role, Tree};
use super::order::order;
use super::set::{RELATIONS_MAX, RelationSet};

/// A new order must be so much cheaper to be worth it.
const GAIN_MIN: f64 = 0.01;

/// Joins taken apart.
#[derive(Default)]
struct Block {
    leaves: Vec<Arc<LogicalPlan>>,
    conditions: Vec<Condition>,
    /// What the conditions make equal, of single relations each.
    classes: Classes,
    /// The joins of attached relations, by their leaves.
    attached: Vec<(usize, Join)>,
}

/// The relations that the two sides of an equality are about.
type Sides = (RelationSet, RelationSet);

/// What must be equal.
type Keys<'a> = (&'a Expr, &'a Expr);

/// A condition on some of the relations.
struct Condition {
    /// What must be equal, as it was written.
    sides: Option<(Expr, Expr)>,
    expr: Expr,
}

/// Orders the joins at the root of a plan, and by `inside` those within its relations.
pub(super) fn reorder(
    plan: LogicalPlan,
    inside: &dyn Fn(LogicalPlan) -> DfResult<Transformed<LogicalPlan>>,
) -> DfResult<Transformed<LogicalPlan>> {
    let mut block = Block::default();
    let current = block.take_apart(&plan);
    block.add_implied();
    let Some((graph, needs)) = block.graph().filter(|_| block.leaves.len() > 2) else {
        return plan.map_children(inside);
    };
    let before = graph.cost(&current);
    let best = order(graph.clone());
    let after = graph.cost(&best);
    log::debug!("joins cost {before:.0} as written, {after:.0} in the order {best:?}");
    if after > before * (1.0 - GAIN_MIN) {
        return block.order_inside(plan, inside);
    }
    for leaf in &mut block.leaves {
        *leaf = Arc::new(inside(Arc::unwrap_or_clone(leaf.clone()))?.data);
    }
    let used = vec![false; block.conditions.len()];
    let mut rebuild = Rebuild { used, block: &block, needs, equal: Classes::default() };
    let (joined, _) = rebuild.plan(&best)?;
    let rest = rebuild.unused();
    let joined = match conjunction(rest) {
        Some(predicate) => Arc::new(LogicalPlan::Filter(Filter::try_new(predicate, joined)?)),
        None => joined,
    };
    // Columns in the order that is expected above.
    let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let schema = Arc::clone(plan.schema());
    let projection = Projection::try_new_with_schema(columns, joined, schema)?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

impl Block {
    /// Takes a plan apart into relations and conditions; returns the order in which they are joined.
    fn take_apart(&mut self, plan: &LogicalPlan) -> Tree {
        match plan {
            LogicalPlan::Join(join)
                if join.join_type == JoinType::Inner
                    && join.null_equality == NullEquality::NullEqualsNothing =>
            {
                let left = self.take_apart(&join.left);
                let right = self.take_apart(&join.right);
                for (a, b) in &join.on {
                    let expr = a.clone().eq(b.clone());
                    self.conditions.push(Condition { sides: Some((a.clone(), b.clone())), expr });
                }
                self.add_conditions(join.filter.iter());
                Tree::Join { probe: Box::new(right), build: Box::new(left), rows: 0.0 }
            }
            LogicalPlan::Join(join)
                if matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
                    && !join.on.is_empty()
                    && !join.null_aware =>
            {
                let left = self.take_apart(&join.left);
                let right = self.leaves.len();
                self.leaves.push(Arc::clone(&join.right));
                self.attached.push((right, join.clone()));
                Tree::Join { probe: Box::new(left), build: Box::new(Tree::Leaf(right)), rows: 0.0 }
            }
            LogicalPlan::Filter(filter)
                if is_joined(&filter.input) && is_movable(&filter.predicate) =>
            {
                self.add_conditions([&filter.predicate]);
                self.take_apart(&filter.input)
            }
            LogicalPlan::Projection(projection)
                if is_joined(&projection.input)
                    && projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) =>
            {
                self.take_apart(&projection.input)
            }
            other => {
                self.leaves.push(Arc::new(other.clone()));
                Tree::Leaf(self.leaves.len() - 1)
            }
        }
    }

    fn add_conditions<'a>(&mut self, predicates: impl IntoIterator<Item = &'a Expr>) {
        for condition in predicates.into_iter().flat_map(split_conjunction) {
            self.conditions.push(Condition { sides: None, expr: condition.clone() });
        }
    }

    /// Adds the equalities between two relations that follow from others.
    fn add_implied(&mut self) {
        let mut classes = Classes::default();
        let mut known = Vec::new();
        for condition in &self.conditions {
            if let Some(((left, right), (a, b))) = condition.equality(self)
                && left.len() == 1
                && right.len() == 1
                && !condition.expr.is_volatile()
            {
                classes.unite(a, b);
                known.push((a, b));
            }
        }
        let of = |expr: &Expr| self.relations(expr);
        let is_new = |(a, b): &(&Expr, &Expr)| {
            of(a) != of(b) && !known.contains(&(*a, *b)) && !known.contains(&(*b, *a))
        };
        let implied = classes.pairs().into_iter().filter(is_new).map(|(a, b)| Condition {
            sides: Some((a.clone(), b.clone())),
            expr: a.clone().eq(b.clone()),
        });
        let implied: Vec<Condition> = implied.collect();
        self.conditions.extend(implied);
        self.classes = classes;
    }

    /// The relations that an expression is about; `None` if that is not clear.
    fn relations(&self, expr: &Expr) -> Option<RelationSet> {
        let mut set = RelationSet::EMPTY;
        for column in expr.column_refs() {
            let is_attached = |leaf: &usize| self.attached.iter().any(|(right, _)| right == leaf);
            let mut of = (0..self.leaves.len())
                .filter(|leaf| !is_attached(leaf))
                .filter(|leaf| self.leaves[*leaf].schema().has_column(column));
            let leaf = of.next()?;
            if of.next().is_some() {
                return None;
            }
            set = set | RelationSet::of(leaf);
        }
        Some(set)
    }

    /// The graph, and the relations that each condition is about; `None` if the joins have to stay as they are.
    fn graph(&self) -> Option<(Graph, Vec<RelationSet>)> {
        if self.leaves.len() > RELATIONS_MAX {
            return None;
        }
        let needs: Vec<RelationSet> = self
            .conditions
            .iter()
            .map(|condition| self.relations(&condition.expr))
            .collect::<Option<_>>()?;
        let estimator = Estimator::default();
        let mut graph = Graph::default();
        for (number, leaf) in self.leaves.iter().enumerate() {
            let own = self
                .conditions
                .iter()
                .zip(&needs)
                .filter(|(_, needs)| **needs == RelationSet::of(number));
            let part: f64 = own.map(|(condition, _)| guess(&condition.expr)).product();
            let rows = (estimator.rows(leaf) * part).max(1.0);
            graph.relations.push(Relation { rows, role: Role::Inner });
        }
        for (leaf, join) in &self.attached {
            let mut left = join.on.iter().map(|(left, _)| self.relations(left));
            let left = left.try_fold(RelationSet::EMPTY, |all, one| Some(all | one?))?;
            let filter = self.filter_relations(join)?;
            let left = left | filter;
            if left.is_empty() {
                return None;
            }
            let factor = estimator.attached_factor(join, graph.relations[*leaf].rows);
            graph.relations[*leaf].role = Role::Attached { factor };
            let right = RelationSet::of(*leaf);
            graph.edges.push(Edge { left, right, selectivity: 1.0, classes: 0 });
        }
        self.add_equalities(&mut graph, &estimator);
        for (condition, needs) in self.conditions.iter().zip(&needs) {
            if needs.len() > 1 && condition.equality(self).is_none() {
                graph.filters.push((*needs, guess(&condition.expr)));
            }
        }
        Some((graph, needs))
    }

    /// The relations on the left that the filter of an attached join is about.
    fn filter_relations(&self, join: &Join) -> Option<RelationSet> {
        let Some(filter) = &join.filter else { return Some(RelationSet::EMPTY) };
        let mut set = RelationSet::EMPTY;
        for column in filter.column_refs() {
            if join.left.schema().has_column(column) {
                set = set | self.relations(&Expr::Column(column.clone()))?;
            }
        }
        Some(set)
    }

    /// Adds an edge for each pair of sides that keys connect: all keys between the same two count together.
    fn add_equalities(&self, graph: &mut Graph, estimator: &Estimator) {
        let mut pairs: Vec<(Sides, Vec<Keys<'_>>)> = Vec::new();
        for condition in &self.conditions {
            let Some((sets, keys)) = condition.equality(self) else { continue };
            match pairs.iter_mut().find(|(known, _)| *known == sets) {
                Some((_, known)) => known.push(keys),
                None => pairs.push((sets, vec![keys])),
            }
        }
        for ((left, right), keys) in pairs {
            let side = |set: RelationSet| {
                let leaf = set.first();
                (self.leaves[leaf].as_ref(), graph.relations[leaf].rows)
            };
            let selectivity = match left.len() == 1 && right.len() == 1 {
                true => estimator.equal(&keys, side(left), side(right)),
                false => {
                    let rows = |set: RelationSet| -> f64 {
                        set.iter().map(|leaf| graph.relations[leaf].rows).fold(1.0, f64::max)
                    };
                    1.0 / rows(left).max(rows(right))
                }
            };
            let classes =
                keys.iter().map(|(key, _)| self.classes.bit(key)).fold(0, |all, bit| all | bit);
            graph.edges.push(Edge { left, right, selectivity, classes });
        }
    }

    /// Leaves the joins as they are and orders only within the relations.
    fn order_inside(
        &self,
        plan: LogicalPlan,
        inside: &dyn Fn(LogicalPlan) -> DfResult<Transformed<LogicalPlan>>,
    ) -> DfResult<Transformed<LogicalPlan>> {
        plan.transform_down(|plan| {
            if self.leaves.iter().any(|leaf| **leaf == plan) {
                let ordered = inside(plan)?;
                let stop = TreeNodeRecursion::Jump;
                return Ok(Transformed::new(ordered.data, ordered.transformed, stop));
            }
            Ok(Transformed::no(plan))
        })
    }
}

impl Condition {
    /// What must be equal, with the lesser set of relations first; `None` if the sides do not lie apart.
    fn equality<'a>(&'a self, block: &Block) -> Option<(Sides, Keys<'a>)> {
        let (a, b) = self.sides.as_ref()?;
        let (left, right) = (block.relations(a)?, block.relations(b)?);
        if left.is_empty() || right.is_empty() || left.meets(right) {
            return None;
        }
        Some(if left <= right { ((left, right), (a, b)) } else { ((right, left), (b, a)) })
    }
}

/// True of a plan in which joins can be taken apart, seen through what is taken apart with them.
fn is_joined(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => {
            matches!(join.join_type, JoinType::Inner | JoinType::LeftSemi | JoinType::LeftAnti)
        }
        LogicalPlan::Filter(filter) => is_joined(&filter.input),
        LogicalPlan::Projection(projection) => is_joined(&projection.input),
        _ => false,
    }
}

/// True of a condition that may be evaluated elsewhere, and on other rows.
fn is_movable(predicate: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        matches!(
            expr,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
                | Expr::SetComparison(_)
        )
    };
    !predicate.is_volatile() && !predicate.exists(|expr| Ok(is_subquery(expr))).unwrap_or(true)
}

/// Joins being put together.
struct Rebuild<'a> {
    block: &'a Block,
    needs: Vec<RelationSet>,
    /// Conditions that are in the plan already.
    used: Vec<bool>,
    /// What these make equal.
    equal: Classes,
}

impl<'a> Rebuild<'a> {
    fn plan(&mut self, tree: &Tree) -> DfResult<(Arc<LogicalPlan>, RelationSet)> {
        match tree {
            Tree::Leaf(leaf) => {
                let set = RelationSet::of(*leaf);
                let plan = Arc::clone(&self.block.leaves[*leaf]);
                let own = self.take(|needs| needs == set);
                Ok((
                    match conjunction(own.into_iter().map(|condition| condition.expr.clone())) {
                        Some(predicate) => {
                            Arc::new(LogicalPlan::Filter(Filter::try_new(predicate, plan)?))
                        }
                        None => plan,
                    },
                    set,
                ))
            }
            Tree::Join { probe, build, .. } => {
                let attached = match build.as_ref() {
                    Tree::Leaf(leaf) => self.block.attached.iter().find(|(right, _)| right == leaf),
                    Tree::Join { .. } => None,
                };
                let (probe, probe_set) = self.plan(probe)?;
                let (build, build_set) = self.plan(build)?;
                let joined = match attached {
                    Some((_, join)) => Join::try_new(
                        probe,
                        build,
                        join.on.clone(),
                        join.filter.clone(),
                        join.join_type,
                        join.join_constraint,
                        join.null_equality,
                        join.null_aware,
                    )?,
                    None => self.inner((build, build_set), (probe, probe_set))?,
                };
                Ok((Arc::new(LogicalPlan::Join(joined)), probe_set | build_set))
            }
        }
    }

    /// The inner join of two plans on all conditions that can be checked now.
    fn inner(
        &mut self,
        (left, left_set): (Arc<LogicalPlan>, RelationSet),
        (right, right_set): (Arc<LogicalPlan>, RelationSet),
    ) -> DfResult<Join> {
        let both = left_set | right_set;
        let (mut on, mut filters) = (Vec::new(), Vec::new());
        for condition in self.take(|needs| !needs.is_empty() && both.contains(needs)) {
            let equality = condition.equality(self.block);
            if let Some((_, (a, b))) = equality
                && self.block.classes.bit(a) & self.block.classes.bit(b) != 0
                && !self.equal.unite(a, b)
            {
                // It follows from what is joined on already.
                continue;
            }
            match equality {
                Some(((a, b), (x, y))) if left_set.contains(a) && right_set.contains(b) => {
                    on.push((x.clone(), y.clone()));
                }
                Some(((a, b), (x, y))) if left_set.contains(b) && right_set.contains(a) => {
                    on.push((y.clone(), x.clone()));
                }
                _ => filters.push(condition.expr.clone()),
            }
        }
        let equality = NullEquality::NullEqualsNothing;
        let filter = conjunction(filters);
        Join::try_new(left, right, on, filter, JoinType::Inner, JoinConstraint::On, equality, false)
    }

    /// The conditions that are not in the plan yet and that are about relations as `wanted` says.
    fn take(&mut self, wanted: impl Fn(RelationSet) -> bool) -> Vec<&'a Condition> {
        let block = self.block;
        let mut taken = Vec::new();
        for (number, condition) in block.conditions.iter().enumerate() {
            if !self.used[number] && wanted(self.needs[number]) {
                self.used[number] = true;
                taken.push(condition);
            }
        }
        taken
    }

    /// What is left: conditions on no relation at all.
    fn unused(&self) -> Vec<Expr> {
        let conditions = self.block.conditions.iter().zip(&self.used);
        conditions
            .filter(|(_, used)| !**used)
            .map(|(condition, _)| condition.expr.clone())
            .collect()
    }
}
