//! Cancellation: one token per query, child tokens for its parts.
//!
//! Asking a token whether it was cancelled is one relaxed load, made at every morsel and every wait.
//! Long waits also await [`CancelToken::cancelled`]; such a future registers itself when it is first
//! polled and is gone from the token when it is dropped.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use crate::sync::lock;
use crate::sync::primitives::{AtomicBool, Mutex, Ordering};
use crate::sync::wake_list::WakeList;

/// Says whether the work that carries it should stop. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    node: Arc<Node>,
}

#[derive(Debug, Default)]
struct Node {
    cancelled: AtomicBool,
    parent: Option<Link>,
    registered: Mutex<Registered>,
}

/// A child's link to its parent, under which the parent knows it.
#[derive(Debug)]
struct Link {
    node: Arc<Node>,
    number: u64,
}

/// Those to tell, by numbers of their own.
#[derive(Debug, Default)]
struct Registered {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
    children: BTreeMap<u64, Weak<Node>>,
}

impl Registered {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl CancelToken {
    /// A token that has not been cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// A token that is cancelled with this one, or by itself.
    pub fn child(&self) -> CancelToken {
        let mut registered = lock(&self.node.registered);
        let number = registered.number();
        let node = Arc::new(Node {
            cancelled: AtomicBool::new(self.is_cancelled()),
            parent: Some(Link { node: Arc::clone(&self.node), number }),
            registered: Mutex::default(),
        });
        registered.children.insert(number, Arc::downgrade(&node));
        CancelToken { node }
    }

    /// Cancels this token and its children, and wakes whoever awaits that.
    pub fn cancel(&self) {
        let mut wakers = WakeList::new();
        let mut nodes = vec![Arc::clone(&self.node)];
        while let Some(node) = nodes.pop() {
            let mut registered = lock(&node.registered);
            // Release: who finds out under the lock or by acquiring sees what came before.
            node.cancelled.store(true, Ordering::Release);
            std::mem::take(&mut registered.wakers)
                .into_values()
                .for_each(|waker| wakers.push(Some(waker)));
            let children = std::mem::take(&mut registered.children);
            drop(registered);
            nodes.extend(children.into_values().filter_map(|child| child.upgrade()));
        }
        wakers.wake_all();
    }

    /// True once the token, or one it descends from, has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.node.cancelled.load(Ordering::Relaxed)
    }

    /// Waits until the token is cancelled.
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled { token: self, number: None }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            lock(&parent.node.registered).children.remove(&parent.number);
        }
    }
}

/// The future of [`CancelToken::cancelled`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Cancelled<'a> {
    token: &'a CancelToken,
    /// Under which its waker is registered.
    number: Option<u64>,
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.token.is_cancelled() {
            return Poll::Ready(());
        }
        // Cloned before the lock is taken; what it replaces is dropped after the lock is released.
        let waker = context.waker().clone();
        let replaced;
        let mut registered = lock(&self.token.node.registered);
        if self.token.is_cancelled() {
            return Poll::Ready(());
        }
        let number = match self.number {
            Some(number) => number,
            None => registered.number(),
        };
        replaced = registered.wakers.insert(number, waker);
        drop(registered);
        drop(replaced);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = lock(&self.token.node.registered).wakers.remove(&number);
            drop(waker);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::sync::block_on;
    use crate::sync::testing::{WakeCount, poll_counted, poll_once};

    #[test]
    fn cancels_clones_and_descendants_and_no_one_else() {
        let token = CancelToken::new();
        let (clone, child, sibling) = (token.clone(), token.child(), token.child());
        let grandchild = child.child();
        child.cancel();
        assert!(child.is_cancelled() && grandchild.is_cancelled());
        assert!(!token.is_cancelled() && !sibling.is_cancelled());
        token.cancel();
        assert!(clone.is_cancelled() && sibling.is_cancelled());
        assert!(token.child().is_cancelled(), "born cancelled");
    }

    #[test]
    fn wakes_those_who_await_it() {
        let token = CancelToken::new();
        let child = token.child();
        let (old, new) = (WakeCount::new(), WakeCount::new());
        let mut cancelled = pin!(child.cancelled());
        assert!(poll_counted(cancelled.as_mut(), &old).is_pending());
        assert!(poll_counted(cancelled.as_mut(), &new).is_pending());
        token.cancel();
        assert_eq!((old.get(), new.get()), (0, 1));
        assert!(poll_once(cancelled).is_ready());
        token.cancel();
        assert_eq!(new.get(), 1);
    }

    #[test]
    fn forgets_futures_and_children_that_have_gone() {
        let token = CancelToken::new();
        let middle = token.child();
        for _ in 0..5_000 {
            assert!(poll_once(pin!(token.cancelled())).is_pending());
            drop(token.child());
            drop(middle.child());
        }
        for node in [&token.node, &middle.node] {
            assert!(lock(&node.registered).wakers.is_empty());
        }
        assert_eq!(lock(&token.node.registered).children.len(), 1);
        let weak = Arc::downgrade(&token.node);
        drop(token);
        assert!(weak.upgrade().is_some(), "kept by its child");
        drop(middle);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn reaches_every_waiter_among_threads() {
        for _ in 0..200 {
            let token = CancelToken::new();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let child = token.child();
                        let _ = poll_once(pin!(token.cancelled()));
                        block_on(child.cancelled());
                    });
                }
                scope.spawn(|| token.cancel());
            });
        }
    }
}
