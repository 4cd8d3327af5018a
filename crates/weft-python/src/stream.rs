//! Record batches between the languages, through Arrow's C data interface: nothing is copied.

use std::ffi::CStr;

use arrow::array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow::record_batch::RecordBatchReader;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use weft::KeptResult;

use crate::error::of_kind;
use crate::wait::wait;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

fn failed(error: &ArrowError) -> PyErr {
    of_kind("data", &error.to_string())
}

/// The capsule that a method of an object returns.
fn capsule<'py>(object: &Bound<'py, PyAny>, method: &str) -> PyResult<Bound<'py, PyCapsule>> {
    let returned = object.call_method0(method)?;
    let capsule = returned.cast_into::<PyCapsule>();
    capsule.map_err(|_| {
        PyTypeError::new_err(format!("{method} returned something else than a capsule"))
    })
}

/// The stream of an object with the method `__arrow_c_stream__`.
///
/// # Errors
/// What the method raises, and if it returns no stream.
pub(crate) fn reader_of(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let capsule = capsule(object, "__arrow_c_stream__")?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: the capsule is of this name, and so holds a valid stream as the Arrow PyCapsule interface has it; what is
    // moved out of it leaves a released stream behind, which the capsule may destroy. The interpreter is attached, and
    // nobody else reads the capsule, which was made for this call.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
    ArrowArrayStreamReader::try_new(stream).map_err(|error| failed(&error))
}

/// The schema of an object with the method `__arrow_c_schema__`.
///
/// # Errors
/// What the method raises, and if it returns no schema of columns.
pub(crate) fn schema_of(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = capsule(object, "__arrow_c_schema__")?;
    let pointer = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: the capsule is of this name, and so holds a valid schema, which lives as long as the capsule.
    let schema = unsafe { pointer.as_ref() };
    Ok(Schema::try_from(schema).map_err(|error| failed(&error))?.into())
}

/// The array of an object with the method `__arrow_c_array__`.
///
/// # Errors
/// What the method raises, and if it returns no array.
pub(crate) fn array_of(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let returned = object.call_method0("__arrow_c_array__")?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = returned.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let pointer = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: the capsules are of these names, and so hold a valid schema and a valid array. The array is moved out, and
    // leaves a released one behind, which the capsule may destroy.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(pointer.as_ptr());
        from_ffi(array, schema.as_ref())
    };
    Ok(make_array(data.map_err(|error| failed(&error))?))
}

/// The capsules of an array, as `__arrow_c_array__` returns them.
///
/// # Errors
/// If the interface has no such type.
pub(crate) fn array_capsules<'py>(
    py: Python<'py>,
    array: &dyn Array,
) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(|error| failed(&error))?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// The capsules of a batch, as `__arrow_c_array__` returns them.
///
/// # Errors
/// If the interface has no type of a column.
pub(crate) fn batch_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<Bound<'py, PyTuple>> {
    let field = Field::new("", DataType::Struct(batch.schema().fields().clone()), false);
    let schema = FFI_ArrowSchema::try_from(&field).map_err(|error| failed(&error))?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).to_data());
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// The capsule of a schema, as `__arrow_c_schema__` returns it.
///
/// # Errors
/// If the interface has no type of a column.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| failed(&error))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The capsule of a result's batches, as `__arrow_c_stream__` returns it.
///
/// # Errors
/// None that are known.
pub(crate) fn stream_capsule(py: Python<'_>, result: KeptResult) -> PyResult<Bound<'_, PyCapsule>> {
    let schema = result.schema();
    let stream = FFI_ArrowArrayStream::new(Box::new(Batches { result, schema, number: 0 }));
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// The batches of a result for another library, which waits for them on any thread.
struct Batches {
    result: KeptResult,
    schema: SchemaRef,
    number: usize,
}

impl Batches {
    fn wait(&self) -> Result<Option<RecordBatch>, ArrowError> {
        let waited = Python::try_attach(|py| {
            let poll =
                |context: &mut std::task::Context<'_>| self.result.poll_batch(self.number, context);
            wait(py, poll, || self.result.cancel(), |_| Ok(())).inspect_err(|_| {
                // The other library returns an error of its own; the signal is to be heard when it has.
                interrupt(py);
            })
        });
        match waited {
            Some(Ok(Ok(batch))) => Ok(batch),
            Some(Ok(Err(error))) => Err(ArrowError::ExternalError(Box::new(error))),
            Some(Err(_)) => Err(ArrowError::ComputeError("the statement was cancelled".to_owned())),
            None => Err(ArrowError::ComputeError("the interpreter has ended".to_owned())),
        }
    }
}

/// Has the main thread see the signal of Ctrl-C once more.
fn interrupt(py: Python<'_>) {
    let raised = py.import("_thread").and_then(|module| module.call_method0("interrupt_main"));
    if let Err(error) = raised {
        error.write_unraisable(py, None);
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.wait().transpose();
        self.number += usize::from(batch.is_some());
        batch
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
