//! UPDATE, DELETE, MERGE and TRUNCATE as they are written. What says which rows become what is put as a query over the table with
//! the ids of its rows, so that everything that queries may have is planned as in queries.

use datafusion::sql::sqlparser::ast::{
    self, Assignment, AssignmentTarget, BinaryOperator, CaseWhen, Expr, Ident, Join,
    JoinConstraint, JoinOperator, MergeAction, MergeClause, MergeClauseKind, MergeInsertKind,
    ObjectName, ObjectNamePart, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableAlias, TableFactor, TableWithJoins, UpdateTableFromKind,
};
use datafusion::sql::sqlparser::parser::Parser;
use weft_store::ROW_ID;

use crate::access::Rights;
use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::syntax;
use crate::text::DIALECT;

/// What the name of the table's rows with their ids begins with.
pub(crate) const WITH_IDS: &str = "rows of ";

/// The column that tells whether a row of MERGE has a row of the source.
const SOURCE_ROW: &str = "row of the source";

/// A statement that changes rows of a table.
#[derive(Clone, Debug)]
pub(crate) struct ChangeStatement {
    /// `UPDATE`, `DELETE`, `MERGE`, or of `INSERT … ON CONFLICT` `INSERT`.
    pub(crate) tag: &'static str,
    /// The table whose rows change.
    pub(crate) table: ObjectName,
    /// The name by which the statement calls it.
    pub(crate) alias: Ident,
    /// The name of its rows with their ids in the query.
    pub(crate) with_ids: String,
    /// First what clauses compute, of MERGE and INSERT with the number of the clause before it, which is NULL for rows that stay; then all
    /// columns of the table, and the row's id.
    pub(crate) query: Box<ast::Query>,
    /// What becomes of the rows: UPDATE and DELETE have one clause.
    pub(crate) clauses: Vec<Clause>,
    /// What is returned of the rows.
    pub(crate) returning: Option<Vec<SelectItem>>,
    /// The item of the query that has the places of rows: the rows come in their order, and they stand for the rows' ids.
    pub(crate) place: Option<usize>,
    /// The unique indexes in which [`Action::Propose`] looks for keys.
    pub(crate) first_of: Vec<String>,
}

/// What becomes of some rows.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    pub(crate) action: Action,
    /// The columns that get other values, or values at all; those of an INSERT that names none are the first ones.
    pub(crate) targets: Vec<(Option<Ident>, NewValue)>,
}

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Delete,
    Update,
    Insert,
    /// It is inserted, unless an earlier such row has one of its keys.
    Propose,
    /// An error: the statement has inserted a row of its key already.
    Again,
}

/// What a column gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewValue {
    /// Its default.
    Default,
    /// The item of the query with this number.
    Item(usize),
}

impl ChangeStatement {
    /// The rights on the table that the statement needs. It reads the table unless all rows get constants, or go.
    pub(crate) fn rights(&self) -> Rights {
        let of_action = |action| match action {
            Action::Delete => Rights::DELETE,
            Action::Update => Rights::UPDATE,
            Action::Insert | Action::Propose | Action::Again => Rights::INSERT,
        };
        let rights = self.clauses.iter().fold(Rights::NONE, |all, of| all | of_action(of.action));
        match self.reads_table() {
            true => rights | Rights::SELECT,
            false => rights,
        }
    }

    fn reads_table(&self) -> bool {
        let SetExpr::Select(select) = self.query.body.as_ref() else { return true };
        let is_alone = matches!(select.from.as_slice(), [from] if from.joins.is_empty());
        let is_constant = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                is_constant_expr(expr)
            }
            // The table's own columns, which stay as they are.
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), _) => {
                true
            }
            _ => false,
        };
        self.returning.is_some()
            || self.query.with.is_some()
            || !is_alone
            || select.selection.is_some()
            || !select.projection.iter().all(is_constant)
    }

    /// True if the query begins with the number of a clause.
    pub(crate) fn has_clause_numbers(&self) -> bool {
        matches!(self.tag, "MERGE" | "INSERT")
    }
}

/// True of an expression that names no column.
fn is_constant_expr(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Nested(inner)
        | Expr::UnaryOp { expr: inner, .. }
        | Expr::Cast { expr: inner, .. } => is_constant_expr(inner),
        _ => false,
    }
}

