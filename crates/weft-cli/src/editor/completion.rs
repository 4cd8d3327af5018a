//! What could stand at a place in the text: keywords, functions, tables and columns in SQL, names and
//! arguments of dot commands, files within string quotes.

use std::collections::BTreeSet;
use std::fs;

use crate::output::Mode;
use crate::shell::commands::{self, Argument};
use crate::sql::lexer::{Token, TokenKind, tokens};
use weft::quoted;

/// The names that completion knows.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// All tables and views with their columns.
    pub relations: Vec<(String, Vec<String>)>,
    /// All functions.
    pub functions: Vec<String>,
    /// All keywords.
    pub keywords: Vec<String>,
}

impl Names {
    fn tables(&self) -> impl Iterator<Item = &String> {
        self.relations.iter().map(|(name, _)| name)
    }

    /// The columns of a table or view; none if there is no such table.
    fn columns(&self, table: &str) -> &[String] {
        let found = self.relations.iter().find(|(name, _)| name == table);
        found.map_or(&[], |(_, columns)| columns)
    }
}

/// Words after which a table is named.
const BEFORE_TABLE: [&str; 9] =
    ["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "VIEW", "DESCRIBE", "DESC", "COPY"];

/// Words that begin another part of a query, so that a comma before them belongs to another list.
const CLAUSES: [&str; 14] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "ON", "USING", "SET", "VALUES", "LIMIT",
    "WINDOW", "QUALIFY", "UNION",
];

/// What could replace the text from the byte that is returned to byte `position`.
pub fn complete(text: &str, position: usize, names: &Names) -> (usize, Vec<String>) {
    let before = &text[..position];
    if before.trim_start().starts_with('.') && !before.contains('\n') {
        return complete_command(before, names);
    }
    let all: Vec<Token> = tokens(text).collect();
    let current = all.iter().find(|token| token.start < position && position <= token.end);
    match current {
        Some(token) if token.kind == TokenKind::Comment => return (position, Vec::new()),
        Some(token) if token.kind == TokenKind::String => {
            let inside = position > token.start && (position < token.end || !token.closed);
            let start = token.start + 1;
            let path = text.get(start..position).filter(|_| inside);
            return path.map_or((position, Vec::new()), |path| (start, files(path)));
        }
        _ => {}
    }
    let start = current.filter(|token| is_name(token)).map_or(position, |token| token.start);
    let statement = Statement::around(text, &all, start);
    let prefix = &text[start..position];
    (start, statement.candidates(prefix, names))
}

fn is_name(token: &Token) -> bool {
    matches!(token.kind, TokenKind::Word | TokenKind::QuotedIdentifier)
}

/// The statement that the cursor is in, and where in it.
struct Statement<'t> {
    text: &'t str,
    /// Its tokens but white space and comments.
    tokens: Vec<Token>,
    /// How many of them come before the word to be completed.
    before: usize,
}

impl<'t> Statement<'t> {
    fn around(text: &'t str, all: &[Token], start: usize) -> Statement<'t> {
        let is_end = |token: &&Token| token.kind == TokenKind::Semicolon;
        let from = all.iter().filter(is_end).map(|token| token.end).rfind(|end| *end <= start);
        let to = all.iter().filter(is_end).map(|token| token.start).find(|at| *at >= start);
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(text.len()));
        let within = |token: &&Token| token.start >= from && token.end <= to && token.has_meaning();
        let tokens: Vec<Token> = all.iter().filter(within).copied().collect();
        let before = tokens.iter().filter(|token| token.end <= start).count();
        Statement { text, tokens, before }
    }

    /// The upper-case text of a word; empty for other tokens.
    fn word(&self, index: usize) -> String {
        match self.tokens.get(index) {
            Some(token) if token.kind == TokenKind::Word => token.text(self.text).to_uppercase(),
            _ => String::new(),
        }
    }

    /// The name that a token spells, as the database keeps it.
    fn name(&self, index: usize) -> Option<String> {
        let token = self.tokens.get(index).filter(|token| is_name(token))?;
        let text = token.text(self.text);
        Some(match token.kind {
            TokenKind::Word => text.to_lowercase(),
            _ => text.trim_matches(['"', '`']).replace("\"\"", "\""),
        })
    }

