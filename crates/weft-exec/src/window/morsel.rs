//! A morsel of a window operator: a range of whole partitions, for which all functions are evaluated.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::column::{Column, array};
use super::foreign::{self, ForeignHeld};
use super::frames::Frames;
use super::functions::{Aggregate, Function, Given, Kind, Partitionwise};
use super::held::held;
use super::shifts::Nth;
use super::starts::Starts;
use super::{aggregates, excluded, ranks, shifts};
use crate::apart::{self, Taken};
use crate::arrow::ArrowColumn;
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::sort::entries::Entry;
use crate::tuple::Layout;
use crate::tuple::budget::Budget;

/// Sorted rows, which are numbered from the first of the morsel on.
pub(super) struct Rows<'a> {
    pub(super) sorted: &'a [Entry],
    pub(super) layout: &'a Layout,
    /// Their numbers among all.
    pub(super) range: Range<usize>,
    pub(super) partitions: &'a Starts,
    /// Where peers begin, in the order of the function that is evaluated.
    pub(super) peers: &'a Starts,
}

impl Rows<'_> {
    /// How many.
    pub(super) fn count(&self) -> usize {
        self.range.len()
    }

    /// The partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = Range<usize>> {
        let first = self.range.start;
        let partitions = self.partitions.ranges(self.range.clone());
        partitions.map(move |range| range.start - first..range.end - first)
    }

    /// The end of the peers of a row, in a partition with this end.
    pub(super) fn peers_end(&self, row: usize, end: usize) -> usize {
        let first = self.range.start;
        self.peers.next(first + row, first + end) - first
    }
}

/// The results of a function.
///
/// # Errors
/// What the function finds wrong; [`ExecError::Memory`].
///
/// # Safety
/// The tuples have the layout.
pub(super) async unsafe fn evaluate(
    function: &Function,
    rows: &Rows<'_>,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<Column> {
    let bytes = rows.count() * function.result.width();
    budget.reserve(bytes as u64).await?;
    let mut out = Column::new(function.result, rows.count());
    if matches!(
        function.kind,
        Kind::Shift(_) | Kind::Nth { .. } | Kind::Aggregate(..) | Kind::Foreign(..)
    ) {
        // For the numbers of rows, or sums, that are kept on the way.
        budget.reserve((rows.count() * size_of::<usize>()) as u64).await?;
    }
    match &function.kind {
        Kind::Partitionwise(called) => {
            // SAFETY: as the caller promises.
            let inputs =
                unsafe { arrays(function, called.input_types(), rows, budget, pace).await? };
            let mut taken = Taken::default();
            for partition in rows.partitions() {
                let count = partition.len();
                let of_partition: Vec<ArrayRef> =
                    inputs.iter().map(|input| input.slice(partition.start, count)).collect();
                let (called, lane) = (called.clone(), function.result);
                let evaluate = move || {
                    let began = Instant::now();
                    let values = called.evaluate(&of_partition, count)?;
                    check(&called, &values, count)?;
                    let made = Arc::new(ArrowColumn::new(&values, lane)?);
                    Ok::<_, ExecError>((made, began.elapsed()))
                };
                let is_long = taken.is_long(count);
                let evaluated = if is_long { apart::run(evaluate).await } else { evaluate() };
                let (made, took) = evaluated?;
                taken.note(count, took);
                out.set_all(partition.start, &made, pace).await?;
                out.account(budget).await?;
                pace.keep().await;
            }
        }
        Kind::Shift(shift) => {
            // SAFETY: as the caller promises.
            let (argument, given) = unsafe {
                let argument = column(function.arguments[0], rows, budget, pace).await?;
                (argument, columns(shift.fields(), rows, budget, pace).await?)
            };
            shifts::write_shift(shift, rows, &argument, &given, &mut out, pace).await;
        }
        Kind::Nth { row, ignores_nulls, frame } => {
            // SAFETY: as the caller promises.
            let (argument, numbers, fields) = unsafe {
                let argument = column(function.arguments[0], rows, budget, pace).await?;
                let numbers = columns([row.field(), None, None], rows, budget, pace).await?;
                (argument, numbers, columns(frame.fields(), rows, budget, pace).await?)
            };
            let mut frames = Frames::new(frame, rows, &fields);
            let [numbers, ..] = &numbers;
            let nth = Nth { row, numbers: numbers.as_ref(), ignores_nulls: *ignores_nulls };
            shifts::write_nth(&nth, &mut frames, rows, &argument, &mut out, pace).await?;
        }
        Kind::Aggregate(aggregate, frame) => {
            let argument = function.arguments.first().copied();
            // SAFETY: as the caller promises.
            let ([argument, ..], fields) = unsafe {
                let argument = columns([argument, None, None], rows, budget, pace).await?;
                (argument, columns(frame.fields(), rows, budget, pace).await?)
            };
            let mut frames = Frames::new(frame, rows, &fields);
            if frames.excludes() || matches!(aggregate, Aggregate::Moment(_)) {
                let argument = argument.as_ref();
                excluded::write(*aggregate, &mut frames, rows, argument, &mut out, budget, pace)
                    .await?;
                return Ok(out);
            }
            let mut held = held(*aggregate, frame.is_from_start(), argument.as_ref());
            aggregates::write(held.as_mut(), &mut frames, rows, &mut out, budget, pace).await?;
        }
        Kind::Foreign(of, frame) => {
            // SAFETY: as the caller promises.
            let (inputs, fields) = unsafe {
                let inputs = arrays(function, of.input_types(), rows, budget, pace).await?;
                (inputs, columns(frame.fields(), rows, budget, pace).await?)
            };
            let mut frames = Frames::new(frame, rows, &fields);
            let mut held = ForeignHeld::new(&**of, inputs)?;
            if frames.excludes() {
                foreign::write_excluded(&mut held, &mut frames, rows, &mut out, budget, pace)
                    .await?;
                return Ok(out);
            }
            aggregates::write(&mut held, &mut frames, rows, &mut out, budget, pace).await?;
        }
        Kind::Ntile(Given::Field(field)) => {
            // SAFETY: as the caller promises.
            let parts = unsafe { column(*field, rows, budget, pace).await? };
            ranks::write_ntile(&parts, rows, &mut out, pace).await?;
        }
        kind => ranks::write(kind, rows, &mut out, pace).await,
    }
    Ok(out)
}

