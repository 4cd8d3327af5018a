//! The grammar: the parser's generic one, with what people know from DuckDB.
//!
//! What differs from the generic grammar is few: numbers with underscores, ORDER BY ALL, lambdas (`lambda x: x + 1`), `x IN list`, and
//! how close operators bind.
//! Forms that are other tokens of the grammar are `forms`' business.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{
    Expr, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_COLUMN_ALIAS};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::functions::call;
use crate::grammar::is;

/// The grammar that Weft speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeftDialect;

/// Parts of grammars that are allowed.
macro_rules! allow {
    ($($part:ident)*) => {
        $(
            fn $part(&self) -> bool {
                true
            }
        )*
    };
}

impl Dialect for WeftDialect {
    /// The parser takes it for the generic grammar wherever it asks for one by its type.
    fn dialect(&self) -> TypeId {
        GenericDialect.dialect()
    }

    fn is_delimited_identifier_start(&self, char: char) -> bool {
        GenericDialect.is_delimited_identifier_start(char)
    }

    fn is_identifier_start(&self, char: char) -> bool {
        GenericDialect.is_identifier_start(char)
    }

    fn is_identifier_part(&self, char: char) -> bool {
        GenericDialect.is_identifier_part(char)
    }

    /// As in PostgreSQL and DuckDB, `||`, operators of bits and those of JSON bind closer than comparisons, and less close than
    /// arithmetic; of these, `||` binds least.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        let precedence = match parser.peek_token_ref().token {
            Token::StringConcat => Precedence::Pipe,
            Token::Pipe
            | Token::Ampersand
            | Token::Sharp
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::Arrow
            | Token::LongArrow
            | Token::HashArrow
            | Token::HashLongArrow
            | Token::AtArrow
            | Token::ArrowAt => Precedence::Ampersand,
            _ => return None,
        };
        Some(Ok(self.prec_value(precedence)))
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        starts_lambda(parser).then(|| lambda(parser))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        in_list(parser, expr)
    }

    /// `SELECT 1 ON CONFLICT …` is the end of an INSERT: there ON is no name of the column.
    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        let is_end = *keyword == Keyword::ON
            && (0..2).any(|ahead| is(&parser.peek_nth_token(ahead), "CONFLICT"));
        !is_end && !RESERVED_FOR_COLUMN_ALIAS.contains(keyword)
    }

    allow! {
        allow_extract_custom
        allow_extract_single_quotes
        support_map_literal_syntax
        supports_array_join_syntax
        supports_array_typedef_with_brackets
        supports_alter_column_type_using
        supports_asc_desc_in_column_definition
        supports_bitwise_shift_operators
        supports_comma_separated_set_assignments
        supports_comma_separated_trim
        supports_comment_on
        supports_comment_optimizer_hint
        supports_connect_by
        supports_constraint_keyword_without_name
        supports_create_index_with_clause
        supports_create_view_comment_syntax
        supports_cte_without_as
        supports_data_type_signed_suffix
        supports_detach
        supports_dictionary_syntax
        supports_empty_projections
        supports_explain_with_utility_options
        supports_extract_comma_syntax
        supports_filter_during_aggregation
        supports_from_first_select
        supports_group_by_expr
        supports_group_by_with_modifier
        supports_install
        supports_interpolate
        supports_interval_options
        supports_key_column_option
        supports_left_associative_joins_without_parens
        supports_limit_by
        supports_limit_comma
        supports_load_extension
        supports_match_against
        supports_match_recognize
        supports_multiline_comment_hints
        supports_named_fn_args_with_assignment_operator
        supports_nested_comments
        supports_numeric_literal_underscores
        supports_optimize_table
        supports_order_by_all
        supports_parens_around_table_factor
        supports_parenthesized_set_variables
        supports_partition_by_after_order_by
        supports_pipe_operator
        supports_prewhere
        supports_quote_delimited_string
        supports_select_format
        supports_select_item_multi_column_alias
        supports_select_wildcard_except
        supports_select_wildcard_exclude
        supports_select_wildcard_rename
        supports_select_wildcard_replace
        supports_set_names
        supports_settings
        supports_start_transaction_modifier
        supports_string_escape_constant
        supports_struct_literal
        supports_try_convert
        supports_unicode_string_literal
        supports_update_order_by
        supports_user_host_grantee
        supports_values_as_table_factor
        supports_window_clause_named_window_reference
        supports_window_function_null_treatment_arg
        supports_with_fill
        supports_xml_expressions
    }
}

