use std::collections::HashMap;

use super::*;

/// The hash of a row of keys.
fn hash_of(lanes: &[Lane], columns: &[Vec<Datum>], keep: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(4);
    let mut all = lanes.to_vec();
    all.push(Lane::U64);
    let mut registers = Registers::of(&all);
    let rows = columns[0].len();
    registers.begin(rows);
    registers.selection.retain(&keep);
    let is_selected: Vec<bool> = (0..rows).map(&keep).collect();
    let keys: Vec<Register> = (0..lanes.len()).map(|key| Register(key as u16)).collect();
    for (key, column) in keys.iter().zip(columns) {
        load(&mut random, &mut registers, *key, column, &is_selected);
    }
    let out = Register(lanes.len() as u16);
    crate::kernels::run(&Step::Hash { keys, out }, &mut registers).expect("cannot fail");
    registers.values(out)[..rows].to_vec()
}

/// A key that is equal for values that compare equal.
fn canonical(value: &Datum) -> String {
    match value {
        Some(Constant::F64(value)) if *value == 0.0 => "0".into(),
        Some(Constant::F32(value)) if *value == 0.0 => "0".into(),
        value => format!("{value:?}"),
    }
}

#[test]
fn equal_keys_have_one_hash_and_others_another() {
    let lanes = [
        vec![Lane::Bool],
        vec![Lane::I16],
        vec![Lane::I64],
        vec![Lane::U64],
        vec![Lane::I128],
        vec![Lane::F32],
        vec![Lane::F64],
        vec![Lane::Str],
        vec![Lane::Str, Lane::I32, Lane::F64],
        vec![Lane::I64, Lane::I64],
    ];
    let mut random = fastrand::Rng::with_seed(8);
    for lanes in lanes {
        let mut hashes: HashMap<Vec<String>, u64> = HashMap::new();
        let mut keys: HashMap<u64, Vec<String>> = HashMap::new();
        for selected in [256, 20] {
            for nulls in [0, 40] {
                let columns: Vec<Vec<Datum>> = lanes
                    .iter()
                    .map(|lane| {
                        (0..VECTOR_ROWS_MAX)
                            .map(|_| {
                                let is_wild = random.bool();
                                let value = random_value(&mut random, *lane, is_wild);
                                (random.u16(..256) >= nulls).then_some(value)
                            })
                            .collect()
                    })
                    .collect();
                let chosen: Vec<bool> =
                    (0..VECTOR_ROWS_MAX).map(|_| random.u16(..256) < selected).collect();
                let found = hash_of(&lanes, &columns, |row| chosen[row]);
                for row in (0..VECTOR_ROWS_MAX).filter(|row| chosen[*row]) {
                    let key: Vec<String> =
                        columns.iter().map(|column| canonical(&column[row])).collect();
                    let hash = *hashes.entry(key.clone()).or_insert(found[row]);
                    assert_eq!(hash, found[row], "{key:?}");
                    assert_eq!(*keys.entry(hash).or_insert(key.clone()), key, "a collision");
                }
            }
        }
    }
}

#[test]
fn every_bit_is_as_good_as_any() {
    // Keys that follow each other, multiples of large powers of two, and strings that differ in their last byte.
    let columns: Vec<(Lane, Vec<Datum>)> = vec![
        (Lane::I64, (0..2048).map(|n| Some(Constant::I64(n))).collect()),
        (Lane::I64, (0..2048).map(|n| Some(Constant::I64(n << 50))).collect()),
        (Lane::I32, (0..2048).map(|n| Some(Constant::I32(n << 16))).collect()),
        (Lane::F64, (0..2048).map(|n| Some(Constant::F64(n.into()))).collect()),
        (Lane::I128, (0..2048).map(|n| Some(Constant::I128(n << 64))).collect()),
        (Lane::Str, (0..2048).map(|n| Some(text(format!("{n}")))).collect()),
        (Lane::Str, (0..2048).map(|n| Some(text(format!("a long one, number {n}")))).collect()),
    ];
    for (lane, column) in columns {
        let hashes = hash_of(&[lane], std::slice::from_ref(&column), |_| true);
        for shift in 0..=56 {
            // 256 places for 2,048 keys: eight each, give or take 2.8. More than 30 happens less than once in 10^9.
            let mut places = [0; 256];
            hashes.iter().for_each(|hash| places[(hash >> shift & 255) as usize] += 1);
            let most = places.iter().max().copied();
            assert!(most < Some(30), "{lane}: bits from {shift} on: {most:?}");
        }
    }
}

fn text(text: String) -> Constant {
    Constant::Str(Arc::from(text.into_bytes()))
}
