//! Reads, writes, syncs and allocations: contents, ends of files, errors, faults.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use weft_rt::io::sim::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
use weft_rt::io::{Access, Arena, File, FileError, IoBuf, Recycle};
use weft_rt::{Batch, Boundary, io_stats, yield_now};

use crate::drivers::{Setup, pattern, seeds, setups, within_limit};

const PAGE: usize = 4096;

async fn read(file: &File, offset: u64, len: usize) -> (Result<usize, FileError>, IoBuf) {
    file.read(IoBuf::zeroed(len), offset).await
}

fn filled(bytes: &[u8]) -> IoBuf {
    let mut buffer = IoBuf::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer
}

#[test]
fn what_is_written_is_read() {
    within_limit(|| {
        for seed in seeds("round trip") {
            for setup in setups(seed) {
                let file = setup.file("round trip", &[]);
                let runtime = setup.runtime(2, 16);
                let end = 64 * PAGE;
                let (writer, expected) = (file.clone(), pattern(7, end));
                let content = expected.clone();
                let write = runtime.block_on(move || async move {
                    writer.allocate(0, end as u64).await?;
                    assert_eq!(writer.size()?, end as u64, "an allocation lengthens the file");
                    let (result, zeros) = read(&writer, 0, end).await;
                    assert_eq!(result?, end);
                    assert!(zeros.iter().all(|&byte| byte == 0));
                    let mut pages: Vec<usize> = (0..64).collect();
                    fastrand::Rng::with_seed(seed).shuffle(&mut pages);
                    let mut pages = pages.into_iter();
                    let next = || {
                        let start = pages.next()? * PAGE;
                        let (buffer, writer) = (filled(&content[start..start + PAGE]), &writer);
                        Some(async move {
                            let (result, _) = writer.write(buffer, start as u64).await;
                            assert_eq!(result?, PAGE);
                            Ok::<(), FileError>(())
                        })
                    };
                    Batch::new(16, Boundary::Weak, next).await?;
                    writer.sync().await
                });
                write.unwrap().unwrap();
                let other = runtime.spawn_on(1, move || async move {
                    let (result, buffer) = file.read_exact(IoBuf::zeroed(end), 0).await;
                    result.map(|_| buffer.to_vec())
                });
                assert!(other.wait().unwrap().unwrap() == expected, "{}", setup.name);
            }
        }
    });
}

/// Files whose ends lie on no sector, on a sector of 512 bytes, and on a page.
#[test]
fn the_end_of_a_file() {
    within_limit(|| {
        for setup in setups(3) {
            for len in [10_000, 8192 + 512, 8192, 1, 0] {
                let content = pattern(1, len);
                let file = setup.file(&format!("of {len} bytes"), &content);
                let runtime = setup.runtime(1, 4);
                let name = setup.name;
                let checks = move || async move {
                    let (result, buffer) = read(&file, 0, 16 * PAGE).await;
                    assert_eq!(result.unwrap(), len, "{name}");
                    assert_eq!(&buffer[..len], content, "{name}");
                    for offset in [len.next_multiple_of(PAGE) as u64, 1 << 20, 1 << 50] {
                        let (result, _) = read(&file, offset, PAGE).await;
                        assert_eq!(result.unwrap(), 0, "{name} at {offset}");
                    }
                    let offset = (len / PAGE * PAGE) as u64;
                    let asked = 2 * PAGE;
                    let (result, buffer) = file.read_exact(IoBuf::zeroed(asked), offset).await;
                    assert_eq!(buffer.len(), asked, "the buffer comes back");
                    let error = result.unwrap_err();
                    let FileError::Truncated { path, offset: at, len: of, got } = &error else {
                        panic!("{name}: {error}")
                    };
                    assert_eq!((path.as_path(), *at), (file.path(), offset));
                    assert_eq!((*of, *got), (asked as u64, len as u64 - offset));
                    assert!(error.to_string().contains(&format!("of {len} bytes")), "{error}");
                    assert!(error.to_string().contains(&format!("at offset {offset}")), "{error}");
                };
                runtime.block_on(checks).unwrap();
            }
        }
    });
}

