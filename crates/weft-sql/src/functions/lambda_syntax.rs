//! Functions as arguments: `lambda x, i: x + i`, `x -> x + 1` and `(x, i) -> x + i`.
//!
//! The grammar has none of them, as `->` is an operator of JSON. The first form becomes the last one among the tokens. An
//! argument of a function that takes a function is then parsed as a term that begins with the parameters and `->`: these
//! are taken away, and what is left is the body.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LambdaFunction, LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens, Query, Value,
    VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::call;
use super::lambdas::takes_lambda;
use crate::error::SqlError;
use crate::grammar::is;

/// Puts `(x, i) ->` in place of `lambda x, i:`.
pub(crate) fn rewrite_tokens(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        if is_lambda(&tokens[at].token)
            && !is_of_columns(&tokens[..at])
            && let Some(colon) = end_of_parameters(tokens, at + 1)
        {
            tokens[at].token = Token::LParen;
            let span = tokens[colon].span;
            tokens[colon].token = Token::RParen;
            tokens.insert(colon + 1, TokenWithSpan { token: Token::Arrow, span });
            at = colon;
        }
        at += 1;
    }
}

/// True behind `COLUMNS(`, whose functions of names the grammar has (`dialect.rs`).
fn is_of_columns(before: &[TokenWithSpan]) -> bool {
    matches!(before, [.., columns, open] if open.token == Token::LParen
        && ["columns", "columns_spread"].iter().any(|word| is(columns, word)))
}

fn is_lambda(token: &Token) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("lambda"))
}

/// The place of the colon behind names with commas between them.
fn end_of_parameters(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let mut wants_name = true;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::Word(_) if wants_name => wants_name = false,
            Token::Comma if !wants_name => wants_name = true,
            Token::Colon if !wants_name => return Some(at),
            _ => return None,
        }
    }
    None
}

/// Makes a function of the second argument of a call that takes one.
///
/// # Errors
/// If a subquery in it uses a parameter.
pub(crate) fn rewrite(function: &mut Function) -> ControlFlow<SqlError> {
    if takes_lambda(&function.name.to_string().to_lowercase())
        && let FunctionArguments::List(list) = &mut function.args
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.get_mut(1)
        && let Some(parameters) = take_parameters(argument)
    {
        argument.visit(&mut InQueries { parameters: &parameters, depth: 0 })?;
        let body = std::mem::replace(argument, Expr::value(Value::Null));
        *argument = lambda(parameters, body);
    }
    ControlFlow::Continue(())
}

/// Refuses parameters in subqueries.
struct InQueries<'a> {
    parameters: &'a [Ident],
    depth: usize,
}

impl VisitorMut for InQueries<'_> {
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
        match expr {
            Expr::Identifier(name)
                if self.depth > 0
                    && self.parameters.iter().any(|known| known.value == name.value) =>
            {
                let message = format!("{name} of a function of elements in a subquery");
                ControlFlow::Break(SqlError::not_supported(message).with_hint(
                    "unnest the list and join, or give the parameter another name than the column",
                ))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// A function as an expression.
pub(crate) fn lambda(parameters: Vec<Ident>, mut body: Expr) -> Expr {
    // The visitor below never breaks.
    let _ = body.visit(&mut Fields(&parameters));
    let parameters = parameters.into_iter();
    let parameters = parameters.map(|name| LambdaFunctionParameter { name, data_type: None });
    Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::Many(parameters.collect()),
        body: Box::new(body),
        syntax: LambdaSyntax::Arrow,
    })
}

/// Takes the parameters and `->` away that a term begins with.
fn take_parameters(term: &mut Expr) -> Option<Vec<Ident>> {
    if let Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } = term
        && let Some(parameters) = names(left)
    {
        *term = std::mem::replace(right, Expr::value(Value::Null));
        return Some(parameters);
    }
    take_parameters(first_operand(term)?)
}

/// The expression that the text of a term begins with, if it is an operand.
fn first_operand(term: &mut Expr) -> Option<&mut Expr> {
    Some(match term {
        Expr::BinaryOp { left, .. }
        | Expr::AnyOp { left, .. }
        | Expr::AllOp { left, .. }
        | Expr::IsDistinctFrom(left, _)
        | Expr::IsNotDistinctFrom(left, _) => left,
        Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotUnknown(inner) => inner,
        Expr::Between { expr, .. }
        | Expr::InList { expr, .. }
        | Expr::InSubquery { expr, .. }
        | Expr::InUnnest { expr, .. }
        | Expr::Like { expr, .. }
        | Expr::ILike { expr, .. }
        | Expr::SimilarTo { expr, .. }
        | Expr::RLike { expr, .. }
        | Expr::Cast { expr, .. }
        | Expr::AtTimeZone { timestamp: expr, .. }
        | Expr::Collate { expr, .. } => expr,
        _ => return None,
    })
}

/// The names of parameters: `x`, or `(x, y)`.
fn names(parameters: &Expr) -> Option<Vec<Ident>> {
    match parameters {
        Expr::Identifier(name) => Some(vec![name.clone()]),
        Expr::Nested(inner) => names(inner),
        Expr::Tuple(items) => items
            .iter()
            .map(|item| match item {
                Expr::Identifier(name) => Some(name.clone()),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Makes `get_field(x, 'a')` of `x.a` where `x` is a parameter.
struct Fields<'a>(&'a [Ident]);

impl VisitorMut for Fields<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [name, fields @ ..] = &parts[..]
            && self.0.iter().any(|parameter| parameter.value.eq_ignore_ascii_case(&name.value))
        {
            let root = Expr::Identifier(name.clone());
            let field = |inner, field: &Ident| {
                let name = Expr::value(Value::SingleQuotedString(field.value.clone()));
                call("get_field", [inner, name])
            };
            *expr = fields.iter().fold(root, field);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{DIALECT, tokenize};
    use datafusion::sql::sqlparser::parser::Parser;

    fn rewritten(sql: &str) -> String {
        let mut tokens = tokenize(sql).unwrap();
        rewrite_tokens(&mut tokens);
        let mut parser = Parser::new(&DIALECT).with_tokens_with_locations(tokens);
        let mut expr = parser.parse_expr().unwrap();
        if let Expr::Function(function) = &mut expr {
            assert!(rewrite(function).is_continue());
        }
        expr.to_string()
    }

    #[test]
    fn all_forms_are_functions() {
        for (sql, expected) in [
            ("list_filter(l, lambda x: x > 2 AND y)", "list_filter(l, (x) -> x > 2 AND y)"),
            ("list_transform(l, lambda x, i: x + i)", "list_transform(l, (x, i) -> x + i)"),
            ("apply(l, x -> x + 1 > 2)", "apply(l, (x) -> x + 1 > 2)"),
            ("list_reduce(l, (a, x) -> a + x, 0)", "list_reduce(l, (a, x) -> a + x, 0)"),
            ("filter(l, x -> x BETWEEN 1 AND 3)", "filter(l, (x) -> x BETWEEN 1 AND 3)"),
            ("filter(l, x -> x.a IS NULL)", "filter(l, (x) -> get_field(x, 'a') IS NULL)"),
            ("filter(l, x -> x -> 'k' = 1)", "filter(l, (x) -> x -> 'k' = 1)"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn other_arrows_stay() {
        for sql in ["list_transform(l -> 'a', f)", "coalesce(1, x -> 'a')", "lambda + 1"] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
