//! Nodes of plans with enumerations: rows are ordered by codes, the columns of UNION are of a type if those of all inputs are, and the
//! columns that aggregate and window functions make are marked as what they are.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, RecursiveQuery, Sort, Union,
};

use super::casts::{enum_of, made, sorted};
use super::functions::{code_of, text_of, value_of};
use super::{ENUM, EnumType};

/// The types of the columns of a plan.
type Types = Vec<Option<Arc<EnumType>>>;

fn types_of(plan: &LogicalPlan) -> Types {
    plan.schema().fields().iter().map(|field| EnumType::of_field(field)).collect()
}

/// A plan whose columns are of these types; `None` for plain texts and other values.
fn with_types(plan: LogicalPlan, types: &Types) -> DfResult<Transformed<LogicalPlan>> {
    let found = types_of(&plan);
    if found == *types {
        return Ok(Transformed::no(plan));
    }
    let columns = plan.schema().iter().zip(found.iter().zip(types));
    let columns = columns.map(|((table, field), (found, wanted))| {
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        let made = match (found, wanted) {
            (found, wanted) if found == wanted => return column,
            (_, Some(ty)) => value_of(ty, column, false),
            (_, None) => text_of(column),
        };
        made.alias_qualified(table.cloned(), field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(columns)?.build()?))
}

/// Has a node order by codes, and marks the columns that it makes.
pub(super) fn finish(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Sort(Sort { expr, input, fetch }) => {
            let mut changed = false;
            let expr = expr.into_iter().map(|sort| {
                let sorted = sorted(sort, input.schema());
                changed |= sorted.transformed;
                sorted.data
            });
            let expr = expr.collect();
            let sort = LogicalPlan::Sort(Sort { expr, input, fetch });
            Ok(Transformed::new_transformed(sort, changed))
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => {
            Ok(distinct_on(distinct)?.update_data(|on| LogicalPlan::Distinct(Distinct::On(on))))
        }
        LogicalPlan::Union(union) => Ok(unified(union)?.update_data(LogicalPlan::Union)),
        LogicalPlan::RecursiveQuery(query) => recursive(query),
        LogicalPlan::Aggregate(aggregate) => {
            let schema = Arc::clone(aggregate.input.schema());
            let made = aggregate.aggr_expr.iter().map(|expr| made(expr, &schema)).collect();
            with_made(LogicalPlan::Aggregate(aggregate), made)
        }
        LogicalPlan::Window(window) => {
            let schema = Arc::clone(window.input.schema());
            let made = window.window_expr.iter().map(|expr| made(expr, &schema)).collect();
            with_made(LogicalPlan::Window(window), made)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The plan whose last columns are of these types, as far as those are known.
fn with_made(
    plan: LogicalPlan,
    last: Vec<Option<Option<Arc<EnumType>>>>,
) -> DfResult<Transformed<LogicalPlan>> {
    let mut types = types_of(&plan);
    let fields = plan.schema().fields();
    let first = types.len().saturating_sub(last.len());
    for ((ty, field), made) in types[first..].iter_mut().zip(&fields[first..]).zip(last) {
        if let Some(made) = made
            && field.data_type().is_string()
        {
            *ty = made;
        }
    }
    with_types(plan, &types)
}

/// `DISTINCT ON` by codes: what rows are told apart by has to be what they are ordered by.
fn distinct_on(distinct: DistinctOn) -> DfResult<Transformed<DistinctOn>> {
    let DistinctOn { on_expr, select_expr, sort_expr, input, schema } = distinct;
    let Some(sorts) = sort_expr else {
        let distinct = DistinctOn { on_expr, select_expr, sort_expr, input, schema };
        return Ok(Transformed::no(distinct));
    };
    let mut changed = false;
    let on = on_expr.into_iter().map(|expr| match enum_of(&expr, input.schema()) {
        Some(ty) => {
            changed = true;
            code_of(&ty, expr)
        }
        None => expr,
    });
    let on_expr: Vec<Expr> = on.collect();
    let sorts = sorts.into_iter().map(|sort| {
        let sorted = sorted(sort, input.schema());
        changed |= sorted.transformed;
        sorted.data
    });
    let sort_expr = Some(sorts.collect());
    let distinct = DistinctOn { on_expr, select_expr, sort_expr, input, schema };
    Ok(Transformed::new_transformed(distinct, changed))
}

/// A UNION whose columns are of a type if those of all inputs are that have values.
fn unified(union: Union) -> DfResult<Transformed<Union>> {
    let Union { mut inputs, schema } = union;
    let of_inputs: Vec<Types> = inputs.iter().map(|input| types_of(input)).collect();
    let is_null = |input: &LogicalPlan, column: usize| {
        input.schema().fields().get(column).is_none_or(|field| field.data_type().is_null())
    };
    let wanted: Types = (0..schema.fields().len())
        .map(|column| {
            let mut with_values = inputs.iter().zip(&of_inputs);
            let mut with_values = with_values.by_ref().filter(|(input, _)| !is_null(input, column));
            let first = with_values.next()?.1.get(column)?.clone()?;
            let all =
                with_values.all(|(_, types)| types.get(column) == Some(&Some(Arc::clone(&first))));
            all.then_some(first)
        })
        .collect();
    let mut changed = false;
    for input in &mut inputs {
        let plan = with_types(input.as_ref().clone(), &wanted)?;
        if plan.transformed {
            *input = Arc::new(plan.data);
            changed = true;
        }
    }
    let fields = schema.iter().zip(&wanted).map(|((table, field), wanted)| {
        if EnumType::of_field(field) == *wanted
            && (wanted.is_some() || !field.metadata().contains_key(ENUM))
        {
            return (table.cloned(), Arc::clone(field));
        }
        changed = true;
        let mut metadata = field.metadata().clone();
        metadata.remove(ENUM);
        let mut field = field.as_ref().clone();
        if let Some(ty) = wanted {
            let marked = ty.field("");
            metadata.extend(marked.metadata().clone());
            field = field.with_data_type(marked.data_type().clone());
        }
        (table.cloned(), Arc::new(field.with_metadata(metadata)))
    });
    let fields = fields.collect();
    if !changed {
        return Ok(Transformed::no(Union { inputs, schema }));
    }
    let schema = DFSchema::new_with_metadata(fields, HashMap::new())?;
    Ok(Transformed::yes(Union { inputs, schema: Arc::new(schema) }))
}

/// A recursive query, whose columns are those of its first term: the other term has to give values of their types.
fn recursive(query: RecursiveQuery) -> DfResult<Transformed<LogicalPlan>> {
    let types = types_of(&query.static_term);
    let term = with_types(query.recursive_term.as_ref().clone(), &types)?;
    let changed = term.transformed;
    let recursive_term = if changed { Arc::new(term.data) } else { query.recursive_term };
    let query = LogicalPlan::RecursiveQuery(RecursiveQuery { recursive_term, ..query });
    Ok(Transformed::new_transformed(query, changed))
}
