//! Pages of web servers: their size, and ranges of their bytes, by HTTP alone.
//!
//! A server need not know ranges, nor HEAD: what it can do is told from its answers.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
};
use url::Url;

use crate::error::{Failure, RemoteError, Result};
use crate::requests::{RequestOptions, Requests};

/// Bytes of an answer that says what is wrong, at most.
const PROBLEM_BYTES_MAX: usize = 4 << 10;

/// A page.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    client: HttpClient,
    url: Url,
    name: Arc<str>,
    requests: Arc<Requests>,
    /// What is sent as the header `authorization`.
    authorization: Option<Secret>,
}

/// A text that `Debug` does not show.
#[derive(Clone)]
struct Secret(Arc<str>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("redacted")
    }
}

/// What a server tells of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebPage {
    /// Its bytes, if they are told.
    pub(crate) bytes: Option<u64>,
    pub(crate) modified: Option<DateTime<Utc>>,
    pub(crate) e_tag: Option<String>,
}

/// Bytes of a page.
pub(crate) enum Answer {
    /// Those of the range.
    Part(Bytes),
    /// All of them, as they come: the server does not know ranges.
    All(BoxStream<'static, Result<Bytes>>),
}

/// Whether a request that failed so may succeed if it is made again.
fn may_pass(error: &RemoteError) -> bool {
    matches!(error.failure(), Failure::Network | Failure::Timeout)
        || error.failure() == Failure::Server && error.hint().is_some()
}

impl Web {
    pub(crate) fn new(
        client: HttpClient,
        url: Url,
        name: &str,
        requests: Arc<Requests>,
        bearer_token: Option<&str>,
    ) -> Web {
        let authorization = bearer_token.map(|token| Secret(format!("Bearer {token}").into()));
        Web { client, url, name: name.into(), requests, authorization }
    }

    /// What the server tells of the page.
    ///
    /// # Errors
    /// If there is none, or no answer.
    pub(crate) async fn head(&self) -> Result<WebPage> {
        let mut retry = 0;
        loop {
            match self.head_once().await {
                Err(error) if self.tries_again(&error, &mut retry).await => {}
                other => return other,
            }
        }
    }

    async fn head_once(&self) -> Result<WebPage> {
        let response = self.send("HEAD", None).await?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            let page = page_of(&response);
            if page.bytes.is_some() {
                return Ok(page);
            }
        } else if matches!(status, 404 | 410 | 429 | 500 | 502..=599) {
            return Err(self.refused(response).await);
        }
        // Signed addresses are for one method, and not all servers know this one.
        let response = self.send("GET", Some(0..1)).await?;
        let page = page_of(&response);
        match response.status().as_u16() {
            206 => Ok(WebPage { bytes: total_of(&response), ..page }),
            200 => Ok(page),
            // An empty file has no first byte.
            416 => Ok(WebPage { bytes: Some(total_of(&response).unwrap_or(0)), ..page }),
            _ => Err(self.refused(response).await),
        }
    }

    /// Bytes of a range of a page that has so many bytes and this tag.
    ///
    /// # Errors
    /// If they cannot be had, are too few, or are of another page.
    pub(crate) async fn get(&self, range: &Range<u64>, known: &WebPage) -> Result<Answer> {
        let mut retry = 0;
        loop {
            match self.get_once(range, known).await {
                Err(error) if self.tries_again(&error, &mut retry).await => {}
                other => return other,
            }
        }
    }

    async fn get_once(&self, range: &Range<u64>, known: &WebPage) -> Result<Answer> {
        let response = self.send("GET", Some(range.clone())).await?;
        let status = response.status().as_u16();
        if !matches!(status, 200 | 206) {
            return Err(self.refused(response).await);
        }
        let page = page_of(&response);
        let is_other = page.e_tag.is_some() && known.e_tag.is_some() && page.e_tag != known.e_tag;
        if is_other {
            return Err(RemoteError::changed(&self.name));
        }
        if status == 200 {
            let whole = 0..known.bytes.unwrap_or(u64::MAX);
            if *range == whole && page.bytes == known.bytes {
                return Ok(Answer::Part(self.body(response, range.end).await?));
            }
            return Ok(Answer::All(self.stream(response)));
        }
        let (total, start) = (total_of(&response), start_of(&response));
        if total.is_some() && known.bytes.is_some() && total != known.bytes {
            return Err(RemoteError::changed(&self.name));
        }
        if start.is_some_and(|start| start != range.start) {
            let problem = "the server sent another range than was asked for";
            return Err(RemoteError::new(&self.name, Failure::Server, problem));
        }
        Ok(Answer::Part(self.body(response, range.end - range.start).await?))
    }

    /// True, after a pause, if a request that failed so is to be made again.
    async fn tries_again(&self, error: &RemoteError, retry: &mut usize) -> bool {
        if *retry >= self.requests.options().retries || !may_pass(error) {
            return false;
        }
        log::debug!("{error}; the request is made again");
        tokio::time::sleep(RequestOptions::pause(*retry)).await;
        *retry += 1;
        true
    }

