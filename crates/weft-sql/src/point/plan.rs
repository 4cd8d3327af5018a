//! The plan of a point query: what it looks up, and what it makes of the row.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;
use weft_store::{IndexDefinition, Snapshot, Table, TableSchema};

use super::key::{KeyPart, is_of, key_part};
use super::shape::{Operand, Shape};
use crate::assign::marked_schema;
use crate::catalog::{StatementCatalog, relation_name};
use crate::error::Result;
use crate::optimize::optimized;
use crate::table::project;
use crate::value::Value;
use crate::zoned_times;

/// A generation of the database that there is not.
const NO_GENERATION: u64 = u64::MAX;

/// A point query that is planned, for as long as what it was planned on is as it was.
#[derive(Debug)]
pub(crate) struct PointPlan {
    basis: Basis,
    /// The last generation of the database in which the basis was found unchanged.
    known: AtomicU64,
    parameters: usize,
    /// What the columns of the index are equal to, in their order, and these columns.
    key: Vec<(Operand, Field)>,
    /// The columns that are read, and their schema.
    projection: Vec<usize>,
    read: SchemaRef,
    /// What is computed of them, each layer of the one before.
    layers: Vec<Layer>,
    schema: SchemaRef,
}

/// All that the plan follows from, beside the statement.
#[derive(Debug)]
struct Basis {
    /// The session's settings, functions and relations, by the number of their changes.
    session: u64,
    /// The store's name of the table.
    table: String,
    schema: TableSchema,
    index: IndexDefinition,
    /// A hash of views, macros and schemas.
    definitions: u64,
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

/// What the values of the parameters are as a key.
pub(super) enum Key {
    Bytes(Vec<u8>),
    /// No row has the key.
    NoRow,
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
        let Some((index, key)) = index_for(&table, shape) else { return Ok(Planned::NoIndex) };
        let basis = Basis {
            session,
            table: name,
            schema: table.schema().clone(),
            index,
            definitions: definitions(snapshot),
        };
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
        let (known, parameters) = (AtomicU64::new(NO_GENERATION), shape.parameters);
        let plan = PointPlan { basis, known, parameters, key, projection, read, layers, schema };
        Ok(Planned::Plan(Box::new(plan)))
    }

    /// Whether a temporary table or view in this schema hides the table.
    pub(super) fn is_hidden(&self, snapshot: &Snapshot, schema: &str) -> bool {
        let hiding = format!("{schema}.{}", self.basis.table);
        snapshot.table(&hiding).is_some() || snapshot.view(&hiding).is_some()
    }

    /// The table in a snapshot, if the plan is right there for a session in the state of this number. `is_committed` tells whether
    /// the snapshot is one that a commit left, with a generation of its own.
    pub(super) fn table(
        &self,
        snapshot: &Snapshot,
        is_committed: bool,
        session: u64,
    ) -> Option<Arc<Table>> {
        if session != self.basis.session {
            return None;
        }
        let table = snapshot.table(&self.basis.table)?;
        let generation = snapshot.generation();
        if is_committed && generation == self.known.load(Ordering::Relaxed) {
            return Some(table);
        }
        let holds = *table.schema() == self.basis.schema
            && table.indexes().any(|index| *index == self.basis.index)
            && definitions(snapshot) == self.basis.definitions;
        if holds && is_committed {
            self.known.store(generation, Ordering::Relaxed);
        }
        holds.then_some(table)
    }

    /// The key that the values of the parameters are, each of the type that is named for it, if one is; `None` if the values need a
    /// planner.
    pub(super) fn key(
        &self,
        table: &Table,
        values: &[Value],
        types: &[Option<String>],
    ) -> Option<Key> {
        if values.len() != self.parameters {
            return None;
        }
        let mut parts = Vec::with_capacity(self.key.len());
        let mut is_equal_to_none = false;
        for (operand, field) in &self.key {
            let value = match operand {
                Operand::Constant(value) => value,
                Operand::Parameter(number) => {
                    let value = values.get(*number)?;
                    let type_name = types.get(*number).and_then(Option::as_deref);
                    if type_name.is_some_and(|name| !is_of(value, name)) {
                        return None;
                    }
                    value
                }
            };
            match key_part(value, field)? {
                KeyPart::Value(array) => parts.push(array),
                KeyPart::EqualToNone => is_equal_to_none = true,
            }
        }
        if is_equal_to_none {
            return Some(Key::NoRow);
        }
        table.key_prefix(&self.basis.index.name, &parts).ok().map(Key::Bytes)
    }

    /// The index's name.
    pub(super) fn index(&self) -> &str {
        &self.basis.index.name
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

/// The unique index whose columns are those of the condition, and what each of them is equal to.
fn index_for(table: &Table, shape: &Shape) -> Option<(IndexDefinition, Vec<(Operand, Field)>)> {
    let schema = marked_schema(table.schema());
    table.indexes().filter(|index| index.is_unique).find_map(|index| {
        if index.columns.len() != shape.conditions.len() {
            return None;
        }
        let key = index.columns.iter().map(|of| {
            let field = schema.field(of.column);
            let mut conditions = shape.conditions.iter();
            let (_, operand) = conditions.find(|(column, _)| column == field.name())?;
            Some((operand.clone(), field.clone()))
        });
        Some((index.clone(), key.collect::<Option<_>>()?))
    })
}

/// A hash of all that is defined beside tables.
fn definitions(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    snapshot.views().for_each(|definition| definition.hash(&mut hasher));
    hasher.finish()
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
