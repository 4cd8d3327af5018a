//! Every mix by every variant, at once on two workers: the conditions hold, and all kinds of transactions have run.

use weft_rt::io::DriverKind;
use weft_tpcc::{Kind, RunOptions, Scale, Storage, TpccError, Variant, Workload, frame_bytes};
use weft_txn::Isolation;

use crate::setup::{checked, loaded, open, options, run, runtime, within_limit};

#[test]
fn every_variant_is_consistent() {
    within_limit(|| {
        let runtime = runtime(DriverKind::Blocking, 2);
        let database = loaded(&runtime, Scale::small(2), 5);
        checked(&runtime, &database).unwrap();
        // How many of a kind a short run does depends on the machine: all runs of a mix together do some of each.
        let mut commits = [[0; Kind::ALL.len()]; Workload::ALL.len()];
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            for variant in Variant::ALL {
                for (workload, commits) in Workload::ALL.into_iter().zip(&mut commits) {
                    let options = RunOptions {
                        variant,
                        workload,
                        threads: 2,
                        isolation,
                        ..options(variant as u64)
                    };
                    let measured = run(&runtime, &database, &options).unwrap();
                    assert!(measured.rate() > 0.0 && measured.processor_rate() > 0.0);
                    for (sum, kind) in commits.iter_mut().zip(Kind::ALL) {
                        *sum += measured.commits(kind);
                    }
                }
            }
            checked(&runtime, &database).unwrap();
        }
        for (workload, commits) in Workload::ALL.into_iter().zip(&commits) {
            let kinds: Vec<Kind> =
                Kind::ALL.into_iter().filter(|kind| commits[*kind as usize] > 0).collect();
            let expected = match workload {
                Workload::Tpcc => &Kind::ALL[..5],
                Workload::Tpccr => &[Kind::OrderStatus, Kind::StockLevel],
                Workload::Tpcch => &Kind::ALL[..],
            };
            assert_eq!(kinds, expected, "{workload:?}");
        }
    });
}

#[test]
fn one_order_of_a_hundred_is_refused() {
    within_limit(|| {
        let runtime = runtime(DriverKind::Blocking, 1);
        let database = loaded(&runtime, Scale::small(1), 6);
        let measured = run(&runtime, &database, &options(6)).unwrap();
        let orders = measured.commits(Kind::NewOrder) + measured.refused();
        assert!(measured.refused() * 30 < orders, "{} of {orders}", measured.refused());
        assert!(orders < 1000 || measured.refused() > 0, "none of {orders}");
    });
}

#[test]
fn a_lost_row_is_an_inconsistency() {
    within_limit(|| {
        let runtime = runtime(DriverKind::Blocking, 1);
        let database = loaded(&runtime, Scale::small(1), 7);
        let changed = database.clone();
        let work = move || async move {
            let engine = changed.engine();
            // The table of new orders.
            let table = engine.table(5).unwrap();
            let mut context = engine.context().unwrap();
            let mut transaction = context.begin(Default::default());
            assert!(transaction.remove_row(&table, 3).await.unwrap());
            transaction.commit().await.unwrap();
        };
        runtime.block_on(work).unwrap();
        let error = checked(&runtime, &database).unwrap_err();
        assert!(matches!(error, TpccError::Inconsistent { condition: 3, .. }), "{error}");
    });
}

#[test]
fn impossible_scales_are_errors() {
    let runtime = runtime(DriverKind::Blocking, 1);
    for scale in [
        Scale { warehouses: 0, ..Scale::small(1) },
        Scale { suppliers: 10_001, ..Scale::small(1) },
        Scale { customers: 3001, ..Scale::small(1) },
        Scale { items: 5, ..Scale::small(1) },
    ] {
        let error = open(&runtime, scale, 1, Storage::Memory).unwrap_err();
        assert!(matches!(error, TpccError::Scale(_)), "{error}");
    }
}

#[test]
fn frames_have_sizes() {
    let runtime = runtime(DriverKind::Blocking, 1);
    let database = open(&runtime, Scale::small(1), 1, Storage::Memory).unwrap();
    let (transactions, operations) = frame_bytes(&database).unwrap();
    assert_eq!(transactions.len(), Kind::ALL.len());
    assert!(transactions.iter().all(|frame| frame.boxed > 0 && frame.boxed <= frame.flat));
    assert!(operations.iter().all(|(_, flat, boxed)| boxed < flat), "{operations:?}");
}
