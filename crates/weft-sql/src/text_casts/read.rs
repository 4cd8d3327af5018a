//! Values that text stands for.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, BinaryViewBuilder, FixedSizeListArray, LargeListArray, ListArray, MapArray,
    StringViewArray, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::common::{Result as DfResult, exec_err};

use super::split::{elements, entry, unquoted};
use super::{blobs, decimals, intervals, is_binary, is_interval};
use crate::integer_text::rounded_texts;
use crate::timestamp_casts::with_all_seconds;
use crate::types::type_name;

/// The values of type `to` that `texts` stand for. With `is_try`, a text that stands for none is NULL, and so is an element.
///
/// # Errors
/// Without `is_try`, if a text or an element stands for no value.
pub(super) fn values(texts: &ArrayRef, to: &DataType, is_try: bool) -> DfResult<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let reader = Reader { to, is_try };
    let views = texts.as_string_view();
    match to {
        DataType::List(item) => {
            let (items, ends, nulls) = reader.lists(views, item.data_type(), None)?;
            let offsets = OffsetBuffer::from_lengths(lengths(&ends));
            Ok(Arc::new(ListArray::try_new(item.clone(), offsets, items, nulls)?))
        }
        DataType::LargeList(item) => {
            let (items, ends, nulls) = reader.lists(views, item.data_type(), None)?;
            let offsets = OffsetBuffer::from_lengths(lengths(&ends));
            Ok(Arc::new(LargeListArray::try_new(item.clone(), offsets, items, nulls)?))
        }
        DataType::FixedSizeList(item, len) => {
            let wanted = usize::try_from(*len).unwrap_or_default();
            let (items, _, nulls) = reader.lists(views, item.data_type(), Some(wanted))?;
            Ok(Arc::new(FixedSizeListArray::try_new(item.clone(), *len, items, nulls)?))
        }
        DataType::Struct(fields) => reader.structs(views, fields),
        DataType::Map(entries, is_sorted) => reader.maps(views, entries, *is_sorted),
        binary if is_binary(binary) => {
            let mut builder = BinaryViewBuilder::with_capacity(views.len());
            for text in views {
                let bytes = text.map(blobs::bytes_of);
                match bytes.map_or(Ok(None), |bytes| bytes.map(Some)) {
                    Ok(bytes) => builder.append_option(bytes),
                    Err(_) if is_try => builder.append_null(),
                    Err(problem) => return reader.refused(text.unwrap_or_default(), &problem),
                }
            }
            reader.cast(&(Arc::new(builder.finish()) as ArrayRef))
        }
        decimal if decimal.is_decimal() => {
            let plain: StringViewArray =
                views.iter().map(|text| text.map(decimals::plain)).collect();
            reader.cast(&(Arc::new(plain) as ArrayRef))
        }
        interval if is_interval(interval) => {
            let plain = |text| intervals::plain(text).map_or(Cow::Borrowed(text), Cow::Owned);
            let plain: StringViewArray = views.iter().map(|text| text.map(plain)).collect();
            reader.cast(&(Arc::new(plain) as ArrayRef))
        }
        integer if integer.is_integer() => reader.cast(&rounded_texts(&texts)?),
        DataType::Timestamp(..) => reader.cast(&with_all_seconds(&texts)?),
        text if text.is_string() => Ok(cast(&texts, to)?),
        _ => reader.cast(&texts),
    }
}

/// Texts of elements: those that are NULL have none.
type Texts<'a> = Vec<Option<Cow<'a, str>>>;

/// The ends of lists among their elements, one after another.
fn lengths(ends: &[usize]) -> impl Iterator<Item = usize> {
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins.zip(ends).map(|(begin, end)| end - begin)
}

struct Reader<'a> {
    to: &'a DataType,
    is_try: bool,
}

