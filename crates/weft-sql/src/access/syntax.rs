//! The grammar of statements about roles and rights.

use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::access::acl::PUBLIC;
use crate::access::rights::Rights;
use crate::access::roles::{Action, RoleStatement};
use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::{
    expect_eof, expected, is_word, parser, skip_word, syntax, take_string, take_word,
};
use crate::statement::{Parsed, fold};

/// A statement about roles and rights.
#[derive(Clone, Debug)]
pub(crate) enum AccessStatement {
    /// CREATE, ALTER, DROP ROLE
    Role(RoleStatement),
    /// GRANT and REVOKE of rights
    Grant(GrantStatement),
    /// GRANT and REVOKE of roles
    Membership { gives: bool, groups: Vec<String>, members: Vec<String> },
    /// `ALTER TABLE | VIEW name OWNER TO role`
    Owner { relation: ObjectName, if_exists: bool, role: String },
    /// `SET ROLE role`, `SET ROLE NONE`, `RESET ROLE`
    SetRole(Option<String>),
}

impl AccessStatement {
    /// True if it changes the database.
    pub(crate) fn changes_data(&self) -> bool {
        !matches!(self, AccessStatement::SetRole(_))
    }
}

/// GRANT or REVOKE of rights.
#[derive(Clone, Debug)]
pub(crate) struct GrantStatement {
    /// GRANT.
    pub(crate) gives: bool,
    pub(crate) rights: Rights,
    pub(crate) on: On,
    /// Names of roles, [`PUBLIC`] among them.
    pub(crate) roles: Vec<String>,
}

impl GrantStatement {
    /// The names of tables and views that it names one by one.
    pub(crate) fn relations(&mut self) -> &mut [ObjectName] {
        match &mut self.on {
            On::Relations(names) => names,
            On::AllInSchemas(_) | On::Schemas(_) => &mut [],
        }
    }
}

/// What rights are on.
#[derive(Clone, Debug)]
pub(crate) enum On {
    Relations(Vec<ObjectName>),
    AllInSchemas(Vec<String>),
    Schemas(Vec<String>),
}

/// Parses a statement about roles and rights; `None` for another one.
///
/// # Errors
/// [`ErrorKind::Syntax`], and [`ErrorKind::NotSupported`] for what PostgreSQL knows beside.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Parsed>> {
    let first = tokens.iter().find_map(|token| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        Token::Whitespace(_) => None,
        _ => Some(String::new()),
    });
    let first = first.unwrap_or_default();
    if !matches!(first.as_str(), "create" | "alter" | "drop" | "grant" | "revoke" | "set" | "reset")
    {
        return Ok(None);
    }
    let mut parser = parser(tokens.to_vec());
    parser.next_token();
    let parsed = match first.as_str() {
        "grant" => Some(grant(&mut parser, true)?),
        "revoke" => Some(grant(&mut parser, false)?),
        "set" => set_role(&mut parser)?,
        "reset" => take_word(&mut parser, "ROLE").then_some(AccessStatement::SetRole(None)),
        _ if take_word(&mut parser, "ROLE") || take_word(&mut parser, "USER") => {
            Some(AccessStatement::Role(role(&mut parser, &first)?))
        }
        "alter" => owner(&mut parser)?,
        _ => None,
    };
    let Some(statement) = parsed else { return Ok(None) };
    expect_eof(&mut parser)?;
    Ok(Some(Parsed::Access(Box::new(statement))))
}

fn name(parser: &mut Parser<'_>) -> Result<String> {
    let next = parser.peek_token();
    match next.token {
        Token::Word(word) => {
            parser.next_token();
            Ok(fold(word.value, word.quote_style))
        }
        _ => expected("the name of a role", &next),
    }
}

fn names(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    let mut names = vec![name(parser)?];
    while parser.consume_token(&Token::Comma) {
        names.push(name(parser)?);
    }
    Ok(names)
}

/// Names of roles, and PUBLIC.
fn grantees(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    loop {
        let is_public = is_word(parser, "PUBLIC");
        skip_word(parser, "GROUP");
        let name = name(parser)?;
        found.push(if is_public { PUBLIC.to_owned() } else { name });
        if !parser.consume_token(&Token::Comma) {
            return Ok(found);
        }
    }
}

fn set_role(parser: &mut Parser<'_>) -> Result<Option<AccessStatement>> {
    let is_local = take_word(parser, "LOCAL");
    if !is_local {
        skip_word(parser, "SESSION");
    }
    if !take_word(parser, "ROLE") {
        return Ok(None);
    }
    if is_local {
        return Err(SqlError::not_supported("SET LOCAL ROLE")
            .with_hint("write SET ROLE, and RESET ROLE afterwards"));
    }
    let next = parser.next_token();
    Ok(Some(AccessStatement::SetRole(match next.token {
        Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("none") =>
        {
            None
        }
        Token::Word(word) => Some(fold(word.value, word.quote_style)),
        Token::SingleQuotedString(name) => Some(name),
        _ => return expected("the name of a role", &next),
    })))
}

