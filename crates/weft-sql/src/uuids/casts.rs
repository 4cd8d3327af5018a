//! Casts to and from UUID, and what has UUIDs among its values and texts beside them, which become UUIDs there: CASE, `coalesce` and
//! their like, UNION, comparisons.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DfResult, not_impl_err, plan_err};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Subquery, TryCast, Union,
};
use datafusion::optimizer::AnalyzerRule;
use weft_json::is_json;

use super::functions::{BYTES, OF, OF_LIST, OF_LIST_OR_NULL, OF_OR_NULL, TEXT};
use super::{is_uuid, uuid_field};
use crate::json::{json_as, json_value};
use crate::plan_walk::{recompute_all, rewrite_expressions};
use crate::types::{field_type_name, type_name};

/// Functions whose result is one of their arguments.
const CHOICES: [&str; 6] = ["coalesce", "nvl", "ifnull", "nullif", "greatest", "least"];

/// Functions that look for an element in a list.
const SEARCHES: [&str; 2] = ["list_contains", "list_position"];

/// Functions that compare the elements of two lists.
const TWO_LISTS: [&str; 2] = ["list_has_any", "list_has_all"];

/// Makes functions of casts to and from UUID. To be applied before those of JSON.
#[derive(Debug)]
pub(crate) struct UuidCasts;

impl AnalyzerRule for UuidCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let plan = rewrite_expressions(with_uuid_sides(plan)?, rewrite)?;
        with_uuid_sides(plan)
    }

    fn name(&self) -> &str {
        "uuid_casts"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    match expr {
        Expr::Cast(Cast { expr, field }) => cast(*expr, field, false, schema),
        Expr::TryCast(TryCast { expr, field }) => cast(*expr, field, true, schema),
        Expr::Case(mut case) => {
            let mut compared = false;
            if let Some(operand) = &case.expr
                && is_uuid_of(operand, schema)
            {
                for (when, _) in &mut case.when_then_expr {
                    compared |= make_uuid(when, schema);
                }
            }
            let then = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            let values = then.chain(case.else_expr.as_deref_mut()).collect();
            let is_uuid = unify(values, schema);
            let case = Expr::Case(case);
            Ok(match is_uuid {
                true => Transformed::yes(OF.call(vec![case])),
                false => Transformed::new_transformed(case, compared),
            })
        }
        Expr::ScalarFunction(mut call) if CHOICES.contains(&call.func.name()) => {
            let is_uuid = unify(call.args.iter_mut().collect(), schema);
            let call = Expr::ScalarFunction(call);
            Ok(match is_uuid {
                true => Transformed::yes(OF.call(vec![call])),
                false => Transformed::no(call),
            })
        }
        Expr::ScalarFunction(mut call)
            if SEARCHES.contains(&call.func.name()) || TWO_LISTS.contains(&call.func.name()) =>
        {
            let has_lists = TWO_LISTS.contains(&call.func.name());
            let changed = match call.args.as_mut_slice() {
                [list, other] => compare_elements(list, other, has_lists, schema),
                _ => false,
            };
            Ok(Transformed::new_transformed(Expr::ScalarFunction(call), changed))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Makes UUIDs of the texts in a list that are compared with UUIDs, or of what they are compared with; returns whether something was
/// changed. `other` is an element, or with `is_list` a list, too.
fn compare_elements(list: &mut Expr, other: &mut Expr, is_list: bool, schema: &DFSchema) -> bool {
    let (of_list, of_other) = match (list.to_field(schema), other.to_field(schema)) {
        (Ok((_, of_list)), Ok((_, of_other))) => (of_list, of_other),
        _ => return false,
    };
    let Some(item) = item_of(of_list.data_type()) else { return false };
    let compared = if is_list { item_of(of_other.data_type()) } else { Some(&of_other) };
    let Some(compared) = compared else { return false };
    let is_text = |field: &Field| field.data_type().is_string() && !is_uuid(field);
    if is_uuid(compared) && is_text(item) {
        *list = OF_LIST.call(vec![std::mem::take(list)]);
    } else if is_uuid(item) && is_text(compared) {
        let of = if is_list { &OF_LIST } else { &OF };
        *other = of.call(vec![std::mem::take(other)]);
    } else {
        return false;
    }
    true
}

/// The field of a list's elements.
fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => Some(item),
        _ => None,
    }
}

/// A cast as a function, if it is one to or from UUID.
fn cast(
    inner: Expr,
    to: FieldRef,
    is_lenient: bool,
    schema: &DFSchema,
) -> DfResult<Transformed<Expr>> {
    let again = |inner, field| match is_lenient {
        true => Expr::TryCast(TryCast { expr: Box::new(inner), field }),
        false => Expr::Cast(Cast { expr: Box::new(inner), field }),
    };
    // A parameter may have no type yet.
    let Ok((_, from)) = inner.to_field(schema) else {
        return Ok(Transformed::no(again(inner, to)));
    };
    Ok(match (is_uuid(&from), is_uuid(&to)) {
        (true, true) => Transformed::yes(inner),
        (false, true) => {
            let inner = match is_json(&from) {
                true => json_as(inner, &DataType::Utf8View, is_lenient),
                false => inner,
            };
            let of = if is_lenient { &OF_OR_NULL } else { &OF };
            Transformed::yes(of.call(vec![inner]))
        }
        (true, false) => match to.data_type() {
            _ if is_json(&to) => Transformed::yes(json_value(inner)),
            text if text.is_string() => Transformed::yes(TEXT.call(vec![inner])),
            binary if binary.is_binary() => Transformed::yes(BYTES.call(vec![inner])),
            _ => return plan_err!("UUID cannot be cast to {}", field_type_name(&to)),
        },
        (false, false) => match to.data_type() {
            DataType::List(item) if is_uuid(item) => {
                let texts = DataType::new_list(DataType::Utf8View, true);
                let inner = again(inner, Arc::new(Field::new("item", texts, true)));
                let of = if is_lenient { &OF_LIST_OR_NULL } else { &OF_LIST };
                Transformed::yes(of.call(vec![inner]))
            }
            nested if has_uuid(nested) => {
                let name = type_name(nested);
                return not_impl_err!(
                    "{name}: UUID is known in columns and lists, not further within"
                );
            }
            _ => Transformed::no(again(inner, to)),
        },
    })
}

/// True of a type within which UUIDs lie.
pub(crate) fn has_uuid(data_type: &DataType) -> bool {
    let is_or_has = |field: &FieldRef| is_uuid(field) || has_uuid(field.data_type());
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => is_or_has(item),
        DataType::Struct(fields) => fields.iter().any(is_or_has),
        _ => false,
    }
}

