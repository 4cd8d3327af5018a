//! What a statement takes and gives, found without running it: the types of its parameters and its columns. Servers
//! and drivers describe prepared statements by it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use tokio::sync::oneshot;

use crate::catalog::StatementCatalog;
use crate::change;
use crate::control::Control;
use crate::economy::Economy;
use crate::error::{Result, internal};
use crate::insert;
use crate::locate::locate;
use crate::parameters::Bindings;
use crate::session::Session;
use crate::statement::{self, Parsed};
use crate::text;
use crate::types::{field_named, field_type_name};
use crate::uuids::shown_schema;

/// The types of a statement's parameters and of its columns.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The type of each parameter, from `$1` on. A parameter whose type does not follow from the statement is text.
    pub parameters: Vec<FieldRef>,
    /// The columns of the result; `None` for a command.
    pub columns: Option<SchemaRef>,
}

impl Session {
    /// Plans a statement, and runs nothing of it. `given` has the names of types that the caller knows of
    /// parameters, as SQL writes them.
    ///
    /// # Errors
    /// What is wrong with the statement, with a position in `sql` if the error has one.
    pub async fn signature(
        self: &Arc<Session>,
        sql: &str,
        given: Vec<Option<String>>,
    ) -> Result<Signature> {
        self.described(sql, given, false).await
    }

    /// The columns that a query of plain columns of a table names, for rows that are to be inserted into these: with the right to
    /// insert into the table in place of that to read it.
    ///
    /// # Errors
    /// As [`Session::signature`].
    pub async fn columns_to_insert(self: &Arc<Session>, sql: &str) -> Result<Option<SchemaRef>> {
        Ok(self.described(sql, Vec::new(), true).await?.columns)
    }

    async fn described(
        self: &Arc<Session>,
        sql: &str,
        given: Vec<Option<String>>,
        to_insert: bool,
    ) -> Result<Signature> {
        let (answer, receiver) = oneshot::channel();
        let (session, text) = (Arc::clone(self), sql.to_owned());
        let executor = self.engine().executor();
        executor.spawn(async move {
            let found = of_statement(&session, &text, &given, to_insert).await;
            // The caller may have stopped waiting.
            drop(answer.send(found.map_err(|error| locate(error, &text))));
        });
        receiver.await.map_err(|_| internal("a statement was not described"))?
    }
}

async fn of_statement(
    session: &Arc<Session>,
    sql: &str,
    given: &[Option<String>],
    to_insert: bool,
) -> Result<Signature> {
    let count = text::count_parameters(sql)?;
    let control = Arc::new(Control::of(session.engine()));
    let mut catalog = session.statement_catalog(&control, Economy::InMemory)?;
    if to_insert {
        let access = catalog.access().clone().inserting();
        catalog = catalog.with_access(access);
    }
    let parameters = match count {
        0 => Vec::new(),
        _ => parameter_types(&catalog, sql, count).await,
    };
    let values: Vec<String> = parameters
        .iter()
        .enumerate()
        .map(|(number, found)| match given.get(number).and_then(Option::as_ref) {
            Some(name) => format!("CAST(NULL AS {name})"),
            None => format!("CAST(NULL AS {})", field_type_name(found)),
        })
        .collect();
    let columns = columns_of(session, &catalog, sql, &values).await?;
    Ok(Signature { parameters, columns })
}

/// The types that the planner finds for the parameters; text for the others.
async fn parameter_types(catalog: &StatementCatalog, sql: &str, count: usize) -> Vec<FieldRef> {
    let found = match statement::parse(sql) {
        Ok(Parsed::Change(change)) => {
            let described = change::described(catalog, &change).await;
            described.and_then(|(plan, _)| Ok(plan.get_parameter_fields()?)).unwrap_or_default()
        }
        Ok(Parsed::Sql(statement)) if insert_of(&statement).is_some() => {
            let insert = insert_of(&statement).cloned();
            let described = match insert {
                Some(insert) => insert::described(catalog, insert).await.ok(),
                None => None,
            };
            let fields = described.and_then(|(plan, _)| plan.get_parameter_fields().ok());
            fields.unwrap_or_default()
        }
        Ok(Parsed::Sql(statement)) => {
            // A plan with open parameters may not exist, though one with values does.
            let plan = catalog.plan(&catalog.planning_state(), *statement).await;
            plan.and_then(|plan| Ok(plan.get_parameter_fields()?)).unwrap_or_default()
        }
        _ => HashMap::new(),
    };
    let casts = casts_of_parameters(sql);
    let of = |number: usize| {
        let name = format!("${number}");
        casts.get(&name).cloned().or_else(|| found.get(&name).cloned().flatten())
    };
    let text = Arc::new(Field::new("", DataType::Utf8View, true));
    let known = |found: &FieldRef| !found.data_type().is_null();
    (1..=count).map(|number| of(number).filter(known).unwrap_or(Arc::clone(&text))).collect()
}