    fn is_symbol(&self, index: usize, symbol: &str) -> bool {
        self.tokens.get(index).is_some_and(|token| token.text(self.text) == symbol)
    }

    fn candidates(&self, prefix: &str, names: &Names) -> Vec<String> {
        if self.before > 0 && self.is_symbol(self.before - 1, ".") {
            let qualifier = self.before.checked_sub(2).and_then(|index| self.name(index));
            let table = qualifier.map(|name| self.table_called(&name, names)).unwrap_or_default();
            return matching(prefix, names.columns(&table).iter().map(|name| quoted(name)));
        }
        let tables = || names.tables().map(|name| quoted(name));
        if self.wants_table() {
            return matching(prefix, tables());
        }
        let mut named: Vec<String> = self.tables().into_iter().map(|(table, _)| table).collect();
        if named.is_empty() && !prefix.is_empty() {
            named = names.tables().cloned().collect();
        }
        let columns: BTreeSet<String> =
            named.iter().flat_map(|table| names.columns(table)).map(|name| quoted(name)).collect();
        if prefix.is_empty() {
            return columns.into_iter().collect();
        }
        let upper = prefix.chars().all(|c| !c.is_lowercase());
        let keyword = |word: &String| if upper { word.to_uppercase() } else { word.to_lowercase() };
        let mut found = matching(prefix, columns.into_iter());
        let others = names.keywords.iter().map(keyword);
        let functions = names.functions.iter().map(|name| format!("{name}("));
        let aliases = self.tables().into_iter().filter_map(|(_, alias)| alias);
        for name in matching(prefix, others.chain(functions).chain(tables()).chain(aliases)) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// Whether a table is named here: after FROM and the like, or after a comma in such a list.
    fn wants_table(&self) -> bool {
        let Some(previous) = self.before.checked_sub(1) else { return false };
        if BEFORE_TABLE.contains(&self.word(previous).as_str()) {
            return true;
        }
        self.is_symbol(previous, ",") && self.clause(previous) == "FROM"
    }

    /// The word that began the part of the query that token `index` is in.
    fn clause(&self, index: usize) -> String {
        let mut depth = 0_i32;
        for earlier in (0..index).rev() {
            depth += i32::from(self.is_symbol(earlier, ")"));
            depth -= i32::from(self.is_symbol(earlier, "("));
            let word = self.word(earlier);
            if depth < 0 {
                return String::new();
            }
            if depth == 0 && CLAUSES.contains(&word.as_str()) {
                return word;
            }
        }
        String::new()
    }

    /// The tables that the statement names, with their aliases.
    fn tables(&self) -> Vec<(String, Option<String>)> {
        let mut tables = Vec::new();
        for index in 0..self.tokens.len() {
            let named = index > 0 && BEFORE_TABLE.contains(&self.word(index - 1).as_str());
            let listed =
                index > 0 && self.is_symbol(index - 1, ",") && self.clause(index - 1) == "FROM";
            if !(named || listed) {
                continue;
            }
            let Some(table) = self.name(index) else { continue };
            let alias = index + 1 + usize::from(self.word(index + 1) == "AS");
            tables.push((table, self.name(alias).filter(|_| alias != self.before)));
        }
        tables
    }

    /// The table that `name`, a table or an alias, stands for.
    fn table_called(&self, name: &str, names: &Names) -> String {
        let is_alias = |alias: &Option<String>| alias.as_deref() == Some(name);
        let found = self.tables().into_iter().find(|(_, alias)| is_alias(alias));
        match found {
            Some((table, _)) if names.columns(name).is_empty() => table,
            _ => name.to_owned(),
        }
    }
}

/// Those of `names` that begin with `prefix`, whatever the case and without quotes, sorted.
fn matching(prefix: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let wanted = prefix.trim_start_matches('"').to_lowercase();
    let begins = |name: &String| name.trim_start_matches('"').to_lowercase().starts_with(&wanted);
    let sorted: BTreeSet<String> = names.filter(begins).collect();
    sorted.into_iter().collect()
}

/// Completes the name of a dot command or its argument; `line` ends at the cursor.
fn complete_command(line: &str, names: &Names) -> (usize, Vec<String>) {
    let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = &line[start..];
    let name = line.split_whitespace().next().unwrap_or_default();
    if word.starts_with('.') && line[..start].trim().is_empty() {
        let commands = commands::names().map(|name| format!(".{name}"));
        return (start, matching(word, commands));
    }
    let found = match commands::argument(name.trim_start_matches('.')) {
        Argument::None => Vec::new(),
        Argument::Switch => matching(word, ["on", "off"].map(str::to_owned).into_iter()),
        Argument::Mode => matching(word, Mode::all().map(|(name, _)| name.to_owned())),
        Argument::Table => matching(word, names.tables().cloned()),
        Argument::Command => matching(word, commands::names().map(str::to_owned)),
        Argument::File => return (start, files(word)),
    };
    (start, found)
}

/// The files whose path begins with `path`; directories end with a slash.
fn files(path: &str) -> Vec<String> {
    let (directory, prefix) = path.rsplit_once('/').map_or(("", path), |(d, p)| (d, p));
    let written = if path.contains('/') { format!("{directory}/") } else { String::new() };
    let read = if written.is_empty() { "." } else { written.as_str() };
    let Ok(entries) = fs::read_dir(read) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let hidden = name.starts_with('.') && !prefix.starts_with('.');
            let slash = if entry.path().is_dir() { "/" } else { "" };
            (name.starts_with(prefix) && !hidden).then(|| format!("{written}{name}{slash}"))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Names {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let relations = [
            ("Odd Name", &["Odd"][..]),
            ("lineitem", &["l_id", "l_tax"]),
            ("orders", &["o_id", "o_date"]),
        ];
        Names {
            relations: relations.map(|(name, columns)| (name.to_owned(), owned(columns))).to_vec(),
            functions: owned(&["sum", "substr"]),
            keywords: owned(&["SELECT", "SET", "FROM", "ORDER"]),
        }
    }

    /// Completes at `|` and compares the values.
    fn check(text: &str, expected: &[&str]) {
        let position = text.find('|').unwrap();
        let (start, found) = complete(&text.replace('|', ""), position, &shop());
        assert_eq!(found, expected, "{text}");
        assert!(start <= position);
    }

    #[test]
    fn keywords_and_functions() {
        check("se|", &["select", "set"]);
        check("SE|", &["SELECT", "SET"]);
        check("select s|", &["select", "set", "substr(", "sum("]);
        check("|", &[]);
        check("-- se|", &[]);
    }

    #[test]
    fn tables() {
        check("select * from |", &["\"Odd Name\"", "lineitem", "orders"]);
        check("select * from o|", &["\"Odd Name\"", "orders"]);
        check("select * from \"O|", &["\"Odd Name\"", "orders"]);
        check("select * from orders o, l|", &["lineitem"]);
        check("insert into l|", &["lineitem"]);
        check("select 1; describe o|", &["\"Odd Name\"", "orders"]);
    }

    #[test]
    fn columns() {
        check("select | from orders", &["o_date", "o_id"]);
        check("select o_| from orders, lineitem", &["o_date", "o_id"]);
        check("select x.| from orders x", &["o_date", "o_id"]);
        check("select x.l| from orders o join lineitem as x", &["l_id", "l_tax"]);
        check("select orders.o_d|", &["o_date"]);
        check("select * from orders where o_i|", &["o_id"]);
        check("select * from orders; select l_|", &["l_id", "l_tax"]);
        check("select o_| from lineitem", &[]);
        check("select * from \"Odd Name\" n where n.|", &["\"Odd\""]);
    }

    #[test]
    fn dot_commands() {
        check(".ta|", &[".tables"]);
        check(".mode js|", &["json", "jsonlines"]);
        check(".timer o|", &["off", "on"]);
        check(".schema o|", &["Odd Name", "orders"]);
        check(".quit |", &[]);
    }

    #[test]
    fn files_within_quotes() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().display().to_string();
        fs::write(directory.path().join("a.csv"), "").unwrap();
        fs::create_dir(directory.path().join("ab")).unwrap();
        let (csv, folder) = (format!("{path}/a.csv"), format!("{path}/ab/"));
        check(&format!("select * from '{path}/a|"), &[&csv, &folder]);
        check(&format!("select * from '{path}/a|' x"), &[&csv, &folder]);
        check(&format!(".read {path}/a.|"), &[&csv]);
        check("select 'x'|", &[]);
    }
}
