//! Where the line editor keeps what was typed, for the next session.

use std::env;
use std::fs;
use std::path::PathBuf;

use reedline::FileBackedHistory;

/// Statements that are kept.
pub const ENTRIES: usize = 10_000;

/// The history of earlier sessions.
///
/// # Errors
/// In words, why it cannot be kept.
pub fn open() -> Result<FileBackedHistory, String> {
    let path = path().ok_or("statements are not kept: neither XDG_STATE_HOME nor HOME is set")?;
    let failed = |error: &dyn std::fmt::Display| {
        format!("statements are not kept in {}: {error}", path.display())
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    }
    FileBackedHistory::with_file(ENTRIES, path.clone()).map_err(|error| failed(&error))
}

/// `weft/history` in the directory for state that the XDG specification names.
fn path() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("weft").join("history"))
}
