//! The states of all aggregates of a query: where they lie in a group's tuple, which of them are shared, and what is made of
//! them in the end.
//!
//! avg is a sum and a count, and the variance of a column and its deviation have the same moments, so states with the same
//! function, arguments and filter exist once.

use std::sync::Arc;

use super::builder::Builder;
use super::functions::Aggregate;
use super::state::{Fed, Outcome, Tuple};
use crate::lane::Lane;
use crate::tuple::Layout;

/// The tuple of a group: keys, then states.
#[derive(Debug)]
pub(super) struct States {
    /// The keys are the first fields.
    pub(super) layout: Arc<Layout>,
    pub(super) states: Vec<Fed>,
    /// One for each aggregate.
    pub(super) outcomes: Vec<Box<dyn Outcome>>,
    /// True if groups can be spilled: what lies behind them is nothing but strings.
    pub(super) can_spill: bool,
    /// A group without rows, its keys not null.
    image: Vec<u64>,
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
        let can_spill = builder.can_spill;
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
        States { layout: Arc::new(layout), states, outcomes, can_spill, image }
    }

    /// Makes the tuple at an address a group without rows, of keys 0. Its header is 0, too.
    ///
    /// # Safety
    /// There is room for a tuple, and nobody else uses it while what is given is used.
    #[inline]
    pub(super) unsafe fn begin(&self, address: *mut u8) -> Tuple {
        // SAFETY: as promised; the image has the size of a tuple.
        unsafe {
            let image = self.image.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(image, address, self.layout.bytes());
            Tuple::at(address)
        }
    }
}
