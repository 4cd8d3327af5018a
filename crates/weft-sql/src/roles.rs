//! Roles: the users of a server, by their names, with what is kept of their passwords. They lie among the options that the
//! store keeps for good.

use weft_store::Change;

use crate::engine::Engine;
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::postgres::{OWNER, ROLE_OPTION};

impl Engine {
    /// What is kept of the password of a role; `None` if there is no such role.
    pub fn role(&self, name: &str) -> Option<String> {
        let snapshot = self.store().snapshot();
        snapshot.option(&format!("{ROLE_OPTION}{name}")).map(str::to_owned)
    }

    /// True if there is a role.
    pub fn has_roles(&self) -> bool {
        self.store().snapshot().options().any(|(name, _)| name.starts_with(ROLE_OPTION))
    }

    /// Makes a role, changes it, or removes it where nothing is to be kept. It is durable afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] and [`ErrorKind::Semantic`] if the role is there or is not, against `is_new`;
    /// [`ErrorKind::Storage`] if it cannot be stored.
    pub async fn set_role(&self, name: &str, kept: Option<String>, is_new: bool) -> Result<()> {
        let has_password = self.role(name).is_some();
        if is_new && has_password {
            let message = format!("role {} already exists", quoted(name));
            return Err(SqlError::new(ErrorKind::AlreadyExists, message));
        }
        // The owner of everything is there before it has a password.
        let may_get_password = name == OWNER && kept.is_some();
        if !is_new && !has_password && !may_get_password {
            let message = format!("role {} does not exist", quoted(name));
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        let change = Change::SetOption { name: format!("{ROLE_OPTION}{name}"), value: kept };
        self.store().commit(vec![change]).await?;
        Ok(())
    }
}
