//! Statements about one row by its key, and INSERTs of a few rows, whose plans are kept by their texts: `SELECT items FROM table
//! WHERE key = value`, UPDATE and DELETE with such a condition, and `INSERT INTO table VALUES …`.
//!
//! A text with parameters that runs a second time, or was prepared, is planned for this way if its form allows it (`shape.rs`,
//! `change_shape.rs`). So is a text without parameters, with parameters in place of some of its constants (`plain.rs`), at once. DataFusion plans what is selected (`plan.rs`), or the new row (`change_plan.rs`), without the condition. From
//! then on a start looks whether all that the plan follows from is as it was (`basis.rs`: settings, functions and relations of the
//! session, the table's columns and conditions, the index, views, macros), makes a key of the values (`key.rs`), and finds the row.
//! A statement that this way does not lead to takes the one of all statements.
//!
//! A query is executed by the thread that starts it: what is in memory takes no other thread, and a worker waits for what is not. So
//! is a change within a transaction that waits for nothing (`at_once.rs`). Any other change runs as other statements do (`run.rs`),
//! and takes no parser and planner there (`change.rs`).
//!
//! Snapshots, transactions and cancellation are as for all statements: `Control` says what the statement is at.

mod at_once;
mod basis;
mod change;
mod change_plan;
mod change_shape;
mod flat;
mod given;
mod kept;
mod key;
mod plain;
mod plan;
mod shape;

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast;
use tokio::sync::{mpsc, oneshot};
use weft_store::{ResidentRow, Table};

use crate::access_path::IndexUse;
use crate::control::Control;
use crate::economy::Economy;
use crate::error::{Result, SqlError};
use crate::locate::locate;
use crate::parameters::Bindings;
use crate::run::{Run, Started};
use crate::running::{Header, MESSAGES_MAX, Message, ResultKind, Running};
use crate::session::Session;
use crate::transactions::{SessionTransaction, TransactionStatus};
use crate::value::Value;
use basis::Key;
use change_plan::{ChangePlan, PlannedChange};
use change_shape::ChangeShape;
pub(crate) use flat::is_pure;
use given::Given;
pub(crate) use kept::KeptPlans;
use kept::{KeptShape, Known};
use plan::{Planned, PointPlan};
use shape::Shape;

/// Lists of types of parameters for which a change is planned, at most.
const TYPES_MAX: usize = 8;

/// How a statement is started.
pub(crate) enum PointStart {
    /// As a point query, which may have ended already.
    Started(Running),
    /// As all statements.
    Usual(Option<KeptText>),
}

/// A text whose plan is kept, or is to be made for its next executions, with values of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct KeptText {
    text: Arc<str>,
    given: Arc<Given>,
    /// Whether the execution for which a plan is made takes it, or the usual way.
    runs_at_once: bool,
}

impl KeptText {
    fn new(text: &str, values: &[Value], types: &[Option<String>]) -> KeptText {
        let given = Arc::new(Given::new(values, types));
        KeptText { text: Arc::from(text), given, runs_at_once: false }
    }

    /// A text with values that are constants of SQL; `None` if some of them are not, or there are none.
    pub(crate) fn of_constants(text: &str, values: &[ast::Expr]) -> Option<KeptText> {
        let values: Vec<Value> = values.iter().map(shape::constant).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| KeptText::new(text, &values, &[]))
    }
}

/// What is kept of a text.
enum Kept {
    Query(Arc<PointPlan>),
    Change(Arc<[Arc<ChangePlan>]>),
}

/// A point query of which all is known but the row.
struct Lookup {
    plan: Arc<PointPlan>,
    table: Arc<Table>,
    key: Key,
}

impl Session {
    /// Starts a statement without parameters as a point query, if it is one whose plan is kept.
    pub(crate) fn start_plain(self: &Arc<Session>, sql: &str) -> PointStart {
        let Some((text, values)) = plain::parameterized(sql) else {
            return PointStart::Usual(None);
        };
        let kept = KeptText { runs_at_once: true, ..KeptText::new(&text, &values, &[]) };
        self.start_kept(sql, kept, || Bindings::Positional(Vec::new()))
    }

