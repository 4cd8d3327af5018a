//! The format of Parquet files over sound footers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{SchemaRef, TimeUnit};
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::Session;
use datafusion::common::config::TableParquetOptions;
use datafusion::common::{DataFusionError, Result as DfResult, Statistics, exec_datafusion_err};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::parquet::{
    DefaultParquetFileReaderFactory, Int96Coercer, ParquetFileReaderFactory,
    transform_schema_to_view,
};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ParquetMetaData;

use weft_remote::{RemoteFile, name_of_location};

use super::elsewhere::ElsewhereFiles;
use super::footer::{Footers, about, arrow_schema};
use super::guard::Guarded;
use super::merge::{Described, merged};

/// Footers that are read at once, of the files of a table.
const FOOTERS_AT_ONCE: usize = 32;

/// Timestamps of 96 bits are read in this unit: in nanoseconds they would end in the year 2262.
pub(crate) const INT96_UNIT: TimeUnit = TimeUnit::Microsecond;

/// The format, as DataFusion asks for it.
#[derive(Debug)]
pub(crate) struct ParquetFiles {
    options: TableParquetOptions,
    elsewhere: ElsewhereFiles,
}

impl ParquetFiles {
    /// The format with these options of the session, of a table whose files elsewhere are these.
    pub(crate) fn new(mut options: TableParquetOptions, elsewhere: ElsewhereFiles) -> ParquetFiles {
        options.global.coerce_int96 = Some("us".to_owned());
        ParquetFiles { options, elsewhere }
    }

    async fn footer(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> DfResult<Arc<ParquetMetaData>> {
        match self.elsewhere.get(&object.location) {
            Some(file) => footers(state).of_elsewhere(file).await,
            None => footers(state).of(store, object).await,
        }
    }
}

fn footers(state: &dyn Session) -> Footers {
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    Footers::new(cache, limit_of(state))
}

fn limit_of(state: &dyn Session) -> Option<u64> {
    match state.runtime_env().memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => u64::try_from(bytes).ok(),
        MemoryLimit::Infinite | MemoryLimit::Unknown => None,
    }
}

#[async_trait]
impl FileFormat for ParquetFiles {
    fn get_ext(&self) -> String {
        ParquetFormat::default().get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> DfResult<String> {
        ParquetFormat::default().get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> DfResult<SchemaRef> {
        let mut files = Vec::with_capacity(objects.len());
        let mut footers = Vec::with_capacity(objects.len());
        for some in objects.chunks(FOOTERS_AT_ONCE) {
            let read = some.iter().map(|object| self.footer(state, store, object));
            footers.extend(try_join_all(read).await?);
        }
        for (object, footer) in objects.iter().zip(footers) {
            let name = name_of_location(&object.location);
            let schema = arrow_schema(&footer).map_err(|error| about(&name, &error))?;
            let descriptor = footer.file_metadata().schema_descr();
            let coerced = Int96Coercer::new(descriptor, &schema, &INT96_UNIT).coerce();
            files.push(Described { name, schema: coerced.unwrap_or(schema) });
        }
        let schema = merged(&files).map_err(|problem| exec_datafusion_err!("{problem}"))?;
        Ok(Arc::new(match self.options.global.schema_force_view_types {
            true => transform_schema_to_view(&schema),
            false => schema,
        }))
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> DfResult<Statistics> {
        let footer = self.footer(state, store, object).await?;
        DFParquetMetadata::statistics_from_parquet_metadata(&footer, &table_schema)
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let source = config.file_source().downcast_ref::<Guarded>();
        let source = source.and_then(|guarded| guarded.inner.downcast_ref::<ParquetSource>());
        let Some(source) = source.cloned() else {
            return Err(DataFusionError::Internal("a scan of Parquet has no source".to_owned()));
        };
        let store = state.runtime_env().object_store(config.object_store_url.clone())?;
        let readers = SoundReaders {
            inner: DefaultParquetFileReaderFactory::new(Arc::clone(&store)),
            store,
            footers: footers(state),
            elsewhere: self.elsewhere.clone(),
        };
        let source = source
            .with_table_parquet_options(self.options.clone())
            .with_parquet_file_reader_factory(Arc::new(readers));
        let config = FileScanConfigBuilder::from(config)
            .with_source(Arc::new(Guarded::new(
                Arc::new(source),
                Some(footers(state)),
                self.elsewhere.clone(),
            )))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        let source =
            ParquetSource::new(table_schema).with_table_parquet_options(self.options.clone());
        Arc::new(Guarded::new(Arc::new(source), None, self.elsewhere.clone()))
    }
}

/// Makes readers whose footers are sound.
struct SoundReaders {
    inner: DefaultParquetFileReaderFactory,
    store: Arc<dyn ObjectStore>,
    footers: Footers,
    elsewhere: ElsewhereFiles,
}

impl fmt::Debug for SoundReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SoundReaders")
    }
}

impl ParquetFileReaderFactory for SoundReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        footer_bytes: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> DfResult<Box<dyn AsyncFileReader + Send>> {
        let object = file.object_meta.clone();
        let inner = self.inner.create_reader(partition, file, footer_bytes, metrics)?;
        Ok(Box::new(SoundReader {
            inner,
            elsewhere: self.elsewhere.get(&object.location).cloned(),
            object,
            store: Arc::clone(&self.store),
            footers: self.footers.clone(),
        }))
    }
}

struct SoundReader {
    inner: Box<dyn AsyncFileReader + Send>,
    object: ObjectMeta,
    elsewhere: Option<RemoteFile>,
    store: Arc<dyn ObjectStore>,
    footers: Footers,
}

impl AsyncFileReader for SoundReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.inner.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.inner.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async {
            let found = match &self.elsewhere {
                Some(file) => self.footers.of_elsewhere(file).await,
                None => self.footers.of(&self.store, &self.object).await,
            };
            found.map_err(|error| ParquetError::External(Box::new(error)))
        }
        .boxed()
    }
}
