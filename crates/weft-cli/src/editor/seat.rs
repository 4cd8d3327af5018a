//! Runs the line editor on a thread of its own. On a terminal that has gone away the editor never
//! returns (crossterm reads its end again and again), but the process has to end.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use weft::TransactionStatus;

use super::{Input, LineEditor, SharedCatalog};
use crate::error::ShellError;
use crate::interrupt::Interrupts;

/// How long the editor may take to leave the terminal as it was, when the process is to end.
const LEAVING: Duration = Duration::from_millis(500);

enum Event {
    /// Why there is no history from earlier sessions.
    Complaint(String),
    Read(Result<Input, ShellError>),
    Signal,
}

/// The line editor on its thread.
pub struct EditorSeat {
    /// Asks for what is typed next, in a session with this status.
    requests: Sender<TransactionStatus>,
    events: Receiver<Event>,
    interrupts: Interrupts,
}

impl EditorSeat {
    /// Starts the editor, which completes names from `catalog`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(
        catalog: Arc<SharedCatalog>,
        interrupts: &Interrupts,
        colors: bool,
    ) -> Result<EditorSeat, ShellError> {
        let (requests, requested) = mpsc::channel();
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        // If nobody listens any more, the process is ending anyway.
        interrupts.listen(move || drop(signals.send(Event::Signal)));
        let heard = interrupts.clone();
        let edit = move || {
            let (mut editor, complaint) = LineEditor::new(catalog, &heard, colors);
            let mut listening =
                complaint.is_none_or(|words| sender.send(Event::Complaint(words)).is_ok());
            while listening && let Ok(status) = requested.recv() {
                listening = sender.send(Event::Read(editor.read(status))).is_ok();
            }
        };
        thread::Builder::new()
            .name("weft-editor".to_owned())
            .spawn(edit)
            .map_err(ShellError::Input)?;
        Ok(EditorSeat { requests, events, interrupts: interrupts.clone() })
    }

    /// What is typed next, in a session with this status; `say` tells what is not as it should be.
    ///
    /// # Errors
    /// If the terminal does not answer.
    pub fn read(
        &mut self,
        status: TransactionStatus,
        say: impl Fn(&str),
    ) -> Result<Input, ShellError> {
        if self.requests.send(status).is_err() {
            return Ok(Input::End);
        }
        loop {
            let ending = self.interrupts.exit_code().is_some();
            let event = if ending {
                self.events.recv_timeout(LEAVING)
            } else {
                self.events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match event {
                Ok(Event::Read(read)) => return read,
                Ok(Event::Complaint(words)) => say(&words),
                Ok(Event::Signal) => {}
                Err(_) => return Ok(Input::End),
            }
        }
    }
}
