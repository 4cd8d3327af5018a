//! The types of the columns of VALUES: DataFusion knows them before Weft gives its own types to what is computed in them, such
//! as DOUBLE to `1.0 / 0.0`. Then the values of a column may have several types, and get one that they have in common.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{ExprSchemable, LogicalPlan, Values, cast};

use crate::plan_walk::recompute_all;

/// Gives the values of each column of VALUES one type.
///
/// # Errors
/// Those of types that do not fit any more.
pub(crate) fn unified(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let unified = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Values(values) => Ok(unified_values(values)?.update_data(LogicalPlan::Values)),
        other => Ok(Transformed::no(other)),
    })?;
    if unified.transformed { recompute_all(unified.data) } else { Ok(unified.data) }
}

fn unified_values(mut values: Values) -> DfResult<Transformed<Values>> {
    let empty = DFSchema::empty();
    let mut changed = false;
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (column, (table, field)) in values.schema.iter().enumerate() {
        let mut types = Vec::new();
        for row in &values.values {
            let Some(value) = row.get(column) else { continue };
            // A parameter may have no type yet.
            let Ok(data_type) = value.get_type(&empty) else { continue };
            if !types.contains(&data_type) {
                types.push(data_type);
            }
        }
        let common = match types.as_slice() {
            [_] | [] => None,
            // Of a decimal and a float it would be a decimal, which has no infinity.
            types if types.iter().any(DataType::is_floating) => {
                Some(DataType::Float64).filter(|_| types.iter().all(DataType::is_numeric))
            }
            types => type_union_resolution(types),
        };
        let Some(common) = common.filter(|common| types.iter().any(|found| found != common)) else {
            fields.push((table.cloned(), Arc::clone(field)));
            continue;
        };
        changed = true;
        for row in &mut values.values {
            if let Some(value) = row.get_mut(column)
                && value.get_type(&empty).is_ok_and(|found| found != common)
            {
                *value = cast(std::mem::take(value), common.clone());
            }
        }
        let field = field.as_ref().clone().with_data_type(common);
        fields.push((table.cloned(), Arc::new(field)));
    }
    if !changed {
        return Ok(Transformed::no(values));
    }
    let metadata = values.schema.metadata().clone();
    values.schema = Arc::new(DFSchema::new_with_metadata(fields, metadata)?);
    Ok(Transformed::yes(values))
}
