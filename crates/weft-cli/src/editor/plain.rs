//! Standard input line by line: for scripts from a pipe, and for terminals that cannot do more. A
//! thread reads, so that signals are heard while the shell waits.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use weft::TransactionStatus;

use super::Input;
use super::prompt::{CONTINUATION, prompt};
use crate::error::ShellError;
use crate::interrupt::Interrupts;
use crate::sql::encoding::decoded;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 16;
/// Chunks that are read ahead.
const AHEAD: usize = 4;

enum Event {
    Text(String),
    Failed(io::Error),
    Signal,
}

/// Standard input.
pub struct PlainInput {
    events: Receiver<Event>,
    interrupts: Interrupts,
    /// Whether somebody sits there to be prompted.
    prompts: bool,
}

impl PlainInput {
    /// Starts to read standard input.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(interrupts: &Interrupts, prompts: bool) -> Result<PlainInput, ShellError> {
        let (sender, events) = mpsc::sync_channel(AHEAD);
        let signals = sender.clone();
        // A full channel means that the shell is not waiting and will look at the flags by itself.
        interrupts.listen(move || drop(signals.try_send(Event::Signal)));
        thread::Builder::new()
            .name("weft-input".to_owned())
            .spawn(move || read_all(&sender, prompts))
            .map_err(ShellError::Input)?;
        Ok(PlainInput { events, interrupts: interrupts.clone(), prompts })
    }

    /// The next lines; `within` a statement another prompt is shown, else that of the session's status.
    ///
    /// # Errors
    /// If standard input cannot be read.
    pub fn read(&mut self, within: bool, status: TransactionStatus) -> Result<Input, ShellError> {
        if self.prompts {
            let mut out = io::stdout();
            out.write_all(if within { CONTINUATION } else { prompt(status) }.as_bytes())?;
            out.flush()?;
        }
        loop {
            match self.events.recv() {
                Ok(Event::Text(text)) if text.is_empty() => return Ok(Input::End),
                Ok(Event::Text(text)) => return Ok(Input::Text(text)),
                Ok(Event::Failed(error)) => return Err(ShellError::Input(error)),
                Ok(Event::Signal) if self.interrupts.exit_code().is_some() => {
                    return Ok(Input::End);
                }
                Ok(Event::Signal) if self.interrupts.is_interrupted() => {
                    return Ok(Input::Interrupt);
                }
                Ok(Event::Signal) => {}
                Err(mpsc::RecvError) => return Ok(Input::End),
            }
        }
    }
}

/// Sends whole lines, then an empty text at the end. A terminal ends by going away, too.
fn read_all(sender: &SyncSender<Event>, from_terminal: bool) {
    let gone = Some(rustix::io::Errno::IO.raw_os_error());
    let mut stdin = io::stdin().lock();
    let mut pending: Vec<u8> = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let event = match stdin.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if from_terminal && error.raw_os_error() == gone => text(Vec::new()),
            Err(error) => Event::Failed(error),
            Ok(0) => text(std::mem::take(&mut pending)),
            Ok(bytes) => {
                let first_new = pending.len();
                pending.extend_from_slice(&chunk[..bytes]);
                let newline = pending[first_new..].iter().rposition(|&byte| byte == b'\n');
                let Some(newline) = newline else { continue };
                let rest = pending.split_off(first_new + newline + 1);
                text(std::mem::replace(&mut pending, rest))
            }
        };
        let last = match &event {
            Event::Text(text) => text.is_empty(),
            _ => true,
        };
        if sender.send(event).is_err() || last {
            return;
        }
    }
}

fn text(bytes: Vec<u8>) -> Event {
    Event::Text(decoded(bytes))
}
