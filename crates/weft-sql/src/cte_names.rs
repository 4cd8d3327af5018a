//! Names of common table expressions that hide those of queries around them: DataFusion refuses a name that is taken. So the
//! inner one gets another name, and whoever reads it the old one as an alias.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, TableAlias, TableFactor, VisitorMut,
};

use crate::statement::fold;

/// Gives inner common table expressions names of their own.
#[derive(Default)]
pub(crate) struct CteNames {
    /// The queries around, from the outermost on.
    scopes: Vec<Scope>,
    /// Names given so far.
    given: usize,
}

/// The common table expressions of a query.
struct Scope {
    /// Their names as they were written, and as they are now.
    names: Vec<(String, Ident)>,
    /// How many can be read.
    visible: usize,
    /// A common table expression can read itself.
    is_recursive: bool,
    /// The query of the common table expression that comes next is being visited.
    within: bool,
}

impl Scope {
    /// What a name stands for here.
    fn find(&self, name: &str) -> Option<&Ident> {
        let visible = self.visible + usize::from(self.within && self.is_recursive);
        let mut names = self.names.iter().take(visible).rev();
        names.find(|(written, _)| written == name).map(|(_, now)| now)
    }
}

impl CteNames {
    fn find(&self, name: &str) -> Option<&Ident> {
        self.scopes.iter().rev().find_map(|scope| scope.find(name))
    }
}

impl VisitorMut for CteNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(scope) = self.scopes.last_mut()
            && scope.visible < scope.names.len()
        {
            scope.within = true;
        }
        let (mut names, mut is_recursive) = (Vec::new(), false);
        if let Some(with) = &mut query.with {
            is_recursive = with.recursive;
            for table in &mut with.cte_tables {
                let name = &mut table.alias.name;
                let written = fold(name.value.clone(), name.quote_style);
                if self.find(&written).is_some() {
                    self.given += 1;
                    *name = Ident::with_quote('"', format!("{written} ({})", self.given));
                }
                names.push((written, name.clone()));
            }
        }
        self.scopes.push(Scope { names, visible: 0, is_recursive, within: false });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.scopes.pop();
        if let Some(scope) = self.scopes.last_mut()
            && scope.within
        {
            scope.within = false;
            scope.visible += 1;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let [part] = name.0.as_slice() else { return ControlFlow::Continue(()) };
        let Some(ident) = part.as_ident().cloned() else { return ControlFlow::Continue(()) };
        let Some(now) = self.find(&fold(ident.value.clone(), ident.quote_style)) else {
            return ControlFlow::Continue(());
        };
        if fold(now.value.clone(), now.quote_style) != fold(ident.value.clone(), ident.quote_style)
        {
            *name = ObjectName::from(vec![now.clone()]);
            if alias.is_none() {
                *alias =
                    Some(TableAlias { explicit: true, name: ident, columns: Vec::new(), at: None });
            }
        }
        ControlFlow::Continue(())
    }
}
