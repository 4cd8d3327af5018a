//! The line editor: statements of several lines, history, completion and colours, with `reedline`.
//! Terminals that cannot do this, and pipes, are read line by line (`plain.rs`).

mod completer;
mod completion;
mod highlighter;
mod history;
pub mod plain;
mod prompt;
pub mod seat;
mod validator;

use std::sync::Arc;

use reedline::{
    ColumnarMenu, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder, Reedline,
    ReedlineEvent, ReedlineMenu, Signal, default_emacs_keybindings,
};
use weft::TransactionStatus;

use crate::error::ShellError;
use crate::interrupt::Interrupts;

pub use completer::{SharedCatalog, Source};
pub use completion::Names;
pub use validator::bare_command;

const MENU: &str = "completion";

/// What came from the keyboard or from a pipe.
pub enum Input {
    /// Text: whole statements from the line editor, whole lines from elsewhere.
    Text(String),
    /// Ctrl-C: what was typed is to be forgotten.
    Interrupt,
    /// Ctrl-D, or the end of a pipe.
    End,
}

/// The line editor.
struct LineEditor {
    reedline: Reedline,
}

impl LineEditor {
    /// An editor that completes names from `catalog`; the second value says why there is no history
    /// from earlier sessions, if there is none.
    fn new(
        catalog: Arc<SharedCatalog>,
        interrupts: &Interrupts,
        colors: bool,
    ) -> (LineEditor, Option<String>) {
        let menu = ColumnarMenu::default().with_name(MENU).with_marker("");
        let mut reedline = Reedline::create()
            .with_completer(Box::new(completer::SqlCompleter::new(Arc::clone(&catalog))))
            .with_highlighter(Box::new(highlighter::SqlHighlighter::new(catalog, colors)))
            .with_validator(Box::new(validator::StatementValidator))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_edit_mode(Box::new(Emacs::new(keys())))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_ansi_colors(colors)
            .with_break_signal(interrupts.editor_wake())
            .use_bracketed_paste(true);
        let complaint = match history::open() {
            Ok(history) => {
                reedline = reedline.with_history(Box::new(history));
                None
            }
            Err(complaint) => {
                if let Ok(history) = FileBackedHistory::new(history::ENTRIES) {
                    let history = history::Discreet(history);
                    reedline = reedline.with_history(Box::new(history));
                }
                Some(complaint)
            }
        };
        (LineEditor { reedline }, complaint)
    }

    /// What is typed next: complete statements or a dot command, in a session with this status.
    ///
    /// # Errors
    /// If the terminal does not answer.
    fn read(&mut self, status: TransactionStatus) -> Result<Input, ShellError> {
        let signal = self.reedline.read_line(&prompt::WeftPrompt(status));
        // Kept now, in case the process is killed; where that fails, nothing worse happens than that.
        drop(self.reedline.sync_history());
        match signal.map_err(|error| ShellError::Input(std::io::Error::other(error)))? {
            Signal::Success(mut text) => {
                text.push('\n');
                Ok(Input::Text(text))
            }
            Signal::CtrlC => Ok(Input::Interrupt),
            _ => Ok(Input::End),
        }
    }
}

fn keys() -> reedline::Keybindings {
    let mut keys = default_emacs_keybindings();
    keys.add_binding(
        KeyModifiers::NONE,
        KeyCode::Tab,
        ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(MENU.to_owned()),
            ReedlineEvent::MenuNext,
        ]),
    );
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    keys
}
