//! The names of options that are Weft's, and the values of options.

use adbc_core::error::{Result, Status};
use adbc_core::options::OptionValue;

use crate::error::{bad_option, of_status};

/// Option of a database: its directory, as `uri` without a scheme. Without one it is a temporary database.
pub const PATH: &str = "path";

/// Option of a database: memory that it may use, such as `4GiB`.
pub const MEMORY_LIMIT: &str = "memory_limit";

/// Option of a database: its threads.
pub const THREADS: &str = "threads";

/// Option of a database: `true` opens one that exists and never changes it.
pub const READ_ONLY: &str = "read_only";

/// What the names of Weft's settings have in front of them as options of a database, which is opened with them, and of a connection,
/// which sets them: `weft.compile`.
pub const SETTING_PREFIX: &str = "weft.";

/// The text that a value is.
pub(crate) fn text_of(name: &str, value: &OptionValue) -> Result<String> {
    match value {
        OptionValue::String(text) => Ok(text.clone()),
        OptionValue::Int(number) => Ok(number.to_string()),
        OptionValue::Double(number) => Ok(number.to_string()),
        _ => bad_option(name, "a text"),
    }
}

/// Whether a value is true or false.
pub(crate) fn switch_of(name: &str, value: &OptionValue) -> Result<bool> {
    match text_of(name, value)?.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" => Ok(true),
        "false" | "0" | "off" => Ok(false),
        _ => bad_option(name, "true or false"),
    }
}

/// The text of a switch.
pub(crate) fn switch_text(is_on: bool) -> String {
    if is_on { "true" } else { "false" }.to_owned()
}

/// An option that is not there.
pub(crate) fn unknown<T>(of: &str, name: &str) -> Result<T> {
    Err(of_status(Status::NotFound, "42704", format!("{of} has no option {name}")))
}

/// A number that is read as an option of a text.
pub(crate) fn number_of<T: std::str::FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().or_else(|_| bad_option(name, "an option that is a number"))
}

/// The directory that a URI or path names; `None` for a temporary database.
pub(crate) fn directory_of(uri: &str) -> Result<Option<String>> {
    let rest = match uri.split_once(':') {
        Some(("weft" | "file", rest)) => {
            // With two slashes a host comes next, which is none here: `weft:///tmp/my.weft` is `/tmp/my.weft`.
            let rest = rest.strip_prefix("//").unwrap_or(rest);
            rest.split_once('?').map_or(rest, |(path, _)| path)
        }
        Some((scheme, rest)) if rest.starts_with("//") => {
            let message = format!(
                "a database cannot be opened by {scheme}: give the path of its directory, or weft:///path"
            );
            return Err(of_status(Status::InvalidArguments, "22023", message));
        }
        _ => uri,
    };
    Ok(match rest {
        "" | "/" | ":memory:" | "/:memory:" => None,
        path => Some(path.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_and_paths_name_directories() {
        let directory = |uri| directory_of(uri).expect("a directory");
        for memory in ["", ":memory:", "weft:", "weft://", "weft::memory:", "weft:///:memory:"] {
            assert_eq!(directory(memory), None, "{memory}");
        }
        assert_eq!(directory("my.weft").as_deref(), Some("my.weft"));
        assert_eq!(directory("/tmp/my:weft").as_deref(), Some("/tmp/my:weft"));
        assert_eq!(directory("weft:my.weft").as_deref(), Some("my.weft"));
        assert_eq!(directory("weft:///tmp/my.weft?x=1").as_deref(), Some("/tmp/my.weft"));
        assert_eq!(directory("file:///tmp/my.weft").as_deref(), Some("/tmp/my.weft"));
        assert!(directory_of("postgresql://host/db").is_err());
    }
}
