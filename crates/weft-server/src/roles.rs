//! CREATE ROLE, ALTER ROLE and DROP ROLE: the users of the server.

use pgwire::error::{PgWireError, PgWireResult};
use weft::Database;

use crate::auth::Role;
use crate::error::{error, error_with_hint, from_weft};

/// A statement about a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleStatement {
    action: Action,
    name: String,
    password: Option<String>,
    superuser: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Create,
    Alter,
    Drop { if_exists: bool },
}

/// The statement about a role that a text is.
///
/// # Errors
/// SQLSTATE 42601 and 0A000 for one that is not understood.
pub(crate) fn parse(sql: &str) -> PgWireResult<Option<RoleStatement>> {
    let words = words(sql);
    let is = |number: usize, wanted: &[&str]| match words.get(number) {
        Some(Word::Bare(word)) => wanted.iter().any(|wanted| word.eq_ignore_ascii_case(wanted)),
        _ => false,
    };
    if !is(1, &["role", "user"]) {
        return Ok(None);
    }
    let (action, at) = match (is(0, &["create"]), is(0, &["alter"]), is(0, &["drop"])) {
        (true, ..) => (Action::Create, 2),
        (_, true, _) => (Action::Alter, 2),
        (.., true) if is(2, &["if"]) && is(3, &["exists"]) => (Action::Drop { if_exists: true }, 4),
        (.., true) => (Action::Drop { if_exists: false }, 2),
        _ => return Ok(None),
    };
    let name = match words.get(at) {
        Some(Word::Bare(name)) => name.to_ascii_lowercase(),
        Some(Word::Quoted(name)) if !name.is_empty() => name.clone(),
        _ => return Err(error("42601", "syntax error: expected the name of a role")),
    };
    let mut statement = RoleStatement { action, name, password: None, superuser: None };
    let mut rest = words.iter().skip(at + 1);
    while let Some(word) = rest.next() {
        let Word::Bare(word) = word else { return Err(unknown("a text")) };
        match word.to_ascii_lowercase().as_str() {
            _ if matches!(action, Action::Drop { .. }) => return Err(unknown(word)),
            "with" | "login" | "encrypted" | "inherit" => {}
            "superuser" => statement.superuser = Some(true),
            "nosuperuser" => statement.superuser = Some(false),
            "password" => match rest.next() {
                Some(Word::Text(password)) => statement.password = Some(password.clone()),
                _ => {
                    return Err(error(
                        "42601",
                        "syntax error: expected a password in single quotes",
                    ));
                }
            },
            other => return Err(unknown(other)),
        }
    }
    Ok(Some(statement))
}

fn unknown(what: &str) -> PgWireError {
    error_with_hint(
        "0A000",
        format!("{what} is not supported in statements about roles"),
        "options: LOGIN, SUPERUSER, NOSUPERUSER, PASSWORD 'text'",
    )
}

impl RoleStatement {
    /// What the client is told when it has run.
    pub(crate) fn tag(&self) -> &'static str {
        match self.action {
            Action::Create => "CREATE ROLE",
            Action::Alter => "ALTER ROLE",
            Action::Drop { .. } => "DROP ROLE",
        }
    }

    /// Runs it for a user.
    ///
    /// # Errors
    /// SQLSTATE 42501 if the user may not, and those of the database.
    pub(crate) async fn run(
        &self,
        database: &Database,
        user: &str,
        is_superuser: bool,
    ) -> PgWireResult<()> {
        // Users may change their own passwords.
        let is_own = self.action == Action::Alter && self.name == user && self.superuser.is_none();
        if !is_superuser && !is_own {
            return Err(error("42501", "only a superuser may make, change and drop roles"));
        }
        let found = database.role(&self.name).map(|kept| Role::of_kept(&kept));
        let password = self.password.as_deref();
        let kept = match self.action {
            Action::Create => Some(Role::new(password, self.superuser == Some(true)).kept()),
            Action::Alter => {
                let role = found.unwrap_or_else(|| Role::new(None, self.name == user));
                Some(role.changed(password, self.superuser).kept())
            }
            Action::Drop { if_exists: true } if found.is_none() => return Ok(()),
            Action::Drop { .. } => None,
        };
        let is_new = self.action == Action::Create;
        let set = database.set_role(&self.name, kept, is_new).await;
        set.map_err(|error| from_weft(&error, "", None))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Bare(String),
    Quoted(String),
    Text(String),
}

/// The words, names and texts of a statement, without its comments' meaning: what it does not know is a word.
fn words(sql: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut letters = sql.trim().trim_end_matches(';').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_whitespace() => {}
            quote @ ('"' | '\'') => {
                let mut text = String::new();
                while let Some(letter) = letters.next() {
                    if letter != quote {
                        text.push(letter);
                    } else if letters.next_if_eq(&quote).is_some() {
                        text.push(quote);
                    } else {
                        break;
                    }
                }
                words.push(if quote == '"' { Word::Quoted(text) } else { Word::Text(text) });
            }
            letter => {
                let mut word = String::from(letter);
                while let Some(letter) =
                    letters.next_if(|next| !next.is_whitespace() && !matches!(next, '"' | '\''))
                {
                    word.push(letter);
                }
                words.push(Word::Bare(word));
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_about_roles_are_read() {
        assert_eq!(parse("SELECT 1").unwrap(), None);
        assert_eq!(parse("CREATE TABLE role (i INT)").unwrap(), None);
        let found =
            parse("create user Ann with login password 'it''s' superuser;").unwrap().unwrap();
        let expected = RoleStatement {
            action: Action::Create,
            name: "ann".to_owned(),
            password: Some("it's".to_owned()),
            superuser: Some(true),
        };
        assert_eq!(found, expected);
        let found = parse("DROP ROLE IF EXISTS \"B c\"").unwrap().unwrap();
        assert_eq!((found.action, found.name.as_str()), (Action::Drop { if_exists: true }, "B c"));
        assert!(parse("CREATE ROLE a CREATEDB").is_err());
        assert!(parse("CREATE ROLE a PASSWORD b").is_err());
        assert!(parse("CREATE ROLE").is_err());
    }
}
