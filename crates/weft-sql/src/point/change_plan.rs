//! The plan of a change of rows by key: which row it is about, and what becomes of it.
//!
//! DataFusion plans the statement as it stands without its condition, over a relation that has the columns of the table's row and of
//! the parameters, so that types, casts and checks are those of the usual way. Of that plan the expressions are kept.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{Column as ColumnName, DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    self, Ident, ObjectName, SelectItem, SetExpr, Statement, TableWithJoins, VisitMut, VisitorMut,
};
use weft_json::is_json;
use weft_store::{IndexDefinition, KeyedRow, ROW_ID, Snapshot, Table};

use super::basis::{Basis, Key, KeyColumns};
use super::change_shape::{ChangeKind, ChangeShape, bind_columns, parameter_column};
use super::flat::FlatExprs;
use super::given::Given;
use super::shape::{Operand, folded};
use crate::access::Rights;
use crate::assign::{Assignment, marked_schema};
use crate::catalog::{StatementCatalog, relation_name};
use crate::change::plan_bound;
use crate::change_statement::{ChangeStatement, table_factor, template};
use crate::conflict_target::Resolution;
use crate::copy_from::index_of;
use crate::error::{Result, internal};
use crate::insert::{Opened, rights};
use crate::insert_conflict::EXCLUDED;
use crate::keys::Checks;
use crate::optimize::analyzed;
use crate::parameters::Bindings;
use crate::relation::Relation;
use crate::returning::Returning;
use crate::session::Session;
use crate::statement::parse_query;

/// The name of the relation of the parameters of an INSERT.
const GIVEN: &str = "given values";

/// A change that is planned, for as long as what it was planned on is as it was.
#[derive(Debug)]
pub(crate) struct ChangePlan {
    basis: Basis,
    pub(super) tag: &'static str,
    /// The types of the parameters.
    parameters: Vec<DataType>,
    /// What the key is equal to of the row that changes; none of INSERT.
    key: Option<KeyColumns>,
    /// The rows that come, or are returned; none of a DELETE that returns nothing.
    rows: Option<Rows>,
    /// What becomes of a new row whose key the table has, if that is no error.
    conflict: Option<Conflict>,
    returning: Option<Returned>,
}

/// What becomes of a new row whose key the table has.
#[derive(Debug)]
struct Conflict {
    /// The unique indexes in which keys of the new row are looked for.
    arbiters: Vec<IndexDefinition>,
    /// What the table's row becomes, of it and of the new one; it stays, and the new one is not inserted, if there is nothing.
    update: Option<Update>,
}

/// What a row becomes.
#[derive(Debug)]
struct Update {
    /// Its new values, and whether it gets them.
    exprs: FlatExprs,
    rows: SchemaRef,
    assignment: Assignment,
}

/// Rows of a table as expressions, and their assignment to its columns.
#[derive(Debug)]
struct Rows {
    /// A column of a row after the other.
    exprs: FlatExprs,
    source: SchemaRef,
    assignment: Assignment,
}

/// What is returned of a row.
#[derive(Debug)]
struct Returned {
    exprs: FlatExprs,
    schema: SchemaRef,
}

/// What comes of planning.
pub(super) enum PlannedChange {
    Plan(Box<ChangePlan>),
    /// There is no such table, or it has no unique index for the condition.
    NoIndex,
    /// It needs more than a row, or the parameters are not what columns are.
    NotSimple,
}

