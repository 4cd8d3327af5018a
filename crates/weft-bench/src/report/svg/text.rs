//! Estimated widths of text, and wrapping by them.

/// Estimated width of `text` set at `size` pixels, in pixels. Errs on the wide side.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Advance of a character in units of the font size, after DejaVu Sans, the widest of the usual fonts.
fn advance(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '\'' | '|' => 0.28,
        ' ' | '.' | ',' | ':' | ';' | '·' | 'I' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '/' | '-' => 0.40,
        's' | 'c' | 'k' | 'v' | 'x' | 'y' | 'z' => 0.57,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '—' => 0.96,
        'A'..='Z' => 0.70,
        '0'..='9' | 'a'..='z' => 0.63,
        _ => 0.84,
    }
}

/// Breaks `text` after `separator` into lines of at most `limit` pixels; a phrase longer than that is
/// broken at spaces.
pub fn wrap_phrases(text: &str, separator: &str, size: f64, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for phrase in text.split(separator).filter(|phrase| !phrase.is_empty()) {
        match lines.last_mut() {
            Some(line)
                if width(line, size) + width(separator, size) + width(phrase, size) <= limit =>
            {
                line.push_str(separator);
                line.push_str(phrase);
            }
            previous => {
                if let Some(previous) = previous {
                    previous.push_str(separator.trim_end());
                }
                lines.extend(wrap(phrase, size, limit));
            }
        }
    }
    lines
}

/// Breaks `text` at spaces into lines of at most `limit` pixels, where words permit.
pub fn wrap(text: &str, size: f64, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + 0.33 * size <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_lines_fit_and_lose_nothing() {
        let text = "Throughput per thread of TPC-H Q1, 64 KiB pages, 60 % cached";
        let lines = wrap(text, 12.0, 160.0);
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| width(line, 12.0) <= 160.0), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert!(wrap("", 12.0, 160.0).is_empty());
    }

    #[test]
    fn phrases_stay_together() {
        let lines = wrap_phrases("asynchronous (simulated), 64 KiB", ", ", 12.5, 190.0);
        assert_eq!(lines, ["asynchronous (simulated),", "64 KiB"]);
        assert_eq!(wrap_phrases("blocking, 4 KiB", ", ", 12.5, 190.0), ["blocking, 4 KiB"]);
        assert!(
            wrap_phrases("one phrase that is much too long for it", ", ", 12.5, 100.0).len() > 1
        );
    }
}
