//! Rows and functions on their way through pipelines, and back in words.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use futures::StreamExt;
use weft_exec::pipeline::Pipeline;
use weft_exec::program::{Program, Register, Step};
use weft_exec::query::{Context, Query};
use weft_exec::sink::Output;
use weft_exec::sort::{Order, Sort, SortKey};
use weft_exec::source::Batches;
use weft_exec::tuple::Layout;
use weft_exec::window::{Aggregate, Function, Kind, WindowRows};
use weft_exec::{Lane, Result};

use crate::oracle::{Argument, KeyOrder, Row};

/// Fields of the tuples, in the order of the columns.
pub(crate) const GROUP: usize = 1;
pub(crate) const KEY: usize = 2;

/// The results of a function.
pub(crate) type Words = Vec<Option<String>>;

const LANES: [Lane; 7] =
    [Lane::U64, Lane::I32, Lane::I64, Lane::I64, Lane::F64, Lane::Str, Lane::Bool];

impl Argument {
    pub(crate) fn field(self) -> Option<usize> {
        match self {
            Argument::Nothing => None,
            Argument::Number => Some(3),
            Argument::Float => Some(4),
            Argument::Text => Some(5),
            Argument::Truth => Some(6),
        }
    }
}

/// The type of a function's result.
fn result_type(kind: &Kind, argument: Argument) -> DataType {
    let of_argument = match argument {
        Argument::Nothing | Argument::Number => DataType::Int64,
        Argument::Float => DataType::Float64,
        Argument::Text => DataType::Utf8View,
        Argument::Truth => DataType::Boolean,
    };
    match kind {
        Kind::RowNumber | Kind::Rank | Kind::DenseRank | Kind::Ntile(_) => DataType::UInt64,
        Kind::PercentRank | Kind::CumeDist => DataType::Float64,
        Kind::Shift(_) | Kind::Nth { .. } => of_argument,
        Kind::Aggregate(Aggregate::Count, _) | Kind::Foreign(..) | Kind::Partitionwise(_) => {
            DataType::Int64
        }
        Kind::Aggregate(Aggregate::Moment(_), _) => DataType::Float64,
        Kind::Aggregate(..) => of_argument,
    }
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.id)))),
        ("group", Arc::new(rows.iter().map(|row| row.group).collect::<Int32Array>())),
        ("key", Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>())),
        ("number", Arc::new(rows.iter().map(|row| row.number).collect::<Int64Array>())),
        ("float", Arc::new(rows.iter().map(|row| row.float).collect::<Float64Array>())),
        ("text", Arc::new(rows.iter().map(|row| row.text.clone()).collect::<StringViewArray>())),
        ("truth", Arc::new(rows.iter().map(|row| row.truth).collect::<BooleanArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, name != "id")),
    )
    .unwrap()
}

/// The rows' numbers in the order in which they come, and the results of each function, in words.
pub(crate) fn run(
    context: &Context,
    rows: &[Row],
    has_groups: bool,
    order: KeyOrder,
    functions: &[(Kind, Argument)],
) -> Result<(Vec<u64>, Vec<Words>)> {
    let nullable = [false, true, true, true, true, true, true];
    let fields: Vec<_> = LANES.into_iter().zip(nullable).collect();
    let layout = Arc::new(Layout::new(&fields));
    let mut program = Program::default();
    let inputs: Vec<Register> = LANES.iter().map(|lane| program.input(*lane)).collect();
    let bits = program.register(Lane::U64);
    let by =
        |field, descending, nulls_first| SortKey { field, descending, nulls_first, bounds: None };
    let mut keys = vec![by(KEY, order.descending, order.nulls_first), by(0, false, false)];
    if has_groups {
        keys.insert(0, by(GROUP, false, true));
    }
    let sort = Sort::of("a window", Order::new(layout.clone(), keys), inputs, bits);
    let types: Vec<DataType> =
        functions.iter().map(|(kind, argument)| result_type(kind, *argument)).collect();
    let asked = functions.iter().zip(&types).map(|((kind, argument), data_type)| Function {
        kind: kind.clone(),
        arguments: argument.field().into_iter().collect(),
        order: vec![KEY],
        result: Lane::of(data_type),
    });
    let partition = if has_groups { vec![GROUP] } else { Vec::new() };
    let source = Box::new(WindowRows::new(&sort, partition, asked.collect()));
    source.is_ordered().store(true, Ordering::Relaxed);
    let batches: Vec<RecordBatch> = rows.chunks(1 << 14).map(batch).collect();
    let stored = Pipeline {
        source: Box::new(Batches::new(batches, LANES.to_vec())),
        program,
        sink: Box::new(sort),
        after: Vec::new(),
    };
    let mut program = Program::default();
    let tuples = program.input(Lane::U64);
    let mut columns: Vec<(Register, Lane)> =
        types.iter().map(|of| (program.input(Lane::of(of)), Lane::of(of))).collect();
    let out = program.register(Lane::U64);
    program.steps.push(Step::Load { tuples, layout, field: 0, out });
    columns.push((out, Lane::U64));
    let fields = types.iter().enumerate();
    let mut fields: Vec<Field> =
        fields.map(|(number, of)| Field::new(number.to_string(), of.clone(), true)).collect();
    fields.push(Field::new("id", DataType::UInt64, false));
    let (output, results) = Output::new(Arc::new(Schema::new(fields)), columns);
    let given = Pipeline { source, program, sink: Box::new(output), after: vec![0] };
    let stream = results.of(Query { pipelines: vec![stored, given] }, context);
    let schema = stream.schema();
    let batches: Vec<Result<RecordBatch>> = weft_rt::sync::block_on(stream.collect());
    assert_eq!(context.ledger.used(), 0, "memory is left");
    let batches = batches.into_iter().collect::<Result<Vec<_>>>()?;
    let all = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
    let ids = all.column(functions.len()).as_primitive::<UInt64Type>().values().to_vec();
    Ok((ids, all.columns()[..functions.len()].iter().map(in_words).collect()))
}

fn in_words(column: &ArrayRef) -> Words {
    (0..column.len())
        .map(|row| {
            column.is_valid(row).then(|| match column.data_type() {
                DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
                DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
                DataType::Float64 => {
                    format!("{:?}", column.as_primitive::<Float64Type>().value(row))
                }
                DataType::Boolean => column.as_boolean().value(row).to_string(),
                _ => column.as_string_view().value(row).to_owned(),
            })
        })
        .collect()
}
