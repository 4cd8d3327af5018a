//! The intrusive first-in-first-out list of parked coroutines behind each bucket of the parking lot.
//!
//! A node lies inside the future that waits, so that waiting allocates nothing. Once a node has been
//! linked, it is touched only under the lock of its bucket, until its owner has seen it unlinked.

use std::ptr::NonNull;
use std::task::Waker;

/// A node, or the end of the list.
type Link = Option<NonNull<Node>>;

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// In a list, or never linked yet.
    Waiting,
    /// Taken out by somebody else; `alone` if it was meant to be the only one woken.
    Unparked {
        /// Whether the wake-up has to reach another waiter if this one has gone away.
        alone: bool,
    },
}

/// One parked coroutine.
#[derive(Debug)]
pub(super) struct Node {
    key: usize,
    tag: usize,
    state: NodeState,
    waker: Option<Waker>,
    previous: Link,
    next: Link,
}

impl Node {
    /// A node that is in no list.
    pub(super) const fn new(key: usize, tag: usize) -> Node {
        let state = NodeState::Waiting;
        Node { key, tag, state, waker: None, previous: None, next: None }
    }
}

/// The waiters of one bucket, of all keys that fall into it, oldest first.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    head: Link,
    tail: Link,
}

// SAFETY: the list only points to nodes; whoever linked them has promised (`push_back`) that they are
// touched only by the one who has access to this queue, on whatever thread that is. What the nodes own
// (wakers) may be used on any thread.
unsafe impl Send for WaitQueue {}

impl WaitQueue {
    /// Links `node` at the end, with the waker to call when it is unparked.
    ///
    /// # Safety
    /// `node` is valid and in no list. Until it has been unlinked (by [`WaitQueue::remove`], or by
    /// [`WaitQueue::unpark_while`], which shows in [`WaitQueue::state`]), it stays where it is and is
    /// reached only through this queue.
    pub(super) unsafe fn push_back(&mut self, mut node: NonNull<Node>, waker: Waker) {
        // SAFETY: the caller promises that the node is valid and nobody else's.
        let fields = unsafe { node.as_mut() };
        fields.waker = Some(waker);
        fields.previous = self.tail;
        fields.next = None;
        match self.tail {
            // SAFETY: linked nodes are valid, and ours alone to touch.
            Some(mut tail) => unsafe { tail.as_mut().next = Some(node) },
            None => self.head = Some(node),
        }
        self.tail = Some(node);
    }

    /// Takes `node` out of the list and gives back its waker.
    ///
    /// # Safety
    /// `node` is linked in this queue.
    pub(super) unsafe fn remove(&mut self, mut node: NonNull<Node>) -> Option<Waker> {
        // SAFETY: linked nodes are valid, and ours alone to touch.
        let fields = unsafe { node.as_mut() };
        let (previous, next) = (fields.previous.take(), fields.next.take());
        let waker = fields.waker.take();
        match previous {
            // SAFETY: as above; it is another node than `node`.
            Some(mut previous) => unsafe { previous.as_mut().next = next },
            None => self.head = next,
        }
        match next {
            // SAFETY: as above.
            Some(mut next) => unsafe { next.as_mut().previous = previous },
            None => self.tail = previous,
        }
        waker
    }

    /// The state of `node`.
    ///
    /// # Safety
    /// `node` is linked in this queue, or was and has been unparked.
    pub(super) unsafe fn state(&self, node: NonNull<Node>) -> NodeState {
        // SAFETY: its owner keeps it valid, and only who has access to this queue touches it.
        unsafe { node.as_ref() }.state
    }

    /// Has the linked `node` call `waker` from now on; leaves the one before in it.
    ///
    /// # Safety
    /// `node` is linked in this queue.
    pub(super) unsafe fn replace_waker(&mut self, mut node: NonNull<Node>, waker: &mut Waker) {
        // SAFETY: linked nodes are valid, and ours alone to touch.
        if let Some(old) = unsafe { &mut node.as_mut().waker } {
            std::mem::swap(old, waker);
        }
    }

    /// Goes through the waiters of `key`, oldest first, and unparks each whose tag `decide` accepts, up
    /// to the first that it does not. Returns true if one was not accepted; `each` gets the wakers.
    pub(super) fn unpark_while(
        &mut self,
        key: usize,
        alone: bool,
        mut decide: impl FnMut(usize) -> bool,
        mut each: impl FnMut(Option<Waker>),
    ) -> bool {
        let mut cursor = self.head;
        while let Some(mut node) = cursor {
            // SAFETY: linked nodes are valid, and ours alone to touch.
            let fields = unsafe { node.as_mut() };
            cursor = fields.next;
            if fields.key != key {
                continue;
            }
            if !decide(fields.tag) {
                return true;
            }
            fields.state = NodeState::Unparked { alone };
            // SAFETY: it is linked: the walk came by it.
            each(unsafe { self.remove(node) });
        }
        false
    }
}
