//! The dot commands: their names, what they take, and which action each is.

use super::words::{nearest, words};
use super::{Flow, Shell, actions, catalog_actions, serve_actions, settings_actions};
use crate::error::ShellError;

/// What completion offers after a command's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    None,
    /// `on` or `off`.
    Switch,
    /// An output mode.
    Mode,
    /// A table.
    Table,
    /// A file.
    File,
    /// A dot command.
    Command,
}

/// What a command does; its words come without its name.
type Action = fn(&mut Shell, &[String]) -> Result<Flow, ShellError>;

/// A dot command.
pub struct Command {
    /// Its name without the dot.
    pub name: &'static str,
    /// Its arguments in words.
    pub usage: &'static str,
    /// What it does, in words.
    pub summary: &'static str,
    argument: Argument,
    /// Fewest words after the name.
    least: usize,
    /// Most words after the name.
    most: usize,
    action: Action,
}

const ANY: usize = usize::MAX;

/// Builds a table of commands from lines of name, arguments, their number, what completes them,
/// action, and summary.
macro_rules! commands {
    ($(
        $name:literal $usage:literal $least:literal..=$most:tt $argument:ident $action:path,
        $summary:literal;
    )*) => {
        &[$(Command {
            name: $name,
            usage: $usage,
            summary: $summary,
            argument: Argument::$argument,
            least: $least,
            most: $most,
            action: $action,
        }),*]
    };
}

static COMMANDS: &[Command] = commands! {
    "bail" "on|off" 1..=1 Switch settings_actions::bail, "stop a script at its first error";
    "cd" "DIR" 1..=1 File actions::cd, "change the working directory";
    "changes" "on|off" 1..=1 Switch settings_actions::changes, "say what commands have done";
    "databases" "" 0..=0 None catalog_actions::databases, "show which database is open";
    "echo" "on|off" 1..=1 Switch settings_actions::echo, "print each statement before it runs";
    "exit" "[CODE]" 0..=1 None actions::quit, "leave, as .quit";
    "headers" "on|off" 1..=1 Switch settings_actions::headers, "print column names";
    "help" "[COMMAND]" 0..=1 Command actions::help, "explain all commands, or one";
    "import" "[--FORMAT] FILE TABLE" 2..=3 File catalog_actions::import,
        "load a file, into a new table or an old one";
    "indexes" "[TABLE]" 0..=1 Table catalog_actions::indexes, "list indexes";
    "maxrows" "N" 1..=1 None settings_actions::max_rows, "most rows that a table shows; 0: all";
    "maxwidth" "N" 1..=1 None settings_actions::max_width,
        "most characters in a line; 0: as the terminal has";
    "mode" "[MODE]" 0..=1 Mode settings_actions::mode, "choose how results are written, or list modes";
    "nullvalue" "TEXT" 1..=1 None settings_actions::null_value, "what to print for NULL";
    "once" "FILE or |COMMAND" 1..=1 File actions::once,
        "write the next result to a file or a command";
    "open" "[--readonly] [DIR]" 0..=2 File catalog_actions::open,
        "open another database, or a temporary one";
    "output" "[FILE or |COMMAND]" 0..=1 File actions::output,
        "write results there, or no longer";
    "print" "TEXT …" 0..=ANY None actions::print, "print words";
    "progress" "on|off" 1..=1 Switch settings_actions::progress,
        "show how far a long statement is";
    "quit" "[CODE]" 0..=1 None actions::quit, "leave, with an exit code";
    "read" "FILE" 1..=1 File actions::read, "run a script";
    "schema" "[PATTERN]" 0..=1 Table catalog_actions::schema,
        "show tables and views as CREATE statements";
    "serve" "[ADDRESS] [--flight ADDRESS] | stop" 0..=3 None serve_actions::serve,
        "serve network clients meanwhile";
    "settings" "[PATTERN]" 0..=1 None catalog_actions::settings, "show the database's settings";
    "shell" "COMMAND …" 1..=1 File actions::shell, "run a command of the operating system";
    "show" "" 0..=0 None settings_actions::show, "show the shell's own settings";
    "stats" "" 0..=0 None catalog_actions::stats,
        "show what was read, written and kept in memory";
    "system" "COMMAND …" 1..=1 File actions::shell, "as .shell";
    "tables" "[PATTERN]" 0..=1 Table catalog_actions::tables,
        "list tables and views; % and _ as in LIKE";
    "timer" "on|off" 1..=1 Switch settings_actions::timer, "print time and bytes read";
    "version" "" 0..=0 None actions::version, "print the version";
    "width" "[N …]" 0..=ANY None settings_actions::width,
        "most characters of columns, from the left; 0: all";
};

