use std::collections::BTreeMap;
use std::sync::Arc;

use weft_index::{
    Boxed, BulkLoad, Coroutines, Direction, IndexError, Mode, Naive, Prefetching, PrefixCursor,
    Resident, Tree, TreeForm, after_prefix,
};

use crate::drivers::{Setup, pattern, seeds, setups, within_limit};
use crate::space::{FILE_BYTES, Places, pool};

type Model = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

/// What is told of a key without waiting is right, if anything is told.
fn check_resident(found: Resident, row: Option<u64>) {
    match found {
        Resident::Row(found) => assert_eq!(Some(found), row),
        Resident::NoRow => assert_eq!(row, None),
        Resident::Unknown => {}
    }
}

/// Keys that collide, begin with each other, and are long at times.
fn key(random: &mut fastrand::Rng, form: TreeForm) -> Vec<u8> {
    let mut key = any_key(random);
    if !form.is_unique {
        // None may begin with another one.
        key = key.iter().flat_map(|&byte| [byte, u8::from(byte == 0)]).collect();
        key.extend([0, 0]);
    }
    key
}

fn any_key(random: &mut fastrand::Rng) -> Vec<u8> {
    let number = random.u32(..3000);
    match random.u8(..8) {
        0 => vec![b'p'; random.usize(..40)],
        1 => [&b"prefix that many share "[..], &number.to_be_bytes()].concat(),
        2 => [&number.to_be_bytes()[..], &vec![7; random.usize(..100)]].concat(),
        3 => number.to_be_bytes()[2..].to_vec(),
        _ => u64::from(number).to_be_bytes().to_vec(),
    }
}

async fn rows(
    tree: &Tree,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
    direction: Direction,
) -> Result<Vec<(Vec<u8>, u64, Vec<u8>)>, IndexError> {
    let mut found = Vec::new();
    let mut range = tree.range(low, high, direction);
    while let Some(entry) = range.next().await? {
        found.push((entry.key.clone(), entry.row, entry.included.clone()));
    }
    Ok(found)
}

fn expected(
    model: &Model,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let in_range =
        |key: &[u8]| low.is_none_or(|low| key >= low) && high.is_none_or(|high| key < high);
    let rows = model.iter().filter(|((key, _), _)| in_range(key));
    rows.map(|((key, row), included)| (key.clone(), *row, included.clone())).collect()
}

async fn compare(tree: &Tree, model: &Model, low: Option<&[u8]>, high: Option<&[u8]>) {
    let mut all = expected(model, low, high);
    for direction in [Direction::Forwards, Direction::Backwards] {
        assert!(rows(tree, low, high, direction).await.unwrap() == all, "{tree:?}");
        let bounds = (low, high, direction);
        compare_rows(tree, Coroutines, &all, bounds).await;
        compare_rows(tree, Naive, &all, bounds).await;
        compare_rows(tree, Boxed(Prefetching), &all, bounds).await;
        all.reverse();
    }
}

/// Goes along a range in a mode, some rows at a time.
async fn compare_rows<M: Mode>(
    tree: &Tree,
    mode: M,
    all: &[(Vec<u8>, u64, Vec<u8>)],
    (low, high, direction): (Option<&[u8]>, Option<&[u8]>, Direction),
) {
    let mut found = tree.range_rows(mode, low, high, direction);
    let mut expected = all.iter();
    while found.next().await.unwrap() {
        for (at, row) in found.rows().iter().enumerate() {
            let (key, expected, _) = expected.next().expect("a row too many");
            assert_eq!(row, expected, "{tree:?}");
            assert!(tree.form().is_unique || found.key(at) == key, "{tree:?}");
        }
    }
    assert!(expected.next().is_none(), "{tree:?} has more rows than were found");
}

