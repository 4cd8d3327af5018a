use weft_index::{Direction, Tree, TreeForm};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults, SimOptions};

use crate::drivers::{Setup, seeds, within_limit};
use crate::space::{FILE_BYTES, Places, pool};

/// A bit of any read is wrong, or a read fails: there is an error, or the rows are right.
#[test]
fn damage_is_an_error_or_not_there() {
    within_limit(|| {
        for seed in seeds("damage") {
            let mut errors = 0;
            for fault in [Fault::BitFlip, Fault::IO] {
                for read in 0..60 {
                    let setup = Setup::sim("damage", SimOptions::testing(seed));
                    let disk = setup.disk.clone().unwrap();
                    let file = setup.file("tree", &vec![0; FILE_BYTES]);
                    let runtime = setup.runtime(1, 16);
                    let first = pool(file.clone(), 100);
                    let root = runtime.block_on(move || async move {
                        let form = TreeForm::new(true);
                        let tree = Tree::create(first, Places::new(), form).await.unwrap();
                        for number in 0..4000_u64 {
                            tree.insert(&number.to_be_bytes(), number, &[]).await.unwrap();
                        }
                        tree.flush().await.unwrap().root
                    });
                    let root = root.unwrap();
                    let rule = FaultRule::nth(Operation::Read, read, fault);
                    disk.set_faults(SimFaults::none().with(rule));
                    let again = pool(file, 12);
                    let found = runtime.block_on(move || async move {
                        let tree =
                            Tree::open(again, Places::after(FILE_BYTES as u64), root).await?;
                        let mut range = tree.range(None, None, Direction::Forwards);
                        let mut rows = Vec::new();
                        while let Some(entry) = range.next().await? {
                            rows.push(entry.row);
                        }
                        Ok::<_, weft_index::IndexError>(rows)
                    });
                    match found.unwrap() {
                        Ok(rows) => assert!(rows.into_iter().eq(0..4000)),
                        Err(error) => {
                            let text = error.to_string();
                            assert!(text.contains("damaged") || text.contains("tree"), "{text}");
                            errors += 1;
                        }
                    }
                }
            }
            assert!(errors > 0, "nothing was damaged");
        }
    });
}
