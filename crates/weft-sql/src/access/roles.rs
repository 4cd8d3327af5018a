//! Roles: the users of a server, and groups of them, by their names. What is kept of a role, its standing and the verifier of its password, lies
//! among the options that the store keeps for good.

use weft_store::{Change, Snapshot};

use crate::access::acl::{self, memberships, set_memberships};
use crate::access::{Access, Acl, PREDEFINED, all_lists, forbidden};
use crate::catalog::StatementCatalog;
use crate::definitions::{self, Kind};
use crate::engine::Engine;
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::postgres::{OWNER, ROLE_OPTION};
use crate::run::{Run, Started};

/// What verifiers of passwords begin with.
const VERIFIER: &str = "SCRAM-SHA-256$";

/// How much a role may do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Everything.
    Superuser,
    /// Everything but what concerns roles: it was made before roles had rights, when all of them could read and write everything.
    Former,
    /// What it owns, and what it has been granted.
    Restricted,
}

/// What is in front of the verifier of a role of a standing.
const STANDINGS: [(Standing, &str); 3] = [
    (Standing::Superuser, "superuser "),
    (Standing::Restricted, "restricted "),
    (Standing::Former, ""),
];

/// A role as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// How much it may do.
    pub standing: Standing,
    /// The SCRAM verifier of its password, in PostgreSQL's form; a role without one cannot log in.
    pub verifier: Option<String>,
}

impl Role {
    fn of_kept(kept: &str) -> Role {
        let found = STANDINGS
            .iter()
            .find_map(|(standing, word)| Some((*standing, kept.strip_prefix(word)?)));
        let (standing, verifier) = found.unwrap_or((Standing::Restricted, ""));
        Role { standing, verifier: (!verifier.is_empty()).then(|| verifier.to_owned()) }
    }

    fn kept(&self) -> String {
        let word = STANDINGS.iter().find(|(standing, _)| *standing == self.standing);
        let word = word.map_or("", |(_, word)| word);
        format!("{word}{}", self.verifier.as_deref().unwrap_or_default())
    }

    /// The role of a name in a snapshot.
    pub(crate) fn find(snapshot: &Snapshot, name: &str) -> Option<Role> {
        let kept = snapshot.option(&format!("{ROLE_OPTION}{name}"))?;
        let role = Role::of_kept(kept);
        Some(match name {
            OWNER => Role { standing: Standing::Superuser, ..role },
            _ => role,
        })
    }
}

/// How much the role of a name may do by itself. One that there is not may do nothing.
pub(crate) fn standing(snapshot: &Snapshot, name: &str) -> Standing {
    match Role::find(snapshot, name) {
        Some(role) => role.standing,
        None if name == OWNER => Standing::Superuser,
        None => Standing::Restricted,
    }
}

/// True if there is a role of this name, made or not.
pub(crate) fn exists(snapshot: &Snapshot, name: &str) -> bool {
    name == OWNER || is_predefined(name) || Role::find(snapshot, name).is_some()
}

/// True of the name of a role that there is without being made.
pub(crate) fn is_predefined(name: &str) -> bool {
    PREDEFINED.iter().any(|(known, _)| *known == name)
}

/// There is no role of this name.
pub(crate) fn unknown_role(name: &str) -> SqlError {
    let message = format!("role {} does not exist", quoted(name));
    SqlError::new(ErrorKind::Semantic, message).about(name)
}

impl Engine {
    /// The role of this name; `None` if there is no such role.
    pub fn role(&self, name: &str) -> Option<Role> {
        Role::find(&self.store().snapshot(), name)
    }

    /// True if there is a role.
    pub fn has_roles(&self) -> bool {
        self.store().snapshot().options().any(|(name, _)| name.starts_with(ROLE_OPTION))
    }

    /// True if there is a role that can log in: it has a password.
    pub fn has_logins(&self) -> bool {
        let snapshot = self.store().snapshot();
        snapshot.options().any(|(name, kept)| {
            name.starts_with(ROLE_OPTION) && Role::of_kept(kept).verifier.is_some()
        })
    }

    /// Has passwords in statements become verifiers by this function, which returns verifiers as they are.
    pub fn make_verifiers_by(&self, make: fn(&str) -> String) {
        self.verifiers.get_or_init(|| make);
    }

    /// The verifier of a password.
    fn verifier(&self, password: &str) -> Result<String> {
        match self.verifiers.get() {
            Some(make) => Ok(make(password)),
            None if password.starts_with(VERIFIER) => Ok(password.to_owned()),
            None => Err(SqlError::not_supported("PASSWORD 'text' in a program without a server")
                .with_hint(format!("give the verifier of the password, {VERIFIER}…, or set it in the shell or by a client of the server"))),
        }
    }
}

/// CREATE, ALTER or DROP ROLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleStatement {
    pub(crate) action: Action,
    pub(crate) names: Vec<String>,
    /// The new password, or that there is none any more.
    pub(crate) password: Option<Option<String>>,
    pub(crate) superuser: Option<bool>,
}

/// What becomes of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Alter,
    Drop { if_exists: bool },
}

impl RoleStatement {
    fn tag(&self) -> &'static str {
        match self.action {
            Action::Create => "CREATE ROLE",
            Action::Alter => "ALTER ROLE",
            Action::Drop { .. } => "DROP ROLE",
        }
    }
}

