//! Queries with columns that share a name, as people write them and DataFusion refuses them: the second column is
//! called `name_1`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, TableAlias, VisitMut, VisitorMut,
};

use crate::error::SqlError;
use crate::statement::fold;

/// A name like this one that is not taken, which is then.
pub(crate) fn free_name(name: &str, taken: &mut HashSet<String>) -> String {
    let mut numbered = (1..).map(|number| format!("{name}_{number}"));
    numbered.find(|name| taken.insert(name.clone())).expect("there is a free name")
}

/// Gives the columns of an alias, as of `t(a, a)`, a name each.
pub(crate) fn name_alias_columns(alias: &mut TableAlias) {
    let mut taken = HashSet::new();
    for column in &mut alias.columns {
        let name = folded(&column.name);
        if !taken.insert(name.clone()) {
            column.name = Ident::with_quote('"', free_name(&name, &mut taken));
        }
    }
}

/// Names the columns that are written beside `*` and are among its columns as well, now that planning has found that
/// one of them occurs twice. False if there is no such column.
pub(crate) fn name_beside_wildcards(statement: &mut DfStatement, error: &SqlError) -> bool {
    let Some(column) = error.subject().filter(|_| error.message().ends_with(TWICE)) else {
        return false;
    };
    let mut naming = Naming { column: column.to_owned(), any: false };
    if let DfStatement::Statement(statement) = statement {
        // The visitor never breaks.
        let _ = statement.visit(&mut naming);
    }
    naming.any
}

/// How the message ends that a column is there twice.
pub(crate) const TWICE: &str = "occurs twice";

struct Naming {
    column: String,
    any: bool,
}

impl VisitorMut for Naming {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let is_wildcard = |item: &SelectItem| {
            matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
        };
        if !select.projection.iter().any(is_wildcard) {
            return ControlFlow::Continue(());
        }
        let mut taken = HashSet::new();
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                taken.insert(folded(alias));
            }
        }
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let name = match expr {
                Expr::Identifier(name) => folded(name),
                Expr::CompoundIdentifier(parts) => parts.last().map(folded).unwrap_or_default(),
                _ => continue,
            };
            if name == self.column {
                let alias = Ident::with_quote('"', free_name(&name, &mut taken));
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                self.any = true;
            }
        }
        ControlFlow::Continue(())
    }
}

fn folded(name: &Ident) -> String {
    fold(name.value.clone(), name.quote_style)
}