fn is_uuid_of(expr: &Expr, schema: &DFSchema) -> bool {
    expr.to_field(schema).is_ok_and(|(_, field)| is_uuid(&field))
}

/// Makes a UUID of a text; returns whether it was one.
fn make_uuid(expr: &mut Expr, schema: &DFSchema) -> bool {
    let is_plain = expr
        .to_field(schema)
        .is_ok_and(|(_, field)| field.data_type().is_string() && !is_uuid(&field));
    if is_plain {
        *expr = OF.call(vec![std::mem::take(expr)]);
    }
    is_plain
}

/// Makes UUIDs of texts if any of the values is a UUID, and returns whether one is: then all are UUIDs or NULL.
fn unify(values: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let mut any_uuid = false;
    for value in &values {
        let Ok((_, field)) = value.to_field(schema) else { return false };
        any_uuid |= is_uuid(&field);
        if !field.data_type().is_string() && !field.data_type().is_null() {
            return false;
        }
    }
    if any_uuid {
        for value in values {
            make_uuid(value, schema);
        }
    }
    any_uuid
}

/// Both sides of a comparison, as UUIDs if one of them is a UUID and the other a text; and whether one was changed.
pub(crate) fn paired(mut left: Expr, mut right: Expr, schema: &DFSchema) -> (Expr, Expr, bool) {
    let changed = match (is_uuid_of(&left, schema), is_uuid_of(&right, schema)) {
        (true, false) => make_uuid(&mut right, schema),
        (false, true) => make_uuid(&mut left, schema),
        _ => false,
    };
    (left, right, changed)
}

