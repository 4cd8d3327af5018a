//! Joins completion to the line editor, and shares the catalog of the open database with it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use reedline::{Completer, CompletionResult, Span, Suggestion};

use super::completion::{Names, complete};

/// Tells the names that a database knows at the moment.
pub type Source = Box<dyn Fn() -> Names + Send>;

/// The catalog of the database that is open now, for the line editor.
#[derive(Default)]
pub struct SharedCatalog {
    current: Mutex<Option<Current>>,
}

struct Current {
    names: Source,
    /// In lower case.
    keywords: HashSet<String>,
    /// In lower case.
    functions: HashSet<String>,
}

impl SharedCatalog {
    /// Completes from what `source` tells from now on.
    pub fn set(&self, source: Source) {
        let lower = |names: &[String]| names.iter().map(|name| name.to_lowercase()).collect();
        let names = source();
        let (keywords, functions) = (lower(&names.keywords), lower(&names.functions));
        self.with(|current| *current = Some(Current { names: source, keywords, functions }));
    }

    /// Whether `word` is a keyword.
    pub fn is_keyword(&self, word: &str) -> bool {
        self.with(|current| {
            current.as_ref().is_some_and(|now| now.keywords.contains(&word.to_lowercase()))
        })
    }

    /// Whether `word` is a function.
    pub fn is_function(&self, word: &str) -> bool {
        self.with(|current| {
            current.as_ref().is_some_and(|now| now.functions.contains(&word.to_lowercase()))
        })
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut Option<Current>) -> R) -> R {
        use_it(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Completes SQL and dot commands.
pub struct SqlCompleter {
    catalog: Arc<SharedCatalog>,
}

impl SqlCompleter {
    /// With names from `catalog`.
    pub fn new(catalog: Arc<SharedCatalog>) -> SqlCompleter {
        SqlCompleter { catalog }
    }
}

impl Completer for SqlCompleter {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let found = self
            .catalog
            .with(|current| current.as_ref().map(|now| complete(line, position, &(now.names)())));
        let Some((start, values)) = found else { return CompletionResult::fresh(Vec::new()) };
        let suggestions = values
            .into_iter()
            .map(|value| Suggestion {
                value,
                span: Span::new(start, position),
                ..Suggestion::default()
            })
            .collect::<Vec<_>>();
        CompletionResult::fresh(suggestions)
    }
}
