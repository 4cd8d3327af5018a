//! Sorting, the first rows of an order, and gathering rows without any.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result as DfResult;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use weft_exec::Lane;
use weft_exec::pipeline::Sink;
use weft_exec::sort::{Order, Sort, SortKey, Sorted, SortedTuples, TopK};
use weft_exec::tuple::Layout;

use super::compare::is_ordered;
use super::description::{shortened, sql};
use super::expressions::Expressions;
use super::open::{InOrder, Open};
use super::row_keys::{has_row_keys, row_keys};
use super::stored::{Stored, StoredTerm};
use super::term::{Term, in_register};
use super::translate::Translator;

/// Most rows that are kept as the first ones; of more, all are sorted.
const TOP_MAX: usize = 1 << 20;

/// Why an order is none of the steps'.
pub(super) fn unsupported(ordering: &LexOrdering, schema: &Schema) -> Option<String> {
    ordering.iter().find_map(|key| match key.expr.data_type(schema) {
        Ok(data_type) if is_ordered(&data_type) || is_row(&data_type) => None,
        Ok(data_type) => Some(format!("{data_type} is sorted by DataFusion")),
        Err(error) => Some(error.to_string()),
    })
}

/// True of a type whose values are ordered by bytes of their own.
fn is_row(data_type: &DataType) -> bool {
    Lane::is_row_encoded(data_type) && has_row_keys(data_type)
}

/// A key, and how its values are to be ordered.
///
/// # Errors
/// Those of the key.
pub(super) fn ordered(
    code: &mut Expressions<'_>,
    key: &PhysicalSortExpr,
) -> DfResult<(Term, SortOptions)> {
    if !is_row(&key.expr.data_type(code.schema)?) {
        return Ok((code.term(&key.expr)?, key.options));
    }
    let bytes = row_keys(code, [(&key.expr, key.options)].into_iter())?;
    let ascending = SortOptions { descending: false, nulls_first: false };
    Ok((Term::new(bytes, Lane::Str, &DataType::Binary, false), ascending))
}

/// The rows in an order, only the first ones if a number is given.
///
/// # Errors
/// Those of the keys' expressions.
pub(super) fn sort(
    translator: &mut Translator,
    open: Open,
    schema: &Schema,
    ordering: &LexOrdering,
    fetch: Option<usize>,
) -> DfResult<Open> {
    let mut open = translator.unwindowed(open)?;
    open.begin_sink();
    let by = in_words(ordering);
    let mut code = Expressions::new(&mut open.program, &open.columns, schema);
    let mut keys = Vec::new();
    for key in ordering {
        keys.push(ordered(&mut code, key)?);
    }
    let mut stored = Stored::default();
    let columns: Vec<StoredTerm> = open.columns.iter().map(|term| stored.add(term)).collect();
    let keys = keys
        .into_iter()
        .map(|(term, options)| {
            let register = in_register(&mut open.program, &term);
            key(&term, stored.add_field(&mut open.program, &term.moved(register)), options)
        })
        .collect();
    let (layout, fields) = stored.finish();
    let order = Order::new(layout.clone(), keys);
    let bits = open.program.register(Lane::U64);
    let (sink, sorted, label): (Box<dyn Sink>, _, _) = match fetch {
        Some(most) if most <= TOP_MAX => {
            let top = TopK::new(order, fields, bits, most);
            let sorted = top.sorted();
            (Box::new(top), sorted, format!("first {most} by {by}"))
        }
        _ => {
            let sort = Sort::first(order, fields, bits, fetch.unwrap_or(usize::MAX));
            let sorted = sort.sorted();
            (Box::new(sort), sorted, format!("sort by {by}"))
        }
    };
    let after = open.close(sink, &label, &mut translator.closed);
    let mut open = read(&sorted, &layout, &columns, "sorted rows").after(&after);
    open.order = InOrder::Yes;
    Ok(open)
}

fn in_words(ordering: &LexOrdering) -> String {
    let key = |key: &PhysicalSortExpr| {
        let direction = if key.options.descending { " DESC" } else { "" };
        format!("{}{direction}", sql(&key.expr))
    };
    let keys: Vec<String> = ordering.iter().map(key).collect();
    shortened(&keys.join(", "))
}

/// A key that is stored as a field.
pub(super) fn key(term: &Term, field: usize, options: SortOptions) -> SortKey {
    let bounds = term.bounds.map(|bounds| (bounds.low, bounds.high));
    let SortOptions { descending, nulls_first } = options;
    SortKey { field, descending, nulls_first, bounds }
}

/// The rows, gathered before anything else is done with them.
pub(super) fn gather(translator: &mut Translator, mut open: Open) -> Open {
    open.begin_sink();
    let mut stored = Stored::default();
    let columns: Vec<StoredTerm> = open.columns.iter().map(|term| stored.add(term)).collect();
    let (layout, fields) = stored.finish();
    let bits = open.program.register(Lane::U64);
    let sort = Sort::new(Order::new(layout.clone(), Vec::new()), fields, bits);
    let sorted = sort.sorted();
    let after = open.close(Box::new(sort), "rows", &mut translator.closed);
    read(&sorted, &layout, &columns, "rows").after(&after)
}

/// The sorted tuples, and their columns.
fn read(
    sorted: &Arc<std::sync::OnceLock<Sorted>>,
    layout: &Arc<Layout>,
    columns: &[StoredTerm],
    label: &str,
) -> Open {
    let source = Box::new(SortedTuples::new(sorted.clone()));
    let mut tuples = None;
    let mut open = Open::new(source, label, &[Lane::U64], |registers| {
        tuples = registers.first().copied();
        Vec::new()
    });
    if let Some(tuples) = tuples {
        open.columns =
            columns.iter().map(|term| term.load(&mut open.program, tuples, layout)).collect();
    }
    open
}
