//! The coroutine of a probe without an index: keys, order, waits, the end of a round, panics, and what is dropped.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Waker;

use weft_exec::compile::{Compiler, KeyField};
use weft_rt::memory::Ledger;
use weft_store::NO_ROW;

use super::*;
use crate::JitCompiler;

/// What the code has made: keys as bytes, and the numbers of their tuples.
#[derive(Default)]
struct Made {
    key_words: usize,
    keys: RefCell<Vec<Vec<u8>>>,
    numbers: RefCell<Vec<u32>>,
}

/// Takes the keys as they come.
unsafe extern "C" fn take(
    made: *const u8,
    words: *const u64,
    numbers: *const u32,
    count: u64,
    rows_max: *mut u64,
) -> u64 {
    // SAFETY: `round` is a `Made`, and the code has written so many keys and numbers.
    let (made, words, numbers) = unsafe {
        let made = &*made.cast::<Made>();
        let words = std::slice::from_raw_parts(words, count as usize * made.key_words);
        rows_max.write(u64::MAX);
        (made, words, std::slice::from_raw_parts(numbers, count as usize))
    };
    for key in words.chunks(made.key_words) {
        made.keys.borrow_mut().push(key.iter().flat_map(|word| word.to_ne_bytes()).collect());
    }
    made.numbers.borrow_mut().extend_from_slice(numbers);
    count
}

/// Panics.
unsafe extern "C" fn panics(
    _: *const u8,
    _: *const u64,
    _: *const u32,
    _: u64,
    _: *mut u64,
) -> u64 {
    crate::coroutine::note_panic(Box::new("keys without order"));
    ORDER_PANICKED
}

fn functions(shape: &ProbeShape) -> Arc<ProbeFunctions> {
    let compiler = JitCompiler::new(&Ledger::new(1 << 20)).expect("code for this processor");
    assert!(compiler.explain_probe(shape).len() > 20);
    let [ramp, resume] = compiler.made_probe(shape, false).map(|made| made.expect("code").bytes);
    let (pages, starts) = Pages::new(&[&ramp, &resume], &Ledger::new(1 << 20)).expect("pages");
    Arc::new(ProbeFunctions::new(pages, &starts))
}

/// Counts how often it is dropped.
struct Guard<'a>(&'a Cell<usize>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Waits so many times, and says that it only pauses if `pauses`.
async fn wait(mut times: u64, paused: Option<&Cell<bool>>) {
    poll_fn(|_| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        if let Some(paused) = paused {
            paused.set(true);
        }
        Poll::Pending
    })
    .await;
}

fn poll_once(future: Pin<&mut Probing<'_>>) -> Poll<Probed> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Inputs of keys that are made.
fn of_keys(keys: usize, rows_max: usize, paused: &Cell<bool>) -> Inputs<'_> {
    let round = std::ptr::null();
    Inputs {
        tuples: &[],
        first: 0,
        keys: Some(keys),
        key_words: 0,
        rows_max,
        paused,
        order: take,
        round,
    }
}

