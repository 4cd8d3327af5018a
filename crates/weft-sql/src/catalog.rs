//! The catalog as DataFusion sees it, during one statement.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::execution::SessionState;

use crate::files::{FileSet, ReadOptions, looks_like_file};

/// The name of the only catalog.
pub(crate) const CATALOG: &str = "weft";

/// The name of the only schema.
pub(crate) const SCHEMA: &str = "main";

/// The tables, views and files that one statement sees: those of one snapshot.
#[derive(Clone)]
pub(crate) struct StatementCatalog {
    /// The session's state, without a catalog.
    state: Arc<SessionState>,
}

impl StatementCatalog {
    pub(crate) fn new(state: SessionState) -> StatementCatalog {
        StatementCatalog { state: Arc::new(state) }
    }

    /// The session's state with this catalog.
    pub(crate) fn planning_state(&self) -> SessionState {
        let mut state = (*self.state).clone();
        state.register_catalog_list(Arc::new(self.clone()));
        state
    }
}

impl fmt::Debug for StatementCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementCatalog").finish_non_exhaustive()
    }
}

impl CatalogProviderList for StatementCatalog {
    fn register_catalog(
        &self,
        _: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        // There is one catalog: what is offered is handed back.
        Some(catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == SCHEMA).then(|| Arc::new(self.clone()) as Arc<dyn SchemaProvider>)
    }
}

#[async_trait]
impl SchemaProvider for StatementCatalog {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if !looks_like_file(name) {
            return Ok(None);
        }
        let options = ReadOptions::default();
        let files = FileSet::find(name, &options).map_err(DataFusionError::from)?;
        Ok(Some(files.table(&self.state, &options, None).await.map_err(DataFusionError::from)?))
    }

    fn table_exist(&self, _: &str) -> bool {
        false
    }
}
