//! The files of statements as one store of the crate `object_store`, for readers and writers that know no other: it has what was found,
//! under places that tell files apart whatever their buckets are, and takes what is being written.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result, coalesce_ranges,
};

use crate::error::RemoteError;
use crate::file::RemoteFile;
use crate::remote::Shared;
use crate::upload::UPLOADS;

/// The address of the store.
pub const STORE_URL: &str = "weft-remote://files";

/// Prefixes of places, as names have them.
const PREFIXES: [&str; 5] = ["s3:/", "gs:/", "az:/", "http:/", "https:/"];

/// The name of the file that has this place in a store: its address, or its path.
pub fn name_of_location(location: &Path) -> String {
    let text = location.as_ref();
    match PREFIXES.iter().find_map(|prefix| Some((prefix, text.strip_prefix(prefix)?))) {
        Some((prefix, rest)) => {
            let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
            format!("{prefix}/{rest}")
        }
        None => format!("/{text}"),
    }
}

/// The store.
#[derive(Debug)]
pub(crate) struct RemoteStore {
    shared: Arc<Shared>,
}

impl RemoteStore {
    pub(crate) fn new(shared: Arc<Shared>) -> RemoteStore {
        RemoteStore { shared }
    }

    fn file(&self, location: &Path) -> Result<RemoteFile> {
        let found = self.shared.file(location).map(RemoteFile::of);
        found.ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: "no statement has found it".into(),
        })
    }
}

impl fmt::Display for RemoteStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("files elsewhere")
    }
}

/// An error as the store has it.
pub(crate) fn of_store(error: RemoteError) -> Error {
    Error::Generic { store: "remote", source: Box::new(error) }
}

fn not_done(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "remote".to_owned() }
}

#[async_trait]
impl ObjectStore for RemoteStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        _: PutOptions,
    ) -> Result<PutResult> {
        let mut upload = self.put_multipart_opts(location, PutMultipartOptions::default()).await?;
        upload.put_part(payload).await?;
        upload.complete().await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let mut parts = location.parts();
        let number = parts.next().and_then(|first| {
            first.as_ref().strip_prefix(UPLOADS).and_then(|text| text.parse().ok())
        });
        let uploads = number.and_then(|number| self.shared.uploads(number));
        let Some(uploads) = uploads else {
            return Err(not_done("to write a file without a statement"));
        };
        let rest: Path = parts.collect();
        uploads.begin(rest.as_ref()).await.map_err(of_store)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let file = self.file(location)?;
        let meta = file.object().clone();
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => range.start..range.end.min(meta.size),
            Some(GetRange::Offset(start)) => *start..meta.size,
            Some(GetRange::Suffix(bytes)) => meta.size.saturating_sub(*bytes)..meta.size,
            None => 0..meta.size,
        };
        let bytes = match options.head {
            true => futures::stream::empty().boxed(),
            false => {
                let read = file.read(range.clone());
                futures::stream::once(read.map(|bytes| bytes.map_err(of_store))).boxed()
            }
        };
        let payload = GetResultPayload::Stream(bytes);
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let file = self.file(location)?;
        let fetch = |range| file.read(range).map(|bytes| bytes.map_err(of_store));
        coalesce_ranges(ranges, fetch, OBJECT_STORE_COALESCE_DEFAULT).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        locations.map(|_| Err(not_done("delete"))).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        futures::stream::once(async { Err(not_done("list")) }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(not_done("list_with_delimiter"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(not_done("copy"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_names_of_their_files() {
        let of = |text: &str| name_of_location(&Path::parse(text).unwrap());
        assert_eq!(of("s3:/b/d/k.parquet"), "s3://b/d/k.parquet");
        assert_eq!(of("https:/h/x.csv#00ff"), "https://h/x.csv");
        assert_eq!(of("tmp/x.parquet"), "/tmp/x.parquet");
    }
}