/// `value IN (query)`, with UUIDs on both sides if they are on one and texts on the other.
///
/// # Errors
/// None that are known of.
pub(crate) fn compared_subquery(
    mut compared: InSubquery,
    schema: &DFSchema,
) -> DfResult<Transformed<InSubquery>> {
    let plan = &compared.subquery.subquery;
    let [column] = plan.schema().fields().as_ref() else { return Ok(Transformed::no(compared)) };
    match (is_uuid_of(&compared.expr, schema), is_uuid(column)) {
        (false, true) => {
            let changed = make_uuid(&mut compared.expr, schema);
            Ok(Transformed::new_transformed(compared, changed))
        }
        (true, false) if column.data_type().is_string() => {
            let plan = with_uuids(plan.as_ref().clone(), &[0])?;
            let subquery = Subquery { subquery: Arc::new(plan), ..compared.subquery };
            Ok(Transformed::yes(InSubquery { subquery, ..compared }))
        }
        _ => Ok(Transformed::no(compared)),
    }
}

/// A plan whose columns of these numbers, of texts, are UUIDs.
fn with_uuids(plan: LogicalPlan, numbers: &[usize]) -> DfResult<LogicalPlan> {
    let columns = plan.schema().iter().enumerate().map(|(number, (table, field))| {
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        match numbers.contains(&number) {
            true => OF.call(vec![column]).alias_qualified(table.cloned(), field.name()),
            false => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// The plan, with UUIDs in all inputs of a UNION where they are in one and texts in another, and on both sides of the keys of a join, as
/// which INTERSECT and EXCEPT are planned.
fn with_uuid_sides(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let unified = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Union(union) => {
            with_uuid_columns(union)?.map_data(|union| Ok(LogicalPlan::Union(union)))
        }
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for (left, right) in &mut join.on {
                let (of_left, of_right) = (join.left.schema(), join.right.schema());
                changed |= match (is_uuid_of(left, of_left), is_uuid_of(right, of_right)) {
                    (true, false) => make_uuid(right, of_right),
                    (false, true) => make_uuid(left, of_left),
                    _ => false,
                };
            }
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        other => Ok(Transformed::no(other)),
    })?;
    if unified.transformed { recompute_all(unified.data) } else { Ok(unified.data) }
}

fn with_uuid_columns(union: Union) -> DfResult<Transformed<Union>> {
    let Union { mut inputs, schema } = union;
    let is_one = |number: &usize| {
        let mut fields = inputs.iter().filter_map(|input| input.schema().fields().get(*number));
        let mut others = fields.clone().map(|field| field.data_type());
        fields.any(|field| is_uuid(field)) && others.all(|of| of.is_string() || of.is_null())
    };
    let uuids: Vec<usize> = (0..schema.fields().len()).filter(is_one).collect();
    let mut changed = false;
    for input in &mut inputs {
        let is_text = |number: &&usize| {
            let field = input.schema().field(**number);
            field.data_type().is_string() && !is_uuid(field)
        };
        let texts: Vec<usize> = uuids.iter().filter(is_text).copied().collect();
        if !texts.is_empty() {
            *input = Arc::new(with_uuids(input.as_ref().clone(), &texts)?);
            changed = true;
        }
    }
    changed |= uuids.iter().any(|number| !is_uuid(schema.field(*number)));
    if !changed {
        return Ok(Transformed::no(Union { inputs, schema }));
    }
    let fields = schema.iter().enumerate().map(|(number, (table, field))| {
        let field = match uuids.contains(&number) {
            true => Arc::new(uuid_field(field.name()).with_nullable(field.is_nullable())),
            false => Arc::clone(field),
        };
        (table.cloned(), field)
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), HashMap::new())?;
    Ok(Transformed::yes(Union { inputs, schema: Arc::new(schema) }))
}
