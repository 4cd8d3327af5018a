//! Random tables for tests of joins.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use futures::future::LocalBoxFuture;
use weft_exec::lane::Bool;
use weft_exec::pipeline::{Flow, LocalSink, Morsel, Sink, Source, Tuples};
use weft_exec::program::{Constant, Program, Register};
use weft_exec::query::Context;
use weft_exec::registers::Registers;
use weft_exec::tuple::Storage;
use weft_exec::{Lane, Result, Str, Vector};
use weft_rt::{MorselQueue, Runtime, RuntimeOptions};

/// A runtime of so many workers, made once for all tests.
pub fn runtime(workers: usize) -> Arc<Runtime> {
    static RUNTIMES: OnceLock<Mutex<HashMap<usize, Arc<Runtime>>>> = OnceLock::new();
    let mut runtimes = RUNTIMES.get_or_init(Mutex::default).lock().unwrap();
    let make = || {
        let options = RuntimeOptions { workers, ..RuntimeOptions::default() };
        Arc::new(Runtime::new(&options).unwrap())
    };
    runtimes.entry(workers).or_insert_with(make).clone()
}

/// The strings of a domain: equal only if their numbers are.
#[derive(Debug)]
pub struct Texts(Vec<String>);

impl Texts {
    pub fn new(domain: u32) -> Texts {
        let text = |number: u32| match number % 5 {
            0 if number == 0 => String::new(),
            1 => format!("{number}"),
            2 => format!("{number:012}"),
            3 => format!("{number:013}"),
            _ => format!("a long string that differs at its end only: {number}"),
        };
        Texts((0..domain).map(text).collect())
    }

    /// The same, all of them of some hundred bytes.
    pub fn wide(domain: u32) -> Texts {
        Texts((0..domain).map(|number| format!("{}{number:06}", "long and ".repeat(33))).collect())
    }
}

/// A table: keys as numbers in a domain, null or not, and each row's own number.
#[derive(Debug)]
pub struct Side {
    pub lanes: Vec<Lane>,
    pub keys: Vec<Vec<Option<u32>>>,
    pub numbers: Vec<i64>,
    /// For residual conditions.
    pub sizes: Vec<Option<i32>>,
    nullable: Vec<bool>,
    hash_mask: u64,
}

impl Side {
    pub fn random(
        random: &mut fastrand::Rng,
        rows: usize,
        lanes: &[Lane],
        domain: u32,
        hash_mask: u64,
    ) -> Side {
        let nullable: Vec<bool> = lanes.iter().map(|_| random.bool()).collect();
        let key = |(lane, nullable): (&Lane, &bool)| {
            let domain = domain.min(if *lane == Lane::Bool { 2 } else { u32::MAX });
            let key = |random: &mut fastrand::Rng| {
                (!nullable || random.u8(..) > 25).then(|| random.u32(..domain))
            };
            (0..rows).map(|_| key(random)).collect()
        };
        let keys = lanes.iter().zip(&nullable).map(key).collect();
        let numbers = (0..rows).map(|row| row as i64 * 3).collect();
        let sizes = (0..rows).map(|_| (random.u8(..) > 25).then(|| random.i32(-20..20))).collect();
        Side { lanes: lanes.to_vec(), keys, numbers, sizes, nullable, hash_mask }
    }

    pub fn rows(&self) -> usize {
        self.numbers.len()
    }

    /// Keys, number and size, whether they may be null, and how they may lie in tuples: the fields of the build side.
    pub fn fields(&self) -> Vec<(Lane, bool, Storage)> {
        let keys = self.lanes.iter().zip(&self.nullable).zip(&self.keys);
        let key = |((lane, nullable), keys): ((&Lane, &bool), &Vec<Option<u32>>)| {
            (*lane, *nullable, storage(*lane, keys.iter().flatten().copied().max().unwrap_or(0)))
        };
        let number = (Lane::I64, false, Storage::Narrow(Lane::I32));
        keys.map(key).chain([number, (Lane::I32, true, Storage::Narrow(Lane::I8))]).collect()
    }

