//! `SELECT … FOR UPDATE` and `FOR SHARE` of one table: the rows are locked by an UPDATE that leaves them as they are, before they are read.
//!
//! So they are the transaction's own, whatever its isolation: in sessions that wait for rows others wait for them, elsewhere a transaction
//! that changes one of them meanwhile does not go together with this one. A statement outside of transactions holds no lock
//! when it has ended, and takes none.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;

use crate::access::{Need, Rights};
use crate::catalog::relation_name;
use crate::error::{Result, SqlError, internal};
use crate::insert::always;
use crate::parameters::Bindings;
use crate::run::{Run, Started, start};

impl Run {
    /// Locks the rows of a query that says so, and takes the clause from it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NotSupported`] for queries that are not of one table, and for locks that are not waited for; those of UPDATE.
    pub(crate) async fn lock_read_rows(&self, statement: &mut DfStatement) -> Result<()> {
        let DfStatement::Statement(inner) = statement else { return Ok(()) };
        let ast::Statement::Query(query) = &mut **inner else { return Ok(()) };
        let locks = std::mem::take(&mut query.locks);
        if locks.is_empty() || self.transaction.is_none() {
            return Ok(());
        }
        if let Some(lock) = locks.iter().find(|lock| lock.nonblock.is_some()) {
            return Err(SqlError::not_supported(lock.to_string())
                .with_hint("write FOR UPDATE, which waits, or set statement_timeout"));
        }
        let sql = self.update_that_locks(query)?;
        let parameters = Bindings::Positional(Vec::new());
        let update = Run { sql: sql.into(), parameters, kept: None, ..self.clone() };
        match start(&update, 0).await? {
            Started::Command { work, .. } => work.await.map(drop),
            Started::Rows(_) => Err(internal("an UPDATE without RETURNING has rows")),
        }
    }

    /// The UPDATE that leaves the rows as they are of which a query reads some.
    fn update_that_locks(&self, query: &ast::Query) -> Result<String> {
        let other = || {
            SqlError::not_supported("FOR UPDATE in a query that is not of one table")
                .with_hint("write SELECT … FROM table WHERE … FOR UPDATE")
        };
        let ast::SetExpr::Select(select) = &*query.body else { return Err(other()) };
        let has_groups = match &select.group_by {
            ast::GroupByExpr::All(_) => true,
            ast::GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
        };
        let [from] = &select.from[..] else { return Err(other()) };
        let ast::TableFactor::Table { name, alias, args: None, .. } = &from.relation else {
            return Err(other());
        };
        let is_joined = !from.joins.is_empty();
        if is_joined || has_groups || select.distinct.is_some() || query.with.is_some() {
            return Err(other());
        }
        let catalog = self.session.statement_catalog(&self.control, self.economy)?;
        let table = catalog.stored(&relation_name(name)?, Need::Rights(Rights::UPDATE))?;
        let given = always(&catalog, &table)?;
        let columns = table.schema().columns.iter().enumerate();
        let free = columns.filter(|(number, _)| !given.contains(number)).map(|(_, of)| of).next();
        let Some(column) = free else { return Err(other()) };
        let column = ast::Ident::with_quote('"', column.name.replace('"', "\"\""));
        let alias = alias.as_ref().map(|alias| format!(" AS {}", alias.name)).unwrap_or_default();
        let condition = select.selection.as_ref();
        let condition = condition.map(|of| format!(" WHERE {of}")).unwrap_or_default();
        Ok(format!("UPDATE {name}{alias} SET {column} = {column}{condition}"))
    }
}
