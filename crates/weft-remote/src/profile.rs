//! Profiles of Amazon's tools: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::error::{Failure, RemoteError, Result};

/// What a profile says.
#[derive(Clone, Default)]
pub(crate) struct Profile {
    values: BTreeMap<String, String>,
}

impl Profile {
    /// A value by its name, such as `aws_access_key_id` or `region`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The profile of this name, or the one that `AWS_PROFILE` names, or that called `default`.
    ///
    /// # Errors
    /// [`Failure::Option`] if a profile is named that there is not. A file that cannot be read has no profiles.
    pub(crate) fn read(url: &str, named: Option<&str>) -> Result<Profile> {
        let told = std::env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
        let name = named.map(str::to_owned).or(told);
        let wanted = name.as_deref().unwrap_or("default");
        let text = |variable: &str, file: &str| {
            let path = std::env::var_os(variable).map(PathBuf::from).or_else(|| {
                let home = std::env::var_os("HOME")?;
                Some(PathBuf::from(home).join(".aws").join(file))
            });
            path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
        };
        let config = text("AWS_CONFIG_FILE", "config");
        let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let found = section(&config, wanted).into_iter().chain(section(&credentials, wanted));
        let values: BTreeMap<String, String> = found.collect();
        if values.is_empty() && name.is_some() {
            let problem = format!("there is no profile {wanted}");
            return Err(RemoteError::new(url, Failure::Option, problem)
                .with_hint("profiles are in ~/.aws/credentials and ~/.aws/config"));
        }
        Ok(Profile { values })
    }
}

/// The values of a section `[name]` or `[profile name]`.
fn section(text: &str, wanted: &str) -> Vec<(String, String)> {
    let mut is_wanted = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let name = name.trim();
            let name = name.strip_prefix("profile ").unwrap_or(name).trim();
            is_wanted = name == wanted;
        } else if let Some((key, value)) = line.split_once('=')
            && is_wanted
            && !is_nested
            && !line.starts_with(['#', ';'])
        {
            found.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_by_name() {
        let text = "[default]\naws_access_key_id = A\n# x = y\n[profile other]\nregion=eu-west-1\ns3 =\n  \
                    addressing_style = path\n[third]\nregion = c\n";
        let of = |name: &str| section(text, name);
        assert_eq!(of("default"), [("aws_access_key_id".to_owned(), "A".to_owned())]);
        assert_eq!(of("other").first().map(|(_, value)| value.as_str()), Some("eu-west-1"));
        assert!(of("other").iter().all(|(key, _)| key != "addressing_style"));
        assert!(of("fourth").is_empty());
    }
}