    /// Starts a statement with these values of its parameters, each of the type that is named for it, if one is, as a point
    /// query, if it is one whose plan is kept. `parameters` are the values as expressions of SQL.
    pub(crate) fn start_point(
        self: &Arc<Session>,
        sql: &str,
        values: &[Value],
        types: &[Option<String>],
        parameters: impl FnOnce() -> Bindings,
    ) -> PointStart {
        if values.is_empty() {
            return PointStart::Usual(None);
        }
        self.start_kept(sql, KeptText::new(sql, values, types), parameters)
    }

    /// Starts a statement whose text for its plan is `kept`.
    fn start_kept(
        self: &Arc<Session>,
        sql: &str,
        kept: KeptText,
        parameters: impl FnOnce() -> Bindings,
    ) -> PointStart {
        let plans = |plans: bool, kept: KeptText| PointStart::Usual(plans.then_some(kept));
        let plan = match self.kept_point(&kept.text, kept.runs_at_once) {
            Ok(Kept::Query(plan)) => plan,
            Ok(Kept::Change(plans)) => {
                return match self.change_at_once(sql, &plans, &kept, parameters) {
                    Some(running) => PointStart::Started(running),
                    None => PointStart::Usual(Some(kept)),
                };
            }
            Err(is_planned) => return plans(is_planned, kept),
        };
        let transaction = self.transaction();
        if transaction.as_ref().is_some_and(|transaction| !transaction.refresh_now()) {
            return PointStart::Usual(Some(kept));
        }
        let lookup = match self.prepared_lookup(plan, &kept.given, transaction.as_ref()) {
            Ok(lookup) => lookup,
            Err(is_planned) => return plans(is_planned, kept),
        };
        let waiting = transaction.as_ref().filter(|of| of.has_waiting(&lookup.table.schema().name));
        let resident = match lookup.resident(waiting) {
            Ok(None) if waiting.is_some() => return PointStart::Usual(Some(kept)),
            Ok(resident) => resident,
            // The usual way tells of errors as it does of those of other statements.
            Err(_) => return PointStart::Usual(None),
        };
        let control = Arc::new(Control::of(self.engine()).within(transaction.as_ref()));
        let schema = Arc::clone(lookup.plan.schema());
        let header = Header { schema, kind: ResultKind::Rows };
        PointStart::Started(match resident {
            Some(batch) => {
                control.end(false);
                Running::ended(control, header, batch)
            }
            None => self.look_up_on_worker(sql, lookup, control, header),
        })
    }

    /// The plan that is kept of a text; else whether one is to be made.
    fn kept_point(&self, sql: &str, plans_at_once: bool) -> std::result::Result<Kept, bool> {
        match self.kept_plans().get(sql) {
            None => {
                self.kept_plans().note(sql);
                Err(plans_at_once)
            }
            Some(Known::Seen) => Err(true),
            Some(Known::Planned { plan, .. }) => Ok(Kept::Query(plan)),
            Some(Known::Changes { plans, .. }) => Ok(Kept::Change(plans)),
            Some(Known::WithoutIndex { generation, session, .. }) => {
                let now = self.engine().store().snapshot().generation();
                Err(generation != now || session != self.version())
            }
            Some(Known::Other { session }) => Err(session != self.version()),
        }
    }

    /// The lookup of a plan with these values, if the plan is right for what the session sees now; else whether another plan is to
    /// be made.
    fn prepared_lookup(
        &self,
        plan: Arc<PointPlan>,
        given: &Given,
        transaction: Option<&Arc<SessionTransaction>>,
    ) -> std::result::Result<Lookup, bool> {
        let snapshot = match transaction {
            None => self.engine().store().snapshot(),
            // What is refused is refused in the usual way.
            Some(failed) if failed.status() == TransactionStatus::Failed => return Err(false),
            Some(transaction) => transaction.snapshot().map_err(|_| false)?,
        };
        if self.temporary_schema().is_some_and(|schema| plan.is_hidden(&snapshot, schema)) {
            return Err(false);
        }
        let table = plan.table(&snapshot, transaction.is_none(), self).ok_or(true)?;
        let key = plan.key(&table, &given.values, &given.types).ok_or(false)?;
        if let Some(transaction) = transaction {
            transaction.note_statement_read(table.number());
        }
        Ok(Lookup { plan, table, key })
    }

