//! The command line of `weft`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::Mode;

/// A SQL database for data larger than memory on fast SSDs
///
/// Without -c, -f and input on standard input, an interactive shell; .help there tells what it knows.
#[derive(Debug, Parser)]
#[command(name = "weft", version, args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// What to do instead of running the shell.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to run the shell.
    #[command(flatten)]
    pub shell: ShellArgs,
}

/// What `weft` does besides SQL.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a database to PostgreSQL's clients
    Serve(ServeArgs),
    /// What the binary `weft-bench` does: an error that says so, and no database of this name.
    #[command(hide = true, disable_help_flag = true)]
    Bench {
        /// The words behind `bench`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

/// The options of `weft serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// The database: a directory, made if there is none; without it, a temporary database
    pub directory: Option<PathBuf>,
    /// The address and port to listen on; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5432")]
    pub listen: SocketAddr,
    /// The address and port of Arrow Flight SQL, which is served there too
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub flight: Option<SocketAddr>,
    /// Clients at a time, at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub connections: usize,
    /// A certificate in PEM, with the certificates that vouch for it: connections may be encrypted then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the certificate in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Never change the database
    #[arg(short, long, visible_alias = "readonly")]
    pub read_only: bool,
    /// Memory that the database may use, such as 4GiB or 50%
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Worker threads
    #[arg(short, long, value_name = "N")]
    pub threads: Option<String>,
    /// Any other setting; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
}

impl ServeArgs {
    /// The settings that the database is opened with, in the order in which they apply.
    pub fn all_settings(&self) -> Vec<(String, String)> {
        let named = [("memory_limit", &self.memory_limit), ("threads", &self.threads)];
        let named = named.into_iter().filter_map(|(name, value)| {
            value.as_ref().map(|value| (name.to_owned(), value.clone()))
        });
        named.chain(self.settings.iter().cloned()).collect()
    }
}

/// The options of the shell.
#[derive(Clone, Debug, clap::Args)]
pub struct ShellArgs {
    /// The database: a directory, made if there is none; without it, a temporary database
    pub directory: Option<PathBuf>,
    /// Run SQL or a dot command and exit; may be repeated
    #[arg(short, long = "command", value_name = "SQL", action = ArgAction::Append)]
    pub commands: Vec<String>,
    /// Run the script in FILE and exit; may be repeated, - is standard input
    #[arg(short, long = "file", value_name = "FILE", action = ArgAction::Append)]
    pub files: Vec<PathBuf>,
    /// Run the script in FILE first, instead of ~/.weftrc
    #[arg(long, value_name = "FILE", conflicts_with = "no_init")]
    pub init: Option<PathBuf>,
    /// Do not run ~/.weftrc first
    #[arg(long)]
    pub no_init: bool,
    /// Never change the database
    #[arg(short, long, visible_alias = "readonly")]
    pub read_only: bool,
    /// Spread a new database over the directory or device PATH too; may be repeated
    #[arg(long = "device", value_name = "PATH", requires = "directory")]
    pub devices: Vec<PathBuf>,
    /// How results are written: table, ascii, csv, json, jsonlines, markdown, line, list or tabs
    #[arg(short, long, default_value_t = Mode::Table)]
    pub mode: Mode,
    /// Leave out the line of column names
    #[arg(long)]
    pub no_header: bool,
    /// What to print for NULL
    #[arg(long, value_name = "TEXT")]
    pub null_value: Option<String>,
    /// Memory that the database may use, such as 4GiB or 50%
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Worker threads
    #[arg(short, long, value_name = "N")]
    pub threads: Option<String>,
    /// How devices are read: auto, uring, posix or blocking
    #[arg(long, value_name = "DRIVER")]
    pub io_driver: Option<String>,
    /// Reads that a worker keeps in flight
    #[arg(long, value_name = "N")]
    pub io_depth: Option<String>,
    /// Any other setting; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Whether a script stops at its first error
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = switch)]
    #[arg(action = ArgAction::Set)]
    pub bail: bool,
    /// Print each statement before it runs
    #[arg(long)]
    pub echo: bool,
    /// What -c and -f named, in the order of the command line.
    #[arg(skip)]
    pub jobs: Vec<Job>,
}

/// Something to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// SQL from the command line.
    Command(String),
    /// A script.
    File(PathBuf),
}

