//! CREATE, DROP and INSERT.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    DdlStatement, DmlStatement, LogicalPlan, LogicalPlanBuilder, WriteOp,
};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use weft_store::{Change, Column, TableSchema};

use crate::catalog::{StatementCatalog, reference_name, relation_name};
use crate::constraints;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::run::{Run, Started};
use crate::types::stored_type;
use crate::write::write_rows;

impl Run {
    /// CREATE TABLE, with or without a query.
    pub(crate) async fn create_table(
        &self,
        catalog: &StatementCatalog,
        create: ast::CreateTable,
    ) -> Result<Started> {
        constraints::check_table(&create)?;
        let name = relation_name(&create.name)?;
        let tag = if create.query.is_some() { "CREATE TABLE AS" } else { "CREATE TABLE" };
        if let Some(started) = exists(catalog, &name, create.or_replace, create.if_not_exists, tag)?
        {
            return Ok(started);
        }
        let defaults: Vec<_> = create.columns.iter().map(constraints::default_of).collect();
        let has_query = create.query.is_some();
        let or_replace = create.or_replace;
        let state = catalog.planning_state();
        let statement = DfStatement::Statement(Box::new(ast::Statement::CreateTable(create)));
        let plan = catalog.plan(&state, statement).await?;
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(plan)) = plan else {
            return Err(internal("CREATE TABLE is planned as something else"));
        };
        let schema = table_schema(name, plan.input.schema().as_arrow(), &defaults)?;
        check_defaults(catalog, &schema).await?;
        let run = self.clone();
        let work = async move {
            let mut changes = vec![Change::CreateTable { schema: schema.clone(), or_replace }];
            let mut rows = None;
            if has_query {
                let groups = run.write(&state, &plan.input, &schema).await?;
                rows = Some(groups.rows());
                changes.push(Change::Append { table: schema.name, expected: None, groups });
            }
            run.commit(changes).await?;
            Ok(rows)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// CREATE VIEW: the query's text is kept.
    pub(crate) async fn create_view(
        &self,
        catalog: &StatementCatalog,
        create: ast::CreateView,
    ) -> Result<Started> {
        constraints::check_view(&create)?;
        let name = relation_name(&create.name)?;
        let tag = "CREATE VIEW";
        if let Some(started) = exists(catalog, &name, create.or_replace, create.if_not_exists, tag)?
        {
            return Ok(started);
        }
        let sql = match create.columns.as_slice() {
            [] => create.query.to_string(),
            columns => {
                let columns: Vec<_> =
                    columns.iter().map(|column| column.name.to_string()).collect();
                format!("SELECT * FROM ({}) AS v({})", create.query, columns.join(", "))
            }
        };
        let or_replace = create.or_replace;
        // Planned for its errors only.
        let query = crate::statement::parse_query(&sql)?;
        let statement = ast::Statement::Query(Box::new(query));
        let statement = DfStatement::Statement(Box::new(statement));
        catalog.plan(&catalog.planning_state(), statement).await?;
        let run = self.clone();
        let work = async move {
            run.commit(vec![Change::CreateView { name, sql, or_replace }]).await?;
            Ok(None)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// DROP TABLE and DROP VIEW.
    pub(crate) fn drop_relations(
        &self,
        catalog: &StatementCatalog,
        object: ast::ObjectType,
        names: &[ast::ObjectName],
        if_exists: bool,
    ) -> Result<Started> {
        let is_table = match object {
            ast::ObjectType::Table => true,
            ast::ObjectType::View => false,
            other => return Err(SqlError::not_supported(format!("DROP {other}"))),
        };
        let snapshot = catalog.snapshot();
        let mut changes = Vec::new();
        for name in names {
            let name = relation_name(name)?;
            match (is_table, snapshot.table(&name), snapshot.view(&name)) {
                (true, Some(table), _) => {
                    changes.push(Change::DropTable { expected: Some(table.id()), name });
                }
                (false, _, Some(_)) => changes.push(Change::DropView { name }),
                (true, None, Some(_)) => {
                    return Err(wrong_kind(&name, "a view", "DROP VIEW"));
                }
                (false, Some(_), None) => {
                    return Err(wrong_kind(&name, "a table", "DROP TABLE"));
                }
                (_, None, None) if if_exists => {}
                (true, None, None) => return Err(catalog.unknown(&name)),
                (false, None, None) => {
                    let message = format!("view {name} does not exist");
                    return Err(SqlError::new(ErrorKind::Semantic, message).about(name));
                }
            }
        }
        let tag = if is_table { "DROP TABLE" } else { "DROP VIEW" };
        let run = self.clone();
        let work = async move {
            if !changes.is_empty() {
                run.commit(changes).await?;
            }
            Ok(None)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// INSERT.
    pub(crate) fn insert(
        &self,
        catalog: &StatementCatalog,
        state: SessionState,
        insert: DmlStatement,
    ) -> Result<Started> {
        match insert.op {
            WriteOp::Insert(InsertOp::Append) => {}
            WriteOp::Insert(_) => {
                return Err(SqlError::not_supported("INSERT that replaces rows"));
            }
            ref other => return Err(SqlError::not_supported(other)),
        }
        let name = reference_name(&insert.table_name)?;
        let table = catalog.stored(&name)?;
        let run = self.clone();
        let work = async move {
            let groups = run.write(&state, &insert.input, table.schema()).await?;
            let rows = groups.rows();
            if rows > 0 {
                let expected = Some(table.id());
                run.commit(vec![Change::Append { table: name, expected, groups }]).await?;
            }
            Ok(Some(rows))
        };
        Ok(Started::Command { tag: "INSERT", work: work.boxed() })
    }

    /// Runs a plan and writes its rows for a table with this schema.
    pub(crate) async fn write(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        schema: &TableSchema,
    ) -> Result<weft_store::WrittenGroups> {
        let mut state = state.clone();
        // The rows are to keep their order, as far as they have one.
        state.config_mut().options_mut().optimizer.enable_round_robin_repartition = false;
        let physical = self.physical(&state, plan).await?;
        let store = self.session.engine().store();
        write_rows(store, &self.control, schema, &physical, &state.task_ctx()).await
    }

    /// Makes changes, unless the statement was cancelled.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<()> {
        self.control.begin_commit()?;
        self.session.engine().store().commit(changes).await?;
        Ok(())
    }
}

/// What to do if a table or view of this name exists: nothing, an error, or go on.
fn exists(
    catalog: &StatementCatalog,
    name: &str,
    or_replace: bool,
    if_not_exists: bool,
    tag: &'static str,
) -> Result<Option<Started>> {
    let snapshot = catalog.snapshot();
    let there = match (snapshot.table(name), snapshot.view(name)) {
        (Some(_), _) => "table",
        (None, Some(_)) => "view",
        (None, None) => return Ok(None),
    };
    if or_replace && if_not_exists {
        return Err(SqlError::new(
            ErrorKind::Semantic,
            "OR REPLACE and IF NOT EXISTS exclude each other",
        ));
    }
    let same_kind = (there == "view") == (tag == "CREATE VIEW");
    if or_replace && same_kind {
        return Ok(None);
    }
    if if_not_exists {
        return Ok(Some(Started::Command { tag, work: async { Ok(None) }.boxed() }));
    }
    let error = SqlError::new(ErrorKind::AlreadyExists, format!("{there} {name} exists already"));
    Err(match same_kind {
        true => error.with_hint("write CREATE OR REPLACE, or IF NOT EXISTS"),
        false => error.with_hint(format!("drop it first: DROP {} {name}", there.to_uppercase())),
    })
}

fn wrong_kind(name: &str, kind: &str, write: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("{name} is {kind}"))
        .about(name)
        .with_hint(format!("write {write} {name}"))
}

fn table_schema(name: String, schema: &Schema, defaults: &[Option<String>]) -> Result<TableSchema> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (number, field) in schema.fields().iter().enumerate() {
        let data_type = stored_type(field.data_type());
        if data_type == arrow::datatypes::DataType::Null {
            return Err(SqlError::new(
                ErrorKind::Semantic,
                format!("column {} of the query has no type: it is NULL in all rows", field.name()),
            )
            .with_hint("give it one: CAST(NULL AS INTEGER)"));
        }
        // A query's columns may hold NULL, whatever the optimizer knows about them.
        let declared = defaults.len() == schema.fields().len();
        columns.push(Column {
            name: field.name().clone(),
            data_type,
            nullable: !declared || field.is_nullable(),
            default: defaults.get(number).cloned().flatten(),
        });
    }
    Ok(TableSchema { name, columns })
}

/// Checks that the defaults have values that fit their columns.
async fn check_defaults(catalog: &StatementCatalog, schema: &TableSchema) -> Result<()> {
    let state = catalog.planning_state();
    let empty = Arc::new(datafusion::common::DFSchema::empty());
    for column in &schema.columns {
        let Some(sql) = &column.default else { continue };
        let wrong = |error: datafusion::common::DataFusionError| {
            let error = SqlError::from(error);
            SqlError::new(
                error.kind(),
                format!("the default of column {} does not work: {error}", column.name),
            )
        };
        let expr = state.create_logical_expr(sql, &empty).map_err(wrong)?;
        let expr =
            datafusion::logical_expr::ExprSchemable::cast_to(expr, &column.data_type, &empty)
                .map_err(wrong)?;
        let plan = LogicalPlanBuilder::empty(true).project([expr])?.build()?;
        let plan = state.create_physical_plan(&plan).await.map_err(wrong)?;
        datafusion::physical_plan::collect(plan, state.task_ctx()).await.map_err(wrong)?;
    }
    Ok(())
}