/// Offsets that no file has give an error or nothing, never bytes of another place.
#[test]
fn impossible_offsets() {
    within_limit(|| {
        for setup in setups(4) {
            let file = setup.file("short", &pattern(1, 2 * PAGE));
            let runtime = setup.runtime(1, 4);
            let name = setup.name;
            let checks = move || async move {
                for offset in [u64::MAX, u64::MAX - 4095, 1 << 63, i64::MAX as u64 - 4095] {
                    match read(&file, offset, PAGE).await.0 {
                        Ok(got) => assert_eq!(got, 0, "{name} at {offset}"),
                        Err(FileError::Transfer { offset: at, .. }) => assert_eq!(at, offset),
                        Err(other) => panic!("{name} at {offset}: {other}"),
                    }
                    let (result, _) = file.write(filled(&[1; PAGE]), offset).await;
                    result.expect_err(name);
                    file.allocate(offset, 4096).await.expect_err(name);
                }
                assert_eq!(file.size().unwrap(), 2 * PAGE as u64, "{name}");
            };
            runtime.block_on(checks).unwrap();
        }
    });
}

#[test]
fn errors_name_what_failed_and_where() {
    within_limit(|| {
        for setup in setups(5) {
            let mut file = setup.file("victim", &pattern(1, 8 * PAGE));
            match &setup.disk {
                Some(disk) => {
                    let fails = |kind| FaultRule::nth(kind, 0, Fault::IO);
                    let faults = SimFaults::none().with(fails(Operation::Write));
                    disk.set_faults(faults.with(fails(Operation::Allocate)));
                }
                None => file = File::open(setup.path("victim"), Access::Read).unwrap(),
            }
            let runtime = setup.runtime(1, 4);
            let check = |error: FileError, operation: &str, offset: u64, len: u64| {
                let text = error.to_string();
                let expected = format!("cannot {operation} {len} bytes at offset {offset} of ");
                assert!(text.starts_with(&expected), "{text}");
                assert!(text.contains("victim"), "{text}");
            };
            let errors = runtime.block_on(move || async move {
                let (write, _) = file.write(IoBuf::zeroed(PAGE), 8192).await;
                (write.unwrap_err(), file.allocate(4096, 100 * 4096).await.unwrap_err())
            });
            let (write, allocate) = errors.unwrap();
            check(write, "write", 8192, 4096);
            check(allocate, "allocate", 4096, 100 * 4096);
        }
    });
}

#[test]
fn files_that_cannot_be_opened() {
    let setup = Setup::new("posix", weft_rt::io::DriverKind::Posix, None);
    let missing = File::open(setup.path("missing"), Access::ReadWrite).unwrap_err();
    assert!(missing.to_string().contains("missing for writing"), "{missing}");
    std::fs::write(setup.path("there"), [1]).unwrap();
    let there = File::open(setup.path("there"), Access::Create).unwrap_err();
    assert!(matches!(&there, FileError::Open { source, .. }
        if source.kind() == io::ErrorKind::AlreadyExists));
    for access in [Access::Read, Access::ReadWrite] {
        let directory = File::open(setup.path(""), access).unwrap_err();
        assert!(matches!(directory, FileError::Kind { .. }), "{directory}");
    }
    // Opening a pipe without a writer would wait for one.
    let pipe = setup.path("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    within_limit(move || {
        let error = File::open(pipe, Access::Read).unwrap_err();
        assert!(matches!(error, FileError::Kind { .. }), "{error}");
    });
}

#[test]
fn a_simulated_file_needs_the_sim_driver() {
    within_limit(|| {
        let file = SimDisk::new(SimOptions::testing(1)).create("a", 4096).unwrap();
        for setup in setups(1).into_iter().filter(|setup| setup.disk.is_none()) {
            let file = file.clone();
            let read =
                setup.runtime(1, 1).block_on(move || async move { read(&file, 0, PAGE).await.0 });
            let error = read.unwrap().unwrap_err();
            assert!(error.to_string().contains("sim driver"), "{}: {error}", setup.name);
        }
    });
}

