//! Aggregates of frames that DataFusion accumulates.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::logical_expr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use weft_exec::ExecError;
use weft_exec::window::{Accumulator, Foreign};

/// Aggregates that take rows back by their values, whichever came first, and exactly: of floats something may be left.
const REMOVE_ANY: [&str; 3] = ["bit_xor", "count", "sum"];

/// Of those, the ones that are not told by DataFusion whether there are values left, rather than nulls alone.
const FORGET_NONE: [&str; 2] = ["bit_xor", "sum"];

/// An aggregate function of DataFusion's.
#[derive(Debug)]
pub(super) struct Accumulated {
    expr: Arc<AggregateFunctionExpr>,
    input_types: Vec<DataType>,
    /// Frames leave rows behind.
    slides: bool,
}

impl Accumulated {
    /// A function of arguments of these types.
    pub(super) fn new(
        expr: &AggregateFunctionExpr,
        input_types: Vec<DataType>,
        slides: bool,
    ) -> Accumulated {
        Accumulated { expr: Arc::new(expr.clone()), input_types, slides }
    }
}

impl Foreign for Accumulated {
    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn accumulator(&self, inputs: Vec<ArrayRef>) -> weft_exec::Result<Box<dyn Accumulator>> {
        // Some cannot leave rows behind, and begin anew for each frame.
        let sliding = if self.slides { self.expr.create_sliding_accumulator().ok() } else { None };
        let slides = sliding.is_some();
        let expr = self.expr.clone();
        let inner = match sliding {
            Some(inner) => inner,
            None => ours(expr.create_accumulator())?,
        };
        let passes_over_nulls = FORGET_NONE.contains(&expr.fun().name());
        let removes_any = slides && REMOVE_ANY.contains(&expr.fun().name());
        Ok(Box::new(Accumulating {
            expr,
            inputs,
            slides,
            removes_any,
            inner,
            passes_over_nulls,
            rows: 0,
        }))
    }
}

/// What is accumulated of some rows.
struct Accumulating {
    expr: Arc<AggregateFunctionExpr>,
    inputs: Vec<ArrayRef>,
    slides: bool,
    removes_any: bool,
    inner: Box<dyn logical_expr::Accumulator>,
    /// Only rows with a value count.
    passes_over_nulls: bool,
    /// How many rows.
    rows: usize,
}

impl Accumulating {
    /// How many of some rows count.
    fn count(&self, rows: &Range<usize>) -> usize {
        match self.inputs.first() {
            Some(input) if self.passes_over_nulls => {
                rows.len() - input.slice(rows.start, rows.len()).logical_null_count()
            }
            _ => rows.len(),
        }
    }

    fn slices(&self, rows: &Range<usize>) -> Vec<ArrayRef> {
        self.inputs.iter().map(|input| input.slice(rows.start, rows.len())).collect()
    }
}

impl Accumulator for Accumulating {
    fn removes(&self) -> bool {
        self.slides
    }

    fn removes_any(&self) -> bool {
        self.removes_any
    }

    fn go_on(&mut self, inputs: Vec<ArrayRef>) {
        self.inputs = inputs;
    }

    fn bytes(&self) -> usize {
        self.inner.size()
    }

    fn clear(&mut self) -> weft_exec::Result<()> {
        self.rows = 0;
        self.inner = ours(match self.slides {
            true => self.expr.create_sliding_accumulator(),
            false => self.expr.create_accumulator(),
        })?;
        Ok(())
    }

    fn add(&mut self, rows: Range<usize>) -> weft_exec::Result<()> {
        self.rows += self.count(&rows);
        ours(self.inner.update_batch(&self.slices(&rows)))
    }

    fn remove(&mut self, rows: Range<usize>) -> weft_exec::Result<()> {
        self.rows -= self.count(&rows);
        ours(self.inner.retract_batch(&self.slices(&rows)))
    }

    fn value(&mut self) -> weft_exec::Result<ArrayRef> {
        let value = match self.rows {
            0 => self.expr.default_value(self.expr.field().data_type()),
            _ => self.inner.evaluate(),
        };
        ours(value.and_then(|value| value.to_array()))
    }
}

/// An error in our terms.
fn ours<T>(result: DfResult<T>) -> weft_exec::Result<T> {
    result.map_err(|error| ExecError::Function(Box::new(error)))
}
