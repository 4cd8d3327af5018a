//! Where UUIDs lie within the values of a column, such as lists of UUIDs.
//!
//! Types of DataFusion and Arrow are the same for texts and UUIDs, however deep these lie, so that no operator has to know of them.
//! The metadata of the column's field tells where UUIDs are ([`WITHIN`]). A *shape* is a type with [`stand_in`] in place of UUID:
//! functions that take any type tell from the shapes of their arguments what their result is made of.

use std::fmt;
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result as DfResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::{is_uuid, uuid_field};

/// The key of a column's metadata that tells where within its values UUIDs lie: paths of numbers of children, as `0` for a list of
/// UUIDs and `0.1 2` for a struct of a struct and two others.
pub(crate) const WITHIN: &str = "weft.uuids_within";

/// The type that stands for UUID in a shape. No value has it.
pub(super) fn stand_in() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UUID".into()))
}

/// Where UUIDs lie within values of a type: paths of numbers of children, in their order. The path of the values themselves is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Places(Vec<Vec<usize>>);

impl Places {
    /// Where a field's values have UUIDs: its metadata tells, or that of fields within its type, as it is in declared types.
    pub(crate) fn of_field(field: &Field) -> Places {
        if is_uuid(field) {
            return Places(vec![Vec::new()]);
        }
        let declared =
            children(field.data_type()).iter().enumerate().flat_map(|(number, child)| {
                let Places(paths) = Places::of_field(child);
                paths.into_iter().map(move |path| prefixed(number, path))
            });
        let mut paths: Vec<Vec<usize>> = declared.collect();
        let told = field.metadata().get(WITHIN).map(String::as_str).unwrap_or_default();
        let told = told.split_whitespace().filter_map(|path| {
            path.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<usize>>>()
        });
        // What is computed from a column may have its metadata and another type.
        paths.extend(told.filter(|path| is_text(field.data_type(), path)));
        paths.sort_unstable();
        paths.dedup();
        Places(paths)
    }

    /// Where a shape has UUIDs.
    pub(super) fn of_shape(shape: &DataType) -> Places {
        if *shape == stand_in() {
            return Places(vec![Vec::new()]);
        }
        let paths = children(shape).iter().enumerate().flat_map(|(number, child)| {
            let Places(paths) = Places::of_shape(child.data_type());
            paths.into_iter().map(move |path| prefixed(number, path))
        });
        Places(paths.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the values themselves are UUIDs.
    pub(super) fn is_whole(&self) -> bool {
        matches!(&self.0[..], [path] if path.is_empty())
    }

    /// The places within the values of a child.
    pub(super) fn within(&self, number: usize) -> Places {
        let paths = self.0.iter().filter(|path| path.first() == Some(&number));
        Places(paths.map(|path| path[1..].to_vec()).collect())
    }

    /// True if all places of a type are of texts.
    pub(super) fn are_texts(&self, data_type: &DataType) -> bool {
        self.0.iter().all(|path| is_text(data_type, path))
    }

    /// True if the type has BLOBs at some of the places.
    pub(super) fn have_blobs(&self, data_type: &DataType) -> bool {
        self.0.iter().any(|path| leaf(data_type, path).is_some_and(DataType::is_binary))
    }

    /// A type with UUIDs at these places, as a shape.
    pub(super) fn shape(&self, data_type: &DataType) -> DataType {
        self.replaced(data_type, &|item| item.clone().with_data_type(stand_in()))
    }

    /// A type with texts at these places.
    pub(super) fn with_texts(&self, data_type: &DataType) -> DataType {
        self.replaced(data_type, &|item| item.clone().with_data_type(DataType::Utf8View))
    }

    /// A type whose fields are marked at these places.
    fn marked_within(&self, data_type: &DataType) -> DataType {
        self.replaced(data_type, &|item| {
            let marked = item.clone().with_data_type(DataType::Utf8View);
            marked.with_metadata(uuid_field("").metadata().clone())
        })
    }

    fn replaced(&self, data_type: &DataType, with: &impl Fn(&Field) -> Field) -> DataType {
        if self.is_whole() {
            return with(&Field::new("", data_type.clone(), true)).data_type().clone();
        }
        if self.is_empty() {
            return data_type.clone();
        }
        with_children(data_type, |number, child| {
            let places = self.within(number);
            match places.is_whole() {
                true => Arc::new(with(child)),
                false => {
                    let inner = places.replaced(child.data_type(), with);
                    Arc::new(child.as_ref().clone().with_data_type(inner))
                }
            }
        })
    }

    /// The field with the mark of these places and none else.
    pub(super) fn mark(&self, field: Field) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.retain(|key, _| key != WITHIN && !uuid_field("").metadata().contains_key(key));
        if self.is_whole() {
            metadata.extend(uuid_field("").metadata().clone());
        } else if !self.is_empty() {
            metadata.insert(WITHIN.to_owned(), self.to_string());
        }
        field.with_metadata(metadata)
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path =
            |path: &Vec<usize>| path.iter().map(usize::to_string).collect::<Vec<_>>().join(".");
        f.write_str(&self.0.iter().map(path).collect::<Vec<_>>().join(" "))
    }
}

fn prefixed(number: usize, mut path: Vec<usize>) -> Vec<usize> {
    path.insert(0, number);
    path
}

/// The fields within a type.
fn children(data_type: &DataType) -> &[FieldRef] {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => std::slice::from_ref(item),
        DataType::Struct(fields) => fields,
        _ => &[],
    }
}

