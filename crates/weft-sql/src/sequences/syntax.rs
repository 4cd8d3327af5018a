//! The grammar of CREATE SEQUENCE and ALTER SEQUENCE, whose options stand in any order, and of the options of identity columns.

use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::{expect_eof, expected, is, parser, syntax, take_word};
use crate::statement::Parsed;

/// CREATE SEQUENCE.
#[derive(Debug)]
pub(crate) struct CreateSequence {
    pub(crate) name: ObjectName,
    pub(crate) or_replace: bool,
    pub(crate) if_not_exists: bool,
    pub(crate) options: Options,
}

/// ALTER SEQUENCE.
#[derive(Debug)]
pub(crate) struct AlterSequence {
    pub(crate) name: ObjectName,
    pub(crate) if_exists: bool,
    pub(crate) options: Options,
    pub(crate) restart: Option<Restart>,
}

/// Where a sequence begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// Where it began at first.
    AtStart,
    At(i64),
}

/// The options of a sequence; `None` for what is not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The bounds of the type of its values.
    pub(crate) bounds: Option<(i64, i64)>,
    pub(crate) increment: Option<i64>,
    pub(crate) min: Option<i64>,
    pub(crate) max: Option<i64>,
    /// NO MINVALUE: the least value is the default one.
    pub(crate) no_min: bool,
    /// NO MAXVALUE.
    pub(crate) no_max: bool,
    pub(crate) start: Option<i64>,
    pub(crate) cycles: Option<bool>,
}

