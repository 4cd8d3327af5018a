//! Finds the files that a statement names.

use std::sync::Arc;

use futures::TryStreamExt;
use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use weft_rt::cancel::CancelToken;

use crate::error::{Failure, RemoteError, Result};
use crate::file::{FileInner, RemoteFile, head};
use crate::remote::Shared;
use crate::upload::Uploads;
use crate::url::{RemoteUrl, Scheme};
use crate::web::Web;

/// The files of one statement.
#[derive(Clone, Debug)]
pub struct RemoteFiles {
    shared: Arc<Shared>,
    token: CancelToken,
}

/// What a name stands for.
#[derive(Debug)]
pub enum Found {
    /// One file.
    File(RemoteFile),
    /// Those whose names match a pattern, by name: one at least.
    Matching(Vec<RemoteFile>),
    /// Those below a directory, by name: one at least.
    Below(Vec<RemoteFile>),
}

impl RemoteFiles {
    pub(crate) fn new(shared: Arc<Shared>, token: CancelToken) -> RemoteFiles {
        RemoteFiles { shared, token }
    }

    /// Finds the files that a name stands for. To be awaited anywhere.
    ///
    /// # Errors
    /// If there are none, or the store does not tell.
    pub async fn find(&self, name: &str) -> Result<Found> {
        let url = RemoteUrl::parse(name)?;
        let found = Finding { shared: Arc::clone(&self.shared), token: self.token.clone(), url };
        let name = found.url.name().to_owned();
        self.shared.requests.run(&name, Some(&self.token), found.find()).await
    }

    /// Begins to write a file of this name, or the files of a directory of this name.
    ///
    /// # Errors
    /// If the name is that of a web server, or what is configured of the store does not go together.
    pub fn upload(&self, name: &str, is_directory: bool) -> Result<Uploads> {
        let url = RemoteUrl::parse(name).map_err(RemoteError::of_writing)?;
        Uploads::new(&self.shared, &self.token, url, is_directory)
    }
}

struct Finding {
    shared: Arc<Shared>,
    token: CancelToken,
    url: RemoteUrl,
}

impl Finding {
    async fn find(self) -> Result<Found> {
        let options = self.shared.requests.options();
        let secret = self.shared.secrets.of(&self.url);
        if let Some(web) = &self.url.web {
            if self.url.key.contains('*') {
                let problem = "web servers do not list their files";
                return Err(RemoteError::new(self.url.name(), Failure::Option, problem)
                    .with_hint("name each file: read_parquet(['https://…/a', 'https://…/b'])"));
            }
            let client = self.shared.stores.client(&self.url, options)?;
            let token = secret.as_deref().and_then(|secret| secret.get("bearer_token"));
            let requests = Arc::clone(&self.shared.requests);
            let web = Web::new(client, web.clone(), self.url.name(), requests, token);
            let inner = FileInner::of_page(&self.shared, self.url.clone(), web).await?;
            return Ok(Found::File(RemoteFile::new(inner, &self.token)));
        }
        let store = self.shared.stores.of(&self.url, secret.as_deref(), options)?;
        if self.url.is_pattern() {
            let found = self.matching(&store).await?;
            return Ok(Found::Matching(found));
        }
        let key = &self.url.key;
        let mut missing = None;
        if !key.is_empty() && !key.ends_with('/') {
            match head(&self.url, &store, options.timeout.as_secs_f64()).await {
                Ok(meta) => return Ok(Found::File(self.file(&store, meta))),
                Err(error) if error.failure() == Failure::NotFound => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        let found = self.listed(&store, key.trim_end_matches('/')).await;
        match (found, missing) {
            (Ok(found), None) if found.is_empty() => {
                let problem = "there are no objects below it";
                Err(RemoteError::new(self.url.name(), Failure::NotFound, problem))
            }
            (Ok(found), Some(missing)) if found.is_empty() => Err(missing),
            (Err(_), Some(missing)) => Err(missing),
            (found, _) => {
                let found = found?.into_iter().map(|meta| self.file(&store, meta));
                Ok(Found::Below(found.collect()))
            }
        }
    }

    fn file(&self, store: &Arc<dyn ObjectStore>, meta: ObjectMeta) -> RemoteFile {
        let url = self.url.with_key(meta.location.as_ref());
        let inner = FileInner::of_object(&self.shared, url, Arc::clone(store), meta);
        RemoteFile::new(inner, &self.token)
    }

    /// The objects below a directory, by their keys.
    async fn listed(&self, store: &Arc<dyn ObjectStore>, prefix: &str) -> Result<Vec<ObjectMeta>> {
        listed(&self.url, store, prefix, self.shared.requests.options().timeout.as_secs_f64()).await
    }

    async fn matching(&self, store: &Arc<dyn ObjectStore>) -> Result<Vec<RemoteFile>> {
        let name = self.url.name();
        let pattern = Pattern::new(&self.url.key).map_err(|error| {
            let problem = format!("it is no pattern: {}", error.msg);
            RemoteError::new(name, Failure::Option, problem)
        })?;
        let first = self.url.key.find(['*', '?', '[']).unwrap_or_default();
        let prefix = self.url.key[..first].rsplit_once('/').map_or("", |(prefix, _)| prefix);
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        let mut found = self.listed(store, prefix).await?;
        found.retain(|meta| pattern.matches_with(meta.location.as_ref(), options));
        if found.is_empty() {
            let problem = "no object matches it";
            return Err(RemoteError::new(name, Failure::NotFound, problem));
        }
        Ok(found.into_iter().map(|meta| self.file(store, meta)).collect())
    }
}

/// The objects of a store below a directory, by their keys, without the objects that stand for directories.
///
/// # Errors
/// If the store does not list them.
pub(crate) async fn listed(
    url: &RemoteUrl,
    store: &Arc<dyn ObjectStore>,
    prefix: &str,
    timeout: f64,
) -> Result<Vec<ObjectMeta>> {
    debug_assert!(url.scheme != Scheme::Web, "web servers do not list");
    let failed = |error: object_store::Error| RemoteError::of_store(url.name(), &error, timeout);
    let prefix = Path::parse(prefix).map_err(|error| failed(error.into()))?;
    let mut found: Vec<ObjectMeta> =
        store.list(Some(&prefix)).try_collect().await.map_err(failed)?;
    found.retain(|meta| !(meta.size == 0 && meta.location.as_ref().ends_with('/')));
    found.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(found)
}
