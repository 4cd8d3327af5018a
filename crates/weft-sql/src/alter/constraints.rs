//! Constraints that go, or get other names.

use weft_store::{Change, ForeignKey, IndexDefinition};

use super::target::Target;
use crate::error::{ErrorKind, Result, SqlError};

impl Target<'_> {
    /// DROP CONSTRAINT.
    pub(super) fn drop_constraint(
        &mut self,
        name: &str,
        if_exists: bool,
        is_cascading: bool,
    ) -> Result<()> {
        let is_key = |index: &IndexDefinition| index.is_constraint && index.name == name;
        if self.indexes.iter().any(is_key) {
            return self.drop_index(name, is_cascading);
        }
        let is_plain = self.foreign_keys.iter().any(|key| key == name)
            || self.checks.iter().any(|check| check.name == name);
        match (is_plain, if_exists) {
            (true, _) => {
                self.drop_plain_constraint(name);
                Ok(())
            }
            (false, true) => Ok(()),
            (false, false) => Err(self.unknown_constraint(name)),
        }
    }

    fn unknown_constraint(&self, name: &str) -> SqlError {
        let message = format!("table {} has no constraint {name}", self.name());
        SqlError::new(ErrorKind::Semantic, message).about(name)
    }

    /// Has a condition or a foreign key of the table go.
    pub(super) fn drop_plain_constraint(&mut self, name: &str) {
        self.checks.retain(|check| check.name != name);
        self.foreign_keys.retain(|key| key != name);
        // One that was written anew by an operation before.
        self.after.retain(
            |change| !matches!(change, Change::AddCheck { check, .. } if check.name == name),
        );
        let table = self.name().to_owned();
        self.before.push(Change::DropConstraint { table, name: name.to_owned() });
    }

    /// Has an index go, with the foreign keys that need it if it cascades.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignKeyViolation`] if foreign keys need it otherwise.
    pub(super) fn drop_index(&mut self, name: &str, is_cascading: bool) -> Result<()> {
        let Some(at) = self.indexes.iter().position(|index| index.name == name) else {
            return Ok(());
        };
        let index = self.indexes.remove(at);
        if index.is_unique {
            for (table, key) in self.needing(&index) {
                if !is_cascading {
                    let message = format!(
                        "the key {name} of table {} is needed by the foreign key {key} of table {table}",
                        self.name()
                    );
                    return Err(SqlError::new(ErrorKind::ForeignKeyViolation, message)
                        .about(name)
                        .with_hint("drop the foreign key first, or write CASCADE"));
                }
                match table == self.name() {
                    true => self.drop_plain_constraint(&key),
                    false => self.before.push(Change::DropConstraint { table, name: key }),
                }
            }
        }
        self.before.push(Change::DropIndex { name: name.to_owned() });
        Ok(())
    }

    /// The foreign keys, with their tables, that refer to a unique index that goes, and to no other one.
    fn needing(&self, index: &IndexDefinition) -> Vec<(String, String)> {
        let has = |index: &IndexDefinition, columns: &[usize]| {
            index.is_unique
                && index.columns.len() == columns.len()
                && index.columns.iter().all(|of| columns.contains(&of.column))
        };
        let number = self.table.number();
        let is_needing = |key: &&ForeignKey| {
            key.parent == number
                && has(index, &key.parent_columns)
                && !self.indexes.iter().any(|other| has(other, &key.parent_columns))
        };
        let snapshot = self.catalog.snapshot();
        let mut needing = Vec::new();
        for name in snapshot.tables() {
            let Some(table) = snapshot.table(name) else { continue };
            let is_own = name == self.name();
            let keys = table.constraints().foreign_keys.iter().filter(is_needing);
            let keys = keys.filter(|key| !is_own || self.foreign_keys.contains(&key.name));
            needing.extend(keys.map(|key| (name.to_owned(), key.name.clone())));
        }
        needing
    }

    /// RENAME CONSTRAINT.
    pub(super) fn rename_constraint(&mut self, from: String, to: String) -> Result<()> {
        let is_key = |index: &IndexDefinition| index.is_constraint && index.name == from;
        let is_there = self.indexes.iter().any(is_key)
            || self.foreign_keys.contains(&from)
            || self.checks.iter().any(|check| check.name == from);
        if !is_there {
            return Err(self.unknown_constraint(&from));
        }
        if self.taken_names().contains(&to) || self.catalog.snapshot().table_of_index(&to).is_some()
        {
            let message = format!("constraint {to} exists already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message).about(to));
        }
        let indexes = self.indexes.iter_mut().map(|index| &mut index.name);
        let checks = self.checks.iter_mut().map(|check| &mut check.name);
        let names = indexes.chain(checks).chain(self.foreign_keys.iter_mut());
        for name in names.filter(|name| **name == from) {
            name.clone_from(&to);
        }
        let table = self.name().to_owned();
        self.after.push(Change::RenameConstraint { table, from, to });
        Ok(())
    }
}
