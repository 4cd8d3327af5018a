//! The condition of a scan of files as steps that the scan itself runs.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use weft_exec::Lane;
use weft_exec::program::{Program, Step};

use super::expressions::{Expr, Expressions};
use super::logic;
use super::term::Term;
use super::translate::check_size;
use crate::parquet_scan::{Condition, ScanOf};

/// The condition of a scan; `None` if it has none, or one that takes functions.
///
/// # Errors
/// Those of its translation.
pub(super) fn of_scan(scan: &ScanOf) -> DfResult<Option<Condition>> {
    let Some(predicate) = &scan.predicate else { return Ok(None) };
    let mut columns: Vec<usize> =
        collect_columns(predicate).iter().map(|column| column.index()).collect();
    columns.sort_unstable();
    columns.dedup();
    if columns.iter().any(|column| *column >= scan.table.fields().len()) {
        return Ok(None);
    }
    let schema = Schema::new(
        columns.iter().map(|column| scan.table.field(*column).clone()).collect::<Vec<_>>(),
    );
    let renumbered = Arc::clone(predicate).transform(|expr| {
        let column = expr.downcast_ref::<Column>();
        let at = column.and_then(|column| columns.iter().position(|at| *at == column.index()));
        Ok(match (column, at) {
            (Some(column), Some(at)) => {
                Transformed::yes(Arc::new(Column::new(column.name(), at)) as Expr)
            }
            _ => Transformed::no(expr),
        })
    })?;
    let mut program = Program::default();
    let terms: Vec<Term> = schema
        .fields()
        .iter()
        .map(|field| {
            let lane = Lane::of(field.data_type());
            let register = program.register(lane);
            program.inputs.push(register);
            Term::new(register, lane, field.data_type(), field.is_nullable())
        })
        .collect();
    let mut code = Expressions::new(&mut program, &terms, &schema);
    logic::filter(&mut code, &renumbered.data)?;
    let takes_functions = program.steps.iter().any(|step| matches!(step, Step::Call { .. }));
    if takes_functions || program.steps.is_empty() || check_size(&program).is_err() {
        return Ok(None);
    }
    Ok(Some(Condition::new(columns, program)))
}
