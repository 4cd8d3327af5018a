//! What one statement knows of the types of its files' columns, from one attempt to the next.
//!
//! The types of a large file are told from a sample. A value that does not fit ends the attempt; the next one looks at all
//! values before it plans, so that there is one more attempt at most for each file. It is an error once rows were returned, or when the columns of the result, which
//! its reader was told of, would have other types.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which samples did not do. Files go by the text that names them.
#[derive(Debug, Default)]
pub(crate) struct FileTypes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Those of which all values are looked at.
    wholly: HashSet<String>,
    /// Those whose columns come from a sample, which may lack some.
    sampled: HashSet<String>,
    /// A sample did not do, and no attempt was made since.
    has_misfits: bool,
    are_read: bool,
}

impl FileTypes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if all values of these files are to be looked at.
    pub(crate) fn wants_all(&self, files: &str) -> bool {
        self.lock().wholly.contains(files)
    }

    /// Notes that the statement reads files in their order.
    pub(crate) fn note_read(&self) {
        self.lock().are_read = true;
    }

    /// True if it does.
    pub(crate) fn are_read(&self) -> bool {
        self.lock().are_read
    }

    /// Notes that a value of these files does not fit what a sample told.
    pub(crate) fn note_misfit(&self, files: &str) {
        let mut inner = self.lock();
        // All values were looked at: the file has changed since, which another attempt might never end with.
        if inner.wholly.insert(files.to_owned()) {
            inner.has_misfits = true;
        }
    }

    /// Notes that these files' columns come from a sample.
    pub(crate) fn note_sampled(&self, files: &str) {
        self.lock().sampled.insert(files.to_owned());
    }

    /// Notes that the statement does not go together with the columns that there are. Those of all values may do.
    pub(crate) fn note_misplanned(&self) {
        let mut inner = self.lock();
        for files in std::mem::take(&mut inner.sampled) {
            inner.has_misfits |= inner.wholly.insert(files);
        }
    }

    /// True if another attempt may do, which is about to begin.
    pub(crate) fn begin_anew(&self) -> bool {
        let mut inner = self.lock();
        std::mem::take(&mut inner.has_misfits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_more_attempt_for_each_file() {
        let types = FileTypes::default();
        assert!(!types.begin_anew());
        types.note_misfit("a.csv");
        assert!(types.begin_anew() && !types.begin_anew());
        assert!(types.wants_all("a.csv") && !types.wants_all("b.csv"));
        types.note_misfit("a.csv");
        assert!(!types.begin_anew());
        types.note_misfit("b.csv");
        assert!(types.begin_anew());
    }

    #[test]
    fn columns_of_a_sample_are_looked_for_in_all_values_once() {
        let types = FileTypes::default();
        types.note_misplanned();
        assert!(!types.begin_anew());
        types.note_sampled("a.json");
        types.note_misplanned();
        assert!(types.begin_anew() && types.wants_all("a.json"));
        types.note_misplanned();
        assert!(!types.begin_anew());
    }
}
