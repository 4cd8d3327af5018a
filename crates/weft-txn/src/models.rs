//! Loom models: every interleaving (up to a bound on preemptions) of what is free of locks.
//!
//! Versions are real memory, of which loom knows nothing; so each has a watched cell beside it that says whether it was
//! freed, and a reader looks at the cell as it would at the version.

use loom::sync::Arc;
use loom::thread;

use crate::chain::{Chain, Head, cut_behind, older};
use crate::limbo::Limbo;
use crate::slots::{Entered, Slots, Status, TransactionId};
use crate::version::{Kind, OwnedVersion, Shared};

fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

fn head<'e>(chain: &Chain, entered: &'e Entered<'_>) -> Shared<'e> {
    match chain.head(entered) {
        Head::Version(version) => version,
        Head::Empty | Head::Dead => panic!("there is a version"),
    }
}

fn push(chain: &Chain, bytes: &[u8], entered: &Entered<'_>) {
    let version = OwnedVersion::new(Kind::Row, bytes, entered.id().stamp());
    let mark = chain.head(entered).mark();
    assert!(chain.push(mark, version, entered).is_ok());
}

/// Commits the version in front of a chain.
fn commit(chain: &Chain, entered: Entered<'_>) -> u64 {
    let at = entered.draw();
    entered.commit(at, at);
    head(chain, &entered).header().set_stamp(at, at);
    entered.leave();
    at
}

/// The byte of the version that a snapshot sees.
fn seen(chain: &Chain, slots: &Slots, entered: &Entered<'_>) -> Option<u8> {
    let mut version = head(chain, entered);
    loop {
        let stamp = version.header().stamp();
        let at = match TransactionId::of_stamp(stamp) {
            None => Some(stamp),
            Some(id) => match slots.status(id) {
                Some(Status::Committed(at)) => Some(at),
                Some(Status::Deciding(Some(at))) if at > entered.begin() => None,
                Some(Status::Deciding(_)) => {
                    thread::yield_now();
                    continue;
                }
                Some(Status::Active | Status::Aborted) => None,
                None if version.header().stamp() == stamp => None,
                None => continue,
            },
        };
        if at.is_some_and(|at| at <= entered.begin()) {
            return version.bytes().first().copied();
        }
        version = older(version, entered)?;
    }
}

fn first_version(chain: &Chain, slots: &Slots, slot: u32) {
    let entered = slots.enter(slot);
    push(chain, &[0], &entered);
    commit(chain, entered);
}

/// A snapshot sees both of a transaction's rows, or neither.
#[test]
fn loom_snapshots_see_whole_transactions() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let chains = Arc::new([Chain::new(), Chain::new()]);
        let (one, two) = (slots.take().unwrap(), slots.take().unwrap());
        for chain in chains.iter() {
            first_version(chain, &slots, one);
        }
        let writer = {
            let (slots, chains) = (slots.clone(), chains.clone());
            thread::spawn(move || {
                let entered = slots.enter(one);
                chains.iter().for_each(|chain| push(chain, &[1], &entered));
                let at = entered.draw();
                entered.commit(at, at);
                for chain in chains.iter() {
                    head(chain, &entered).header().set_stamp(at, at);
                }
                entered.leave();
            })
        };
        let entered = slots.enter(two);
        let first = seen(&chains[0], &slots, &entered);
        assert_eq!(seen(&chains[1], &slots, &entered), first);
        assert_eq!(seen(&chains[0], &slots, &entered), first, "again");
        entered.leave();
        writer.join().unwrap();
        free(chains);
    });
}

/// A version that was taken back is seen by nobody.
#[test]
fn loom_aborted_versions_are_not_seen() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let chains = Arc::new([Chain::new()]);
        let (one, two) = (slots.take().unwrap(), slots.take().unwrap());
        first_version(&chains[0], &slots, one);
        let writer = {
            let (slots, chains) = (slots.clone(), chains.clone());
            thread::spawn(move || {
                let entered = slots.enter(one);
                push(&chains[0], &[1], &entered);
                entered.abort();
                let unlinked = chains[0].pop(head(&chains[0], &entered));
                entered.leave();
                unlinked
            })
        };
        let entered = slots.enter(two);
        assert_eq!(seen(&chains[0], &slots, &entered), Some(0));
        entered.leave();
        drop(writer.join().unwrap());
        free(chains);
    });
}

