//! FROM clauses: joins with ON in place of those with USING and NATURAL, and what they offer.

use std::slice;

use datafusion::sql::sqlparser::ast::{
    Ident, JoinConstraint, JoinOperator, ObjectName, TableAlias, TableFactor, TableWithJoins,
};

use super::probe::{columns_of, query_of};
use super::relation::{Relation, Sides};
use super::scope::Scope;
use super::{Writer, folded, has_using, visit};
use crate::forms::joins;

impl Writer<'_> {
    /// Writes out the queries in FROM, those apart that may use columns of the tables before them.
    pub(super) fn nested_queries(&mut self, from: &mut [TableWithJoins]) {
        for factor in from.iter_mut().flat_map(factors) {
            match factor {
                TableFactor::NestedJoin { table_with_joins, alias } => {
                    let is_hidden = alias.is_some() && has_using(slice::from_ref(table_with_joins));
                    if !is_hidden {
                        self.nested_queries(slice::from_mut(table_with_joins));
                        continue;
                    }
                    // The join is a table of its own, with the columns of its `*`.
                    let mut query = query_of(vec![(**table_with_joins).clone()]);
                    self.query(&mut query, None);
                    let (lateral, sample, alias) = (false, None, alias.take());
                    let subquery = Box::new(query);
                    *factor = TableFactor::Derived { lateral, subquery, alias, sample };
                }
                factor if is_lateral(factor) => {}
                TableFactor::Derived { subquery, .. } => self.query(subquery, None),
                other => visit(other, self),
            }
        }
    }

    /// Writes out the conditions of joins, and what may use columns of the tables before it, without
    /// knowing what there is.
    pub(super) fn conditions(&mut self, from: &mut [TableWithJoins]) {
        for table in from.iter_mut() {
            for join in &mut table.joins {
                if let Some((_, JoinConstraint::On(condition))) =
                    constraint_mut(&mut join.join_operator)
                {
                    visit(condition, self);
                }
            }
            for factor in factors(table) {
                match factor {
                    TableFactor::NestedJoin { table_with_joins, .. } => {
                        self.conditions(slice::from_mut(table_with_joins));
                    }
                    factor if is_lateral(factor) => self.lateral(factor),
                    _ => {}
                }
            }
        }
    }

    fn lateral(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::Derived { subquery, .. } => self.query(subquery, None),
            other => visit(other, self),
        }
    }

    /// Puts joins with ON into a FROM clause, names its derived tables if `is_using`, and tells what it
    /// offers. Nothing, with the clause left half done, if that cannot be told.
    pub(super) fn from(&mut self, from: &mut [TableWithJoins], is_using: bool) -> Option<Relation> {
        let mut all = Relation::default();
        for table in from {
            let next = self.joins(table, &all, is_using)?;
            all = all.beside(next);
        }
        Some(all)
    }

    fn joins(
        &mut self,
        table: &mut TableWithJoins,
        before: &Relation,
        is_using: bool,
    ) -> Option<Relation> {
        let mut left = self.factor(&mut table.relation, before, is_using)?;
        for join in &mut table.joins {
            let before = before.clone().beside(left.clone());
            let right = self.factor(&mut join.relation, &before, is_using)?;
            left = self.join(left, right, &mut join.join_operator)?;
        }
        Some(left)
    }

    fn factor(
        &mut self,
        factor: &mut TableFactor,
        before: &Relation,
        is_using: bool,
    ) -> Option<Relation> {
        let mut visible: &[_] = &[];
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.joins(table_with_joins, before, is_using);
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                let conditions = |writer: &mut Self| {
                    writer.conditions(slice::from_mut(table_with_joins));
                };
                self.within(Scope::unknown(), conditions);
            }
            _ if is_lateral(factor) => {
                self.within(Scope::of(Some(before.clone())), |writer| writer.lateral(factor));
                visible = &before.tables;
            }
            _ => {}
        }
        if is_using {
            self.name(factor);
        }
        let columns = columns_of(self.state, factor, visible, &self.withs)?;
        Some(Relation::table(factor.clone(), columns))
    }

    /// Names a derived table without a name, so that its columns can be told from others.
    fn name(&mut self, factor: &mut TableFactor) {
        if let TableFactor::Derived { alias: alias @ None, .. }
        | TableFactor::UNNEST { alias: alias @ None, .. } = factor
        {
            self.named += 1;
            let name = Ident::with_quote('"', format!("__unnamed_{}", self.named));
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
    }

    fn join(
        &mut self,
        left: Relation,
        right: Relation,
        operator: &mut JoinOperator,
    ) -> Option<Relation> {
        let (sides, constraint) = constraint_mut(operator)?;
        let keys = match constraint {
            JoinConstraint::None => return Some(left.joined(right, sides)),
            JoinConstraint::On(condition) => {
                let both = Scope::of(Some(left.clone().beside(right.clone())));
                self.within(both, |writer| visit(condition, writer));
                return Some(left.joined(right, sides));
            }
            JoinConstraint::Using(names) => names.iter().map(key).collect::<Option<_>>()?,
            JoinConstraint::Natural => left.common(&right),
        };
        let (condition, merged) = left.merged(right, &keys, sides)?;
        *constraint = JoinConstraint::On(condition);
        joins::finish_using(operator);
        Some(merged)
    }
}

/// The name of a key of USING.
fn key(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(folded),
        _ => None,
    }
}

fn factors(table: &mut TableWithJoins) -> impl Iterator<Item = &mut TableFactor> {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    std::iter::once(&mut table.relation).chain(joined)
}

/// True of what may use columns of the tables before it.
fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => *lateral,
        TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// The constraint of a join, of those that DataFusion plans.
pub(super) fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator as Op;
    match operator {
        Op::Join(of) | Op::Inner(of) | Op::CrossJoin(of) | Op::Left(of) | Op::LeftOuter(of) => {
            Some(of)
        }
        Op::Semi(of) | Op::LeftSemi(of) | Op::Anti(of) | Op::LeftAnti(of) => Some(of),
        Op::Right(of) | Op::RightOuter(of) | Op::FullOuter(of) => Some(of),
        Op::RightSemi(of) | Op::RightAnti(of) | Op::AsOf { constraint: of, .. } => Some(of),
        _ => None,
    }
}

/// The constraint of a join, and which columns the join has.
fn constraint_mut(operator: &mut JoinOperator) -> Option<(Sides, &mut JoinConstraint)> {
    use JoinOperator as Op;
    Some(match operator {
        Op::Join(of) | Op::Inner(of) | Op::CrossJoin(of) | Op::Left(of) | Op::LeftOuter(of) => {
            (Sides::Left, of)
        }
        Op::AsOf { constraint: of, .. } => (Sides::Left, of),
        Op::Semi(of) | Op::LeftSemi(of) | Op::Anti(of) | Op::LeftAnti(of) => (Sides::OnlyLeft, of),
        Op::Right(of) | Op::RightOuter(of) => (Sides::Right, of),
        Op::FullOuter(of) => (Sides::Either, of),
        Op::RightSemi(of) | Op::RightAnti(of) => (Sides::OnlyRight, of),
        _ => return None,
    })
}
