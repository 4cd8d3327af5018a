//! One file that is elsewhere, as it was when it was found.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::sync::OnceCell;
use weft_rt::cancel::CancelToken;

use crate::cache::FileKey;
use crate::error::{Failure, RemoteError, Result};
use crate::reader::RemoteReader;
use crate::remote::Shared;
use crate::requests::Pending;
use crate::url::RemoteUrl;
use crate::web::{Answer, Web, WebPage};

/// Bytes of a request, at most: what is longer comes by several at once, as a connection alone is slower than a network.
const PART_BYTES: u64 = 8 << 20;

/// A file that a statement has found. Clones are the same file.
#[derive(Clone)]
pub struct RemoteFile {
    inner: Arc<FileInner>,
    token: Option<CancelToken>,
}

/// What clones of a file share.
pub(crate) struct FileInner {
    pub(crate) shared: Arc<Shared>,
    url: RemoteUrl,
    path: PathBuf,
    origin: Origin,
    /// Its place in the store that DataFusion sees, its size, time and tag.
    object: ObjectMeta,
    /// The version that blocks of the cache are of; `None` of a file that is not kept.
    pub(crate) key: Option<FileKey>,
    /// A page whose server does not know ranges, whole.
    whole: OnceCell<Arc<File>>,
}

/// Where the bytes are.
enum Origin {
    Object { store: Arc<dyn ObjectStore>, key: Path },
    Page { web: Web, page: WebPage },
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RemoteFile({})", self.name())
    }
}

impl PartialEq for RemoteFile {
    fn eq(&self, other: &RemoteFile) -> bool {
        self.inner.object == other.inner.object && self.inner.url == other.inner.url
    }
}

impl Eq for RemoteFile {}

impl RemoteFile {
    /// The file that is known by this place, of no statement.
    pub(crate) fn of(inner: Arc<FileInner>) -> RemoteFile {
        RemoteFile { inner, token: None }
    }

    /// A file of a statement that ends with `token`.
    pub(crate) fn new(inner: FileInner, token: &CancelToken) -> RemoteFile {
        let inner = Arc::new(inner);
        inner.shared.note_file(&inner);
        RemoteFile { inner, token: Some(token.clone()) }
    }

    /// Its address, as messages show it.
    pub fn name(&self) -> &str {
        self.inner.url.name()
    }

    /// The same as a path, whose extension is that of the file.
    pub fn path(&self) -> &std::path::Path {
        &self.inner.path
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.object.size
    }

    /// When it was changed, as far as that is told.
    pub fn modified(&self) -> Option<SystemTime> {
        let modified = SystemTime::from(self.inner.object.last_modified);
        (modified > SystemTime::UNIX_EPOCH).then_some(modified)
    }

    /// Its place in the store under [`crate::STORE_URL`], its size, time and tag.
    pub fn object(&self) -> &ObjectMeta {
        &self.inner.object
    }

    /// Bytes of the file. To be awaited by any executor; dropped, the request is given up.
    ///
    /// # Errors
    /// If there is no connection, the server refuses, or the file has changed.
    pub fn read(
        &self,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static + use<> {
        let inner = Arc::clone(&self.inner);
        let work = async move { inner.fetch(range).await };
        self.inner.shared.requests.run(self.name(), self.token.as_ref(), work)
    }

    /// The whole file as a stream for a thread that blocks.
    pub fn reader(&self) -> RemoteReader {
        RemoteReader::new(self.clone())
    }

    pub(crate) fn begin(&self, range: Range<u64>) -> Result<Pending<Bytes>> {
        let inner = Arc::clone(&self.inner);
        let work = async move { inner.fetch(range).await };
        self.inner.shared.requests.begin(self.name(), self.token.as_ref(), work)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }
}

impl FileInner {
    /// An object of a store.
    pub(crate) fn of_object(
        shared: &Arc<Shared>,
        url: RemoteUrl,
        store: Arc<dyn ObjectStore>,
        meta: ObjectMeta,
    ) -> FileInner {
        let location = location_of(&url);
        let (path, place) = (PathBuf::from(url.name()), meta.location.clone());
        FileInner {
            shared: Arc::clone(shared),
            key: FileKey::of(&url, &meta),
            url,
            path,
            origin: Origin::Object { store, key: place },
            object: ObjectMeta { location, ..meta },
            whole: OnceCell::new(),
        }
    }

