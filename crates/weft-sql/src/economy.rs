//! How a statement is planned for the memory there is.
//!
//! Operators are chosen to be fast: pipelines, of which aggregations, joins, sorts and windows spill; what others keep must fit into
//! memory, as must partitions that a window function has to see as a whole. A statement that failed because it did not, and
//! has not returned a row yet, is planned once more: without sets of DISTINCT values and lists of those that have ranks, if it has
//! some (`distinct_groups.rs`, `ranked.rs`), then, if it was left to DataFusion because of some nodes, with pipelines for all others,
//! else with DataFusion's operators, of which most can spill; and if that fails because a join's
//! hash table does not fit, with some that can all spill; and at last by pipelines once more, all of that at most twice: whether
//! workers come to wait for each other's memory depends on who is first. A statement that only pipelines can execute is not left to
//! DataFusion. One that failed while the memory limit was lowered is planned
//! again as it was before that: what it could not spill any more was chosen for the limit that it began with.

use datafusion::common::config::{ConfigNonZeroUsize, ConfigOptions};

use crate::control::Control;
use crate::error::{ErrorKind, Result, SqlError};

/// Partitions of a frugal plan: at least two, or DataFusion plans no merge join.
const FRUGAL_PARTITIONS: (usize, usize) = (2, 4);

/// Rows that operators of a frugal plan pass on at a time.
const FRUGAL_BATCH_ROWS: usize = 2_048;

/// Of the memory limit, the part that all sorts of a plan together keep for merging what they have sorted.
const MERGE_MEMORY: usize = 16;

/// How often a statement is planned again as it was because the memory limit was lowered meanwhile.
pub(crate) const SURPRISES_MAX: usize = 16;

/// What matters more in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Economy {
    /// Time alone.
    InMemory,
    /// The same, but no set of DISTINCT values has to fit into memory, nor a list of those that have ranks.
    Grouped,
    /// Pipelines for all that has some, though DataFusion executes the rest.
    Carved,
    /// Time, but what can spill does.
    Fast,
    /// Memory.
    Frugal,
}

/// What is known of a statement that ran out of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    /// Pipelines have executed some of it.
    by_pipelines: bool,
    /// All of it was left to DataFusion because of some nodes.
    is_left_over: bool,
    /// Only pipelines can execute all of it.
    needs_pipelines: bool,
    /// It has sets of DISTINCT values, or lists of those that have ranks, that it can do without.
    has_sets: bool,
}

impl Tried {
    /// What a statement has noted.
    pub(crate) fn of(control: &Control) -> Tried {
        Tried {
            by_pipelines: control.has_pipelines(),
            is_left_over: control.is_left_over(),
            needs_pipelines: control.needs_pipelines(),
            has_sets: control.has_distinct(),
        }
    }
}

impl Economy {
    /// What is tried after this, for a statement that was tried so.
    pub(crate) fn next(self, tried: &Tried) -> Option<Economy> {
        match self {
            Economy::InMemory if tried.has_sets => Some(Economy::Grouped),
            _ if tried.needs_pipelines => None,
            Economy::InMemory | Economy::Grouped if tried.is_left_over => Some(Economy::Carved),
            Economy::InMemory | Economy::Grouped if tried.by_pipelines => Some(Economy::Fast),
            // DataFusion has executed it already, or just now.
            Economy::InMemory | Economy::Grouped | Economy::Carved | Economy::Fast => {
                Some(Economy::Frugal)
            }
            Economy::Frugal => None,
        }
    }

    /// True if it may be executed by pipelines.
    pub(crate) fn has_pipelines(self) -> bool {
        matches!(self, Economy::InMemory | Economy::Grouped | Economy::Carved)
    }

