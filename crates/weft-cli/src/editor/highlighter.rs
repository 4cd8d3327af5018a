//! Colours of SQL while it is typed.

use std::sync::Arc;

use nu_ansi_term::{Color, Style};
use reedline::{Highlighter, StyledText};

use super::completer::SharedCatalog;
use crate::sql::lexer::{Token, TokenKind, tokens};

/// Colours keywords, functions, strings, numbers and comments.
pub struct SqlHighlighter {
    catalog: Arc<SharedCatalog>,
    colors: bool,
}

impl SqlHighlighter {
    /// With the keywords and functions of `catalog`; without colours nothing is marked.
    pub fn new(catalog: Arc<SharedCatalog>, colors: bool) -> SqlHighlighter {
        SqlHighlighter { catalog, colors }
    }

    fn style(&self, token: Token, text: &str, next: Option<char>) -> Style {
        match token.kind {
            TokenKind::String => Style::new().fg(Color::Green),
            TokenKind::Number => Style::new().fg(Color::Cyan),
            TokenKind::Comment => Style::new().fg(Color::DarkGray),
            TokenKind::Word if next == Some('(') && self.catalog.is_function(text) => {
                Style::new().fg(Color::Yellow)
            }
            TokenKind::Word if self.catalog.is_keyword(text) => Style::new().bold().fg(Color::Blue),
            _ => Style::new(),
        }
    }
}

impl Highlighter for SqlHighlighter {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        let mut styled = StyledText::new();
        if !self.colors {
            styled.push((Style::new(), line.to_owned()));
        } else if line.trim_start().starts_with('.') {
            styled.push((Style::new().fg(Color::Purple), line.to_owned()));
        } else {
            for token in tokens(line) {
                let text = token.text(line);
                let style = self.style(token, text, line[token.end..].chars().next());
                styled.push((style, text.to_owned()));
            }
        }
        styled
    }
}
