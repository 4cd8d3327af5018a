//! Nodes of plans: the columns that they make of UUIDs are marked ([`Places`]) where DataFusion leaves the mark out, and texts beside UUIDs
//! become UUIDs in UNION and in the keys of joins.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{
    EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, Union, Unnest,
};

use super::casts::{asked, become_of, shape_of};
use super::functions::made_at;
use super::places::{Places, merged};

/// A plan whose columns have UUIDs at these places.
pub(super) fn with_uuids(plan: LogicalPlan, places: &[Places]) -> DfResult<LogicalPlan> {
    let columns = plan.schema().iter().zip(places).map(|((table, field), places)| {
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        match Places::of_field(field) == *places {
            true => column,
            false => {
                let made = made_at(places, column, false);
                made.alias_qualified(table.cloned(), field.name())
            }
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// Marks the columns that a node makes of UUIDs, makes UUIDs of texts in all inputs of a UNION where UUIDs are in one, and on both sides
/// of the keys of a join, as which INTERSECT and EXCEPT are planned.
pub(super) fn finish(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Union(union) => {
            with_uuid_columns(union)?.map_data(|union| Ok(LogicalPlan::Union(union)))
        }
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for (left, right) in &mut join.on {
                let (of_left, of_right) = (join.left.schema(), join.right.schema());
                let shapes = shape_of(left, of_left).zip(shape_of(right, of_right));
                if let Some(common) = shapes.and_then(|(left, right)| merged(&left, &right)) {
                    changed |= become_of(left, &common, of_left);
                    changed |= become_of(right, &common, of_right);
                }
            }
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let schema = Arc::clone(aggregate.input.schema());
            let made = aggregate.aggr_expr.iter().map(|expr| made_of_uuids(expr, &schema));
            let made: Vec<Option<Places>> = made.collect();
            with_marks(LogicalPlan::Aggregate(aggregate), made)
        }
        LogicalPlan::Window(window) => {
            let schema = Arc::clone(window.input.schema());
            let made = window.window_expr.iter().map(|expr| made_of_uuids(expr, &schema));
            let made: Vec<Option<Places>> = made.collect();
            with_marks(LogicalPlan::Window(window), made)
        }
        LogicalPlan::Unnest(unnest) => {
            let made = unnested(&unnest);
            with_marks(LogicalPlan::Unnest(unnest), made)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The places of UUIDs in what an aggregate or window function gives; `None` if that is not known.
fn made_of_uuids(expr: &Expr, schema: &DFSchema) -> Option<Places> {
    let shape = match expr {
        Expr::Alias(alias) => return made_of_uuids(&alias.expr, schema),
        Expr::AggregateFunction(call) => asked(&call.params.args, schema, |args| {
            let AggregateFunction { func, mut params } = call.clone();
            params.args = args;
            Expr::AggregateFunction(AggregateFunction { func, params })
        }),
        Expr::WindowFunction(call) => asked(&call.params.args, schema, |args| {
            let WindowFunction { fun, mut params } = call.as_ref().clone();
            params.args = args;
            Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
        }),
        _ => None,
    };
    shape.map(|shape| Places::of_shape(&shape))
}

/// The places of UUIDs in the columns of what takes lists and structs apart.
fn unnested(unnest: &Unnest) -> Vec<Option<Places>> {
    let fields = unnest.input.schema().iter().map(|(table, field)| {
        let shape = Places::of_field(field).shape(field.data_type());
        let plain = Places::default().mark(field.as_ref().clone());
        (table.cloned(), Arc::new(plain.with_data_type(shape)))
    });
    let asked = DFSchema::new_with_metadata(fields.collect(), HashMap::new()).and_then(|schema| {
        let empty = EmptyRelation { produce_one_row: false, schema: Arc::new(schema) };
        let input = Arc::new(LogicalPlan::EmptyRelation(empty));
        LogicalPlan::Unnest(Unnest { input, ..unnest.clone() }).recompute_schema()
    });
    let Ok(asked) = asked else { return Vec::new() };
    let fields = asked.schema().fields().iter();
    fields.map(|field| Some(Places::of_shape(field.data_type()))).collect()
}

/// The plan with marks of these places in its last columns.
fn with_marks(plan: LogicalPlan, last: Vec<Option<Places>>) -> DfResult<Transformed<LogicalPlan>> {
    let fields = plan.schema().fields();
    let mut places: Vec<Places> = fields.iter().map(|field| Places::of_field(field)).collect();
    let first = fields.len().saturating_sub(last.len());
    let mut changed = false;
    for ((place, field), made) in places[first..].iter_mut().zip(&fields[first..]).zip(last) {
        if let Some(made) = made
            && made != *place
            && made.are_texts(field.data_type())
        {
            (*place, changed) = (made, true);
        }
    }
    match changed {
        true => Ok(Transformed::yes(with_uuids(plan, &places)?)),
        false => Ok(Transformed::no(plan)),
    }
}

/// A UNION with UUIDs in all inputs of a column that are in one of them.
fn with_uuid_columns(union: Union) -> DfResult<Transformed<Union>> {
    let Union { mut inputs, schema } = union;
    let shape = |number: usize| {
        let mut common = DataType::Null;
        for input in &inputs {
            let field = input.schema().fields().get(number)?;
            common = merged(&common, &Places::of_field(field).shape(field.data_type()))?;
        }
        Some(common)
    };
    let places: Vec<Places> = (0..schema.fields().len())
        .map(|number| shape(number).map(|shape| Places::of_shape(&shape)).unwrap_or_default())
        .collect();
    let mut changed = false;
    for input in &mut inputs {
        let fields = input.schema().fields();
        let wanted: Vec<Places> = fields
            .iter()
            .zip(&places)
            .map(|(field, places)| match places.are_texts(field.data_type()) {
                true if !places.is_empty() && !field.data_type().is_null() => places.clone(),
                _ => Places::of_field(field),
            })
            .collect();
        if fields.iter().zip(&wanted).any(|(field, wanted)| Places::of_field(field) != *wanted) {
            *input = Arc::new(with_uuids(input.as_ref().clone(), &wanted)?);
            changed = true;
        }
    }
    let fields = schema.iter().zip(&places).map(|((table, field), places)| {
        let field = match places.is_empty() || Places::of_field(field) == *places {
            true => Arc::clone(field),
            false => {
                changed = true;
                let field = field.as_ref().clone();
                let texts = places.with_texts(field.data_type());
                Arc::new(places.mark(field.with_data_type(texts)))
            }
        };
        (table.cloned(), field)
    });
    let fields = fields.collect();
    if !changed {
        return Ok(Transformed::no(Union { inputs, schema }));
    }
    let schema = DFSchema::new_with_metadata(fields, HashMap::new())?;
    Ok(Transformed::yes(Union { inputs, schema: Arc::new(schema) }))
}
