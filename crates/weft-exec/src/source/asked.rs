//! What scans of tables ask the filters of joins: bounds, for blocks, and hashes of single columns, for rows.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType;
use weft_store::{ColumnFilter, Op, Predicate, Scalar};

use crate::arrow::ArrowColumn;
use crate::join::{AskedRows, Wanted};
use crate::lane::Lane;
use crate::program::{Constant, Register};
use crate::registers::Registers;
use crate::vector::VECTOR_ROWS_MAX;

/// Of so many rows, one at least must be dropped for it to be worth it to ask before the other columns are decoded.
const DROPPED_SHARE: u64 = 2;

/// A key of a join's filter that is a column of a scan: blocks without a value between its bounds are left out.
#[derive(Clone, Debug)]
pub struct AskedBounds {
    /// The column, by its place among those of the scan.
    pub column: usize,
    /// The key, by its place among those of the filter. Nulls are no keys of the build side, or match nothing.
    pub key: usize,
    /// The filter, whose build side ends before the scan is opened.
    pub wanted: Arc<Wanted>,
}

impl AskedBounds {
    /// Has the build side find the bounds. To be called before it ends.
    pub fn want(&self) {
        self.wanted.want_bounds();
    }

    /// The least and the greatest value of the key, when they are known: `Some(None)` if there is none.
    pub fn get(&self) -> Option<Option<(Constant, Constant)>> {
        self.wanted.filter().map(|filter| filter.bounds(self.key))
    }

    /// The bounds as conditions on a column of a type, when they are known.
    pub(crate) fn predicates(&self, data_type: &DataType) -> Vec<Predicate> {
        let Some(filter) = self.wanted.filter() else { return Vec::new() };
        let Some((least, greatest)) = filter.bounds(self.key) else {
            return vec![Predicate::Compare(Op::Eq, Scalar::Null)];
        };
        let bounds = [(Op::GtEq, least), (Op::LtEq, greatest)].into_iter();
        let predicate = |(op, bound)| Some(Predicate::Compare(op, scalar(&bound, data_type)?));
        bounds.filter_map(predicate).collect()
    }
}

/// A value as zones have it, in which all integers are of one kind; `None` if zones have it in another way.
fn scalar(value: &Constant, data_type: &DataType) -> Option<Scalar> {
    match value {
        Constant::Str(_) if Lane::is_row_encoded(data_type) => None,
        Constant::Str(value) => Some(Scalar::Bytes(value.to_vec())),
        // NaN is a key like others, but nothing that zones know: no floats.
        number => number.integer().map(Scalar::Int128),
    }
}

/// A filter over one key that is a column of a scan, which decodes this column first, and the others where rows are
/// left. Once it is known to drop too few rows, it is not asked any more.
pub struct AskedColumn {
    /// The column, by its place among those of the scan.
    column: usize,
    wanted: Arc<Wanted>,
    rows: Arc<AskedRows>,
    is_off: AtomicBool,
    /// A register for values of the key's lane and one for their hashes, of whoever is not asking just now.
    free: Mutex<Vec<Registers>>,
    lane: Lane,
}

impl AskedColumn {
    /// Asks about a column, whose values lie in `lane` as those of the build side do.
    pub fn new(column: usize, lane: Lane, wanted: Arc<Wanted>) -> AskedColumn {
        wanted.want_rows();
        let (rows, is_off, free) = (Arc::default(), false.into(), Mutex::default());
        AskedColumn { column, wanted, rows, is_off, free, lane }
    }

    /// The column, by its place among those of the scan.
    pub fn column(&self) -> usize {
        self.column
    }

    /// To see later how many rows were dropped.
    pub fn rows(&self) -> Arc<AskedRows> {
        self.rows.clone()
    }

    fn take(&self) -> Registers {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| Registers::of(&[self.lane, Lane::U64]))
    }
}

impl fmt::Debug for AskedColumn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AskedColumn").field("column", &self.column).finish_non_exhaustive()
    }
}

impl ColumnFilter for AskedColumn {
    fn is_worth_it(&self) -> bool {
        self.wanted.filter().is_some() && !self.is_off.load(Ordering::Relaxed)
    }

    fn wanted(&self, values: &ArrayRef, rows: usize) -> Option<BooleanBuffer> {
        let filter = self.wanted.filter().filter(|_| !self.is_off.load(Ordering::Relaxed))?;
        // What cannot be loaded is an error where the rows are.
        let column = ArrowColumn::new(values, self.lane).ok()?;
        let mut registers = self.take();
        let mut bits = BooleanBufferBuilder::new(values.len());
        let (key, hash) = (Register(0), Register(1));
        let mut kept = 0;
        for start in (0..values.len()).step_by(VECTOR_ROWS_MAX) {
            let count = VECTOR_ROWS_MAX.min(values.len() - start);
            registers.begin(count);
            column.load(start, count, registers.vector_mut(key)).ok()?;
            kept += filter.append_bits(&mut registers, count, (key, hash), &mut bits);
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(registers);
        // About as many of the rows as of the values.
        let kept_rows = kept * rows / values.len().max(1);
        if !self.rows.count(rows, kept_rows, DROPPED_SHARE) {
            self.is_off.store(true, Ordering::Relaxed);
        }
        Some(bits.finish())
    }
}