/// What a snapshot sees is neither cut off nor freed while it is there.
#[test]
fn loom_garbage_waits_for_snapshots() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let chains = Arc::new([Chain::new()]);
        let (one, two) = (slots.take().unwrap(), slots.take().unwrap());
        first_version(&chains[0], &slots, one);
        let writer = {
            let (slots, chains) = (slots.clone(), chains.clone());
            thread::spawn(move || {
                let entered = slots.enter(one);
                push(&chains[0], &[1], &entered);
                let at = commit(&chains[0], entered);
                let entered = slots.enter(one);
                let mut limbo = Limbo::default();
                if slots.horizon() >= at {
                    cut_behind(head(&chains[0], &entered), limbo.fresh());
                }
                entered.leave();
                limbo.age(&slots);
                // A version that is freed has its bytes overwritten, so that a reader would see it.
                limbo.poison_freed(slots.horizon());
                limbo
            })
        };
        let entered = slots.enter(two);
        let first = seen(&chains[0], &slots, &entered);
        assert!(first == Some(0) || first == Some(1), "{first:?}");
        assert_eq!(seen(&chains[0], &slots, &entered), first);
        entered.leave();
        drop(writer.join().unwrap());
        free(chains);
    });
}

/// Two that take the same versions out of a chain each take some, and together all.
#[test]
fn loom_each_version_is_unlinked_once() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let chains = Arc::new([Chain::new()]);
        let (one, two) = (slots.take().unwrap(), slots.take().unwrap());
        for _ in 0..3 {
            first_version(&chains[0], &slots, one);
        }
        let cut = |slots: &Slots, chains: &[Chain; 1], slot: u32| {
            let entered = slots.enter(slot);
            let mut unlinked = Vec::new();
            let front = head(&chains[0], &entered);
            let behind = if slot == 0 { Some(front) } else { older(front, &entered) };
            if let Some(version) = behind {
                cut_behind(version, &mut unlinked);
            }
            entered.leave();
            unlinked
        };
        let other = {
            let (slots, chains) = (slots.clone(), chains.clone());
            thread::spawn(move || cut(&slots, &chains, one))
        };
        let mine = cut(&slots, &chains, two);
        let others = other.join().unwrap();
        assert_eq!(mine.len() + others.len(), 2);
        drop((mine, others));
        free(chains);
    });
}

/// Who draws a later timestamp knows of all earlier ones whether they have published.
#[test]
fn loom_publication_is_before_later_timestamps() {
    model(|| {
        let slots = Arc::new(Slots::new(2));
        let (one, two) = (slots.take().unwrap(), slots.take().unwrap());
        let read = Arc::new(OwnedVersion::new(Kind::Row, &[], 1));
        let reader = {
            let (slots, read) = (slots.clone(), read.clone());
            thread::spawn(move || {
                let entered = slots.enter(one);
                let at = entered.draw();
                read.header().note_read(at);
                entered.publish(at);
                entered.commit(at, at);
                entered.leave();
                at
            })
        };
        let entered = slots.enter(two);
        let at = entered.draw();
        while !slots.have_published(at) {
            thread::yield_now();
        }
        let pstamp = read.header().pstamp();
        entered.publish(at);
        entered.leave();
        let other = reader.join().unwrap();
        assert!(other > at || pstamp == other, "{other} before {at} was not seen");
    });
}

fn free<const N: usize>(chains: Arc<[Chain; N]>) {
    let mut chains = Arc::try_unwrap(chains).ok().expect("nobody else has them");
    chains.iter_mut().for_each(Chain::clear);
}