impl ChangePlan {
    /// Plans a change for values of these types. `session` numbers the state of the session that the catalog has.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) async fn make(
        shape: &ChangeShape,
        catalog: &StatementCatalog,
        session: u64,
        given: &Given,
    ) -> Result<PlannedChange> {
        let Some(parameters) = parameter_types(catalog, given).await? else {
            return Ok(PlannedChange::NotSimple);
        };
        if parameters.len() != shape.parameters {
            return Ok(PlannedChange::NotSimple);
        }
        let work = Work { catalog, session, parameters };
        match &shape.kind {
            ChangeKind::Keyed { change, conditions } => work.keyed(change, conditions).await,
            ChangeKind::Insert(insert) => work.insert(insert).await,
        }
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

    /// Whether parameters of these values have the types that it was planned for.
    pub(super) fn is_for(&self, values: &[ArrayRef]) -> bool {
        let types = values.iter().map(|value| value.data_type());
        types.eq(self.parameters.iter())
    }

    /// Whether it says what becomes of a new row whose key the table has.
    pub(super) fn resolves_conflicts(&self) -> bool {
        self.conflict.is_some()
    }

    /// The unique indexes in which keys of the new row are looked for.
    pub(super) fn arbiters(&self) -> &[IndexDefinition] {
        self.conflict.as_ref().map_or(&[], |conflict| &conflict.arbiters)
    }

    /// What a row of the table becomes that has a key of the new row; `None` if it stays as it is.
    ///
    /// # Errors
    /// What goes wrong with an expression; values that do not fit.
    pub(super) fn resolved(
        &self,
        there: &KeyedRow,
        new: &RecordBatch,
        parameters: Vec<ArrayRef>,
        now: i64,
    ) -> Result<Option<RecordBatch>> {
        let update = self.conflict.as_ref().and_then(|conflict| conflict.update.as_ref());
        let Some(Update { exprs, rows, assignment }) = update else { return Ok(None) };
        let columns = there.values.iter().chain(new.columns()).cloned().chain(parameters);
        let mut values = exprs.evaluate(columns.collect(), now, &[])?;
        let is_updated = values.pop().ok_or_else(|| internal("an update has no condition"))?;
        if !is_updated.as_boolean().iter().all(|is_updated| is_updated == Some(true)) {
            return Ok(None);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::clone(rows), values, &options)?;
        assignment.convert(&row).map(Some)
    }

    /// Whether it changes the row with a key.
    pub(super) fn is_keyed(&self) -> bool {
        self.key.is_some()
    }

    /// The key of the row that changes, as [`KeyColumns::key`].
    pub(super) fn key(&self, table: &Table, given: &Given) -> Option<Key> {
        self.key.as_ref()?.key(table, self.index(), &given.values, &given.types)
    }

    /// The name of the index by which the row is found.
    pub(super) fn index(&self) -> &str {
        self.basis.index().unwrap_or_default()
    }

    /// The columns that are read of the row, by number.
    pub(super) fn projection(&self, table: &Table) -> Vec<usize> {
        match self.rows {
            Some(_) => (0..table.schema().columns.len()).collect(),
            None => Vec::new(),
        }
    }

    /// The sequences of which a value is taken.
    pub(super) fn sequences(&self) -> &[String] {
        self.rows.as_ref().map_or(&[], |rows| &rows.exprs.sequences)
    }

    /// The rows that come, or are returned, with the table's types and checked: of the row that there was, and of the parameters;
    /// `None` if there are none. `now` is in microseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// What goes wrong with an expression; values that do not fit.
    pub(super) fn rows(
        &self,
        row: Option<&KeyedRow>,
        parameters: Vec<ArrayRef>,
        now: i64,
        taken: &[i64],
    ) -> Result<Option<RecordBatch>> {
        let Some(Rows { exprs, source, assignment }) = &self.rows else { return Ok(None) };
        let mut columns = Vec::new();
        if let Some(KeyedRow { id, values }) = row {
            columns.extend(values.iter().cloned());
            columns.push(Arc::new(UInt64Array::from(vec![*id])) as ArrayRef);
        }
        columns.extend(parameters);
        let values = exprs.evaluate(columns, now, taken)?;
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let rows = values.chunks(source.fields().len()).map(|values| {
            let schema = Arc::clone(source);
            let row = RecordBatch::try_new_with_options(schema, values.to_vec(), &options)?;
            assignment.convert(&row)
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        Ok(Some(match rows.as_slice() {
            [row] => row.clone(),
            [first, ..] => concat_batches(&first.schema(), &rows)?,
            [] => return Err(internal("an INSERT has no rows")),
        }))
    }

    /// Computes what is computed without a row; `now` is in microseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// What goes wrong with a part of an expression that no column of a row is in.
    pub(super) fn check_constants(&self, parameters: Vec<ArrayRef>, now: i64) -> Result<()> {
        let rows = self.rows.as_ref();
        rows.map_or(Ok(()), |rows| rows.exprs.check_constants(parameters, now))
    }

    /// The columns that are returned, if rows are.
    pub(super) fn returned_schema(&self) -> Option<&SchemaRef> {
        self.returning.as_ref().map(|returning| &returning.schema)
    }

    /// What is returned of rows of the table.
    ///
    /// # Errors
    /// What goes wrong with an expression.
    pub(super) fn returned(&self, rows: &RecordBatch) -> Result<Option<RecordBatch>> {
        let Some(Returned { exprs, schema }) = &self.returning else { return Ok(None) };
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let of_row = |row: usize| {
            let values = exprs.evaluate(rows.slice(row, 1).columns().to_vec(), 0, &[])?;
            Ok(RecordBatch::try_new_with_options(Arc::clone(schema), values, &options)?)
        };
        let returned = (0..rows.num_rows()).map(of_row).collect::<Result<Vec<_>>>()?;
        Ok(Some(concat_batches(schema, &returned)?))
    }
}

/// The types of the parameters with these values; `None` if some of them are not what arrays are made of.
async fn parameter_types(
    catalog: &StatementCatalog,
    given: &Given,
) -> Result<Option<Vec<DataType>>> {
    let (Some(arrays), Bindings::Positional(bound)) = (given.arrays(), given.bindings()) else {
        return Ok(None);
    };
    let items = bound.iter().enumerate().map(|(number, value)| format!("{value} AS p{number}"));
    let query = parse_query(&format!("SELECT {}", items.collect::<Vec<_>>().join(", ")))?;
    let statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(query))));
    let plan = catalog.plan(&catalog.planning_state(), statement).await?;
    let planned = plan.schema().fields().iter().map(|field| field.data_type().clone());
    let made = arrays.iter().map(|array| array.data_type().clone());
    let made: Vec<DataType> = made.collect();
    Ok(planned.eq(made.iter().cloned()).then_some(made))
}

