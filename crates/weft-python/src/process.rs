//! What belongs to the process that made it. A child that was forked has a copy without the threads that serve it: to use
//! it is an error there, and to let go of it does nothing.

use pyo3::prelude::*;

use crate::error::of_kind;

/// A value of the process that made it.
pub(crate) struct OfProcess<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { value: Some(value), process: std::process::id() }
    }

    /// The value.
    ///
    /// # Errors
    /// `InterfaceError` in a child of the process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.process == std::process::id() => Ok(value),
            _ => Err(of_kind(
                "interface",
                "this belongs to a connection that another process has opened, from which this one was forked: \
                 open a connection of its own in each process, after the fork",
            )),
        }
    }
}

impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if self.process != std::process::id() {
            std::mem::forget(value);
            return;
        }
        // To close a database waits for threads, which may wait for the interpreter.
        let mut value = Some(value);
        let dropped = Python::try_attach(|py| {
            let value = value.take();
            py.detach(move || drop(value));
        });
        if dropped.is_none() {
            drop(value);
        }
    }
}
