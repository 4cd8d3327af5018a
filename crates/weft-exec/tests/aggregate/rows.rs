//! Rows as tests have them: tables of single values.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use weft_exec::lane::Bool;
use weft_exec::program::Register;
use weft_exec::registers::Registers;
use weft_exec::vector::Codes;
use weft_exec::{Lane, Str, Vector, for_lane};

/// A value of some lane; integers are those of their lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Vec<u8>),
}

pub type Cell = Option<Scalar>;

/// A table: a lane for each column, and rows.
#[derive(Clone, Debug)]
pub struct Table {
    pub lanes: Vec<Lane>,
    pub rows: Vec<Vec<Cell>>,
    /// For each column, the codes of its values, if they are few and are to be known.
    dictionaries: Vec<Option<HashMap<Vec<u8>, u16>>>,
}

/// Most values of a dictionary.
const VALUES_MAX: usize = 60;
/// Rows that have one dictionary; the next ones have another.
const DICTIONARY_ROWS: usize = 3000;

impl Table {
    pub fn new(lanes: Vec<Lane>, rows: Vec<Vec<Cell>>) -> Table {
        Table { lanes, rows, dictionaries: Vec::new() }
    }

    /// Has registers know the codes of columns with few values.
    pub fn make_dictionaries(&mut self) {
        let of = |column: usize| {
            let mut codes = HashMap::new();
            for cell in self.rows.iter().filter_map(|row| row[column].as_ref()) {
                let next = codes.len() as u16;
                codes.entry(cell.identity()).or_insert(next);
                if codes.len() > VALUES_MAX {
                    return None;
                }
            }
            (!codes.is_empty()).then_some(codes)
        };
        self.dictionaries = (0..self.lanes.len()).map(of).collect();
    }

    /// Puts a column of `rows` rows into a register. The rows outlive what is made of it.
    pub fn fill(&self, registers: &mut Registers, column: usize, rows: Range<usize>) {
        let cells: Vec<&Cell> = self.rows[rows.clone()].iter().map(|row| &row[column]).collect();
        let vector = registers.vector_mut(Register(column as u16));
        vector.validity.set_all();
        for (at, cell) in cells.iter().enumerate() {
            vector.validity.set(at, cell.is_some());
            let Some(value) = cell else { continue };
            put(vector, at, value);
        }
        // An untouched vector must have values, too.
        for_lane!(vector.lane(), T => assert!(!vector.values_mut::<T>().is_empty()));
        if let Some(Some(known)) = self.dictionaries.get(column) {
            let turn = rows.start / DICTIONARY_ROWS;
            let code = |cell: &&Cell| {
                let code = cell.as_ref().map_or(0, |value| known[&value.identity()]);
                (code + turn as u16) % known.len() as u16
            };
            let codes = cells.iter().map(code).collect();
            let dictionary = (column * self.rows.len() + turn) as u64;
            vector.set_codes(Codes { codes, values: known.len(), dictionary });
        }
    }
}

impl Scalar {
    /// What tells groups apart: -0.0 is 0.0, and NaN is NaN.
    pub fn identity(&self) -> Vec<u8> {
        match self {
            Scalar::Bool(value) => vec![(*value).into()],
            Scalar::Integer(value) => value.to_le_bytes().to_vec(),
            Scalar::Float(value) if value.is_nan() => vec![0xff; 8],
            Scalar::Float(value) => (value + 0.0).to_le_bytes().to_vec(),
            Scalar::Text(bytes) => bytes.clone(),
        }
    }

    pub fn integer(&self) -> i128 {
        match self {
            Scalar::Bool(value) => (*value).into(),
            Scalar::Integer(value) => *value,
            other => panic!("{other:?} is no integer"),
        }
    }

    pub fn float(&self) -> f64 {
        match self {
            Scalar::Integer(value) => *value as f64,
            Scalar::Float(value) => *value,
            other => panic!("{other:?} is no number"),
        }
    }

    /// The order of the engine.
    pub fn compare(&self, other: &Scalar) -> std::cmp::Ordering {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => {
                a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            }
            (Scalar::Text(a), Scalar::Text(b)) => a.cmp(b),
            _ => self.integer().cmp(&other.integer()),
        }
    }
}

/// What tells rows of cells apart.
pub fn identity(cells: &[Cell]) -> Vec<Option<Vec<u8>>> {
    cells.iter().map(|cell| cell.as_ref().map(Scalar::identity)).collect()
}

/// A hash of cells, as good as the engine's.
pub fn hash(cells: &[Cell]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15u64;
    for identity in identity(cells) {
        let bytes = identity.map_or(vec![7, 7, 7], |bytes| bytes);
        for byte in bytes.iter().chain([&0xab]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
        hash ^= hash >> 29;
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn put(vector: &mut Vector, at: usize, value: &Scalar) {
    match (vector.lane(), value) {
        (Lane::Bool, Scalar::Bool(value)) => vector.values_mut::<Bool>()[at] = (*value).into(),
        (Lane::I8, value) => vector.values_mut::<i8>()[at] = value.integer() as i8,
        (Lane::I16, value) => vector.values_mut::<i16>()[at] = value.integer() as i16,
        (Lane::I32, value) => vector.values_mut::<i32>()[at] = value.integer() as i32,
        (Lane::I64, value) => vector.values_mut::<i64>()[at] = value.integer() as i64,
        (Lane::U8, value) => vector.values_mut::<u8>()[at] = value.integer() as u8,
        (Lane::U16, value) => vector.values_mut::<u16>()[at] = value.integer() as u16,
        (Lane::U32, value) => vector.values_mut::<u32>()[at] = value.integer() as u32,
        (Lane::U64, value) => vector.values_mut::<u64>()[at] = value.integer() as u64,
        (Lane::I128, value) => vector.values_mut::<i128>()[at] = value.integer(),
        (Lane::F32, value) => vector.values_mut::<f32>()[at] = value.float() as f32,
        (Lane::F64, value) => vector.values_mut::<f64>()[at] = value.float(),
        (Lane::Str, Scalar::Text(bytes)) => vector.values_mut::<Str>()[at] = Str::new(bytes),
        (lane, value) => panic!("{value:?} in a register of {lane}"),
    }
}

/// A value of a register.
pub fn cell(vector: &Vector, at: usize) -> Cell {
    Some(match vector.lane() {
        Lane::Bool => Scalar::Bool(vector.value::<Bool>(at)?.get()),
        Lane::I8 => Scalar::Integer(vector.value::<i8>(at)?.into()),
        Lane::I16 => Scalar::Integer(vector.value::<i16>(at)?.into()),
        Lane::I32 => Scalar::Integer(vector.value::<i32>(at)?.into()),
        Lane::I64 => Scalar::Integer(vector.value::<i64>(at)?.into()),
        Lane::U8 => Scalar::Integer(vector.value::<u8>(at)?.into()),
        Lane::U16 => Scalar::Integer(vector.value::<u16>(at)?.into()),
        Lane::U32 => Scalar::Integer(vector.value::<u32>(at)?.into()),
        Lane::U64 => Scalar::Integer(vector.value::<u64>(at)?.into()),
        Lane::I128 => Scalar::Integer(vector.value::<i128>(at)?),
        Lane::F32 => Scalar::Float(vector.value::<f32>(at)?.into()),
        Lane::F64 => Scalar::Float(vector.value::<f64>(at)?),
        Lane::Str => {
            let string = vector.value::<Str>(at)?;
            // SAFETY: the groups that were loaded are alive.
            Scalar::Text(unsafe { string.bytes() }.to_vec())
        }
    })
}

/// A table that all workers read.
pub type Shared = Arc<Table>;
