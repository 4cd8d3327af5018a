//! Definitions in a draft: tables, indexes and constraints are made, renamed, altered and dropped.

use std::sync::Arc;

use crate::alter::{Alteration, Altered};
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::index::maintain::Maintenance;
use crate::index::{Check, Constraints, ForeignKey, IndexDefinition};
use crate::schema::TableSchema;
use crate::snapshot::Access;
use crate::table::TableVersion;

impl Draft {
    /// Checks that a name is free for a table or for a view.
    pub(crate) fn check_free(&self, name: &str, or_replace: bool, for_table: bool) -> Result<()> {
        let taken = |kind: &'static str| Err(StoreError::Exists { kind, name: name.to_owned() });
        if self.tables.contains_key(name) && !(for_table && or_replace) {
            return taken("table");
        }
        if self.views.contains_key(name) && (for_table || !or_replace) {
            return taken("view");
        }
        Ok(())
    }

    pub(crate) fn create_table(&mut self, schema: TableSchema, or_replace: bool) -> Result<()> {
        schema.check()?;
        self.check_free(&schema.name, or_replace, true)?;
        let name = schema.name.clone();
        if self.tables.contains_key(&name) {
            self.drop_table(&name)?;
        }
        let id = self.next_table_id;
        let version = TableVersion::new(id, Arc::new(schema), 0, Vec::new(), None);
        self.next_table_id += 1;
        self.tables.insert(name, Arc::new(version));
        Ok(())
    }

    pub(crate) fn drop_table(&mut self, name: &str) -> Result<()> {
        let Some(version) = self.tables.remove(name) else {
            return Err(StoreError::NoSuchTable { name: name.to_owned() });
        };
        self.freed.extend(version.extents());
        self.has_dropped = true;
        Ok(())
    }

    /// Checks that a table can get an index.
    pub(crate) fn check_index(
        &self,
        version: &TableVersion,
        definition: &IndexDefinition,
    ) -> Result<()> {
        let taken = |kind| StoreError::Exists { kind, name: definition.name.clone() };
        definition.check(&version.schema)?;
        if self.table_of_index(&definition.name).is_some() {
            return Err(taken("index"));
        }
        if version.constraints.has(&definition.name) {
            return Err(taken("constraint"));
        }
        if definition.is_primary && version.indexes.iter().any(|of| of.definition().is_primary) {
            let (table, problem) =
                (version.schema.name.clone(), "it has a primary key already".into());
            return Err(StoreError::Schema { table, problem });
        }
        Ok(())
    }

    fn table_of_index(&self, index: &str) -> Option<&String> {
        let has =
            |version: &TableVersion| version.indexes.iter().any(|of| of.definition().name == index);
        self.tables.iter().find(|(_, version)| has(version)).map(|(name, _)| name)
    }

    pub(crate) async fn make_index(
        &mut self,
        table: String,
        version: &TableVersion,
        definition: IndexDefinition,
        access: &Access,
    ) -> Result<()> {
        let work = Maintenance { version, access }.make(Arc::new(definition), 0).await?;
        let mut indexes = version.indexes.clone();
        indexes.push(work.version().clone());
        self.index_work.push((version.schema.clone(), work));
        let constraints = version.constraints.clone();
        self.tables.insert(table, Arc::new(version.copied().with_keys(indexes, constraints)));
        Ok(())
    }

    /// Removes an index; gives the table's name and what the index was.
    pub(crate) fn drop_index(&mut self, name: &str) -> Result<(String, Arc<IndexDefinition>)> {
        let Some(table) = self.table_of_index(name).cloned() else {
            return Err(StoreError::NoSuchIndex { name: name.to_owned() });
        };
        let version = &self.tables[&table];
        let mut indexes = version.indexes.clone();
        let at = indexes.iter().position(|of| of.definition().name == name).expect("it has it");
        let dropped = indexes.remove(at);
        self.freed.extend(dropped.entry.extents.iter().copied());
        self.has_dropped = true;
        let next = version.copied().with_keys(indexes, version.constraints.clone());
        self.tables.insert(table.clone(), Arc::new(next));
        Ok((table, dropped.entry.definition))
    }

    pub(super) fn add_check(&mut self, table: &str, check: Check) -> Result<()> {
        self.change_constraints(table, &check.name.clone(), |constraints| {
            constraints.checks.push(check);
        })
    }

    pub(super) fn add_foreign_key(
        &mut self,
        table: String,
        parent: &str,
        key: ForeignKey,
    ) -> Result<()> {
        let parent = self.check_identity(parent, None)?.id;
        let name = key.name.clone();
        self.change_constraints(&table, &name, |constraints| {
            constraints.foreign_keys.push(ForeignKey { parent, ..key });
        })?;
        self.grown.push((table, 0));
        self.has_dropped = true;
        Ok(())
    }

