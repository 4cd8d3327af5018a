//! BEGIN, COMMIT, ROLLBACK, savepoints, and the modes of transactions.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Position, Result, SqlError};
use crate::statement::fold;
use crate::text;

/// How a transaction isolates itself from others, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// READ COMMITTED and READ UNCOMMITTED: each statement sees what is committed when it begins.
    ReadCommitted,
    /// REPEATABLE READ and SNAPSHOT: one snapshot for all statements.
    Snapshot,
    Serializable,
}

/// The modes that a statement gives; those that it does not stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) level: Option<Level>,
    pub(crate) is_read_only: Option<bool>,
}

impl Modes {
    /// These, and others where these say nothing.
    pub(crate) fn or(self, others: Modes) -> Modes {
        Modes {
            level: self.level.or(others.level),
            is_read_only: self.is_read_only.or(others.is_read_only),
        }
    }
}

/// A statement about transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionStatement {
    /// `BEGIN`, `START TRANSACTION`
    Begin(Modes),
    /// `COMMIT`, `END`
    Commit,
    /// `ROLLBACK`, `ABORT`
    Rollback,
    /// `SAVEPOINT name`
    Savepoint(String),
    /// `ROLLBACK TO name`
    RollbackTo(String),
    /// `RELEASE name`
    Release(String),
    /// `SET TRANSACTION modes`
    SetTransaction(Modes),
    /// `SET SESSION CHARACTERISTICS AS TRANSACTION modes`
    SetSession(Modes),
}

/// The statement about transactions that these tokens are; `None` if they begin another one.
///
/// # Errors
/// [`ErrorKind::Syntax`], and [`ErrorKind::NotSupported`] for `AND CHAIN`.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<TransactionStatement>> {
    let tokens = text::significant(tokens);
    let mut words = Words { tokens: &tokens, at: 0 };
    let statement = if words.take("BEGIN") {
        words.take_noise();
        TransactionStatement::Begin(words.modes()?)
    } else if words.take_both("START", "TRANSACTION") {
        TransactionStatement::Begin(words.modes()?)
    } else if words.take("COMMIT") || words.take("END") {
        words.take_noise();
        words.chain()?;
        TransactionStatement::Commit
    } else if words.take("ROLLBACK") || words.take("ABORT") {
        words.take_noise();
        if words.take("TO") {
            words.take("SAVEPOINT");
            TransactionStatement::RollbackTo(words.name()?)
        } else {
            words.chain()?;
            TransactionStatement::Rollback
        }
    } else if words.take("SAVEPOINT") {
        TransactionStatement::Savepoint(words.name()?)
    } else if words.take("RELEASE") {
        words.take("SAVEPOINT");
        TransactionStatement::Release(words.name()?)
    } else if words.take_both("SET", "TRANSACTION") {
        TransactionStatement::SetTransaction(words.some_modes()?)
    } else if words.take_both("SET", "SESSION") {
        if !(words.take_both("CHARACTERISTICS", "AS") && words.take("TRANSACTION")) {
            return Ok(None);
        }
        TransactionStatement::SetSession(words.some_modes()?)
    } else {
        return Ok(None);
    };
    words.end()?;
    Ok(Some(statement))
}

struct Words<'a> {
    tokens: &'a [&'a TokenWithSpan],
    at: usize,
}

