//! Schemas: CREATE SCHEMA, DROP SCHEMA, and the tables and views in them. The store keeps what is in a schema by its qualified name,
//! `schema.table`, and what is in the schema `main` by its name alone.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::sql::sqlparser::ast::{
    ObjectName, SchemaName, Statement, TableFactor, Visit, Visitor,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use weft_store::{Change, Snapshot, Table};

use crate::access::acl;
use crate::catalog::{CATALOG, SCHEMA, StatementCatalog, relation_name};
use crate::comments;
use crate::ddl::Dependents;
use crate::definitions::{self, Kind, stored_name};
use crate::enums::enums_within;
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::information_schema::INFORMATION_SCHEMA;
use crate::run::{Run, Started};
use crate::sequences::{Sequence, drop_owned};
use crate::statement::fold;
use crate::temporary;

/// Schemas that are there without being made.
const OWN: [&str; 4] = [SCHEMA, INFORMATION_SCHEMA, "pg_catalog", "temp"];

/// True if a schema was made, or is a session's.
pub(crate) fn is_made(snapshot: &Snapshot, schema: &str) -> bool {
    temporary::is_schema(schema) || definitions::text(snapshot, Kind::Schema, schema).is_some()
}

/// True if there is a schema of this name.
pub(crate) fn is_schema(snapshot: &Snapshot, name: &str) -> bool {
    OWN.contains(&name) || is_made(snapshot, name)
}

/// The schema and the name within it of a table or view, from the name by which the store has it.
pub(crate) fn parts<'a>(snapshot: &Snapshot, name: &'a str) -> (&'a str, &'a str) {
    match name.split_once('.') {
        Some((schema, inner)) if is_made(snapshot, schema) => (schema, inner),
        _ => (SCHEMA, name),
    }
}

/// The name of a table or view as a statement has to write it.
pub(crate) fn written(snapshot: &Snapshot, name: &str) -> String {
    match parts(snapshot, name) {
        (SCHEMA, name) => quoted(name),
        (schema, name) => format!("{}.{}", quoted(schema), quoted(name)),
    }
}

/// Checks that a table or view of this name, as it is written and as the store will have it, can be made.
///
/// # Errors
/// [`ErrorKind::Semantic`] for a schema that does not exist, and for a name that is that of a table in a schema.
pub(crate) fn check_place(snapshot: &Snapshot, place: &ObjectName, name: &str) -> Result<()> {
    let schema = name.split_once('.').map(|(schema, _)| schema);
    match (place.0.len(), schema) {
        (1, Some(schema)) if is_made(snapshot, schema) => {
            let message = format!("{name} is the name of a table in the schema {schema}");
            Err(SqlError::new(ErrorKind::Semantic, message).about(name))
        }
        (2.., Some(schema)) if !is_made(snapshot, schema) && is_qualified(place) => {
            let message = format!("schema {schema} does not exist");
            Err(SqlError::new(ErrorKind::Semantic, message)
                .about(schema)
                .with_hint(format!("write CREATE SCHEMA {schema}")))
        }
        _ => Ok(()),
    }
}

/// True if a name is in another schema than `main`.
fn is_qualified(place: &ObjectName) -> bool {
    let schema = place.0.len().checked_sub(2).and_then(|at| place.0[at].as_ident());
    schema.is_some_and(|schema| fold(schema.value.clone(), schema.quote_style) != SCHEMA)
}

