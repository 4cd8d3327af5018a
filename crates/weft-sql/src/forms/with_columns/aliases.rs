//! Names of items of the select list in WHERE and in later items: `SELECT a + 1 AS b, b * 2 FROM t WHERE b > 3`. A column of FROM of
//! the name is meant first. (GROUP BY, HAVING, QUALIFY and ORDER BY are DataFusion's.)

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions, With,
};

use super::probe::columns_of;
use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::fold;

/// Functions whose value differs each time that they are evaluated.
const VOLATILE: [&str; 6] = ["random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval"];

/// True if a name in a select may be that of an item.
pub(super) fn may_be_in(select: &Select) -> bool {
    let mut aliases = HashSet::new();
    let mut names = Names { aliases: &mut aliases, depth: 0 };
    for item in &select.projection {
        if Visit::visit(item, &mut names).is_break() {
            return true;
        }
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            names.aliases.insert(fold(alias.value.clone(), alias.quote_style));
        }
    }
    !names.aliases.is_empty() && Visit::visit(&select.selection, &mut names).is_break()
}

/// Finds names of items.
struct Names<'a> {
    aliases: &'a mut HashSet<String>,
    /// How many queries are around.
    depth: usize,
}

impl Visitor for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name)
                if self.depth == 0
                    && self.aliases.contains(&fold(name.value.clone(), name.quote_style)) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Puts what items are computed from in place of their names.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for names of what would be evaluated twice, with another value.
pub(super) fn write_out(select: &mut Select, state: &SessionState, withs: &[With]) -> Result<()> {
    if !may_be_in(select) {
        return Ok(());
    }
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    let columns = match select.from.is_empty() {
        true => Vec::new(),
        // Planning the statement tells what is wrong with FROM.
        false => match columns_of(state, &select.from, all, withs) {
            Ok(columns) => columns,
            Err(_) => return Ok(()),
        },
    };
    let columns: HashSet<String> = columns.into_iter().map(|column| column.name).collect();
    let mut meanings = Meanings { items: HashMap::new(), hidden: Vec::new(), depth: 0 };
    for item in &mut select.projection {
        visit(item, &mut meanings)?;
        if let SelectItem::ExprWithAlias { expr, alias } = item {
            let name = fold(alias.value.clone(), alias.quote_style);
            if !columns.contains(&name) {
                meanings.items.entry(name).or_insert_with(|| expr.clone());
            }
        }
    }
    visit(&mut select.selection, &mut meanings)
}

fn visit(part: &mut impl VisitMut, meanings: &mut Meanings) -> Result<()> {
    match VisitMut::visit(part, meanings) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// What names mean.
struct Meanings {
    /// The items of the select list so far.
    items: HashMap<String, Expr>,
    /// The parameters of the lambdas around.
    hidden: Vec<String>,
    /// How many queries are around, in which names mean their own columns.
    depth: usize,
}

impl VisitorMut for Meanings {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Lambda(lambda) = expr {
            let names = lambda.params.iter().map(|param| &param.name);
            self.hidden.extend(names.map(|name| fold(name.value.clone(), name.quote_style)));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Lambda(lambda) = expr {
            self.hidden.truncate(self.hidden.len() - lambda.params.iter().count());
        }
        let Expr::Identifier(name) = &*expr else { return ControlFlow::Continue(()) };
        let folded = fold(name.value.clone(), name.quote_style);
        if self.depth > 0 || self.hidden.contains(&folded) {
            return ControlFlow::Continue(());
        }
        if let Some(item) = self.items.get(&folded) {
            if Visit::visit(item, &mut Volatile).is_break() {
                let message =
                    format!("{name} names an expression with a value of its own each time");
                let error = SqlError::new(ErrorKind::NotSupported, message)
                    .with_hint("name it in a subquery in FROM");
                return ControlFlow::Break(error);
            }
            *expr = match item {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => item.clone(),
                other => Expr::Nested(Box::new(other.clone())),
            };
        }
        ControlFlow::Continue(())
    }
}

/// Finds calls of volatile functions.
struct Volatile;

impl Visitor for Volatile {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function)
                if VOLATILE.contains(&function.name.to_string().to_lowercase().as_str()) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
