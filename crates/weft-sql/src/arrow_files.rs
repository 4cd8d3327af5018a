//! Arrow files as tables.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use weft_files::FileReader;
use weft_files::arrow_ipc::ArrowFile;

use crate::error::Result;
use crate::files::{FileSet, ReadOptions};
use crate::table::ScanContext;

/// Of the memory limit, the part that one record batch may have.
const BATCH_PART: u64 = 2;

impl FileSet {
    /// Arrow files as a table. `key` names them among what the statement knows of files.
    ///
    /// # Errors
    /// If they cannot be read, or do not go together.
    pub(crate) fn arrow_table(
        &self,
        options: &ReadOptions,
        key: &str,
        context: &ScanContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let limit = context.control.memory_limit().unwrap_or(u64::MAX);
        let files = self.inputs(options).into_iter().map(|input| {
            Ok(Arc::new(ArrowFile::open(input, limit / BATCH_PART)?) as Arc<dyn FileReader>)
        });
        let union = self.union(files.collect::<Result<_>>()?, options)?;
        Ok(self.provider(Arc::new(union), key, context))
    }
}