/// What plans are made with.
struct Work<'a> {
    catalog: &'a StatementCatalog,
    session: u64,
    parameters: Vec<DataType>,
}

impl Work<'_> {
    /// UPDATE and DELETE.
    async fn keyed(
        self,
        change: &ChangeStatement,
        conditions: &[(String, Operand)],
    ) -> Result<PlannedChange> {
        let Some(table) = self.table(&change.table)? else { return Ok(PlannedChange::NoIndex) };
        let Some((index, key)) = KeyColumns::of(&table, conditions) else {
            return Ok(PlannedChange::NoIndex);
        };
        let row_id = Field::new(ROW_ID, DataType::UInt64, false);
        let columns = marked_schema(table.schema());
        let fields = columns.fields().iter().map(|field| field.as_ref().clone()).chain([row_id]);
        let catalog = self.with_relation(&change.with_ids, fields.collect())?;
        let mut change = change.clone();
        name_columns(&mut change, &columns);
        bind_columns(&mut change.query, &change.alias);
        let planned = plan_bound(&catalog, &change, Arc::clone(&table)).await?;
        let rows = match planned.has_values {
            true => {
                let (state, plan) = (planned.state, planned.plan);
                match rows_of(&state, plan, &table, (1, planned.checks))? {
                    Some(rows) => Some(rows),
                    None => return Ok(PlannedChange::NotSimple),
                }
            }
            false => None,
        };
        let returning = change.returning.clone();
        let items = |items| Returning::new(self.catalog, &table, &change.alias, items);
        let returning = returning.map(items).transpose()?;
        // The row is found by its key.
        let rights = change.rights() | Rights::SELECT;
        let basis = Basis::new(self.session, catalog.snapshot(), &table, Some(index), rights);
        self.finish((basis, change.tag), Some(key), rows, returning).await
    }

    /// INSERT … VALUES.
    async fn insert(self, insert: &ast::Insert) -> Result<PlannedChange> {
        let ast::TableObject::TableName(name) = &insert.table else {
            return Ok(PlannedChange::NotSimple);
        };
        let Some(table) = self.table(name)? else { return Ok(PlannedChange::NoIndex) };
        let opened = Opened::of(self.catalog, insert.clone())?;
        let Some(source) = opened.insert.ast.source else { return Ok(PlannedChange::NotSimple) };
        let SetExpr::Values(values) = *source.body else { return Ok(PlannedChange::NotSimple) };
        let count = values.rows.len();
        let items = values.rows.into_iter().flat_map(|row| row.content);
        let catalog = self.with_relation(GIVEN, Vec::new())?;
        let state = catalog.planning_state();
        let query = Statement::Query(Box::new(query_of_given(items.collect())?));
        let query = DfStatement::Statement(Box::new(query));
        let source = catalog.plan(&state, query).await?;
        let plan = table_rows(&catalog, &table, source, &opened.insert.targets)?;
        let checks = &table.constraints().checks;
        let checks = Checks::of(self.catalog, table.schema(), checks).await?;
        let Some(rows) = rows_of(&state, plan, &table, (count, checks.clone()))? else {
            return Ok(PlannedChange::NotSimple);
        };
        let rights = rights(opened.resolution.as_ref(), opened.returning.is_some());
        let basis = Basis::new(self.session, catalog.snapshot(), &table, None, rights);
        if insert.on.is_none() {
            return self.finish((basis, "INSERT"), None, Some(rows), opened.returning).await;
        }
        let basis = basis.with_unique(&table);
        let conflict = match &opened.resolution {
            // Without a unique key there are no conflicts.
            None => None,
            Some(resolution) => {
                match self.conflict(resolution, &table, &opened.alias, checks).await? {
                    Some(conflict) => Some(conflict),
                    None => return Ok(PlannedChange::NotSimple),
                }
            }
        };
        let returning = opened.returning;
        let planned = self.finish((basis, "INSERT"), None, Some(rows), returning).await?;
        Ok(match planned {
            PlannedChange::Plan(plan) => {
                PlannedChange::Plan(Box::new(ChangePlan { conflict, ..*plan }))
            }
            other => other,
        })
    }

    /// What becomes of a new row whose key the table has; `None` if that needs more than the two rows.
    async fn conflict(
        &self,
        resolution: &Resolution,
        table: &Arc<Table>,
        alias: &Ident,
        checks: Checks,
    ) -> Result<Option<Conflict>> {
        // What is said of the two rows could mean either.
        if alias.value == EXCLUDED {
            return Ok(None);
        }
        let arbiters = resolution.arbiters(table)?.into_iter().cloned().collect();
        let (assignments, selection) = match resolution {
            Resolution::Nothing(_) => return Ok(Some(Conflict { arbiters, update: None })),
            Resolution::Update(_, assignments, selection) => (assignments, selection),
            Resolution::Replace => return Ok(None),
        };
        let names = TwoRows { table, alias };
        let columns = &table.schema().columns;
        let mut items: Vec<ast::Expr> =
            columns.iter().map(|column| given_column(&old_column(&column.name))).collect();
        let mut assigned = HashSet::new();
        for assignment in assignments {
            let ast::AssignmentTarget::ColumnName(target) = &assignment.target else {
                return Ok(None);
            };
            let Some(target) = target.0.last().and_then(ast::ObjectNamePart::as_ident) else {
                return Ok(None);
            };
            let Some(number) = names.column(target).filter(|number| assigned.insert(*number))
            else {
                return Ok(None);
            };
            let Some(value) = names.bound(&assignment.value) else { return Ok(None) };
            items[number] = value;
        }
        let condition = match selection {
            None => Some(ast::Expr::value(ast::Value::Boolean(true))),
            Some(selection) => names.bound(selection),
        };
        let Some(condition) = condition else { return Ok(None) };
        items.push(condition);
        let row = marked_schema(table.schema());
        let named = |name: fn(&str) -> String| {
            let fields = row.fields().iter();
            fields.map(move |field| field.as_ref().clone().with_name(name(field.name())))
        };
        let fields = named(old_column).chain(named(new_column)).collect();
        let catalog = self.with_relation(GIVEN, fields)?;
        let state = catalog.planning_state();
        let query = Statement::Query(Box::new(query_of_given(items)?));
        let query = DfStatement::Statement(Box::new(query));
        let plan = catalog.plan(&state, query).await?;
        let plan = analyzed(&state, plan, || {})?;
        let fields = plan.schema().as_arrow().fields();
        let is_condition =
            fields.last().is_some_and(|field| *field.data_type() == DataType::Boolean);
        if fields.len() != columns.len() + 1 || !is_condition {
            return Ok(None);
        }
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let rows = fields.iter().take(columns.len()).map(nullable).collect::<Vec<_>>();
        let rows = Arc::new(Schema::new(rows));
        let Some(exprs) = FlatExprs::of(&state, &plan, None)? else { return Ok(None) };
        if !exprs.sequences.is_empty() {
            return Ok(None);
        }
        let assignment = Assignment::new(&state, table.schema(), &rows)?.with_checks(checks);
        Ok(Some(Conflict { arbiters, update: Some(Update { exprs, rows, assignment }) }))
    }

    /// The table of a name, if it is one of the database.
    fn table(&self, name: &ObjectName) -> Result<Option<Arc<Table>>> {
        let name = relation_name(name)?;
        let is_hidden = self.catalog.has_relation(&name);
        Ok(self.catalog.snapshot().table(&name).filter(|_| !is_hidden))
    }

    /// The catalog with a relation of these columns and those of the parameters.
    fn with_relation(&self, name: &str, mut fields: Vec<Field>) -> Result<StatementCatalog> {
        let parameters = self.parameters.iter().enumerate();
        let parameters =
            parameters.map(|(number, of)| Field::new(parameter_column(number), of.clone(), true));
        fields.extend(parameters);
        let relation = Relation::of_rows(Arc::new(Schema::new(fields)), Vec::new())?;
        let relations = Arc::new(HashMap::from([(name.to_owned(), relation)]));
        Ok(self.catalog.clone().with_relations(&relations))
    }

    async fn finish(
        self,
        (basis, tag): (Basis, &'static str),
        key: Option<KeyColumns>,
        rows: Option<Rows>,
        returning: Option<Returning>,
    ) -> Result<PlannedChange> {
        let returning = match returning {
            Some(items) => {
                let (state, plan) = items.plan(Vec::new()).await?;
                let plan = analyzed(&state, plan, || {})?;
                let Some(exprs) = FlatExprs::of(&state, &plan, None)? else {
                    return Ok(PlannedChange::NotSimple);
                };
                Some(Returned { exprs, schema: Arc::clone(plan.schema().inner()) })
            }
            None => None,
        };
        let parameters = self.parameters;
        let conflict = None;
        let plan = ChangePlan { basis, tag, parameters, key, rows, conflict, returning };
        Ok(PlannedChange::Plan(Box::new(plan)))
    }
}

