//! The tables of a locking read: which of them are to be locked, and the names by which the query finds their rows, and reads what is locked.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    self, Ident, JoinOperator, ObjectName, TableAlias, TableFactor, TableWithJoins, With,
};
use weft_store::LockMode;

use crate::catalog::relation_name;
use crate::error::{Result, SqlError};
use crate::statement::fold;

/// A table of a locking read.
pub(super) struct LockedTable {
    /// The table's name.
    pub(super) name: String,
    /// What the query calls it.
    pub(super) alias: Ident,
    pub(super) mode: LockMode,
    /// The name of its rows with their ids.
    pub(super) with_ids: String,
    /// The name of the rows that are locked.
    pub(super) locked: String,
}

/// Gives the tables of FROM other names.
pub(super) struct Names<'a> {
    pub(super) locks: &'a [ast::LockClause],
    /// Common table expressions, of which nothing is locked.
    pub(super) ctes: HashSet<String>,
    /// Tells the names from those of other queries.
    pub(super) number: usize,
    pub(super) tables: Vec<LockedTable>,
}

impl Names<'_> {
    /// Gives the tables of a join names, in `from` those of what is locked of them, and in `finds` those of their rows with ids.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`](crate::error::ErrorKind::NotSupported) for subqueries.
    pub(super) fn of_joins(
        &mut self,
        from: &mut TableWithJoins,
        finds: &mut TableWithJoins,
    ) -> Result<()> {
        self.of_table(&mut from.relation, &mut finds.relation)?;
        for (join, finds) in from.joins.iter_mut().zip(&mut finds.joins) {
            let is_unseen = matches!(
                join.join_operator,
                JoinOperator::Semi(_)
                    | JoinOperator::LeftSemi(_)
                    | JoinOperator::Anti(_)
                    | JoinOperator::LeftAnti(_)
            );
            if !is_unseen {
                self.of_table(&mut join.relation, &mut finds.relation)?;
            }
        }
        Ok(())
    }

    /// How strongly a table that the query calls so is to be locked.
    fn mode_of(&self, alias: Option<&Ident>) -> Option<LockMode> {
        let of_it = self.locks.iter().filter(|lock| match (&lock.of, alias) {
            (None, _) => true,
            (Some(of), Some(alias)) => is_called(alias, of),
            (Some(_), None) => false,
        });
        let modes = of_it.map(|lock| match lock.lock_type {
            ast::LockType::Share => LockMode::Shared,
            ast::LockType::Update => LockMode::Exclusive,
        });
        modes.max()
    }

    fn of_table(&mut self, table: &mut TableFactor, finds: &mut TableFactor) -> Result<()> {
        match (table, finds) {
            (
                TableFactor::Table { name, alias, args: None, .. },
                TableFactor::Table { name: found, alias: found_alias, .. },
            ) => {
                let Some(last) = name.0.last().and_then(|part| part.as_ident()).cloned() else {
                    return Ok(());
                };
                let called = alias.as_ref().map_or(&last, |alias| &alias.name).clone();
                let is_cte = name.0.len() == 1 && self.ctes.contains(&name_of(&last));
                let Some(mode) = self.mode_of(Some(&called)).filter(|_| !is_cte) else {
                    return Ok(());
                };
                if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
                    return Err(SqlError::not_supported(
                        "FOR UPDATE of a table with other names for its columns",
                    ));
                }
                let stored = relation_name(name)?;
                let number = format!("{} of query {}", self.tables.len() + 1, self.number);
                let with_ids = format!("rows with ids of {stored}, {number}");
                let locked = format!("locked rows of {stored}, {number}");
                let named = |name: &str| ObjectName::from(vec![Ident::with_quote('"', name)]);
                (*name, *found) = (named(&locked), named(&with_ids));
                if alias.is_none() {
                    let (columns, explicit) = (Vec::new(), true);
                    *alias = Some(TableAlias { explicit, name: last, columns, at: None });
                    found_alias.clone_from(alias);
                }
                let name = stored;
                self.tables.push(LockedTable { name, alias: called, mode, with_ids, locked });
                Ok(())
            }
            (TableFactor::Derived { alias, .. }, _)
                if self.mode_of(alias.as_ref().map(|alias| &alias.name)).is_some() =>
            {
                Err(SqlError::not_supported("FOR UPDATE of a subquery in FROM")
                    .with_hint("write FOR UPDATE in the subquery, or FOR UPDATE OF table"))
            }
            (
                TableFactor::NestedJoin { table_with_joins, .. },
                TableFactor::NestedJoin { table_with_joins: finds, .. },
            ) => self.of_joins(table_with_joins, finds),
            _ => Ok(()),
        }
    }
}

/// The names of common table expressions.
pub(super) fn names_of(with: Option<&With>) -> HashSet<String> {
    let tables = with.into_iter().flat_map(|with| &with.cte_tables);
    tables.map(|cte| name_of(&cte.alias.name)).collect()
}

/// A name as it is compared.
pub(super) fn name_of(ident: &Ident) -> String {
    fold(ident.value.clone(), ident.quote_style)
}

/// Whether OF means the table of this name in the query.
pub(super) fn is_called(alias: &Ident, of: &ObjectName) -> bool {
    let last = of.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|last| name_of(last) == name_of(alias))
}
