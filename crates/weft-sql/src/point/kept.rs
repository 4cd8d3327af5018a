//! Plans of a session's statements by their texts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change_plan::ChangePlan;
use super::change_shape::ChangeShape;
use super::plan::PointPlan;
use super::shape::Shape;

/// Texts that are remembered, at most.
const TEXTS_MAX: usize = 512;

/// Bytes of a text that is remembered, at most.
const TEXT_BYTES_MAX: usize = 4096;

/// What is known of statements with parameters that have run in a session.
#[derive(Debug, Default)]
pub(crate) struct KeptPlans {
    known: Mutex<HashMap<String, Known>>,
}

/// What is known of a text.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// It has run once, or was prepared.
    Seen,
    /// It is a point query or a change by key by its text, but there was no index for it in this generation of the database, and state
    /// of the session.
    WithoutIndex {
        shape: KeptShape,
        generation: u64,
        session: u64,
    },
    Planned {
        shape: Arc<Shape>,
        plan: Arc<PointPlan>,
    },
    /// A change by key, with a plan for each of some lists of types that its parameters have had.
    Changes {
        shape: Arc<ChangeShape>,
        plans: Arc<[Arc<ChangePlan>]>,
    },
    /// It is neither, in this state of the session.
    Other {
        session: u64,
    },
}

impl Known {
    fn has_plan(&self) -> bool {
        matches!(self, Known::Planned { .. } | Known::Changes { .. })
    }
}

/// What a text says.
#[derive(Clone, Debug)]
pub(super) enum KeptShape {
    Query(Arc<Shape>),
    Change(Arc<ChangeShape>),
}

impl KeptPlans {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many texts have plans.
    pub(crate) fn planned(&self) -> usize {
        self.lock().values().filter(|known| known.has_plan()).count()
    }

    /// What is known of a text.
    pub(super) fn get(&self, sql: &str) -> Option<Known> {
        self.lock().get(sql).cloned()
    }

    /// Notes that a text has run, or was prepared.
    pub(crate) fn note(&self, sql: &str) {
        if self.get(sql).is_none() {
            self.set(sql, Known::Seen);
        }
    }

    /// Notes what is known of a text.
    pub(super) fn set(&self, sql: &str, known: Known) {
        if sql.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut all = self.lock();
        if all.len() >= TEXTS_MAX && !all.contains_key(sql) {
            all.retain(|_, known| known.has_plan());
            if all.len() >= TEXTS_MAX {
                all.clear();
            }
        }
        all.insert(sql.to_owned(), known);
    }
}
