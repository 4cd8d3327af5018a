//! Temporary tables and views: those of one session, which are gone at its end.
//!
//! Temporary tables lie in the store as other tables do, in a schema of the session's own, `weft_temp_7`, which no statement makes. Names in the session's
//! statements lead there first ([`TemporaryNames`]): a temporary table hides another one of its name. Lists of tables leave them
//! out. The session drops them when it ends, and the database those of sessions that did not come to that when it is opened.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    CommentObject, Ident, ObjectName, ObjectNamePart, ObjectType, OnCommit, Query, Statement,
    TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use weft_store::{Change, Snapshot, Store};

use crate::access::AccessStatement;
use crate::definitions::{MARK, named};
use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::{Parsed, fold, inner_statement};

/// What the names of sessions' schemas begin with; a number follows.
const PREFIX: &str = "weft_temp_";

/// The name by which statements call the session's schema.
const OWN: [&str; 2] = ["temp", "pg_temp"];

/// The schema of the session with this number.
pub(crate) fn schema_of(session: u64) -> String {
    format!("{PREFIX}{session}")
}

/// True of the name of a session's schema.
pub(crate) fn is_schema(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// True of the name of a temporary table or view, as the store has it.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.split_once('.').is_some_and(|(schema, _)| is_schema(schema))
}

/// True of a text that may make something temporary: it has the word.
pub(crate) fn creates_temporary(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    sql.contains("create") && sql.contains("temp")
}

/// The changes that drop everything temporary whose schema is asked for.
pub(crate) fn drop_all(snapshot: &Snapshot, is_asked: impl Fn(&str) -> bool) -> Vec<Change> {
    let is_dropped = |name: &str| {
        is_temporary(name) && name.split_once('.').is_some_and(|(schema, _)| is_asked(schema))
    };
    let mut changes = Vec::new();
    let names = snapshot.tables().filter(|name| is_dropped(name));
    let tables: Vec<_> = names.filter_map(|name| snapshot.table(name)).collect();
    // What refers to each other goes at once.
    for table in &tables {
        let name = &table.schema().name;
        let keys = table.constraints().foreign_keys.iter();
        changes.extend(
            keys.map(|key| Change::DropConstraint { table: name.clone(), name: key.name.clone() }),
        );
    }
    for table in &tables {
        changes.push(Change::DropTable { name: table.schema().name.clone(), expected: None });
    }
    // Sequences and comments lie among the views, each behind a word for what it is.
    let plain = |name: &str| match name.strip_prefix(MARK) {
        Some(marked) => named(marked).is_some_and(&is_dropped),
        None => is_dropped(name),
    };
    let views = snapshot.views().filter(|(name, _)| plain(name));
    changes.extend(views.map(|(name, _)| Change::DropView { name: name.to_owned() }));
    changes
}

/// Drops what sessions have left that did not end as they should.
///
/// # Errors
/// Those of the store.
pub(crate) fn drop_left_over(store: &Store) -> Result<()> {
    let changes = drop_all(&store.snapshot(), |_| true);
    if !changes.is_empty() {
        store.commit_blocking(changes)?;
    }
    Ok(())
}

/// Where the names of a session's statements lead.
pub(crate) struct TemporaryNames<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The session's schema.
    pub(crate) schema: &'a str,
}

