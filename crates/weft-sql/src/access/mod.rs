//! Who may do what: roles, what they own, and the rights that GRANT gives them.
//!
//! A session acts for a role, or for none: sessions of programs that have opened the database themselves, and those of a server without
//! roles, may do everything, as superusers may. Of a statement, [`Access`] is what the session's role may do in the statement's snapshot:
//! `catalog.rs` asks it where names of tables, views and files become relations, which all statements pass, and kept plans of
//! statements by key ask it again (`point/basis.rs`). A view is planned with the rights of its owner.
//!
//! `acl.rs` keeps owners, rights and memberships among the definitions, `roles.rs` keeps roles among the options of the store, and has CREATE,
//! ALTER and DROP ROLE, `grants.rs` has GRANT, REVOKE, OWNER TO and SET ROLE, `syntax.rs` parses all of them.
//!
//! **Architecture invariants**
//!
//! - *What a role makes is its own*: each statement that makes a table, view or sequence keeps the role as its owner in the same commit.
//!   What has no owner belongs to [`OWNER`], with whose rights a view would be read.
//! - *A role that there is not has no rights*, but those of PUBLIC: a session outlives its role.

pub(crate) mod acl;
mod grants;
pub(crate) mod rights;
pub(crate) mod roles;
mod syntax;

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_store::{Change, Snapshot};

use crate::definitions::{self, Kind};
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::postgres::OWNER;
use crate::schemas::parts;
use crate::sequences::owns_sequence;
use crate::temporary::is_temporary;
pub(crate) use acl::Acl;
use acl::{PUBLIC, memberships};
pub(crate) use rights::Rights;
use roles::Standing;
pub(crate) use syntax::{AccessStatement, parse};

/// Roles that there are without being made, by what their members may do: read all tables and views, change the rows of all tables,
/// read and write the server's files. PostgreSQL's numbers.
pub(crate) const PREDEFINED: [(&str, i64); 4] =
    [(READ_ALL, 6181), (READ_FILES, 4569), (WRITE_ALL, 6182), (WRITE_FILES, 4570)];

const READ_ALL: &str = "pg_read_all_data";
const WRITE_ALL: &str = "pg_write_all_data";
const READ_FILES: &str = "pg_read_server_files";
const WRITE_FILES: &str = "pg_write_server_files";

/// What a statement does with a table or view, by the right that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It shows what the catalog says of it, as all roles may see it.
    Nothing,
    /// All of these rights.
    Rights(Rights),
    /// It changes what the table is: its owner may.
    Owner,
}

/// What a role may do, in one snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// `None` if everything is permitted, for there is no role.
    role: Option<Arc<Acting>>,
    /// The schema of the session's temporary tables.
    temporary: Option<String>,
    /// The columns of tables are looked at, to insert rows.
    is_to_insert: bool,
}

#[derive(Debug)]
struct Acting {
    name: String,
    standing: Standing,
    /// The role, and all that it is a member of, in turn.
    groups: BTreeSet<String>,
}

impl Access {
    /// What a role may do.
    pub(crate) fn of(snapshot: &Snapshot, role: &str) -> Access {
        let (name, standing) = (role.to_owned(), roles::standing(snapshot, role));
        // Superusers act for all roles.
        let groups = match standing {
            Standing::Superuser => BTreeSet::from([name.clone()]),
            Standing::Former | Standing::Restricted => all_groups(snapshot, role),
        };
        Access { role: Some(Arc::new(Acting { name, standing, groups })), ..Access::default() }
    }

    /// The same in a session whose temporary tables are in this schema.
    pub(crate) fn with_temporary(self, schema: Option<&str>) -> Access {
        Access { temporary: schema.map(str::to_owned), ..self }
    }

    /// The same for a look at the columns of tables that rows are to be inserted into: who may insert has no need to read.
    pub(crate) fn inserting(self) -> Access {
        Access { is_to_insert: true, ..self }
    }

    /// The right that a statement needs on a table or view that it names.
    pub(crate) fn read_rights(&self) -> Rights {
        if self.is_to_insert { Rights::INSERT } else { Rights::SELECT }
    }

    /// The role, if there is one.
    pub(crate) fn role(&self) -> Option<&str> {
        self.role.as_deref().map(|role| role.name.as_str())
    }

    /// What the owner of a view may do.
    pub(crate) fn of_owner(&self, snapshot: &Snapshot, view: &str) -> Access {
        let owner = Acl::of(snapshot, Kind::Access, view).owner;
        Access::of(snapshot, &owner).with_temporary(self.temporary.as_deref())
    }

