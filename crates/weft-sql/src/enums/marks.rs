//! Types in words: `enum`, and behind it the name, if there is one, as `name` and the labels, each as the number of its bytes, a colon
//! and the bytes.

/// The first word.
const ENUM: &str = "enum ";

/// The word before a name.
const NAME: &str = "name ";

pub(super) fn written(name: Option<&str>, labels: &[String]) -> String {
    let mut words = ENUM.to_owned();
    let mut add = |text: &str| words.push_str(&format!("{}:{text}", text.len()));
    if let Some(name) = name {
        add(&format!("{NAME}{name}"));
    } else {
        add("");
    }
    for label in labels {
        add(label);
    }
    words
}

/// The name and the labels; `None` for other words.
pub(super) fn read(words: &str) -> Option<(Option<String>, Vec<String>)> {
    let mut rest = words.strip_prefix(ENUM)?;
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let (bytes, behind) = rest.split_once(':')?;
        let (text, behind) = behind.split_at_checked(bytes.parse().ok()?)?;
        texts.push(text.to_owned());
        rest = behind;
    }
    let labels = texts.split_off(texts.len().min(1));
    let name = texts.pop()?;
    Some((name.strip_prefix(NAME).map(str::to_owned), labels))
}