impl TemporaryNames<'_> {
    /// Has the names of a statement lead to the session's tables and views.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for kinds of temporary tables that there are not, [`ErrorKind::Semantic`] for a view that stays and
    /// needs what goes.
    pub(crate) fn resolve(&self, parsed: &mut Parsed) -> Result<()> {
        match parsed {
            Parsed::Sql(statement) => self.statement(statement),
            Parsed::CopyFrom { table, .. }
            | Parsed::DescribeTable { table }
            | Parsed::TableInfo { table }
            | Parsed::RenameView { name: table, .. }
            | Parsed::Reindex { name: table, is_table: true }
            | Parsed::CheckTables { table: Some(table) }
            | Parsed::ShowIndexes { table: Some(table) } => {
                self.name(table);
                Ok(())
            }
            Parsed::Vacuum { tables } => {
                for table in tables {
                    self.name(table);
                }
                Ok(())
            }
            Parsed::CopyTo { query, .. }
            | Parsed::DescribeQuery { query }
            | Parsed::Summarize { query }
            | Parsed::SetVariable { query, .. } => {
                self.names_within(query.as_mut());
                Ok(())
            }
            Parsed::Access(statement) => {
                match statement.as_mut() {
                    AccessStatement::Owner { relation, .. } => drop(self.name(relation)),
                    AccessStatement::Grant(grant) => {
                        for relation in grant.relations() {
                            self.name(relation);
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn statement(&self, statement: &mut DfStatement) -> Result<()> {
        let Some(statement) = inner_statement(statement) else { return Ok(()) };
        match statement {
            Statement::CreateTable(create) => {
                let (name, is_temporary) = (create.name.clone(), create.temporary);
                self.names_within(create);
                create.name = self.made(name, is_temporary);
                create.temporary = false;
                match &create.on_commit {
                    None | Some(OnCommit::PreserveRows) => Ok(()),
                    Some(_) => Err(SqlError::not_supported("ON COMMIT DELETE ROWS or DROP")
                        .with_hint("drop the table when it has served: DROP TABLE t")),
                }
            }
            Statement::CreateView(create) => {
                let (name, is_temporary) = (create.name.clone(), create.temporary);
                let needed = self.names_within(create.query.as_mut());
                if let Some(needed) = needed.filter(|_| !is_temporary) {
                    let message =
                        format!("a view that stays cannot need {needed}, which is temporary");
                    return Err(SqlError::new(ErrorKind::Semantic, message)
                        .with_hint("write CREATE TEMP VIEW"));
                }
                create.name = self.made(name, is_temporary);
                create.temporary = false;
                Ok(())
            }
            Statement::Drop { object_type, names, temporary, .. } => {
                *temporary = false;
                if matches!(object_type, ObjectType::Table | ObjectType::View) {
                    for name in names {
                        self.name(name);
                    }
                }
                Ok(())
            }
            Statement::Comment {
                object_type: CommentObject::Table | CommentObject::View,
                object_name,
                ..
            } => {
                self.name(object_name);
                Ok(())
            }
            Statement::ShowCreate { obj_name, .. } => {
                self.name(obj_name);
                Ok(())
            }
            other => {
                self.names_within(other);
                Ok(())
            }
        }
    }

    /// The name of what is made.
    fn made(&self, name: ObjectName, is_temporary: bool) -> ObjectName {
        match (name.0.as_slice(), is_temporary) {
            ([ObjectNamePart::Identifier(last)], true) => self.within(last),
            ([schema, ObjectNamePart::Identifier(last)], _) if is_own(schema) => self.within(last),
            _ => name,
        }
    }

    /// A name in the session's schema.
    fn within(&self, last: &Ident) -> ObjectName {
        ObjectName::from(vec![Ident::with_quote('"', self.schema), last.clone()])
    }

    /// Has a name lead to what is temporary, if there is something of it. Tells whether it does.
    fn name(&self, name: &mut ObjectName) -> bool {
        let last = match name.0.as_slice() {
            [ObjectNamePart::Identifier(last)] => last,
            [schema, ObjectNamePart::Identifier(last)] if is_own(schema) => last,
            _ => return false,
        };
        let stored = format!("{}.{}", self.schema, fold(last.value.clone(), last.quote_style));
        let is_there =
            self.snapshot.table(&stored).is_some() || self.snapshot.view(&stored).is_some();
        if is_there || name.0.len() == 2 {
            *name = self.within(&last.clone());
        }
        is_there
    }

    /// Has the names in a statement or query lead to what is temporary. Returns one that does.
    fn names_within<T: Visit + VisitMut>(&self, of: &mut T) -> Option<String> {
        let mut own = OwnNames::default();
        // The visitors never break.
        let _ = Visit::visit(of, &mut own);
        let mut names = Names { scope: self, own: own.names, found: None };
        let _ = VisitMut::visit(of, &mut names);
        names.found
    }
}

/// True of the schema that `temp.t` names.
fn is_own(schema: &ObjectNamePart) -> bool {
    schema.as_ident().is_some_and(|schema| {
        OWN.contains(&fold(schema.value.clone(), schema.quote_style).as_str())
    })
}

/// The names that a statement gives to queries of its own.
#[derive(Default)]
struct OwnNames {
    names: HashSet<String>,
}

impl Visitor for OwnNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.names.extend(tables.map(|table| {
            let name = &table.alias.name;
            fold(name.value.clone(), name.quote_style)
        }));
        ControlFlow::Continue(())
    }
}

struct Names<'a> {
    scope: &'a TemporaryNames<'a>,
    /// Names of queries of the statement's own.
    own: HashSet<String>,
    found: Option<String>,
}

impl Names<'_> {
    fn lead(&mut self, name: &mut ObjectName) -> bool {
        let is_own = match name.0.as_slice() {
            [ObjectNamePart::Identifier(last)] => {
                self.own.contains(&fold(last.value.clone(), last.quote_style))
            }
            _ => false,
        };
        let written = name.to_string();
        let leads = !is_own && self.scope.name(name);
        if leads {
            self.found.get_or_insert(written);
        }
        leads
    }
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        self.lead(relation);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = table {
            let last = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
            if self.lead(name)
                && let Some(last) = last
            {
                // Columns go by the name that the statement has.
                alias.get_or_insert_with(|| TableAlias {
                    explicit: true,
                    name: last,
                    columns: Vec::new(),
                    at: None,
                });
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_of_sessions_are_known_by_their_names() {
        assert!(is_schema(&schema_of(12)) && is_temporary("weft_temp_3.t"));
        assert!(
            !is_schema("weft_temp_") && !is_schema("weft_temp_a") && !is_temporary("weft_temp_3")
        );
        assert!(!is_temporary("s.weft_temp_3"));
    }
}