/// Refuses a statement in which two tables without an alias share a name in different schemas: names of their columns would mean
/// either.
///
/// # Errors
/// [`ErrorKind::Semantic`] that names them.
pub(crate) fn check_names(statement: &Statement) -> Result<()> {
    let mut tables = Tables::default();
    match statement.visit(&mut tables) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The tables of a statement, by the last parts of their names.
#[derive(Default)]
struct Tables {
    found: HashMap<String, String>,
}

impl Visitor for Tables {
    type Break = SqlError;

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<SqlError> {
        let TableFactor::Table { name, alias: None, args: None, .. } = table else {
            return ControlFlow::Continue(());
        };
        let Ok(full) = relation_name(name) else { return ControlFlow::Continue(()) };
        let Some(last) = name.0.last().and_then(|part| part.as_ident()) else {
            return ControlFlow::Continue(());
        };
        let last = fold(last.value.clone(), last.quote_style);
        let known = self.found.entry(last.clone()).or_insert_with(|| full.clone());
        if *known == full {
            return ControlFlow::Continue(());
        }
        let message = format!("{known} and {full} are both called {last} in this statement");
        ControlFlow::Break(
            SqlError::new(ErrorKind::Semantic, message)
                .about(&full)
                .with_hint(format!("give one of them another name: FROM {full} AS other")),
        )
    }
}

/// The name of a schema in a statement.
fn schema_name(name: &ObjectName) -> Result<String> {
    let parts: Option<Vec<String>> = name
        .0
        .iter()
        .map(|part| part.as_ident().map(|part| fold(part.value.clone(), part.quote_style)))
        .collect();
    match parts.as_deref() {
        Some([schema]) => Ok(schema.clone()),
        Some([catalog, schema]) if catalog == CATALOG => Ok(schema.clone()),
        _ => {
            let message = format!("{name} is no name of a schema of this database");
            Err(SqlError::new(ErrorKind::Semantic, message))
        }
    }
}

impl Run {
    /// CREATE SCHEMA.
    pub(crate) fn create_schema(
        &self,
        catalog: &StatementCatalog,
        name: &SchemaName,
        if_not_exists: bool,
    ) -> Result<Started> {
        let SchemaName::Simple(name) = name else {
            return Err(SqlError::not_supported("AUTHORIZATION of a schema").with_hint(
                "leave it out: superusers make schemas, and GRANT CREATE ON SCHEMA gives rights",
            ));
        };
        let name = schema_name(name)?;
        catalog.access().check_all("make schemas")?;
        let snapshot = catalog.snapshot();
        let is_there = is_schema(snapshot, &name);
        if is_there && if_not_exists {
            return Ok(self.change("CREATE SCHEMA", Vec::new()));
        }
        if is_there {
            let message = format!("schema {name} exists already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                .with_hint("write CREATE SCHEMA IF NOT EXISTS"));
        }
        if name.is_empty() || name.contains('.') || name.starts_with(definitions::MARK) {
            let message = "the name of a schema is not empty and has no dot";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        if let Some(taken) = within(snapshot, &name).next() {
            let message = format!("the table {} has a name of this schema", quoted(taken));
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name));
        }
        let sql = format!("CREATE SCHEMA {}", quoted(&name));
        let name = stored_name(Kind::Schema, &name);
        let change = Change::CreateView { name, sql, or_replace: false };
        Ok(self.change("CREATE SCHEMA", vec![change]))
    }

    /// DROP SCHEMA.
    pub(crate) fn drop_schemas(
        &self,
        catalog: &StatementCatalog,
        names: &[ObjectName],
        if_exists: bool,
        dependents: Dependents,
    ) -> Result<Started> {
        catalog.access().check_all("drop schemas")?;
        let snapshot = catalog.snapshot();
        let mut changes = Vec::new();
        for name in names {
            let name = schema_name(name)?;
            if OWN.contains(&name.as_str()) {
                let message = format!("schema {name} cannot be dropped");
                return Err(SqlError::new(ErrorKind::Semantic, message).about(&name));
            }
            if !is_made(snapshot, &name) {
                if if_exists {
                    continue;
                }
                let message = format!("schema {name} does not exist");
                return Err(SqlError::new(ErrorKind::Semantic, message).about(&name));
            }
            let inner: Vec<String> = within(snapshot, &name).map(str::to_owned).collect();
            if dependents != Dependents::Drop
                && let Some(first) = inner.first()
            {
                let message = format!("schema {name} is not empty: it has {first}");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .about(&name)
                    .with_hint("write DROP SCHEMA … CASCADE to drop what is in it"));
            }
            let tables: Vec<_> = inner.iter().filter_map(|name| snapshot.table(name)).collect();
            let tables: Vec<&Table> = tables.iter().map(Arc::as_ref).collect();
            let owned = drop_owned(snapshot, &tables)?;
            let is_owned = |name: &str| {
                let stored = stored_name(Kind::Sequence, name);
                owned.iter().any(|of| matches!(of, Change::DropView { name } if *name == stored))
            };
            let start = format!("{name}.");
            for sequence in definitions::names(snapshot, Kind::Sequence) {
                if !sequence.starts_with(&start) || is_owned(sequence) {
                    continue;
                }
                if dependents != Dependents::Drop {
                    let message = format!("schema {name} is not empty: it has {sequence}");
                    return Err(SqlError::new(ErrorKind::Semantic, message)
                        .about(&name)
                        .with_hint("write DROP SCHEMA … CASCADE to drop what is in it"));
                }
                if let Some(found) = Sequence::find(snapshot, sequence)? {
                    changes.extend(found.drop(sequence));
                    changes.extend(acl::dropped(snapshot, Kind::SequenceAccess, sequence));
                }
            }
            for ty in enums_within(snapshot, &name)? {
                if dependents != Dependents::Drop {
                    let message = format!("schema {name} is not empty: it has {ty}");
                    return Err(SqlError::new(ErrorKind::Semantic, message)
                        .about(&name)
                        .with_hint("write DROP SCHEMA … CASCADE to drop what is in it"));
                }
                changes.push(Change::DropView { name: stored_name(Kind::Type, &ty) });
            }
            changes.extend(owned);
            changes.extend(inner.iter().flat_map(|name| comments::dropped(snapshot, name)));
            let of_relations = |name: &String| acl::dropped(snapshot, Kind::Access, name);
            changes.extend(inner.iter().flat_map(of_relations));
            changes.extend(acl::dropped(snapshot, Kind::SchemaAccess, &name));
            changes.extend(inner.into_iter().map(|name| match snapshot.table(&name) {
                Some(table) => Change::DropTable { expected: Some(table.id()), name },
                None => Change::DropView { name },
            }));
            changes.push(Change::DropView { name: stored_name(Kind::Schema, &name) });
        }
        Ok(self.change("DROP SCHEMA", changes))
    }

    /// A statement that makes these changes.
    pub(crate) fn change(&self, tag: &'static str, changes: Vec<Change>) -> Started {
        let run = self.clone();
        let work = async move {
            if !changes.is_empty() {
                run.commit(changes).await?;
            }
            Ok(None)
        };
        Started::Command { tag, work: work.boxed() }
    }
}

