//! Sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PySequence};
use weft::{Keep, Parameters, SessionFunction, TransactionStatus};

use crate::build::array_of;
use crate::error::{OrRaise, of_kind};
use crate::function::{Code, Style};
use crate::parameter::value_of;
use crate::process::OfProcess;
use crate::relation::Relation;
use crate::statement::Statement;

/// Of the memory limit, the part that a result may keep in memory.
const KEPT_SHARE_DIVISOR: u64 = 4;

/// One conversation with a database.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Session {
    inner: OfProcess<Mutex<Option<weft::Session>>>,
}

impl Session {
    pub(crate) fn new(session: weft::Session) -> Session {
        Session { inner: OfProcess::new(Mutex::new(Some(session))) }
    }

    fn get(&self) -> PyResult<weft::Session> {
        let inner = self.inner.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| of_kind("interface", "the connection is closed"))
    }
}

/// The values of parameters: a list or tuple, or a dict by names.
fn parameters_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Parameters> {
    let Some(given) = given else { return Ok(Parameters::default()) };
    if given.cast::<PyMapping>().is_ok() {
        let given = PyDict::from_sequence(&given.call_method0("items")?)?;
        let named = given.iter().map(|(name, value)| {
            let name: String = name.extract()?;
            let value = value_of(&value).map_err(|error| error.of_parameter(&name))?;
            Ok((name, value))
        });
        return Ok(Parameters::Named(named.collect::<PyResult<_>>()?));
    }
    let is_text = given.is_instance_of::<pyo3::types::PyString>()
        || given.is_instance_of::<pyo3::types::PyBytes>();
    let Ok(given) = given.cast::<PySequence>().map_err(drop).and_then(|given| match is_text {
        true => Err(()),
        false => Ok(given),
    }) else {
        return Err(PyTypeError::new_err(
            "parameters are a list or tuple of values, or a dict of values by names",
        ));
    };
    let values = given.try_iter()?.enumerate().map(|(number, value)| {
        value_of(&value?).map_err(|error| error.of_parameter(&(number + 1).to_string()))
    });
    Ok(Parameters::Positional(values.collect::<PyResult<_>>()?))
}

#[pymethods]
impl Session {
    /// Starts a statement, without waiting for anything.
    #[pyo3(signature = (sql, parameters=None, relations=None, keep=true))]
    fn start(
        &self,
        py: Python<'_>,
        sql: &str,
        parameters: Option<&Bound<'_, PyAny>>,
        relations: Option<HashMap<String, Py<Relation>>>,
        keep: bool,
    ) -> PyResult<Statement> {
        let session = self.get()?;
        let parameters = parameters_of(parameters)?;
        let relations = relations.unwrap_or_default();
        let relations = relations
            .into_iter()
            .map(|(name, relation)| Ok((name, relation.get().inner()?)))
            .collect::<PyResult<HashMap<_, _>>>()?;
        let memory_limit = session.database().stats().memory_limit;
        let keep = match keep {
            true => Keep::All { memory_bytes_max: memory_limit / KEPT_SHARE_DIVISOR },
            false => Keep::Nothing,
        };
        let result = py.detach(|| session.start_kept(sql, &parameters, relations, keep));
        Ok(Statement::new(result))
    }

    /// Has statements find a relation by this name.
    fn register(&self, name: &str, relation: &Relation) -> PyResult<()> {
        self.get()?.register(name, relation.inner()?);
        Ok(())
    }

