//! Runs one statement and writes its result, with the progress bar meanwhile.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use arrow::array::RecordBatch;
use futures::Stream;
use weft::{ErrorKind, QueryResult, ResultKind};

use super::Shell;
use crate::error::ShellError;
use crate::output::{self, units};
use crate::progress::Progress;
use crate::sql::encoding::problem;

impl Shell {
    /// Runs one statement and writes its rows.
    ///
    /// # Errors
    /// What the database says, or if the result cannot be written; [`ShellError::Interrupted`] after
    /// Ctrl-C.
    pub fn run_statement(&mut self, sql: &str) -> Result<(), ShellError> {
        if let Some(problem) = problem(sql) {
            return Err(ShellError::Command(problem));
        }
        let started = Instant::now();
        let mut result = self.session().start(sql, &[]);
        self.interrupts.running(result.cancel_handle());
        let written = match self.write_result(&mut result) {
            // Whoever reads the results has had enough of this one.
            Err(ShellError::OutputClosed) if self.target.is_pipe_closed() => Ok(()),
            written => written,
        };
        let bytes_read = result.progress().bytes_read;
        drop(result);
        self.interrupts.idle();
        let flushed = self.target.end_result();
        match written {
            Err(ShellError::Database(error)) if error.kind() == ErrorKind::Cancelled => {
                return Err(ShellError::Interrupted);
            }
            other => other?,
        }
        flushed?;
        if self.settings.timer {
            let seconds = started.elapsed().as_secs_f64();
            self.say(&format!("Run time: {seconds:.3} s, {} read", units::bytes(bytes_read)));
        }
        Ok(())
    }

    fn write_result(&mut self, result: &mut QueryResult) -> Result<(), ShellError> {
        let mut progress = Progress::start(self.settings.progress);
        let shared_terminal = self.target.is_terminal();
        let mut style = self.settings.style.clone();
        style.max_width = self.table_width();
        style.colors &= shared_terminal;
        let mut renderer = None;
        while let Some(batch) = next_batch(result, &mut progress)? {
            let renderer =
                renderer.get_or_insert_with(|| output::renderer(result.schema(), &style));
            if shared_terminal && renderer.streams() {
                progress.end();
            }
            renderer.batch(&batch, &mut self.target)?;
            progress.draw(&result.progress());
        }
        progress.end();
        match result.kind() {
            ResultKind::Rows => renderer
                .unwrap_or_else(|| output::renderer(result.schema(), &style))
                .finish(&mut self.target),
            ResultKind::Command { tag, rows_affected } => self.write_command(tag, rows_affected),
        }
    }

    fn write_command(&mut self, tag: &str, rows: Option<u64>) -> Result<(), ShellError> {
        if self.settings.changes {
            match rows {
                Some(rows) => writeln!(self.target, "{tag}: {}", units::counted(rows, "row"))?,
                None => writeln!(self.target, "{tag}")?,
            }
        }
        Ok(())
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for the next batch, and draws the progress bar while there is none.
fn next_batch(
    result: &mut QueryResult,
    progress: &mut Progress,
) -> Result<Option<RecordBatch>, ShellError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut *result).poll_next(&mut context) {
            Poll::Ready(batch) => return Ok(batch.transpose()?),
            Poll::Pending => thread::park_timeout(progress.wait()),
        }
        progress.draw(&result.progress());
    }
}