impl Reader<'_> {
    fn refused<T>(&self, text: &str, problem: &str) -> DfResult<T> {
        exec_err!("cannot cast '{text}' to {}: {problem}", type_name(self.to))
    }

    fn cast(&self, texts: &ArrayRef) -> DfResult<ArrayRef> {
        let options = CastOptions { safe: self.is_try, ..CastOptions::default() };
        Ok(cast_with_options(texts, self.to, &options)?)
    }

    /// What `parse` makes of each text, appended to columns of texts; a text that it refuses is NULL or an error. `parse` appends nothing
    /// if it refuses, and `skip` what a NULL row has.
    fn rows<'t>(
        &self,
        texts: &'t StringViewArray,
        mut parse: impl FnMut(&'t str) -> Result<(), Cow<'static, str>>,
        mut skip: impl FnMut(),
    ) -> DfResult<Option<NullBuffer>> {
        let mut are_valid = Vec::with_capacity(texts.len());
        for text in texts {
            let parsed = text.map(&mut parse);
            match (parsed, text) {
                (Some(Err(problem)), Some(text)) if !self.is_try => {
                    return self.refused(text, &problem);
                }
                (Some(Ok(())), _) => are_valid.push(true),
                _ => {
                    skip();
                    are_valid.push(false);
                }
            }
        }
        Ok(Some(NullBuffer::from(are_valid)).filter(|nulls| nulls.null_count() > 0))
    }

    /// The elements of lists, their ends, and which lists are NULL. Each list has `wanted` elements, if that is given.
    fn lists(
        &self,
        texts: &StringViewArray,
        item: &DataType,
        wanted: Option<usize>,
    ) -> DfResult<(ArrayRef, Vec<usize>, Option<NullBuffer>)> {
        let items = RefCell::new((Texts::new(), Vec::with_capacity(texts.len())));
        let nulls = self.rows(
            texts,
            |text| {
                let (items, ends) = &mut *items.borrow_mut();
                let found = elements(text, '[')?;
                if let Some(wanted) = wanted.filter(|wanted| *wanted != found.len()) {
                    return Err(format!("it has {} elements, not {wanted}", found.len()).into());
                }
                items.extend(found.into_iter().map(|element| element_text(element, item)));
                ends.push(items.len());
                Ok(())
            },
            || {
                let (items, ends) = &mut *items.borrow_mut();
                items.extend(std::iter::repeat_n(None, wanted.unwrap_or(0)));
                ends.push(items.len());
            },
        )?;
        let (items, ends) = items.into_inner();
        Ok((self.elements(items, item)?, ends, nulls))
    }

    fn elements(&self, texts: Texts<'_>, item: &DataType) -> DfResult<ArrayRef> {
        let texts: StringViewArray = texts.into_iter().collect();
        values(&(Arc::new(texts) as ArrayRef), item, self.is_try)
    }

    fn structs(&self, texts: &StringViewArray, fields: &Fields) -> DfResult<ArrayRef> {
        let columns = RefCell::new(vec![Texts::with_capacity(texts.len()); fields.len()]);
        let nulls = self.rows(
            texts,
            |text| {
                let row = struct_row(text, fields)?;
                for (column, value) in columns.borrow_mut().iter_mut().zip(row) {
                    column.push(value);
                }
                Ok(())
            },
            || columns.borrow_mut().iter_mut().for_each(|column| column.push(None)),
        )?;
        let columns = columns.into_inner().into_iter().zip(fields);
        let columns: Vec<ArrayRef> = columns
            .map(|(column, field)| self.elements(column, field.data_type()))
            .collect::<DfResult<_>>()?;
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, texts.len())?))
    }

    fn maps(
        &self,
        texts: &StringViewArray,
        entries: &FieldRef,
        is_sorted: bool,
    ) -> DfResult<ArrayRef> {
        let DataType::Struct(fields) = entries.data_type() else {
            return exec_err!("a map has entries of a key and a value");
        };
        let [key, value] = fields.as_ref() else {
            return exec_err!("a map has entries of a key and a value");
        };
        let found = RefCell::new((Texts::new(), Texts::new(), Vec::new()));
        let nulls = self.rows(
            texts,
            |text| {
                let (keys, items, ends) = &mut *found.borrow_mut();
                let row = map_row(text, key.data_type(), value.data_type())?;
                keys.extend(row.0);
                items.extend(row.1);
                ends.push(keys.len());
                Ok(())
            },
            || {
                let (keys, _, ends) = &mut *found.borrow_mut();
                ends.push(keys.len());
            },
        )?;
        let (keys, items, ends) = found.into_inner();
        // A key that cannot be read is an error in any case: it cannot be NULL.
        let keys: StringViewArray = keys.into_iter().collect();
        let keys = values(&(Arc::new(keys) as ArrayRef), key.data_type(), false)?;
        let items = self.elements(items, value.data_type())?;
        let entries_of = StructArray::try_new(fields.clone(), vec![keys, items], None)?;
        let offsets = OffsetBuffer::from_lengths(lengths(&ends));
        let maps = MapArray::try_new(entries.clone(), offsets, entries_of, nulls, is_sorted)?;
        Ok(Arc::new(maps))
    }
}

/// The text of an element: that of a nested one keeps its quotes, which belong to its own elements.
fn element_text<'a>(text: &'a str, to: &DataType) -> Option<Cow<'a, str>> {
    match super::is_nested(to) {
        true if text.eq_ignore_ascii_case("null") => None,
        true => Some(Cow::Borrowed(text)),
        false => unquoted(text),
    }
}

/// The texts of a struct's fields: by name, `{a: 1, 'b': 2}`, or by place, `(1, 2)`.
fn struct_row<'a>(text: &'a str, fields: &Fields) -> Result<Texts<'a>, Cow<'static, str>> {
    if text.trim_start().starts_with('(') {
        let found = elements(text, '(')?;
        if found.len() != fields.len() {
            return Err(format!("it has {} values, not {}", found.len(), fields.len()).into());
        }
        let found = found.into_iter().zip(fields);
        return Ok(found.map(|(text, field)| element_text(text, field.data_type())).collect());
    }
    let mut row: Vec<Option<Option<Cow<'_, str>>>> = vec![None; fields.len()];
    for element in elements(text, '{')? {
        let Some((name, value)) = entry(element, ':') else {
            return Err("an entry is not of the form name: value".into());
        };
        let name = unquoted(name).unwrap_or(Cow::Borrowed(name));
        let Some((at, field)) = fields.find(&name) else {
            return Err(format!("there is no field '{name}'").into());
        };
        if row[at].is_some() {
            return Err(format!("the field '{name}' occurs twice").into());
        }
        row[at] = Some(element_text(value, field.data_type()));
    }
    Ok(row.into_iter().map(Option::flatten).collect())
}

/// The texts of a map's keys, and those of its values.
fn map_row<'a>(
    text: &'a str,
    key: &DataType,
    value: &DataType,
) -> Result<(Texts<'a>, Texts<'a>), Cow<'static, str>> {
    let (mut keys, mut items) = (Texts::new(), Texts::new());
    let mut seen = HashSet::new();
    for element in elements(text, '{')? {
        let Some((name, item)) = entry(element, '=') else {
            return Err("an entry is not of the form key=value".into());
        };
        let Some(name) = element_text(name, key) else { return Err("a key is NULL".into()) };
        if !seen.insert(name.clone()) {
            return Err(format!("the key '{name}' occurs twice").into());
        }
        keys.push(Some(name));
        items.push(element_text(item, value));
    }
    Ok((keys, items))
}
