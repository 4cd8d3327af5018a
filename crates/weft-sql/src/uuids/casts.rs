//! Casts to and from UUID, and expressions with UUIDs among their values and texts beside these, which become UUIDs: CASE, `coalesce` and
//! functions like it, lists, comparisons. What is made of UUIDs is marked ([`Places`]) where DataFusion leaves the mark out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, Result as DfResult, ScalarValue, not_impl_err, plan_err,
};
use datafusion::logical_expr::expr::{HigherOrderFunction, InSubquery, Lambda, ScalarFunction};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Subquery, TryCast};
use datafusion::optimizer::AnalyzerRule;
use weft_json::is_json;

use super::functions::{BYTES, OF, OF_OR_NULL, TEXT, made_at, no_uuid, unmarked as unmarked_value};
use super::nodes::{finish, with_uuids};
use super::places::{Places, merged, unmarked, with_children};
use super::{canonical, is_uuid};
use crate::compared_types::compared;
use crate::json::{json_as, json_value};
use crate::plan_walk::rewrite_nodes;
use crate::types::{field_type_name, type_name};

/// What an argument of a function has to do with a type that several of them share.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// A value of the type.
    Value,
    /// A list of values of the type, or a map with such keys.
    Holder,
    /// Something else.
    Other,
}

use Role::{Holder, Other, Value};

/// Functions with arguments that share a type, what their arguments are, and what all behind these are.
const SHARING: [(&[&str], &[Role], Role); 7] = [
    (
        &["coalesce", "nvl", "ifnull", "nullif", "greatest", "least", "make_array", "list_value"],
        &[],
        Value,
    ),
    (
        &["list_append", "array_push_front", "list_contains", "list_position", "array_remove_all"],
        &[Holder, Value],
        Other,
    ),
    (&["array_remove", "array_remove_n", "array_positions"], &[Holder, Value], Other),
    (&["list_prepend"], &[Value, Holder], Other),
    (&["array_replace", "array_replace_all", "array_replace_n"], &[Holder, Value, Value], Other),
    (&["list_resize", "array_resize"], &[Holder, Other, Value], Other),
    (
        &[
            "list_concat",
            "list_has_any",
            "list_has_all",
            "list_intersect",
            "array_except",
            "array_union",
            "map_concat",
        ],
        &[],
        Holder,
    ),
];

/// Functions whose result is one of their arguments, though some do not take all types.
pub(crate) const CHOICES: [&str; 6] = ["coalesce", "nvl", "ifnull", "nullif", "greatest", "least"];

/// Functions of maps that are given a key.
const BY_KEY: [&str; 4] = ["map_extract", "map_extract_value", "element_at", "map_contains"];

/// Makes functions of casts to and from UUID. To be applied before those of JSON.
#[derive(Debug)]
pub(crate) struct UuidCasts;

impl AnalyzerRule for UuidCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_nodes(plan, rewrite, finish)
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
            let mut changed = false;
            if let Some(operand) = &case.expr
                && let Some(of_operand) = shape_of(operand, schema)
                && !Places::of_shape(&of_operand).is_empty()
            {
                for (when, _) in &mut case.when_then_expr {
                    if let Some(shape) =
                        shape_of(when, schema).and_then(|of| merged(&of, &of_operand))
                    {
                        changed |= become_of(when, &shape, schema);
                    }
                }
            }
            let then = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            let values = then.chain(case.else_expr.as_deref_mut()).collect();
            let shape = unify(values, schema, &mut changed);
            let mut case = Expr::Case(case);
            if let Some(shape) = shape {
                changed |= become_of(&mut case, &shape, schema);
            }
            Ok(Transformed::new_transformed(case, changed))
        }
        Expr::ScalarFunction(call) => called(call, schema),
        Expr::HigherOrderFunction(call) => called_with_lambdas(call, schema),
        other => Ok(Transformed::no(other)),
    }
}

