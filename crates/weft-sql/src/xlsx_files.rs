//! Excel workbooks as tables.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use weft_files::FileReader;
use weft_files::xlsx::{XlsxFile, XlsxOptions};

use crate::error::Result;
use crate::files::{FileSet, ReadOptions};
use crate::table::ScanContext;

/// Of the memory limit, the part that the texts of a workbook may have.
const TEXTS_PART: u64 = 4;

impl FileSet {
    /// Workbooks as a table, a sheet of each. `key` names them among what the statement knows of files.
    ///
    /// # Errors
    /// If they cannot be read, or do not go together.
    pub(crate) fn xlsx_table(
        &self,
        options: &ReadOptions,
        key: &str,
        context: &ScanContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let limit = context.control.memory_limit().unwrap_or(u64::MAX);
        let how = XlsxOptions {
            header: options.header,
            all_text: options.csv.all_text,
            ignore_errors: options.csv.ignore_errors,
            ..options.xlsx.clone()
        };
        let files = self.inputs(options).into_iter().map(|input| {
            let file = XlsxFile::open(input, how.clone(), limit / TEXTS_PART)?;
            Ok(Arc::new(file) as Arc<dyn FileReader>)
        });
        let union = self.union(files.collect::<Result<_>>()?, options)?;
        Ok(self.provider(Arc::new(union), key, context))
    }
}