impl Words<'_> {
    fn is_at(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| crate::grammar::is(token, word))
    }

    fn take(&mut self, word: &str) -> bool {
        let is_it = self.is_at(self.at, word);
        self.at += usize::from(is_it);
        is_it
    }

    fn take_both(&mut self, first: &str, second: &str) -> bool {
        let are_they = self.is_at(self.at, first) && self.is_at(self.at + 1, second);
        self.at += if are_they { 2 } else { 0 };
        are_they
    }

    /// Passes over a word that changes nothing.
    fn take_noise(&mut self) {
        if !self.take("TRANSACTION") {
            self.take("WORK");
        }
    }

    fn chain(&mut self) -> Result<()> {
        if !self.take("AND") {
            return Ok(());
        }
        let has_none = self.take("NO");
        match self.take("CHAIN") {
            true if has_none => Ok(()),
            true => Err(SqlError::not_supported("AND CHAIN").with_hint("write BEGIN afterwards")),
            false => Err(self.expected("CHAIN")),
        }
    }

    /// The name of a savepoint.
    fn name(&mut self) -> Result<String> {
        match self.tokens.get(self.at).map(|token| &token.token) {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(fold(word.value.clone(), word.quote_style))
            }
            _ => Err(self.expected("the name of a savepoint")),
        }
    }

    fn some_modes(&mut self) -> Result<Modes> {
        let modes = self.modes()?;
        match modes == Modes::default() {
            true => Err(self.expected("ISOLATION LEVEL, READ ONLY or READ WRITE")),
            false => Ok(modes),
        }
    }

    /// Modes, with commas between them or without.
    fn modes(&mut self) -> Result<Modes> {
        let mut modes = Modes::default();
        loop {
            if self.take_both("ISOLATION", "LEVEL") {
                modes.level = Some(self.level()?);
            } else if self.take_both("READ", "ONLY") {
                modes.is_read_only = Some(true);
            } else if self.take_both("READ", "WRITE") {
                modes.is_read_only = Some(false);
            } else if self.take_both("NOT", "DEFERRABLE") || self.take("DEFERRABLE") {
                // No transaction waits for others before it begins.
            } else {
                return Ok(modes);
            }
            if self.tokens.get(self.at).is_some_and(|token| token.token == Token::Comma) {
                self.at += 1;
            }
        }
    }

    fn level(&mut self) -> Result<Level> {
        if self.take("SERIALIZABLE") {
            return Ok(Level::Serializable);
        }
        if self.take_both("REPEATABLE", "READ") || self.take("SNAPSHOT") {
            return Ok(Level::Snapshot);
        }
        if self.take_both("READ", "COMMITTED") || self.take_both("READ", "UNCOMMITTED") {
            return Ok(Level::ReadCommitted);
        }
        let levels = "SERIALIZABLE, REPEATABLE READ, READ COMMITTED, READ UNCOMMITTED or SNAPSHOT";
        Err(self.expected(levels))
    }

    fn end(&self) -> Result<()> {
        match self.tokens.get(self.at) {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the statement")),
        }
    }

    fn expected(&self, what: &str) -> SqlError {
        match self.tokens.get(self.at) {
            Some(found) => {
                let start = found.span.start;
                let message = format!("syntax error: expected {what}, found: {}", found.token);
                SqlError::new(ErrorKind::Syntax, message)
                    .with_position(Position { line: start.line, column: start.column })
            }
            None => {
                let message = format!("syntax error: expected {what}, found the end");
                SqlError::new(ErrorKind::Syntax, message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Result<Option<TransactionStatement>> {
        parse(&text::tokenize(sql).unwrap())
    }

    #[test]
    fn statements_about_transactions_are_told_from_others() {
        use TransactionStatement::*;
        let modes = |level, is_read_only| Modes { level, is_read_only };
        let check = |sql: &str, expected| assert_eq!(parsed(sql).unwrap(), expected, "{sql}");
        check("BEGIN", Some(Begin(Modes::default())));
        check("begin work", Some(Begin(Modes::default())));
        check("START TRANSACTION READ ONLY", Some(Begin(modes(None, Some(true)))));
        let sql = "BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE NOT DEFERRABLE";
        check(sql, Some(Begin(modes(Some(Level::Serializable), Some(false)))));
        check("END", Some(Commit));
        check("COMMIT WORK AND NO CHAIN", Some(Commit));
        check("abort transaction", Some(Rollback));
        check("ROLLBACK TO SAVEPOINT \"A b\"", Some(RollbackTo("A b".to_owned())));
        check("ROLLBACK TO Mark", Some(RollbackTo("mark".to_owned())));
        check("SAVEPOINT s", Some(Savepoint("s".to_owned())));
        check("RELEASE s", Some(Release("s".to_owned())));
        let level = modes(Some(Level::ReadCommitted), None);
        check("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", Some(SetTransaction(level)));
        let level = modes(Some(Level::Snapshot), None);
        let sql = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SNAPSHOT";
        check(sql, Some(SetSession(level)));
        check("SELECT 1", None);
        check("SET SESSION x = 1", None);
    }

    #[test]
    fn what_is_wrong_with_a_statement_is_said() {
        let check = |sql: &str, expected: &str| {
            let error = parsed(sql).unwrap_err();
            assert!(error.message().contains(expected), "{sql}: {error}");
        };
        check("SAVEPOINT", "the name of a savepoint, found the end");
        check("ROLLBACK TO 5", "the name of a savepoint, found: 5");
        check("BEGIN ISOLATION LEVEL NONE", "SERIALIZABLE, REPEATABLE READ");
        check("COMMIT NOW", "the end of the statement, found: NOW");
        check("COMMIT AND CHAIN", "AND CHAIN is not supported");
        check("SET TRANSACTION", "READ ONLY or READ WRITE");
    }
}
