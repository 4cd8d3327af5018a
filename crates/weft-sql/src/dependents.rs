//! Which views need a table or view.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ObjectName, Query, Visit, Visitor};
use weft_store::Snapshot;

use crate::catalog::relation_name;
use crate::definitions;
use crate::statement::{fold, parse_query};

/// The views that need `name`, themselves or through others, in order of their names.
pub(crate) fn dependents(snapshot: &Snapshot, name: &str) -> Vec<String> {
    let views: Vec<(&str, HashSet<String>)> =
        definitions::views(snapshot).map(|(view, sql)| (view, relations(sql))).collect();
    let mut needed = HashSet::from([name.to_owned()]);
    let mut found = HashSet::new();
    loop {
        let more: Vec<&str> = views
            .iter()
            .filter(|(view, uses)| !found.contains(*view) && !uses.is_disjoint(&needed))
            .map(|(view, _)| *view)
            .collect();
        if more.is_empty() {
            break;
        }
        needed.extend(more.iter().map(|view| (*view).to_owned()));
        found.extend(more);
    }
    let mut found: Vec<String> = found.into_iter().map(str::to_owned).collect();
    found.sort_unstable();
    found
}

/// The tables and views that a query names; nothing for one that does not parse.
fn relations(sql: &str) -> HashSet<String> {
    let mut names = Names::default();
    if let Ok(query) = parse_query(sql) {
        // The visitor never breaks.
        let _ = query.visit(&mut names);
    }
    names.relations.difference(&names.own).cloned().collect()
}

#[derive(Default)]
struct Names {
    relations: HashSet<String>,
    /// Names that the query gives to queries of its own.
    own: HashSet<String>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.own.extend(tables.map(|table| {
            let name = &table.alias.name;
            fold(name.value.clone(), name.quote_style)
        }));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.relations.extend(relation_name(relation));
        ControlFlow::Continue(())
    }
}