    /// A page of a web server. On the threads of requests: a page whose size is not told is fetched as a whole.
    ///
    /// # Errors
    /// If it cannot be had.
    pub(crate) async fn of_page(
        shared: &Arc<Shared>,
        url: RemoteUrl,
        web: Web,
    ) -> Result<FileInner> {
        let page = web.head().await?;
        let object = ObjectMeta {
            location: location_of(&url),
            last_modified: page.modified.unwrap_or_default(),
            size: page.bytes.unwrap_or_default(),
            e_tag: page.e_tag.clone(),
            version: None,
        };
        let path = PathBuf::from(url.name());
        let is_told = page.bytes.is_some();
        let origin = Origin::Page { web: web.clone(), page: page.clone() };
        let whole = OnceCell::new();
        // A page whose size is not told is fetched as a whole by every statement.
        let key = FileKey::of(&url, &object).filter(|_| is_told);
        let shared = Arc::clone(shared);
        let mut inner = FileInner { shared, url, path, origin, object, key, whole };
        if !is_told {
            let Answer::All(bytes) = web.get(&(0..1), &page).await? else {
                let problem = "the server does not tell its size";
                return Err(RemoteError::new(inner.name(), Failure::Server, problem));
            };
            let file = inner.download(bytes).await?;
            let found = file.metadata().map_err(|error| inner.system(&error))?;
            inner.object.size = found.len();
            inner.whole = OnceCell::new_with(Some(file));
        }
        Ok(inner)
    }

    pub(crate) fn location(&self) -> &Path {
        &self.object.location
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        self.object.size
    }

    /// True if all of it is in a temporary file.
    pub(crate) fn is_here(&self) -> bool {
        self.whole.get().is_some()
    }

    pub(crate) fn name(&self) -> &str {
        self.url.name()
    }

    pub(crate) fn system(&self, error: &std::io::Error) -> RemoteError {
        RemoteError::new(self.name(), Failure::System, format!("a temporary file: {error}"))
    }

    /// Bytes of the file. On the threads of requests.
    async fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end > self.object.size {
            let problem = format!("it ends at byte {}, before {}", self.object.size, range.end);
            return Err(RemoteError::new(self.name(), Failure::Changed, problem));
        }
        match self.kept_blocks(&range) {
            Some(kept) => self.fetch_through(kept, range).await,
            None => self.fetch_remote(range).await,
        }
    }

    /// Bytes of the file, from where it is. On the threads of requests.
    pub(crate) async fn fetch_remote(&self, range: Range<u64>) -> Result<Bytes> {
        if range.end - range.start <= PART_BYTES {
            return self.fetch_part(range).await;
        }
        let count = (range.end - range.start).div_ceil(PART_BYTES);
        let bytes = (range.end - range.start).div_ceil(count);
        let parts = (0..count).map(|number| {
            let start = range.start + number * bytes;
            self.fetch_part(start..(start + bytes).min(range.end))
        });
        let parts = try_join_all(parts).await?;
        let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
        parts.iter().for_each(|part| all.extend_from_slice(part));
        Ok(all.freeze())
    }

    async fn fetch_part(&self, range: Range<u64>) -> Result<Bytes> {
        if let Some(file) = self.whole.get() {
            return self.read_whole(Arc::clone(file), range).await;
        }
        let permit = self.shared.requests.permit().await;
        let bytes = match &self.origin {
            Origin::Object { store, key } => self.fetch_object(store, key, &range).await?,
            Origin::Page { web, page } => match web.get(&range, page).await? {
                Answer::Part(bytes) => bytes,
                Answer::All(bytes) => {
                    drop(permit);
                    let file = self.whole_of(bytes).await?;
                    return self.read_whole(file, range).await;
                }
            },
        };
        self.shared.cache.note_network(bytes.len() as u64);
        Ok(bytes)
    }

