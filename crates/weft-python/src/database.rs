//! Databases.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft::DatabaseOptions;

use crate::error::{OrRaise, of_kind};
use crate::process::OfProcess;
use crate::session::Session;

/// An open database.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Database {
    inner: OfProcess<Mutex<Option<weft::Database>>>,
}

impl Database {
    fn get(&self) -> PyResult<weft::Database> {
        let inner = self.inner.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| of_kind("interface", "the connection is closed"))
    }
}

#[pymethods]
impl Database {
    /// Opens the database in a directory, or creates it; without one, a temporary database.
    #[new]
    #[pyo3(signature = (path, read_only, settings))]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        read_only: bool,
        settings: Vec<(String, String)>,
    ) -> PyResult<Database> {
        let options = DatabaseOptions {
            read_only,
            create: !read_only,
            settings,
            ..DatabaseOptions::default()
        };
        let opened = py.detach(|| match &path {
            Some(path) => weft::Database::open(path, &options),
            None => weft::Database::in_memory(&options),
        });
        Ok(Database { inner: OfProcess::new(Mutex::new(Some(opened.or_raise()?))) })
    }

    /// A new session.
    fn session(&self, py: Python<'_>) -> PyResult<Session> {
        let database = self.get()?;
        Ok(Session::new(py.detach(|| database.session()).or_raise()?))
    }

    /// Closes the database, once its sessions and results are gone.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        let database = inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(database));
        Ok(())
    }

    /// What the database has done and holds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.get()?.stats();
        let dict = PyDict::new(py);
        for (name, value) in [
            ("bytes_read", stats.bytes_read),
            ("bytes_written", stats.bytes_written),
            ("cache_hits", stats.cache_hits),
            ("cache_misses", stats.cache_misses),
            ("memory_used", stats.memory_used),
            ("memory_peak", stats.memory_peak),
            ("memory_limit", stats.memory_limit),
            ("spill_bytes_written", stats.spill_bytes_written),
            ("bytes_on_disk", stats.bytes_on_disk),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}
