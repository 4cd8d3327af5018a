//! Writes objects in parts. All objects of a statement appear when the last one is whole, or none of them.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::try_join_all;
use object_store::path::Path;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, PutResult, Result as StoreResult,
    UploadPart,
};
use weft_rt::cancel::CancelToken;

use crate::error::{Failure, RemoteError, Result};
use crate::list::listed;
use crate::remote::Shared;
use crate::store::{STORE_URL, of_store};
use crate::url::{RemoteUrl, Scheme};

/// What places of files begin with that are being written; a number follows.
pub(crate) const UPLOADS: &str = "upload:";

/// Gives a file that a writer calls so, within the directory that is written, its name.
pub type Naming = Box<dyn Fn(&str) -> String + Send + Sync>;

/// Objects that a statement writes. Dropped before it is finished, none of them appears.
#[derive(Debug)]
pub struct Uploads {
    inner: Arc<UploadsInner>,
}

/// What the writers of a statement share.
pub(crate) struct UploadsInner {
    shared: Arc<Shared>,
    token: CancelToken,
    url: RemoteUrl,
    store: Arc<dyn ObjectStore>,
    number: u64,
    is_directory: bool,
    naming: OnceLock<Naming>,
    /// Objects all of whose parts were sent.
    whole: Mutex<Vec<Box<dyn MultipartUpload>>>,
}

impl fmt::Debug for UploadsInner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Uploads({})", self.url.name())
    }
}

impl Uploads {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        token: &CancelToken,
        url: RemoteUrl,
        is_directory: bool,
    ) -> Result<Uploads> {
        let wrong =
            |problem: &str| RemoteError::new(url.name(), Failure::Option, problem).of_writing();
        if url.scheme == Scheme::Web {
            return Err(wrong("nothing is written to web servers")
                .with_hint("write to s3://…, gs://… or az://…, or to a local file"));
        }
        if !is_directory && (url.key.is_empty() || url.key.ends_with('/')) {
            return Err(wrong("it is no name of an object"));
        }
        let secret = shared.secrets.of(&url);
        let store = shared.stores.of(&url, secret.as_deref(), shared.requests.options());
        let store = store.map_err(RemoteError::of_writing)?;
        let number = shared.next_number();
        let inner = Arc::new(UploadsInner {
            shared: Arc::clone(shared),
            token: token.clone(),
            url,
            store,
            number,
            is_directory,
            naming: OnceLock::new(),
            whole: Mutex::default(),
        });
        shared.note_uploads(number, &inner);
        Ok(Uploads { inner })
    }

    /// Where a writer that knows only the store writes to.
    pub fn store_url(&self) -> String {
        let number = self.inner.number;
        match self.inner.is_directory {
            true => format!("{STORE_URL}/{UPLOADS}{number}/"),
            // With an extension, or it would be taken for a directory.
            false => format!("{STORE_URL}/{UPLOADS}{number}/rows.partial"),
        }
    }

    /// Names files of a directory otherwise than their writer does. To be called before it writes.
    pub fn set_naming(&self, naming: Naming) {
        // The first one stays.
        self.inner.naming.set(naming).ok();
    }

    /// The address of the file or directory.
    pub fn name(&self) -> &str {
        self.inner.url.name()
    }

    /// The key of the object, or the beginning of those in the directory.
    pub fn key(&self) -> &str {
        self.inner.url.key.trim_end_matches('/')
    }

    /// The keys of the objects that are there, of a directory.
    ///
    /// # Errors
    /// If the store does not list them.
    pub async fn existing(&self) -> Result<Vec<String>> {
        let inner = Arc::clone(&self.inner);
        let timeout = inner.timeout();
        let work = async move {
            let prefix = inner.url.key.trim_end_matches('/');
            let found = listed(&inner.url, &inner.store, prefix, timeout).await;
            let found = found.map_err(RemoteError::of_writing)?;
            Ok(found.into_iter().map(|meta| meta.location.to_string()).collect())
        };
        self.run(work).await
    }

    /// Removes objects of these keys.
    ///
    /// # Errors
    /// If the store refuses. Some of them may be gone then.
    pub async fn remove(&self, keys: Vec<String>) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let work = async move {
            for key in keys {
                let key = Path::parse(key).map_err(|error| inner.failed(&error.into()))?;
                inner.store.delete(&key).await.map_err(|error| inner.failed(&error))?;
            }
            Ok(())
        };
        self.run(work).await
    }

    /// Has all objects appear.
    ///
    /// # Errors
    /// If the store refuses: objects that have appeared by then stay.
    pub async fn finish(self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let work = async move {
            let whole = std::mem::take(&mut *inner.whole());
            let done = whole.into_iter().map(|mut upload| {
                let inner = Arc::clone(&inner);
                async move { upload.complete().await.map_err(|error| inner.failed(&error)) }
            });
            try_join_all(done).await.map(|_| ())
        };
        // Not to be cancelled any more: an object that is half there is worse.
        let name = self.inner.url.name().to_owned();
        self.inner.shared.requests.run(&name, None, work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let inner = &self.inner;
        inner.shared.requests.run(inner.url.name(), Some(&inner.token), work).await
    }
}

