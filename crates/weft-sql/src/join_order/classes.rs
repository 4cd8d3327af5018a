//! Classes of expressions that conditions make equal: with a = b and b = c there is a = c, which may be the better
//! condition to join on.

use datafusion::logical_expr::Expr;

/// Most classes that are told apart in the graph; further conditions imply nothing.
const CLASSES_MAX: usize = 64;
/// A class of more expressions than this implies nothing: so many conditions would make too many orders.
const MEMBERS_MAX: usize = 8;

/// Expressions, each the same as some others by what is known so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    members: Vec<Expr>,
    /// For each, another one of its class, or itself.
    parents: Vec<usize>,
}

impl Classes {
    /// Makes two expressions equal; false if they are already.
    pub(super) fn unite(&mut self, a: &Expr, b: &Expr) -> bool {
        let (a, b) = (self.member(a), self.member(b));
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a] = b;
        a != b
    }

    /// The classes, each of two expressions or more.
    pub(super) fn classes(&self) -> impl Iterator<Item = Vec<&Expr>> {
        let of = |root: usize| -> Vec<&Expr> {
            let members = (0..self.members.len()).filter(|member| self.root(*member) == root);
            members.map(|member| &self.members[member]).collect()
        };
        let roots = (0..self.members.len()).filter(|member| self.parents[*member] == *member);
        roots.map(of).take(CLASSES_MAX)
    }

    /// Bits of the classes that are counted: that of an expression, or none.
    pub(super) fn bit(&self, expr: &Expr) -> u64 {
        self.classes().position(|class| class.contains(&expr)).map_or(0, |number| 1 << number)
    }

    /// Every two expressions that are equal.
    pub(super) fn pairs(&self) -> Vec<(&Expr, &Expr)> {
        let few = self.classes().filter(|class| class.len() <= MEMBERS_MAX);
        few.flat_map(|class| {
            let pairs = (0..class.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            pairs.map(|(a, b)| (class[a], class[b])).collect::<Vec<_>>()
        })
        .collect()
    }

    fn member(&mut self, expr: &Expr) -> usize {
        let known = self.members.iter().position(|member| member == expr);
        known.unwrap_or_else(|| {
            self.members.push(expr.clone());
            self.parents.push(self.parents.len());
            self.parents.len() - 1
        })
    }

    fn root(&self, member: usize) -> usize {
        let mut root = member;
        while self.parents[root] != root {
            root = self.parents[root];
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn what_equals_the_same_is_equal() {
        let mut classes = Classes::default();
        let [a, b, c, x, y] = ["a", "b", "c", "x", "y"].map(col);
        assert!(classes.unite(&a, &b) && classes.unite(&x, &y) && classes.unite(&c, &b));
        assert!(!classes.unite(&a, &c) && !classes.unite(&y, &x));
        assert_eq!(classes.pairs().len(), 4, "three of a, b and c, one of x and y");
        assert!(classes.pairs().contains(&(&a, &c)));
        assert_eq!(classes.bit(&a), classes.bit(&c));
        assert_ne!(classes.bit(&a), classes.bit(&x));
        assert_eq!(classes.bit(&col("z")), 0);
    }
}
