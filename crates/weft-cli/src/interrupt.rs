//! Ctrl-C and the signals that end a process. A thread waits for them, so that a running statement
//! hears of it at once, whatever the main thread is doing.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft::CancelHandle;

/// What signals have said, and whom to tell. Cheap to clone.
#[derive(Clone, Default)]
pub struct Interrupts {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The statement that runs.
    running: Mutex<Option<CancelHandle>>,
    /// Ctrl-C has come since this was last asked for.
    interrupted: AtomicBool,
    /// The signal that asked the process to end; 0: none.
    terminated: AtomicI32,
    /// Told when the process is to end, so that the line editor returns.
    wake_editor: Arc<AtomicBool>,
    /// Told of every signal.
    listener: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Interrupts {
    /// Takes over the signals of this process.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn install() -> io::Result<Interrupts> {
        let interrupts = Interrupts::default();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let told = interrupts.clone();
        thread::Builder::new().name("weft-signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                told.hear(signal);
            }
        })?;
        Ok(interrupts)
    }

    fn hear(&self, signal: i32) {
        let shared = &self.shared;
        shared.interrupted.store(true, Ordering::SeqCst);
        if signal != SIGINT {
            shared.terminated.store(signal, Ordering::SeqCst);
            shared.wake_editor.store(true, Ordering::SeqCst);
        }
        if let Some(handle) = &*lock(&shared.running) {
            handle.cancel();
        }
        if let Some(listener) = &*lock(&shared.listener) {
            listener();
        }
    }

    /// From now on, signals cancel what `handle` belongs to, until [`Interrupts::idle`].
    pub fn running(&self, handle: CancelHandle) {
        let mut running = lock(&self.shared.running);
        if self.shared.interrupted.load(Ordering::SeqCst) {
            handle.cancel();
        }
        *running = Some(handle);
    }

    /// Nothing is running any more.
    pub fn idle(&self) {
        *lock(&self.shared.running) = None;
    }

    /// Whether a signal has come since this was last asked.
    pub fn take(&self) -> bool {
        self.shared.interrupted.swap(false, Ordering::SeqCst)
    }

    /// Whether a signal has come that nobody has asked for yet.
    pub fn is_interrupted(&self) -> bool {
        self.shared.interrupted.load(Ordering::SeqCst)
    }

    /// The exit code that is due if the process was asked to end.
    pub fn exit_code(&self) -> Option<u8> {
        match self.shared.terminated.load(Ordering::SeqCst) {
            0 => None,
            signal => u8::try_from(128 + signal).ok(),
        }
    }

    /// Becomes true when the line editor has to return.
    pub fn editor_wake(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.wake_editor)
    }

    /// Calls `listener` after every signal.
    pub fn listen(&self, listener: impl Fn() + Send + 'static) {
        *lock(&self.shared.listener) = Some(Box::new(listener));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