impl UploadsInner {
    fn timeout(&self) -> f64 {
        self.shared.requests.options().timeout.as_secs_f64()
    }

    fn failed(&self, error: &object_store::Error) -> RemoteError {
        RemoteError::of_store(self.url.name(), error, self.timeout()).of_writing()
    }

    fn whole(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn MultipartUpload>>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an object: of a directory, that of this name in it.
    ///
    /// # Errors
    /// If the store refuses.
    pub(crate) async fn begin(self: Arc<Self>, name: &str) -> Result<Box<dyn MultipartUpload>> {
        let key = match self.is_directory {
            true => {
                let named = self.naming.get().map(|naming| naming(name));
                let name = named.as_deref().unwrap_or(name);
                format!("{}/{name}", self.url.key.trim_end_matches('/'))
            }
            false => self.url.key.clone(),
        };
        let inner = Arc::clone(&self);
        let work = async move {
            let key = key.trim_start_matches('/');
            let key = Path::parse(key).map_err(|error| inner.failed(&error.into()))?;
            inner.store.put_multipart(&key).await.map_err(|error| inner.failed(&error))
        };
        let upload = self.shared.requests.run(self.url.name(), Some(&self.token), work).await?;
        Ok(Box::new(Writing { uploads: self, upload: Some(upload) }))
    }

    /// Has the store forget parts of an object.
    fn forget(&self, mut upload: Box<dyn MultipartUpload>) {
        let work = async move {
            if let Err(error) = upload.abort().await {
                log::debug!("parts of an object that is not written stay: {error}");
            }
            Ok(())
        };
        // No task waits for it.
        let name = self.url.name();
        if let Err(error) = self.shared.requests.detach(name, work) {
            log::debug!("{error}");
        }
    }
}

impl Drop for UploadsInner {
    fn drop(&mut self) {
        for upload in std::mem::take(&mut *self.whole()) {
            self.forget(upload);
        }
    }
}

/// One object that is being written.
struct Writing {
    uploads: Arc<UploadsInner>,
    upload: Option<Box<dyn MultipartUpload>>,
}

impl fmt::Debug for Writing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Writing({:?})", self.uploads)
    }
}

#[async_trait]
impl MultipartUpload for Writing {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let uploads = Arc::clone(&self.uploads);
        let Some(upload) = &mut self.upload else {
            let error =
                RemoteError::new(uploads.url.name(), Failure::System, "it is whole already");
            return futures::future::ready(Err(of_store(error.of_writing()))).boxed();
        };
        let part = upload.put_part(data);
        let inner = Arc::clone(&uploads);
        let work = async move {
            let _permit = inner.shared.requests.permit().await;
            part.await.map_err(|error| inner.failed(&error))
        };
        let requests = &uploads.shared.requests;
        let sent = requests.run(uploads.url.name(), Some(&uploads.token), work);
        sent.map(|sent| sent.map_err(of_store)).boxed()
    }

    /// The object is whole, and appears with the others.
    async fn complete(&mut self) -> StoreResult<PutResult> {
        if let Some(upload) = self.upload.take() {
            self.uploads.whole().push(upload);
        }
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> StoreResult<()> {
        if let Some(upload) = self.upload.take() {
            self.uploads.forget(upload);
        }
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            self.uploads.forget(upload);
        }
    }
}