/// A statement that changes rows; `None` if it is another one.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for clauses that are not carried out.
pub(crate) fn of(statement: &Statement) -> Result<Option<ChangeStatement>> {
    match statement {
        Statement::Update(update) => of_update(update.clone()).map(Some),
        Statement::Delete(delete) => of_delete(delete.clone()).map(Some),
        Statement::Merge(merge) => of_merge(merge.clone()).map(Some),
        Statement::Query(query) => {
            let inner = match query.body.as_ref() {
                SetExpr::Update(inner) | SetExpr::Delete(inner) | SetExpr::Merge(inner) => inner,
                _ => return Ok(None),
            };
            let mut change = of(inner)?;
            if let Some(change) = &mut change {
                change.query.with = query.with.clone();
            }
            Ok(change)
        }
        _ => Ok(None),
    }
}

fn refuse(what: &str, is_there: bool) -> Result<()> {
    match is_there {
        true => Err(SqlError::not_supported(what)),
        false => Ok(()),
    }
}

fn of_update(update: ast::Update) -> Result<ChangeStatement> {
    refuse("UPDATE … ORDER BY", !update.order_by.is_empty())?;
    refuse("UPDATE … LIMIT", update.limit.is_some())?;
    refuse("UPDATE OR …", update.or.is_some())?;
    refuse("UPDATE … OUTPUT", update.output.is_some())?;
    let (table, alias, first, with_ids) = target_of(update.table.relation)?;
    if !update.table.joins.is_empty() {
        return Err(SqlError::not_supported("UPDATE of a join")
            .with_hint("write UPDATE table SET … FROM other WHERE …"));
    }
    let mut from = vec![TableWithJoins { relation: first, joins: Vec::new() }];
    match update.from {
        None => {}
        Some(UpdateTableFromKind::AfterSet(more) | UpdateTableFromKind::BeforeSet(more)) => {
            from.extend(more);
        }
    }
    let mut items = Vec::new();
    let targets = assigned(update.assignments, &mut items, |value| value)?;
    let query = query_of(items, &alias, from, update.selection)?;
    let clauses = vec![Clause { action: Action::Update, targets }];
    let returning = update.returning;
    Ok(ChangeStatement {
        tag: "UPDATE",
        table,
        alias,
        with_ids,
        query,
        clauses,
        returning,
        place: None,
        first_of: Vec::new(),
    })
}

fn of_delete(delete: ast::Delete) -> Result<ChangeStatement> {
    refuse("DELETE … ORDER BY", !delete.order_by.is_empty())?;
    refuse("DELETE … LIMIT", delete.limit.is_some())?;
    refuse("DELETE of several tables", !delete.tables.is_empty())?;
    refuse("DELETE … OUTPUT", delete.output.is_some())?;
    let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
        delete.from;
    let mut from = from.into_iter();
    let (Some(first), None) = (from.next(), from.next()) else {
        return Err(SqlError::not_supported("DELETE FROM several tables")
            .with_hint("write DELETE FROM table USING other WHERE …"));
    };
    refuse("DELETE FROM a join", !first.joins.is_empty())?;
    let (table, alias, relation, with_ids) = target_of(first.relation)?;
    let mut from = vec![TableWithJoins { relation, joins: Vec::new() }];
    from.extend(delete.using.unwrap_or_default());
    let query = query_of(Vec::new(), &alias, from, delete.selection)?;
    let clauses = vec![Clause { action: Action::Delete, targets: Vec::new() }];
    let returning = delete.returning;
    Ok(ChangeStatement {
        tag: "DELETE",
        table,
        alias,
        with_ids,
        query,
        clauses,
        returning,
        place: None,
        first_of: Vec::new(),
    })
}