    /// True of superusers, of no role, and of roles of databases that had no rights of tables, which may do everything but make roles.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.role.as_ref().is_none_or(|role| role.standing != Standing::Restricted)
    }

    /// True of superusers and of no role.
    pub(crate) fn is_superuser(&self) -> bool {
        self.role.as_ref().is_none_or(|role| role.standing == Standing::Superuser)
    }

    /// True if the role is this one, or a member of it.
    pub(crate) fn is_member(&self, group: &str) -> bool {
        self.role
            .as_ref()
            .is_none_or(|role| role.standing == Standing::Superuser || role.groups.contains(group))
    }

    /// True if the role owns, by itself or as a member, what has this list.
    pub(crate) fn owns(&self, acl: &Acl) -> bool {
        self.is_unrestricted() || self.is_member(&acl.owner)
    }

    /// True if the role has all of these rights on a table or view, or on a schema.
    pub(crate) fn has_rights(
        &self,
        snapshot: &Snapshot,
        (kind, name): (Kind, &str),
        rights: Rights,
    ) -> bool {
        let Some(role) = self.role.as_ref().filter(|_| !self.is_unrestricted()) else {
            return true;
        };
        if kind == Kind::Access && is_temporary(name) {
            return self.is_own_temporary(name);
        }
        let acl = Acl::of(snapshot, kind, name);
        if self.owns(&acl) {
            return true;
        }
        let names = role.groups.iter().map(String::as_str).chain([PUBLIC]);
        let mut found = names.fold(Rights::NONE, |all, name| all | acl.rights_of(name));
        if kind == Kind::Access && role.groups.contains(READ_ALL) {
            found = found | Rights::SELECT;
        }
        if kind == Kind::Access && role.groups.contains(WRITE_ALL) {
            found = found | Rights::INSERT | Rights::UPDATE | Rights::DELETE;
        }
        found.has_all(rights)
    }

    fn is_own_temporary(&self, name: &str) -> bool {
        let schema = name.split_once('.').map(|(schema, _)| schema);
        schema.is_some() && schema == self.temporary.as_deref()
    }

    /// Checks that the role may do something with a table or view.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check(&self, snapshot: &Snapshot, name: &str, need: Need) -> Result<()> {
        let is_view = snapshot.table(name).is_none();
        let kind = if is_view { "view" } else { "table" };
        let message = match need {
            Need::Nothing => return Ok(()),
            Need::Rights(rights) => {
                if self.has_rights(snapshot, (Kind::Access, name), rights) {
                    return Ok(());
                }
                format!("permission denied for {kind} {name}")
            }
            Need::Owner => {
                let is_own = match is_temporary(name) {
                    true => self.is_unrestricted() || self.is_own_temporary(name),
                    false => self.owns(&Acl::of(snapshot, Kind::Access, name)),
                };
                if is_own {
                    return Ok(());
                }
                format!("must be owner of {kind} {name}")
            }
        };
        Err(forbidden(message).about(name))
    }

    /// Checks that the role may make something by this name, as the store will have it.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_create(&self, snapshot: &Snapshot, name: &str) -> Result<()> {
        if self.is_unrestricted() || is_temporary(name) && self.is_own_temporary(name) {
            return Ok(());
        }
        let schema = parts(snapshot, name).0;
        match self.has_rights(snapshot, (Kind::SchemaAccess, schema), Rights::CREATE) {
            true => Ok(()),
            false => Err(forbidden(format!("permission denied for schema {schema}")).with_hint(
                format!("a superuser may write GRANT CREATE ON SCHEMA {} TO …", quoted(schema)),
            )),
        }
    }

    /// Checks that the role may make or replace a table or view.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_make(&self, snapshot: &Snapshot, name: &str) -> Result<()> {
        self.check_create(snapshot, name)?;
        match snapshot.table(name).is_some() || snapshot.view(name).is_some() {
            true => self.check(snapshot, name, Need::Owner),
            false => Ok(()),
        }
    }

    /// Checks that the role owns a sequence, or the table whose column owns the sequence.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_sequence(&self, snapshot: &Snapshot, name: &str) -> Result<()> {
        if self.owns(&Acl::of(snapshot, Kind::SequenceAccess, name)) {
            return Ok(());
        }
        let tables = snapshot.tables().filter_map(|table| snapshot.table(table));
        let owning = tables.filter(|table| owns_sequence(snapshot, table, name));
        // The columns of other tables may take values of it, too.
        let are_own: Vec<bool> = owning
            .map(|table| self.check(snapshot, &table.schema().name, Need::Owner).is_ok())
            .collect();
        match !are_own.is_empty() && are_own.iter().all(|is_own| *is_own) {
            true => Ok(()),
            false => Err(forbidden(format!("must be owner of sequence {name}")).about(name)),
        }
    }

    /// Checks that the role may do what concerns the whole database.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_all(&self, what: &str) -> Result<()> {
        match self.is_unrestricted() {
            true => Ok(()),
            false => Err(forbidden(format!("permission denied: only a superuser may {what}"))),
        }
    }

    /// Checks that the role is a superuser.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_superuser(&self, what: &str) -> Result<()> {
        match self.is_superuser() {
            true => Ok(()),
            false => Err(forbidden(format!("permission denied: only a superuser may {what}"))),
        }
    }

    /// Checks that the role may read files and addresses.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_reads_files(&self) -> Result<()> {
        self.check_files(READ_FILES, "read files of the server")
    }

    /// Checks that the role may write files.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_writes_files(&self) -> Result<()> {
        self.check_files(WRITE_FILES, "write files of the server")
    }

    fn check_files(&self, group: &str, what: &str) -> Result<()> {
        match self.is_unrestricted() || self.is_member(group) {
            true => Ok(()),
            false => Err(forbidden(format!(
                "permission denied: only superusers and members of {group} may {what}"
            ))),
        }
    }

    /// The changes that keep the role as the owner of what it makes.
    pub(crate) fn made(&self, snapshot: &Snapshot, kind: Kind, name: &str) -> Vec<Change> {
        Acl::owned_by(self.role().unwrap_or(OWNER)).kept(snapshot, kind, name)
    }
}

/// A role, and all that it is a member of, in turn.
pub(crate) fn all_groups(snapshot: &Snapshot, role: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![role.to_owned()];
    while let Some(next) = open.pop() {
        if !found.contains(&next) {
            open.extend(memberships(snapshot, &next));
            found.insert(next);
        }
    }
    found
}

/// What all lists of owners and rights are about: kind and name.
fn all_lists(snapshot: &Snapshot) -> impl Iterator<Item = (Kind, &str)> {
    let kinds = [Kind::Access, Kind::SchemaAccess, Kind::SequenceAccess];
    kinds
        .into_iter()
        .flat_map(move |kind| definitions::names(snapshot, kind).map(move |name| (kind, name)))
}

/// An action that the role of a session may not take.
pub(crate) fn forbidden(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Forbidden, message)
}
