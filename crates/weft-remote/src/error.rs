//! What can go wrong with a file that is elsewhere, and what to do about it.

use std::io;
use std::sync::Arc;

/// Result of this crate.
pub type Result<T, E = RemoteError> = std::result::Result<T, E>;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such object, bucket or page.
    NotFound,
    /// The credentials are missing, wrong, or not enough.
    Denied,
    /// The bucket is in another region.
    Region,
    /// There is no connection.
    Network,
    /// There was no answer in time.
    Timeout,
    /// The file is no longer what it was when the statement found it.
    Changed,
    /// The server answers with an error of its own, or with something else than was asked for.
    Server,
    /// A name, a secret or an option that cannot be.
    Option,
    /// The system of this machine refuses something.
    System,
    /// The statement was cancelled.
    Cancelled,
}

/// Why a file that is elsewhere cannot be read or written. Cheap to clone. The message names the URL, without its query.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {} '{}': {}", details.verb, details.url, details.problem)]
pub struct RemoteError {
    details: Arc<Details>,
}

#[derive(Clone, Debug)]
struct Details {
    verb: &'static str,
    url: String,
    problem: String,
    hint: Option<String>,
    failure: Failure,
}

impl RemoteError {
    /// A file of this name cannot be read.
    pub(crate) fn new(url: &str, failure: Failure, problem: impl Into<String>) -> RemoteError {
        let (url, problem) = (url.to_owned(), problem.into());
        let details = Details { verb: "read", url, problem, hint: None, failure };
        RemoteError { details: Arc::new(details) }
    }

    /// The statement was cancelled.
    pub(crate) fn cancelled(url: &str) -> RemoteError {
        RemoteError::new(url, Failure::Cancelled, "the statement was cancelled")
    }

    /// The same with advice.
    #[must_use]
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> RemoteError {
        let mut details = Arc::unwrap_or_clone(self.details);
        details.hint = Some(hint.into());
        RemoteError { details: Arc::new(details) }
    }

    /// The same about writing.
    #[must_use]
    pub(crate) fn of_writing(self) -> RemoteError {
        let mut details = Arc::unwrap_or_clone(self.details);
        details.verb = "write";
        RemoteError { details: Arc::new(details) }
    }

    /// What kind of failure it is.
    pub fn failure(&self) -> Failure {
        self.details.failure
    }

    /// What is wrong, without the name of the file.
    pub fn problem(&self) -> &str {
        &self.details.problem
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.details.hint.as_deref()
    }

    /// The error that `error` is, or has as its cause.
    pub fn within<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a RemoteError> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<RemoteError>() {
                return Some(found);
            }
            // The error that an `io::Error` wraps is not among its causes.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = match wrapped {
                Some(wrapped) => Some(wrapped),
                None => error.source(),
            };
        }
        None
    }

    /// The error of a response with this status and body. `name` is the URL for messages.
    pub(crate) fn of_status(name: &str, status: u16, body: &str) -> RemoteError {
        let told = told_by(body);
        let said = match &told {
            Some(told) => format!(": {told}"),
            None => String::new(),
        };
        let is_s3 = name.starts_with("s3");
        match status {
            _ if told.as_deref().is_some_and(is_of_region) => {
                let problem = format!("the bucket is in another region (status {status}{said})");
                RemoteError::new(name, Failure::Region, problem).with_hint(REGION)
            }
            401 | 403 => {
                let problem = format!("the server denies access (status {status}{said})");
                let hint = credentials_hint(name);
                RemoteError::new(name, Failure::Denied, problem).with_hint(hint)
            }
            404 | 410 => {
                let problem = format!("it does not exist (status {status}{said})");
                let hint = match name.starts_with("http") {
                    true => "check the address",
                    false => "check the name of the bucket and of the object",
                };
                RemoteError::new(name, Failure::NotFound, problem).with_hint(hint)
            }
            301 | 307 if is_s3 => {
                let problem = format!("the bucket is in another region (status {status}{said})");
                RemoteError::new(name, Failure::Region, problem).with_hint(REGION)
            }
            412 => RemoteError::changed(name),
            429 | 500..=599 => {
                let problem = format!("the server fails (status {status}{said})");
                RemoteError::new(name, Failure::Server, problem)
                    .with_hint("try again later, or more often: SET http_retries = …")
            }
            _ => {
                let problem = format!("the server answers with status {status}{said}");
                RemoteError::new(name, Failure::Server, problem)
            }
        }
    }

    /// The file is no longer what it was when it was found.
    pub(crate) fn changed(name: &str) -> RemoteError {
        RemoteError::new(name, Failure::Changed, "it has changed while it was read")
            .with_hint("run the statement again")
    }

    /// There was no answer within so many seconds.
    pub(crate) fn timeout(name: &str, seconds: f64) -> RemoteError {
        let problem = format!("the server did not answer within {seconds} s");
        RemoteError::new(name, Failure::Timeout, problem)
            .with_hint("check the network, or wait longer: SET http_timeout = …")
    }

    /// There is no connection, for this reason.
    pub(crate) fn network(name: &str, reason: &str) -> RemoteError {
        let problem = format!("there is no connection to the server ({reason})");
        let hint = match name.starts_with("http") {
            true => "check the address and the network",
            false => "check the network, and the endpoint of the secret or of the environment",
        };
        RemoteError::new(name, Failure::Network, problem).with_hint(hint)
    }

    /// The error of an object store about the URL that messages call `name`.
    pub(crate) fn of_store(name: &str, error: &object_store::Error, timeout_s: f64) -> RemoteError {
        if let Some(own) = RemoteError::within(error) {
            return own.clone();
        }
        let text = whole_text(error);
        if let Some(status) = status_in(&text) {
            return RemoteError::of_status(name, status, &text);
        }
        if text.contains("redirect without LOCATION") {
            return RemoteError::of_status(name, 301, &text);
        }
        match error {
            object_store::Error::NotFound { .. } => RemoteError::of_status(name, 404, &text),
            object_store::Error::PermissionDenied { .. } => {
                RemoteError::of_status(name, 403, &text)
            }
            object_store::Error::Unauthenticated { .. } => RemoteError::of_status(name, 401, &text),
            object_store::Error::Precondition { .. } => RemoteError::changed(name),
            object_store::Error::InvalidPath { .. } => {
                RemoteError::new(name, Failure::Option, "it is no name of an object")
            }
            _ if text.contains("timed out") => RemoteError::timeout(name, timeout_s),
            _ if is_of_connection(&text) => RemoteError::network(name, &reason_in(error)),
            _ => {
                let problem = format!("the store fails: {}", reason_in(error));
                RemoteError::new(name, Failure::Server, problem)
            }
        }
    }
}