/// The name of a column of the table's row, and of the new one, which no column of a table can have.
fn old_column(name: &str) -> String {
    format!("old\n{name}")
}

fn new_column(name: &str) -> String {
    format!("new\n{name}")
}

fn given_column(name: &str) -> ast::Expr {
    let names = [GIVEN, name].map(|name| Ident::with_quote('"', name));
    ast::Expr::CompoundIdentifier(names.to_vec())
}

/// The names of columns in what is said of a row whose key the table has.
struct TwoRows<'a> {
    table: &'a Table,
    alias: &'a Ident,
}

impl TwoRows<'_> {
    fn column(&self, name: &Ident) -> Option<usize> {
        let text = folded(name);
        index_of(self.table.schema(), &text, name.quote_style.is_some())
    }

    /// An expression over columns of the relation in place of those of the two rows; `None` if it names others.
    fn bound(&self, expr: &ast::Expr) -> Option<ast::Expr> {
        let mut bound = expr.clone();
        bound.visit(&mut BindRows { names: self }).is_continue().then_some(bound)
    }
}

struct BindRows<'a> {
    names: &'a TwoRows<'a>,
}

impl VisitorMut for BindRows<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let (relation, name) = match &*expr {
            ast::Expr::Identifier(name) => (None, name),
            ast::Expr::CompoundIdentifier(names) => match names.as_slice() {
                [relation, name] => (Some(relation), name),
                _ => return ControlFlow::Break(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        let is_new = match relation.map(folded) {
            None => false,
            Some(relation) if relation == folded(self.names.alias) => false,
            Some(relation) if relation == EXCLUDED => true,
            Some(_) => return ControlFlow::Break(()),
        };
        let Some(number) = self.names.column(name) else { return ControlFlow::Break(()) };
        let column = &self.names.table.schema().columns[number].name;
        *expr = given_column(&if is_new { new_column(column) } else { old_column(column) });
        ControlFlow::Continue(())
    }
}

/// Has a change name the columns of its table one by one: the relation has others.
fn name_columns(change: &mut ChangeStatement, columns: &Schema) {
    let alias = &change.alias;
    let SetExpr::Select(select) = change.query.body.as_mut() else { return };
    select.projection.retain(|item| !matches!(item, SelectItem::QualifiedWildcard(..)));
    let names = columns.fields().iter().map(|field| field.name().as_str()).chain([ROW_ID]);
    let column = |name| {
        let name = vec![alias.clone(), Ident::with_quote('"', name)];
        SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(name))
    };
    select.projection.extend(names.map(column));
}

