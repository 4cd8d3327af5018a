//! Puts what macros stand for in the places of their calls.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use weft_store::Snapshot;

use super::{Body, Macro, Parameter};
use crate::catalog::relation_name;
use crate::definitions::{self, Kind};
use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::{fold, inner_statement};

/// Macros within macros, at most.
const DEPTH_MAX: usize = 32;

/// Expressions that the macros of a statement stand for, at most.
const EXPRESSIONS_MAX: usize = 200_000;

/// Replaces the calls of macros in a statement.
///
/// # Errors
/// For calls with other arguments than the macro has parameters, and for what grows without end.
pub(crate) fn expand(statement: &mut DfStatement, snapshot: &Snapshot) -> Result<()> {
    let macros = definitions::names(snapshot, Kind::Macro).count();
    let Some(inner) = inner_statement(statement).filter(|_| macros > 0) else { return Ok(()) };
    let mut expander = Expander { snapshot, depth: 0, expressions: 0 };
    match inner.visit(&mut expander) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Expander<'a> {
    snapshot: &'a Snapshot,
    depth: usize,
    expressions: usize,
}

impl Expander<'_> {
    fn find(&self, name: &ObjectName) -> Result<Option<(String, Macro)>> {
        let Ok(name) = relation_name(name) else { return Ok(None) };
        Ok(Macro::find(self.snapshot, &name)?.map(|found| (name, found)))
    }

    fn value(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::Function(function) = &*expr else { return Ok(()) };
        let Some((name, found)) = self.find(&function.name)? else { return Ok(()) };
        let Body::Value(mut body) = found.body else {
            let message = format!("macro {name} stands for a table: it is called in FROM");
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name));
        };
        if function.over.is_some() || function.filter.is_some() || !function.within_group.is_empty()
        {
            let message = format!("macro {name} takes neither OVER nor FILTER nor WITHIN GROUP");
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name));
        }
        let args: &[FunctionArg] = match &function.args {
            FunctionArguments::List(list) => &list.args,
            _ => &[],
        };
        let values = values_of(&name, found.parameters, args)?;
        self.put(&name, body.as_mut(), values)?;
        *expr = Expr::Nested(body);
        Ok(())
    }

    fn table(&mut self, table: &mut TableFactor) -> Result<()> {
        let (name, args, alias) = match &*table {
            TableFactor::Table { name, args: Some(args), alias, .. } => {
                (name, args.args.as_slice(), alias.clone())
            }
            TableFactor::Function { name, args, alias, .. } => {
                (name, args.as_slice(), alias.clone())
            }
            _ => return Ok(()),
        };
        let Some((name, found)) = self.find(name)? else { return Ok(()) };
        let Body::Table(mut subquery) = found.body else {
            let message = format!("macro {name} stands for a value, not for a table");
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name));
        };
        let values = values_of(&name, found.parameters, args)?;
        self.put(&name, &mut subquery, values)?;
        let alias = alias.or_else(|| {
            Some(datafusion::sql::sqlparser::ast::TableAlias {
                explicit: true,
                name: Ident::with_quote('"', name.as_str()),
                columns: Vec::new(),
                at: None,
            })
        });
        *table = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        Ok(())
    }

    /// Puts arguments in the places of parameters, and what macros in the body stand for in theirs.
    fn put<T: Visit + VisitMut>(
        &mut self,
        name: &str,
        body: &mut T,
        values: HashMap<String, Expr>,
    ) -> Result<()> {
        let too_much = || {
            let message = format!("macro {name} stands for too much: it refers to itself, perhaps");
            SqlError::new(ErrorKind::Semantic, message).about(name)
        };
        if self.depth >= DEPTH_MAX {
            return Err(too_much());
        }
        // The visitor never breaks.
        let _ = VisitMut::visit(body, &mut Substitution { values });
        let mut count = Count::default();
        let _ = Visit::visit(body, &mut count);
        self.expressions += count.expressions;
        if self.expressions > EXPRESSIONS_MAX {
            return Err(too_much());
        }
        self.depth += 1;
        let flow = VisitMut::visit(body, self);
        self.depth -= 1;
        match flow {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }
}

impl VisitorMut for Expander<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        broken(self.value(expr))
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<SqlError> {
        broken(self.table(table))
    }
}

fn broken(result: Result<()>) -> ControlFlow<SqlError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

/// The value of each parameter.
fn values_of(
    name: &str,
    parameters: Vec<Parameter>,
    args: &[FunctionArg],
) -> Result<HashMap<String, Expr>> {
    let wrong = |problem: String| {
        let shown: Vec<String> = parameters
            .iter()
            .map(|parameter| match &parameter.default {
                Some(default) => format!("{} := {default}", parameter.name),
                None => parameter.name.clone(),
            })
            .collect();
        let error = SqlError::new(ErrorKind::Semantic, format!("macro {name}: {problem}"));
        error.about(name).with_hint(format!("it is {name}({})", shown.join(", ")))
    };
    let mut values: HashMap<String, Expr> = HashMap::new();
    let mut next = 0;
    for arg in args {
        let (parameter, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => {
                next += 1;
                let Some(parameter) = parameters.get(next - 1) else {
                    return Err(wrong(format!("it has {} parameters", parameters.len())));
                };
                (parameter.name.clone(), value)
            }
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                (fold(name.value.clone(), name.quote_style), value)
            }
            other => return Err(wrong(format!("{other} cannot be an argument"))),
        };
        if !parameters.iter().any(|known| known.name == parameter) {
            return Err(wrong(format!("it has no parameter {parameter}")));
        }
        if values.insert(parameter.clone(), value.clone()).is_some() {
            return Err(wrong(format!("its parameter {parameter} has two values")));
        }
    }
    for parameter in &parameters {
        if values.contains_key(&parameter.name) {
            continue;
        }
        match &parameter.default {
            Some(default) => values.insert(parameter.name.clone(), default.clone()),
            None => return Err(wrong(format!("its parameter {} has no value", parameter.name))),
        };
    }
    Ok(values)
}

/// Puts values in the places of names.
struct Substitution {
    values: HashMap<String, Expr>,
}

impl Substitution {
    fn value(&self, name: &Ident) -> Option<Expr> {
        let value = self.values.get(&fold(name.value.clone(), name.quote_style))?;
        Some(match value {
            Expr::Value(_) | Expr::Identifier(_) | Expr::Nested(_) | Expr::Function(_) => {
                value.clone()
            }
            other => Expr::Nested(Box::new(other.clone())),
        })
    }
}

impl VisitorMut for Substitution {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => {
                if let Some(value) = self.value(name) {
                    *expr = value;
                }
            }
            // A field of a parameter.
            Expr::CompoundIdentifier(parts) => {
                if let [name, field] = parts.as_slice()
                    && let Some(value) = self.value(name)
                {
                    let field = Expr::Value(
                        datafusion::sql::sqlparser::ast::Value::SingleQuotedString(fold(
                            field.value.clone(),
                            field.quote_style,
                        ))
                        .into(),
                    );
                    let access_chain = vec![AccessExpr::Dot(field)];
                    let root = Box::new(Expr::Nested(Box::new(value)));
                    *expr = Expr::CompoundFieldAccess { root, access_chain };
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Counts expressions.
#[derive(Default)]
struct Count {
    expressions: usize,
}

impl Visitor for Count {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.expressions += 1;
        ControlFlow::Continue(())
    }
}
