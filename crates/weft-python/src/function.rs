//! Functions whose code is Python's.

use arrow::array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow::compute::{CastOptions, and, cast_with_options, filter, is_not_null};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use weft::{Error, ErrorKind, FunctionCode, Value};

use crate::build;
use crate::calls::Call;
use crate::error::in_words;
use crate::parameter::value_of;
use crate::read::Reader;
use crate::stream::{array_capsules, array_of};

/// Why a function is not called.
const ENDED: &str = "the interpreter has ended";

/// How the code is called.
pub(crate) enum Style {
    /// Once for many rows, with arrays.
    Arrow,
    /// Once for each group, with arrays of its values, or lists of them.
    Aggregate {
        /// With arrays.
        arrow: bool,
        /// Rows with NULL among the values are left out, and a group without rows gets NULL.
        skip_nulls: bool,
    },
    /// Once for each row, with its values.
    Native {
        /// Rows with NULL among the values get NULL.
        skip_nulls: bool,
    },
}

/// The code of a function.
pub(crate) struct Code {
    name: String,
    code: Py<PyAny>,
    style: Style,
    returns: DataType,
}

impl Code {
    pub(crate) fn new(name: String, code: Py<PyAny>, style: Style, returns: DataType) -> Code {
        Code { name, code, style, returns }
    }

    fn failed(&self, why: &str) -> Error {
        Error::new(ErrorKind::Data, format!("the function {} failed: {why}", self.name))
    }

    fn of_values(
        &self,
        py: Python<'_>,
        arguments: &[ArrayRef],
        (rows, skip_nulls): (usize, bool),
        running: &Call,
    ) -> weft::Result<ArrayRef> {
        let raised = |error: PyErr| self.failed(&in_words(py, &error));
        let readers = arguments.iter().map(|argument| Reader::new(py, argument));
        let readers = readers.collect::<PyResult<Vec<_>>>().map_err(raised)?;
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            if running.is_to_end() {
                return Err(self.failed(ENDED));
            }
            if skip_nulls && arguments.iter().any(|argument| argument.is_null(row)) {
                values.push(Value::Null);
                continue;
            }
            let given = readers.iter().map(|reader| reader.value(row));
            let given =
                given.collect::<PyResult<Vec<_>>>().and_then(|given| PyTuple::new(py, given));
            let returned = self.code.bind(py).call1(given.map_err(raised)?).map_err(raised)?;
            values.push(value_of(&returned).map_err(|error| self.failed(&error.in_words(py)))?);
        }
        build::array_of(&values)
            .ok_or_else(|| self.failed("it returned values of types that have nothing in common"))
    }

    fn of_group(
        &self,
        py: Python<'_>,
        arguments: &[ArrayRef],
        arrow: bool,
        skip_nulls: bool,
    ) -> weft::Result<ArrayRef> {
        let raised = |error: PyErr| self.failed(&in_words(py, &error));
        let mut arguments = arguments.to_vec();
        if skip_nulls {
            arguments =
                without_nulls(&arguments).map_err(|error| self.failed(&error.to_string()))?;
            if arguments.first().is_some_and(|argument| argument.is_empty()) {
                return Ok(new_null_array(&self.returns, 1));
            }
        }
        if arrow {
            return self.of_arrays(py, &arguments);
        }
        let lists = arguments.iter().map(|argument| {
            let reader = Reader::new(py, argument)?;
            let values = (0..argument.len()).map(|row| reader.value(row));
            PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
        });
        let given = lists.collect::<PyResult<Vec<_>>>().and_then(|lists| PyTuple::new(py, lists));
        let returned = self.code.bind(py).call1(given.map_err(raised)?).map_err(raised)?;
        let value = value_of(&returned).map_err(|error| self.failed(&error.in_words(py)))?;
        build::array_of(&[value]).ok_or_else(|| self.failed("it returned a value without a type"))
    }

    fn of_arrays(&self, py: Python<'_>, arguments: &[ArrayRef]) -> weft::Result<ArrayRef> {
        let raised = |error: PyErr| self.failed(&in_words(py, &error));
        let call = || -> PyResult<ArrayRef> {
            let given = PyList::empty(py);
            for argument in arguments {
                given.append(array_capsules(py, argument)?)?;
            }
            // The package makes arrays of PyArrow of the capsules, and an array of what the code returns.
            let returned = self.code.bind(py).call1((given,))?;
            array_of(&returned)
        };
        call().map_err(raised)
    }
}

/// The rows of arrays that have no NULL in any of them.
fn without_nulls(arguments: &[ArrayRef]) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut kept: Option<BooleanArray> = None;
    for argument in arguments {
        if argument.logical_null_count() > 0 {
            let valid = is_not_null(argument)?;
            kept = Some(match kept {
                Some(kept) => and(&kept, &valid)?,
                None => valid,
            });
        }
    }
    match kept {
        Some(kept) => arguments.iter().map(|argument| filter(argument, &kept)).collect(),
        None => Ok(arguments.to_vec()),
    }
}

impl FunctionCode for Code {
    fn call(&self, arguments: &[ArrayRef], rows: usize) -> weft::Result<ArrayRef> {
        let Some(running) = Call::begin() else { return Err(self.failed(ENDED)) };
        let called = Python::try_attach(|py| match self.style {
            Style::Arrow => self.of_arrays(py, arguments),
            Style::Aggregate { arrow, skip_nulls } => {
                self.of_group(py, arguments, arrow, skip_nulls)
            }
            Style::Native { skip_nulls } => {
                self.of_values(py, arguments, (rows, skip_nulls), &running)
            }
        });
        drop(running);
        let array = called.unwrap_or_else(|| Err(self.failed(ENDED)))?;
        if *array.data_type() == self.returns {
            return Ok(array);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast = cast_with_options(&array, &self.returns, &options);
        cast.map_err(|error| self.failed(&error.to_string()))
    }
}