/// Parses `CREATE [OR REPLACE] SEQUENCE [IF NOT EXISTS] name [options]`; `None` for another statement.
///
/// # Errors
/// [`ErrorKind::Syntax`]; [`ErrorKind::NotSupported`] for a temporary sequence.
pub(crate) fn parse_create(tokens: &[TokenWithSpan]) -> Result<Option<Parsed>> {
    let mut parser = parser(tokens.to_vec());
    parser.next_token();
    let or_replace = take_word(&mut parser, "OR") && take_word(&mut parser, "REPLACE");
    let is_temporary = take_word(&mut parser, "TEMP") || take_word(&mut parser, "TEMPORARY");
    if !take_word(&mut parser, "SEQUENCE") {
        return Ok(None);
    }
    if is_temporary {
        return Err(SqlError::not_supported("CREATE TEMP SEQUENCE")
            .with_hint("write CREATE SEQUENCE, and DROP SEQUENCE when it has served"));
    }
    let if_not_exists = take_word(&mut parser, "IF");
    if if_not_exists {
        for word in ["NOT", "EXISTS"] {
            if !take_word(&mut parser, word) {
                return expected(word, &parser.peek_token());
            }
        }
    }
    if or_replace && if_not_exists {
        let message = "OR REPLACE and IF NOT EXISTS exclude each other";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    let name = parser.parse_object_name(false).map_err(syntax)?;
    let options = options(&mut parser, None)?;
    expect_eof(&mut parser)?;
    let create = CreateSequence { name, or_replace, if_not_exists, options };
    Ok(Some(Parsed::CreateSequence(Box::new(create))))
}

/// Parses `ALTER SEQUENCE [IF EXISTS] name options`.
///
/// # Errors
/// [`ErrorKind::Syntax`]; [`ErrorKind::NotSupported`] for another type and another name.
pub(crate) fn parse_alter(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    parser.next_token();
    let if_exists = take_word(&mut parser, "IF");
    if if_exists && !take_word(&mut parser, "EXISTS") {
        return expected("EXISTS", &parser.peek_token());
    }
    let name = parser.parse_object_name(false).map_err(syntax)?;
    let next = parser.peek_token();
    if ["RENAME", "SET"].iter().any(|word| is(&next, word)) {
        return Err(SqlError::not_supported(format!("ALTER SEQUENCE … {next}"))
            .with_hint("make another sequence, and set it with setval"));
    }
    if next.token == Token::EOF {
        return expected("RESTART, INCREMENT, MINVALUE, MAXVALUE, START or CYCLE", &next);
    }
    let mut restart = None;
    let options = options(&mut parser, Some(&mut restart))?;
    expect_eof(&mut parser)?;
    if options.bounds.is_some() {
        return Err(SqlError::not_supported("ALTER SEQUENCE … AS another type")
            .with_hint("set its bounds: MINVALUE n MAXVALUE n"));
    }
    Ok(Parsed::AlterSequence(Box::new(AlterSequence { name, if_exists, options, restart })))
}

/// Takes the options that come next; RESTART is one of them if there is a place for it.
fn options(parser: &mut Parser<'_>, mut restart: Option<&mut Option<Restart>>) -> Result<Options> {
    let mut options = Options::default();
    loop {
        let next = parser.peek_token();
        let once = |is_new: bool| match is_new {
            true => Ok(()),
            false => expected("each option once", &next),
        };
        if take_word(parser, "AS") {
            once(options.bounds.is_none())?;
            options.bounds = Some(bounds(parser)?);
        } else if let Some(restart) = &mut restart
            && take_word(parser, "RESTART")
        {
            once(restart.is_none())?;
            let is_with = take_word(parser, "WITH");
            let next = parser.peek_token();
            let is_number = matches!(next.token, Token::Number(..) | Token::Minus | Token::Plus);
            **restart = Some(match is_with || is_number {
                true => Restart::At(number(parser)?),
                false => Restart::AtStart,
            });
        } else if take_word(parser, "INCREMENT") {
            take_word(parser, "BY");
            once(options.increment.is_none())?;
            options.increment = Some(number(parser)?);
        } else if take_word(parser, "START") {
            take_word(parser, "WITH");
            once(options.start.is_none())?;
            options.start = Some(number(parser)?);
        } else if take_word(parser, "MINVALUE") {
            once(options.min.is_none() && !options.no_min)?;
            options.min = Some(number(parser)?);
        } else if take_word(parser, "MAXVALUE") {
            once(options.max.is_none() && !options.no_max)?;
            options.max = Some(number(parser)?);
        } else if take_word(parser, "CYCLE") {
            once(options.cycles.is_none())?;
            options.cycles = Some(true);
        } else if take_word(parser, "CACHE") {
            // Values are given from memory whatever it says.
            number(parser)?;
        } else if take_word(parser, "NO") {
            if take_word(parser, "CYCLE") {
                once(options.cycles.is_none())?;
                options.cycles = Some(false);
            } else if take_word(parser, "MINVALUE") {
                once(options.min.is_none() && !options.no_min)?;
                options.no_min = true;
            } else if take_word(parser, "MAXVALUE") {
                once(options.max.is_none() && !options.no_max)?;
                options.no_max = true;
            } else {
                return expected("MINVALUE, MAXVALUE or CYCLE", &parser.peek_token());
            }
        } else if take_word(parser, "OWNED") {
            let is_none = take_word(parser, "BY") && take_word(parser, "NONE");
            if !is_none {
                return Err(SqlError::not_supported("OWNED BY a column").with_hint(
                    "declare the column GENERATED BY DEFAULT AS IDENTITY: its sequence goes with it",
                ));
            }
        } else {
            return Ok(options);
        }
    }
}

/// The bounds of a type of integers.
fn bounds(parser: &mut Parser<'_>) -> Result<(i64, i64)> {
    let next = parser.next_token();
    let is_any = |names: &[&str]| names.iter().any(|name| is(&next, name));
    if is_any(&["SMALLINT", "INT2"]) {
        Ok((i16::MIN.into(), i16::MAX.into()))
    } else if is_any(&["INTEGER", "INT", "INT4"]) {
        Ok((i32::MIN.into(), i32::MAX.into()))
    } else if is_any(&["BIGINT", "INT8"]) {
        Ok((i64::MIN, i64::MAX))
    } else {
        expected("SMALLINT, INTEGER or BIGINT", &next)
    }
}

/// Takes an integer with its sign.
fn number(parser: &mut Parser<'_>) -> Result<i64> {
    let is_negative = parser.consume_token(&Token::Minus);
    if !is_negative && parser.peek_token().token == Token::Plus {
        parser.next_token();
    }
    let next = parser.next_token();
    if let Token::Number(digits, _) = &next.token {
        let sign = if is_negative { "-" } else { "" };
        if let Ok(number) = format!("{sign}{}", digits.replace('_', "")).parse() {
            return Ok(number);
        }
    }
    expected("an integer from -9223372036854775808 to 9223372036854775807", &next)
}

/// Puts the options of `AS IDENTITY (…)` in the order that the parser of definitions of columns knows.
///
/// # Errors
/// [`ErrorKind::Syntax`] for other options.
pub(crate) fn order_identity_options(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let mut from = 0;
    while let Some(found) = tokens[from..].iter().position(|token| is(token, "identity")) {
        let place = from + found;
        from = place + 1;
        let is_space = |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_));
        let before = tokens[..place].iter().rev().find(|token| !is_space(token));
        let is_identity = before.is_some_and(|token| is(token, "as"));
        let open = place + 1 + tokens[place + 1..].iter().take_while(is_space).count();
        let opens = tokens.get(open).is_some_and(|token| token.token == Token::LParen);
        if !is_identity || !opens {
            continue;
        }
        let inside = &tokens[open + 1..];
        let Some(length) = inside.iter().position(|token| token.token == Token::RParen) else {
            continue;
        };
        let span = tokens[open].span;
        let mut parser = parser(inside[..length].to_vec());
        let found = options(&mut parser, None)?;
        expect_eof(&mut parser)?;
        let word = |word: &str| TokenWithSpan { token: Token::make_word(word, None), span };
        let mut ordered = Vec::new();
        let numbers = [
            ("INCREMENT", found.increment),
            ("MINVALUE", found.min),
            ("MAXVALUE", found.max),
            ("START", found.start),
        ];
        for (name, number) in numbers {
            let Some(number) = number else { continue };
            ordered.push(word(name));
            if number < 0 {
                ordered.push(TokenWithSpan { token: Token::Minus, span });
            }
            let digits = Token::Number(number.unsigned_abs().to_string(), false);
            ordered.push(TokenWithSpan { token: digits, span });
        }
        match found.cycles {
            Some(true) => ordered.push(word("CYCLE")),
            Some(false) => ordered.extend([word("NO"), word("CYCLE")]),
            None => {}
        }
        tokens.splice(open + 1..open + 1 + length, ordered);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenize;

    fn parsed(sql: &str) -> Result<Options> {
        match parse_create(&tokenize(sql)?)? {
            Some(Parsed::CreateSequence(create)) => Ok(create.options),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn options_stand_in_any_order() {
        let options = parsed("CREATE SEQUENCE s START WITH 5 INCREMENT BY -2 NO CYCLE MAXVALUE 9");
        let expected = Options {
            increment: Some(-2),
            max: Some(9),
            start: Some(5),
            cycles: Some(false),
            ..Options::default()
        };
        assert_eq!(options.unwrap(), expected);
        let min = parsed("CREATE SEQUENCE s MINVALUE -9223372036854775808 AS BIGINT").unwrap().min;
        assert_eq!(min, Some(i64::MIN));
        assert!(parsed("CREATE SEQUENCE s START 1 START 2").is_err());
        assert!(parsed("CREATE SEQUENCE s START 1.5").is_err());
        assert!(parse_create(&tokenize("CREATE TABLE t (a INT)").unwrap()).unwrap().is_none());
    }

    #[test]
    fn alterations_may_begin_anew() {
        let parsed = |sql: &str| -> Result<AlterSequence> {
            match parse_alter(tokenize(sql)?)? {
                Parsed::AlterSequence(alter) => Ok(*alter),
                other => panic!("{sql}: {other:?}"),
            }
        };
        let alter = parsed("ALTER SEQUENCE IF EXISTS a.s NO MAXVALUE RESTART CYCLE").unwrap();
        assert!(alter.if_exists && alter.options.no_max && alter.options.cycles == Some(true));
        assert_eq!(alter.restart, Some(Restart::AtStart));
        let restart = |sql: &str| parsed(sql).map(|alter| alter.restart);
        assert_eq!(restart("ALTER SEQUENCE s RESTART WITH -7").unwrap(), Some(Restart::At(-7)));
        assert_eq!(restart("ALTER SEQUENCE s RESTART 7").unwrap(), Some(Restart::At(7)));
        assert_eq!(restart("ALTER SEQUENCE s OWNED BY NONE").unwrap(), None);
        for sql in [
            "ALTER SEQUENCE s",
            "ALTER SEQUENCE s RESTART RESTART",
            "ALTER SEQUENCE s MAXVALUE 1 NO MAXVALUE",
            "ALTER SEQUENCE s AS INTEGER",
            "ALTER SEQUENCE s RENAME TO t",
        ] {
            assert!(parsed(sql).is_err(), "{sql}");
        }
        assert!(parse_create(&tokenize("CREATE SEQUENCE s RESTART").unwrap()).is_err());
    }

    #[test]
    fn options_of_identity_columns_are_put_in_order() {
        let sql =
            "CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5))";
        let mut tokens = tokenize(sql).unwrap();
        order_identity_options(&mut tokens).unwrap();
        let written: Vec<String> = tokens
            .iter()
            .filter(|token| !matches!(token.token, Token::Whitespace(_)))
            .map(|token| token.token.to_string())
            .collect();
        assert!(
            written.join(" ").ends_with("AS IDENTITY ( INCREMENT 5 START 10 ) )"),
            "{written:?}"
        );
    }
}
