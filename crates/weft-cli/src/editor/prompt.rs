//! The prompts.

use std::borrow::Cow;

use reedline::{Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus};
use weft::TransactionStatus;

/// Before a statement's first line: a star says that it belongs to a transaction, an exclamation mark that this has failed.
pub fn prompt(status: TransactionStatus) -> &'static str {
    match status {
        TransactionStatus::Idle => "weft> ",
        TransactionStatus::InTransaction => "weft*> ",
        TransactionStatus::Failed => "weft!> ",
    }
}

/// Before its other lines.
pub const CONTINUATION: &str = " ...> ";

/// The prompts of the line editor.
pub struct WeftPrompt(pub TransactionStatus);

impl Prompt for WeftPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(prompt(self.0))
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(CONTINUATION)
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "failing ",
        };
        Cow::Owned(format!("({failing}search: {}) ", search.term))
    }
}
