//! How much memory the process has while something runs, compared with what it may have.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use weft_bench::experiment::memory::allowed_bytes;
use weft_bench::resident;
use weft_rt::memory::heap;

/// The variable that tells the process whose memory to look at, and to do no more.
pub const WATCHED: &str = "WEFT_RESIDENT_WATCHED";

/// How long after a look the next one follows.
const LOOK: Duration = Duration::from_millis(1);

/// Does some work with a database of this memory limit in bytes.
///
/// # Errors
/// Those of the work, or if the process has had more memory than it may have.
pub fn watch(memory_limit: u64, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    // What was there before is not this one's.
    heap::trim(0, 0);
    resident::reset_peak();
    let mut watcher = watcher()?.lock().unwrap_or_else(PoisonError::into_inner);
    watcher.turn()?;
    let result = work();
    let (without_code, peak) = (watcher.turn()?, resident::peak_bytes());
    result?;
    let allowed = allowed_bytes(memory_limit);
    // Code that is not optimized is several times as large as code that is.
    let had = if cfg!(debug_assertions) { without_code } else { peak.unwrap_or(0) };
    match had {
        0 => Err("it is not known how much memory is resident".into()),
        had if had <= allowed => Ok(()),
        had => Err(format!("{had} bytes were resident, and {allowed} may be").into()),
    }
}

/// Another process, which looks at the memory of this one. What it computes is not this one's then: by whether that computes anything
/// a query tells whether to go on waiting for memory.
#[derive(Debug)]
struct Watcher {
    /// It ends when this is closed.
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    _process: Child,
}

impl Watcher {
    fn start() -> io::Result<Watcher> {
        let mut process = Command::new(env::current_exe()?)
            .env(WATCHED, process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ends = process.stdin.take().zip(process.stdout.take());
        let (questions, answers) = ends.expect("both are piped");
        Ok(Watcher { questions, answers: BufReader::new(answers), _process: process })
    }

    /// The most bytes beside its code that the process has had since the last turn; those that come are of the next one.
    fn turn(&mut self) -> Result<u64, Failed> {
        writeln!(self.questions)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }
}

fn watcher() -> Result<&'static Mutex<Watcher>, Failed> {
    static WATCHER: OnceLock<Result<Mutex<Watcher>, String>> = OnceLock::new();
    let start = || Watcher::start().map(Mutex::new).map_err(|error| error.to_string());
    WATCHER.get_or_init(start).as_ref().map_err(|error| error.into())
}

/// Looks at the memory of a process until nobody asks any more, and prints for each line of input the most that it has had since the
/// last one.
pub fn look_at(process: &str) -> io::Result<()> {
    let (sender, questions) = channel();
    thread::spawn(move || {
        for line in io::stdin().lines() {
            if line.is_err() || sender.send(()).is_err() {
                break;
            }
        }
    });
    while let Some(most) = most_until_asked(&format!("/proc/{process}/status"), &questions) {
        println!("{most}");
    }
    Ok(())
}

/// The most that the status of a process tells until there is a question; `None` if there will be none.
fn most_until_asked(status: &str, questions: &Receiver<()>) -> Option<u64> {
    let mut most = 0;
    loop {
        let question = questions.recv_timeout(LOOK);
        // Once at least, and when all is done.
        most = most.max(fs::read_to_string(status).map_or(0, |status| bytes_without_code(&status)));
        match question {
            Ok(()) => return Some(most),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

fn bytes_without_code(status: &str) -> u64 {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map_or(0, |kib| kib * 1024)
    };
    bytes("VmRSS:").saturating_sub(bytes("RssFile:"))
}
