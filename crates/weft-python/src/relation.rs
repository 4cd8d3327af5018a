//! Tables and readers of other libraries as relations.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatchReader;
use pyo3::prelude::*;
use pyo3::types::PyList;
use weft::{BatchReader, BatchSource, Error, ErrorKind};

use crate::error::{OrRaise, in_words, of_kind};
use crate::process::OfProcess;
use crate::session::relation_of_rows;
use crate::stream::{reader_of, schema_of};

/// Something that SQL can read.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Relation {
    inner: OfProcess<weft::Relation>,
    schema: SchemaRef,
}

impl Relation {
    fn new(relation: weft::Relation) -> Relation {
        let schema = relation.schema();
        Relation { inner: OfProcess::new(relation), schema }
    }

    pub(crate) fn inner(&self) -> PyResult<weft::Relation> {
        self.inner.get().cloned()
    }
}

#[pymethods]
impl Relation {
    /// The rows of an object with the method `__arrow_c_stream__`, which stay where they are.
    #[staticmethod]
    fn in_memory(py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Relation> {
        let reader = reader_of(table)?;
        let schema = reader.schema();
        let batches = py.detach(|| reader.collect::<Result<Vec<_>, _>>());
        let batches = batches.map_err(|error| of_kind("data", &error.to_string()))?;
        Ok(Relation::new(weft::Relation::of_batches(schema, batches).or_raise()?))
    }

    /// What `open` gives, each time that it is called with the names of columns: an object with the method
    /// `__arrow_c_stream__`, which has these columns in this order if it is projected, or all. `schema` is an object with that
    /// method, or with `__arrow_c_schema__`.
    #[staticmethod]
    fn reader(
        schema: &Bound<'_, PyAny>,
        open: Py<PyAny>,
        is_projected: bool,
    ) -> PyResult<Relation> {
        let schema = match schema.hasattr("__arrow_c_schema__")? {
            true => schema_of(schema)?,
            false => reader_of(schema)?.schema(),
        };
        let source = Opened { schema, open, is_projected };
        Ok(Relation::new(weft::Relation::of_source(Arc::new(source)).or_raise()?))
    }

    /// Rows of parameters, with columns named 1, 2 and so on; `None` if the values of a column have no common type.
    #[staticmethod]
    fn of_parameters(rows: &Bound<'_, PyList>) -> PyResult<Option<Relation>> {
        Ok(relation_of_rows(rows)?.map(Relation::new))
    }

    /// The names of the columns.
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }
}

/// A source that Python opens.
struct Opened {
    schema: SchemaRef,
    open: Py<PyAny>,
    /// What is opened has the columns that were asked for, and not all.
    is_projected: bool,
}

impl BatchSource for Opened {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn open(&self, columns: &[usize]) -> weft::Result<BatchReader> {
        let names: Vec<&str> =
            columns.iter().map(|column| self.schema.field(*column).name().as_str()).collect();
        // Not all libraries count rows without columns.
        let is_counted = names.is_empty();
        let first = self.schema.fields().first().map(|field| field.name().as_str());
        let names = if is_counted { first.into_iter().collect() } else { names };
        let opened = Python::try_attach(|py| {
            let stream = self.open.bind(py).call1((names,)).and_then(|opened| reader_of(&opened));
            stream.map_err(|error| Error::new(ErrorKind::Data, in_words(py, &error)))
        });
        let reader = opened.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Cancelled, "the interpreter of Python has ended"))
        })?;
        if !self.is_projected {
            let columns = columns.to_vec();
            return Ok(Box::new(reader.map(move |batch| batch?.project(&columns))));
        }
        Ok(match is_counted {
            false => Box::new(reader),
            true => Box::new(reader.map(|batch| {
                let batch = batch?;
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let schema = Arc::new(arrow::datatypes::Schema::empty());
                RecordBatch::try_new_with_options(schema, Vec::new(), &options)
            })),
        })
    }
}