/// A field of the rows.
///
/// # Safety
/// The tuples have the layout.
pub(super) async unsafe fn column(
    field: usize,
    rows: &Rows<'_>,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<Column> {
    let bytes = rows.count() * rows.layout.field(field).lane.width();
    budget.reserve(bytes as u64).await?;
    // SAFETY: as the caller promises.
    Ok(unsafe { Column::gather(rows.sorted, rows.range.clone(), rows.layout, field, pace).await })
}

/// Fields of the rows, those that are given.
///
/// # Safety
/// The tuples have the layout.
async unsafe fn columns(
    fields: [Option<usize>; 3],
    rows: &Rows<'_>,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<[Option<Column>; 3]> {
    let mut columns = [None, None, None];
    for (column, field) in columns.iter_mut().zip(fields) {
        if let Some(field) = field {
            // SAFETY: as the caller promises.
            *column = Some(unsafe { self::column(field, rows, budget, pace).await? });
        }
    }
    Ok(columns)
}

/// The arguments of a function that is not ours.
///
/// # Safety
/// The tuples have the layout.
async unsafe fn arrays(
    function: &Function,
    types: &[DataType],
    rows: &Rows<'_>,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<Vec<ArrayRef>> {
    let mut inputs = Vec::with_capacity(function.arguments.len());
    for (field, data_type) in function.arguments.iter().zip(types) {
        let bytes = rows.count() * rows.layout.field(*field).lane.width();
        budget.reserve(bytes as u64).await?;
        let (sorted, range) = (rows.sorted, rows.range.clone());
        // SAFETY: as the caller promises.
        let input = unsafe { array(sorted, range, rows.layout, *field, data_type, pace).await? };
        let more = input.get_buffer_memory_size().saturating_sub(bytes);
        budget.reserve(more as u64).await?;
        inputs.push(input);
    }
    Ok(inputs)
}

fn check(called: &Arc<dyn Partitionwise>, values: &ArrayRef, rows: usize) -> Result<()> {
    if values.len() == rows {
        return Ok(());
    }
    let problem = format!("{} gave {} values for {rows} rows", called.name(), values.len());
    Err(ExecError::Function(problem.into()))
}
