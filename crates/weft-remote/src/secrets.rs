//! Secrets: credentials and places of stores, by name, each for the files whose names begin with its scope.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{Failure, RemoteError, Result};
use crate::url::{RemoteUrl, Scheme};

/// What a secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// Amazon S3, and stores that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// Web servers.
    Http,
}

/// Kinds by name, with the options of each.
const KINDS: [(&str, SecretKind, &[&str]); 5] = [
    ("s3", SecretKind::S3, S3_OPTIONS),
    ("r2", SecretKind::S3, S3_OPTIONS),
    ("gcs", SecretKind::Gcs, GCS_OPTIONS),
    ("azure", SecretKind::Azure, AZURE_OPTIONS),
    ("http", SecretKind::Http, &["bearer_token"]),
];

const S3_OPTIONS: &[&str] = &[
    "key_id",
    "secret",
    "session_token",
    "region",
    "endpoint",
    "url_style",
    "use_ssl",
    "provider",
    "profile",
];

const GCS_OPTIONS: &[&str] = &[
    "key_id",
    "secret",
    "endpoint",
    "use_ssl",
    "provider",
    "service_account_key",
    "service_account_path",
];

const AZURE_OPTIONS: &[&str] = &[
    "connection_string",
    "account_name",
    "account_key",
    "sas_token",
    "tenant_id",
    "client_id",
    "client_secret",
    "endpoint",
    "use_ssl",
    "provider",
];

/// Options whose values may be shown.
const PUBLIC: [&str; 9] = [
    "account_name",
    "endpoint",
    "profile",
    "provider",
    "region",
    "service_account_path",
    "tenant_id",
    "url_style",
    "use_ssl",
];

impl SecretKind {
    /// The kind of this name.
    ///
    /// # Errors
    /// [`Failure::Option`] for others.
    pub fn named(name: &str) -> Result<SecretKind> {
        let found = KINDS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known));
        found.map(|(_, kind, _)| *kind).ok_or_else(|| {
            let problem = format!("there are no secrets of the type {name}");
            RemoteError::new("a secret", Failure::Option, problem)
                .with_hint("types: s3, gcs, azure and http")
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SecretKind::S3 => "s3",
            SecretKind::Gcs => "gcs",
            SecretKind::Azure => "azure",
            SecretKind::Http => "http",
        }
    }

    fn options(self) -> &'static [&'static str] {
        KINDS.iter().find(|(_, kind, _)| *kind == self).map_or(&[], |(.., options)| options)
    }

    fn scheme(self) -> Scheme {
        match self {
            SecretKind::S3 => Scheme::S3,
            SecretKind::Gcs => Scheme::Gcs,
            SecretKind::Azure => Scheme::Azure,
            SecretKind::Http => Scheme::Web,
        }
    }
}