    /// Has a worker find the row, which waits for what is not in memory.
    fn look_up_on_worker(
        self: &Arc<Session>,
        sql: &str,
        lookup: Lookup,
        control: Arc<Control>,
        header: Header,
    ) -> Running {
        let (told, header_receiver) = oneshot::channel();
        let (messages, message_receiver) = mpsc::channel(MESSAGES_MAX);
        let running = Running::new(
            Arc::clone(&control),
            header_receiver,
            message_receiver,
            self.engine().executor(),
        );
        let sql = sql.to_owned();
        let share = Some(control.share);
        let work = move || async move {
            // The reader, who may be gone, hears of a cancellation from the token.
            told.send(Ok(header)).ok();
            let found = lookup.found().await;
            control.end(found.is_err());
            let last = match found {
                Ok(batch) => {
                    if let Some(batch) = batch {
                        messages.send(Message::Batch(batch)).await.ok();
                    }
                    Message::Finished { rows_affected: None }
                }
                Err(error) => Message::Failed(locate(error, &sql)),
            };
            messages.send(last).await.ok();
        };
        let runtime = &self.engine().runtime;
        drop(runtime.spawn_in(share, runtime.next_of(runtime.workers()), work));
        running
    }
}

impl Lookup {
    /// The result, if it can be had without waiting; in a transaction with changes of the table that wait, with these.
    ///
    /// # Errors
    /// Those of reading and of expressions.
    fn resident(
        &self,
        waiting: Option<&Arc<SessionTransaction>>,
    ) -> Result<Option<Option<RecordBatch>>> {
        let Key::Bytes(key) = &self.key else { return Ok(Some(None)) };
        let (index, projection) = (self.plan.index(), self.plan.projection());
        let found = match waiting {
            Some(transaction) => transaction.resident_row(&self.table, (index, key), projection)?,
            None => self.table.resident_row(index, key, projection)?,
        };
        match found {
            ResidentRow::Row(row) => Ok(Some(Some(self.plan.result_of(row.values)?))),
            ResidentRow::NoRow => Ok(Some(None)),
            ResidentRow::Unknown => Ok(None),
        }
    }

    /// The result, on a worker.
    ///
    /// # Errors
    /// As [`Lookup::resident`].
    async fn found(&self) -> Result<Option<RecordBatch>> {
        let Key::Bytes(key) = &self.key else { return Ok(None) };
        let (index, projection) = (self.plan.index(), self.plan.projection());
        let row = self.table.row_by_key(index, key, projection).await?;
        row.map(|row| self.plan.result_of(row.values)).transpose()
    }
}

/// The plan of a change for these values; else whether one is to be made.
fn plan_for(
    plans: &[Arc<ChangePlan>],
    given: &Given,
) -> std::result::Result<Arc<ChangePlan>, bool> {
    let Some(values) = given.arrays() else { return Err(false) };
    let found = plans.iter().find(|plan| plan.is_for(&values));
    found.cloned().ok_or(plans.len() < TYPES_MAX)
}

impl Run {
    /// Plans a statement for its next executions, if its plan can be kept, with values that its parameters have.
    async fn plan_kept(&self, KeptText { text: sql, given, .. }: &KeptText) {
        let plans = self.session.kept_plans();
        // Before all that the plan is made of is looked at.
        let session = self.session.version();
        let known = plans.get(sql);
        let Some(shape) = shape_of(known.as_ref(), sql) else {
            return plans.set(sql, Known::Other { session });
        };
        let made = match (&shape, given) {
            (KeptShape::Query(shape), _) => self.planned_point(shape, session).await,
            // Other values may do.
            (KeptShape::Change(_), given) if given.arrays().is_none() => return,
            (KeptShape::Change(shape), given) => {
                self.planned_change(shape, session, given, known.as_ref()).await
            }
        };
        let known = made.unwrap_or_else(|error| {
            log::debug!("a statement's plan is not kept: {error}");
            Known::Other { session }
        });
        plans.set(sql, known);
    }

    async fn planned_point(&self, shape: &Arc<Shape>, session: u64) -> Result<Known> {
        let catalog = self.session.statement_catalog(&self.control, Economy::InMemory)?;
        let generation = catalog.snapshot().generation();
        if catalog.context().index_use == IndexUse::Never {
            return Ok(Known::Other { session });
        }
        let shape = Arc::clone(shape);
        Ok(match PointPlan::make(&shape, &catalog, session).await? {
            Planned::Plan(plan) => Known::Planned { shape, plan: Arc::from(plan) },
            Planned::NoIndex => {
                Known::WithoutIndex { shape: KeptShape::Query(shape), generation, session }
            }
            Planned::NotSimple => Known::Other { session },
        })
    }

