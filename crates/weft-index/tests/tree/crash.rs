use weft_index::{Direction, Tree, TreeForm};
use weft_rt::io::sim::{SimFaults, SimOptions};

use crate::drivers::{Setup, seeds, within_limit};
use crate::space::{FILE_BYTES, Places, pool};

async fn rows(tree: &Tree) -> Vec<u64> {
    let mut range = tree.range(None, None, Direction::Forwards);
    let mut found = Vec::new();
    while let Some(entry) = range.next().await.unwrap() {
        found.push(entry.row);
    }
    found
}

/// The power fails at each write and sync of a flush: the root reference before leads to the tree before,
/// and that of a flush that was reported leads to the tree as it was flushed.
#[test]
fn a_crash_leaves_the_tree_before_or_after() {
    within_limit(|| {
        for seed in seeds("crashes").take(2) {
            for mutations in 0.. {
                let setup = Setup::sim("crash", SimOptions::testing(seed));
                let disk = setup.disk.clone().unwrap();
                let file = setup.file("tree", &vec![0; FILE_BYTES]);
                disk.sync_directory("").unwrap();
                let space = Places::new();
                let pool = pool(file, 12);
                let runtime = setup.runtime(1, 16);
                let failing = disk.clone();
                let work = move || async move {
                    let form = TreeForm::new(true);
                    let tree = Tree::create(pool.clone(), space.clone(), form).await.unwrap();
                    for number in 0..3000_u64 {
                        tree.insert(&(2 * number).to_be_bytes(), 2 * number, &[]).await.unwrap();
                    }
                    let before = tree.flush().await.unwrap();
                    failing.set_faults(SimFaults::none().crash_after_write(mutations));
                    for number in 0..400_u64 {
                        let number = 14 * number % 6000 + 1;
                        if tree.insert(&number.to_be_bytes(), number, &[]).await.is_err() {
                            return (before, None);
                        }
                    }
                    (before, tree.flush().await.ok())
                };
                let (before, after) = runtime.block_on(work).unwrap();
                drop(runtime);
                let crashed = disk.crash(seed ^ mutations);
                let is_done = after.is_some();
                for (flushed, has_new) in [(Some(before), false), (after, true)] {
                    let Some(flushed) = flushed else { continue };
                    let kind = weft_rt::io::DriverKind::Sim(crashed.clone());
                    let again = Setup::new("again", kind, Some(crashed.clone()));
                    let pool = pool_of(&crashed);
                    let found = again.runtime(1, 16).block_on(move || async move {
                        let tree =
                            Tree::open(pool, Places::after(FILE_BYTES as u64), flushed.root).await;
                        rows(&tree.unwrap()).await
                    });
                    let mut wanted: Vec<u64> = (0..3000).map(|number| 2 * number).collect();
                    if has_new {
                        wanted.extend((0..400).map(|number| 14 * number % 6000 + 1));
                        wanted.sort_unstable();
                        wanted.dedup();
                    }
                    assert_eq!(found.unwrap(), wanted, "after {mutations} mutations");
                }
                if is_done {
                    assert!(mutations > 5, "nothing was written");
                    break;
                }
            }
        }
    });
}

fn pool_of(disk: &weft_rt::io::sim::SimDisk) -> std::sync::Arc<weft_buffer::BufferPool> {
    pool(disk.open("tree").unwrap(), 12)
}
