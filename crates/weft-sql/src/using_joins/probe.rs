//! What columns a table of a FROM clause has: those of `SELECT * FROM` that table, as DataFusion plans it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider,
};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    GroupByExpr, Query, Select, SelectFlavor, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, WildcardAdditionalOptions, With,
};
use futures::FutureExt;

use super::folded;
use super::relation::OwnColumn;
use crate::catalog::{CATALOG, SCHEMA};
use crate::statement;

/// The state with the tables that a statement names, and no others: whatever is planned in it need not wait
/// for a catalog. Nothing if one of the tables cannot be had, which planning the statement will tell.
pub(crate) async fn with_tables(
    state: &SessionState,
    statement: &DfStatement,
) -> Option<SessionState> {
    let list = MemoryCatalogProviderList::new();
    let mut seen = HashSet::new();
    for name in state.resolve_table_references(statement).ok()? {
        let name = name.resolve(CATALOG, SCHEMA);
        if !seen.insert(name.clone()) {
            continue;
        }
        let Ok(tables) = state.schema_for_ref(name.clone()) else { continue };
        let Some(table) = tables.table(&name.table).await.ok()? else { continue };
        let catalog = list.catalog(&name.catalog).unwrap_or_else(|| {
            let catalog: Arc<dyn CatalogProvider> = Arc::new(MemoryCatalogProvider::new());
            list.register_catalog(name.catalog.to_string(), Arc::clone(&catalog));
            catalog
        });
        let schema = match catalog.schema(&name.schema) {
            Some(schema) => schema,
            None => {
                let schema: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
                catalog.register_schema(&name.schema, Arc::clone(&schema)).ok()?;
                schema
            }
        };
        schema.register_table(name.table.to_string(), table).ok()?;
    }
    let mut state = state.clone();
    state.register_catalog_list(Arc::new(list));
    Some(state)
}

/// The columns of a table of a FROM clause, which may use the columns of the tables before it and name these
/// common table expressions. Nothing if they cannot be told.
pub(super) fn columns_of(
    state: &SessionState,
    factor: &TableFactor,
    before: &[(TableFactor, Vec<OwnColumn>)],
    withs: &[With],
) -> Option<Vec<OwnColumn>> {
    let alone =
        |factor: &TableFactor| TableWithJoins { relation: factor.clone(), joins: Vec::new() };
    let known: usize = before.iter().map(|(_, columns)| columns.len()).sum();
    let tables = before.iter().map(|(factor, _)| alone(factor));
    let mut query = query_of(tables.chain([alone(factor)]).collect());
    if before.is_empty() && is_stored(factor, withs) {
        return planned_columns(state, query);
    }
    for with in withs.iter().rev().filter(|with| !with.cte_tables.is_empty()) {
        let mut outer = query_of(Vec::new());
        outer.with = Some(with.clone());
        *outer.body = SetExpr::Query(Box::new(query));
        query = outer;
    }
    let mut columns = planned_columns(state, query)?;
    (columns.len() >= known).then(|| columns.split_off(known))
}

/// True of a table that is no common table expression.
fn is_stored(factor: &TableFactor, withs: &[With]) -> bool {
    let TableFactor::Table { name, args: None, .. } = factor else { return false };
    let [part] = name.0.as_slice() else { return true };
    let Some(name) = part.as_ident().map(folded) else { return false };
    let mut tables = withs.iter().flat_map(|with| &with.cte_tables);
    tables.all(|table| folded(&table.alias.name) != name)
}

fn planned_columns(state: &SessionState, query: Query) -> Option<Vec<OwnColumn>> {
    let statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(query))));
    let plan = state.statement_to_plan(statement).now_or_never()?.ok()?;
    let columns = plan.schema().iter();
    Some(columns.map(|(table, field)| (table.cloned(), field.name().clone())).collect())
}

/// `SELECT * FROM …`
pub(crate) fn query_of(from: Vec<TableWithJoins>) -> Query {
    let select = Select {
        select_token: no_token(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    statement::query_of(SetExpr::Select(Box::new(select)))
}

/// A token of something that is not in the text.
pub(crate) fn no_token() -> AttachedToken {
    AttachedToken::empty()
}
