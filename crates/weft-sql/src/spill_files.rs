//! DataFusion's operators spill to Weft's spill area (`weft_store::spill`), as pipelines do: there is one quota for all, one
//! limit of bandwidth, one setting of compression, and nothing that a process could leave behind.
//!
//! What DataFusion takes for a file is a list of pieces of the area (`piece`). It writes bytes on threads of its own, by calls that
//! block (`writer`): they are gathered into pieces, which the runtime's workers compress and write, a few at a time; who writes
//! faster than the device waits, and never on a worker. The workers also read pieces, some ahead of their use (`reader`).
//! Buffers are reserved in the ledger. If it has nothing for one who has nothing on its way, a small buffer is taken without:
//! whoever spills must be able to go on.
//!
//! A statement has a factory of its own, in an environment of its own ([`task_context`]), which counts what it spills and stops it
//! when it is cancelled.

mod piece;
mod reader;
mod writer;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result as DfResult;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SpillFile, SpillWriter, TaskContext, TempFileFactory};
use futures::Stream;
use weft_exec::spill::Spilling;
use weft_rt::Runtime;
use weft_rt::io::IoBuf;
use weft_rt::memory::{Ledger, Reservation};
use weft_store::spill::HEADER_BYTES;

use crate::control::Control;
use crate::error::{Result, SqlError};
use crate::statement_option::{StatementOption, Told};
use piece::{Ending, Piece};
use reader::Reader;
use writer::Writer;

/// Bytes of a piece with its header, and of one that nothing could be reserved for.
const PIECE_BYTES: usize = 64 << 10;
const SMALL_PIECE_BYTES: usize = 16 << 10;

/// The area has pieces of multiples of this.
const UNIT_BYTES: usize = 4 << 10;

/// Makes the files that operators spill to.
#[derive(Clone)]
pub(crate) struct SpillFiles {
    runtime: Arc<Runtime>,
    ledger: Ledger,
    spilling: Arc<Spilling>,
    /// The statement that they are for.
    control: Arc<Control>,
}

impl SpillFiles {
    /// Files of one statement, written and read by these workers, with buffers of this budget.
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        ledger: Ledger,
        spilling: Arc<Spilling>,
        control: Arc<Control>,
    ) -> SpillFiles {
        SpillFiles { runtime, ledger, spilling, control }
    }

    /// An environment in which operators spill to such files.
    ///
    /// # Errors
    /// None that are known.
    pub(crate) fn environment(self, of: &RuntimeEnv) -> Result<Arc<RuntimeEnv>> {
        let builder = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(self));
        let disk_manager = Arc::new(builder.build()?);
        Ok(Arc::new(RuntimeEnv { disk_manager, ..of.clone() }))
    }

    /// # Errors
    /// If the statement was cancelled.
    fn check(&self) -> Result<()> {
        match self.control.token.is_cancelled() {
            true => Err(SqlError::cancelled()),
            false => Ok(()),
        }
    }
}

impl TempFileFactory for SpillFiles {
    fn create_temp_file(&self, _: &str) -> DfResult<Arc<dyn SpillFile>> {
        self.check()?;
        Ok(Arc::new(AreaFile { files: self.clone(), content: Arc::default() }))
    }
}

/// The environment of one statement, among its options.
#[derive(Clone, Debug)]
pub(crate) struct StatementEnvironment(pub(crate) Arc<RuntimeEnv>);

impl Told for StatementEnvironment {
    const NAME: &'static str = "weft_environment";
}

/// What a plan of the statement is executed in.
pub(crate) fn task_context(state: &SessionState) -> Arc<TaskContext> {
    let options = &state.config_options().extensions;
    let context = TaskContext::from(state);
    Arc::new(match options.get::<StatementOption<StatementEnvironment>>() {
        Some(StatementOption(StatementEnvironment(environment))) => {
            context.with_runtime(Arc::clone(environment))
        }
        None => context,
    })
}

/// A list of pieces in the spill area.
struct AreaFile {
    files: SpillFiles,
    content: Arc<Mutex<Content>>,
}

/// What was written to a file.
#[derive(Debug, Default)]
struct Content {
    /// Pieces on disk, or on their way there.
    pieces: Vec<Arc<Piece>>,
    /// What comes after them.
    tail: Option<Tail>,
    bytes: u64,
}

impl Content {
    /// What was the tail becomes a piece, which is to be written: whoever reads finds it in one place or the other.
    fn seal(&mut self) -> Option<Sealed> {
        let Tail { mut buffer, end, memory } = self.tail.take()?;
        buffer.truncate(end.next_multiple_of(UNIT_BYTES));
        let (piece, ending) = Piece::new(end - HEADER_BYTES);
        self.pieces.push(Arc::clone(&piece));
        Some(Sealed { buffer, memory, piece, ending })
    }
}

/// A piece that is to be written.
struct Sealed {
    buffer: IoBuf,
    memory: Option<Reservation>,
    piece: Arc<Piece>,
    ending: Ending,
}

fn lock(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A piece that is not full.
#[derive(Debug)]
struct Tail {
    buffer: IoBuf,
    /// Where the next byte goes.
    end: usize,
    memory: Option<Reservation>,
}

impl Tail {
    /// An empty piece of so many bytes with its header.
    fn new(bytes: usize, memory: Option<Reservation>) -> Tail {
        Tail { buffer: IoBuf::zeroed(bytes), end: HEADER_BYTES, memory }
    }

    /// Adds as many of these bytes as there is room for; how many.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.buffer[self.end..];
        let added = bytes.len().min(room.len());
        room[..added].copy_from_slice(&bytes[..added]);
        self.end += added;
        added
    }

    fn is_full(&self) -> bool {
        self.end == self.buffer.len()
    }

    fn written(&self) -> &[u8] {
        &self.buffer[HEADER_BYTES..self.end]
    }
}

impl SpillFile for AreaFile {
    fn size(&self) -> Option<u64> {
        Some(lock(&self.content).bytes)
    }

    fn read_stream(&self) -> DfResult<Pin<Box<dyn Stream<Item = DfResult<bytes::Bytes>> + Send>>> {
        Ok(Reader::new(self.files.clone(), Arc::clone(&self.content)).into_stream())
    }

    fn open_writer(&self) -> DfResult<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer::new(self.files.clone(), Arc::clone(&self.content))))
    }
}
