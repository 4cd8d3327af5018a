//! Requests whose coroutine is gone: the memory stays the device's until the completion.
//!
//! The proof: recycled memory is painted at once and looked at later. A device that still wrote to
//! it would show. Under the simulated clock each recycling is also late enough, and buffers of the
//! heap let the address sanitizer see a simulated device write to freed memory.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use weft_rt::io::sim::{SimDisk, SimOptions};
use weft_rt::io::{Arena, File, FileError, IoBuf, Recycle};
use weft_rt::{Batch, Boundary, MorselError, MorselOptions, Runtime, sleep, yield_now};

use crate::drivers::{Setup, pattern, seeds, setups, within_limit};

const LEN: usize = 8192;
const PAINT: u8 = 0xA5;
const FILE_BYTES: usize = 4 << 20;
/// The shortest latency of `SimOptions::testing`: 80 µs less half.
const LATENCY_MIN: Duration = Duration::from_micros(40);

/// Buffers of one arena, painted while nobody has them.
struct Painted {
    arena: Arc<Arena>,
    count: usize,
    disk: Option<SimDisk>,
    /// Oldest first, so that a late write has time to come.
    free: Mutex<VecDeque<usize>>,
    /// When each buffer's request was begun, by the simulated clock.
    begun: Mutex<Vec<Option<Instant>>>,
    recycled: AtomicU64,
}

impl Painted {
    fn new(count: usize, disk: Option<SimDisk>) -> Arc<Painted> {
        let painted = Arc::new(Painted {
            arena: Arena::new(count * LEN).unwrap(),
            count,
            disk,
            free: Mutex::new((0..count).collect()),
            begun: Mutex::new(vec![None; count]),
            recycled: AtomicU64::new(0),
        });
        (0..count).for_each(|index| painted.paint(index));
        painted
    }

    fn ptr(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.count);
        // SAFETY: the buffer lies in the arena.
        unsafe { self.arena.as_ptr().add(index * LEN) }
    }

    fn paint(&self, index: usize) {
        // SAFETY: called for buffers that nobody has.
        unsafe { self.ptr(index).write_bytes(PAINT, LEN) };
    }

    fn assert_intact(&self, index: usize) {
        // SAFETY: called for free buffers, which nobody has and the devices must not write to.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr(index).as_ptr(), LEN) };
        let wrong = bytes.iter().position(|&byte| byte != PAINT);
        assert_eq!(wrong, None, "buffer {index} was written to after it had been recycled");
    }

    /// A free buffer, to be used for a request that begins now.
    fn take(self: &Arc<Painted>) -> Option<IoBuf> {
        let index = self.free.lock().unwrap().pop_front()?;
        self.assert_intact(index);
        self.begun.lock().unwrap()[index] = self.disk.as_ref().map(SimDisk::now);
        let (ptr, arena) = (self.ptr(index), Some(self.arena.id()));
        // SAFETY: the buffer was free, so nobody has it until it is recycled; `self` keeps the arena.
        Some(unsafe { IoBuf::from_owner(ptr, LEN, arena, self.clone()) })
    }

    /// After the runtime has gone: everything is back, and nothing writes to it any more.
    fn assert_all_back(&self) {
        std::thread::sleep(Duration::from_millis(20));
        let free = self.free.lock().unwrap();
        assert_eq!(free.len(), self.count, "buffers that were never recycled");
        free.iter().for_each(|&index| self.assert_intact(index));
    }
}

impl Recycle for Painted {
    fn recycle(&self, ptr: NonNull<u8>, len: usize) {
        let index = (ptr.as_ptr() as usize - self.arena.as_ptr().as_ptr() as usize) / LEN;
        assert_eq!((ptr, len), (self.ptr(index), LEN));
        let begun = self.begun.lock().unwrap()[index].take();
        if let (Some(begun), Some(disk)) = (begun, &self.disk) {
            let after = disk.now().duration_since(begun);
            assert!(after >= LATENCY_MIN, "recycled after {after:?}, before any completion");
        }
        self.paint(index);
        self.recycled.fetch_add(1, Ordering::Relaxed);
        self.free.lock().unwrap().push_back(index);
    }
}

/// Polls `future` up to `polls` times, then drops it.
async fn give_up_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// Tests the setups whose requests suspend, with a file each, and buffers painted and registered.
/// Returns how many buffers were recycled.
fn suspending(
    seed: u64,
    buffers: usize,
    test: impl Fn(&Setup, Runtime, File, Arc<Painted>),
) -> u64 {
    let mut recycled = 0;
    for setup in setups(seed).into_iter().filter(Setup::suspends) {
        let file = setup.file("abandoned", &pattern(3, FILE_BYTES));
        let runtime = setup.runtime(2, 64);
        let virtual_disk = setup.disk.clone().filter(|_| setup.name == "sim");
        let painted = Painted::new(buffers, virtual_disk);
        runtime.register(&painted.arena);
        test(&setup, runtime, file, painted.clone());
        painted.assert_all_back();
        recycled += painted.recycled.load(Ordering::Relaxed);
    }
    recycled
}

fn offset(random: &mut fastrand::Rng) -> u64 {
    (random.usize(..FILE_BYTES / LEN) * LEN) as u64
}