/// The tables and views whose names begin with that of a schema, as the store has them.
fn within<'a>(snapshot: &'a Snapshot, schema: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("{schema}.");
    let views = definitions::views(snapshot).map(|(name, _)| name);
    snapshot.tables().chain(views).filter(move |name| name.starts_with(&start))
}

/// The tables and views of a schema, for DataFusion.
#[derive(Debug)]
pub(crate) struct SchemaTables {
    catalog: StatementCatalog,
    schema: String,
}

impl SchemaTables {
    /// Those of a schema that was made.
    pub(crate) fn find(catalog: &StatementCatalog, schema: &str) -> Option<SchemaTables> {
        let is_made = is_made(catalog.snapshot(), schema);
        is_made.then(|| SchemaTables { catalog: catalog.clone(), schema: schema.to_owned() })
    }

    fn qualified(&self, name: &str) -> String {
        format!("{}.{name}", self.schema)
    }
}

impl SchemaProvider for SchemaTables {
    fn table_names(&self) -> Vec<String> {
        let start = self.schema.len() + 1;
        within(self.catalog.snapshot(), &self.schema).map(|name| name[start..].to_owned()).collect()
    }

    // Written out as `async_trait` would, but for the futures.
    fn table<'a, 'b, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, DfResult<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        async move {
            match self.table_exist(name) {
                true => {
                    let found = self.catalog.table_of(&self.qualified(name)).await;
                    found.map_err(DataFusionError::from)
                }
                false => Ok(None),
            }
        }
        .boxed()
    }

    fn table_exist(&self, name: &str) -> bool {
        let (snapshot, name) = (self.catalog.snapshot(), self.qualified(name));
        snapshot.table(&name).is_some() || snapshot.view(&name).is_some()
    }
}