impl Cli {
    /// The command line of this process; ends it with a message and exit code 2 if it is wrong.
    pub fn from_command_line() -> Cli {
        Cli::from_words(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn from_words(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut matches = Cli::command().try_get_matches_from(translated(words))?;
        let indices = |id: &str| matches.indices_of(id).into_iter().flatten().collect::<Vec<_>>();
        let (commands, files) = (indices("commands"), indices("files"));
        let mut cli = Cli::from_arg_matches_mut(&mut matches)?;
        let shell = &mut cli.shell;
        let mut jobs: Vec<(usize, Job)> = Vec::new();
        jobs.extend(commands.into_iter().zip(shell.commands.iter().cloned().map(Job::Command)));
        jobs.extend(files.into_iter().zip(shell.files.iter().cloned().map(Job::File)));
        jobs.sort_by_key(|(index, _)| *index);
        shell.jobs = jobs.into_iter().map(|(_, job)| job).collect();
        Ok(cli)
    }
}

impl ShellArgs {
    /// The settings that the database is opened with, in the order in which they apply.
    pub fn all_settings(&self) -> Vec<(String, String)> {
        let named = [
            ("memory_limit", &self.memory_limit),
            ("threads", &self.threads),
            ("io_driver", &self.io_driver),
            ("io_depth", &self.io_depth),
        ];
        let named = named.into_iter().filter_map(|(name, value)| {
            value.as_ref().map(|value| (name.to_owned(), value.clone()))
        });
        named.chain(self.settings.iter().cloned()).collect()
    }
}

/// The options of sqlite3 and duckdb that begin with one dash, and what they are here.
const SINGLE_DASH: [(&str, &[&str]); 20] = [
    ("-ascii", &["--mode", "ascii"]),
    ("-bail", &["--bail", "on"]),
    ("-cmd", &["--command"]),
    ("-csv", &["--mode", "csv"]),
    ("-echo", &["--echo"]),
    ("-header", &[]),
    ("-help", &["--help"]),
    ("-init", &["--init"]),
    ("-json", &["--mode", "json"]),
    ("-jsonlines", &["--mode", "jsonlines"]),
    ("-line", &["--mode", "line"]),
    ("-list", &["--mode", "list"]),
    ("-markdown", &["--mode", "markdown"]),
    ("-no-init", &["--no-init"]),
    ("-noheader", &["--no-header"]),
    ("-nullvalue", &["--null-value"]),
    ("-readonly", &["--read-only"]),
    ("-table", &["--mode", "table"]),
    ("-tabs", &["--mode", "tabs"]),
    ("-version", &["--version"]),
];

/// The words of a command line, with two dashes where others have one.
fn translated(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut found = Vec::new();
    let mut are_options = true;
    for word in words {
        are_options &= word != "--";
        let known = SINGLE_DASH.iter().find(|(old, _)| are_options && word == *old);
        match known {
            Some((_, new)) => found.extend(new.iter().map(OsString::from)),
            None => found.push(word),
        }
    }
    found
}

/// `NAME=VALUE`
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// `on` or `off`
fn switch(text: &str) -> Result<bool, String> {
    parse_switch(text).ok_or_else(|| "write on or off".to_owned())
}

/// What `on`, `off` and other words for them mean.
pub fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => Some(true),
        "off" | "no" | "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::from_words(line.split(' ').map(Into::into))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn jobs_keep_the_order_of_the_command_line() {
        let cli = parse("weft -c a -f b d -c c").unwrap();
        let expected = [Job::Command("a".into()), Job::File("b".into()), Job::Command("c".into())];
        assert_eq!(cli.shell.jobs, expected);
        assert_eq!(cli.shell.directory, Some("d".into()));
    }

    #[test]
    fn bench_is_an_error_and_dot_slash_bench_a_directory() {
        for line in ["weft bench", "weft bench tpch --scale 1", "weft bench --help"] {
            let command = parse(line).unwrap().command;
            assert!(matches!(command, Some(Command::Bench { .. })), "{line}: {command:?}");
        }
        let cli = parse("weft ./bench").unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.shell.directory, Some("./bench".into()));
        assert!(parse("weft help").unwrap().command.is_none());
    }

    #[test]
    fn one_dash_does_where_others_have_one() {
        assert_eq!(parse("weft -- -json").unwrap().shell.directory, Some("-json".into()));
        let shell = parse("weft -csv -readonly -init x.sql d -nullvalue -").unwrap().shell;
        assert_eq!(
            (shell.mode, shell.read_only, shell.init),
            (Mode::Csv, true, Some("x.sql".into()))
        );
        assert_eq!(shell.null_value.as_deref(), Some("-"));
        assert!(parse("weft --init x --no-init").is_err());
    }

    #[test]
    fn settings_apply_in_order() {
        let cli = parse("weft --set a=1 --threads 2 --set b==x").unwrap();
        let expected = [("threads", "2"), ("a", "1"), ("b", "=x")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(cli.shell.all_settings(), expected);
        for line in ["weft --set a", "weft --set =1", "weft --device x", "weft --bail maybe"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
