//! INSERT … ON CONFLICT and INSERT OR …: what becomes of rows whose keys the table has already.
//!
//! The rows to be inserted are proposed: they get the table's types and are joined with the rows of the table that have their keys.
//! A query over both says what becomes of each, and is carried out as those of MERGE are (`change.rs`). The rows of a VALUES list are
//! computed first, so that the table's rows are found by its indexes; those of a query are not kept in memory. Of several proposed
//! rows with one key the first is inserted by DO NOTHING and the last by OR REPLACE; DO UPDATE has an error.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{Column as ColumnName, ScalarValue, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::sql::sqlparser::ast::{
    self, CaseWhen, Ident, ObjectName, SetExpr, TableWithJoins, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use futures::StreamExt;
use weft_store::{IndexDefinition, ROW_ID, Table};

use crate::assign::{Assignment, marked_schema};
use crate::catalog::StatementCatalog;
use crate::change::{Planned, plan_bound};
use crate::change_statement::{
    Action, ChangeStatement, Clause, NewValue, WITH_IDS, assigned, case, query_of,
};
use crate::conflict_target::Resolution;
use crate::copy_from::index_of;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::grammar::syntax;
use crate::keys::Checks;
use crate::relation::{Relation, RelationTable};
use crate::row_places::{PLACE, with_places};
use crate::run::Run;
use crate::spill_files::task_context;
use crate::statement::{fold, parse_query};
use crate::text::DIALECT;
use crate::text_kinds::TextKind;

/// The name by which statements call the rows to be inserted.
pub(crate) const EXCLUDED: &str = "excluded";

/// What the name of the rows to be inserted begins with in the query over them.
const PROPOSED: &str = "rows proposed for ";

/// The column that counts proposed rows of one key.
const NUMBER: &str = "number of the row";

/// Proposed rows whose keys conditions on the table's rows list, at most.
const LISTED_ROWS_MAX: usize = 1_000;

/// Rows to be inserted.
pub(crate) struct Proposal<'a> {
    pub(crate) catalog: &'a StatementCatalog,
    pub(crate) table: &'a Arc<Table>,
    /// The name by which the statement calls the table.
    pub(crate) alias: &'a Ident,
    pub(crate) resolution: &'a Resolution,
}

/// Where the proposed rows come from.
enum Source {
    /// They are computed, and have places.
    Rows(Vec<RecordBatch>),
    /// They are those of a plan, with places if they are needed.
    Plan(LogicalPlan),
}

impl Run {
    /// The plan of an INSERT of the rows of `plan`, which has a column for each of the table's.
    ///
    /// # Errors
    /// What is wrong with the statement, and with the values of a VALUES list.
    pub(crate) async fn plan_resolved(
        &self,
        proposal: &Proposal<'_>,
        (state, plan): (&SessionState, LogicalPlan),
        is_values: bool,
    ) -> Result<Planned> {
        let arbiters = proposal.resolution.arbiters(proposal.table)?;
        let source = match is_values {
            true => Source::Rows(self.computed(proposal, state, &plan).await?),
            false => {
                let has_places = !matches!(proposal.resolution, Resolution::Update(..));
                Source::Plan(proposal.typed(plan, has_places)?)
            }
        };
        proposal.plan(&arbiters, source).await
    }

    /// The rows of a plan, with the table's types and their places.
    async fn computed(
        &self,
        proposal: &Proposal<'_>,
        state: &SessionState,
        plan: &LogicalPlan,
    ) -> Result<Vec<RecordBatch>> {
        let schema = proposal.table.schema();
        let physical = self.physical(state, plan).await?;
        let checks = &proposal.table.constraints().checks;
        let checks = Checks::of(proposal.catalog, schema, checks).await?;
        let assignment = Assignment::new(state, schema, &physical.schema())?.with_checks(checks);
        let placed = placed(&marked_schema(schema));
        let mut batches = Vec::new();
        let mut rows = 0;
        for batch in collect(physical, task_context(state)).await? {
            let batch = assignment.convert(&batch)?;
            let next = rows + batch.num_rows() as u64;
            let places: ArrayRef = Arc::new(UInt64Array::from_iter_values(rows + 1..=next));
            let columns = [batch.columns(), &[places]].concat();
            batches.push(RecordBatch::try_new(Arc::clone(&placed), columns)?);
            rows = next;
        }
        Ok(batches)
    }

