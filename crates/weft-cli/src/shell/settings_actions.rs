//! Dot commands that change how the shell behaves.

use std::io::Write;

use super::words::nearest;
use super::{Flow, Shell};
use crate::args::parse_switch;
use crate::error::ShellError;
use crate::output::Mode;

/// The switch that a command's only word says.
fn switch(words: &[String]) -> Result<bool, ShellError> {
    let word = words.first().map_or("", String::as_str);
    parse_switch(word).ok_or_else(|| ShellError::Command(format!("write on or off, not '{word}'")))
}

/// The number that a word says.
fn number(word: &str) -> Result<usize, ShellError> {
    let digits = word.trim_start_matches('-').replace('_', "");
    let parsed = digits.parse();
    parsed.map_err(|_| ShellError::Command(format!("write a number, not '{word}'")))
}

/// `.bail`
pub fn bail(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.bail = switch(words)?;
    Ok(Flow::Continue)
}

/// `.changes`
pub fn changes(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.changes = switch(words)?;
    Ok(Flow::Continue)
}

/// `.echo`
pub fn echo(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.echo = switch(words)?;
    Ok(Flow::Continue)
}

/// `.headers`
pub fn headers(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.style.headers = switch(words)?;
    Ok(Flow::Continue)
}

/// `.progress`
pub fn progress(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.progress = switch(words)?;
    Ok(Flow::Continue)
}

/// `.timer`
pub fn timer(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.timer = switch(words)?;
    Ok(Flow::Continue)
}

/// `.maxrows`
pub fn max_rows(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.style.max_rows = number(&words[0])?;
    Ok(Flow::Continue)
}

/// `.maxwidth`
pub fn max_width(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.max_width = Some(number(&words[0])?).filter(|width| *width > 0);
    Ok(Flow::Continue)
}

/// `.width`
pub fn width(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let widths = words.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
    shell.settings.style.column_widths = widths;
    Ok(Flow::Continue)
}

/// `.nullvalue`
pub fn null_value(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    shell.settings.style.null = words.first().cloned();
    Ok(Flow::Continue)
}

/// `.mode`
pub fn mode(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let Some(name) = words.first() else {
        let now = shell.settings.style.mode.to_string();
        for (name, what) in Mode::all() {
            let mark = if name == now { '*' } else { ' ' };
            writeln!(shell.target, "{mark} {name:<9}  {what}")?;
        }
        return Ok(Flow::Continue);
    };
    let unknown = || match nearest(name, Mode::all().map(|(name, _)| name)) {
        Some(near) => format!("there is no mode {name}; did you mean {near}?"),
        None => format!("there is no mode {name}; .mode lists all"),
    };
    let named = Mode::named(name).ok_or_else(|| ShellError::Command(unknown()))?;
    shell.settings.style.mode = named;
    Ok(Flow::Continue)
}

/// `.show`
pub fn show(shell: &mut Shell, _: &[String]) -> Result<Flow, ShellError> {
    let settings = &shell.settings;
    let style = &settings.style;
    let switch = |on| if on { "on" } else { "off" }.to_owned();
    let widths: Vec<_> = style.column_widths.iter().map(usize::to_string).collect();
    let lines = [
        ("bail", switch(settings.bail)),
        ("changes", switch(settings.changes)),
        ("echo", switch(settings.echo)),
        ("headers", switch(style.headers)),
        ("maxrows", style.max_rows.to_string()),
        ("maxwidth", settings.max_width.unwrap_or(0).to_string()),
        ("mode", style.mode.to_string()),
        (
            "nullvalue",
            style.null.as_ref().map_or("as the mode has it".to_owned(), |n| format!("'{n}'")),
        ),
        ("output", shell.target.name()),
        ("progress", switch(settings.progress)),
        ("timer", switch(settings.timer)),
        ("width", widths.join(" ")),
    ];
    for (name, value) in lines {
        writeln!(shell.target, "{}", format!("{name:>9}: {value}").trim_end())?;
    }
    Ok(Flow::Continue)
}
