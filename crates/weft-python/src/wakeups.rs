//! How statements wake coroutines of Python: through a pipe that an event loop reads. No thread waits.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;

use crate::process::OfProcess;

/// What statements of one event loop have to say: the keys of waits that are to be looked at.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Wakeups {
    read: OfProcess<UnixStream>,
    shared: Arc<Shared>,
}

struct Shared {
    keys: Mutex<Vec<u64>>,
    write: UnixStream,
}

/// Says that a wait is to be looked at.
struct Wakeup {
    key: u64,
    shared: Arc<Shared>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        let mut keys = self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = keys.is_empty();
        keys.push(self.key);
        drop(keys);
        if is_first {
            // A pipe that is full is read anyway; one whose reader has gone has no loop.
            drop((&self.shared.write).write(&[0]));
        }
    }
}

impl Wakeups {
    /// A waker for the wait with this key.
    pub(crate) fn waker(&self, key: u64) -> Waker {
        Waker::from(Arc::new(Wakeup { key, shared: Arc::clone(&self.shared) }))
    }
}

#[pymethods]
impl Wakeups {
    #[new]
    fn new() -> PyResult<Wakeups> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let shared = Arc::new(Shared { keys: Mutex::default(), write });
        Ok(Wakeups { read: OfProcess::new(read), shared })
    }

    /// The file to be watched for something to read.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.read.get()?.as_raw_fd())
    }

    /// The keys of waits that are to be looked at, each once.
    fn take(&self) -> PyResult<Vec<u64>> {
        let mut buffer = [0; 256];
        let mut read: &UnixStream = self.read.get()?;
        loop {
            match read.read(&mut buffer) {
                Ok(count) if count == buffer.len() => {}
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut keys =
            std::mem::take(&mut *self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner));
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}