/// Short transfers, interruptions and shortages, a driver that is full all the time: whatever the
/// sizes, the bytes are right.
#[test]
fn faulty_transfers_are_completed() {
    within_limit(|| {
        for seed in seeds("faulty transfers") {
            let mut random = fastrand::Rng::with_seed(seed);
            let chance = |kind, fault| FaultRule::chance(kind, 0.25, fault);
            let mut faults = SimFaults::none();
            for kind in [Operation::Read, Operation::Write, Operation::Sync, Operation::Allocate] {
                faults = faults.with(chance(kind, Fault::INTERRUPTED));
                faults = faults.with(chance(kind, Fault::AGAIN)).with(chance(kind, Fault::Short));
            }
            let options = SimOptions {
                faults,
                in_flight_max: random.usize(1..8),
                ..SimOptions::testing(seed)
            };
            let setup = Setup::sim("faulty", options);
            let len = random.usize(1..200) * 512 + random.usize(0..2) * random.usize(1..512);
            let content = pattern(seed % 1000, len);
            let file = setup.file("faulty", &content);
            let target = setup.file("target", &[]);
            let runtime = setup.runtime(1, 64);
            let copy = runtime.block_on(move || async move {
                let parts = len.div_ceil(3 * PAGE);
                let mut next = 0;
                Batch::new(64, Boundary::Weak, || {
                    let start = next * 3 * PAGE;
                    next += 1;
                    let (file, target, content) = (&file, &target, &content);
                    let part = async move {
                        target.allocate(0, 1).await?;
                        let (result, buffer) = read(file, start as u64, 3 * PAGE).await;
                        let got = result?;
                        let end = len.min(start + 3 * PAGE);
                        assert_eq!(got, end - start, "short at {start} of {len}");
                        assert!(buffer[..got] == content[start..end], "bytes at {start} of {len}");
                        let (result, _) = target.write(buffer, start as u64).await;
                        assert_eq!(result?, 3 * PAGE);
                        target.sync().await
                    };
                    (next <= parts).then_some(part)
                })
                .await?;
                let stats = io_stats();
                assert_eq!((stats.reads, stats.read_bytes), (parts as u64, len as u64));
                assert_eq!(stats.writes, parts as u64);
                let (result, copy) = target.read_exact(IoBuf::zeroed(len), 0).await;
                result?;
                assert!(copy[..] == content, "the copy differs");
                Ok::<(), FileError>(())
            });
            copy.unwrap().unwrap();
        }
    });
}

/// Vectored reads of all shapes, of a driver with faults too: each buffer has its bytes.
#[test]
fn vectored_reads_fill_their_buffers() {
    within_limit(|| {
        for seed in seeds("vectored reads") {
            let chance = |fault| FaultRule::chance(Operation::Read, 0.3, fault);
            let faults = SimFaults::none().with(chance(Fault::Short)).with(chance(Fault::AGAIN));
            let faulty = SimOptions { faults, in_flight_max: 3, ..SimOptions::testing(seed) };
            for setup in setups(seed).into_iter().chain([Setup::sim("faulty", faulty)]) {
                let len = 50 * PAGE + 700;
                let content = pattern(seed % 1000, len);
                let file = setup.file("vectored", &content);
                let mut random = fastrand::Rng::with_seed(seed);
                let reads = setup.runtime(1, 16).block_on(move || async move {
                    let mut count = 0;
                    Batch::new(16, Boundary::Weak, || {
                        count += 1;
                        let start = random.usize(..60) * PAGE;
                        let lens: Vec<_> =
                            (0..random.usize(1..12)).map(|_| random.usize(1..5) * PAGE).collect();
                        let (file, content) = (&file, &content);
                        let part = async move {
                            let buffers = lens.iter().map(|&len| IoBuf::zeroed(len)).collect();
                            let total: usize = lens.iter().sum();
                            let there = total.min(len.saturating_sub(start));
                            let (result, buffers) =
                                file.read_vectored_exact(buffers, start as u64).await;
                            match result {
                                Ok(got) => assert_eq!((got, there), (total, total)),
                                Err(FileError::Truncated { got, .. }) => {
                                    assert_eq!(got as usize, there, "{start} {lens:?}");
                                }
                                Err(error) => return Err(error),
                            }
                            let found: Vec<u8> =
                                buffers.iter().flat_map(|buffer| buffer.to_vec()).collect();
                            assert_eq!(found.len(), total);
                            let expected = &content[start.min(len)..start.min(len) + there];
                            assert!(found[..there] == *expected, "{start} {lens:?}");
                            Ok::<(), FileError>(())
                        };
                        (count <= 200).then_some(part)
                    })
                    .await?;
                    let stats = io_stats();
                    Ok::<u64, FileError>(stats.reads)
                });
                assert_eq!(reads.unwrap().unwrap(), 200, "{}", setup.name);
            }
        }
    });
}

