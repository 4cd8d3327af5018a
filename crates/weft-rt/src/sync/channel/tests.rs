//! Tests of the bounded channel: order, back-pressure, closing, cancellation, threads.

use std::pin::pin;

use super::*;
use crate::sync::testing::{Random, WakeCount, poll_counted, poll_once, seeds};

#[test]
fn holds_its_capacity_and_then_makes_senders_wait() {
    let (sender, mut receiver) = bounded(2);
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(sender.try_send(2), Ok(()));
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    let wakes = WakeCount::new();
    let (mut third, mut fourth) = (pin!(sender.send(3)), pin!(sender.send(4)));
    assert!(poll_counted(third.as_mut(), &wakes).is_pending());
    assert!(poll_once(fourth.as_mut()).is_pending());
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(wakes.get(), 1);
    assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)), "the room is the third's");
    assert_eq!(poll_once(third), Poll::Ready(Ok(())));
    assert_eq!(receiver.blocking_recv(), Some(2));
    assert_eq!(receiver.blocking_recv(), Some(3));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(poll_once(fourth), Poll::Ready(Ok(())));
    assert_eq!(receiver.try_recv(), Ok(4));
}

#[test]
fn a_dropped_send_sends_nothing_and_passes_its_room_on() {
    let (sender, mut receiver) = bounded(1);
    assert_eq!(sender.try_send(0), Ok(()));
    let mut last = pin!(sender.send(3));
    {
        let mut gone_early = pin!(sender.send(1));
        let mut gone_late = Box::pin(sender.send(2));
        assert!(poll_once(gone_late.as_mut()).is_pending());
        assert!(poll_once(gone_early.as_mut()).is_pending());
        assert!(poll_once(last.as_mut()).is_pending());
        assert_eq!(receiver.try_recv(), Ok(0));
        assert!(poll_once(last.as_mut()).is_pending());
        // The room was granted to it; it goes to the next in line, which then leaves too.
        drop(gone_late);
    }
    assert_eq!(poll_once(last), Poll::Ready(Ok(())));
    assert_eq!(receiver.try_recv(), Ok(3));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn a_stream_of_poll_recv_is_woken() {
    let (sender, mut receiver) = bounded(1);
    let (old, new) = (WakeCount::new(), WakeCount::new());
    assert!(receiver.poll_recv(&mut Context::from_waker(&old.waker())).is_pending());
    assert!(receiver.poll_recv(&mut Context::from_waker(&new.waker())).is_pending());
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!((old.get(), new.get()), (0, 1));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(receiver.poll_recv(&mut context), Poll::Ready(Some(1)));
    assert!(receiver.poll_recv(&mut Context::from_waker(&new.waker())).is_pending());
    let other = sender.clone();
    drop(sender);
    assert_eq!(new.get(), 1);
    drop(other);
    assert_eq!(new.get(), 2);
    assert_eq!(receiver.poll_recv(&mut context), Poll::Ready(None));
}

#[test]
fn closing_fails_senders_and_keeps_what_is_in() {
    let (sender, mut receiver) = bounded(1);
    assert_eq!(sender.try_send(1), Ok(()));
    let mut waiting = pin!(sender.send(2));
    assert!(poll_once(waiting.as_mut()).is_pending());
    receiver.close();
    assert!(sender.is_closed());
    assert_eq!(poll_once(waiting), Poll::Ready(Err(SendError(2))));
    assert_eq!(sender.blocking_send(3), Err(SendError(3)));
    assert_eq!(receiver.blocking_recv(), Some(1));
    assert_eq!(receiver.blocking_recv(), None);
}

#[test]
fn a_dropped_receiver_drops_the_values_and_fails_senders() {
    let value = Arc::new(());
    let (sender, receiver) = bounded(1);
    assert!(sender.try_send(Arc::clone(&value)).is_ok());
    let wakes = WakeCount::new();
    let mut waiting = pin!(sender.send(Arc::clone(&value)));
    assert!(poll_counted(waiting.as_mut(), &wakes).is_pending());
    drop(receiver);
    assert_eq!(wakes.get(), 1);
    assert!(matches!(poll_once(waiting), Poll::Ready(Err(SendError(_)))));
    assert!(matches!(sender.try_send(Arc::clone(&value)), Err(TrySendError::Closed(_))));
    assert_eq!(Arc::strong_count(&value), 1);
}

/// Producers of every kind, some giving up at random: all that was sent arrives once and in order.
#[test]
fn everything_arrives_once_and_in_order() {
    const VALUES: u64 = 2_000;
    for seed in seeds("channel order") {
        let (sender, mut receiver) = bounded::<(u64, u64)>(3);
        let producers: Vec<_> = (0..3)
            .map(|producer| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let mut random = Random(seed ^ producer);
                    let mut number = 0;
                    while number < VALUES {
                        let value = (producer, number);
                        let sent = match random.below(3) {
                            0 => sender.try_send(value).is_ok(),
                            1 => sender.blocking_send(value).is_ok(),
                            _ => matches!(poll_once(pin!(sender.send(value))), Poll::Ready(Ok(()))),
                        };
                        number += u64::from(sent);
                    }
                })
            })
            .collect();
        drop(sender);
        let mut next = [0; 3];
        while let Some((producer, number)) = receiver.blocking_recv() {
            assert_eq!(number, next[producer as usize]);
            next[producer as usize] += 1;
        }
        assert_eq!(next, [VALUES; 3]);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
    }
}
