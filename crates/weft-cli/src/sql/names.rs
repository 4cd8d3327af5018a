//! Names as SQL spells them.

/// `name` as SQL spells it: in quotes if it would be folded or cut otherwise.
pub fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    if !name.is_empty()
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
    {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}