    /// What is wrong with the first row of a plan that does not fit the table.
    pub(crate) async fn first_misfit(
        &self,
        (state, plan): (&SessionState, &LogicalPlan),
        table: &Table,
    ) -> Option<SqlError> {
        let find = async {
            let physical = self.physical(state, plan).await?;
            let assignment = Assignment::new(state, table.schema(), &physical.schema())?;
            let mut stream = execute_stream(physical, task_context(state))?;
            while let Some(batch) = stream.next().await {
                assignment.convert(&batch?)?;
            }
            Ok(())
        };
        let found: Result<()> = find.await;
        found.err().filter(|error| error.kind() == ErrorKind::Data)
    }
}

/// A schema with a column of places.
fn placed(schema: &Schema) -> SchemaRef {
    let place = Arc::new(Field::new(PLACE, DataType::UInt64, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([place]).collect::<Vec<_>>()))
}

impl Proposal<'_> {
    /// The rows of a plan with the table's types, and with their places if those are needed.
    fn typed(&self, plan: LogicalPlan, has_places: bool) -> Result<LogicalPlan> {
        let schema = marked_schema(self.table.schema());
        let plan = if has_places { with_places(plan)? } else { plan };
        let mut exprs = Vec::with_capacity(schema.fields().len() + 1);
        for (number, to) in schema.fields().iter().enumerate() {
            let (relation, from) = plan.schema().qualified_field(number);
            let value = Expr::Column(ColumnName::from((relation, from)));
            let value = match (TextKind::of_field(to), TextKind::of_field(from)) {
                (Some(to), Some(from)) if to == from => value,
                (Some(_), _) => Expr::Cast(Cast::new_from_field(Box::new(value), Arc::clone(to))),
                (None, _) => value.cast_to(to.data_type(), plan.schema())?,
            };
            exprs.push(value.alias(to.name()));
        }
        if has_places {
            exprs.push(Expr::Column(ColumnName::new_unqualified(PLACE)));
        }
        Ok(LogicalPlanBuilder::from(plan).project(exprs)?.build()?)
    }

    /// The plan of what becomes of the rows.
    async fn plan(&self, arbiters: &[&IndexDefinition], source: Source) -> Result<Planned> {
        let name = &self.table.schema().name;
        if self.alias.value == EXCLUDED {
            let message =
                "ON CONFLICT calls the rows to be inserted excluded, and so is the table called";
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint(format!("write INSERT INTO {name} AS t …")));
        }
        let rows = match &source {
            Source::Rows(batches) => Some(batches.as_slice()),
            Source::Plan(_) => None,
        };
        for (number, arbiter) in arbiters.iter().enumerate() {
            let with_ids = with_ids(name, number);
            let filter = rows.and_then(|rows| self.listed(&with_ids, arbiter, rows));
            self.catalog.bind_rows_among(&with_ids, self.table, filter).await?;
        }
        let is_single =
            rows.is_some_and(|rows| rows.iter().map(RecordBatch::num_rows).sum::<usize>() <= 1);
        let proposed = format!("{PROPOSED}{name}");
        match source {
            Source::Rows(batches) => {
                let schema = placed(&marked_schema(self.table.schema()));
                let relation = Relation::of_rows(schema, batches)?;
                let relation = Arc::new(RelationTable::new(&proposed, relation));
                self.catalog.bind_rows(&proposed, relation);
            }
            Source::Plan(plan) => {
                self.catalog.bind_rows(&proposed, Arc::new(ViewTable::new(plan, None)));
            }
        }
        let statement = self.statement(arbiters, &proposed, is_single)?;
        plan_bound(self.catalog, &statement, Arc::clone(self.table)).await
    }

    /// The condition that rows of the table have the keys of proposed rows, if these are few.
    fn listed(
        &self,
        with_ids: &str,
        arbiter: &IndexDefinition,
        rows: &[RecordBatch],
    ) -> Option<Expr> {
        if rows.iter().map(RecordBatch::num_rows).sum::<usize>() > LISTED_ROWS_MAX {
            return None;
        }
        let columns = arbiter.columns.iter().map(|of| {
            let mut values = HashSet::new();
            for batch in rows {
                let column = batch.column(of.column);
                for row in 0..batch.num_rows() {
                    let value = ScalarValue::try_from_array(column, row).ok()?;
                    if !value.is_null() {
                        values.insert(value);
                    }
                }
            }
            let name = &self.table.schema().columns[of.column].name;
            let column = ColumnName::new(Some(TableReference::bare(with_ids)), name);
            let values = values.into_iter().map(lit).collect::<Vec<_>>();
            Some(match values.is_empty() {
                true => lit(false),
                false => Expr::Column(column).in_list(values, false),
            })
        });
        columns.collect::<Option<Vec<_>>>()?.into_iter().reduce(Expr::and)
    }

    /// The statement over the proposed rows and the table's.
    fn statement(
        &self,
        arbiters: &[&IndexDefinition],
        proposed: &str,
        is_single: bool,
    ) -> Result<ChangeStatement> {
        let schema = self.table.schema();
        let alias = self.alias;
        let mut items = Vec::new();
        let mut clauses = Vec::new();
        let mut conditions = Vec::new();
        let all = |items: &mut Vec<ast::Expr>| -> Vec<(Option<Ident>, NewValue)> {
            let columns = schema.columns.iter().map(|column| {
                let name = quote(&column.name);
                items.push(ast::Expr::CompoundIdentifier(vec![quote(EXCLUDED), name.clone()]));
                (Some(name), NewValue::Item(items.len() - 1))
            });
            columns.collect()
        };
        // The number of the clause, which is known at the end.
        items.push(ast::Expr::value(ast::Value::Null));
        let is_new = format!("{alias}.{} IS NULL", quote(ROW_ID));
        // Of the proposed rows with a key, one; those without one are not compared.
        let is_one = match (arbiters, is_single) {
            ([only], false) => {
                let columns = self.columns(only);
                let nulls = columns.iter().map(|name| format!("{EXCLUDED}.{name} IS NULL"));
                let first = format!("{EXCLUDED}.\"{NUMBER}\" = 1");
                format!("({})", [first].into_iter().chain(nulls).collect::<Vec<_>>().join(" OR "))
            }
            _ => "TRUE".to_owned(),
        };
        let (mut place, mut first_of) = (None, Vec::new());
        let targets = all(&mut items);
        match self.resolution {
            Resolution::Nothing(_) => {
                if arbiters.len() > 1 && !is_single {
                    conditions
                        .push(parse_expr(&format!("{is_new} AND {EXCLUDED}.\"{NUMBER}\" > 1"))?);
                    clauses.push(Clause { action: Action::Propose, targets: targets.clone() });
                    items.push(parse_expr(&format!("{EXCLUDED}.\"{PLACE}\""))?);
                    place = Some(items.len() - 1);
                    first_of = arbiters.iter().map(|arbiter| arbiter.name.clone()).collect();
                }
                conditions.push(parse_expr(&format!("{is_new} AND {is_one}"))?);
                clauses.push(Clause { action: Action::Insert, targets });
            }
            Resolution::Replace => {
                conditions.push(parse_expr(&format!("{is_new} AND {is_one}"))?);
                clauses.push(Clause { action: Action::Insert, targets: targets.clone() });
                conditions.push(parse_expr(&is_one)?);
                clauses.push(Clause { action: Action::Update, targets });
            }
            Resolution::Update(_, assignments, selection) => {
                conditions.push(parse_expr(&format!("{is_new} AND NOT {is_one}"))?);
                clauses.push(Clause { action: Action::Again, targets: Vec::new() });
                conditions.push(parse_expr(&is_new)?);
                clauses.push(Clause { action: Action::Insert, targets });
                let mut qualify = Qualify { table: self.table, alias, queries: 0 };
                let condition = match selection {
                    Some(selection) => {
                        let mut selection = ast::Expr::clone(selection);
                        qualify.all_of(&mut selection);
                        selection
                    }
                    None => ast::Expr::value(ast::Value::Boolean(true)),
                };
                let mut assignments = assignments.clone();
                for assignment in &mut assignments {
                    qualify.all_of(&mut assignment.value);
                }
                let is_old = format!("{alias}.{} IS NOT NULL", quote(ROW_ID));
                let is_updated = ast::Expr::BinaryOp {
                    left: Box::new(parse_expr(&is_old)?),
                    op: ast::BinaryOperator::And,
                    right: Box::new(ast::Expr::Nested(Box::new(condition.clone()))),
                };
                // Values that other rows do not have may be errors.
                let only =
                    |value| case(vec![CaseWhen { condition: is_updated.clone(), result: value }]);
                let targets = assigned(assignments, &mut items, only)?;
                conditions.push(condition);
                clauses.push(Clause { action: Action::Update, targets });
            }
        }
        let numbered = conditions.into_iter().enumerate().map(|(number, condition)| CaseWhen {
            condition,
            result: ast::Expr::value(ast::Value::Number(number.to_string(), false)),
        });
        items[0] = case(numbered.collect());
        let from = self.from(arbiters, proposed, is_single)?;
        Ok(ChangeStatement {
            tag: "INSERT",
            table: ObjectName::from(vec![quote(&schema.name)]),
            alias: alias.clone(),
            with_ids: with_ids(&schema.name, 0),
            query: query_of(items, alias, from, None)?,
            clauses,
            returning: None,
            place,
            first_of,
        })
    }

    /// The proposed rows as `excluded`, each with the row of the table that has its key.
    fn from(
        &self,
        arbiters: &[&IndexDefinition],
        proposed: &str,
        is_single: bool,
    ) -> Result<Vec<TableWithJoins>> {
        let (alias, name) = (self.alias, &self.table.schema().name);
        let proposed = quote(proposed);
        let equal = |arbiter: &IndexDefinition, left: &str, right: &str| {
            let columns = self.columns(arbiter);
            let equal = columns.iter().map(|of| format!("{left}.{of} = {right}.{of}"));
            equal.collect::<Vec<_>>().join(" AND ")
        };
        // Rows that the table has not by other keys than the first.
        let lacking = arbiters.iter().enumerate().skip(1).map(|(number, arbiter)| {
            let rows = quote(&with_ids(name, number));
            format!("NOT EXISTS (SELECT 1 FROM {rows} AS o WHERE {})", equal(arbiter, "o", "p"))
        });
        let proposed = match lacking.collect::<Vec<_>>().join(" AND ") {
            none if none.is_empty() => proposed.to_string(),
            lacking => format!("(SELECT * FROM {proposed} AS p WHERE {lacking})"),
        };
        let rows = match arbiters {
            [] => return Err(internal("no key decides on conflicts")),
            _ if is_single => proposed,
            [only] => {
                let order = match self.resolution {
                    Resolution::Nothing(_) => format!(" ORDER BY \"{PLACE}\""),
                    Resolution::Replace => format!(" ORDER BY \"{PLACE}\" DESC"),
                    Resolution::Update(..) => String::new(),
                };
                let columns = self.columns(only).join(", ");
                format!(
                    "(SELECT *, row_number() OVER (PARTITION BY {columns}{order}) AS \"{NUMBER}\" FROM {proposed})"
                )
            }
            several => {
                // How many proposed rows have one key of the row, at most.
                let counts = several.iter().map(|arbiter| {
                    let columns = self.columns(arbiter);
                    let nulls = columns.iter().map(|of| format!("{of} IS NULL"));
                    format!(
                        "CASE WHEN {} THEN 1 ELSE count(*) OVER (PARTITION BY {}) END",
                        nulls.collect::<Vec<_>>().join(" OR "),
                        columns.join(", ")
                    )
                });
                let counts = counts.collect::<Vec<_>>().join(", ");
                format!("(SELECT *, greatest({counts}) AS \"{NUMBER}\" FROM {proposed})")
            }
        };
        let with_ids = quote(&with_ids(name, 0));
        let on = equal(arbiters[0], &alias.to_string(), EXCLUDED);
        let sql =
            format!("SELECT 1 FROM {rows} AS {EXCLUDED} LEFT JOIN {with_ids} AS {alias} ON {on}");
        match *parse_query(&sql)?.body {
            SetExpr::Select(select) => Ok(select.from),
            _ => Err(internal("a SELECT is something else")),
        }
    }

    /// The names of the columns of a key, as SQL writes them.
    fn columns(&self, arbiter: &IndexDefinition) -> Vec<String> {
        let columns = &self.table.schema().columns;
        arbiter.columns.iter().map(|of| quote(&columns[of.column].name).to_string()).collect()
    }
}