    /// Registers for the columns: keys, number, size, hash.
    pub fn inputs(&self, program: &mut Program) -> Vec<Register> {
        let others = [Lane::I64, Lane::I32, Lane::U64];
        self.lanes.iter().copied().chain(others).map(|lane| program.input(lane)).collect()
    }

    /// Loads rows of the table.
    pub fn load(
        &self,
        start: usize,
        rows: usize,
        texts: &Texts,
        inputs: &[Register],
        registers: &mut Registers,
    ) {
        for (register, (lane, keys)) in inputs.iter().zip(self.lanes.iter().zip(&self.keys)) {
            let vector = registers.vector_mut(*register);
            vector.validity.set_all();
            for (row, key) in keys[start..start + rows].iter().enumerate() {
                let form = (start + row).is_multiple_of(2);
                put(vector, row, *lane, key.unwrap_or(0), form, texts);
                vector.validity.set(row, key.is_some());
            }
        }
        let [number, size, hash] = inputs[self.lanes.len()..] else { panic!("three more") };
        let numbers = registers.vector_mut(number);
        numbers.validity.set_all();
        numbers.values_mut()[..rows].copy_from_slice(&self.numbers[start..start + rows]);
        let sizes = registers.vector_mut(size);
        sizes.validity.set_all();
        for (row, size) in self.sizes[start..start + rows].iter().enumerate() {
            sizes.values_mut()[row] = size.unwrap_or(7);
            sizes.validity.set(row, size.is_some());
        }
        let hashes = registers.vector_mut(hash);
        hashes.validity.set_all();
        for row in 0..rows {
            hashes.values_mut()[row] = self.hash(start + row);
        }
    }

    pub fn hash(&self, row: usize) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15u64;
        for keys in &self.keys {
            let key = keys[row].map_or(u64::MAX, u64::from);
            hash = (hash ^ key).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash = (hash ^ (hash >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            hash ^= hash >> 29;
        }
        hash & self.hash_mask
    }

    /// The value of a key.
    pub fn constant(&self, key: usize, row: usize, texts: &Texts) -> Option<Constant> {
        let value = self.keys[key][row]?;
        let mut vector = Vector::new(self.lanes[key]);
        put(&mut vector, 0, self.lanes[key], value, row.is_multiple_of(2), texts);
        Some(match self.lanes[key] {
            Lane::Bool => Constant::Bool(vector.values::<Bool>()[0].get()),
            Lane::I8 => Constant::I8(vector.values()[0]),
            Lane::I16 => Constant::I16(vector.values()[0]),
            Lane::I32 => Constant::I32(vector.values()[0]),
            Lane::I64 => Constant::I64(vector.values()[0]),
            Lane::U8 => Constant::U8(vector.values()[0]),
            Lane::U16 => Constant::U16(vector.values()[0]),
            Lane::U32 => Constant::U32(vector.values()[0]),
            Lane::U64 => Constant::U64(vector.values()[0]),
            Lane::I128 => Constant::I128(vector.values()[0]),
            Lane::F32 => Constant::F32(vector.values()[0]),
            Lane::F64 => Constant::F64(vector.values()[0]),
            Lane::Str => Constant::Str(texts.0[value as usize].as_bytes().into()),
        })
    }
}

/// A key as a number that may lie in few bits, negative if the key is small.
fn small(key: u32) -> i64 {
    i64::from(key) - 7
}

/// How keys up to `greatest` may lie in tuples: those that are small numbers in few bytes.
fn storage(lane: Lane, greatest: u32) -> Storage {
    let narrow = match lane {
        Lane::I32 if small(greatest) <= i8::MAX.into() => Lane::I8,
        Lane::I32 if small(greatest) <= i16::MAX.into() => Lane::I16,
        Lane::U64 if greatest <= u8::MAX.into() => Lane::U8,
        Lane::U64 if greatest <= u16::MAX.into() => Lane::U16,
        Lane::U64 => Lane::U32,
        _ => return Storage::Whole,
    };
    Storage::Narrow(narrow)
}

/// Writes a key. Some floats have two forms, which are equal.
fn put(vector: &mut Vector, row: usize, lane: Lane, key: u32, form: bool, texts: &Texts) {
    // Odd, so that no two keys are the same in any of the lanes.
    let wide = i128::from(key).wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15);
    let real = match key {
        0 if form => -0.0,
        1 if form => -f64::NAN,
        1 => f64::NAN,
        key => f64::from(key) * if key % 2 == 0 { 0.5 } else { -1.5 },
    };
    match lane {
        Lane::Bool => vector.values_mut::<Bool>()[row] = (key % 2 == 1).into(),
        Lane::I8 => vector.values_mut()[row] = wide as i8,
        Lane::I16 => vector.values_mut()[row] = wide as i16,
        Lane::I32 => vector.values_mut()[row] = small(key) as i32,
        Lane::I64 => vector.values_mut()[row] = wide as i64,
        Lane::U8 => vector.values_mut()[row] = wide as u8,
        Lane::U16 => vector.values_mut()[row] = wide as u16,
        Lane::U32 => vector.values_mut()[row] = wide as u32,
        Lane::U64 => vector.values_mut()[row] = u64::from(key),
        Lane::I128 => vector.values_mut()[row] = wide,
        Lane::F32 => vector.values_mut()[row] = real as f32,
        Lane::F64 => vector.values_mut()[row] = real,
        Lane::Str => vector.values_mut()[row] = Str::new(texts.0[key as usize].as_bytes()),
    }
}

