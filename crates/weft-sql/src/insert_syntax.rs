//! Forms of INSERT that the grammar lacks: `INSERT INTO table AS alias`, and `WITH … INSERT`.

use datafusion::sql::sqlparser::ast::{
    Ident, Insert, SetExpr, Statement, TableAliasWithoutColumns,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::grammar::is;

/// Takes `AS alias` behind the name of the table of an INSERT out of its tokens. Without AS an alias could be the word
/// that a query begins with.
pub(crate) fn take_alias(tokens: &mut Vec<TokenWithSpan>) -> Option<Ident> {
    let places: Vec<usize> = (0..tokens.len())
        .filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_)))
        .collect();
    let is_word =
        |number: usize, word: &str| places.get(number).is_some_and(|at| is(&tokens[*at], word));
    if !is_word(0, "INSERT") && !is_word(0, "REPLACE") {
        return None;
    }
    let into = (1..=3).find(|number| is_word(*number, "INTO"))?;
    let is_dot =
        |number: usize| places.get(number).is_some_and(|at| tokens[*at].token == Token::Period);
    let mut next = into + 2;
    while is_dot(next) {
        next += 2;
    }
    if !is_word(next, "AS") {
        return None;
    }
    let (start, end) = (places[next], *places.get(next + 1)?);
    let Token::Word(word) = &tokens[end].token else { return None };
    let alias =
        Ident { value: word.value.clone(), quote_style: word.quote_style, span: tokens[end].span };
    tokens.drain(start..=end);
    Some(alias)
}

/// Gives an INSERT the alias of its table.
pub(crate) fn set_alias(statement: &mut Statement, alias: Ident) {
    if let Statement::Insert(insert) = statement {
        insert.table_alias = Some(TableAliasWithoutColumns { explicit: true, alias });
    }
}

/// Moves the queries of WITH before an INSERT into the query that it inserts.
pub(crate) fn move_with(statement: &mut Statement) {
    let Statement::Query(query) = statement else { return };
    let with = query.with.take();
    let SetExpr::Insert(Statement::Insert(insert)) = query.body.as_mut() else {
        query.with = with;
        return;
    };
    if let (Some(mut with), Some(source)) = (with, insert.source.as_mut()) {
        if let Some(own) = source.with.take() {
            with.recursive |= own.recursive;
            with.cte_tables.extend(own.cte_tables);
        }
        source.with = Some(with);
    }
    let insert: Insert = insert.clone();
    *statement = Statement::Insert(insert);
}
