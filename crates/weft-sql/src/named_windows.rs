//! Windows that are defined in terms of others: `OVER (w ROWS 2 PRECEDING)`, `WINDOW v AS (w ORDER BY x)`. DataFusion
//! overlooks the name.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, NamedWindowDefinition, NamedWindowExpr, Query, Select, VisitMut,
    VisitorMut, WindowSpec, WindowType,
};

use crate::error::{ErrorKind, Result, SqlError};
use crate::exclusions::take_marks;
use crate::statement::fold;

/// Writes out the windows of a select.
///
/// # Errors
/// If a window is not defined, or is not to be changed so.
pub(crate) fn write_out(select: &mut Select) -> ControlFlow<SqlError> {
    let defined = match Defined::of(select) {
        Ok(defined) => defined,
        Err(error) => return ControlFlow::Break(error),
    };
    let mut calls = Calls { defined, queries: 0 };
    select.projection.visit(&mut calls)?;
    select.qualify.visit(&mut calls)
}

/// The windows that a select defines, by their names.
struct Defined(HashMap<String, WindowSpec>);

impl Defined {
    fn of(select: &mut Select) -> Result<Defined> {
        let mut defined = Defined(HashMap::new());
        for NamedWindowDefinition(name, definition) in &mut select.named_window {
            let spec = match definition {
                NamedWindowExpr::NamedWindow(other) => defined.find(other)?.clone(),
                NamedWindowExpr::WindowSpec(spec) => {
                    defined.complete(spec)?;
                    spec.clone()
                }
            };
            *definition = NamedWindowExpr::WindowSpec(spec.clone());
            defined.0.insert(key(name), spec);
        }
        Ok(defined)
    }

    fn find(&self, name: &Ident) -> Result<&WindowSpec> {
        self.0.get(&key(name)).ok_or_else(|| {
            SqlError::new(ErrorKind::Semantic, format!("the window {name} is not defined"))
        })
    }

    /// Adds what a window takes from another one.
    fn complete(&self, spec: &mut WindowSpec) -> Result<()> {
        let Some(name) = spec.window_name.take() else { return Ok(()) };
        let other = self.find(&name)?;
        let marks = take_marks(spec);
        let refused = |what| {
            let message = format!("a window that is based on {name} cannot {what}");
            Err(SqlError::new(ErrorKind::Semantic, message))
        };
        if !spec.partition_by.is_empty() {
            return refused("have a PARTITION BY of its own");
        }
        if !spec.order_by.is_empty() && !other.order_by.is_empty() {
            return refused("have another ORDER BY");
        }
        if other.window_frame.is_some() {
            return refused("change its frame: OVER without parentheses takes the window as it is");
        }
        spec.partition_by = marks.into_iter().chain(other.partition_by.iter().cloned()).collect();
        if spec.order_by.is_empty() {
            spec.order_by.clone_from(&other.order_by);
        }
        Ok(())
    }
}

fn key(name: &Ident) -> String {
    fold(name.value.clone(), name.quote_style)
}

/// Goes through the calls of functions, but not those in subqueries, which have windows of their own.
struct Calls {
    defined: Defined,
    /// Subqueries around.
    queries: usize,
}

impl VisitorMut for Calls {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(Function { over: Some(over), .. }) = expr else {
            return ControlFlow::Continue(());
        };
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        let written_out = match over {
            WindowType::NamedWindow(name) => {
                self.defined.find(name).cloned().map(|spec| *over = WindowType::WindowSpec(spec))
            }
            WindowType::WindowSpec(spec) => self.defined.complete(spec),
        };
        match written_out {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}