/// What those who know other shells may look for.
const ADVICE: [(&str, &str); 9] = [
    ("backup", "copy the directory while no weft has it open"),
    ("clone", "copy the directory while no weft has it open"),
    ("columns", "write DESCRIBE table;"),
    ("describe", "write DESCRIBE table;"),
    ("dump", "write COPY table TO 'file.parquet'; .schema shows the CREATE statements"),
    ("eqp", "write EXPLAIN before the query"),
    ("explain", "write EXPLAIN or EXPLAIN ANALYZE before the query"),
    ("save", "open the database with weft DIRECTORY in the first place"),
    ("separator", "modes csv, list and tabs have separators of their own"),
];

/// The names of all commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// All commands.
pub fn all() -> &'static [Command] {
    COMMANDS
}

/// What completes the argument of the command called `name`.
pub fn argument(name: &str) -> Argument {
    find(name).map_or(Argument::None, |command| command.argument)
}

/// The command called `name`, which may be cut short as long as only one begins so.
///
/// # Errors
/// If there is none, with the nearest.
pub fn find(name: &str) -> Result<&'static Command, ShellError> {
    let name = name.to_lowercase();
    if let Some(command) = COMMANDS.iter().find(|command| command.name == name) {
        return Ok(command);
    }
    let begins = |command: &&Command| !name.is_empty() && command.name.starts_with(&name);
    let candidates: Vec<&Command> = COMMANDS.iter().filter(begins).collect();
    match candidates.as_slice() {
        [only] => Ok(only),
        [] => Err(ShellError::Command(unknown(&name))),
        several => {
            let named: Vec<_> = several.iter().map(|c| format!(".{}", c.name)).collect();
            Err(ShellError::Command(format!(".{name} could be {}", named.join(", "))))
        }
    }
}

fn unknown(name: &str) -> String {
    let there_is_none = format!("there is no command .{name}");
    if let Some((_, advice)) = ADVICE.iter().find(|(known, _)| *known == name) {
        return format!("{there_is_none}: {advice}");
    }
    match nearest(name, names()) {
        Some(near) => format!("{there_is_none}; did you mean .{near}?"),
        None => format!("{there_is_none}; .help lists all"),
    }
}

impl Command {
    /// The words after the name; what the operating system's shell is to run is one, with its quotes.
    fn arguments(&self, text: &str) -> Result<Vec<String>, ShellError> {
        let is_line = match self.name {
            "shell" | "system" => !text.is_empty(),
            "once" | "output" => text.starts_with('|'),
            _ => false,
        };
        match is_line {
            true => Ok(vec![text.to_owned()]),
            false => words(text).map_err(ShellError::Command),
        }
    }
}

impl Shell {
    /// Runs a line that begins with a dot.
    ///
    /// # Errors
    /// If there is no such command, its words are wrong, or it fails.
    pub(super) fn run_command(&mut self, line: &str) -> Result<Flow, ShellError> {
        let line = line.trim().trim_end_matches(';');
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let command = find(first.trim_start_matches('.'))?;
        let arguments = command.arguments(rest.trim())?;
        if !(command.least..=command.most).contains(&arguments.len()) {
            let words = format!("write .{} {}", command.name, command.usage);
            return Err(ShellError::Command(words.trim_end().to_owned()));
        }
        (command.action)(self, &arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_cut_short() {
        assert_eq!(find("tables").unwrap().name, "tables");
        assert_eq!(find("ta").unwrap().name, "tables");
        assert_eq!(find("Q").unwrap().name, "quit");
    }

    #[test]
    fn wrong_names_are_explained() {
        for (name, part) in [
            ("tabels", "did you mean .tables?"),
            ("s", ".schema, .serve, .settings, .shell"),
            ("xyzzy", ".help lists all"),
            ("dump", "COPY"),
            ("", "no command"),
        ] {
            let error = find(name).err().unwrap().to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn names_are_in_order() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
    }
}
