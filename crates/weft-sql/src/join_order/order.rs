//! The order of the joins of a graph.

use std::collections::HashMap;

use super::graph::{Edge, Graph, Plan, Tree};
use super::set::{RELATIONS_MAX, RelationSet};
use super::{dphyp, greedy};

/// Sets of relations that dynamic programming may look at: enough for twelve relations in a star and for nine that are
/// all connected with each other; some milliseconds.
const SETS_MAX: usize = 50_000;

/// The order in which the relations of a graph are joined.
///
/// # Panics
/// If there are none, or more than [`RELATIONS_MAX`].
pub(super) fn order(mut graph: Graph) -> Tree {
    let relations = graph.relations.len();
    assert!((1..=RELATIONS_MAX).contains(&relations), "{relations} relations");
    connect(&mut graph);
    let plans = dphyp::enumerate(&graph, SETS_MAX).unwrap_or_else(|| greedy::order(&graph));
    tree(&plans, (0..relations).collect())
}

/// Connects what no condition connects by an edge that lets everything through. An attached relation has its edge, and
/// waits for what that needs.
fn connect(graph: &mut Graph) {
    let mut components = graph.components();
    components.retain(|component| graph.attached(*component).is_none());
    for (number, left) in components.iter().enumerate() {
        for right in &components[number + 1..] {
            graph.edges.push(Edge { left: *left, right: *right, selectivity: 1.0, classes: 0 });
        }
    }
}