/// The type with other fields within it.
pub(super) fn with_children(
    data_type: &DataType,
    change: impl Fn(usize, &FieldRef) -> FieldRef,
) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(change(0, item)),
        DataType::LargeList(item) => DataType::LargeList(change(0, item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(change(0, item), *len),
        DataType::Map(entries, is_sorted) => DataType::Map(change(0, entries), *is_sorted),
        DataType::Struct(fields) => {
            let changed = fields.iter().enumerate().map(|(number, field)| change(number, field));
            DataType::Struct(changed.collect())
        }
        other => other.clone(),
    }
}

fn leaf<'a>(data_type: &'a DataType, path: &[usize]) -> Option<&'a DataType> {
    path.iter().try_fold(data_type, |inner, &number| {
        children(inner).get(number).map(|child| child.data_type())
    })
}

/// True if there are texts at the path, or nothing but NULL.
fn is_text(data_type: &DataType, path: &[usize]) -> bool {
    leaf(data_type, path).is_some_and(|leaf| leaf.is_string() || leaf.is_null())
}

/// The shape of what is of both shapes: UUIDs where one of them has UUIDs and the other texts or NULL. `None` if they do not go together.
pub(super) fn merged(one: &DataType, other: &DataType) -> Option<DataType> {
    let is_uuid = |shape: &DataType| *shape == stand_in();
    if is_uuid(one) || is_uuid(other) {
        let fits = |shape: &DataType| is_uuid(shape) || shape.is_string() || shape.is_null();
        return (fits(one) && fits(other)).then(stand_in);
    }
    if one.is_null() {
        return Some(other.clone());
    }
    let (inner, others) = (children(one), children(other));
    if inner.is_empty() || other.is_null() {
        return Some(one.clone());
    }
    if inner.len() != others.len() {
        return None;
    }
    let children = inner.iter().zip(others);
    let children = children.map(|(one, other)| merged(one.data_type(), other.data_type()));
    let children: Vec<DataType> = children.collect::<Option<_>>()?;
    Some(with_children(one, |number, child| {
        Arc::new(child.as_ref().clone().with_data_type(children[number].clone()))
    }))
}

/// A declared type without the marks of the fields within it.
pub(super) fn unmarked(data_type: &DataType) -> DataType {
    with_children(data_type, |_, child| {
        let plain = unmarked(child.data_type());
        let child = child.as_ref().clone().with_data_type(plain);
        Arc::new(if is_uuid(&child) { Places::default().mark(child) } else { child })
    })
}

/// The field as others see it: its type tells of UUIDs within the values.
pub(crate) fn shown(field: &Field) -> Field {
    let places = Places::of_field(field);
    if places.is_empty() || places.is_whole() {
        return field.clone();
    }
    let mut metadata = field.metadata().clone();
    metadata.remove(WITHIN);
    let data_type = places.marked_within(field.data_type());
    field.clone().with_data_type(data_type).with_metadata(metadata)
}

/// The columns as others see them.
pub(crate) fn shown_schema(schema: &Schema) -> Schema {
    let fields: Vec<Field> = schema.fields().iter().map(|field| shown(field)).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// The rows as others see them.
pub(crate) fn shown_rows(stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = stream.schema();
    if !schema.fields().iter().any(|field| field.metadata().contains_key(WITHIN)) {
        return stream;
    }
    let schema = Arc::new(shown_schema(&schema));
    let shown = Arc::clone(&schema);
    let batches = stream.map(move |batch| shown_batch(&batch?, &shown));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

fn shown_batch(batch: &RecordBatch, schema: &SchemaRef) -> DfResult<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(item: DataType) -> DataType {
        DataType::new_list(item, true)
    }

    fn pair(one: DataType, other: DataType) -> DataType {
        let fields = vec![Field::new("a", one, true), Field::new("b", other, true)];
        DataType::Struct(fields.into())
    }

    #[test]
    fn marks_tell_places() {
        let shape = list(pair(list(stand_in()), stand_in()));
        let places = Places::of_shape(&shape);
        assert_eq!(places.to_string(), "0.0.0 0.1");
        let plain = places.with_texts(&shape);
        assert_eq!(plain, list(pair(list(DataType::Utf8View), DataType::Utf8View)));
        let field = places.mark(Field::new("x", plain.clone(), true));
        assert_eq!(Places::of_field(&field), places);
        assert_eq!(places.shape(&plain), shape);
        // The mark of a column whose values were made something else tells nothing.
        assert!(Places::of_field(&field.clone().with_data_type(DataType::Utf8View)).is_empty());
        assert_eq!(Places::of_field(&shown(&field)), places);
        assert_eq!(unmarked(shown(&field).data_type()), plain);
    }

    #[test]
    fn shapes_are_merged() {
        let texts = list(DataType::Utf8View);
        assert_eq!(merged(&texts, &list(stand_in())), Some(list(stand_in())));
        assert_eq!(merged(&list(DataType::Null), &list(stand_in())), Some(list(stand_in())));
        assert_eq!(merged(&DataType::Null, &list(stand_in())), Some(list(stand_in())));
        assert_eq!(merged(&list(DataType::Int64), &list(stand_in())), None);
    }
}
