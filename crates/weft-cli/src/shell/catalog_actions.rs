//! Dot commands about the open database: what is in it, loading files, opening another one.

use std::io::Write;
use std::path::Path;

use super::open::{Open, OpenOptions};
use super::{Flow, Shell};
use crate::error::ShellError;
use crate::output::{text, units};
use weft::quoted;

/// `.databases`
pub fn databases(shell: &mut Shell, _: &[String]) -> Result<Flow, ShellError> {
    let read_only = if shell.open.read_only { " (read-only)" } else { "" };
    writeln!(shell.target, "main: {}{read_only}", shell.open.name())?;
    Ok(Flow::Continue)
}

/// `.indexes`
pub fn indexes(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let of = words.first().map_or(String::new(), |table| format!(" FROM {}", quoted(table)));
    for row in shell.texts(&format!("SHOW INDEXES{of}"))? {
        let statement = row.last().and_then(Option::as_deref).unwrap_or_default();
        writeln!(shell.target, "{statement};")?;
    }
    Ok(Flow::Continue)
}

/// `.open`
pub fn open(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let is_flag = |word: &&String| word.starts_with("--");
    let mut options =
        OpenOptions { read_only: false, devices: Vec::new(), ..shell.options.clone() };
    for flag in words.iter().filter(is_flag) {
        match flag.as_str() {
            "--readonly" | "--read-only" => options.read_only = true,
            _ => return Err(ShellError::Command(format!("there is no option {flag}"))),
        }
    }
    let mut paths = words.iter().filter(|word| !is_flag(word)).map(Path::new);
    let path = paths.next();
    if paths.next().is_some() {
        return Err(ShellError::Command("write one directory".to_owned()));
    }
    let now = shell.open.directory.clone();
    if let (Some(now), Some(path)) = (&now, path)
        && is_same(now, path)
    {
        return reopen(shell, path, &options);
    }
    let opened = Open::new(path, &options)?;
    shell.replace(opened);
    Ok(Flow::Continue)
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Opens the open database once more, which its own lock would forbid; if that fails, it stays open
/// as it was.
fn reopen(shell: &mut Shell, path: &Path, options: &OpenOptions) -> Result<Flow, ShellError> {
    let before = OpenOptions { read_only: shell.open.read_only, ..options.clone() };
    let aside = Open::new(None, &OpenOptions { read_only: false, ..options.clone() })?;
    shell.replace(aside);
    let opened = Open::new(path.into(), options);
    let (opened, failure) = match opened {
        Ok(opened) => (opened, None),
        Err(error) => (Open::new(path.into(), &before)?, Some(error)),
    };
    shell.replace(opened);
    failure.map_or(Ok(Flow::Continue), Err)
}

/// `.tables`
pub fn tables(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    for name in matching_tables(shell, words) {
        writeln!(shell.target, "{name}")?;
    }
    Ok(Flow::Continue)
}

fn matching_tables(shell: &Shell, words: &[String]) -> Vec<String> {
    let pattern = words.first().map(|pattern| pattern.to_lowercase());
    let mut names = shell.session().tables();
    names.retain(|name| pattern.as_ref().is_none_or(|p| like(&name.to_lowercase(), p)));
    names
}

/// `.schema`
pub fn schema(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    for name in matching_tables(shell, words) {
        for row in shell.texts(&format!("SHOW CREATE TABLE {}", quoted(&name)))? {
            let statement = row.last().and_then(Option::as_deref).unwrap_or_default();
            writeln!(shell.target, "{statement};")?;
        }
    }
    Ok(Flow::Continue)
}

impl Shell {
    /// The rows of a query of the shell's own, as text.
    fn texts(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, ShellError> {
        let mut rows = Vec::new();
        for batch in self.session().query(sql)?.collect()? {
            let columns = text::columns(&batch)?;
            for row in 0..batch.num_rows() {
                let values = columns.iter().map(|column| column.get(row));
                rows.push(values.collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(rows)
    }
}

/// `.settings`
pub fn settings(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let pattern = words.first().map(|pattern| pattern.to_lowercase());
    for setting in shell.session().settings() {
        let shown = match &pattern {
            Some(pattern) => like(&setting.name, pattern),
            None => !setting.name.contains('.'),
        };
        if shown {
            writeln!(shell.target, "{} = {}", setting.name, setting.value)?;
        }
    }
    Ok(Flow::Continue)
}

/// `.stats`
pub fn stats(shell: &mut Shell, _: &[String]) -> Result<Flow, ShellError> {
    let stats = shell.session().database().stats();
    let bytes = units::bytes;
    for (name, value) in [
        ("read", bytes(stats.bytes_read)),
        ("written", bytes(stats.bytes_written)),
        ("on disk", bytes(stats.bytes_on_disk)),
        ("spilled now", bytes(stats.spilled_bytes)),
        ("pages found in memory", units::grouped(stats.cache_hits)),
        ("pages read", units::grouped(stats.cache_misses)),
        ("reads in flight", format!("{:.3} s", stats.io_wait_ns as f64 / 1e9)),
        ("memory used", bytes(stats.memory_used)),
        ("memory used at most", bytes(stats.memory_peak)),
        ("memory limit", bytes(stats.memory_limit)),
    ] {
        writeln!(shell.target, "{name:>21}: {value}")?;
    }
    Ok(Flow::Continue)
}

/// `.import`
pub fn import(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let (format, file, table) = match words {
        [format, file, table] if format.starts_with("--") => (Some(&format[2..]), file, table),
        [file, table] if !file.starts_with("--") => (None, file, table),
        _ => return Err(ShellError::Command("write .import [--FORMAT] FILE TABLE".to_owned())),
    };
    let name = table_name(shell, table);
    let path = literal(file);
    let table = quoted(&name);
    let options = format.map(|format| format!(" (FORMAT {})", literal(format))).unwrap_or_default();
    if shell.session().tables().contains(&name) {
        shell.run_statement(&format!("COPY {table} FROM {path}{options}"))?;
    } else if format.is_none() {
        shell.run_statement(&format!("CREATE TABLE {table} AS SELECT * FROM {path}"))?;
    } else {
        let words = format!("there is no table {name}: a file of a named format needs one");
        return Err(ShellError::Command(words));
    }
    Ok(Flow::Continue)
}

/// The name of the table that `word` names: as it is, or folded as SQL does.
fn table_name(shell: &Shell, word: &str) -> String {
    let known = shell.session().tables();
    let unquoted = word.trim_matches('"');
    if unquoted != word || known.iter().any(|name| name == word) {
        unquoted.to_owned()
    } else {
        word.to_lowercase()
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Whether `name` is like `pattern`, where `%` stands for any text and `_` for any character.
fn like(name: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('%') => {
            let rest = rest.as_str();
            let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.any(|at| like(&name[at..], rest))
        }
        Some(wanted) => {
            let mut characters = name.chars();
            let first = characters.next();
            first.is_some_and(|c| wanted == '_' || wanted == c)
                && like(characters.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (name, pattern, expected) in [
            ("orders", "orders", true),
            ("orders", "order", false),
            ("orders", "o%", true),
            ("orders", "%de%", true),
            ("orders", "______", true),
            ("orders", "_____", false),
            ("größe", "gr__e", true),
            ("", "%", true),
        ] {
            assert_eq!(like(name, pattern), expected, "{name} like {pattern}");
        }
    }
}
