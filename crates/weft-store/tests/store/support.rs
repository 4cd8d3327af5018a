//! Runtimes, tables and rows for the tests.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, IntervalMonthDayNano};
use arrow_array::*;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::*;

/// A runtime with this many workers.
pub fn runtime(driver: DriverKind, workers: usize) -> Arc<Runtime> {
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    Arc::new(Runtime::new(&options).unwrap())
}

/// A budget that is not felt.
pub fn ample() -> Ledger {
    Ledger::new(1 << 30)
}

/// A column that may hold NULL.
pub fn column(name: &str, data_type: DataType) -> Column {
    Column {
        name: name.into(),
        data_type,
        nullable: true,
        default: None,
        max_length: None,
        kind: None,
    }
}

/// A schema of these columns.
pub fn table(name: &str, columns: &[(&str, DataType)]) -> TableSchema {
    let columns = columns.iter().map(|(name, data_type)| column(name, data_type.clone()));
    TableSchema { name: name.into(), columns: columns.collect() }
}

/// Opens or makes the database in `directory`.
pub fn open(directory: &Directory, runtime: &Arc<Runtime>) -> Arc<Store> {
    try_open(directory, runtime).unwrap()
}

/// Opens or makes the database in `directory`.
pub fn try_open(directory: &Directory, runtime: &Arc<Runtime>) -> Result<Arc<Store>> {
    let options = StoreOptions { create: true, ..StoreOptions::default() };
    Store::open(directory, &options, runtime.clone(), ample())
}

/// Writes batches as one partition.
pub fn write(
    store: &Store,
    schema: &TableSchema,
    batches: &[RecordBatch],
) -> Result<WrittenGroups> {
    write_as(store, schema, batches, WriterOptions::default())
}

/// The same with options.
pub fn write_as(
    store: &Store,
    schema: &TableSchema,
    batches: &[RecordBatch],
    options: WriterOptions,
) -> Result<WrittenGroups> {
    let writer = store.writer(schema, options)?;
    let mut partition = writer.partition(0);
    block_on(async {
        for batch in batches {
            partition.append(batch.clone()).await?;
        }
        partition.finish().await?;
        writer.finish().await
    })
}

/// Makes a table and commits these rows.
pub fn load(store: &Store, schema: &TableSchema, batches: &[RecordBatch]) -> Arc<Table> {
    let create = Change::CreateTable { schema: schema.clone(), or_replace: false };
    store.commit_blocking(vec![create]).unwrap();
    append(store, schema, batches)
}

/// Adds rows to a table.
pub fn append(store: &Store, schema: &TableSchema, batches: &[RecordBatch]) -> Arc<Table> {
    let groups = write(store, schema, batches).unwrap();
    let table = schema.name.clone();
    let append = Change::Append { table, expected: None, groups };
    store.commit_blocking(vec![append]).unwrap().table(&schema.name).unwrap()
}

/// All rows of a scan in the order of their ids, as one batch; the last column has the ids.
pub fn collect(table: &Arc<Table>, options: ScanOptions) -> Result<RecordBatch> {
    let mut scan = table.scan(ScanOptions { with_row_id: true, ..options })?;
    let mut batches = Vec::new();
    while let Some(batch) = scan.next_blocking() {
        batches.push(batch?);
    }
    let ids = |batch: &RecordBatch| -> u64 {
        let ids = batch.column(batch.num_columns() - 1);
        ids.as_any().downcast_ref::<UInt64Array>().unwrap().value(0)
    };
    batches.sort_by_key(ids);
    Ok(arrow_select::concat::concat_batches(&scan.schema(), &batches).unwrap())
}

/// All columns and rows of a table, in the order of the rows.
pub fn everything(table: &Arc<Table>) -> Result<RecordBatch> {
    let projection: Vec<usize> = (0..table.schema().columns.len()).collect();
    let rows =
        collect(table, ScanOptions { projection: projection.clone(), ..Default::default() })?;
    Ok(rows.project(&projection).unwrap())
}

/// A schema with many types.
pub fn many_types(name: &str) -> TableSchema {
    table(
        name,
        &[
            ("flag", DataType::Boolean),
            ("tiny", DataType::Int8),
            ("number", DataType::Int64),
            ("count", DataType::UInt32),
            ("price", DataType::Decimal128(15, 2)),
            ("ratio", DataType::Float64),
            ("day", DataType::Date32),
            ("at", DataType::Timestamp(TimeUnit::Microsecond, None)),
            ("text", DataType::Utf8View),
            ("bytes", DataType::BinaryView),
            ("list", DataType::List(Arc::new(Field::new("item", DataType::Int64, true)))),
            ("pair", DataType::Struct(pair())),
            ("span", DataType::Interval(IntervalUnit::MonthDayNano)),
        ],
    )
}

fn pair() -> Fields {
    vec![Field::new("number", DataType::Int64, true), Field::new("text", DataType::Utf8View, true)]
        .into()
}