/// Looks up what some keys begin with, some rows at a time.
async fn compare_prefixes(tree: &Tree, model: &Model, random: &mut fastrand::Rng) {
    let keys: Vec<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    if keys.is_empty() {
        return;
    }
    let prefixes: Vec<&[u8]> = (0..random.usize(1..30))
        .map(|_| {
            let key = keys[random.usize(..keys.len())];
            &key[..random.usize(1.min(key.len())..=key.len())]
        })
        .collect();
    let mut cursors: Vec<PrefixCursor> =
        prefixes.iter().map(|prefix| PrefixCursor::new(prefix)).collect();
    let mut found: Vec<Vec<u64>> = vec![Vec::new(); prefixes.len()];
    let (width, rows_max) = (random.usize(1..9), random.usize(1..200));
    while cursors.iter().any(|cursor| !cursor.has_ended()) {
        let some = tree.multi_prefix(&mut cursors, width, rows_max).await.unwrap();
        // Each lookup that is on its way finds one more.
        assert!(some.len() < rows_max + width, "{} rows, {rows_max} wanted", some.len());
        some.iter().for_each(|(number, row)| found[*number as usize].push(*row));
    }
    for (prefix, found) in prefixes.iter().zip(&found) {
        let end = after_prefix(prefix);
        let expected = expected(model, Some(prefix), end.as_deref());
        let expected: Vec<u64> = expected.iter().map(|(_, row, _)| *row).collect();
        assert!(*found == expected, "{prefix:?}: {found:?} instead of {expected:?}, {tree:?}");
    }
}

async fn operate(tree: &Tree, model: &mut Model, random: &mut fastrand::Rng, steps: usize) {
    let form = tree.form();
    for _ in 0..steps {
        let key = key(random, form);
        let of_key = |model: &Model| {
            let first = model.range((key.clone(), 0)..).next();
            first.filter(|((found, _), _)| *found == key).map(|((_, row), _)| *row)
        };
        match random.u8(..10) {
            0..5 => {
                let row = random.u64(..if form.is_unique { u64::MAX } else { 4 });
                let len = if form.has_included { random.usize(..20) } else { 0 };
                let included = vec![random.u8(..); len];
                let there = of_key(model).filter(|_| form.is_unique);
                assert_eq!(tree.insert(&key, row, &included).await.unwrap(), there);
                if there.is_none() {
                    model.insert((key, row), included);
                }
            }
            5..8 => {
                let row = of_key(model).unwrap_or(1) + u64::from(random.u8(..8) == 0);
                let was_there = model.remove(&(key.clone(), row)).is_some();
                assert_eq!(tree.remove(&key, row).await.unwrap(), was_there);
            }
            8 => {
                check_resident(tree.get_resident(&key), of_key(model));
                assert_eq!(tree.get(&key).await.unwrap(), of_key(model));
            }
            _ => {
                let other = self::key(random, form);
                let (low, high) = if key < other { (&key, &other) } else { (&other, &key) };
                if random.u8(..10) == 0 {
                    compare(tree, model, Some(low), Some(high)).await;
                }
            }
        }
    }
    assert_eq!(tree.len(), model.len() as u64);
}

fn forms() -> Vec<TreeForm> {
    let form =
        |node_bytes, is_unique, has_included| TreeForm { node_bytes, is_unique, has_included };
    vec![form(4096, true, false), form(4096, false, true), form(16 << 10, true, true)]
}