#[test]
fn dropped_reads_keep_their_buffers() {
    within_limit(|| {
        for seed in seeds("dropped reads") {
            let recycled = suspending(seed, 300, |setup, runtime, file, painted| {
                let reader = painted.clone();
                let read = runtime.block_on(move || async move {
                    let expected = pattern(3, FILE_BYTES);
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut reads = 0;
                    Batch::new(64, Boundary::Weak, || {
                        reads += 1;
                        let (offset, polls) = (offset(&mut random), random.u32(..5));
                        let (file, reader, expected) = (&file, &reader, &expected);
                        let part = async move {
                            let buffer = loop {
                                match reader.take() {
                                    Some(buffer) => break buffer,
                                    None => sleep(Duration::from_micros(5)).await,
                                }
                            };
                            let read = file.read_exact(buffer, offset);
                            if let Some((result, buffer)) = give_up_after(polls, read).await {
                                result?;
                                let start = offset as usize;
                                assert!(buffer[..] == expected[start..start + LEN]);
                            }
                            Ok::<(), FileError>(())
                        };
                        (reads <= 4000).then_some(part)
                    })
                    .await
                });
                read.unwrap().expect(setup.name);
                drop(runtime);
            });
            assert!(recycled > 1000, "{recycled} buffers recycled");
        }
    });
}

#[test]
fn cancelled_morsels_keep_their_buffers() {
    within_limit(|| {
        for seed in seeds("cancelled morsels") {
            let recycled = suspending(seed, 400, |_, runtime, file, painted| {
                for round in 0..10 {
                    let options = MorselOptions::new(64);
                    let (file, painted) = (file.clone(), painted.clone());
                    let run = runtime.run_morsels(
                        &options,
                        |worker| Some(worker as u64),
                        |_| (),
                        move |_, worker| {
                            let (file, painted) = (file.clone(), painted.clone());
                            let mut random = fastrand::Rng::with_seed(seed + worker);
                            async move {
                                loop {
                                    match painted.take() {
                                        Some(buffer) => {
                                            let at = offset(&mut random);
                                            file.read_exact(buffer, at).await.0?;
                                        }
                                        None => yield_now().await,
                                    }
                                }
                                #[expect(unreachable_code, reason = "gives it its type")]
                                Ok::<(), FileError>(())
                            }
                        },
                    );
                    std::thread::sleep(Duration::from_micros(seed % 3000 + round * 100));
                    options.cancel.cancel();
                    assert!(matches!(run.wait(), Err(MorselError::Cancelled)));
                }
                drop(runtime);
            });
            assert!(recycled > 1000, "{recycled} buffers recycled");
        }
    });
}

#[test]
fn a_dropped_runtime_waits_for_its_devices() {
    within_limit(|| {
        for seed in seeds("dropped runtime") {
            let mut recycled = 0;
            for _ in 0..5 {
                recycled += suspending(seed, 500, |_, runtime, file, painted| {
                    let run = runtime.run_morsels(
                        &MorselOptions::new(256),
                        |_| Some(()),
                        |_| (),
                        move |_, ()| {
                            let (file, painted) = (file.clone(), painted.clone());
                            async move {
                                while let Some(buffer) = painted.take() {
                                    file.read_exact(buffer, 0).await.0?;
                                }
                                sleep(Duration::from_secs(1)).await;
                                Ok::<(), FileError>(())
                            }
                        },
                    );
                    std::thread::sleep(Duration::from_micros(seed % 2000));
                    drop(runtime);
                    run.wait().unwrap_err();
                });
            }
            assert!(recycled > 0, "no request was ever begun");
        }
    });
}

/// The same with buffers of the heap, for the address sanitizer.
#[test]
fn dropped_transfers_keep_memory_of_the_heap() {
    within_limit(|| {
        for seed in seeds("memory of the heap") {
            for setup in setups(seed) {
                let file = setup.file("heap", &pattern(3, FILE_BYTES));
                let runtime = setup.runtime(1, 16);
                let mut random = fastrand::Rng::with_seed(seed);
                let transfers = runtime.block_on(move || async move {
                    let mut count = 0;
                    Batch::new(16, Boundary::Weak, || {
                        count += 1;
                        let (at, polls) = (offset(&mut random), random.u32(..3));
                        let (is_write, is_vectored) = (random.bool(), random.bool());
                        let file = &file;
                        let part = async move {
                            if is_vectored {
                                let buffers = vec![IoBuf::zeroed(LEN / 2), IoBuf::zeroed(LEN / 2)];
                                let transfer = file.read_vectored(buffers, at);
                                if let Some((result, _)) = give_up_after(polls, transfer).await {
                                    assert_eq!(result?, LEN);
                                }
                                return Ok(());
                            }
                            let buffer = IoBuf::zeroed(LEN);
                            let transfer = if is_write {
                                file.write(buffer, at)
                            } else {
                                file.read(buffer, at)
                            };
                            if let Some((result, _)) = give_up_after(polls, transfer).await {
                                assert_eq!(result?, LEN);
                            }
                            Ok::<(), FileError>(())
                        };
                        (count <= 1000).then_some(part)
                    })
                    .await
                });
                transfers.unwrap().unwrap();
            }
        }
    });
}

/// Requests that the driver had no room for are abandoned as well.
#[test]
fn dropped_requests_of_the_backlog() {
    within_limit(|| {
        let options = SimOptions { in_flight_max: 4, ..SimOptions::testing(9) };
        let setup = Setup::sim("sim", options);
        let file = setup.file("abandoned", &pattern(3, FILE_BYTES));
        let painted = Painted::new(200, setup.disk.clone());
        let runtime = setup.runtime(1, 64);
        let reader = painted.clone();
        let read = runtime.block_on(move || async move {
            let mut reads = Vec::new();
            while let Some(buffer) = reader.take() {
                reads.push(Box::pin(file.read(buffer, 0)));
            }
            poll_fn(|context| {
                for read in &mut reads {
                    assert!(read.as_mut().poll(context).is_pending());
                }
                Poll::Ready(())
            })
            .await;
            drop(reads.split_off(100));
            for read in reads {
                read.await.0.unwrap();
            }
        });
        read.unwrap();
        drop(runtime);
        painted.assert_all_back();
    });
}
