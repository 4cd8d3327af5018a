//! CREATE INDEX, DROP INDEX and REINDEX.

use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use weft_store::{Change, IndexColumn, IndexDefinition, TableSchema};

use crate::access::Need;
use crate::catalog::{StatementCatalog, relation_name};
use crate::error::{ErrorKind, Result, SqlError};
use crate::keys::declared::Name;
use crate::run::{Run, Started};
use crate::schemas::parts;
use crate::storage_parameters;

impl Run {
    /// CREATE INDEX.
    pub(crate) fn create_index(
        &self,
        catalog: &StatementCatalog,
        create: ast::CreateIndex,
    ) -> Result<Started> {
        check_clauses(&create)?;
        let tag = "CREATE INDEX";
        let table = catalog.stored(&relation_name(&create.table_name)?, Need::Owner)?;
        let columns = create.columns.iter().map(|column| key_column(table.schema(), column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let included: Vec<Name> = create.include.iter().map(Name::of).collect();
        let included = included_columns(table.schema(), &columns, &included)?;
        let snapshot = catalog.snapshot();
        let name = match &create.name {
            Some(name) => relation_name(name)?,
            None => free_name(catalog, table.schema(), &columns),
        };
        if snapshot.table_of_index(&name).is_some() {
            if create.if_not_exists {
                return Ok(Started::Command { tag, work: async { Ok(None) }.boxed() });
            }
            let message = format!("index {name} exists already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                .about(name)
                .with_hint("write IF NOT EXISTS, or another name"));
        }
        let definition = IndexDefinition {
            name,
            columns,
            included,
            is_unique: create.unique,
            is_primary: false,
            is_constraint: false,
        };
        let (expected, table) = (Some(table.id()), table.schema().name.clone());
        let run = self.clone();
        let work = async move {
            run.commit(vec![Change::CreateIndex { table, expected, definition }]).await?;
            Ok(None)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// DROP INDEX.
    pub(crate) fn drop_indexes(
        &self,
        catalog: &StatementCatalog,
        names: &[ast::ObjectName],
        if_exists: bool,
    ) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let mut changes = Vec::new();
        for name in names {
            let name = relation_name(name)?;
            let table = snapshot.table_of_index(&name).and_then(|table| snapshot.table(table));
            let Some(table) = table else {
                if if_exists {
                    continue;
                }
                return Err(unknown_index(&name));
            };
            catalog.access().check(snapshot, &table.schema().name, Need::Owner)?;
            if table.indexes().any(|index| index.name == name && index.is_constraint) {
                let message = format!(
                    "index {name} enforces a constraint of table {}, and goes only with the table",
                    table.schema().name
                );
                return Err(SqlError::new(ErrorKind::Semantic, message).about(name));
            }
            changes.push(Change::DropIndex { name });
        }
        let run = self.clone();
        let work = async move {
            if !changes.is_empty() {
                run.commit(changes).await?;
            }
            Ok(None)
        };
        Ok(Started::Command { tag: "DROP INDEX", work: work.boxed() })
    }

    /// REINDEX of an index, or of all indexes of a table.
    pub(crate) fn reindex(
        &self,
        catalog: &StatementCatalog,
        name: &ast::ObjectName,
        is_table: bool,
    ) -> Result<Started> {
        let name = relation_name(name)?;
        let snapshot = catalog.snapshot();
        let names: Vec<String> = match is_table {
            true => {
                let table = catalog.stored(&name, Need::Owner)?;
                table.indexes().map(|index| index.name.clone()).collect()
            }
            false => {
                let table = snapshot.table_of_index(&name);
                let table = table.ok_or_else(|| unknown_index(&name))?;
                catalog.access().check(snapshot, table, Need::Owner)?;
                vec![name]
            }
        };
        let changes: Vec<Change> = names.into_iter().map(|name| Change::Reindex { name }).collect();
        let run = self.clone();
        let work = async move {
            if !changes.is_empty() {
                run.commit(changes).await?;
            }
            Ok(None)
        };
        Ok(Started::Command { tag: "REINDEX", work: work.boxed() })
    }
}

fn unknown_index(name: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("index {name} does not exist")).about(name)
}

/// Refuses what is not carried out.
fn check_clauses(create: &ast::CreateIndex) -> Result<()> {
    let is_tree = |kind: &ast::IndexType| matches!(kind, ast::IndexType::BTree);
    if create.using.as_ref().is_some_and(|kind| !is_tree(kind)) {
        return Err(SqlError::not_supported("USING another kind of index than BTREE"));
    }
    let others = [
        ("CREATE INDEX CONCURRENTLY", create.concurrently),
        ("NULLS NOT DISTINCT", create.nulls_distinct == Some(false)),
        ("an index of some of the rows", create.predicate.is_some()),
        (
            "this option of CREATE INDEX",
            !create.index_options.is_empty() || !create.alter_options.is_empty(),
        ),
    ];
    match others.into_iter().find(|(_, is_there)| *is_there) {
        Some((what, _)) => Err(SqlError::not_supported(what)),
        None => storage_parameters::check_of_index(&create.with),
    }
}

/// A column of a key; NULLs come last, with DESC first, unless something else is said.
fn key_column(schema: &TableSchema, column: &ast::IndexColumn) -> Result<IndexColumn> {
    let ast::OrderByExpr { expr, options, with_fill } = &column.column;
    let ast::Expr::Identifier(ident) = expr else {
        return Err(SqlError::not_supported("an index of expressions")
            .with_hint("index columns: CREATE INDEX i ON t (a, b DESC)"));
    };
    if with_fill.is_some() || column.operator_class.is_some() {
        return Err(SqlError::not_supported(format!("{column} in an index")));
    }
    let name = Name::of(ident);
    let Some(number) = name.find(schema) else {
        let message = format!("table {} has no column {}", schema.name, name.text);
        return Err(SqlError::new(ErrorKind::Semantic, message).about(name.text));
    };
    let is_descending = options.asc == Some(false);
    let nulls_first = options.nulls_first.unwrap_or(is_descending);
    Ok(IndexColumn { column: number, is_descending, nulls_first })
}

/// The columns that entries have beside their keys.
///
/// # Errors
/// [`ErrorKind::Semantic`] for columns that there are not, and for columns that are in the index already.
pub(super) fn included_columns(
    schema: &TableSchema,
    key: &[IndexColumn],
    names: &[Name],
) -> Result<Vec<usize>> {
    let mut included = Vec::with_capacity(names.len());
    for name in names {
        let Some(number) = name.find(schema) else {
            let message = format!("table {} has no column {}", schema.name, name.text);
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name.text));
        };
        if included.contains(&number) || key.iter().any(|of| of.column == number) {
            let message = format!("column {} is in the index already", name.text);
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .about(&name.text)
                .with_hint("INCLUDE names other columns than the key, each once"));
        }
        included.push(number);
    }
    Ok(included)
}

/// A name of table and columns that no index has.
fn free_name(catalog: &StatementCatalog, schema: &TableSchema, columns: &[IndexColumn]) -> String {
    let columns = columns.iter().map(|of| schema.columns[of.column].name.as_str());
    let table = parts(catalog.snapshot(), &schema.name).1;
    let parts: Vec<&str> = std::iter::once(table).chain(columns).chain(["idx"]).collect();
    let first = parts.join("_");
    let is_free = |name: &String| catalog.snapshot().table_of_index(name).is_none();
    let numbered = (1..).map(|number| format!("{first}{number}"));
    std::iter::once(first.clone()).chain(numbered).find(is_free).unwrap_or(first.clone())
}