/// Random operations, flushes, and trees opened again, with memory for a few nodes.
#[test]
fn trees_are_as_maps() {
    within_limit(|| {
        for seed in seeds("trees") {
            for setup in setups(seed) {
                for form in forms() {
                    let file = setup.file("tree", &vec![0; FILE_BYTES]);
                    let space = Places::new();
                    let nodes = 6 * form.node_bytes as u64 / 4096;
                    let pool = pool(file.clone(), nodes);
                    let runtime = setup.runtime(1, 16);
                    let work = move || async move {
                        let mut random = fastrand::Rng::with_seed(seed);
                        let mut model = Model::new();
                        let mut tree =
                            Tree::create(pool.clone(), space.clone(), form).await.unwrap();
                        for _ in 0..3 {
                            operate(&tree, &mut model, &mut random, 1200).await;
                            compare(&tree, &model, None, None).await;
                            compare_prefixes(&tree, &model, &mut random).await;
                            let flushed = tree.flush().await.unwrap();
                            drop(tree);
                            tree = Tree::open(pool.clone(), space.clone(), flushed.root)
                                .await
                                .unwrap();
                            let in_use = tree.pages();
                            for id in flushed.released {
                                assert!(!in_use.contains(&id), "{id:?} was released");
                                weft_index::Space::release(&*space, id);
                            }
                            assert_eq!(tree.len(), model.len() as u64);
                            compare(&tree, &model, None, None).await;
                        }
                        while let Some(((key, row), _)) = model.pop_last() {
                            assert!(tree.remove(&key, row).await.unwrap());
                        }
                        assert!(tree.is_empty());
                        compare(&tree, &model, None, None).await;
                        tree.nodes()
                    };
                    let left = runtime.block_on(work).unwrap();
                    assert!(left < 20, "{left} nodes of an empty tree: {}", setup.name);
                }
            }
        }
    });
}

/// What is loaded is what was given, in nodes that are full, and can be changed.
#[test]
fn loaded_trees_are_as_maps() {
    within_limit(|| {
        for seed in seeds("loads") {
            for setup in setups(seed).into_iter().take(2) {
                for form in forms() {
                    let file = setup.file("tree", &vec![0; FILE_BYTES]);
                    let runtime = setup.runtime(1, 16);
                    let pool = pool(file, 32);
                    let work = move || async move {
                        let mut random = fastrand::Rng::with_seed(seed);
                        let mut model = Model::new();
                        for row in 0..random.u64(..6000) {
                            let key = key(&mut random, form);
                            let has =
                                model.range((key.clone(), 0)..=(key.clone(), u64::MAX)).next();
                            if has.is_none() || !form.is_unique {
                                let included =
                                    if form.has_included { vec![3; 5] } else { Vec::new() };
                                model.insert((key, row), included);
                            }
                        }
                        let mut load = BulkLoad::new(pool, Places::new(), form);
                        for ((key, row), included) in &model {
                            load.push(key, *row, included).await.unwrap();
                        }
                        let tree = load.finish().await.unwrap();
                        compare(&tree, &model, None, None).await;
                        if form.is_unique {
                            let keys: Vec<_> = model.keys().map(|(key, _)| key.clone()).collect();
                            let wanted: Vec<_> = model.keys().map(|(_, row)| Some(*row)).collect();
                            for width in [1, 8, 100] {
                                assert_eq!(tree.multi_get(&keys, width).await.unwrap(), wanted);
                                assert_eq!(
                                    tree.multi_get_amac(&keys, width).await.unwrap(),
                                    wanted
                                );
                            }
                        }
                        compare_prefixes(&tree, &model, &mut random).await;
                        operate(&tree, &mut model, &mut random, 500).await;
                        compare(&tree, &model, None, None).await;
                        compare_prefixes(&tree, &model, &mut random).await;
                    };
                    runtime.block_on(work).unwrap();
                }
            }
        }
    });
}

#[test]
fn a_tree_with_several_pages_of_a_directory_releases_places_that_it_was_given() {
    within_limit(|| {
        let setup = &setups(1)[0];
        let file = setup.file("tree", &vec![0; FILE_BYTES]);
        let runtime = setup.runtime(1, 16);
        let pool = pool(file, 64);
        let work = move || async move {
            let form = TreeForm { node_bytes: 4096, ..TreeForm::new(true) };
            let mut load = BulkLoad::new(pool, Places::new(), form);
            let key = |row: u64| row.to_be_bytes().repeat(20);
            for row in 0..40_000 {
                load.push(&key(row), row, &[]).await.unwrap();
            }
            let tree = load.finish().await.unwrap();
            assert!(tree.nodes() > 1_500, "{} nodes", tree.nodes());
            let first = tree.flush().await.unwrap();
            assert!(first.released.is_empty(), "{:?}", first.released);
            for row in (0..40_000).step_by(97) {
                assert!(tree.remove(&key(row), row).await.unwrap());
            }
            let second = tree.flush().await.unwrap();
            assert!(!second.released.is_empty());
            assert!(second.released.iter().all(|place| !place.is_vacant()));
        };
        runtime.block_on(work).unwrap();
    });
}