fn role(parser: &mut Parser<'_>, first: &str) -> Result<RoleStatement> {
    let action = match first {
        "create" => Action::Create,
        "alter" => Action::Alter,
        _ => {
            let if_exists = take_word(parser, "IF");
            if if_exists && !take_word(parser, "EXISTS") {
                return expected("EXISTS", &parser.peek_token());
            }
            Action::Drop { if_exists }
        }
    };
    let names = match action {
        Action::Drop { .. } => names(parser)?,
        _ => vec![name(parser)?],
    };
    let mut statement = RoleStatement { action, names, password: None, superuser: None };
    if matches!(action, Action::Drop { .. }) {
        return Ok(statement);
    }
    skip_word(parser, "WITH");
    let mut is_barred = false;
    loop {
        let next = parser.peek_token();
        let Token::Word(word) = &next.token else { break };
        parser.next_token();
        match word.value.to_ascii_lowercase().as_str() {
            // What each role is.
            "login" | "encrypted" | "inherit" | "nocreatedb" | "nocreaterole" | "noreplication"
            | "nobypassrls" => {}
            "nologin" => is_barred = true,
            "superuser" => statement.superuser = Some(true),
            "nosuperuser" => statement.superuser = Some(false),
            "password" => {
                statement.password = Some(match take_word(parser, "NULL") {
                    true => None,
                    false => Some(take_string(parser, "a password in single quotes")?),
                });
            }
            other => {
                return Err(SqlError::not_supported(format!("{other} in statements about roles"))
                    .with_hint(
                        "options: LOGIN, NOLOGIN, SUPERUSER, NOSUPERUSER, PASSWORD 'text'",
                    ));
            }
        }
    }
    if is_barred {
        if matches!(statement.password, Some(Some(_))) {
            let message =
                "NOLOGIN and PASSWORD exclude each other: a role with a password can log in";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        statement.password = Some(None);
    }
    Ok(statement)
}

/// `TABLE | VIEW [IF EXISTS] name OWNER TO role`
fn owner(parser: &mut Parser<'_>) -> Result<Option<AccessStatement>> {
    if !take_word(parser, "TABLE") && !take_word(parser, "VIEW") {
        return Ok(None);
    }
    let if_exists = take_word(parser, "IF") && take_word(parser, "EXISTS");
    skip_word(parser, "ONLY");
    let Ok(relation) = parser.parse_object_name(false) else { return Ok(None) };
    if !take_word(parser, "OWNER") {
        return Ok(None);
    }
    if !take_word(parser, "TO") {
        return expected("TO", &parser.peek_token());
    }
    let role = name(parser)?;
    Ok(Some(AccessStatement::Owner { relation, if_exists, role }))
}

/// GRANT and REVOKE.
fn grant(parser: &mut Parser<'_>, gives: bool) -> Result<AccessStatement> {
    if is_word(parser, "GRANT") || is_word(parser, "ADMIN") {
        return Err(SqlError::not_supported("GRANT OPTION FOR and ADMIN OPTION FOR")
            .with_hint("rights are given by owners and superusers alone"));
    }
    let mut words = Vec::new();
    loop {
        let next = parser.peek_token();
        words.push((name(parser)?, next));
        if parser.peek_token().token == Token::LParen {
            return Err(SqlError::not_supported("rights on some of the columns")
                .with_hint("grant the rights on a view that has these columns"));
        }
        skip_word(parser, "PRIVILEGES");
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    let to = if gives { "TO" } else { "FROM" };
    if !take_word(parser, "ON") {
        if !take_word(parser, to) {
            return expected(&format!("ON or {to}"), &parser.peek_token());
        }
        let groups = words.into_iter().map(|(name, _)| name).collect();
        let members = names(parser)?;
        finish(parser)?;
        return Ok(AccessStatement::Membership { gives, groups, members });
    }
    let on = on(parser)?;
    let all = match on {
        On::Schemas(_) => Rights::OF_SCHEMA,
        _ => Rights::OF_RELATION,
    };
    let mut rights = Rights::NONE;
    for (word, token) in &words {
        let right = match word.as_str() {
            "all" => all,
            word => match Rights::named(word) {
                Some(right) if all.has_all(right) => right,
                Some(_) => {
                    let message = format!("{} is no right on that", word.to_uppercase());
                    return Err(SqlError::new(ErrorKind::Semantic, message).with_hint(format!(
                        "rights: {}",
                        all.words().collect::<Vec<_>>().join(", ")
                    )));
                }
                None => return expected("a right such as SELECT, or ALL", token),
            },
        };
        rights = rights | right;
    }
    if !take_word(parser, to) {
        return expected(to, &parser.peek_token());
    }
    let roles = grantees(parser)?;
    finish(parser)?;
    Ok(AccessStatement::Grant(GrantStatement { gives, rights, on, roles }))
}

/// What may follow the roles.
fn finish(parser: &mut Parser<'_>) -> Result<()> {
    if take_word(parser, "WITH") {
        return Err(SqlError::not_supported("WITH GRANT OPTION and WITH ADMIN OPTION")
            .with_hint("rights are given by owners and superusers alone"));
    }
    if !take_word(parser, "CASCADE") {
        skip_word(parser, "RESTRICT");
    }
    Ok(())
}

fn on(parser: &mut Parser<'_>) -> Result<On> {
    if take_word(parser, "ALL") {
        if is_word(parser, "SEQUENCES") {
            return Err(no_rights("sequences"));
        }
        if !take_word(parser, "TABLES") || !take_word(parser, "IN") || !take_word(parser, "SCHEMA")
        {
            return expected("TABLES IN SCHEMA", &parser.peek_token());
        }
        return names(parser).map(On::AllInSchemas);
    }
    if take_word(parser, "SCHEMA") {
        return names(parser).map(On::Schemas);
    }
    for (word, what) in [
        ("SEQUENCE", "sequences"),
        ("DATABASE", "the database"),
        ("FUNCTION", "functions"),
        ("LANGUAGE", "languages"),
    ] {
        if is_word(parser, word) {
            return Err(no_rights(what));
        }
    }
    skip_word(parser, "TABLE");
    let relations = parser
        .parse_comma_separated(|parser: &mut Parser<'_>| parser.parse_object_name(false))
        .map_err(syntax)?;
    Ok(On::Relations(relations))
}

fn no_rights(what: &str) -> SqlError {
    SqlError::not_supported(format!("rights on {what}"))
        .with_hint("there are rights on tables, views and schemas; all roles may use the others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenize;

    fn parsed(sql: &str) -> Result<Option<AccessStatement>> {
        Ok(match parse(&tokenize(sql)?)? {
            Some(Parsed::Access(statement)) => Some(*statement),
            _ => None,
        })
    }

    #[test]
    fn statements_about_roles_are_read() {
        for other in [
            "SELECT 1",
            "CREATE TABLE role (i INT)",
            "ALTER TABLE t RENAME owner TO x",
            "SET threads = 4",
            "RESET ALL",
        ] {
            assert!(parsed(other).unwrap().is_none(), "{other}");
        }
        let sql = "create user Ann with login password 'it''s' superuser";
        let Some(AccessStatement::Role(found)) = parsed(sql).unwrap() else { panic!("no role") };
        let expected = RoleStatement {
            action: Action::Create,
            names: vec!["ann".to_owned()],
            password: Some(Some("it's".to_owned())),
            superuser: Some(true),
        };
        assert_eq!(found, expected);
        let sql = "DROP ROLE IF EXISTS \"B c\", d";
        let Some(AccessStatement::Role(found)) = parsed(sql).unwrap() else { panic!("no role") };
        assert_eq!(found.action, Action::Drop { if_exists: true });
        assert_eq!(found.names, ["B c", "d"]);
        assert!(parsed("CREATE ROLE a CREATEDB").is_err());
        assert!(parsed("CREATE ROLE a PASSWORD b").is_err());
        assert!(parsed("CREATE ROLE a NOLOGIN PASSWORD 'b'").is_err());
        assert!(parsed("CREATE ROLE").is_err());
    }

    #[test]
    fn grants_are_read() {
        let granted = |sql: &str| match parsed(sql).unwrap() {
            Some(AccessStatement::Grant(grant)) => grant,
            other => panic!("{other:?}"),
        };
        let found = granted("GRANT select, Insert ON TABLE t, s.u TO a, PUBLIC");
        assert_eq!((found.gives, found.rights.letters().as_str()), (true, "ar"));
        assert_eq!(found.roles, ["a", PUBLIC]);
        assert!(matches!(found.on, On::Relations(names) if names.len() == 2));
        let found =
            granted("REVOKE ALL PRIVILEGES ON ALL TABLES IN SCHEMA main FROM \"public\" CASCADE");
        assert_eq!((found.gives, found.rights), (false, Rights::OF_RELATION));
        assert!(matches!(found.on, On::AllInSchemas(names) if names == ["main"]));
        assert_eq!(found.roles, ["public"]);
        let member = parsed("GRANT pg_read_all_data TO a").unwrap();
        assert!(matches!(member, Some(AccessStatement::Membership { gives: true, .. })));
        for bad in [
            "GRANT SELECT (a) ON t TO b",
            "GRANT SELECT ON t TO b WITH GRANT OPTION",
            "GRANT CREATE ON t TO b",
            "GRANT everything ON t TO b",
            "GRANT SELECT ON t FROM b",
            "REVOKE SELECT ON t TO b",
            "GRANT USAGE ON SEQUENCE s TO b",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
