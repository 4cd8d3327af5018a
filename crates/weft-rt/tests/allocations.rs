//! Coroutines in a batch cost no allocation: neither each, nor each switch.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::io::DriverKind;
use weft_rt::io::{Access, File, IoBuf};
use weft_rt::{Batch, Boundary, Runtime, RuntimeOptions, yield_now};

/// Counts the allocations of all threads.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const COROUTINES: u64 = 100_000;

/// One test, so that no other allocates meanwhile.
#[test]
fn coroutines_of_a_batch_do_not_allocate() {
    let path = std::env::temp_dir().join(format!("weft-allocations-{}", std::process::id()));
    std::fs::write(&path, [1; 4096]).unwrap();
    let file = File::open(&path, Access::Read).unwrap();
    let options = RuntimeOptions { workers: 1, driver: DriverKind::Auto, ..Default::default() };
    let runtime = Runtime::new(&options).unwrap();
    let (switching, reading) = runtime
        .block_on(move || async move {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            switch().await;
            let switching = ALLOCATIONS.load(Ordering::Relaxed) - before;
            // The first requests make room in the tables.
            read(&file, 1000).await;
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            read(&file, 20_000).await;
            (switching, ALLOCATIONS.load(Ordering::Relaxed) - before)
        })
        .unwrap();
    std::fs::remove_file(path).unwrap();
    println!("{switching} allocations for {COROUTINES} coroutines, {reading} for 20,000 reads");
    // The batch itself: slots, bitmaps, a waker per slot.
    assert!(switching < 100, "{switching} allocations for {COROUTINES} coroutines");
    assert!(reading < 300, "{reading} allocations for 20,000 reads");
}

async fn switch() {
    let (mut started, ended) = (0, Cell::new(0));
    Batch::new(64, Boundary::Weak, || {
        started += 1;
        let (number, ended) = (started, &ended);
        let coroutine = async move {
            for _ in 0..number % 4 {
                yield_now().await;
            }
            ended.set(ended.get() + 1);
            Ok::<(), ()>(())
        };
        (started <= COROUTINES).then_some(coroutine)
    })
    .await
    .unwrap();
    assert_eq!(ended.get(), COROUTINES);
}

async fn read(file: &File, reads: u64) {
    let mut buffers: Vec<_> = (0..64).map(|_| Some(IoBuf::zeroed(4096))).collect();
    Batch::new(64, Boundary::Weak, || {
        let mut buffer = buffers.pop()??;
        Some(async move {
            for _ in 0..reads / 64 {
                let (result, same) = file.read(buffer, 0).await;
                result?;
                buffer = same;
            }
            Ok::<(), weft_rt::io::FileError>(())
        })
    })
    .await
    .unwrap();
}
