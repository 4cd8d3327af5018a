//! Changes of rows by key that the thread which starts them prepares, where nothing is waited for.
//!
//! Within a transaction that thread carries them out as well, if the transaction need not apply them before something reads their
//! table. Outside of one a worker commits them. Whatever is in the way leaves the statement to the usual way, as if it had not been
//! started: until the store has taken the changes, it has changed nothing.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};

use super::change::Prepared;
use super::change_plan::ChangePlan;
use super::{KeptText, plan_for};
use crate::control::Control;
use crate::economy::Economy;
use crate::error::{ErrorKind, SqlError};
use crate::locate::locate;
use crate::parameters::Bindings;
use crate::run::{Run, drive};
use crate::running::{Header, MESSAGES_MAX, Message, ResultKind, Running};
use crate::session::Session;

impl Session {
    /// Carries out a change whose plans for several types of parameters are kept, with these parameters in the usual way if that comes
    /// to be needed; `None` if the usual way is to from the beginning.
    pub(super) fn change_at_once(
        self: &Arc<Session>,
        sql: &str,
        plans: &[Arc<ChangePlan>],
        kept: &KeptText,
        parameters: impl FnOnce() -> Bindings,
    ) -> Option<Running> {
        let transaction = self.transaction();
        let plan = plan_for(plans, &kept.given).ok()?;
        if !plan.sequences().is_empty() {
            return None;
        }
        match &transaction {
            Some(transaction) => {
                let reads = plan.is_keyed() || plan.resolves_conflicts();
                if !transaction.refresh_now() || reads && transaction.has_waiting(plan.table_name())
                {
                    return None;
                }
            }
            // A row that another statement inserts meanwhile has the statement begin anew.
            None if plan.resolves_conflicts() => return None,
            // A worker has no clock for the time that a lock is waited for.
            None if self.waits_for_rows() && self.lock_timeout().is_some() => return None,
            None => {}
        }
        let control = Arc::new(Control::of(self.engine()).within(transaction.as_ref()));
        let run = Run {
            session: Arc::clone(self),
            control,
            sql: sql.into(),
            parameters: Bindings::Positional(Vec::new()),
            relations: Arc::new(HashMap::new()),
            economy: Economy::InMemory,
            kept: Some(kept.clone()),
            transaction,
        };
        let table = run.table_of(&plan).ok()?;
        if run.transaction.is_some() && !table.constraints().foreign_keys.is_empty() {
            return None;
        }
        // The usual way tells of errors as it does of those of other statements.
        let prepared = run.prepare_kept((&plan, &kept.given), &table).now_or_never()?.ok()??;
        if !prepared.changes.is_empty() && run.transaction.is_none() {
            let run = Run { parameters: parameters(), ..run };
            return Some(run.commit_on_worker(&plan, prepared));
        }
        run.carry_out_at_once(&plan, prepared)
    }
}

/// What is known of the result of a change before it has ended.
fn header(plan: &ChangePlan) -> Header {
    match plan.returned_schema() {
        Some(schema) => Header { schema: Arc::clone(schema), kind: ResultKind::Rows },
        None => {
            let kind = ResultKind::Command { tag: plan.tag, rows_affected: None };
            Header { schema: Arc::new(Schema::empty()), kind }
        }
    }
}

impl Run {
    fn carry_out_at_once(&self, plan: &ChangePlan, prepared: Prepared) -> Option<Running> {
        if !prepared.changes.is_empty() {
            let Prepared { changes, has_new_keys, .. } = prepared;
            self.transaction.as_ref()?.take_at_once(&self.control, changes, has_new_keys)?;
            self.control.note_final();
            self.control.progress.add_rows(prepared.affected);
        }
        self.control.end(false);
        let control = Arc::clone(&self.control);
        Some(match plan.returned_schema() {
            Some(_) => Running::ended(control, header(plan), prepared.returned),
            None => Running::ended_command(control, header(plan), prepared.affected),
        })
    }

    /// Has a worker commit a change. The statement begins anew in the usual way if another one has changed its row meanwhile.
    fn commit_on_worker(self, plan: &ChangePlan, prepared: Prepared) -> Running {
        let (told, header_receiver) = oneshot::channel();
        let (messages, message_receiver) = mpsc::channel(MESSAGES_MAX);
        let (control, executor) = (Arc::clone(&self.control), self.session.engine().executor());
        let running = Running::new(
            Arc::clone(&control),
            header_receiver,
            message_receiver,
            Arc::clone(&executor),
        );
        let runtime = Arc::clone(&self.session.engine().runtime);
        let (share, header) = (Some(control.share), header(plan));
        let work = move || async move {
            let Prepared { changes, affected, returned, has_new_keys } = prepared;
            let committed = tokio::select! {
                // First, so that a statement that could not be cancelled any more tells how it ended.
                biased;
                committed = self.commit_keys(changes, has_new_keys) => committed,
                // The reader hears of it from the token itself.
                () = control.token.cancelled() => return control.release_locks(),
            };
            match committed {
                Err(error) if error.kind() == ErrorKind::Conflict && !control.is_final() => {
                    executor.spawn(drive(self, told, messages));
                }
                Err(error) => {
                    let error: SqlError = locate(error, &self.sql);
                    control.release_locks();
                    control.end(true);
                    // Before the reader hears of the end: the database may be closed then.
                    drop(self);
                    told.send(Err(error)).ok();
                }
                Ok(()) => {
                    control.progress.add_rows(affected);
                    control.end(false);
                    drop(self);
                    told.send(Ok(header)).ok();
                    if let Some(batch) = returned {
                        messages.send(Message::Batch(batch)).await.ok();
                    }
                    messages.send(Message::Finished { rows_affected: Some(affected) }).await.ok();
                }
            }
        };
        drop(runtime.spawn_in(share, runtime.next_of(runtime.workers()), work));
        running
    }
}
