//! The plan of a point query: what it looks up, and what it makes of the row.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;
use weft_store::{Snapshot, Table};

use super::basis::{Basis, Key, KeyColumns};
use super::shape::Shape;
use crate::access::Rights;
use crate::assign::marked_schema;
use crate::catalog::{StatementCatalog, relation_name};
use crate::error::Result;
use crate::optimize::optimized;
use crate::session::Session;
use crate::table::project;
use crate::value::Value;
use crate::zoned_times;

/// A point query that is planned, for as long as what it was planned on is as it was.
#[derive(Debug)]
pub(crate) struct PointPlan {
    basis: Basis,
    parameters: usize,
    key: KeyColumns,
    /// The columns that are read, and their schema.
    projection: Vec<usize>,
    read: SchemaRef,
    /// What is computed of them, each layer of the one before.
    layers: Vec<Layer>,
    schema: SchemaRef,
}

#[derive(Debug)]
struct Layer {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

/// What comes of planning.
pub(super) enum Planned {
    Plan(Box<PointPlan>),
    /// No table of the name has a unique index for the condition.
    NoIndex,
    /// What is selected needs more than a row.
    NotSimple,
}

impl PointPlan {
    /// Plans a point query. `session` numbers the state of the session that the catalog has.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) async fn make(
        shape: &Shape,
        catalog: &StatementCatalog,
        session: u64,
    ) -> Result<Planned> {
        let name = relation_name(&shape.table)?;
        let snapshot = catalog.snapshot();
        let Some(table) = snapshot.table(&name).filter(|_| !catalog.has_relation(&name)) else {
            return Ok(Planned::NoIndex);
        };
        let Some((index, key)) = KeyColumns::of(&table, &shape.conditions) else {
            return Ok(Planned::NoIndex);
        };
        let basis = Basis::new(session, snapshot, &table, Some(index), Rights::SELECT);
        let state = catalog.planning_state();
        let statement = Statement::Query(Box::new(shape.query.clone()));
        let statement = DfStatement::Statement(Box::new(statement));
        let plan = catalog.plan(&state, statement).await?;
        let plan = zoned_times::shown(plan, state.config_options())?;
        let plan = optimized(&state, plan, || catalog.trim_code())?;
        let schema = Arc::clone(plan.schema().inner());
        let Some((projection, layers)) = layers_of(&state, &plan, &table)? else {
            return Ok(Planned::NotSimple);
        };
        let read = project(&marked_schema(table.schema()), &projection);
        let parameters = shape.parameters;
        let plan = PointPlan { basis, parameters, key, projection, read, layers, schema };
        Ok(Planned::Plan(Box::new(plan)))
    }

    /// Whether a temporary table or view in this schema hides the table.
    pub(super) fn is_hidden(&self, snapshot: &Snapshot, schema: &str) -> bool {
        self.basis.is_hidden(snapshot, schema)
    }

    /// The name of its table.
    pub(super) fn table_name(&self) -> &str {
        self.basis.table_name()
    }

    /// The table in a snapshot, as [`Basis::table`].
    pub(super) fn table(
        &self,
        snapshot: &Snapshot,
        is_committed: bool,
        session: &Session,
    ) -> Option<Arc<Table>> {
        self.basis.table(snapshot, is_committed, session)
    }

    /// The key that the values of the parameters are, as [`KeyColumns::key`].
    pub(super) fn key(
        &self,
        table: &Table,
        values: &[Value],
        types: &[Option<String>],
    ) -> Option<Key> {
        if values.len() != self.parameters {
            return None;
        }
        self.key.key(table, self.index(), values, types)
    }

    /// The index's name.
    pub(super) fn index(&self) -> &str {
        self.basis.index().unwrap_or_default()
    }

    /// The columns that are read of a row, by number.
    pub(super) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// The columns of the result.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The result of a row with these values of the columns that are read.
    ///
    /// # Errors
    /// What goes wrong with an expression.
    pub(super) fn result_of(&self, values: Vec<ArrayRef>) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let mut batch =
            RecordBatch::try_new_with_options(Arc::clone(&self.read), values, &options)?;
        for layer in &self.layers {
            let values = layer.exprs.iter().map(|expr| expr.evaluate(&batch)?.into_array(1));
            let values = values.collect::<datafusion::common::Result<Vec<_>>>()?;
            batch = RecordBatch::try_new_with_options(Arc::clone(&layer.schema), values, &options)?;
        }
        Ok(batch)
    }
}

/// The columns of the table that a plan reads, and what it makes of them, if it is nothing but projections of one scan.
fn layers_of(
    state: &SessionState,
    plan: &LogicalPlan,
    table: &Table,
) -> Result<Option<(Vec<usize>, Vec<Layer>)>> {
    let mut layers = Vec::new();
    let mut node = plan;
    let scan = loop {
        node = match node {
            LogicalPlan::Projection(projection) => {
                layers.push(projection);
                &projection.input
            }
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::TableScan(scan) => break scan,
            _ => return Ok(None),
        }
    };
    if !scan.filters.is_empty() || scan.fetch.is_some() {
        return Ok(None);
    }
    let columns = table.schema().columns.len();
    let projection = scan.projection.clone().unwrap_or_else(|| (0..columns).collect());
    if projection.iter().any(|column| *column >= columns) {
        return Ok(None);
    }
    let layers = layers.into_iter().rev().map(|projection| {
        let input: &DFSchema = projection.input.schema();
        let expr = |expr: &Expr| state.create_physical_expr(expr.clone(), input);
        let exprs = projection.expr.iter().map(expr).collect::<datafusion::common::Result<_>>()?;
        Ok(Layer { exprs, schema: Arc::clone(projection.schema.inner()) })
    });
    let layers = layers.collect::<Result<Vec<_>>>()?;
    Ok(Some((projection, layers)))
}