/// An inner join by the first key, as pairs of numbers of the probe side and of the build side.
pub fn hash_join(build: &Side, probe: &Side) -> Vec<(i64, i64)> {
    let mut rows: HashMap<u32, Vec<i64>> = HashMap::new();
    for (key, number) in build.keys[0].iter().zip(&build.numbers) {
        if let Some(key) = key {
            rows.entry(*key).or_default().push(*number);
        }
    }
    let of = |key: &Option<u32>| key.and_then(|key| rows.get(&key)).into_iter().flatten();
    let pairs = probe.keys[0].iter().zip(&probe.numbers);
    pairs.flat_map(|(key, probe)| of(key).map(|build| (*probe, *build))).collect()
}

/// The rows of a table as a pipeline's source, a few vectors a morsel.
#[derive(Debug)]
pub struct Rows {
    side: Arc<Side>,
    texts: Arc<Texts>,
    queue: MorselQueue,
}

impl Rows {
    pub fn new(side: &Arc<Side>, texts: &Arc<Texts>) -> Rows {
        let queue = MorselQueue::new(side.rows() as u64, 5000);
        Rows { side: side.clone(), texts: texts.clone(), queue }
    }
}

impl Source for Rows {
    fn morsel(&self, _worker: usize) -> Option<Box<dyn Morsel>> {
        let range = self.queue.next()?;
        let range = range.start as usize..range.end as usize;
        let (side, texts) = (self.side.clone(), self.texts.clone());
        Some(Box::new(RowsMorsel(Some(RowsTuples { side, texts, range }))))
    }
}

struct RowsMorsel(Option<RowsTuples>);

impl Morsel for RowsMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let tuples = self.0.take().map(|tuples| Box::new(tuples) as Box<dyn Tuples>);
        Box::pin(async { Ok(tuples) })
    }
}

struct RowsTuples {
    side: Arc<Side>,
    texts: Arc<Texts>,
    range: Range<usize>,
}

impl Tuples for RowsTuples {
    fn rows(&self) -> usize {
        self.range.len()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        self.side.load(self.range.start + start, rows, &self.texts, inputs, registers);
        Ok(())
    }
}

/// A sink that calls a function with each batch of tuples.
pub struct Each<F>(pub Arc<F>);

impl<F> fmt::Debug for Each<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Each")
    }
}

impl<F: Fn(&Registers) -> Flow + Send + Sync + 'static> Sink for Each<F> {
    fn local(&self, _context: &Context, _worker: usize) -> Result<Box<dyn LocalSink>> {
        Ok(Box::new(LocalEach(self.0.clone())))
    }
}

struct LocalEach<F>(Arc<F>);

impl<F: Fn(&Registers) -> Flow + Send + Sync> LocalSink for LocalEach<F> {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        Box::pin(async { Ok((self.0)(registers)) })
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
