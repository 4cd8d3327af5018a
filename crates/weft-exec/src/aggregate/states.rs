//! The states of all aggregates of a query: where they lie in a group's tuple, which of them are shared, and what is made of
//! them in the end.
//!
//! avg is a sum and a count, and the variance of a column and its deviation have the same moments, so states with the same
//! function, arguments and filter exist once.

use std::sync::Arc;

use super::builder::Builder;
use super::functions::Aggregate;
use super::groups::LONG_VALUES;
use super::memory::Memory;
use super::state::{Fed, Outcome, Tuple};
use crate::error::Result;
use crate::lane::Lane;
use crate::pace::Pace;
use crate::tuple::Layout;
use crate::vector::VECTOR_ROWS_MAX;

/// The tuple of a group: keys, then states.
#[derive(Debug)]
pub(super) struct States {
    /// The keys are the first fields.
    pub(super) layout: Arc<Layout>,
    pub(super) states: Vec<Fed>,
    /// One for each aggregate.
    pub(super) outcomes: Vec<Box<dyn Outcome>>,
    /// True if what lies behind them does not become smaller when it is merged.
    pub(super) has_lists: bool,
}

impl States {
    /// The states of `aggregates` over registers of these lanes, behind keys that may be null or not.
    ///
    /// # Panics
    /// If an aggregate's arguments or result are not of lanes that it has.
    pub(super) fn new(lanes: &[Lane], keys: &[(Lane, bool)], aggregates: &[Aggregate]) -> States {
        let mut builder = Builder::new(lanes, keys);
        aggregates.iter().for_each(|aggregate| builder.add(aggregate));
        let layout = Layout::new(&builder.fields).keeping(&builder.kept);
        let has_lists = builder.has_lists;
        let behind = builder.behind.into_iter().map(|make| make(&layout)).collect();
        let states: Vec<Fed> = builder.states.into_iter().map(|make| make(&layout)).collect();
        let outcomes = builder.outcomes.into_iter().map(|make| make(&layout)).collect();
        let mut image = vec![0u64; layout.bytes() / size_of::<u64>()];
        // SAFETY: the image is as large as a tuple, and nothing else uses it now.
        let tuple = unsafe { Tuple::at(image.as_mut_ptr().cast()) };
        for field in &layout.fields()[keys.len()..] {
            if let Some((byte, bit)) = field.null_place() {
                bytemuck::cast_slice_mut::<u64, u8>(&mut image)[byte] |= bit;
            }
        }
        states.iter().for_each(|fed| fed.state.begin(tuple));
        let layout = Arc::new(layout.with_behind(behind, keys.len(), image));
        States { layout, states, outcomes, has_lists }
    }

    /// Makes the tuple at an address a group without rows, of keys 0. Its header is 0, too.
    ///
    /// # Safety
    /// There is room for a tuple, and nobody else uses it while what is given is used.
    #[inline]
    pub(super) unsafe fn begin(&self, address: *mut u8) -> Tuple {
        // SAFETY: as promised; the image has the size of a tuple.
        unsafe {
            let image = self.layout.without_rows().as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(image, address, self.layout.bytes());
            Tuple::at(address)
        }
    }

    /// Copies what sets of a tuple have to a copy of it.
    ///
    /// # Errors
    /// None of sets.
    pub(super) fn copy_sets(&self, copy: Tuple, tuple: Tuple, memory: &mut Memory) -> Result<()> {
        if self.layout.behind().is_empty() {
            return Ok(());
        }
        for Fed { state, .. } in self.states.iter().filter(|fed| fed.state.is_set()) {
            state.begin(copy);
            state.merge(&[copy], &[tuple], memory)?;
        }
        Ok(())
    }

    /// Bytes that it takes to make the results of groups, those of a vector after the other.
    pub(super) async fn needs(&self, groups: &[Tuple]) -> u64 {
        if self.layout.behind().is_empty() {
            return 0;
        }
        let (mut most_bytes, mut kept_bytes) = (0, 0);
        let mut pace = Pace::default();
        for groups in groups.chunks(VECTOR_ROWS_MAX) {
            let (mut making_bytes, mut results_bytes) = (0, 0);
            for group in groups {
                for outcome in &self.outcomes {
                    let needs = match outcome.values(*group) < LONG_VALUES {
                        true => outcome.needs(*group),
                        false => outcome.needs_in_turns(*group, &mut pace).await,
                    };
                    making_bytes = needs.making_bytes.max(making_bytes);
                    results_bytes += needs.result_bytes;
                    kept_bytes += needs.kept_bytes;
                }
                pace.keep().await;
            }
            most_bytes = most_bytes.max(making_bytes + results_bytes);
        }
        most_bytes + kept_bytes
    }
}
