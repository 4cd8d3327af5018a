//! What a name without a table means, where it stands.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectNamePart, SelectItem, SelectItemQualifiedWildcardKind,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::folded;
use super::relation::{Column, Relation};
use super::select_list::name_of;

/// Where in a query a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clause {
    /// Where it means columns of FROM: there, in WHERE and in the select list.
    Rows,
    /// Where it means columns of FROM, else items of the select list: in GROUP BY, HAVING and QUALIFY.
    Groups,
    /// Where it means items of the select list, else columns of FROM: in ORDER BY and DISTINCT ON.
    Order,
}

/// The names that one query offers to its clauses and to the queries in it.
#[derive(Debug)]
pub(super) struct Scope {
    /// `None` if any name may be one of its columns.
    relation: Option<Relation>,
    /// The items of the select list by their names.
    items: HashMap<String, Option<Expr>>,
    is_distinct: bool,
    pub(super) clause: Clause,
}

impl Scope {
    /// Of a query with this FROM.
    pub(super) fn of(relation: Option<Relation>) -> Scope {
        Scope { relation, items: HashMap::new(), is_distinct: false, clause: Clause::Rows }
    }

    /// Of a query that may have any column.
    pub(super) fn unknown() -> Scope {
        Scope::of(None)
    }

    /// True if names may mean merged columns.
    pub(super) fn has_merged(&self) -> bool {
        let columns = self.relation.iter().flat_map(|relation| &relation.columns);
        columns.into_iter().any(|column| column.is_merged)
    }

    /// Tells the items of the select list.
    pub(super) fn name_items(&mut self, items: &[SelectItem], is_distinct: bool) {
        self.is_distinct = is_distinct;
        for item in items {
            if let Some((name, expr)) = name_of(item) {
                self.items.insert(name, Some(expr.clone()));
            } else if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(table),
                _,
            ) = item
            {
                let Some(ObjectNamePart::Identifier(table)) = table.0.last() else { continue };
                let table = folded(table);
                let tables = self.relation.iter().flat_map(|relation| &relation.tables);
                let columns = tables.flat_map(|(_, columns)| columns);
                let of_table =
                    columns.filter(|(of, _)| of.as_ref().is_some_and(|of| of.table() == table));
                self.items.extend(of_table.map(|(_, name)| (name.clone(), None)));
            }
        }
    }

    /// What a name means here: nothing if it means nothing, `Some(None)` if it is left as it is.
    pub(super) fn meaning(&self, name: &str) -> Option<Option<&Column>> {
        let Some(relation) = &self.relation else { return Some(None) };
        let mut columns = relation.columns.iter().filter(|column| column.name == name);
        let column = columns.next();
        let is_ambiguous = columns.next().is_some();
        let merged = column.filter(|column| column.is_merged && !is_ambiguous);
        if let (Clause::Order, Some(item)) = (self.clause, self.items.get(name)) {
            // The item may be the merged column, which is better said so unless DISTINCT has hidden it.
            return Some(merged.filter(|column| {
                let is_item = item.as_ref() == Some(&column.expr(Span::empty()));
                is_item && (column.is_plain() || !self.is_distinct)
            }));
        }
        if column.is_some() {
            return Some(merged);
        }
        let is_item = self.clause == Clause::Groups && self.items.contains_key(name);
        is_item.then_some(None)
    }
}