struct Keep(Arc<Arena>);

impl Recycle for Keep {
    fn recycle(&self, ptr: std::ptr::NonNull<u8>, len: usize) {
        assert!(self.0.contains(ptr, len));
    }
}

/// More files and arenas than a ring can register, opened, closed and removed all the time, so that
/// their slots are used again while others' requests are queued.
#[test]
fn many_files_and_arenas_come_and_go() {
    within_limit(|| {
        for seed in seeds("files and arenas") {
            for setup in setups(seed) {
                let runtime = setup.runtime(1, 32);
                let setup = Rc::new(setup);
                for round in 0..3 {
                    let arenas: Vec<_> = (0..70).map(|_| Arena::new(2 << 20).unwrap()).collect();
                    let registered = arenas.iter().filter(|arena| runtime.register(arena)).count();
                    assert!(registered <= 64, "{registered} arenas on {}", setup.name);
                    let files: Vec<_> = (0..100)
                        .map(|at| setup.file(&format!("{round}-{at}"), &pattern(at, 4 * PAGE)))
                        .collect();
                    let reads = runtime.block_on(move || read_at_random(seed, files, arenas));
                    reads.unwrap().unwrap();
                }
            }
        }
    });
}

async fn read_at_random(
    seed: u64,
    files: Vec<File>,
    arenas: Vec<Arc<Arena>>,
) -> Result<(), FileError> {
    let mut files: Vec<_> = files.into_iter().zip(0u64..).collect();
    let mut arenas: Vec<_> = arenas.into_iter().map(|arena| (arena, 0)).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reads = 0;
    Batch::new(32, Boundary::Weak, || {
        reads += 1;
        if reads % 8 == 0 && files.len() > 1 {
            // Closes the file, unless a read still has it.
            files.swap_remove(random.usize(..files.len()));
        }
        let (file, number) = files[random.usize(..files.len())].clone();
        let (arena, used) = &mut arenas[random.usize(..70)];
        let start = *used * PAGE;
        *used += 1;
        let page = random.u64(..4);
        // SAFETY: the page lies in the arena, is used once, and `Keep` keeps the arena mapped.
        let buffer = unsafe {
            let ptr = arena.as_ptr().add(start);
            IoBuf::from_owner(ptr, PAGE, Some(arena.id()), Arc::new(Keep(arena.clone())))
        };
        let part = async move {
            let (result, buffer) = file.read_exact(buffer, page * PAGE as u64).await;
            drop(file);
            result?;
            let start = page as usize * PAGE;
            assert!(buffer[..] == pattern(number, 4 * PAGE)[start..start + PAGE], "file {number}");
            Ok::<(), FileError>(())
        };
        (reads <= 1000).then_some(part)
    })
    .await
}

/// Requests complete while another coroutine is always runnable.
#[test]
fn a_busy_coroutine_does_not_starve_completions() {
    within_limit(|| {
        for setup in setups(6) {
            let file = setup.file("read meanwhile", &pattern(1, 64 * PAGE));
            let runtime = setup.runtime(1, 8);
            let name = setup.name;
            let both = runtime.block_on(move || async move {
                let done = Cell::new(0);
                let mut number = 0;
                Batch::new(9, Boundary::Weak, || {
                    number += 1;
                    let (done, file) = (&done, &file);
                    let part = async move {
                        if number == 1 {
                            while done.get() < 8 {
                                yield_now().await;
                            }
                            return Ok(());
                        }
                        for page in 0..64 {
                            let (result, _) = read(file, page * PAGE as u64, PAGE).await;
                            result?;
                        }
                        done.set(done.get() + 1);
                        Ok::<(), FileError>(())
                    };
                    (number <= 9).then_some(part)
                })
                .await
            });
            both.unwrap().expect(name);
        }
    });
}