    async fn planned_change(
        &self,
        shape: &Arc<ChangeShape>,
        session: u64,
        given: &Given,
        known: Option<&Known>,
    ) -> Result<Known> {
        let catalog = self.session.statement_catalog(&self.control, Economy::InMemory)?;
        let generation = catalog.snapshot().generation();
        if catalog.context().index_use == IndexUse::Never {
            return Ok(Known::Other { session });
        }
        let shape = Arc::clone(shape);
        Ok(match ChangePlan::make(&shape, &catalog, session, given).await? {
            PlannedChange::Plan(plan) => {
                let before: &[Arc<ChangePlan>] = match known {
                    Some(Known::Changes { plans, .. }) => plans,
                    _ => &[],
                };
                let values = given.arrays().unwrap_or_default();
                let others = before.iter().filter(|plan| !plan.is_for(&values)).cloned();
                let plans = others.chain([Arc::from(plan)]).collect();
                Known::Changes { shape, plans }
            }
            PlannedChange::NoIndex => {
                Known::WithoutIndex { shape: KeptShape::Change(shape), generation, session }
            }
            PlannedChange::NotSimple => Known::Other { session },
        })
    }

    /// Executes a statement by its kept plan, which is made if there is none yet or what it follows from has changed; `None` if the
    /// usual way is to.
    ///
    /// # Errors
    /// Those of reading, of expressions, and of the store.
    pub(crate) async fn execute_kept(&self, kept: &KeptText) -> Result<Option<Started>> {
        for is_made in [false, true] {
            let executed = match self.session.kept_point(&kept.text, true) {
                Ok(Kept::Query(plan)) => {
                    let transaction = self.transaction.as_ref();
                    if let Some(transaction) = transaction {
                        transaction.settle_table(plan.table_name()).await?;
                    }
                    match self.session.prepared_lookup(plan, &kept.given, transaction) {
                        Ok(lookup) => return self.looked_up(lookup).await,
                        Err(plans) => Err(plans),
                    }
                }
                Ok(Kept::Change(plans)) => match plan_for(&plans, &kept.given) {
                    Ok(plan) => self.carry_out_kept(&plan, &kept.given).await?,
                    Err(plans) => Err(plans),
                },
                Err(plans) => Err(plans),
            };
            match executed {
                Ok(started) => return Ok(started),
                Err(true) if !is_made => {
                    self.plan_kept(kept).await;
                    if !kept.runs_at_once {
                        return Ok(None);
                    }
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The result of a point query; `None` if the usual way is to tell of an error.
    ///
    /// # Errors
    /// Those of reading and of expressions.
    async fn looked_up(&self, lookup: Lookup) -> Result<Option<Started>> {
        let schema = Arc::clone(lookup.plan.schema());
        let batch = match lookup.resident(None) {
            Ok(Some(found)) => found,
            // The usual way tells of errors as it does of those of other statements.
            Err(_) => return Ok(None),
            Ok(None) => {
                let runtime = &self.session.engine().runtime;
                let worker = runtime.next_of(runtime.workers());
                let find = move || async move { lookup.found().await };
                let found = runtime.spawn_in(Some(self.control.share), worker, find).await;
                found.map_err(|error| SqlError::from(weft_store::StoreError::from(error)))??
            }
        };
        let rows = futures::stream::iter(batch.map(Ok));
        Ok(Some(Started::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))))
    }
}

/// What a text says, if it is a statement whose plan may be kept.
fn shape_of(known: Option<&Known>, sql: &str) -> Option<KeptShape> {
    match known {
        Some(Known::WithoutIndex { shape, .. }) => Some(shape.clone()),
        Some(Known::Planned { shape, .. }) => Some(KeptShape::Query(Arc::clone(shape))),
        Some(Known::Changes { shape, .. }) => Some(KeptShape::Change(Arc::clone(shape))),
        _ => match Shape::of(sql).ok()? {
            Some(shape) => Some(KeptShape::Query(Arc::new(shape))),
            None => {
                let shape = ChangeShape::of(sql).ok()??;
                Some(KeptShape::Change(Arc::new(shape)))
            }
        },
    }
}
