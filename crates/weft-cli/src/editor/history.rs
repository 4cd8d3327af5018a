//! Where the line editor keeps what was typed, for the next session.

use std::env;
use std::fs;
use std::path::PathBuf;

use reedline::{
    FileBackedHistory, History, HistoryItem, HistoryItemId, HistorySessionId,
    Result as EditorResult, SearchQuery,
};

/// Statements that are kept.
pub const ENTRIES: usize = 10_000;

/// The history of earlier sessions.
///
/// # Errors
/// In words, why it cannot be kept.
pub fn open() -> Result<Discreet, String> {
    let path = path().ok_or("statements are not kept: neither XDG_STATE_HOME nor HOME is set")?;
    let failed = |error: &dyn std::fmt::Display| {
        format!("statements are not kept in {}: {error}", path.display())
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    }
    FileBackedHistory::with_file(ENTRIES, path.clone())
        .map(Discreet)
        .map_err(|error| failed(&error))
}

/// A history that does not keep statements with secrets.
pub struct Discreet(pub FileBackedHistory);

/// True of statements that may have credentials in them.
fn has_secret(text: &str) -> bool {
    let words = || text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let has = |wanted: &str| words().any(|word| word.eq_ignore_ascii_case(wanted));
    has("secret") && (has("create") || has("key_id") || has("type"))
}

impl History for Discreet {
    fn save(&mut self, item: HistoryItem) -> EditorResult<HistoryItem> {
        if has_secret(&item.command_line) {
            return Ok(item);
        }
        self.0.save(item)
    }

    fn load(&self, id: HistoryItemId) -> EditorResult<HistoryItem> {
        self.0.load(id)
    }

    fn count(&self, query: SearchQuery) -> EditorResult<i64> {
        self.0.count(query)
    }

    fn search(&self, query: SearchQuery) -> EditorResult<Vec<HistoryItem>> {
        self.0.search(query)
    }

    fn update(
        &mut self,
        id: HistoryItemId,
        updater: &dyn Fn(HistoryItem) -> HistoryItem,
    ) -> EditorResult<()> {
        self.0.update(id, updater)
    }

    fn clear(&mut self) -> EditorResult<()> {
        self.0.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> EditorResult<()> {
        self.0.delete(id)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.0.session()
    }
}

/// `weft/history` in the directory for state that the XDG specification names.
fn path() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("weft").join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_with_secrets_are_not_kept() {
        let mut history = Discreet(FileBackedHistory::new(ENTRIES).unwrap());
        for text in
            ["SELECT 1", "CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET 'hidden')", "DROP SECRET s"]
        {
            history.save(HistoryItem::from_command_line(text)).unwrap();
        }
        assert_eq!(history.count_all().unwrap(), 2);
    }
}
