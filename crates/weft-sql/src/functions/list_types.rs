//! Which lists functions of lists take, and which they give.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, plan_err};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;

use super::scalar::{Call, Types, list_of};
use crate::types::type_name;

/// A type of list as the functions take it, NULL as a list of NULLs; nothing for what is not a list.
pub(crate) fn as_list(given: &DataType) -> Option<DataType> {
    item(given).map(list_of)
}

fn item(given: &DataType) -> Option<DataType> {
    match given {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item.data_type().clone()),
        DataType::Null => Some(DataType::Null),
        _ => None,
    }
}

impl Call<'_> {
    /// The type of the elements of an argument that has to be a list.
    ///
    /// # Errors
    /// If there is no such argument, or it is no list.
    pub(crate) fn item(&self, argument: usize) -> DfResult<DataType> {
        match self.types.get(argument).map(|given| (given, item(given))) {
            Some((_, Some(item))) => Ok(item),
            Some((given, None)) => {
                let place = argument + 1;
                plan_err!("argument {place} of {} is a list, not {}", self.name, type_name(given))
            }
            None => plan_err!("{} has no argument {}", self.name, argument + 1),
        }
    }

    /// Checks the number of arguments.
    ///
    /// # Errors
    /// If there are fewer than `least`, or more than `most`.
    pub(crate) fn has(&self, least: usize, most: usize) -> DfResult<()> {
        let given = self.types.len();
        match (least..=most).contains(&given) {
            true => Ok(()),
            false if least == most => plan_err!("{} has {least} arguments, not {given}", self.name),
            false => plan_err!("{} has {least} to {most} arguments, not {given}", self.name),
        }
    }

    /// The type that values of two types are put into one list as.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn common(&self, left: &DataType, right: &DataType) -> DfResult<DataType> {
        let is_text = |data_type: &DataType| data_type.is_string() || data_type.is_null();
        let mixed = left.is_string() != right.is_string() && !(is_text(left) && is_text(right));
        match type_union_coercion(left, right).filter(|_| !mixed) {
            Some(common) => Ok(common),
            None => {
                let (left, right) = (type_name(left), type_name(right));
                plan_err!("{} cannot have {left} and {right} together: cast one of them", self.name)
            }
        }
    }
}

/// One list, which the result is of the type of.
pub(crate) fn list_to_list(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    let list = list_of(call.item(0)?);
    Ok(Types { arguments: vec![list.clone()], result: list })
}

/// A list and a value like its elements, to a truth.
pub(crate) fn list_and_element(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let common = call.common(&call.item(0)?, &call.types[1])?;
    Ok(Types { arguments: vec![list_of(common.clone()), common], result: DataType::Boolean })
}

/// Two lists of one type, which the result is of, too.
pub(crate) fn two_lists_to_list(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let list = list_of(call.common(&call.item(0)?, &call.item(1)?)?);
    Ok(Types { arguments: vec![list.clone(), list.clone()], result: list })
}

/// Two lists of one type, to a truth.
pub(crate) fn two_lists_to_truth(call: &Call<'_>) -> DfResult<Types> {
    Ok(Types { result: DataType::Boolean, ..two_lists_to_list(call)? })
}

/// Any number of lists, to a list of the type of all of them.
pub(crate) fn lists_to_list(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, usize::MAX)?;
    let mut common = DataType::Null;
    for argument in 0..call.types.len() {
        common = call.common(&common, &call.item(argument)?)?;
    }
    let list = list_of(common);
    Ok(Types { arguments: vec![list.clone(); call.types.len()], result: list })
}

/// The elements of the elements of a list of lists, as the type and as a list.
pub(crate) fn flatten_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    let inner = call.item(0)?;
    let Some(inner) = as_list(&inner) else {
        return plan_err!("{} takes a list of lists, not {}", call.name, call.given());
    };
    Ok(Types { arguments: vec![list_of(inner.clone())], result: inner })
}

/// The type of fields of structs: a name for each place, as in a row without names.
pub(crate) fn unnamed_fields(types: &[DataType]) -> Vec<FieldRef> {
    let field = |(place, data_type): (usize, &DataType)| {
        let name = format!("c{place}");
        Arc::new(Field::new(name, data_type.clone(), true))
    };
    types.iter().enumerate().map(field).collect()
}