fn tree(plans: &HashMap<RelationSet, Plan>, set: RelationSet) -> Tree {
    let plan = &plans[&set];
    match plan.sides {
        None => Tree::Leaf(set.first()),
        Some((probe, build)) => Tree::Join {
            probe: Box::new(tree(plans, probe)),
            build: Box::new(tree(plans, build)),
            rows: plan.rows,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::{Relation, Role};
    use super::*;

    fn graph(rows: &[f64], edges: &[(&[usize], &[usize], f64)]) -> Graph {
        let inner = |rows: &f64| Relation { rows: *rows, role: Role::Inner };
        let set = |relations: &[usize]| relations.iter().copied().collect();
        let edge = |(left, right, selectivity): &(&[usize], &[usize], f64)| Edge {
            left: set(left),
            right: set(right),
            selectivity: *selectivity,
            classes: 0,
        };
        Graph {
            relations: rows.iter().map(inner).collect(),
            edges: edges.iter().map(edge).collect(),
            filters: Vec::new(),
        }
    }

    fn leaves(tree: &Tree) -> Vec<usize> {
        match tree {
            Tree::Leaf(relation) => vec![*relation],
            Tree::Join { probe, build, .. } => [leaves(probe), leaves(build)].concat(),
        }
    }

    /// The least cost over all trees that join only what is connected, found by trying all.
    fn cheapest(
        graph: &Graph,
        set: RelationSet,
        known: &mut HashMap<RelationSet, Option<Plan>>,
    ) -> Option<Plan> {
        if set.len() == 1 {
            return Some(graph.single(set.first()));
        }
        if let Some(plan) = known.get(&set) {
            return plan.clone();
        }
        let mut best: Option<Plan> = None;
        for a in set.subsets().filter(|a| *a != set) {
            let b = set - a;
            if !graph.connects(a, b) {
                continue;
            }
            if let (Some(a), Some(b)) = (cheapest(graph, a, known), cheapest(graph, b, known)) {
                let plan = graph.join(&a, &b);
                if best.as_ref().is_none_or(|best| plan.cost < best.cost) {
                    best = Some(plan);
                }
            }
        }
        known.insert(set, best.clone());
        best
    }

    #[test]
    fn a_chain_begins_with_what_leaves_least() {
        // region, nation, customer, orders: the filtered region makes everything small.
        let chain = graph(
            &[1.0, 25.0, 150_000.0, 1_500_000.0],
            &[(&[0], &[1], 0.2), (&[1], &[2], 0.04), (&[2], &[3], 1.0 / 150_000.0)],
        );
        let Tree::Join { probe, build, .. } = order(chain) else { panic!("three joins") };
        assert_eq!(*probe, Tree::Leaf(3), "orders looks in the table of customers");
        assert_eq!(leaves(&build), [2, 1, 0]);
    }

    #[test]
    fn random_graphs_get_the_cheapest_order() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..400 {
            let relations = random.usize(2..8);
            let mut random_graph = Graph::default();
            for _ in 0..relations {
                let rows = 10f64.powf(random.f64() * 6.0);
                random_graph.relations.push(Relation { rows, role: Role::Inner });
            }
            for right in 1..relations {
                // A tree, some edges more, and a hyperedge now and then.
                for _ in 0..random.usize(1..3) {
                    let left = random.usize(..right);
                    let mut left = RelationSet::of(left);
                    if random.u8(..8) == 0 {
                        left = left | RelationSet::of(random.usize(..right));
                    }
                    let selectivity = 10f64.powf(-random.f64() * 6.0);
                    random_graph.edges.push(Edge {
                        left,
                        right: RelationSet::of(right),
                        selectivity,
                        classes: 0,
                    });
                }
            }
            if random.u8(..4) == 0 {
                let right = random_graph.relations.len();
                random_graph
                    .relations
                    .push(Relation { rows: 100.0, role: Role::Attached { factor: random.f64() } });
                let left = RelationSet::of(random.usize(..right));
                random_graph.edges.push(Edge {
                    left,
                    right: RelationSet::of(right),
                    selectivity: 1.0,
                    classes: 0,
                });
            }
            let all = (0..random_graph.relations.len()).collect();
            let best = cheapest(&random_graph, all, &mut HashMap::new());
            let found = dphyp::enumerate(&random_graph, usize::MAX);
            match (best, found) {
                (Some(best), Some(found)) => {
                    let (best, found) = (best.cost, found[&all].cost);
                    assert!(
                        (best - found).abs() <= best * 1e-9,
                        "round {round}: {found} for {best}: {random_graph:?}"
                    );
                }
                (None, None) => {}
                (best, found) => panic!("round {round}: {best:?}, {:?}", found.is_some()),
            }
            let mut joined = leaves(&order(random_graph.clone()));
            joined.sort_unstable();
            assert_eq!(joined, (0..random_graph.relations.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_nothing_connects_is_multiplied() {
        let tree = order(graph(&[10.0, 1000.0, 20.0], &[(&[0], &[2], 0.1)]));
        let Tree::Join { probe, build, rows } = tree else { panic!("two joins") };
        assert_eq!((leaves(&probe), leaves(&build), rows), (vec![1], vec![2, 0], 20_000.0));
    }

    #[test]
    fn a_condition_on_two_of_one_side_waits_for_both() {
        let tree = order(graph(&[10.0, 20.0, 1000.0], &[(&[0, 1], &[2], 0.001)]));
        let Tree::Join { probe, build, rows } = tree else { panic!("two joins") };
        assert_eq!((leaves(&probe), rows), (vec![2], 200.0));
        assert_eq!(leaves(&build).len(), 2, "these are multiplied");
    }

    #[test]
    fn an_attached_relation_waits_for_all_that_it_decides_about() {
        let mut semi = graph(&[10.0, 20.0, 5.0], &[(&[0, 1], &[2], 1.0)]);
        semi.relations[2].role = Role::Attached { factor: 0.1 };
        let Tree::Join { probe, build, .. } = order(semi) else { panic!("two joins") };
        assert_eq!((leaves(&probe).len(), leaves(&build)), (2, vec![2]));
    }

    #[test]
    fn what_is_equal_is_counted_once() {
        // a = b, b = c and a = c: the third says nothing new.
        let edges: [(&[usize], &[usize], f64); 3] =
            [(&[0], &[1], 0.01), (&[1], &[2], 0.1), (&[0], &[2], 0.01)];
        let mut triangle = graph(&[1000.0, 100.0, 10.0], &edges);
        triangle.edges.iter_mut().for_each(|edge| edge.classes = 1);
        let Tree::Join { rows, .. } = order(triangle) else { panic!("two joins") };
        assert!((rows - 1000.0).abs() < 1e-6, "{rows} rows");
    }

    #[test]
    fn large_graphs_are_ordered_too() {
        for relations in [13, 40, RELATIONS_MAX] {
            // A clique.
            let mut clique = Graph::default();
            for relation in 0..relations {
                let rows = (relation * 17 % 101 + 1) as f64;
                clique.relations.push(Relation { rows, role: Role::Inner });
                for left in 0..relation {
                    let (left, right) = (RelationSet::of(left), RelationSet::of(relation));
                    clique.edges.push(Edge { left, right, selectivity: 0.5, classes: 0 });
                }
            }
            let mut joined = leaves(&order(clique));
            joined.sort_unstable();
            assert_eq!(joined, (0..relations).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_attached_relation_is_built_and_filters_early() {
        // A semi join that leaves little of a large relation comes before its join with another.
        let mut semi = graph(&[1e6, 1e5, 1e3], &[(&[0], &[1], 1e-5), (&[0], &[2], 1.0)]);
        semi.relations[2].role = Role::Attached { factor: 0.01 };
        let Tree::Join { probe, build, .. } = order(semi) else { panic!("two joins") };
        assert_eq!((leaves(&probe), leaves(&build)), (vec![1], vec![0, 2]));
    }
}