fn of_merge(merge: ast::Merge) -> Result<ChangeStatement> {
    refuse("MERGE … OUTPUT", merge.output.is_some())?;
    let (table, alias, target, with_ids) = target_of(merge.table)?;
    let is_of =
        |clause: &MergeClause, kinds: &[MergeClauseKind]| kinds.contains(&clause.clause_kind);
    let has = |kinds: &[MergeClauseKind]| merge.clauses.iter().any(|clause| is_of(clause, kinds));
    let keeps_source = has(&[MergeClauseKind::NotMatched, MergeClauseKind::NotMatchedByTarget]);
    let keeps_target = has(&[MergeClauseKind::NotMatchedBySource]);
    let (source_name, source) = with_source_row(merge.source)?;
    let on = JoinConstraint::On(*merge.on);
    let operator = match (keeps_source, keeps_target) {
        (true, true) => JoinOperator::FullOuter(on),
        (true, false) => JoinOperator::LeftOuter(on),
        (false, true) => JoinOperator::RightOuter(on),
        (false, false) => JoinOperator::Inner(on),
    };
    let join = Join { relation: target, global: false, join_operator: operator };
    let from = vec![TableWithJoins { relation: source, joins: vec![join] }];
    let is_in = |relation: &Ident, column: &str| {
        let column = Ident::with_quote('"', column);
        Expr::IsNotNull(Box::new(Expr::CompoundIdentifier(vec![relation.clone(), column])))
    };
    let not = |expr| Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(expr) };
    let mut conditions = Vec::with_capacity(merge.clauses.len());
    for clause in &merge.clauses {
        let (in_target, in_source) = (is_in(&alias, ROW_ID), is_in(&source_name, SOURCE_ROW));
        let kind = match clause.clause_kind {
            MergeClauseKind::Matched => and(in_target, in_source),
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => not(in_target),
            MergeClauseKind::NotMatchedBySource => not(in_source),
        };
        conditions.push(match &clause.predicate {
            Some(predicate) => and(kind, Expr::Nested(Box::new(predicate.clone()))),
            None => kind,
        });
    }
    let numbered = conditions.iter().enumerate().map(|(number, condition)| CaseWhen {
        condition: condition.clone(),
        result: Expr::value(ast::Value::Number(number.to_string(), false)),
    });
    let mut items = vec![case(numbered.collect())];
    let mut clauses = Vec::with_capacity(merge.clauses.len());
    for (clause, condition) in merge.clauses.into_iter().zip(conditions) {
        // Values that rows of other clauses do not have may be errors.
        let only = |value| case(vec![CaseWhen { condition: condition.clone(), result: value }]);
        clauses.push(merge_clause(clause, &mut items, only)?);
    }
    let query = query_of(items, &alias, from, None)?;
    Ok(ChangeStatement {
        tag: "MERGE",
        table,
        alias,
        with_ids,
        query,
        clauses,
        returning: None,
        place: None,
        first_of: Vec::new(),
    })
}

fn merge_clause(
    clause: MergeClause,
    items: &mut Vec<Expr>,
    only: impl Fn(Expr) -> Expr,
) -> Result<Clause> {
    let is_insert = matches!(
        clause.clause_kind,
        MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget
    );
    match (clause.action, is_insert) {
        (MergeAction::Delete { .. }, false) => {
            Ok(Clause { action: Action::Delete, targets: Vec::new() })
        }
        (MergeAction::Update(update), false) => {
            let conditions = update.update_predicate.is_some() || update.delete_predicate.is_some();
            refuse("UPDATE … WHERE in MERGE", conditions)?;
            let targets = assigned(update.assignments, items, only)?;
            Ok(Clause { action: Action::Update, targets })
        }
        (MergeAction::Insert(insert), true) => {
            refuse("INSERT … WHERE in MERGE", insert.insert_predicate.is_some())?;
            let MergeInsertKind::Values(values) = insert.kind else {
                return Err(SqlError::not_supported("INSERT ROW")
                    .with_hint("write INSERT (columns) VALUES (values)"));
            };
            let mut rows = values.rows.into_iter();
            let (Some(row), None) = (rows.next(), rows.next()) else {
                return Err(SqlError::not_supported("several rows for one of MERGE"));
            };
            let mut columns = Vec::with_capacity(insert.columns.len());
            for column in &insert.columns {
                columns.push(Some(column_of(column)?));
            }
            if columns.is_empty() {
                columns = vec![None; row.content.len()];
            }
            if columns.len() != row.content.len() {
                let (values, columns) = (row.content.len(), columns.len());
                let message = format!("INSERT has {values} values for {columns} columns");
                return Err(SqlError::new(ErrorKind::Semantic, message));
            }
            let targets = columns.into_iter().zip(row.content);
            let targets = targets.map(|(column, value)| (column, new_value(value, items, &only)));
            Ok(Clause { action: Action::Insert, targets: targets.collect() })
        }
        (_, true) => Err(SqlError::new(
            ErrorKind::Semantic,
            "a row that the table does not have can only be inserted",
        )),
        (_, false) => Err(SqlError::new(
            ErrorKind::Semantic,
            "a row that the table has can be updated or deleted, not inserted",
        )),
    }
}

/// The table whose rows change, its name in the statement, and the relation of its rows with their ids, with the relation's name.
fn target_of(relation: TableFactor) -> Result<(ObjectName, Ident, TableFactor, String)> {
    let TableFactor::Table { name, alias, args: None, .. } = &relation else {
        return Err(SqlError::not_supported("a change of anything but a table"));
    };
    let last = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
    let Some(last) = last else {
        return Err(SqlError::not_supported("a change of anything but a table"));
    };
    let alias = match alias {
        Some(alias) if alias.columns.is_empty() => alias.name.clone(),
        Some(_) => return Err(SqlError::not_supported("other names for columns in a change")),
        None => last.clone(),
    };
    let name = name.clone();
    let with_ids = format!("{WITH_IDS}{name}");
    let stands_for = ObjectName::from(vec![Ident::with_quote('"', &with_ids)]);
    let relation = table_factor(stands_for, &alias)?;
    Ok((name, alias, relation, with_ids))
}