#[test]
fn keys_are_made_as_the_encoder_makes_them() {
    // A tuple: bits of nulls, then fields of 8, 4, 2 and 1 bytes.
    let tuple = |null: u8, a: i64, b: u32, c: i16, d: i8| {
        let mut bytes = vec![0; 40];
        bytes[16] = null;
        bytes[24..32].copy_from_slice(&a.to_ne_bytes());
        bytes[32..36].copy_from_slice(&b.to_ne_bytes());
        bytes[36..38].copy_from_slice(&c.to_ne_bytes());
        bytes[38] = d as u8;
        bytes
    };
    let tuples = [
        tuple(0, -5, 7, -300, 1),
        tuple(2, 1, 1, 1, 1),
        tuple(0, i64::MAX, u32::MAX, i16::MIN, -128),
        tuple(1, 9, 9, 9, 9),
    ];
    let addresses: Vec<u64> = tuples.iter().map(|tuple| tuple.as_ptr() as u64).collect();
    let field = |offset, bytes, is_signed, null| KeyField {
        offset,
        null,
        bytes,
        is_signed,
        has_null_byte: false,
        is_descending: false,
    };
    let keys = vec![
        KeyField { has_null_byte: true, ..field(24, 8, true, Some((16, 2))) },
        field(32, 4, false, None),
        KeyField { is_descending: true, ..field(36, 2, true, None) },
        field(38, 1, true, None),
    ];
    let shape = ProbeShape { keys: Some(keys) };
    let key_bytes = shape.key_bytes().expect("it makes keys");
    let made = Made { key_words: key_bytes.div_ceil(8), ..Made::default() };
    let (code, paused) = (functions(&shape), Cell::new(false));
    let callee = Callee::new(|number| async move { [1, number * 10] });
    let inputs = Inputs {
        tuples: &addresses,
        first: 0,
        keys: None,
        key_words: made.key_words,
        rows_max: 1,
        paused: &paused,
        order: take,
        round: (&raw const made).cast(),
    };
    let mut probing = pin!(Probing::new(&code, &callee, &inputs));
    let Poll::Ready(probed) = poll_once(probing.as_mut()) else { panic!("nothing waits") };
    assert_eq!((probed.next, &probed.rows[..]), (3, &[[0, 0], [1, 10], [2, 20]][..]));
    // The second tuple has a null.
    assert_eq!(*made.numbers.borrow(), [0, 2, 3]);
    let expected = |a: i64, b: u32, c: i16, d: i8| {
        let mut key = vec![1];
        key.extend_from_slice(&(a as u64 ^ 1 << 63).to_be_bytes());
        key.extend_from_slice(&b.to_be_bytes());
        key.extend_from_slice(&(!(c as u16 ^ 1 << 15)).to_be_bytes());
        key.push(d as u8 ^ 0x80);
        key
    };
    let keys = [
        expected(-5, 7, -300, 1),
        expected(i64::MAX, u32::MAX, i16::MIN, -128),
        expected(9, 9, 9, 9),
    ];
    for (found, expected) in made.keys.borrow().iter().zip(keys) {
        assert_eq!((&found[..key_bytes], expected.len()), (&expected[..], key_bytes));
        assert!(found[key_bytes..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn descents_wait_beside_each_other_and_all_rows_come() {
    let code = functions(&ProbeShape::default());
    for pauses in [false, true] {
        for keys in [0, 1, 7, 32, 33, 128, 300] {
            let (paused, dropped) = (Cell::new(false), Cell::new(0));
            let callee = Callee::new(|number| {
                let (paused, dropped) = (pauses.then_some(&paused), &dropped);
                async move {
                    let _guard = Guard(dropped);
                    wait(number % 3, paused).await;
                    if number % 5 == 0 { [2, NO_ROW] } else { [1, number] }
                }
            });
            let mut polls = 1;
            let mut probing =
                Box::pin(Probing::new(&code, &callee, &of_keys(keys, 1 << 20, &paused)));
            let mut probed = loop {
                match poll_once(probing.as_mut()) {
                    Poll::Ready(probed) => break probed,
                    Poll::Pending => polls += 1,
                }
            };
            probed.rows.sort_unstable();
            let expected = (0..keys as u64).filter(|number| number % 5 > 0);
            assert_eq!(probed.rows, expected.map(|number| [number, number]).collect::<Vec<_>>());
            assert_eq!((probed.next, dropped.get()), (keys, keys));
            // 32 at a time wait for the same poll; who only pauses is polled again at once.
            let most = if pauses { 1 + keys / 128 } else { 3 + 2 * keys / WINDOW };
            assert!(polls <= most, "{polls} polls for {keys} keys");
        }
    }
}

#[test]
fn a_round_ends_where_enough_was_found() {
    let (code, paused) = (functions(&ProbeShape::default()), Cell::new(false));
    let callee = Callee::new(|_| async move { [10, NO_ROW] });
    let mut inputs = of_keys(100, 35, &paused);
    let mut ends = Vec::new();
    while inputs.first < 100 {
        let mut probing = pin!(Probing::new(&code, &callee, &inputs));
        let Poll::Ready(probed) = poll_once(probing.as_mut()) else { panic!("nothing waits") };
        ends.push(probed.next);
        inputs.first = probed.next;
    }
    assert_eq!((ends[0], ends[1], ends.len()), (4, 8, 25));
}

#[test]
fn descents_in_flight_are_dropped_with_the_coroutine() {
    let (code, paused) = (functions(&ProbeShape::default()), Cell::new(false));
    let dropped = Cell::new(0);
    let callee = Callee::new(|number| {
        let dropped = &dropped;
        async move {
            let _guard = Guard(dropped);
            wait(if number < 5 { 0 } else { u64::MAX }, None).await;
            [1, number]
        }
    });
    drop(Probing::new(&code, &callee, &of_keys(100, 100, &paused)));
    assert_eq!(dropped.get(), 0, "it has not begun");
    let mut probing = Box::pin(Probing::new(&code, &callee, &of_keys(100, 100, &paused)));
    assert!(poll_once(probing.as_mut()).is_pending() && poll_once(probing.as_mut()).is_pending());
    assert_eq!(dropped.get(), 5);
    drop(probing);
    assert_eq!(dropped.get(), 5 + WINDOW);
}

#[test]
fn panics_go_around_the_code() {
    let (code, paused) = (functions(&ProbeShape::default()), Cell::new(false));
    let dropped = Cell::new(0);
    let callee = Callee::new(|number| {
        let dropped = &dropped;
        async move {
            let _guard = Guard(dropped);
            wait(1, None).await;
            assert!(number != 3, "key {number} is none");
            [1, number]
        }
    });
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut probing = pin!(Probing::new(&code, &callee, &of_keys(50, 100, &paused)));
        while poll_once(probing.as_mut()).is_pending() {}
    }));
    let panic = result.expect_err("it panics");
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("key 3 is none"));
    let shape = ProbeShape { keys: Some(Vec::new()) };
    let result = catch_unwind(AssertUnwindSafe(|| {
        let inputs = Inputs { keys: None, order: panics, ..of_keys(0, 1, &paused) };
        let code = functions(&shape);
        poll_once(pin!(Probing::new(&code, &callee, &inputs))).is_pending()
    }));
    let panic = result.expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"keys without order"));
    // Three had ended and begun three others; one has panicked; the rest were dropped where they waited.
    assert_eq!(dropped.get(), 3 + 1 + WINDOW - 1);
}