/// What to do about a bucket of another region.
const REGION: &str =
    "name the region: CREATE SECRET (TYPE s3, REGION 'eu-central-1', …), or AWS_REGION";

/// How credentials are given for files of this kind.
fn credentials_hint(name: &str) -> &'static str {
    match name.split_once(':').map_or("", |(scheme, _)| scheme) {
        "http" | "https" => {
            "give credentials: CREATE SECRET (TYPE http, BEARER_TOKEN '…'), or a signed address"
        }
        "gs" => {
            "give credentials: GOOGLE_APPLICATION_CREDENTIALS, or CREATE SECRET (TYPE gcs, KEY_ID '…', SECRET '…')"
        }
        "az" => {
            "give credentials: AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or CREATE SECRET (TYPE azure, \
             CONNECTION_STRING '…')"
        }
        _ => {
            "give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws, or CREATE SECRET (TYPE s3, \
             KEY_ID '…', SECRET '…', REGION '…')"
        }
    }
}

/// What an error and its causes say.
fn whole_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// What the last cause of an error says: those before it may name addresses with signatures.
fn reason_in(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last: &(dyn std::error::Error + 'static) = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

fn is_of_connection(text: &str) -> bool {
    [
        "error sending request",
        "client error (Connect)",
        "tcp connect",
        "dns error",
        "connection closed",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// The status that an error of an object store tells.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The code and the message in the body of an answer, which has them as XML.
fn told_by(body: &str) -> Option<String> {
    let code = element(body, "Code")?;
    Some(match element(body, "Message") {
        Some(message) if message != code => format!("{code}: {message}"),
        _ => code.to_owned(),
    })
}

/// The text of the first element of this name.
pub(crate) fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once('<')?;
    (!text.is_empty() && text.len() < 400).then(|| text.trim())
}

fn is_of_region(told: &str) -> bool {
    ["PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"]
        .iter()
        .any(|code| told.starts_with(code))
}

/// The problem of an error within an `io::Error`, whose user names the file.
#[derive(Debug)]
struct Problem(RemoteError);

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0.problem())
    }
}

impl std::error::Error for Problem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<RemoteError> for io::Error {
    fn from(error: RemoteError) -> io::Error {
        let kind = match error.failure() {
            Failure::NotFound => io::ErrorKind::NotFound,
            Failure::Denied => io::ErrorKind::PermissionDenied,
            Failure::Timeout => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, Problem(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_tell_what_to_do() {
        let body =
            "<?xml?><Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";
        let denied = RemoteError::of_status("s3://b/k", 403, body);
        assert_eq!(denied.failure(), Failure::Denied);
        assert!(denied.to_string().contains("InvalidAccessKeyId: no such key"), "{denied}");
        assert!(denied.hint().is_some_and(|hint| hint.contains("CREATE SECRET")));
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-west-1'</Message></Error>";
        assert_eq!(RemoteError::of_status("s3://b/k", 400, body).failure(), Failure::Region);
        assert_eq!(RemoteError::of_status("https://h/x", 404, "").failure(), Failure::NotFound);
    }

    #[test]
    fn errors_of_streams_keep_their_cause() {
        let error: io::Error = RemoteError::timeout("s3://b/k", 30.0).into();
        assert!(!error.to_string().contains("s3://"), "the user of the stream names it");
        let found = RemoteError::within(&error).expect("the cause");
        assert_eq!(found.failure(), Failure::Timeout);
    }
}