    /// Fits DataFusion's options to a memory limit in bytes.
    ///
    /// # Errors
    /// None: the sizes are not 0.
    pub(crate) fn configure(self, options: &mut ConfigOptions, limit_bytes: u64) -> Result<()> {
        let execution = &mut options.execution;
        if self == Economy::Frugal {
            let (least, most) = FRUGAL_PARTITIONS;
            execution.target_partitions = execution.target_partitions.clamp(least, most);
            let rows = execution.batch_size.get().min(FRUGAL_BATCH_ROWS);
            execution.batch_size = ConfigNonZeroUsize::try_new(rows)?;
            options.optimizer.prefer_hash_join = false;
        }
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        let merge_bytes = limit / MERGE_MEMORY / execution.target_partitions.max(1);
        execution.sort_spill_reservation_bytes =
            execution.sort_spill_reservation_bytes.min(merge_bytes);
        Ok(())
    }
}

/// True if a plan is made with the options of [`Economy::Frugal`].
pub(crate) fn is_frugal(options: &ConfigOptions) -> bool {
    !options.optimizer.prefer_hash_join
}

/// True if a statement that failed so may succeed with a frugal plan.
pub(crate) fn may_help(error: &SqlError) -> bool {
    error.kind() == ErrorKind::OutOfMemory && error.message().starts_with("out of memory: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_keep_a_part_of_a_small_limit() {
        let mut options = ConfigOptions::default();
        options.execution.target_partitions = 4;
        Economy::Fast.configure(&mut options, 64 << 20).unwrap();
        assert_eq!(options.execution.sort_spill_reservation_bytes, 1 << 20);
        assert!(options.optimizer.prefer_hash_join);
        let mut options = ConfigOptions::default();
        let default = options.execution.sort_spill_reservation_bytes;
        Economy::Fast.configure(&mut options, 64 << 30).unwrap();
        assert_eq!(options.execution.sort_spill_reservation_bytes, default);
    }

    #[test]
    fn frugal_plans_merge_few_partitions() {
        for (threads, partitions) in [(1, 2), (3, 3), (64, 4)] {
            let mut options = ConfigOptions::default();
            options.execution.target_partitions = threads;
            Economy::Frugal.configure(&mut options, 1 << 30).unwrap();
            assert_eq!(options.execution.target_partitions, partitions);
            assert_eq!(options.execution.batch_size.get(), FRUGAL_BATCH_ROWS);
            assert!(!options.optimizer.prefer_hash_join);
        }
    }

    #[test]
    fn plans_become_more_frugal() {
        use Economy::{Carved, Fast, Frugal, Grouped, InMemory};
        let ladder = |tried: Tried| {
            std::iter::successors(Some(InMemory), move |economy| economy.next(&tried))
                .skip(1)
                .collect::<Vec<_>>()
        };
        let tried = Tried::default();
        assert_eq!(ladder(tried), [Frugal]);
        let by_pipelines = Tried { by_pipelines: true, ..tried };
        assert_eq!(ladder(by_pipelines), [Fast, Frugal]);
        let has_sets = true;
        assert_eq!(ladder(Tried { has_sets, ..tried }), [Grouped, Frugal]);
        assert_eq!(ladder(Tried { has_sets, ..by_pipelines }), [Grouped, Fast, Frugal]);
        let needs_pipelines = Tried { needs_pipelines: true, ..by_pipelines };
        assert_eq!(ladder(needs_pipelines), []);
        assert_eq!(ladder(Tried { has_sets, ..needs_pipelines }), [Grouped]);
        let left_over = Tried { is_left_over: true, ..tried };
        assert_eq!(ladder(left_over), [Carved, Frugal]);
        assert_eq!(ladder(Tried { has_sets, ..left_over }), [Grouped, Carved, Frugal]);
    }

    #[test]
    fn only_memory_is_worth_another_try() {
        let error = |kind, message: &str| SqlError::new(kind, message);
        assert!(may_help(&error(ErrorKind::OutOfMemory, "out of memory: the sort needs …")));
        assert!(!may_help(&error(ErrorKind::OutOfMemory, "the temporary files need more")));
        assert!(!may_help(&error(ErrorKind::Data, "out of memory: a text")));
    }
}
