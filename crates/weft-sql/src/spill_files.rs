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
use weft_exec::spill::{SpillCounts, Spilling};
use weft_rt::Runtime;
use weft_rt::cancel::CancelToken;
use weft_rt::io::IoBuf;
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::progress::Progress;
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
    /// The statement that they are for. (Not its control, which holds the plan, which may hold files.)
    token: CancelToken,
    progress: Arc<Progress>,
    spilled: Arc<SpillCounts>,
}

impl SpillFiles {
    /// Files of one statement, written and read by these workers, with buffers of this budget.
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        ledger: Ledger,
        spilling: Arc<Spilling>,
        control: &Control,
    ) -> SpillFiles {
        let (token, progress) = (control.token.clone(), Arc::clone(&control.progress));
        let spilled = Arc::clone(&control.spilled);
        SpillFiles { runtime, ledger, spilling, token, progress, spilled }
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
        match self.token.is_cancelled() {
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    use datafusion::common::DataFusionError;
    use futures::StreamExt;
    use weft_exec::spill::{SpillCompression, SpillOptions};
    use weft_rt::RuntimeOptions;
    use weft_rt::io::DriverKind;
    use weft_rt::io::sim::{Fault, FaultRule, Operation, SimClock, SimDisk, SimFaults, SimOptions};
    use weft_rt::sync::block_on;
    use weft_store::Directory;
    use weft_store::spill::SpillArea;

    use super::*;
    use crate::error::ErrorKind;

    /// Files on a simulated disk with these faults, in a budget.
    fn files(faults: SimFaults, budget_bytes: u64, compression: &str) -> SpillFiles {
        let options = SimOptions { clock: SimClock::Real, faults, ..SimOptions::testing(1) };
        let disk = SimDisk::new(SimOptions { volatile_writes: false, ..options });
        let driver = DriverKind::Sim(disk.clone());
        let options = RuntimeOptions { workers: 2, driver, ..RuntimeOptions::default() };
        let runtime = Arc::new(Runtime::new(&options).unwrap());
        let area = SpillArea::new(vec![Directory::Sim(disk, "spill".into())], 1 << 30);
        let spilling = Spilling::new(area);
        let compression = SpillCompression::parse(compression).unwrap();
        spilling.set_options(SpillOptions { compression, ..spilling.options() });
        SpillFiles::new(runtime, Ledger::new(budget_bytes), spilling, &Control::default())
    }

    /// Nothing is held any more, as soon as what was on its way has ended.
    fn check_nothing_is_left(files: &SpillFiles) {
        let since = Instant::now();
        while (files.spilling.area().stats().used_bytes, files.ledger.used()) != (0, 0) {
            assert!(since.elapsed() < Duration::from_secs(20), "something is left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_written_comes_back_also_while_more_is_written() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for (budget_bytes, compression) in [(64 << 20, "off"), (1 << 20, "auto"), (4096, "lz4")] {
            let files = files(SimFaults::none(), budget_bytes, compression);
            let file = files.create_temp_file("a test").unwrap();
            let mut writer = file.open_writer().unwrap();
            let mut stream = file.read_stream().unwrap();
            let (mut written, mut read) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                let most = [10, 1_000, 100_000][random.usize(..3)];
                let bytes: Vec<u8> = (0..random.usize(1..most)).map(|_| random.u8(..4)).collect();
                writer.write_all(&bytes).unwrap();
                writer.flush().unwrap();
                written.extend(bytes);
                while random.bool() && read.len() < written.len() {
                    read.extend(block_on(stream.next()).unwrap().unwrap());
                }
            }
            writer.finish().unwrap();
            assert_eq!(file.size(), Some(written.len() as u64));
            while let Some(bytes) = block_on(stream.next()) {
                read.extend(bytes.unwrap());
            }
            assert!(read == written, "{compression}: another file came back");
            let spilled = &files.spilled;
            assert!(spilled.raw_bytes() >= written.len() as u64);
            let is_smaller = spilled.written_bytes() < spilled.raw_bytes();
            assert!(is_smaller || compression != "lz4");
            drop((writer, stream, file));
            check_nothing_is_left(&files);
        }
    }

    #[test]
    fn a_failed_write_is_seen_by_who_writes_and_by_who_reads() {
        let fault = FaultRule::nth(Operation::Write, 2, Fault::IO);
        let files = files(SimFaults::none().with(fault), 64 << 20, "off");
        let file = files.create_temp_file("a test").unwrap();
        let mut writer = file.open_writer().unwrap();
        let failed = (0..20).find_map(|_| writer.write_all(&[7; 60_000]).err());
        let failed = failed.map(DataFusionError::IoError).or_else(|| writer.finish().err());
        assert_eq!(SqlError::from(failed.unwrap()).kind(), ErrorKind::Storage);
        let stream = file.read_stream().unwrap();
        let read = block_on(stream.filter_map(|bytes| async move { bytes.err() }).boxed().next());
        assert_eq!(SqlError::from(read.unwrap()).kind(), ErrorKind::Storage);
        drop((writer, file));
        check_nothing_is_left(&files);
    }

    #[test]
    fn a_cancelled_statement_neither_writes_nor_reads() {
        let files = files(SimFaults::none(), 64 << 20, "off");
        let file = files.create_temp_file("a test").unwrap();
        let mut writer = file.open_writer().unwrap();
        writer.write_all(&[7; 100_000]).unwrap();
        files.token.cancel();
        assert!(writer.write_all(b"more").is_err());
        let read = block_on(file.read_stream().unwrap().next()).unwrap();
        assert_eq!(SqlError::from(read.unwrap_err()).kind(), ErrorKind::Cancelled);
        assert!(files.create_temp_file("another").is_err());
        drop((writer, file));
        check_nothing_is_left(&files);
    }
}
