//! Paths to values within a value: `$.a[0]`, `/a/0`, and plain keys.

use std::borrow::Cow;

use crate::Result;
use crate::parts::{Kind, check, elements, kind, members};

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the value of this key.
    Key(String),
    /// To this element; a negative number counts from the end.
    Index(i64),
    /// To the value of this key, or the element of this number.
    Either(String),
    /// To the values of all keys.
    AnyMember,
    /// To all elements.
    AnyElement,
    /// To the value itself and all values within it.
    Within,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// The path of one step.
    pub fn of(step: Step) -> Path {
        Path { steps: vec![step] }
    }

    /// The path that `text` is: JSONPath after `$`, a JSON pointer after `/`, and else a key.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Path, String> {
        match text.as_bytes().first() {
            Some(b'$') => parse_json_path(text),
            Some(b'/') => {
                let steps = text[1..].split('/');
                let step = |step: &str| Step::Either(step.replace("~1", "/").replace("~0", "~"));
                Ok(Path { steps: steps.map(step).collect() })
            }
            _ => Ok(Path::of(Step::Key(text.to_owned()))),
        }
    }

    /// True if it may lead to several values.
    pub fn is_many(&self) -> bool {
        let many = [Step::AnyMember, Step::AnyElement, Step::Within];
        self.steps.iter().any(|step| many.contains(step))
    }

    /// The value that the path leads to.
    ///
    /// # Errors
    /// If the text is no JSON.
    pub fn find<'a>(&self, value: &'a str) -> Result<Option<&'a str>> {
        Ok(self.find_all(value)?.into_iter().next())
    }

    /// All values that the path leads to.
    ///
    /// # Errors
    /// If the text is no JSON.
    pub fn find_all<'a>(&self, value: &'a str) -> Result<Vec<&'a str>> {
        let mut found = Vec::new();
        let (first, rest) = match self.steps.split_first() {
            Some(split) => split,
            None => {
                check(value)?;
                return Ok(vec![value.trim_ascii()]);
            }
        };
        follow(value, first, rest, &mut found)?;
        Ok(found)
    }
}

/// Follows a step and those after it.
fn follow<'a>(value: &'a str, step: &Step, rest: &[Step], found: &mut Vec<&'a str>) -> Result<()> {
    let mut go_on = |part: &'a str| match rest.split_first() {
        None => {
            found.push(part);
            Ok(())
        }
        Some((next, after)) => follow(part, next, after, found),
    };
    let by_key = |key: &str| -> Result<Option<&'a str>> {
        let members: Option<Vec<(Cow<str>, &str)>> = members(value)?;
        let mut members = members.unwrap_or_default().into_iter();
        Ok(members.find(|(name, _)| name == key).map(|(_, part)| part))
    };
    let by_index = |index: i64| -> Result<Option<&'a str>> {
        let elements = elements(value)?.unwrap_or_default();
        let from_end = || usize::try_from(index.unsigned_abs()).ok();
        let place = match index >= 0 {
            true => usize::try_from(index).ok(),
            false => from_end().and_then(|back| elements.len().checked_sub(back)),
        };
        Ok(place.and_then(|place| elements.get(place).copied()))
    };
    match step {
        Step::Key(key) => by_key(key)?.map_or(Ok(()), go_on),
        Step::Index(index) => by_index(*index)?.map_or(Ok(()), go_on),
        Step::Either(name) => match (kind(value), name.parse()) {
            (Kind::Array, Ok(index)) => by_index(index)?.map_or(Ok(()), go_on),
            _ => by_key(name)?.map_or(Ok(()), go_on),
        },
        Step::AnyMember => {
            let members = members(value)?.unwrap_or_default();
            members.into_iter().try_for_each(|(_, part)| go_on(part))
        }
        Step::AnyElement => elements(value)?.unwrap_or_default().into_iter().try_for_each(go_on),
        Step::Within => {
            go_on(value)?;
            match kind(value) {
                Kind::Array => elements(value)?
                    .unwrap_or_default()
                    .into_iter()
                    .try_for_each(|part| follow(part, step, rest, found)),
                Kind::Object => members(value)?
                    .unwrap_or_default()
                    .into_iter()
                    .try_for_each(|(_, part)| follow(part, step, rest, found)),
                _ => check(value),
            }
        }
    }
}

