//! The schema `pg_catalog` during one statement.

use std::sync::Arc;

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result as DfResult};
use futures::future::BoxFuture;

use crate::catalog::StatementCatalog;
use crate::error::Result;
use crate::postgres::defined::{DEFINED, defined};
use crate::postgres::tables::table;

/// The name of the schema.
pub(crate) const PG_CATALOG: &str = "pg_catalog";

/// The schema during one statement.
#[derive(Debug)]
pub(crate) struct PgCatalog {
    catalog: StatementCatalog,
}

impl PgCatalog {
    pub(crate) fn new(catalog: StatementCatalog) -> PgCatalog {
        PgCatalog { catalog }
    }
}

impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        DEFINED.iter().map(|defined| defined.name.to_owned()).collect()
    }

    // Written out as `async_trait` would, but for the future: see `found` of the catalog.
    fn table<'a, 'b, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, DfResult<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        found(&self.catalog, name)
    }

    fn table_exist(&self, name: &str) -> bool {
        defined(name).is_some()
    }
}

fn found<'a>(
    catalog: &'a StatementCatalog,
    name: &'a str,
) -> BoxFuture<'a, DfResult<Option<Arc<dyn TableProvider>>>> {
    Box::pin(async move { table_named(catalog, name).await.map_err(DataFusionError::from) })
}

/// The table of the catalog of this name.
///
/// # Errors
/// None that are known.
pub(crate) async fn table_named(
    catalog: &StatementCatalog,
    name: &str,
) -> Result<Option<Arc<dyn TableProvider>>> {
    match defined(name) {
        Some(defined) => Ok(Some(Arc::new(table(catalog, defined).await?))),
        None => Ok(None),
    }
}
