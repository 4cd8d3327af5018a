//! Names of files that are elsewhere.

use ::url::Url;

use crate::error::{Failure, RemoteError, Result};

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Amazon S3, and stores that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Web,
}

/// Prefixes of names, and what they mean.
const SCHEMES: [(&str, Scheme); 11] = [
    ("s3", Scheme::S3),
    ("s3a", Scheme::S3),
    ("s3n", Scheme::S3),
    ("gs", Scheme::Gcs),
    ("gcs", Scheme::Gcs),
    ("az", Scheme::Azure),
    ("azure", Scheme::Azure),
    ("abfs", Scheme::Azure),
    ("abfss", Scheme::Azure),
    ("http", Scheme::Web),
    ("https", Scheme::Web),
];

/// True if a name is that of a file in an object store or on a web server.
pub fn is_remote(name: &str) -> bool {
    scheme_of(name).is_some()
}

fn scheme_of(name: &str) -> Option<(Scheme, &str)> {
    let (prefix, rest) = name.split_once("://")?;
    let (_, scheme) = SCHEMES.iter().find(|(known, _)| prefix.eq_ignore_ascii_case(known))?;
    Some((*scheme, rest))
}

/// The name of a file, or of several: in an object store, its last part may be a pattern.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    pub(crate) scheme: Scheme,
    /// The bucket, container or host.
    pub(crate) bucket: String,
    /// The storage account, where the name tells it.
    pub(crate) account: Option<String>,
    /// The key of the object, without a slash in front; of a web server, the path.
    pub(crate) key: String,
    /// The address of a page, with its query.
    pub(crate) web: Option<Url>,
    /// What messages call it.
    name: String,
}

impl std::fmt::Debug for RemoteUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "RemoteUrl({})", self.name)
    }
}

impl RemoteUrl {
    /// Reads a name.
    ///
    /// # Errors
    /// [`Failure::Option`] if it has no bucket, no key, or is no address.
    pub fn parse(name: &str) -> Result<RemoteUrl> {
        let wrong = |problem: &str| RemoteError::new(shown(name), Failure::Option, problem);
        let Some((scheme, rest)) = scheme_of(name) else {
            return Err(wrong("it is no address of a file")
                .with_hint("write s3://bucket/key, gs://…, az://… or https://…"));
        };
        if scheme == Scheme::Web {
            let mut web = Url::parse(name).map_err(|error| wrong(&error.to_string()))?;
            web.set_fragment(None);
            let mut plain = web.clone();
            plain.set_query(None);
            if !web.username().is_empty() || web.password().is_some() {
                let host = web.host_str().unwrap_or_default();
                let problem = "user names in addresses are not sent";
                return Err(RemoteError::new(host, Failure::Option, problem)
                    .with_hint("write CREATE SECRET (TYPE http, BEARER_TOKEN '…')"));
            }
            let bucket = plain.host_str().ok_or_else(|| wrong("it has no host"))?.to_owned();
            let (key, name) = (plain.path().trim_start_matches('/').to_owned(), plain.to_string());
            return Ok(RemoteUrl { scheme, bucket, account: None, key, web: Some(web), name });
        }
        let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
        let (bucket, account, key) = match scheme {
            Scheme::Azure => azure_parts(host, key),
            _ => (host.to_owned(), None, key.to_owned()),
        };
        if bucket.is_empty() {
            return Err(wrong("it has no bucket").with_hint("write s3://bucket/key"));
        }
        let prefix = match scheme {
            Scheme::S3 => "s3",
            Scheme::Gcs => "gs",
            Scheme::Azure | Scheme::Web => "az",
        };
        let name = match &account {
            Some(account) => {
                format!("{prefix}://{account}.blob.core.windows.net/{bucket}/{key}")
            }
            None => format!("{prefix}://{bucket}/{key}"),
        };
        Ok(RemoteUrl { scheme, bucket, account, key, web: None, name })
    }

    /// What messages call it: the address without a query.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it stands for all objects whose keys match.
    pub fn is_pattern(&self) -> bool {
        self.scheme != Scheme::Web && self.key.contains(['*', '?', '['])
    }

    /// The same bucket with another key.
    pub(crate) fn with_key(&self, key: &str) -> RemoteUrl {
        let before = self.name.len() - self.key.len();
        let name = format!("{}{key}", &self.name[..before]);
        RemoteUrl { key: key.to_owned(), name, ..self.clone() }
    }
}

/// The container, the account if it is told, and the key: of `container/key`, `account.blob.core.windows.net/container/key` and
/// `container@account.dfs.core.windows.net/key`.
fn azure_parts(host: &str, key: &str) -> (String, Option<String>, String) {
    let account_of = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
    if let Some((container, host)) = host.split_once('@') {
        return (container.to_owned(), Some(account_of(host)), key.to_owned());
    }
    if host.contains('.') {
        let (container, key) = key.split_once('/').unwrap_or((key, ""));
        return (container.to_owned(), Some(account_of(host)), key.to_owned());
    }
    (host.to_owned(), None, key.to_owned())
}

/// A name without what may be secret in it.
fn shown(name: &str) -> &str {
    let end = name.find('?').unwrap_or(name.len());
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let url = RemoteUrl::parse("s3://b/a/k.parquet").unwrap();
        assert_eq!((url.bucket.as_str(), url.key.as_str()), ("b", "a/k.parquet"));
        assert_eq!(url.with_key("x").name(), "s3://b/x");
        let url = RemoteUrl::parse("abfss://c@acc.dfs.core.windows.net/k").unwrap();
        assert_eq!((url.bucket.as_str(), url.account.as_deref()), ("c", Some("acc")));
        assert_eq!(url.name(), "az://acc.blob.core.windows.net/c/k");
        assert!(RemoteUrl::parse("s3://").is_err() && !is_remote("s3/x") && is_remote("S3://b/k"));
    }

    #[test]
    fn names_for_messages_have_no_secrets() {
        let refused = RemoteUrl::parse("https://user:pass@h:8080/d/x.csv").unwrap_err();
        assert!(!refused.to_string().contains("pass"), "{refused}");
        let url = RemoteUrl::parse("https://h:8080/d/x.csv?sig=abc#top").unwrap();
        assert_eq!(url.name(), "https://h:8080/d/x.csv");
        assert!(!format!("{url:?}").contains("abc"));
        assert_eq!(url.web.as_ref().map(Url::as_str), Some("https://h:8080/d/x.csv?sig=abc"));
    }
}
