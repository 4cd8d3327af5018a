//! Aggregates that differ in nothing but casts, as `sum(x::INT), sum(x::DOUBLE)`: casts do not show in the names that
//! DataFusion gives them, and of two aggregates of one name it has no more than one. An expression that is simplified away
//! makes names differ.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderBy, Query,
    Select, Value, VisitMut, VisitorMut,
};

use crate::rewrite::name_of;

/// Tells calls apart that differ in nothing but casts of their arguments.
pub(crate) fn tell_apart(select: &mut Select, order_by: Option<&mut OrderBy>) {
    let mut calls = Calls::default();
    let mut order_by = order_by;
    for is_change in [false, true] {
        calls.is_change = is_change;
        // The visitor never breaks.
        let _ = select.projection.visit(&mut calls);
        let _ = select.group_by.visit(&mut calls);
        let _ = select.having.visit(&mut calls);
        let _ = select.qualify.visit(&mut calls);
        if let Some(order_by) = &mut order_by {
            let _ = order_by.visit(&mut calls);
        }
        if calls.variants.values().all(|variants| variants.len() < 2) {
            return;
        }
    }
}

/// Calls with casts in them: for each name the different texts, in the order of their appearance.
#[derive(Default)]
struct Calls {
    variants: HashMap<String, Vec<String>>,
    is_change: bool,
    depth: usize,
}

impl VisitorMut for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth > 0 || !matches!(expr, Expr::Function(_)) {
            return ControlFlow::Continue(());
        }
        let (name, text) = (name_of(expr), expr.to_string().to_lowercase());
        let variants = self.variants.entry(name).or_default();
        let at = variants.iter().position(|variant| *variant == text);
        match (self.is_change, at) {
            (false, None) => variants.push(text),
            (true, Some(at)) => {
                if let Expr::Function(function) = expr {
                    wrap(function, at);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Puts the first argument within as many conditions that are true.
fn wrap(function: &mut Function, times: usize) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.first_mut() else {
        return;
    };
    for _ in 0..times {
        let condition = Expr::Value(Value::Boolean(true).into());
        *argument = Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen { condition, result: argument.clone() }],
            else_result: None,
        };
    }
}