/// The types that parameters are cast to where they stand. One that is cast to several types, or used without a cast as
/// well, has the first of them.
fn casts_of_parameters(sql: &str) -> HashMap<String, FieldRef> {
    let mut casts = Casts::default();
    if let Ok(Parsed::Sql(statement)) = statement::parse(sql)
        && let DfStatement::Statement(statement) = *statement
    {
        // The visitor never breaks.
        let _ = statement.visit(&mut casts);
    }
    casts.found
}

#[derive(Default)]
struct Casts {
    found: HashMap<String, FieldRef>,
}

impl Visitor for Casts {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Cast { expr: inner, data_type, .. } = expr
            && let ast::Expr::Value(value) = &**inner
            && let ast::Value::Placeholder(name) = &value.value
            && let Ok(field) = field_named("parameter", &data_type.to_string())
        {
            self.found.entry(name.clone()).or_insert_with(|| Arc::new(field));
        }
        ControlFlow::Continue(())
    }
}

/// The columns of the result of a statement whose parameters have these values.
async fn columns_of(
    session: &Arc<Session>,
    catalog: &StatementCatalog,
    sql: &str,
    values: &[String],
) -> Result<Option<SchemaRef>> {
    let parsed = session.parse(sql, &Bindings::Positional(values.to_vec()))?;
    match parsed {
        Parsed::Sql(parsed) if is_query(&parsed) => {
            let state = catalog.planning_state();
            let plan = catalog.plan(&state, *parsed).await?;
            let plan =
                state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
            Ok(Some(Arc::new(shown_schema(plan.schema().as_arrow()))))
        }
        Parsed::Sql(parsed) if insert_of(&parsed).is_some_and(|of| of.returning.is_some()) => {
            match insert_of(&parsed) {
                Some(insert) => Ok(insert::described(catalog, insert.clone()).await?.1),
                None => Ok(None),
            }
        }
        Parsed::Sql(parsed) if !returns_rows(&parsed) => Ok(None),
        Parsed::Change(change) => Ok(change::described(catalog, &change).await?.1),
        Parsed::Execute { ref name, .. } if !is_read(&session.prepared(name)?) => Ok(None),
        Parsed::CopyFrom { .. }
        | Parsed::CopyTo { .. }
        | Parsed::AddDevice { .. }
        | Parsed::Reindex { .. }
        | Parsed::Vacuum { .. }
        | Parsed::Checkpoint
        | Parsed::Set { .. }
        | Parsed::Reset { .. }
        | Parsed::Prepare { .. }
        | Parsed::DropMacro { .. }
        | Parsed::CreateSequence(_)
        | Parsed::AlterSequence(_)
        | Parsed::CreateType(_)
        | Parsed::AlterType(_)
        | Parsed::SetVariable { .. }
        | Parsed::ResetVariable { .. }
        | Parsed::Access(_)
        | Parsed::Secret(_)
        | Parsed::Transaction(_)
        | Parsed::RenameView { .. }
        | Parsed::Deallocate { .. } => Ok(None),
        // What shows something about the database reads nothing before its rows are asked for.
        _ => {
            let mut running = session.start_bound(sql, values.to_vec());
            running.ready().await?;
            Ok(Some(running.schema()))
        }
    }
}

fn is_query(statement: &DfStatement) -> bool {
    matches!(statement, DfStatement::Statement(inner) if matches!(&**inner, ast::Statement::Query(_)))
}

fn insert_of(statement: &DfStatement) -> Option<&ast::Insert> {
    match statement {
        DfStatement::Statement(inner) => match &**inner {
            ast::Statement::Insert(insert) => Some(insert),
            _ => None,
        },
        _ => None,
    }
}

fn returns_rows(statement: &DfStatement) -> bool {
    match statement {
        DfStatement::Statement(inner) => matches!(
            &**inner,
            ast::Statement::Query(_)
                | ast::Statement::ShowCreate { .. }
                | ast::Statement::ExplainTable { .. }
        ),
        DfStatement::Explain(_) => true,
        _ => false,
    }
}

/// True if a statement returns rows rather than changing something. A statement that is not SQL returns none.
fn is_read(sql: &str) -> bool {
    match statement::parse(sql) {
        Ok(Parsed::Sql(statement)) => returns_rows(&statement),
        Ok(
            Parsed::ShowTables
            | Parsed::ShowDatabases
            | Parsed::ShowSetting { .. }
            | Parsed::TableInfo { .. }
            | Parsed::DescribeTable { .. }
            | Parsed::DescribeQuery { .. },
        ) => true,
        _ => false,
    }
}