fn parse_json_path(text: &str) -> Result<Path, String> {
    let bad = |at: usize| {
        format!(
            "'{text}' is no path: at its character {} a step such as .key or [0] is expected",
            at + 1
        )
    };
    let bytes = text.as_bytes();
    let mut steps = Vec::new();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'.' => {
                at += 1;
                if bytes.get(at) == Some(&b'.') {
                    steps.push(Step::Within);
                    at += 1;
                }
                match bytes.get(at) {
                    Some(b'*') => {
                        steps.push(Step::AnyMember);
                        at += 1;
                    }
                    Some(b'"') => {
                        let len = text[at + 1..].find('"').ok_or_else(|| bad(at))?;
                        steps.push(Step::Key(text[at + 1..at + 1 + len].to_owned()));
                        at += len + 2;
                    }
                    Some(b'[') if steps.last() == Some(&Step::Within) => {}
                    _ => {
                        let rest = &text[at..];
                        let len = rest.find(['.', '[']).unwrap_or(rest.len());
                        if len == 0 {
                            return Err(bad(at));
                        }
                        steps.push(Step::Key(rest[..len].to_owned()));
                        at += len;
                    }
                }
            }
            b'[' => {
                let len = text[at..].find(']').ok_or_else(|| bad(at))?;
                steps.push(parse_brackets(text[at + 1..at + len].trim()).ok_or_else(|| bad(at))?);
                at += len + 1;
            }
            _ => return Err(bad(at)),
        }
    }
    Ok(Path { steps })
}

/// What stands in brackets.
fn parse_brackets(inner: &str) -> Option<Step> {
    let quoted = |quote: char| inner.strip_prefix(quote)?.strip_suffix(quote).map(str::to_owned);
    if inner == "*" {
        return Some(Step::AnyElement);
    }
    if let Some(key) = quoted('\'').or_else(|| quoted('"')) {
        return Some(Step::Key(key));
    }
    match inner.strip_prefix('#') {
        // `#-1` is the last element; `#` is the one after it.
        Some("") => Some(Step::Index(i64::MAX)),
        Some(back) => back.parse().ok().filter(|back| *back < 0).map(Step::Index),
        None => inner.parse().ok().map(Step::Index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &str, value: &str) -> Vec<String> {
        let found = Path::parse(path).unwrap().find_all(value).unwrap();
        found.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn paths_lead_to_values() {
        let value = r#"{"a": {"b": [1, {"c": null}, 3]}, "a.b": 4, "/x": 5}"#;
        assert_eq!(all("$.a.b[0]", value), ["1"]);
        assert_eq!(all("$.a.b[#-1]", value), ["3"]);
        assert_eq!(all("$.a.b[-3]", value), ["1"]);
        assert_eq!(all("$.a.b[-4]", value), [""; 0]);
        assert_eq!(all("$.a.b[*].c", value), ["null"]);
        assert_eq!(all("$..c", value), ["null"]);
        assert_eq!(all("$.\"a.b\"", value), ["4"]);
        assert_eq!(all("$['a.b']", value), ["4"]);
        assert_eq!(all("a.b", value), ["4"]);
        assert_eq!(all("/a/b/2", value), ["3"]);
        assert_eq!(all("$", " 1 "), ["1"]);
        assert_eq!(all("$.x", "1"), [""; 0]);
        for bad in ["$a", "$.", "$[", "$[x]", "$.a[0"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
        assert!(Path::parse("$.a").unwrap().find("{\"a\": 1").is_err());
        assert!(Path::parse("$.a").unwrap().find("tru").is_err());
    }
}
