//! Scripts that are not UTF-8: what is no character becomes a mark, so that the other statements of the script run.

/// Stands for bytes that are no character; no text has it, as Unicode reserves it for uses such as this.
const MARK: char = '\u{FDD0}';

/// A script as text, with marks for what is no character.
pub fn decoded(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let mut text = String::with_capacity(error.as_bytes().len());
            for chunk in error.as_bytes().utf8_chunks() {
                text.push_str(chunk.valid());
                if !chunk.invalid().is_empty() {
                    text.push(MARK);
                }
            }
            text
        }
    }
}

/// What is wrong with a statement that has a mark, if it has one.
pub fn problem(sql: &str) -> Option<String> {
    let at = sql.find(MARK)?;
    let line = sql[..at].matches('\n').count() + 1;
    Some(format!(
        "line {line} of the statement has bytes that are not UTF-8: convert the script, for instance with iconv -f latin1 -t utf8"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_character_are_found() {
        let text = decoded(b"SELECT 1;\nSELECT '\xe9';".to_vec());
        assert!(problem(&text).is_some_and(|problem| problem.starts_with("line 2 ")));
        assert_eq!(problem(&decoded("SELECT 'é'".as_bytes().to_vec())), None);
    }
}