/// A call whose texts beside UUIDs are UUIDs, too, and whose result is marked as what is made of UUIDs.
fn called(mut call: ScalarFunction, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let mut changed = false;
    let is_known = |names: &[&str]| {
        let mut aliases = call.func.aliases().iter();
        names.contains(&call.func.name()) || aliases.any(|alias| names.contains(&alias.as_str()))
    };
    let mut chosen = None;
    if let Some((_, roles, rest)) = SHARING.iter().find(|(names, ..)| is_known(names)) {
        let is_choice = is_known(&CHOICES);
        let roles = roles.iter().chain(std::iter::repeat(rest)).copied();
        let common = share(&mut call.args, roles, schema, &mut changed);
        chosen = common.filter(|_| is_choice);
    } else if is_known(&BY_KEY) {
        share(&mut call.args, [Holder, Value, Other].into_iter(), schema, &mut changed);
    } else if call.func.name() == "get_field"
        && let [map, Expr::Literal(key, _), ..] = &mut call.args[..]
        && let Some(text) = key.try_as_str().flatten()
        && let Some(DataType::Map(entries, _)) = shape_of(map, schema)
        && Places::of_shape(entries.data_type()).within(0).is_whole()
    {
        let canonical = canonical(text).ok_or_else(|| no_uuid(text))?;
        *key = ScalarValue::Utf8View(Some(canonical));
        changed = true;
    }
    if call.func.name() == "typeof"
        && let [value] = &call.args[..]
        && let Ok((_, field)) = value.to_field(schema)
        && !Places::of_field(&field).is_empty()
    {
        let name = ScalarValue::Utf8View(Some(field_type_name(&field)));
        return Ok(Transformed::yes(Expr::Literal(name, None)));
    }
    let func = Arc::clone(&call.func);
    let shape = chosen.or_else(|| {
        asked(&call.args, schema, |args| Expr::ScalarFunction(ScalarFunction { func, args }))
    });
    let mut call = Expr::ScalarFunction(call);
    if let Some(shape) = shape {
        changed |= become_of(&mut call, &shape, schema);
    }
    Ok(Transformed::new_transformed(call, changed))
}

/// Makes UUIDs of the texts in arguments that share a type with UUIDs, and returns the shape of that type.
fn share(
    args: &mut [Expr],
    roles: impl Iterator<Item = Role>,
    schema: &DFSchema,
    changed: &mut bool,
) -> Option<DataType> {
    let roles: Vec<Role> = roles.take(args.len()).collect();
    let shared = |arg: &Expr, role: Role| {
        let shape = shape_of(arg, schema)?;
        match (role, &shape) {
            (_, DataType::Null) | (Value, _) => Some(shape),
            (Holder, DataType::List(item) | DataType::LargeList(item)) => {
                Some(item.data_type().clone())
            }
            (Holder, DataType::Map(entries, _)) => match entries.data_type() {
                DataType::Struct(fields) => Some(fields.first()?.data_type().clone()),
                _ => None,
            },
            _ => None,
        }
    };
    let mut common = DataType::Null;
    for (arg, role) in args.iter().zip(&roles).filter(|(_, role)| **role != Other) {
        common = merged(&common, &shared(arg, *role)?)?;
    }
    if Places::of_shape(&common).is_empty() {
        return None;
    }
    for (arg, role) in args.iter_mut().zip(roles).filter(|(_, role)| *role != Other) {
        let Some(shape) = shape_of(arg, schema) else { continue };
        let whole = match (role, &shape) {
            (Value, _) => common.clone(),
            (_, DataType::List(_) | DataType::LargeList(_)) => {
                with_children(&shape, |_, item| with_type(item, common.clone()))
            }
            (_, DataType::Map(..)) => with_children(&shape, |_, entries| {
                let keyed = with_children(entries.data_type(), |number, field| match number {
                    0 => with_type(field, common.clone()),
                    _ => Arc::clone(field),
                });
                with_type(entries, keyed)
            }),
            _ => continue,
        };
        if let Some(whole) = merged(&shape, &whole) {
            *changed |= become_of(arg, &whole, schema);
        }
    }
    Some(common)
}

