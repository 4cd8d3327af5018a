//! Other names for tables, views and indexes.

use datafusion::sql::sqlparser::ast::{
    AlterIndexOperation, DropBehavior, ObjectName, RenameTableNameKind,
};
use futures::FutureExt;
use weft_store::{Change, Snapshot};

use super::target::Target;
use crate::access::{Need, acl};
use crate::catalog::{SCHEMA, StatementCatalog, relation_name};
use crate::comments;
use crate::dependents::dependents;
use crate::error::{ErrorKind, Result, SqlError};
use crate::run::{Run, Started};
use crate::schemas::{check_place, parts};

impl Target<'_> {
    /// Whether an operation lets go what needs what goes.
    pub(super) fn cascade(&mut self, behavior: Option<&DropBehavior>) -> bool {
        let is_cascading = matches!(behavior, Some(DropBehavior::Cascade));
        self.is_cascading |= is_cascading;
        is_cascading
    }

    /// RENAME TO.
    pub(super) fn rename_table(&mut self, to: &RenameTableNameKind) -> Result<()> {
        let (RenameTableNameKind::As(to) | RenameTableNameKind::To(to)) = to;
        let to = new_name(self.catalog.snapshot(), self.name(), to)?;
        check_unneeded(self.catalog.snapshot(), "table", self.name())?;
        if to != self.name() {
            self.renamed = Some(to);
        }
        Ok(())
    }
}

/// The new name of a table or view: within the same schema, if it names none.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if something has it.
fn new_name(snapshot: &Snapshot, from: &str, to: &ObjectName) -> Result<String> {
    let mut name = relation_name(to)?;
    let schema = parts(snapshot, from).0;
    if to.0.len() == 1 && schema != SCHEMA {
        name = format!("{schema}.{name}");
    } else {
        check_place(snapshot, to, &name)?;
    }
    let there = match (snapshot.table(&name), snapshot.view(&name)) {
        _ if name == from => return Ok(name),
        (Some(_), _) => "table",
        (None, Some(_)) => "view",
        (None, None) => return Ok(name),
    };
    let message = format!("{there} {name} exists already");
    Err(SqlError::new(ErrorKind::AlreadyExists, message).about(name))
}

/// Checks that no view needs what gets another name.
fn check_unneeded(snapshot: &Snapshot, what: &str, name: &str) -> Result<()> {
    let views = dependents(snapshot, name);
    if views.is_empty() {
        return Ok(());
    }
    let message = format!("{what} {name} is needed by these views: {}", views.join(", "));
    Err(SqlError::new(ErrorKind::Semantic, message)
        .about(name)
        .with_hint("drop them first, and make them again of the new name"))
}

impl Run {
    /// ALTER VIEW … RENAME TO.
    pub(crate) fn rename_view(
        &self,
        catalog: &StatementCatalog,
        (name, to): (&ObjectName, &ObjectName),
        if_exists: bool,
    ) -> Result<Started> {
        let tag = "ALTER VIEW";
        let name = relation_name(name)?;
        let snapshot = catalog.snapshot();
        let Some(sql) = snapshot.view(&name) else {
            if snapshot.table(&name).is_some() {
                let message = format!("{name} is a table, not a view");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .about(&name)
                    .with_hint(format!("write ALTER TABLE {name} RENAME TO …")));
            }
            if if_exists {
                return Ok(Started::Command { tag, work: async { Ok(None) }.boxed() });
            }
            let message = format!("view {name} does not exist");
            return Err(SqlError::new(ErrorKind::Semantic, message).about(name));
        };
        catalog.access().check(snapshot, &name, Need::Owner)?;
        let to = new_name(snapshot, &name, to)?;
        check_unneeded(snapshot, "view", &name)?;
        let view = Change::CreateView { name: to.clone(), sql: sql.to_owned(), or_replace: false };
        let changes = match to == name {
            true => Vec::new(),
            false => {
                catalog.access().check_create(snapshot, &to)?;
                let mut changes = comments::renamed(snapshot, &name, &to);
                changes.extend(acl::renamed(snapshot, &name, &to));
                changes.extend([Change::DropView { name }, view]);
                changes
            }
        };
        let run = self.clone();
        let work = async move {
            if !changes.is_empty() {
                run.commit(changes).await?;
            }
            Ok(None)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// ALTER INDEX … RENAME TO.
    pub(crate) fn alter_index(
        &self,
        catalog: &StatementCatalog,
        name: &ObjectName,
        operation: &AlterIndexOperation,
    ) -> Result<Started> {
        let AlterIndexOperation::RenameIndex { index_name } = operation;
        let (from, to) = (relation_name(name)?, relation_name(index_name)?);
        let snapshot = catalog.snapshot();
        let Some(table) = snapshot.table_of_index(&from) else {
            let message = format!("index {from} does not exist");
            return Err(SqlError::new(ErrorKind::Semantic, message).about(from));
        };
        catalog.access().check(snapshot, table, Need::Owner)?;
        if snapshot.table_of_index(&to).is_some() {
            let message = format!("index {to} exists already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message).about(to));
        }
        let change = Change::RenameConstraint { table: table.to_owned(), from, to };
        let run = self.clone();
        let work = async move { run.commit(vec![change]).await.map(|()| None) };
        Ok(Started::Command { tag: "ALTER INDEX", work: work.boxed() })
    }
}
