//! BEGIN and COMMIT in the forms that programs write, without a parser and its thread: the thread that starts it begins a
//! transaction, and a worker commits one.

use std::sync::Arc;

use arrow::datatypes::Schema;
use tokio::sync::{mpsc, oneshot};

use crate::control::Control;
use crate::error::Result;
use crate::locate::locate;
use crate::running::{Header, MESSAGES_MAX, Message, ResultKind, Running};
use crate::session::Session;
use crate::transaction_statement::Modes;
use crate::transactions::{SessionTransaction, TransactionStatus};

const BEGIN: [&str; 3] = ["BEGIN", "BEGIN TRANSACTION", "START TRANSACTION"];
const COMMIT: [&str; 3] = ["COMMIT", "END", "COMMIT TRANSACTION"];

/// Whether a statement is one of these, which may end with a semicolon.
fn is_one_of(sql: &str, statements: &[&str]) -> bool {
    let sql = sql.trim_end().trim_end_matches(';').trim();
    statements.iter().any(|statement| sql.eq_ignore_ascii_case(statement))
}

impl Session {
    /// Starts BEGIN or COMMIT, if the statement is one in a simple form, and right where it is; `None` if the usual way is to tell.
    pub(crate) fn start_transaction_at_once(self: &Arc<Session>, sql: &str) -> Option<Running> {
        match self.transaction() {
            None if is_one_of(sql, &BEGIN) => {
                let control = self.final_control(None)?;
                self.begin_transaction(Modes::default()).ok()?;
                Some(Running::ended(control, header("BEGIN"), None))
            }
            Some(transaction)
                if transaction.status() == TransactionStatus::InTransaction
                    && is_one_of(sql, &COMMIT) =>
            {
                let control = self.final_control(Some(&transaction))?;
                self.end_transaction(&transaction);
                Some(self.commit_on_worker(sql, transaction, control))
            }
            _ => None,
        }
    }

    /// What controls a statement that cannot be cancelled any more.
    fn final_control(&self, transaction: Option<&Arc<SessionTransaction>>) -> Option<Arc<Control>> {
        let control = Arc::new(Control::of(self.engine()).within(transaction));
        control.note_final();
        control.begin_commit().ok()?;
        Some(control)
    }

    fn commit_on_worker(
        &self,
        sql: &str,
        transaction: Arc<SessionTransaction>,
        control: Arc<Control>,
    ) -> Running {
        let (told, header_receiver) = oneshot::channel();
        let (messages, message_receiver) = mpsc::channel(MESSAGES_MAX);
        let executor = self.engine().executor();
        let running =
            Running::new(Arc::clone(&control), header_receiver, message_receiver, executor);
        let (sql, share) = (sql.to_owned(), Some(control.share));
        let work = move || async move {
            // The reader may be gone: what it has committed stays.
            told.send(Ok(header("COMMIT"))).ok();
            let committed: Result<()> = transaction.commit().await;
            drop(transaction);
            control.end(committed.is_err());
            let last = match committed {
                Ok(()) => Message::Finished { rows_affected: None },
                Err(error) => Message::Failed(locate(error, &sql)),
            };
            messages.send(last).await.ok();
        };
        let runtime = &self.engine().runtime;
        drop(runtime.spawn_in(share, runtime.next_of(runtime.workers()), work));
        running
    }
}

fn header(tag: &'static str) -> Header {
    let kind = ResultKind::Command { tag, rows_affected: None };
    Header { schema: Arc::new(Schema::empty()), kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_forms_are_told_from_others() {
        for sql in ["BEGIN", "begin;", " Start Transaction ; "] {
            assert!(is_one_of(sql, &BEGIN), "{sql}");
        }
        for sql in ["BEGIN READ ONLY", "BEGIN; COMMIT", "", "BEGIN WORK"] {
            assert!(!is_one_of(sql, &BEGIN), "{sql}");
        }
        for sql in ["END", "commit ;"] {
            assert!(is_one_of(sql, &COMMIT), "{sql}");
        }
        assert!(!is_one_of("COMMIT AND CHAIN", &COMMIT));
    }
}
