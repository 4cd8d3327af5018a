//! Power loss at every write, sync, allocation and change of a name: what was acknowledged is there, what
//! was not is there as a whole or not at all, and no space is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::DataType;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimDisk, SimFaults, SimOptions};
use weft_store::*;

use crate::support::{self, *};

/// What a database holds: numbers by table, and views.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    tables: BTreeMap<String, Vec<i64>>,
    /// Tables with a column before the numbers, which has twice the numbers.
    wide: BTreeSet<String>,
    views: BTreeMap<String, String>,
}

/// A step of the history.
enum Step {
    Create(&'static str),
    Append(&'static str, std::ops::Range<i64>),
    /// A table in place of the old one, with rows, by one commit.
    Replace(&'static str, std::ops::Range<i64>),
    Drop(&'static str),
    /// Without the rows of numbers that this one divides.
    Delete(&'static str, i64),
    /// The numbers that this one divides, negated, in new rows.
    Negate(&'static str, i64),
    Truncate(&'static str),
    /// A column more, for which all rows are written anew.
    Widen(&'static str),
    /// The column less, which changes the directory.
    Narrow(&'static str),
    View(&'static str, &'static str),
    /// Row groups of which rows are deleted are written anew.
    Tidy(&'static str),
    /// A device more.
    Device,
}

fn history() -> Vec<Step> {
    vec![
        Step::Create("a"),
        Step::Append("a", 0..3_000),
        Step::Create("b"),
        Step::Append("b", 0..1),
        Step::Append("b", 1..2),
        Step::Append("b", 2..4),
        Step::View("v", "SELECT 1"),
        Step::Replace("a", 100..900),
        Step::Delete("a", 7),
        Step::Tidy("a"),
        Step::Append("b", 4..9),
        Step::Negate("a", 5),
        Step::Delete("b", 2),
        Step::Negate("b", 1),
        Step::Tidy("a"),
        Step::Negate("a", 9),
        Step::Drop("a"),
        Step::Device,
        Step::Create("c"),
        Step::Append("c", 5..5_000),
        Step::Append("b", 9..2_000),
        Step::Widen("b"),
        Step::Narrow("b"),
        Step::Delete("c", 7),
        Step::Tidy("c"),
        Step::Delete("c", 11),
        Step::Widen("c"),
        Step::Narrow("c"),
        Step::Delete("c", 1),
        Step::Widen("c"),
        Step::Narrow("c"),
        Step::Append("c", 1..4),
        Step::Truncate("b"),
        Step::Append("b", 9..11),
    ]
}

impl Step {
    fn apply(&self, model: &mut Model) {
        match self {
            Step::Create(name) => drop(model.tables.insert((*name).into(), Vec::new())),
            Step::Append(name, rows) => {
                model.tables.get_mut(*name).unwrap().extend(rows.clone());
            }
            Step::Replace(name, rows) => {
                model.tables.insert((*name).into(), rows.clone().collect());
            }
            Step::Drop(name) => drop(model.tables.remove(*name)),
            Step::Delete(name, divisor) => {
                model.tables.get_mut(*name).unwrap().retain(|number| number % divisor != 0);
            }
            Step::Negate(name, divisor) => {
                let rows = model.tables.get_mut(*name).unwrap();
                let (changed, mut kept): (Vec<i64>, Vec<i64>) =
                    rows.iter().partition(|number| *number % divisor == 0);
                kept.extend(changed.iter().map(|number| -number));
                *rows = kept;
            }
            Step::Truncate(name) => model.tables.get_mut(*name).unwrap().clear(),
            Step::Widen(name) => drop(model.wide.insert((*name).into())),
            Step::Narrow(name) => drop(model.wide.remove(*name)),
            Step::Device | Step::Tidy(_) => {}
            Step::View(name, sql) => drop(model.views.insert((*name).into(), (*sql).into())),
        }
    }

    fn run(&self, store: &Store) -> Result<()> {
        let append = |name: &str, rows: &std::ops::Range<i64>| -> Result<Change> {
            let groups = write(store, &number_table(name), &[numbers(rows.clone())])?;
            Ok(Change::Append { table: name.into(), expected: None, groups })
        };
        let create =
            |name: &str, or_replace| Change::CreateTable { schema: number_table(name), or_replace };
        let index = |name: &str| Change::CreateIndex {
            table: name.into(),
            expected: None,
            definition: index_of(name),
        };
        let changes = match self {
            Step::Device => return store.add_device("../added".as_ref()),
            Step::Tidy(name) => return weft_rt::sync::block_on(store.tidy(Some(name))),
            Step::Create(name) => vec![create(name, false), index(name)],
            Step::Append(name, rows) => vec![append(name, rows)?],
            Step::Replace(name, rows) => vec![create(name, true), append(name, rows)?, index(name)],
            Step::Drop(name) => vec![Change::DropTable { name: (*name).into(), expected: None }],
            Step::Delete(name, divisor) => vec![delete(store, name, *divisor).1],
            Step::Negate(name, divisor) => {
                let (values, delete) = delete(store, name, *divisor);
                let negated = values.iter().map(|number| -number).collect();
                let groups = write(store, &number_table(name), &[number_list(negated)])?;
                vec![delete, Change::Append { table: (*name).into(), expected: None, groups }]
            }
            Step::Truncate(name) => {
                vec![Change::Truncate { table: (*name).into(), expected: None }]
            }
            Step::Widen(name) => vec![widen(store, name)?],
            Step::Narrow(name) => {
                let alteration = Alteration {
                    columns: number_table(name),
                    origins: vec![Some(1)],
                    seen: None,
                    rows: None,
                };
                vec![Change::AlterTable { table: (*name).into(), expected: None, alteration }]
            }
            Step::View(name, sql) => vec![Change::CreateView {
                name: (*name).into(),
                sql: (*sql).into(),
                or_replace: false,
            }],
        };
        store.commit_blocking(changes).map(drop)
    }
}

/// The index that each table has: of numbers, some of which may come twice.
fn index_of(name: &str) -> IndexDefinition {
    index(&format!("{name}_idx"), &[0], false)
}

/// The change that gives a table a column before its numbers, with twice as much.
fn widen(store: &Store, name: &str) -> Result<Change> {
    let table = store.snapshot().table(name).unwrap();
    let numbers = column_of::<Int64Type>(&everything(&table)?, 0);
    let columns = support::table(name, &[("twice", DataType::Int64), ("n", DataType::Int64)]);
    let twice: Vec<i64> = numbers.iter().map(|number| number.wrapping_mul(2)).collect();
    let arrays =
        [twice, numbers].map(|values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef);
    let batch = RecordBatch::try_new(columns.arrow_schema(), arrays.into()).unwrap();
    let rows = Some(write(store, &columns, &[batch])?);
    let (origins, expected) = (vec![None, Some(0)], Some(table.id()));
    let alteration = Alteration { columns, origins, seen: Some(table), rows };
    Ok(Change::AlterTable { table: name.into(), expected, alteration })
}

/// The numbers of a table that `divisor` divides, and the change that deletes their rows.
fn delete(store: &Store, name: &str, divisor: i64) -> (Vec<i64>, Change) {
    let table = store.snapshot().table(name).unwrap();
    let all = collect(&table, ScanOptions { projection: vec![0], ..Default::default() }).unwrap();
    let (numbers, ids) = (column_of::<Int64Type>(&all, 0), column_of::<UInt64Type>(&all, 1));
    let (mut values, mut rows) = (Vec::new(), RowSet::default());
    for (number, id) in numbers.iter().zip(ids).filter(|(number, _)| *number % divisor == 0) {
        values.push(*number);
        assert!(rows.insert(id));
    }
    (values, Change::Delete { table: name.into(), expected: Some(table.id()), rows })
}

/// What the database on the disk holds.
fn found(store: &Store) -> Model {
    let snapshot = store.snapshot();
    let mut wide = BTreeSet::new();
    let rows = |batch: RecordBatch| column_of::<Int64Type>(&batch, batch.num_columns() - 1);
    let table = |name: &str| {
        let table = snapshot.table(name).unwrap();
        let all = everything(&table).unwrap();
        if all.num_columns() > 1 {
            wide.insert(name.to_owned());
            let twice = column_of::<Int64Type>(&all, 0);
            assert!(
                twice
                    .iter()
                    .zip(rows(all.clone()))
                    .all(|(twice, number)| *twice == number.wrapping_mul(2))
            );
        }
        let all = rows(all);
        for index in table.indexes() {
            assert_eq!(rows(by_index(&table, &index.name)), all, "index {}", index.name);
        }
        (name.to_owned(), all)
    };
    let views = snapshot.views().map(|(name, sql)| (name.to_owned(), sql.to_owned()));
    let (tables, views) = (snapshot.tables().map(table).collect(), views.collect());
    Model { tables, wide, views }
}

/// All bytes of the data files are a header, a table's or free.
fn check_space(store: &Store) {
    // Space that commits of the journal have freed waits for a manifest.
    weft_rt::sync::block_on(store.checkpoint()).unwrap();
    let snapshot = store.snapshot();
    let used: u64 =
        snapshot.tables().map(|name| snapshot.table(name).unwrap().bytes_on_disk()).sum();
    drop(snapshot);
    let headers = store.devices().len() as u64 * 4096;
    assert_eq!(store.bytes_free() + used + headers, store.bytes_on_disk(), "space is lost");
    assert!(store.bytes_on_disk() < 32 << 20, "{} bytes", store.bytes_on_disk());
}

fn start(disk: &SimDisk) -> (Arc<weft_rt::Runtime>, Directory) {
    let directory = Directory::Sim(disk.clone(), "db".into());
    (runtime(DriverKind::Sim(disk.clone()), 1), directory)
}

fn open_with(
    directory: &Directory,
    runtime: &Arc<weft_rt::Runtime>,
    devices: usize,
) -> Result<Arc<Store>> {
    let devices = (1..devices).map(|number| format!("../ssd{number}").into());
    let devices: Vec<std::path::PathBuf> = match devices.len() {
        0 => Vec::new(),
        _ => std::iter::once("../ssd0".into()).chain(devices).collect(),
    };
    let options = StoreOptions { create: true, devices, ..StoreOptions::default() };
    Store::open(directory, &options, runtime.clone(), ample())
}

/// Runs the history; returns the states that may be found afterwards: the last one acknowledged, and
/// the one that was being committed.
fn run(disk: &SimDisk, devices: usize, history: &[Step]) -> (Vec<Model>, bool) {
    let (runtime, directory) = start(disk);
    let mut model = Model::default();
    let Ok(store) = open_with(&directory, &runtime, devices) else {
        return (vec![model], false);
    };
    for step in history {
        let mut next = model.clone();
        step.apply(&mut next);
        if step.run(&store).is_err() {
            return (vec![model, next], false);
        }
        model = next;
        assert_eq!(found(&store), model);
    }
    if weft_rt::sync::block_on(store.checkpoint()).is_err() {
        return (vec![model], false);
    }
    check_space(&store);
    (vec![model], true)
}

/// Steps that are possible one after the other.
fn random_history(random: &mut fastrand::Rng) -> Vec<Step> {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let mut tables: Vec<&str> = Vec::new();
    let mut history = Vec::new();
    for _ in 0..random.usize(5..25) {
        let name = NAMES[random.usize(..4)];
        let start = random.i64(..1_000_000);
        let most = [1, 10, 3_000][random.usize(..3)];
        let rows = start..start + random.i64(1..=most);
        let is_there = tables.contains(&name);
        if is_there && random.u8(..8) == 0 {
            history.extend([Step::Widen(name), Step::Narrow(name)]);
            continue;
        }
        history.push(match random.u8(..12) {
            _ if !is_there => {
                tables.push(name);
                Step::Create(name)
            }
            0 => {
                tables.retain(|table| *table != name);
                Step::Drop(name)
            }
            1 => Step::Replace(name, rows),
            2 => Step::Truncate(name),
            3 | 4 => Step::Delete(name, random.i64(1..5)),
            5 | 6 => Step::Negate(name, random.i64(1..5)),
            7 => Step::Tidy(name),
            _ => Step::Append(name, rows),
        });
    }
    history
}

#[test]
fn power_may_fail_in_any_history() {
    let first = fastrand::u64(..);
    let mut whole = 0;
    for seed in (0..30).map(|n| first.wrapping_add(n)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let history = random_history(&mut random);
        let devices = random.usize(1..4);
        let disk = SimDisk::new(SimOptions::testing(seed));
        disk.set_faults(SimFaults::none().crash_after_write(random.u64(20..500)));
        let (allowed, ended) = run(&disk, devices, &history);
        whole += u32::from(ended);
        let after = disk.crash(seed);
        let (runtime, directory) = start(&after);
        let store = open_with(&directory, &runtime, devices)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(allowed.contains(&found(&store)), "seed {seed}");
        check_space(&store);
    }
    println!("seeds from {first} on; {whole} histories came to their end");
}

fn crash_everywhere(seed: u64, devices: usize) {
    let disk = SimDisk::new(SimOptions::testing(seed));
    let (_, whole) = run(&disk, devices, &history());
    assert!(whole);
    let mutations = disk.mutations();
    println!("seed {seed}: {mutations} mutations on {devices} devices");
    assert!(mutations > 100);
    let mut committed = 0;
    for n in 0..mutations {
        let disk = SimDisk::new(SimOptions::testing(seed ^ n));
        disk.set_faults(SimFaults::none().crash_after_write(n));
        let (allowed, whole) = run(&disk, devices, &history());
        // The last one removes the journal of the database, which is closed.
        assert!(!whole || n + 1 == mutations, "the power fails at {n}");
        let mut after = disk.crash(seed ^ n);
        if n % 5 == 0 {
            // The power fails again while the database is opened.
            after.set_faults(SimFaults::none().crash_after_write(n / 5 % 9));
            let (runtime, directory) = start(&after);
            drop(open_with(&directory, &runtime, devices));
            drop(runtime);
            after = after.crash(seed + n);
        }
        let (runtime, directory) = start(&after);
        let store = open_with(&directory, &runtime, devices)
            .unwrap_or_else(|error| panic!("seed {seed}, crash at {n}: {error}"));
        let model = found(&store);
        assert!(
            allowed.contains(&model),
            "seed {seed}, crash at {n}: {:?} is none of {:?}",
            model.tables.keys(),
            allowed.iter().map(|model| model.tables.keys()).collect::<Vec<_>>(),
        );
        committed += u64::from(allowed.len() == 2 && model == allowed[1]);
        check_space(&store);
        // It goes on from there.
        let schema = number_table("after");
        load(&store, &schema, &[numbers(0..10)]);
        assert_eq!(found(&store).tables["after"], (0..10).collect::<Vec<_>>());
        check_space(&store);
    }
    println!("{committed} commits were found although they had not been acknowledged");
}

#[test]
fn power_may_fail_at_any_time() {
    for seed in [1, fastrand::u64(..)] {
        crash_everywhere(seed, 1);
    }
}

#[test]
fn power_may_fail_at_any_time_with_several_devices() {
    crash_everywhere(fastrand::u64(..), 3);
}