    /// Changes a table's constraints, none of which has this name.
    fn change_constraints(
        &mut self,
        table: &str,
        name: &str,
        change: impl FnOnce(&mut Constraints),
    ) -> Result<()> {
        let version = self.check_identity(table, None)?;
        let is_index = version.indexes.iter().any(|of| of.definition().name == name);
        if is_index || version.constraints.has(name) {
            return Err(StoreError::Exists { kind: "constraint", name: name.to_owned() });
        }
        let mut constraints = version.constraints.altered();
        change(&mut constraints);
        let next = version.copied().with_keys(version.indexes.clone(), Arc::new(constraints));
        self.tables.insert(table.to_owned(), Arc::new(next));
        Ok(())
    }

    pub(super) fn drop_constraint(&mut self, table: &str, name: &str) -> Result<()> {
        let version = self.check_identity(table, None)?;
        let mut constraints = version.constraints.altered();
        constraints.checks.retain(|check| check.name != name);
        constraints.foreign_keys.retain(|key| key.name != name);
        let next = version.copied().with_keys(version.indexes.clone(), Arc::new(constraints));
        self.tables.insert(table.to_owned(), Arc::new(next));
        Ok(())
    }

    pub(super) fn rename_table(&mut self, from: &str, to: String) -> Result<()> {
        self.check_free(&to, false, true)?;
        let Some(version) = self.tables.remove(from) else {
            return Err(StoreError::NoSuchTable { name: from.to_owned() });
        };
        let schema = TableSchema { name: to.clone(), ..(*version.schema).clone() };
        let renamed = version.copied().with_schema(Arc::new(schema));
        self.tables.insert(to.clone(), Arc::new(renamed));
        if self.shrunk.remove(from) {
            self.shrunk.insert(to.clone());
        }
        for (table, _) in self.grown.iter_mut().filter(|(table, _)| table == from) {
            table.clone_from(&to);
        }
        Ok(())
    }

    /// Has foreign keys of other tables follow the columns of a table that is altered.
    pub(super) fn alter_references(
        &mut self,
        version: &TableVersion,
        alteration: &Alteration,
    ) -> Result<()> {
        let is_referring = |other: &&Arc<TableVersion>| {
            other.id != version.id
                && other.constraints.foreign_keys.iter().any(|key| key.parent == version.id)
        };
        let mut referring = Vec::new();
        for other in self.tables.values().filter(is_referring) {
            let mut constraints = other.constraints.altered();
            for key in &mut constraints.foreign_keys {
                let Some(followed) = alteration.foreign_key(key, false, version.id) else {
                    return Err(StoreError::Referenced {
                        what: format!("a column of table {}", version.schema.name),
                        constraint: key.name.clone(),
                        table: other.schema.name.clone(),
                    });
                };
                *key = followed;
            }
            let next = other.copied().with_keys(other.indexes.clone(), Arc::new(constraints));
            referring.push((other.schema.name.clone(), next));
        }
        for (name, next) in referring {
            self.tables.insert(name, Arc::new(next));
        }
        Ok(())
    }

    pub(super) fn alter_table(&mut self, table: String, altered: Altered) {
        self.freed.extend(altered.freed);
        self.taken.extend(altered.taken);
        self.has_dropped = true;
        if altered.has_old_indexes {
            self.shrunk.insert(table.clone());
            // Values may be others.
            let id = altered.version.id;
            let is_concerned = |name: &String, version: &TableVersion| {
                *name == table
                    || version.constraints.foreign_keys.iter().any(|key| key.parent == id)
            };
            for (name, version) in &self.tables {
                if is_concerned(name, version) {
                    self.grown.push((name.clone(), 0));
                }
            }
        }
        self.tables.insert(table, Arc::new(altered.version));
    }

    pub(super) fn rename_constraint(&mut self, table: &str, from: &str, to: &str) -> Result<()> {
        let version = self.check_identity(table, None)?;
        let is_taken = self.table_of_index(to).is_some() || version.constraints.has(to);
        if is_taken {
            return Err(StoreError::Exists { kind: "constraint", name: to.to_owned() });
        }
        let mut constraints = version.constraints.altered();
        let checks = constraints.checks.iter_mut().map(|check| &mut check.name);
        let keys = constraints.foreign_keys.iter_mut().map(|key| &mut key.name);
        for name in checks.chain(keys).filter(|name| *name == from) {
            to.clone_into(name);
        }
        let mut indexes = version.indexes.clone();
        for index in indexes.iter_mut().filter(|index| index.definition().name == from) {
            let definition =
                IndexDefinition { name: to.to_owned(), ..(**index.definition()).clone() };
            index.entry.definition = Arc::new(definition);
        }
        let next = version.copied().with_keys(indexes, Arc::new(constraints));
        self.tables.insert(table.to_owned(), Arc::new(next));
        Ok(())
    }
}
