//! Statements of clients that concern the connection rather than the database: transactions' brackets, PostgreSQL's
//! settings, and what connection pools send between two users.

use std::collections::BTreeMap;
use std::time::Duration;

use pgwire::error::PgWireError;
use weft::{ClientSetting, POSTGRES_VERSION, quoted};

use crate::error::{error, error_with_hint};

/// A statement about the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SET of one of PostgreSQL's settings, until the transaction ends if it is local.
    Set { name: String, value: String, is_local: bool },
    /// RESET of one of them.
    Reset { name: String },
    /// SHOW of one of them.
    Show { name: String },
    /// DISCARD ALL, DEALLOCATE ALL, UNLISTEN *, CLOSE ALL and the like: there is nothing of it here.
    Discard { tag: &'static str },
}

/// Settings of PostgreSQL that clients set or look at, with their defaults.
const SETTINGS: [(&str, &str); 31] = [
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, YMD"),
    ("default_table_access_method", "heap"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "on"),
    ("jit", "off"),
    ("lock_timeout", "0"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("row_security", "off"),
    ("search_path", "main"),
    ("server_encoding", "UTF8"),
    ("server_version", POSTGRES_VERSION),
    ("server_version_num", "140020"),
    ("session_authorization", "weft"),
    ("ssl", "off"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("synchronous_commit", "on"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
];

/// Settings that say what the server is.
const FIXED: [&str; 11] = [
    "default_table_access_method",
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "max_identifier_length",
    "max_index_keys",
    "server_encoding",
    "server_version",
    "server_version_num",
    "session_authorization",
    "ssl",
];

/// The command about the connection that a statement is, if it is one.
pub(crate) fn parse(sql: &str) -> Option<Command> {
    let words: Vec<&str> = sql.split_whitespace().take(6).collect();
    let word = |number: usize| words.get(number).map_or("", |word| word.trim_end_matches(';'));
    let is = |number: usize, wanted: &str| word(number).eq_ignore_ascii_case(wanted);
    let discard = |tag| Some(Command::Discard { tag });
    match word(0).to_ascii_lowercase().as_str() {
        "begin" => Some(Command::Begin),
        "start" if is(1, "transaction") => Some(Command::Begin),
        "commit" | "end" if !is(1, "prepared") => Some(Command::Commit),
        "rollback" | "abort" if !is(1, "to") && !is(1, "prepared") && !is(2, "to") => {
            Some(Command::Rollback)
        }
        "discard" => discard("DISCARD ALL"),
        "deallocate" if is(1, "all") => discard("DEALLOCATE ALL"),
        "unlisten" => discard("UNLISTEN"),
        "close" if is(1, "all") => discard("CLOSE CURSOR ALL"),
        "set" => parse_set(sql),
        "reset" => known(word(1)).map(|name| Command::Reset { name }),
        "show" if is(1, "transaction") && is(2, "isolation") => {
            Some(Command::Show { name: "transaction_isolation".to_owned() })
        }
        "show" => known(word(1)).map(|name| Command::Show { name }),
        _ => None,
    }
}

/// What a session is told where a client sets modes of transactions, by `SET` as it was written.
pub(crate) fn modes_of_transactions(
    name: &str,
    value: &str,
    sql: &str,
    is_within: bool,
) -> Option<String> {
    let rest = after_word(sql, "set")?;
    let is_on = matches!(value.to_ascii_lowercase().as_str(), "on" | "true" | "yes" | "1");
    let access = if is_on { "READ ONLY" } else { "READ WRITE" };
    let session = "SET SESSION CHARACTERISTICS AS TRANSACTION";
    let is_session = after_word(rest, "session")
        .is_some_and(|rest| after_word(rest, "characteristics").is_some());
    match name {
        // Outside of a transaction PostgreSQL warns, and sets nothing.
        "transaction_isolation" | "transaction_read_only" => {
            let is_statement = is_session || after_word(rest, "transaction").is_some();
            (is_session || is_statement && is_within).then(|| sql.to_owned())
        }
        "default_transaction_isolation" => Some(format!("{session} ISOLATION LEVEL {value}")),
        "default_transaction_read_only" => Some(format!("{session} {access}")),
        _ => None,
    }
}

/// The name of one of the settings of PostgreSQL.
pub(crate) fn known(name: &str) -> Option<String> {
    let name = name.trim_matches('"').to_ascii_lowercase();
    SETTINGS.iter().any(|(known, _)| *known == name).then_some(name)
}

/// `SET [SESSION | LOCAL] name { = | TO } value`, and the settings of transactions.
fn parse_set(sql: &str) -> Option<Command> {
    let mut rest = after_word(sql.trim().trim_end_matches(';'), "set")?;
    let is_local = after_word(rest, "local").is_some();
    for scope in ["session characteristics as", "session", "local"] {
        let mut inner = rest;
        if scope.split(' ').all(|word| after_word(inner, word).map(|left| inner = left).is_some()) {
            rest = inner;
            break;
        }
    }
    if let Some(mode) = after_word(rest, "transaction") {
        let level = after_word(mode, "isolation").and_then(|rest| after_word(rest, "level"));
        return Some(match level {
            Some(level) => Command::Set {
                name: "transaction_isolation".to_owned(),
                value: level.trim().to_ascii_lowercase(),
                is_local,
            },
            None => Command::Set {
                name: "transaction_read_only".to_owned(),
                value: match mode.trim().eq_ignore_ascii_case("read only") {
                    true => "on".to_owned(),
                    false => "off".to_owned(),
                },
                is_local,
            },
        });
    }
    let rest = rest.trim_start();
    let end = rest.find(|char: char| char.is_whitespace() || char == '=')?;
    let name = known(&rest[..end])?;
    let value = rest[end..].trim_start();
    let value = value.strip_prefix('=').or_else(|| after_word(value, "to"))?;
    let value = value.trim().trim_matches('\'').trim_matches('"').to_owned();
    Some(Command::Set { name, value, is_local })
}

/// What follows a word at the beginning of a text.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let text = text.trim_start();
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    let ends =
        rest.is_empty() || rest.starts_with(|char: char| char.is_whitespace() || char == '=');
    (head.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// PostgreSQL's settings of one connection.
#[derive(Debug, Default)]
pub(crate) struct ClientSettings {
    changed: BTreeMap<String, String>,
    /// Until the transaction ends.
    local: BTreeMap<String, String>,
}

impl ClientSettings {
    /// The value of a setting.
    pub(crate) fn get(&self, name: &str) -> &str {
        let default = || SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match self.local.get(name).or_else(|| self.changed.get(name)) {
            Some(value) => value,
            None => default().unwrap_or_default(),
        }
    }

    /// Sets a setting, if the server can behave like that.
    ///
    /// # Errors
    /// SQLSTATE 55P02 for settings that are fixed, 22023 for values that the server cannot honour.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), PgWireError> {
        let is_default = check(name, value)?;
        self.local.remove(name);
        if is_default {
            self.changed.remove(name);
        } else {
            self.changed.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }

    /// Sets a setting until the transaction ends.
    ///
    /// # Errors
    /// As for [`ClientSettings::set`].
    pub(crate) fn set_local(&mut self, name: &str, value: &str) -> Result<(), PgWireError> {
        let is_default = check(name, value)?;
        let default = SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = if is_default { default.unwrap_or_default() } else { value };
        self.local.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Notes that there is no transaction, or no more.
    pub(crate) fn end_transaction(&mut self) {
        self.local.clear();
    }

    /// Notes what the server knows of a setting that clients cannot change.
    pub(crate) fn tell(&mut self, name: &str, value: &str) {
        self.changed.insert(name.to_owned(), value.to_owned());
    }

    /// Sets a setting to its default, or all of them.
    pub(crate) fn reset(&mut self, name: Option<&str>) {
        match name {
            Some(name) => drop(self.changed.remove(name)),
            None => self.changed.retain(|name, _| FIXED.contains(&name.as_str())),
        }
        self.local.retain(|local, _| name.is_some_and(|name| name != local));
    }

    /// How long a statement may take.
    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        self.timeout("statement_timeout")
    }

    /// The duration that a setting limits; `None` for any.
    pub(crate) fn timeout(&self, name: &str) -> Option<Duration> {
        let limit = milliseconds(self.get(name)).unwrap_or_default();
        (limit > 0).then(|| Duration::from_millis(limit))
    }

    /// All settings with their values.
    pub(crate) fn list(&self) -> Vec<ClientSetting> {
        let setting = |(name, default): &(&str, &str)| ClientSetting {
            name: (*name).to_owned(),
            value: self.get(name).to_owned(),
            default: (*default).to_owned(),
        };
        SETTINGS.iter().map(setting).collect()
    }
}

/// Whether a value means a setting's default, if the server can behave as the value says.
///
/// # Errors
/// SQLSTATE 55P02 for settings that are fixed, 22023 for values that the server cannot honour.
fn check(name: &str, value: &str) -> Result<bool, PgWireError> {
    if FIXED.contains(&name) {
        return Err(error("55P02", format!("parameter {} cannot be changed", quoted(name))));
    }
    let plain = value.to_ascii_lowercase().replace('-', "");
    let only = |wanted: &str, holds: bool| match holds || plain == "default" {
        true => Ok(()),
        false => Err(error_with_hint(
            "22023",
            format!("{name} cannot be '{value}'"),
            format!("the only value is {wanted}"),
        )),
    };
    match name {
        "client_encoding" => {
            // As in PostgreSQL, nothing but letters and digits of the name counts.
            let name: String = plain.chars().filter(char::is_ascii_alphanumeric).collect();
            only("UTF8", matches!(name.as_str(), "utf8" | "unicode"))?;
        }
        "datestyle" => only("ISO", plain.starts_with("iso"))?,
        "intervalstyle" => only("postgres", plain == "postgres")?,
        "bytea_output" => only("hex", plain == "hex")?,
        "standard_conforming_strings" => only("on", matches!(plain.as_str(), "on" | "true"))?,
        name if name.ends_with("_timeout") => {
            milliseconds(value)?;
        }
        _ => {}
    }
    Ok(plain == "default")
}

/// A duration in milliseconds, with one of PostgreSQL's units behind it or none.
fn milliseconds(text: &str) -> Result<u64, PgWireError> {
    let text = text.trim();
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[end..].trim() {
        "" | "ms" => Some(1),
        "s" => Some(1000),
        "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let count: Option<u64> = text[..end].parse().ok();
    let product = count.zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    product.or_else(|| text.eq_ignore_ascii_case("default").then_some(0)).ok_or_else(|| {
        error_with_hint("22023", format!("'{text}' is no duration"), "write 1500, '30s' or '5min'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(sql: &str) -> Option<(String, String)> {
        match parse(sql) {
            Some(Command::Set { name, value, .. }) => Some((name, value)),
            _ => None,
        }
    }

    #[test]
    fn statements_about_the_connection_are_told_from_sql() {
        assert_eq!(parse("BEGIN"), Some(Command::Begin));
        assert_eq!(parse("start transaction read only;"), Some(Command::Begin));
        assert_eq!(parse("SELECT 1"), None);
        assert_eq!(parse("SET memory_limit = '1GB'"), None);
        assert_eq!(parse("ROLLBACK TO SAVEPOINT a"), None);
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(set("SET client_encoding TO 'UTF8'"), pair("client_encoding", "UTF8"));
        assert_eq!(set("set extra_float_digits = 3;"), pair("extra_float_digits", "3"));
        assert_eq!(set("SET SESSION statement_timeout=5"), pair("statement_timeout", "5"));
        let level = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED";
        assert_eq!(set(level), pair("transaction_isolation", "read committed"));
        let show = Command::Show { name: "server_version".to_owned() };
        assert_eq!(parse("SHOW server_version"), Some(show));
    }

    #[test]
    fn settings_that_cannot_be_honoured_are_refused() {
        let mut settings = ClientSettings::default();
        assert!(settings.set("client_encoding", "LATIN1").is_err());
        assert!(settings.set("server_version", "17").is_err());
        settings.set("client_encoding", "utf-8").unwrap();
        settings.set("statement_timeout", "2s").unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        assert!(settings.set("statement_timeout", "soon").is_err());
        settings.set_local("statement_timeout", "3").unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_millis(3)));
        settings.end_transaction();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        settings.reset(None);
        assert_eq!(settings.statement_timeout(), None);
    }
}
