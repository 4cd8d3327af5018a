//! Values that are made of two: a value with a patch (RFC 7396), and whether one contains another.

use std::borrow::Cow;

use crate::parts::{Kind, compact, elements, kind, members, unescaped};
use crate::print::write_quoted;
use crate::{DEPTH_MAX, JsonError, Result};

/// `value` with `patch` merged into it: its keys replace those of the value, `null` removes them.
///
/// # Errors
/// If one of the texts is no JSON.
pub fn merge_patch(value: &str, patch: &str) -> Result<String> {
    let mut out = String::with_capacity(value.len() + patch.len());
    write_merged(Some(value), patch, &mut out, 0)?;
    Ok(out)
}

fn write_merged(value: Option<&str>, patch: &str, out: &mut String, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(JsonError::too_deep(0));
    }
    let Some(changes) = members(patch)? else {
        out.push_str(&compact(patch));
        return Ok(());
    };
    let old = value.map(members).transpose()?.flatten().unwrap_or_default();
    let mut is_first = true;
    let mut write = |key: &str, out: &mut String| {
        if !std::mem::take(&mut is_first) {
            out.push(',');
        }
        write_quoted(key, out);
        out.push(':');
    };
    let numbers: std::collections::HashMap<&str, usize> =
        changes.iter().enumerate().map(|(number, (key, _))| (key.as_ref(), number)).collect();
    let mut is_used = vec![false; changes.len()];
    out.push('{');
    for (key, part) in &old {
        match numbers.get(key.as_ref()).copied() {
            None => {
                write(key, out);
                out.push_str(&compact(part));
            }
            Some(number) => {
                is_used[number] = true;
                let change = changes[number].1;
                if kind(change) != Kind::Null {
                    write(key, out);
                    write_merged(Some(part), change, out, depth + 1)?;
                }
            }
        }
    }
    for (number, (key, change)) in changes.iter().enumerate() {
        // Of a key that occurs twice, the last one counts.
        let counts = numbers.get(key.as_ref()) == Some(&number);
        if counts && !is_used[number] && kind(change) != Kind::Null {
            write(key, out);
            write_merged(None, change, out, depth + 1)?;
        }
    }
    out.push('}');
    Ok(())
}

/// True if `value`, or a value within it, equals `needle`, or has all its keys or elements.
///
/// # Errors
/// If one of the texts is no JSON.
pub fn contains(value: &str, needle: &str) -> Result<bool> {
    let needle = Node::parse(needle, 0)?;
    Ok(Node::parse(value, 0)?.contains(&needle))
}

/// A value as a tree.
enum Node<'a> {
    Scalar(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    fn parse(value: &'a str, depth: usize) -> Result<Node<'a>> {
        if depth > DEPTH_MAX {
            return Err(JsonError::too_deep(0));
        }
        if let Some(parts) = elements(value)? {
            let nodes = parts.into_iter().map(|part| Node::parse(part, depth + 1));
            return Ok(Node::Array(nodes.collect::<Result<_>>()?));
        }
        if let Some(parts) = members(value)? {
            let nodes =
                parts.into_iter().map(|(key, part)| Ok((key, Node::parse(part, depth + 1)?)));
            return Ok(Node::Object(nodes.collect::<Result<_>>()?));
        }
        let value = value.trim_ascii();
        Ok(match kind(value) {
            // With a quote before it, as no other value has one.
            Kind::Text => Node::Scalar(Cow::Owned(format!("\"{}", unescaped(value)?))),
            _ => Node::Scalar(Cow::Borrowed(value)),
        })
    }

    fn contains(&self, needle: &Node<'_>) -> bool {
        self.covers(needle)
            || match self {
                Node::Scalar(_) => false,
                Node::Array(parts) => parts.iter().any(|part| part.contains(needle)),
                Node::Object(parts) => parts.iter().any(|(_, part)| part.contains(needle)),
            }
    }

    /// True if it is the needle, or has all its parts.
    fn covers(&self, needle: &Node<'_>) -> bool {
        match (self, needle) {
            (Node::Scalar(one), Node::Scalar(other)) => one == other,
            (Node::Array(parts), Node::Array(wanted)) => {
                wanted.iter().all(|wanted| parts.iter().any(|part| part.covers(wanted)))
            }
            (Node::Object(parts), Node::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
                parts.iter().any(|(name, part)| name == key && part.covers(wanted))
            }),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_merged() {
        let merged = merge_patch(r#"{"a": 1, "b": 2}"#, r#"{"a":null,"c":{"d":null,"e":1}}"#);
        assert_eq!(merged.unwrap(), r#"{"b":2,"c":{"e":1}}"#);
        assert_eq!(merge_patch("[1]", "{\"a\":1}").unwrap(), "{\"a\":1}");
        assert_eq!(merge_patch("{\"a\":1}", "[1, 2]").unwrap(), "[1,2]");
    }

    #[test]
    fn values_contain_others() {
        assert!(contains(r#"{"a":[1,2]}"#, r#"{"a":[1]}"#).unwrap());
        assert!(contains("[1,2]", "1").unwrap());
        assert!(contains(r#"{"a":{"b":"x"}}"#, r#""x""#).unwrap());
        assert!(!contains(r#"["1"]"#, "1").unwrap());
    }
}