    async fn fetch_object(
        &self,
        store: &Arc<dyn ObjectStore>,
        key: &Path,
        range: &Range<u64>,
    ) -> Result<Bytes> {
        let timeout = self.shared.requests.options().timeout.as_secs_f64();
        let failed =
            |error: object_store::Error| RemoteError::of_store(self.name(), &error, timeout);
        let tag = self.object.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: tag,
            ..GetOptions::default()
        };
        let result = store.get_opts(key, options).await.map_err(failed)?;
        let bytes = result.bytes().await.map_err(failed)?;
        if bytes.len() as u64 != range.end - range.start {
            let told = range.end - range.start;
            let problem = format!("the server sent {} of {told} bytes", bytes.len());
            return Err(RemoteError::new(self.name(), Failure::Server, problem));
        }
        Ok(bytes)
    }

    /// Puts all bytes of a page into a file without a name.
    async fn download(&self, mut bytes: BoxStream<'static, Result<Bytes>>) -> Result<Arc<File>> {
        log::info!(
            "the server of '{}' does not know ranges: it is fetched as a whole",
            self.name()
        );
        let failed = |error: std::io::Error| self.system(&error);
        let number = self.shared.next_number();
        let name = format!(".weft-remote-{}-{number}", std::process::id());
        let path = self.shared.directory.join(name);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        std::fs::remove_file(&path).map_err(failed)?;
        let mut length = 0;
        while let Some(more) = bytes.next().await {
            let more = more?;
            length += more.len() as u64;
            self.shared.cache.note_network(more.len() as u64);
            // A few kilobytes into the system's cache.
            file.write_all(&more).map_err(failed)?;
        }
        let is_told = matches!(&self.origin, Origin::Page { page, .. } if page.bytes.is_some());
        if is_told && length != self.object.size {
            let problem = format!("the server sent {length} of {} bytes", self.object.size);
            return Err(RemoteError::new(self.name(), Failure::Server, problem));
        }
        Ok(Arc::new(file))
    }

    /// The file of all bytes of a page, of which the first one to ask has these.
    async fn whole_of(&self, bytes: BoxStream<'static, Result<Bytes>>) -> Result<Arc<File>> {
        let file = self.whole.get_or_try_init(|| self.download(bytes)).await?;
        Ok(Arc::clone(file))
    }

    async fn read_whole(&self, file: Arc<File>, range: Range<u64>) -> Result<Bytes> {
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).map(|()| Bytes::from(bytes))
        });
        let read = read.await.map_err(|error| self.system(&std::io::Error::other(error)))?;
        read.map_err(|error| self.system(&error))
    }
}

/// What a store tells of an object; if that is refused, with the reason that only the answer to a request for bytes has.
///
/// # Errors
/// Why it cannot be read.
pub(crate) async fn head(
    url: &RemoteUrl,
    store: &Arc<dyn ObjectStore>,
    timeout: f64,
) -> Result<ObjectMeta> {
    let failed = |error: &object_store::Error| RemoteError::of_store(url.name(), error, timeout);
    let key = Path::parse(&url.key).map_err(|error| failed(&error.into()))?;
    let error = match store.head(&key).await {
        Ok(meta) => return Ok(meta),
        Err(error) => failed(&error),
    };
    let may_be_told = matches!(
        error.failure(),
        Failure::Denied | Failure::NotFound | Failure::Region | Failure::Server
    );
    if may_be_told && let Err(told) = store.get_range(&key, 0..1).await {
        return Err(failed(&told));
    }
    Err(error)
}

/// The place of a file in the store that DataFusion sees: the parts of its name, and a number where these are not all of it.
fn location_of(url: &RemoteUrl) -> Path {
    let (scheme, rest) = url.name().split_once("://").unwrap_or(("", url.name()));
    let parts = rest.split('/').filter(|part| !part.is_empty() && *part != "." && *part != "..");
    let plain = std::iter::once(format!("{scheme}:")).chain(parts.map(str::to_owned));
    let plain = plain.collect::<Vec<_>>().join("/");
    let is_all = url.web.as_ref().is_none_or(|web| web.query().is_none())
        && plain.len() == url.name().len() - 1;
    let text = match is_all {
        true => plain,
        false => {
            let mut hasher = DefaultHasher::new();
            url.name().hash(&mut hasher);
            url.web.as_ref().and_then(|web| web.query()).hash(&mut hasher);
            format!("{plain}#{:016x}", hasher.finish())
        }
    };
    Path::parse(&text).unwrap_or_else(|_| Path::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_tell_files_apart() {
        let of = |name: &str| location_of(&RemoteUrl::parse(name).unwrap()).to_string();
        assert_eq!(of("s3://b/d/k.parquet"), "s3:/b/d/k.parquet");
        let signed = ["https://h/x.csv", "https://h/x.csv?a=1", "https://h/x.csv?a=2"].map(of);
        assert!(signed[0] != signed[1] && signed[1] != signed[2] && !signed[1].contains("a=1"));
    }
}