/// A query of these items over the parameters.
fn query_of_given(items: Vec<ast::Expr>) -> Result<ast::Query> {
    let alias = Ident::with_quote('"', GIVEN);
    let mut query = template()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let named = |(number, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', format!("new {number}")),
        };
        let relation = table_factor(ObjectName::from(vec![alias.clone()]), &alias)?;
        select.projection = items.into_iter().enumerate().map(named).collect();
        select.from = vec![TableWithJoins { relation, joins: Vec::new() }];
    }
    bind_columns(&mut query, &alias);
    Ok(*query)
}

/// The columns of the table's rows, one row after the other, whose values for the columns `targets` are those of `source`.
fn table_rows(
    catalog: &StatementCatalog,
    table: &Table,
    source: LogicalPlan,
    targets: &[usize],
) -> Result<LogicalPlan> {
    let (defaults, schema) = (catalog.defaults(table)?, table.arrow_schema());
    let mut exprs = Vec::new();
    for row in 0..source.schema().fields().len() / targets.len().max(1) {
        for (number, field) in schema.fields().iter().enumerate() {
            let value = match targets.iter().position(|target| *target == number) {
                Some(at) => {
                    let item = source.schema().qualified_field(row * targets.len() + at);
                    let item = Expr::Column(ColumnName::from(item));
                    item.cast_to(field.data_type(), source.schema())?
                }
                None => match defaults.get(field.name()) {
                    Some(default) => default.clone(),
                    None => lit(ScalarValue::Null),
                }
                .cast_to(field.data_type(), &DFSchema::empty())?,
            };
            exprs.push(value.alias(format!("{row} {}\n", field.name())));
        }
    }
    Ok(LogicalPlanBuilder::from(source).project(exprs)?.build()?)
}

/// The rows that the first columns of a plan are, so many; `None` if they need more than a row.
fn rows_of(
    state: &SessionState,
    plan: LogicalPlan,
    table: &Table,
    (count, checks): (usize, Checks),
) -> Result<Option<Rows>> {
    let columns = table.schema().columns.len();
    let has_json = marked_schema(table.schema()).fields().iter().any(|field| is_json(field));
    if has_json || !checks.are_immutable() {
        return Ok(None);
    }
    let plan = analyzed(state, plan, || {})?;
    if plan.schema().fields().len() < columns * count {
        return Ok(None);
    }
    let first: Vec<usize> = (0..columns).collect();
    let source = plan.schema().as_arrow().project(&first)?;
    let Some(exprs) = FlatExprs::of(state, &plan, Some(columns * count))? else {
        return Ok(None);
    };
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let source = Schema::new(source.fields().iter().map(nullable).collect::<Vec<_>>());
    let assignment = Assignment::new(state, table.schema(), &source)?.with_checks(checks);
    Ok(Some(Rows { exprs, source: Arc::new(source), assignment }))
}