/// A source of MERGE with a column that tells that there is a row of it.
fn with_source_row(source: TableFactor) -> Result<(Ident, TableFactor)> {
    let name = match &source {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => {
            name.0.last().and_then(ObjectNamePart::as_ident).cloned()
        }
        _ => None,
    };
    let Some(name) = name else {
        return Err(SqlError::new(ErrorKind::Semantic, "the source of MERGE has no name")
            .with_hint("write USING (…) AS source ON …"));
    };
    let mut query = template()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let kind =
            SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name.clone()]));
        let is_there = Expr::value(ast::Value::Boolean(true));
        select.projection = vec![
            SelectItem::QualifiedWildcard(kind, ast::WildcardAdditionalOptions::default()),
            SelectItem::ExprWithAlias { expr: is_there, alias: Ident::with_quote('"', SOURCE_ROW) },
        ];
        select.from = vec![TableWithJoins { relation: source, joins: Vec::new() }];
    }
    let (lateral, alias, sample) = (false, Some(alias_of(&name)), None);
    Ok((name, TableFactor::Derived { lateral, subquery: query, alias, sample }))
}

fn alias_of(name: &Ident) -> TableAlias {
    TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None }
}

/// `name AS alias`
///
/// # Errors
/// If there is no such relation in SQL.
pub(crate) fn table_factor(name: ObjectName, alias: &Ident) -> Result<TableFactor> {
    let sql = format!("{name} AS {alias}");
    let parsed = Parser::new(&DIALECT).try_with_sql(&sql);
    parsed.and_then(|mut parser| parser.parse_table_factor()).map_err(syntax)
}

/// `SELECT NULL`, of which parts are replaced.
///
/// # Errors
/// None.
pub(crate) fn template() -> Result<Box<ast::Query>> {
    let parsed = Parser::new(&DIALECT).try_with_sql("SELECT NULL");
    parsed.and_then(|mut parser| parser.parse_query()).map_err(syntax)
}

/// The columns that assignments name, and what they get: `items` are added to the query.
pub(crate) fn assigned(
    assignments: Vec<Assignment>,
    items: &mut Vec<Expr>,
    only: impl Fn(Expr) -> Expr,
) -> Result<Vec<(Option<Ident>, NewValue)>> {
    let mut targets = Vec::with_capacity(assignments.len());
    for Assignment { target, value } in assignments {
        let pairs = match (target, value) {
            (AssignmentTarget::ColumnName(name), value) => vec![(name, value)],
            (AssignmentTarget::Tuple(names), Expr::Tuple(values))
                if names.len() == values.len() =>
            {
                names.into_iter().zip(values).collect()
            }
            (AssignmentTarget::Tuple(names), Expr::Nested(value)) if names.len() == 1 => {
                names.into_iter().zip([*value]).collect()
            }
            (AssignmentTarget::Tuple(_), _) => {
                return Err(SqlError::not_supported("SET (columns) = this")
                    .with_hint("assign a value to each column"));
            }
        };
        for (name, value) in pairs {
            let column = column_of(&name)?;
            targets.push((Some(column), new_value(value, items, &only)));
        }
    }
    Ok(targets)
}

fn column_of(name: &ObjectName) -> Result<Ident> {
    match name.0.last().and_then(ObjectNamePart::as_ident) {
        Some(column) => Ok(column.clone()),
        None => {
            let message = format!("{name} is no name of a column");
            Err(SqlError::new(ErrorKind::Semantic, message))
        }
    }
}

fn new_value(value: Expr, items: &mut Vec<Expr>, only: impl Fn(Expr) -> Expr) -> NewValue {
    if matches!(&value, Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
    {
        return NewValue::Default;
    }
    items.push(only(value));
    NewValue::Item(items.len() - 1)
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}

pub(crate) fn case(conditions: Vec<CaseWhen>) -> Expr {
    Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions,
        else_result: None,
    }
}

/// `SELECT items, alias.* FROM … WHERE …`
pub(crate) fn query_of(
    items: Vec<Expr>,
    alias: &Ident,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Box<ast::Query>> {
    let mut query = template()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let named = |(number, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', format!("new {number}")),
        };
        let whole = ObjectName::from(vec![alias.clone()]);
        let whole = SelectItemQualifiedWildcardKind::ObjectName(whole);
        select.projection = items.into_iter().enumerate().map(named).collect();
        select
            .projection
            .push(SelectItem::QualifiedWildcard(whole, ast::WildcardAdditionalOptions::default()));
        select.from = from;
        select.selection = selection;
    }
    Ok(query)
}
