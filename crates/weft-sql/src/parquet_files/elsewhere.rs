//! The files of a table that are elsewhere, by their places in the store that DataFusion sees.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result as DfResult, exec_datafusion_err};
use datafusion::object_store::path::Path;
use parquet::file::metadata::ParquetMetaData;
use weft_parquet::{ReadError, read_remote_metadata};
use weft_remote::RemoteFile;

use super::footer::Footers;
use crate::error::SqlError;

/// Files elsewhere, which are known as long as the table is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElsewhereFiles {
    files: Arc<HashMap<Path, RemoteFile>>,
}

impl ElsewhereFiles {
    /// These files.
    pub(crate) fn new<'a>(files: impl Iterator<Item = &'a RemoteFile>) -> ElsewhereFiles {
        let by_place = files.map(|file| (file.object().location.clone(), file.clone()));
        ElsewhereFiles { files: Arc::new(by_place.collect()) }
    }

    /// The file at this place.
    pub(crate) fn get(&self, location: &Path) -> Option<&RemoteFile> {
        self.files.get(location)
    }
}

impl Footers {
    /// The footer of a file elsewhere, read if it is not there.
    ///
    /// # Errors
    /// For a file that cannot be read, or is damaged: the message names it.
    pub(super) async fn of_elsewhere(&self, file: &RemoteFile) -> DfResult<Arc<ParquetMetaData>> {
        let object = file.object();
        if let Some(footer) = self.known(object) {
            return Ok(footer);
        }
        let metadata = read_remote_metadata(file).await.map_err(|error| match error {
            ReadError::Remote(source) => DataFusionError::from(SqlError::from(source)),
            other => exec_datafusion_err!("{other}"),
        })?;
        let name = file.name();
        self.add(object, metadata)
            .map_err(|problem| exec_datafusion_err!("cannot read '{name}': {problem}"))
    }
}
