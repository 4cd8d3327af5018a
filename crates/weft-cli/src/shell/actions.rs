//! Dot commands about the shell's input and output and the world around it.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::{Flow, Shell, commands};
use crate::error::ShellError;

/// `.cd`
pub fn cd(_: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let path = Path::new(&words[0]);
    env::set_current_dir(path).map_err(|source| ShellError::File {
        action: "change to",
        path: path.to_owned(),
        source,
    })?;
    Ok(Flow::Continue)
}

/// `.help`
pub fn help(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    if let Some(name) = words.first() {
        let command = commands::find(name.trim_start_matches('.'))?;
        writeln!(shell.target, ".{} {}\n  {}", command.name, command.usage, command.summary)?;
        return Ok(Flow::Continue);
    }
    let title = |command: &commands::Command| format!(".{} {}", command.name, command.usage);
    for command in commands::all() {
        writeln!(shell.target, "{:<29} {}", title(command), command.summary)?;
    }
    writeln!(
        shell.target,
        "\nStatements end with a semicolon and may span lines. Tab completes, Up recalls,\n\
         Ctrl-C stops a statement, Ctrl-D leaves. Files are queried by name:\n\
         SELECT * FROM 'file.parquet';"
    )?;
    Ok(Flow::Continue)
}

/// `.once`
pub fn once(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.target.redirect(&words[0], true)?;
    Ok(Flow::Continue)
}

/// `.output`
pub fn output(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    match words.first().map(String::as_str) {
        None | Some("stdout") => shell.target.restore()?,
        Some(place) => shell.target.redirect(place, false)?,
    }
    Ok(Flow::Continue)
}

/// `.print`
pub fn print(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    writeln!(shell.target, "{}", words.join(" "))?;
    Ok(Flow::Continue)
}

/// `.quit`
pub fn quit(_: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let wrong = |word| ShellError::Command(format!("an exit code is 0 to 255, not '{word}'"));
    let code = words.first().map(|word| word.parse::<u8>().map_err(|_| wrong(word)));
    Ok(Flow::Quit(code.transpose()?))
}

/// `.read`
pub fn read(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.run_file(Path::new(&words[0]))
}

/// `.shell`
pub fn shell(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.target.flush()?;
    let line = &words[0];
    let status = Command::new("sh")
        .arg("-c")
        .arg(line)
        .status()
        .map_err(|source| ShellError::File { action: "run", path: "sh".into(), source })?;
    // Ctrl-C went to the command as well.
    shell.interrupts.take();
    match status.code() {
        Some(0) => Ok(Flow::Continue),
        _ => Err(ShellError::Command(format!("'{line}' ended with {status}"))),
    }
}

/// `.version`
pub fn version(shell: &mut Shell, _: &[String]) -> Result<Flow, ShellError> {
    writeln!(shell.target, "Weft {}", env!("CARGO_PKG_VERSION"))?;
    Ok(Flow::Continue)
}