fn with_type(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// A call with functions of elements: those are UUIDs where the lists have UUIDs.
fn called_with_lambdas(
    call: HigherOrderFunction,
    schema: &DFSchema,
) -> DfResult<Transformed<Expr>> {
    let HigherOrderFunction { func, mut args } = call;
    let Some((given, columns)) = stand_ins(&args, schema) else {
        return Ok(Transformed::no(Expr::HigherOrderFunction(HigherOrderFunction { func, args })));
    };
    let mut known = schema.clone();
    known.merge(&columns);
    let undecided = given.iter().map(|arg| match arg {
        Expr::Lambda(Lambda { params, .. }) => {
            let body = Box::new(Expr::Literal(ScalarValue::Null, None));
            Expr::Lambda(Lambda { params: params.clone(), body })
        }
        other => other.clone(),
    });
    let parameters = HigherOrderFunction::new(Arc::clone(&func), undecided.collect());
    // A function that cannot tell takes no UUIDs.
    let parameters = parameters.lambda_parameters(&known).unwrap_or_default();
    let mut bodies = Vec::new();
    let lambdas = args.iter_mut().filter_map(|arg| match arg {
        Expr::Lambda(lambda) => Some(lambda),
        _ => None,
    });
    for (lambda, fields) in lambdas.zip(parameters) {
        let places: HashMap<&String, Places> = lambda
            .params
            .iter()
            .zip(&fields)
            .map(|(name, field)| (name, Places::of_shape(field.data_type())))
            .collect();
        let body = std::mem::take(lambda.body.as_mut());
        let body = with_variables(body, |name| places.get(name).cloned())?;
        let body = body.transform_up(|expr| {
            compared(expr, schema)?.transform_data(|expr| rewrite(expr, schema))
        })?;
        bodies.push(shape_of(&body.data, schema));
        *lambda.body = with_variables(body.data, |_| Some(Places::default()))?;
    }
    let mut known = columns.iter().map(|(_, field)| Arc::clone(field)).collect::<Vec<_>>();
    let mut bodies = bodies.into_iter();
    let given = given.into_iter().map(|arg| match arg {
        Expr::Lambda(lambda) => {
            let Some(Some(shape)) = bodies.next() else { return Expr::Lambda(lambda) };
            let name = format!("body of {}", known.len());
            known.push(Arc::new(Field::new(&name, shape, true)));
            let body = Box::new(Expr::Column(Column::new_unqualified(name)));
            Expr::Lambda(Lambda { params: lambda.params, body })
        }
        other => other,
    });
    let given: Vec<Expr> = given.collect();
    let known = DFSchema::from_unqualified_fields(known.into(), HashMap::new())?;
    let asked = Expr::HigherOrderFunction(HigherOrderFunction::new(Arc::clone(&func), given));
    let shape = asked.to_field(&known).ok().map(|(_, field)| field.data_type().clone());
    let mut call = Expr::HigherOrderFunction(HigherOrderFunction { func, args });
    if let Some(shape) = shape.filter(|shape| !Places::of_shape(shape).is_empty()) {
        become_of(&mut call, &shape, schema);
    }
    Ok(Transformed::yes(call))
}

/// An expression whose variables of lambdas have marks of other places, as a function tells for a name.
fn with_variables(body: Expr, places: impl Fn(&String) -> Option<Places>) -> DfResult<Expr> {
    let marked = body.transform_up(|expr| {
        let Expr::LambdaVariable(mut variable) = expr else { return Ok(Transformed::no(expr)) };
        if let (Some(field), Some(places)) = (&variable.field, places(&variable.name)) {
            variable.field = Some(Arc::new(places.mark(field.as_ref().clone())));
        }
        Ok(Transformed::yes(Expr::LambdaVariable(variable)))
    })?;
    Ok(marked.data)
}

/// The arguments as columns whose types are the shapes of the arguments, but for constants and functions; `None` if none has UUIDs.
fn stand_ins(args: &[Expr], schema: &DFSchema) -> Option<(Vec<Expr>, DFSchema)> {
    let (mut given, mut fields, mut has_uuids) = (Vec::new(), Vec::new(), false);
    for (number, arg) in args.iter().enumerate() {
        if let Expr::Lambda(_) = arg {
            given.push(arg.clone());
            continue;
        }
        let (_, field) = arg.to_field(schema).ok()?;
        let places = Places::of_field(&field);
        has_uuids |= !places.is_empty();
        if let (Expr::Literal(..), true) = (arg, places.is_empty()) {
            given.push(arg.clone());
            continue;
        }
        let name = format!("argument {number}");
        let shape = places.shape(field.data_type());
        fields.push(Field::new(&name, shape, field.is_nullable()));
        given.push(Expr::Column(Column::new_unqualified(name)));
    }
    let columns = DFSchema::from_unqualified_fields(fields.into(), HashMap::new()).ok()?;
    has_uuids.then_some((given, columns))
}

/// The shape of what a function gives for arguments of the shapes of these. `None` if they have no UUIDs, or the function does not take
/// any type.
pub(super) fn asked(
    args: &[Expr],
    schema: &DFSchema,
    call: impl FnOnce(Vec<Expr>) -> Expr,
) -> Option<DataType> {
    let (given, columns) = stand_ins(args, schema)?;
    let (_, field) = call(given).to_field(&columns).ok()?;
    Some(field.data_type().clone()).filter(|shape| !Places::of_shape(shape).is_empty())
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
        (false, false) => {
            let (had, has) = (Places::of_field(&from), Places::of_field(&to));
            if had.is_empty() && has.is_empty() {
                return Ok(Transformed::no(again(inner, to)));
            }
            if had.have_blobs(to.data_type()) || has.have_blobs(from.data_type()) {
                let (from, to) = (field_type_name(&from), type_name(to.data_type()));
                return not_impl_err!("{from} as {to}: UUIDs within a value are no BLOBs");
            }
            let plain = has.with_texts(&unmarked(to.data_type()));
            let to = Arc::new(to.as_ref().clone().with_data_type(plain));
            let inner = if had.is_empty() { inner } else { unmarked_value(inner) };
            Transformed::yes(made_at(&has, again(inner, to), is_lenient))
        }
    })
}