/// Random rows of [`many_types`].
pub fn random_rows(schema: &TableSchema, rows: usize, random: &mut fastrand::Rng) -> RecordBatch {
    let nulls = random.bool();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for column in &schema.columns {
        let skewed = random.bool();
        let mut number = || -> Option<i64> {
            if nulls && random.u8(..) < 40 {
                return None;
            }
            Some(if skewed { random.i64(-5..100) } else { random.i64(-1_000_000..1_000_000) })
        };
        let numbers: Vec<Option<i64>> = (0..rows).map(|_| number()).collect();
        columns.push(array(&column.data_type, &numbers));
    }
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

/// An array of a type with these numbers.
pub fn array(data_type: &DataType, numbers: &[Option<i64>]) -> ArrayRef {
    let of = numbers.iter().copied();
    let text =
        |number: i64| "thread ".repeat((number.unsigned_abs() % 7) as usize) + &number.to_string();
    match data_type {
        DataType::Boolean => Arc::new(of.map(|n| n.map(|n| n % 3 == 0)).collect::<BooleanArray>()),
        DataType::Int8 => Arc::new(of.map(|n| n.map(|n| n as i8)).collect::<Int8Array>()),
        DataType::Int64 => Arc::new(of.collect::<Int64Array>()),
        DataType::UInt32 => Arc::new(of.map(|n| n.map(|n| n as u32)).collect::<UInt32Array>()),
        DataType::Decimal128(precision, scale) => Arc::new(
            of.map(|n| n.map(i128::from))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(*precision, *scale)
                .unwrap(),
        ),
        DataType::Float64 => {
            Arc::new(of.map(|n| n.map(|n| n as f64 / 8.0)).collect::<Float64Array>())
        }
        DataType::Date32 => Arc::new(of.map(|n| n.map(|n| n as i32)).collect::<Date32Array>()),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            Arc::new(of.collect::<TimestampMicrosecondArray>())
        }
        DataType::Utf8View => Arc::new(of.map(|n| n.map(text)).collect::<StringViewArray>()),
        DataType::BinaryView => {
            let values: Vec<Option<Vec<u8>>> =
                of.map(|n| n.map(|n| text(n).into_bytes())).collect();
            Arc::new(BinaryViewArray::from_iter(values))
        }
        DataType::List(_) => {
            let items = |n: i64| (0..n.unsigned_abs() % 4).map(move |item| Some(n + item as i64));
            let lists = of.map(|n| n.map(items));
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| array(field.data_type(), numbers)).collect();
            let valid = of.map(|n| n.is_some()).collect::<Vec<_>>();
            Arc::new(StructArray::new(fields.clone(), columns, Some(valid.into())))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let spans = of.map(|n| n.map(|n| IntervalMonthDayNano::new(n as i32, 3, n * 7)));
            Arc::new(spans.collect::<IntervalMonthDayNanoArray>())
        }
        other => panic!("no rows of type {other}"),
    }
}

/// A batch of one column of numbers.
pub fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from_iter_values(range))])
        .unwrap()
}

/// A batch of one column of these numbers.
pub fn number_list(numbers: Vec<i64>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(numbers))]).unwrap()
}

/// The values of a column without NULLs.
pub fn column_of<T: ArrowPrimitiveType>(batch: &RecordBatch, column: usize) -> Vec<T::Native> {
    batch.column(column).as_primitive::<T>().values().to_vec()
}

/// The schema of [`numbers`].
pub fn number_table(name: &str) -> TableSchema {
    table(name, &[("n", DataType::Int64)])
}

/// An ascending index of these columns.
pub fn index(name: &str, columns: &[usize], is_unique: bool) -> IndexDefinition {
    let column =
        |column: &usize| IndexColumn { column: *column, is_descending: false, nulls_first: false };
    IndexDefinition {
        name: name.into(),
        columns: columns.iter().map(column).collect(),
        included: Vec::new(),
        is_unique,
        is_primary: false,
        is_constraint: false,
    }
}

/// Rows of a table whose keys are in a range of an index, in the order of their ids.
pub fn try_by_index(table: &Arc<Table>, index: &str, range: KeyRange) -> Result<RecordBatch> {
    by_ends_of_index(table, index, range, None)
}

/// Those rows of a table with keys in a range of an index that have the first and the last ones, in the order of their ids.
pub fn by_ends_of_index(
    table: &Arc<Table>,
    index: &str,
    range: KeyRange,
    ends: Option<IndexEnds>,
) -> Result<RecordBatch> {
    let options = IndexScanOptions {
        ranges: vec![range],
        ends,
        projection: (0..table.schema().columns.len()).collect(),
        with_row_ids: false,
        batch_rows: 1 << 20,
        depth: 4,
        share: None,
        cancel: weft_rt::cancel::CancelToken::new(),
    };
    let mut scan = table.index_scan(index, options)?;
    let schema = scan.schema();
    let mut batches = Vec::new();
    while let Some(batch) = scan.next_blocking() {
        batches.push(batch?);
    }
    Ok(arrow_select::concat::concat_batches(&schema, &batches).unwrap())
}

/// All rows of a table, found by an index, in the order of their ids.
pub fn by_index(table: &Arc<Table>, index: &str) -> RecordBatch {
    try_by_index(table, index, KeyRange::default()).unwrap()
}