    async fn send(&self, method: &str, range: Option<Range<u64>>) -> Result<HttpResponse> {
        let wrong = |problem: String| RemoteError::new(&self.name, Failure::Option, problem);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().map_err(|_| wrong("no such method".to_owned()))?;
        *request.uri_mut() =
            self.url.as_str().parse().map_err(|_| wrong("it is no address".to_owned()))?;
        let headers = request.headers_mut();
        if let Some(range) = range {
            let value = format!("bytes={}-{}", range.start, range.end - 1);
            let value = value.parse().map_err(|_| wrong("no range".to_owned()))?;
            headers.insert("range", value);
        }
        if let Some(Secret(authorization)) = &self.authorization {
            let value = authorization.parse();
            let value = value.map_err(|_| {
                wrong("the bearer token has characters that cannot be sent".to_owned())
            })?;
            headers.insert("authorization", value);
        }
        self.in_time(self.client.execute(request)).await?.map_err(|error| self.failed(&error))
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let timeout = self.requests.options().timeout;
        let waited = tokio::time::timeout(timeout, work).await;
        waited.map_err(|_| RemoteError::timeout(&self.name, timeout.as_secs_f64()))
    }

    fn failed(&self, error: &HttpError) -> RemoteError {
        let mut reason: &(dyn std::error::Error + 'static) = error;
        while let Some(cause) = reason.source() {
            reason = cause;
        }
        match error.kind() {
            HttpErrorKind::Timeout => {
                RemoteError::timeout(&self.name, self.requests.options().timeout.as_secs_f64())
            }
            _ => RemoteError::network(&self.name, &reason.to_string()),
        }
    }

    /// The error that an answer is.
    async fn refused(&self, response: HttpResponse) -> RemoteError {
        let status = response.status().as_u16();
        let mut body = Vec::new();
        let mut stream = self.stream(response);
        while let Some(Ok(bytes)) = stream.next().await {
            body.extend_from_slice(&bytes);
            if body.len() >= PROBLEM_BYTES_MAX {
                break;
            }
        }
        RemoteError::of_status(&self.name, status, &String::from_utf8_lossy(&body))
    }

    /// The bytes of an answer, which are to be so many.
    async fn body(&self, response: HttpResponse, bytes: u64) -> Result<Bytes> {
        let mut stream = self.stream(response);
        let mut body = BytesMut::with_capacity(usize::try_from(bytes).unwrap_or_default());
        while let Some(more) = stream.next().await {
            body.extend_from_slice(&more?);
            if body.len() as u64 > bytes {
                break;
            }
        }
        if body.len() as u64 != bytes {
            let problem = match body.len() as u64 > bytes {
                true => format!("the server sent more than {bytes} bytes"),
                false => format!("the server sent {} of {bytes} bytes", body.len()),
            };
            // As a connection that was cut: made again, it may be whole.
            return Err(RemoteError::new(&self.name, Failure::Server, problem)
                .with_hint("the server, or one on the way to it, is faulty: try again"));
        }
        Ok(body.freeze())
    }

    /// The bytes of an answer as they come, each some within the time of an answer.
    fn stream(&self, response: HttpResponse) -> BoxStream<'static, Result<Bytes>> {
        let web = self.clone();
        let body = response.into_body().bytes_stream();
        futures::stream::unfold(Some((web, body)), |state| async move {
            let (web, mut body) = state?;
            match web.in_time(body.next()).await {
                Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some((web, body)))),
                Ok(Some(Err(error))) => Some((Err(web.failed(&error)), None)),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}

fn header<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

fn page_of(response: &HttpResponse) -> WebPage {
    let modified = header(response, "last-modified")
        .and_then(|text| DateTime::parse_from_rfc2822(text).ok())
        .map(|time| time.with_timezone(&Utc));
    // The length of a text that was compressed on the way is that of the compressed one.
    let is_plain = header(response, "content-encoding").is_none_or(|how| how == "identity");
    let bytes = header(response, "content-length").and_then(|text| text.parse().ok());
    WebPage {
        bytes: bytes.filter(|_| is_plain),
        modified,
        e_tag: header(response, "etag").map(str::to_owned),
    }
}

/// The size of the page that a range is of: `bytes 0-0/1234`.
fn total_of(response: &HttpResponse) -> Option<u64> {
    header(response, "content-range")?.rsplit_once('/')?.1.parse().ok()
}

/// Where a range begins.
fn start_of(response: &HttpResponse) -> Option<u64> {
    let (_, range) = header(response, "content-range")?.split_once(' ')?;
    range.split_once('-')?.0.parse().ok()
}

/// How long a connection may take to come about.
pub(crate) fn connect_timeout(timeout: Duration) -> Duration {
    timeout.min(Duration::from_secs(10))
}