    /// Has statements find a relation no more; false if there was none of the name.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let session = self.get()?;
        Ok(py.detach(|| session.unregister(name)))
    }

    /// The names of the relations that are registered, in order.
    fn registered(&self) -> PyResult<Vec<String>> {
        let mut names: Vec<String> =
            self.get()?.registered().into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// True if a statement finds a table, view or registered relation by this name.
    fn has_relation(&self, name: &str) -> PyResult<bool> {
        let session = self.get()?;
        Ok(session.has_relation(name)
            || session.registered().iter().any(|(known, _)| known == name))
    }

    /// `idle`, `in transaction` or `failed`.
    fn transaction_status(&self) -> PyResult<&'static str> {
        Ok(match self.get()?.transaction_status() {
            TransactionStatus::Idle => "idle",
            TransactionStatus::InTransaction => "in transaction",
            TransactionStatus::Failed => "failed",
        })
    }

    /// The names of the tables and views, in order.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let session = self.get()?;
        Ok(py.detach(|| session.tables()))
    }

    /// Adds a function. How it is called: `arrow` (with arrays), `native` (with the values of each row), `arrow aggregate` or `aggregate`
    /// (once for each group, with arrays or lists), whether rows with a
    /// NULL among the values are left out, and whether it may give different values for one row.
    fn add_function(
        &self,
        py: Python<'_>,
        name: String,
        code: Py<PyAny>,
        parameters: Vec<String>,
        returns: &str,
        how: (String, bool, bool),
    ) -> PyResult<()> {
        let session = self.get()?;
        let (style, skip_nulls, is_volatile) = how;
        let style = match style.as_str() {
            "arrow" => Style::Arrow,
            "aggregate" => Style::Aggregate { arrow: false, skip_nulls },
            "arrow aggregate" => Style::Aggregate { arrow: true, skip_nulls },
            _ => Style::Native { skip_nulls },
        };
        let is_aggregate = matches!(style, Style::Aggregate { .. });
        let added = py.detach(|| {
            let parameters = parameters.iter().map(|name| session.data_type(name));
            let parameters = parameters.collect::<weft::Result<Vec<_>>>()?;
            let returns = session.data_type(returns)?;
            let code = Arc::new(Code::new(name.clone(), code, style, returns.clone()));
            session.add_function(SessionFunction {
                name,
                parameters,
                returns,
                is_volatile,
                is_aggregate,
                code,
            })
        });
        added.or_raise()
    }

    /// Removes a function that was added; false if there was none of the name.
    fn remove_function(&self, name: &str) -> PyResult<bool> {
        self.get()?.remove_function(name).or_raise()
    }

    /// Cancels the statement that was started last.
    fn cancel(&self) -> PyResult<()> {
        self.get()?.cancel();
        Ok(())
    }

    /// Ends the session: its statements go on, its transaction is rolled back.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        let session = inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| {
            if let Some(session) = session {
                session.roll_back();
            }
        });
        Ok(())
    }
}

/// The relations that a statement names, each as it was written and as the catalog has it.
#[pyfunction]
pub(crate) fn relation_names(sql: &str) -> PyResult<Vec<(String, String)>> {
    weft::relation_names(sql).or_raise()
}

/// An INSERT of the rows of `source` in place of an INSERT of one row; `None` for other statements.
#[pyfunction]
pub(crate) fn insert_of_rows(sql: &str, source: &str) -> PyResult<Option<String>> {
    weft::insert_of_rows(sql, source).or_raise()
}

/// Cuts a script into its statements.
#[pyfunction]
pub(crate) fn split(script: &str) -> PyResult<Vec<String>> {
    let statements = weft::split_statements(script).or_raise()?;
    Ok(statements.into_iter().map(|statement| statement.text).collect())
}

/// A name as SQL has it, in quotes where it needs them.
#[pyfunction]
pub(crate) fn quoted(name: &str) -> String {
    weft::quoted(name)
}

/// Rows of parameters as a relation whose columns are named by the numbers of the parameters; `None` if the values of
/// a parameter have no common type.
pub(crate) fn relation_of_rows(rows: &Bound<'_, PyList>) -> PyResult<Option<weft::Relation>> {
    use arrow::datatypes::{Field, Schema};
    let mut columns: Vec<Vec<weft::Value>> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let Parameters::Positional(values) = parameters_of(Some(&row))? else { return Ok(None) };
        if number == 0 {
            columns = values.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        }
        if values.len() != columns.len() {
            let message = format!(
                "row {} of the parameters has {} values, and the first one has {}",
                number + 1,
                values.len(),
                columns.len(),
            );
            return Err(of_kind("semantic", &message));
        }
        columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }
    let mut arrays = Vec::with_capacity(columns.len());
    for column in &columns {
        let Some(array) = array_of(column) else { return Ok(None) };
        arrays.push(array);
    }
    let fields = arrays.iter().enumerate().map(|(number, array)| {
        Field::new((number + 1).to_string(), array.data_type().clone(), true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let made = arrow::array::RecordBatch::try_new(Arc::clone(&schema), arrays);
    let batch = made.map_err(|error| of_kind("data", &error.to_string()))?;
    weft::Relation::of_batches(schema, vec![batch]).or_raise().map(Some)
}
