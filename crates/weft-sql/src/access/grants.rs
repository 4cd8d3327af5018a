//! GRANT and REVOKE, OWNER TO, and SET ROLE.

use std::sync::Arc;

use futures::FutureExt;
use weft_store::{Change, Snapshot};

use crate::access::acl::{PUBLIC, memberships, set_memberships};
use crate::access::roles::{check_set_role, exists, is_predefined, unknown_role};
use crate::access::syntax::{GrantStatement, On};
use crate::access::{AccessStatement, Acl, Need, all_groups};
use crate::catalog::{SCHEMA, StatementCatalog, relation_name};
use crate::definitions::{self, Kind};
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::run::{Run, Started};
use crate::schemas::{is_made, parts};

impl Run {
    /// A statement about roles and rights.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if the session's role may not; [`ErrorKind::Semantic`] for what there is not.
    pub(crate) fn start_access(
        &self,
        catalog: &StatementCatalog,
        statement: AccessStatement,
    ) -> Result<Started> {
        match statement {
            AccessStatement::Role(statement) => self.change_roles(catalog, &statement),
            AccessStatement::Grant(grant) => self.grant(catalog, &grant),
            AccessStatement::Membership { gives, groups, members } => {
                catalog.access().check_superuser("give roles to roles")?;
                let changes = changed_members(catalog.snapshot(), gives, &groups, &members)?;
                Ok(self.change(if gives { "GRANT ROLE" } else { "REVOKE ROLE" }, changes))
            }
            AccessStatement::Owner { relation, if_exists, role } => {
                let name = relation_name(&relation)?;
                let snapshot = catalog.snapshot();
                let is_view = snapshot.table(&name).is_none();
                let tag = if is_view { "ALTER VIEW" } else { "ALTER TABLE" };
                if is_view && snapshot.view(&name).is_none() {
                    return match if_exists {
                        true => Ok(self.change(tag, Vec::new())),
                        false => Err(catalog.unknown(&name)),
                    };
                }
                let access = catalog.access();
                access.check(snapshot, &name, Need::Owner)?;
                if !exists(snapshot, &role) || is_predefined(&role) {
                    return Err(unknown_role(&role));
                }
                // A view is read with the rights of its owner: who gives it away has to be that role, too.
                check_set_role(
                    snapshot,
                    access.role().filter(|_| !access.is_unrestricted()),
                    &role,
                )?;
                let acl = Acl { owner: role, ..Acl::of(snapshot, Kind::Access, &name) };
                Ok(self.change(tag, acl.kept(snapshot, Kind::Access, &name)))
            }
            AccessStatement::SetRole(role) => {
                if let Some(role) = &role {
                    check_set_role(catalog.snapshot(), self.session.login().as_deref(), role)?;
                }
                let tag = if role.is_some() { "SET" } else { "RESET" };
                let session = Arc::clone(&self.session);
                let work = async move {
                    session.act_for(role);
                    Ok(None)
                };
                Ok(Started::Command { tag, work: work.boxed() })
            }
        }
    }

    fn grant(&self, catalog: &StatementCatalog, grant: &GrantStatement) -> Result<Started> {
        let (snapshot, access) = (catalog.snapshot(), catalog.access());
        for role in grant.roles.iter().filter(|role| *role != PUBLIC) {
            if !exists(snapshot, role) {
                return Err(unknown_role(role));
            }
        }
        let mut on: Vec<(Kind, String)> = Vec::new();
        match &grant.on {
            On::Relations(relations) => {
                for relation in relations {
                    let name = relation_name(relation)?;
                    if snapshot.table(&name).is_none() && snapshot.view(&name).is_none() {
                        return Err(catalog.unknown(&name));
                    }
                    access.check(snapshot, &name, Need::Owner)?;
                    on.push((Kind::Access, name));
                }
            }
            On::AllInSchemas(schemas) => {
                for schema in schemas {
                    check_schema(snapshot, schema)?;
                    for name in relations_in(snapshot, schema) {
                        access.check(snapshot, name, Need::Owner)?;
                        on.push((Kind::Access, name.to_owned()));
                    }
                }
            }
            On::Schemas(schemas) => {
                access.check_all("give rights on schemas")?;
                for schema in schemas {
                    check_schema(snapshot, schema)?;
                    on.push((Kind::SchemaAccess, schema.clone()));
                }
            }
        }
        let mut changes = Vec::new();
        for (kind, name) in &on {
            let mut acl = Acl::of(snapshot, *kind, name);
            let before = acl.clone();
            for role in &grant.roles {
                acl.change(role, grant.rights, grant.gives);
            }
            if acl != before {
                changes.extend(acl.kept(snapshot, *kind, name));
            }
        }
        Ok(self.change(if grant.gives { "GRANT" } else { "REVOKE" }, changes))
    }
}

/// The tables and views of a schema.
fn relations_in<'a>(snapshot: &'a Snapshot, schema: &str) -> Vec<&'a str> {
    let views = definitions::lasting_views(snapshot).map(|(name, _)| name);
    let all = definitions::lasting_tables(snapshot).chain(views);
    all.filter(|name| parts(snapshot, name).0 == schema).collect()
}

fn check_schema(snapshot: &Snapshot, schema: &str) -> Result<()> {
    match schema == SCHEMA || is_made(snapshot, schema) {
        true => Ok(()),
        false => {
            let message = format!("schema {schema} does not exist");
            Err(SqlError::new(ErrorKind::Semantic, message).about(schema))
        }
    }
}

/// The changes that make roles members of groups, or members no more.
fn changed_members(
    snapshot: &Snapshot,
    gives: bool,
    groups: &[String],
    members: &[String],
) -> Result<Vec<Change>> {
    for role in groups.iter().chain(members) {
        if !exists(snapshot, role) {
            return Err(unknown_role(role));
        }
    }
    let mut changes = Vec::new();
    for member in members {
        let mut all = memberships(snapshot, member);
        for group in groups {
            if gives && all_groups(snapshot, group).contains(member) {
                let (group, member) = (quoted(group), quoted(member));
                let message = format!("role {group} is a member of role {member}");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .with_hint("roles cannot be members of each other"));
            }
            all.retain(|known| known != group);
            if gives {
                all.push(group.clone());
            }
        }
        changes.extend(set_memberships(snapshot, member, &all));
    }
    Ok(changes)
}