/// One secret. `Debug` shows nothing that is secret.
#[derive(Clone)]
pub struct Secret {
    name: String,
    kind: SecretKind,
    scope: Vec<String>,
    options: BTreeMap<String, String>,
    /// Differs between all secrets of a process that were ever made.
    number: u64,
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({}, {})", self.name, self.kind.name())
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Secret {
    /// A secret of this name for files whose names begin with one of `scope`; for all of its kind if that is empty. Options go by
    /// their names in lower case.
    ///
    /// # Errors
    /// [`Failure::Option`] for options that the kind does not have, and values that they cannot have.
    pub fn new(
        name: &str,
        kind: SecretKind,
        scope: Vec<String>,
        options: BTreeMap<String, String>,
    ) -> Result<Secret> {
        let wrong = |problem: String| RemoteError::new(name, Failure::Option, problem);
        for option in options.keys() {
            if !kind.options().contains(&option.as_str()) {
                let problem = format!("a secret of the type {} has no {option}", kind.name());
                let hint = format!("options: {}, scope", kind.options().join(", "));
                return Err(wrong(problem).with_hint(hint));
            }
        }
        let made = Secret {
            name: name.to_owned(),
            kind,
            scope,
            options,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        if !matches!(made.get("url_style"), None | Some("path" | "vhost")) {
            return Err(wrong("url_style is 'path' or 'vhost'".to_owned()));
        }
        if !matches!(made.get("provider"), None | Some("config" | "credential_chain")) {
            return Err(wrong("provider is config or credential_chain".to_owned()));
        }
        if !matches!(made.get("use_ssl"), None | Some("true" | "false")) {
            return Err(wrong("use_ssl is true or false".to_owned()));
        }
        if made.get("key_id").is_some() != made.get("secret").is_some() {
            return Err(wrong("key_id and secret go together".to_owned()));
        }
        Ok(made)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    pub fn kind(&self) -> SecretKind {
        self.kind
    }

    /// The beginnings of the names of its files; none if it is for all of its kind.
    pub fn scope(&self) -> &[String] {
        &self.scope
    }

    /// Its options as they may be shown: what is secret is `redacted`.
    pub fn shown(&self) -> String {
        let shown =
            self.options.iter().map(|(name, value)| match PUBLIC.contains(&name.as_str()) {
                true => format!("{name}={value}"),
                false => format!("{name}=redacted"),
            });
        shown.collect::<Vec<_>>().join(";")
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn get(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.get("use_ssl") != Some("false")
    }

    /// Characters of the scope that a file's name begins with; `None` if it is for others.
    fn fits(&self, url: &RemoteUrl) -> Option<usize> {
        if self.kind.scheme() != url.scheme {
            return None;
        }
        if self.scope.is_empty() {
            return Some(0);
        }
        let fits = |scope: &&String| is_within(url.name(), &plain_scope(scope));
        self.scope.iter().filter(fits).map(String::len).max()
    }
}

/// A scope with the prefix that names have.
fn plain_scope(scope: &str) -> String {
    for (prefix, plain) in
        [("s3a://", "s3://"), ("s3n://", "s3://"), ("gcs://", "gs://"), ("azure://", "az://")]
    {
        if let Some(rest) = scope.strip_prefix(prefix) {
            return format!("{plain}{rest}");
        }
    }
    scope.to_owned()
}

/// True if a scope is a beginning of a name that ends where a part of it does, or is written to end within one.
fn is_within(name: &str, scope: &str) -> bool {
    let Some(rest) = name.strip_prefix(scope) else { return false };
    // The bucket `data` is not `data-of-others`.
    rest.is_empty()
        || scope.ends_with('/')
        || rest.starts_with('/')
        || scope.matches('/').count() > 2
}

/// The secrets of a database.
#[derive(Debug, Default)]
pub struct Secrets {
    by_name: RwLock<BTreeMap<String, Arc<Secret>>>,
}

impl Secrets {
    /// Adds a secret; false if there is one of its name, which stays unless it is to be replaced.
    pub fn add(&self, secret: Secret, replace: bool) -> bool {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = !by_name.contains_key(secret.name());
        if is_new || replace {
            by_name.insert(secret.name().to_owned(), Arc::new(secret));
        }
        is_new || replace
    }

    /// Removes a secret; false if there is none of this name.
    pub fn remove(&self, name: &str) -> bool {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<Arc<Secret>> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.values().cloned().collect()
    }

    /// The secret for a file: that with the longest scope.
    pub(crate) fn of(&self, url: &RemoteUrl) -> Option<Arc<Secret>> {
        let fitting =
            self.list().into_iter().filter_map(|secret| Some((secret.fits(url)?, secret)));
        fitting.max_by_key(|(length, _)| *length).map(|(_, secret)| secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, scope: &[&str]) -> Secret {
        let options = [("key_id", "K"), ("secret", "hidden"), ("region", "eu")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let scope = scope.iter().map(|&scope| scope.to_owned()).collect();
        Secret::new(name, SecretKind::S3, scope, options.into()).unwrap()
    }

    #[test]
    fn the_longest_scope_wins() {
        let secrets = Secrets::default();
        assert!(secrets.add(secret("all", &[]), false));
        assert!(secrets.add(secret("data", &["s3://data"]), false));
        assert!(secrets.add(secret("deep", &["s3://data/deep"]), false));
        assert!(!secrets.add(secret("deep", &[]), false));
        let of = |name: &str| {
            let found = secrets.of(&RemoteUrl::parse(name).unwrap());
            found.map(|secret| secret.name().to_owned())
        };
        assert_eq!(of("s3://data/deep/x").as_deref(), Some("deep"));
        assert_eq!(of("s3://data/x").as_deref(), Some("data"));
        assert_eq!(of("s3://data-of-others/x").as_deref(), Some("all"));
        assert_eq!(of("gs://data/x"), None);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let secret = secret("s", &[]);
        let shown = format!("{secret:?} {}", secret.shown());
        assert!(!shown.contains("hidden") && shown.contains("region=eu"), "{shown}");
        let options = BTreeMap::from([("colour".to_owned(), "red".to_owned())]);
        assert!(Secret::new("s", SecretKind::S3, Vec::new(), options).is_err());
    }
}