#[test]
fn rows_out_of_order_are_refused() {
    for setup in setups(1).into_iter().filter(Setup::suspends) {
        // What lies in the places before is of no concern.
        let pool = pool(setup.file("tree", &pattern(1, FILE_BYTES)), 32);
        let runtime = setup.runtime(1, 16);
        let work = move || async move {
            let mut load = BulkLoad::new(pool, Places::new(), TreeForm::new(true));
            load.push(b"b", 1, &[]).await.unwrap();
            let twice = load.push(b"b", 2, &[]).await.unwrap_err();
            assert!(twice.to_string().contains("row 2 has the key of row 1"), "{twice}");
            let long = load.push(&[9; 2000], 3, &[]).await.unwrap_err();
            assert!(long.to_string().contains("index shorter columns"), "{long}");
        };
        runtime.block_on(work).unwrap();
    }
}

/// Writers with keys of their own, and readers of all, on several workers: each sees what it wrote, and
/// what stays is always found.
#[test]
fn readers_and_writers_go_on_together() {
    within_limit(|| {
        for seed in seeds("concurrency") {
            for setup in setups(seed) {
                for workers in [1, 2, 8] {
                    let pool = pool(setup.file("tree", &vec![0; FILE_BYTES]), 200);
                    let runtime = setup.runtime(workers, 16);
                    let first = pool.clone();
                    let made = runtime.block_on(move || async move {
                        let form = TreeForm::new(true);
                        let tree = Tree::create(first, Places::new(), form).await.unwrap();
                        for number in (0..4000_u64).step_by(10) {
                            tree.insert(&number.to_be_bytes(), number, &[]).await.unwrap();
                        }
                        tree
                    });
                    let tree = Arc::new(made.unwrap());
                    let tasks = (0..8_u64).map(|task| {
                        let tree = tree.clone();
                        runtime.spawn_on(task as usize % workers, move || async move {
                            let mut random = fastrand::Rng::with_seed(seed ^ task);
                            for _ in 0..400 {
                                let tens = random.u64(..400) * 10;
                                let resident = tree.get_resident(&tens.to_be_bytes());
                                check_resident(resident, Some(tens));
                                let fixed = tree.get(&tens.to_be_bytes()).await.unwrap();
                                assert_eq!(fixed, Some(tens));
                                let mine = tens + 1 + task;
                                let key = mine.to_be_bytes();
                                let there = tree.get(&key).await.unwrap();
                                if there.is_some() {
                                    assert!(tree.remove(&key, mine).await.unwrap());
                                } else {
                                    assert_eq!(tree.insert(&key, mine, &[]).await.unwrap(), None);
                                }
                                assert_eq!(
                                    tree.get(&key).await.unwrap().is_some(),
                                    there.is_none()
                                );
                                if random.u8(..50) == 0 {
                                    let mut range = tree.range(None, None, Direction::Backwards);
                                    let mut tens = 0;
                                    while let Some(entry) = range.next().await.unwrap() {
                                        tens += u64::from(entry.row % 10 == 0);
                                    }
                                    assert_eq!(tens, 400);
                                }
                                if task == 0 && random.u8(..100) == 0 {
                                    tree.flush().await.unwrap();
                                }
                            }
                        })
                    });
                    for task in tasks.collect::<Vec<_>>() {
                        task.wait().unwrap();
                    }
                }
            }
        }
    });
}