/// The name of a table's rows with their ids, those of the arbiter of this number.
fn with_ids(table: &str, number: usize) -> String {
    match number {
        0 => format!("{WITH_IDS}{table}"),
        number => format!("{WITH_IDS}{table} by key {number}"),
    }
}

fn quote(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn parse_expr(sql: &str) -> Result<ast::Expr> {
    let parsed = Parser::new(&DIALECT).try_with_sql(sql);
    parsed.and_then(|mut parser| parser.parse_expr()).map_err(syntax)
}

/// Has names of columns without a table mean those of the table, outside of subqueries.
struct Qualify<'a> {
    table: &'a Table,
    alias: &'a Ident,
    /// Subqueries around the expression.
    queries: usize,
}

impl Qualify<'_> {
    fn all_of(&mut self, expr: &mut ast::Expr) {
        // The visitor never breaks.
        let _ = expr.visit(self);
    }
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if self.queries == 0
            && let ast::Expr::Identifier(ident) = expr
        {
            let name = fold(ident.value.clone(), ident.quote_style);
            if index_of(self.table.schema(), &name, ident.quote_style.is_some()).is_some() {
                *expr = ast::Expr::CompoundIdentifier(vec![self.alias.clone(), ident.clone()]);
            }
        }
        ControlFlow::Continue(())
    }
}
