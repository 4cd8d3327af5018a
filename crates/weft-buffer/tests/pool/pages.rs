//! Pages that tell which page they are, spread over two devices, and a pool over them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use weft_buffer::page::{self, PageHeader};
use weft_buffer::{Devices, PageId, PageTable, StaticPool, SwipState};
use weft_rt::io::File;

use crate::drivers::{Setup, pattern};

pub const BYTES: usize = 4096;
const KIND: u8 = 9;

/// Where page `number` lies: round-robin over the devices, one after the other.
pub fn id(number: usize) -> PageId {
    PageId::new((number % 2) as u8, (number / 2 * BYTES) as u64, BYTES)
}

fn sealed(number: usize) -> Vec<u8> {
    let mut page = pattern(number as u64, BYTES);
    let header = PageHeader { tuple_count: number as u16, kind: KIND, id: id(number) };
    page::seal(&mut page, header);
    page
}

/// Files with `count` pages; `change` may damage each file's bytes.
pub fn files(setup: &Setup, count: usize, change: impl Fn(usize, &mut Vec<u8>)) -> Vec<File> {
    let file = |device: usize| {
        let mut bytes: Vec<u8> =
            (0..count).filter(|number| number % 2 == device).flat_map(sealed).collect();
        change(device, &mut bytes);
        setup.file(&format!("device-{device}"), &bytes)
    };
    vec![file(0), file(1)]
}

pub fn pool_over(files: Vec<File>, count: usize, frames: usize) -> Arc<StaticPool> {
    let table = PageTable::new((0..count).map(id));
    Arc::new(StaticPool::new(Devices::new(files), table, frames).unwrap())
}

/// A pool of `count` sound pages.
pub fn pool(setup: &Setup, count: usize, frames: usize) -> Arc<StaticPool> {
    pool_over(files(setup, count, |_, _| ()), count, frames)
}

/// That these are the bytes of page `number`.
pub fn assert_is(bytes: &[u8], number: usize) {
    let header = page::header(bytes);
    let expected = PageHeader { tuple_count: number as u16, kind: KIND, id: id(number) };
    assert_eq!(header, expected, "page {number}");
    assert!(bytes[16..] == pattern(number as u64, BYTES)[16..], "page {number}");
}

/// When nobody uses the pool: every frame is free, every page that is not permanent is cold.
pub fn assert_at_rest(pool: &StaticPool, permanent: usize) {
    let (frames, free) = pool.frames();
    assert_eq!(free, frames, "frames that were never let go of");
    let cold = |number: &usize| pool.table().swip(*number).state() == SwipState::Cold(id(*number));
    let cold = (0..pool.table().len()).filter(cold).count();
    assert_eq!(cold + permanent, pool.table().len(), "pages that are neither cold nor permanent");
}

/// As the number of polls of [`give_up_after`]: waits to the end, and wakes nobody.
pub const NEVER: u32 = u32::MAX;

/// Polls `future` up to `polls` times, then drops it.
pub async fn give_up_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == NEVER => Poll::Pending,
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}