impl Run {
    /// CREATE, ALTER and DROP ROLE.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if the session's role may not; [`ErrorKind::AlreadyExists`] and [`ErrorKind::Semantic`].
    pub(crate) fn change_roles(
        &self,
        catalog: &StatementCatalog,
        statement: &RoleStatement,
    ) -> Result<Started> {
        let (snapshot, access) = (catalog.snapshot(), catalog.access());
        let mut changes = Vec::new();
        for name in &statement.names {
            // Users may change their own passwords.
            let is_own = statement.action == Action::Alter
                && access.role() == Some(name)
                && statement.superuser.is_none();
            if !is_own {
                access.check_superuser("make, change and drop roles")?;
            }
            match statement.action {
                Action::Create => changes.push(self.created_role(snapshot, name, statement)?),
                Action::Alter => changes.push(self.altered_role(snapshot, name, statement)?),
                Action::Drop { if_exists } => {
                    if Role::find(snapshot, name).is_none() {
                        match if_exists {
                            true => continue,
                            false => return Err(unknown_role(name)),
                        }
                    }
                    self.check_unused(access, name)?;
                    changes.extend(dropped_role(snapshot, name)?);
                }
            }
        }
        Ok(self.change(statement.tag(), changes))
    }

    fn created_role(
        &self,
        snapshot: &Snapshot,
        name: &str,
        statement: &RoleStatement,
    ) -> Result<Change> {
        if Role::find(snapshot, name).is_some() {
            let message = format!("role {} already exists", quoted(name));
            return Err(SqlError::new(ErrorKind::AlreadyExists, message).about(name));
        }
        if name.is_empty() || name.starts_with("pg_") || matches!(name, "public" | "none") {
            let message = format!("role name {} is reserved", quoted(name));
            return Err(SqlError::new(ErrorKind::Semantic, message).about(name));
        }
        let role = Role { standing: Standing::Restricted, verifier: None };
        self.changed_role(name, role, statement)
    }

    fn altered_role(
        &self,
        snapshot: &Snapshot,
        name: &str,
        statement: &RoleStatement,
    ) -> Result<Change> {
        // The owner of everything is there before it has a password.
        let owner =
            (name == OWNER).then_some(Role { standing: Standing::Superuser, verifier: None });
        let role = Role::find(snapshot, name).or(owner).ok_or_else(|| unknown_role(name))?;
        self.changed_role(name, role, statement)
    }

    fn changed_role(&self, name: &str, role: Role, statement: &RoleStatement) -> Result<Change> {
        let standing = match statement.superuser {
            Some(false) if name == OWNER => {
                let message = format!("role {} owns the database: it is a superuser", quoted(name));
                return Err(SqlError::new(ErrorKind::Semantic, message).about(name));
            }
            _ if name == OWNER => Standing::Superuser,
            Some(true) => Standing::Superuser,
            Some(false) => Standing::Restricted,
            None => role.standing,
        };
        let verifier = match &statement.password {
            None => role.verifier,
            Some(None) => None,
            Some(Some(password)) => Some(self.session.engine().verifier(password)?),
        };
        let kept = Role { standing, verifier }.kept();
        Ok(Change::SetOption { name: format!("{ROLE_OPTION}{name}"), value: Some(kept) })
    }

    /// Checks that the session does not go on as a role that is dropped.
    fn check_unused(&self, access: &Access, name: &str) -> Result<()> {
        let is_used = access.role() == Some(name) || self.session.login().as_deref() == Some(name);
        match is_used {
            true => {
                let message = format!("the session's own role {} cannot be dropped", quoted(name));
                Err(SqlError::new(ErrorKind::Semantic, message).about(name))
            }
            false => Ok(()),
        }
    }
}

/// The changes that drop a role, what it has been granted, and its memberships.
///
/// # Errors
/// [`ErrorKind::Semantic`] if it owns something.
fn dropped_role(snapshot: &Snapshot, name: &str) -> Result<Vec<Change>> {
    let mut changes = vec![Change::SetOption { name: format!("{ROLE_OPTION}{name}"), value: None }];
    for (kind, of) in all_lists(snapshot) {
        let mut acl = Acl::of(snapshot, kind, of);
        if acl.owner == name {
            let message = format!("role {} cannot be dropped: it owns {of}", quoted(name));
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .about(name)
                .with_hint("write ALTER TABLE … OWNER TO another role, or drop what it owns"));
        }
        if acl.granted.remove(name).is_some() {
            changes.extend(acl.kept(snapshot, kind, of));
        }
    }
    changes.extend(acl::dropped(snapshot, Kind::Membership, name));
    for member in definitions::names(snapshot, Kind::Membership).filter(|member| *member != name) {
        let mut groups = memberships(snapshot, member);
        if groups.iter().any(|group| group == name) {
            groups.retain(|group| group != name);
            changes.extend(set_memberships(snapshot, member, &groups));
        }
    }
    Ok(changes)
}

/// Checks that a session may act for a role.
///
/// # Errors
/// [`ErrorKind::Forbidden`], or [`ErrorKind::Semantic`] if there is no such role.
pub(crate) fn check_set_role(snapshot: &Snapshot, login: Option<&str>, role: &str) -> Result<()> {
    if !exists(snapshot, role) {
        return Err(unknown_role(role));
    }
    match login.is_none_or(|login| Access::of(snapshot, login).is_member(role)) {
        true => Ok(()),
        false => Err(forbidden(format!("permission denied to set role {}", quoted(role)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_come_back() {
        for standing in [Standing::Superuser, Standing::Restricted, Standing::Former] {
            for verifier in [None, Some("SCRAM-SHA-256$4096:a$b:c".to_owned())] {
                let role = Role { standing, verifier };
                assert_eq!(Role::of_kept(&role.kept()), role);
            }
        }
        // As databases had them whose roles had no rights of their own.
        assert_eq!(Role::of_kept("").standing, Standing::Former);
        assert_eq!(Role::of_kept("SCRAM-SHA-256$1").standing, Standing::Former);
        assert_eq!(Role::of_kept("superuser SCRAM-SHA-256$1").standing, Standing::Superuser);
    }
}