/// True before `lambda x:`, `lambda x, y:` and `lambda (x, y):`.
fn starts_lambda(parser: &Parser<'_>) -> bool {
    let [first, second, third] = parser.peek_tokens_ref();
    if !is(first, "lambda") {
        return false;
    }
    match (&second.token, &third.token) {
        (Token::Word(_), Token::Colon | Token::Comma) => true,
        (Token::LParen, Token::Word(_)) => {
            matches!(parser.peek_nth_token(3).token, Token::RParen | Token::Comma)
                && follows_parameters(parser)
        }
        _ => false,
    }
}

/// True if the parentheses after the next word are followed by a colon: else it is a call.
fn follows_parameters(parser: &Parser<'_>) -> bool {
    let tokens = (2..).map(|place| parser.peek_nth_token(place).token);
    let mut rest = tokens.skip_while(|token| matches!(token, Token::Word(_) | Token::Comma));
    rest.next() == Some(Token::RParen) && rest.next() == Some(Token::Colon)
}

fn lambda(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.next_token();
    let in_parentheses = parser.consume_token(&Token::LParen);
    let parameters = parser.parse_comma_separated(|parser| {
        let name = parser.parse_identifier()?;
        Ok(LambdaFunctionParameter { name, data_type: None })
    })?;
    if in_parentheses {
        parser.expect_token(&Token::RParen)?;
    }
    parser.expect_token(&Token::Colon)?;
    let body = Box::new(parser.parse_expr()?);
    let params = OneOrManyWithParens::Many(parameters);
    Ok(Expr::Lambda(LambdaFunction { params, body, syntax: LambdaSyntax::LambdaKeyword }))
}

/// `x IN list` and `x NOT IN list`, where no parenthesis follows: whether the list has the value.
fn in_list(parser: &mut Parser<'_>, expr: &Expr) -> Option<Result<Expr, ParserError>> {
    let [first, second, third] = parser.peek_tokens_ref();
    let opens = |token: &TokenWithSpan| token.token == Token::LParen || is(token, "unnest");
    let (words, is_not) = match (&first.token, &second.token) {
        (Token::Word(first), Token::Word(next))
            if first.keyword == Keyword::NOT && next.keyword == Keyword::IN && !opens(third) =>
        {
            (2, true)
        }
        (Token::Word(first), _) if first.keyword == Keyword::IN && !opens(second) => (1, false),
        _ => return None,
    };
    for _ in 0..words {
        parser.next_token();
    }
    let list = parser.parse_subexpr(WeftDialect.prec_value(Precedence::Between));
    Some(list.map(|list| {
        let contains = call("array_has", [list, expr.clone()]);
        match is_not {
            true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(contains) },
            false => contains,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> String {
        Parser::new(&WeftDialect).try_with_sql(sql).unwrap().parse_expr().unwrap().to_string()
    }

    #[test]
    fn lambdas_are_told_from_names_and_calls() {
        assert_eq!(parsed("f(l, lambda x: x + 1)"), "f(l, lambda x : x + 1)");
        assert_eq!(parsed("f(l, lambda (x, y): x)"), "f(l, lambda x, y : x)");
        assert_eq!(parsed(&parsed("f(l, lambda x, y: x)")), "f(l, lambda x, y : x)");
        assert_eq!(parsed("lambda + 1"), "lambda + 1");
        assert_eq!(parsed("lambda(x, y)"), "lambda(x, y)");
    }

    #[test]
    fn lists_are_asked_for_values() {
        assert_eq!(parsed("1 IN [1, 2]"), "array_has([1, 2], 1)");
        assert_eq!(parsed("x + 1 NOT IN l AND y"), "NOT array_has(l, x + 1) AND y");
        assert_eq!(parsed("x IN (1, 2)"), "x IN (1, 2)");
    }

    #[test]
    fn numbers_may_have_underscores() {
        assert_eq!(parsed("1_000.5"), "1_000.5");
    }
}