/// The shape of what an expression gives; `None` if it has no type yet.
pub(super) fn shape_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let (_, field) = expr.to_field(schema).ok()?;
    Some(Places::of_field(&field).shape(field.data_type()))
}

/// Makes UUIDs of the texts where a shape has UUIDs, and marks them; returns whether there was something to do.
pub(super) fn become_of(expr: &mut Expr, shape: &DataType, schema: &DFSchema) -> bool {
    let Ok((_, field)) = expr.to_field(schema) else { return false };
    let places = Places::of_shape(shape);
    let is_done = places.is_empty() || places == Places::of_field(&field);
    if is_done || field.data_type().is_null() || !places.are_texts(field.data_type()) {
        return false;
    }
    *expr = made_at(&places, std::mem::take(expr), false);
    true
}

/// Makes UUIDs of texts if any of the values has UUIDs there, and returns the shape of all if one has.
fn unify(values: Vec<&mut Expr>, schema: &DFSchema, changed: &mut bool) -> Option<DataType> {
    let mut common = DataType::Null;
    for value in &values {
        common = merged(&common, &shape_of(value, schema)?)?;
    }
    if Places::of_shape(&common).is_empty() {
        return None;
    }
    for value in values {
        *changed |= become_of(value, &common, schema);
    }
    Some(common)
}

/// Both sides of a comparison, as UUIDs where one of them has UUIDs and the other texts; and whether one was changed.
pub(crate) fn paired(mut left: Expr, mut right: Expr, schema: &DFSchema) -> (Expr, Expr, bool) {
    let mut changed = false;
    unify(vec![&mut left, &mut right], schema, &mut changed);
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
    let (places, data_type) = (Places::of_field(column), column.data_type());
    let common =
        shape_of(&compared.expr, schema).and_then(|shape| merged(&shape, &places.shape(data_type)));
    let Some(common) = common else { return Ok(Transformed::no(compared)) };
    let mut changed = become_of(&mut compared.expr, &common, schema);
    let common = Places::of_shape(&common);
    if common != places && common.are_texts(data_type) {
        let plan = with_uuids(plan.as_ref().clone(), &[common])?;
        compared.subquery = Subquery { subquery: Arc::new(plan), ..compared.subquery };
        changed = true;
    }
    Ok(Transformed::new_transformed(compared, changed))
}
