//! Checking pairs of tuples by a condition that is not about keys, in turns: it may call what is not ours, and a vector of pairs
//! is many calls.

use std::sync::Arc;

use super::gather;
use super::lookup::Pairs;
use super::probe::Residual;
use crate::error::Result;
use crate::interpret::{Advance, Interpreter};
use crate::pace::Pace;
use crate::query::Context;
use crate::registers::Registers;
use crate::vector::VECTOR_ROWS_MAX;

/// Evaluates a [`Residual`]. A worker's.
pub(super) struct Check {
    residual: Arc<Residual>,
    interpreter: Interpreter,
}

impl Check {
    pub(super) fn new(residual: &Arc<Residual>, context: &Context) -> Check {
        let interpreter = Interpreter::new(residual.program.clone(), context);
        Check { residual: residual.clone(), interpreter }
    }

    /// Keeps the pairs for which the condition is true.
    ///
    /// # Errors
    /// What a step of the condition gives.
    pub(super) async fn retain_true(
        &mut self,
        registers: &Registers,
        pairs: &mut Pairs,
        pace: &mut Pace,
    ) -> Result<()> {
        if pairs.count() == 0 {
            return Ok(());
        }
        self.interpreter.let_others_run(!pace.is_unbroken());
        self.interpreter.begin(pairs.count());
        let own = self.interpreter.registers_mut();
        for (from, to) in &self.residual.inputs {
            gather(registers.vector(*from), pairs.rows(), own.vector_mut(*to));
        }
        let tuples = own.vector_mut(self.residual.tuples);
        tuples.validity.set_all();
        tuples.values_mut::<u64>()[..pairs.count()].copy_from_slice(pairs.tuples());
        let mut is_kept = [false; VECTOR_ROWS_MAX];
        loop {
            match self.interpreter.advance_once()? {
                Advance::Tuples => {
                    let kept = self.interpreter.registers().selected();
                    kept.for_each(|pair| is_kept[pair] = true);
                }
                Advance::Nothing => {}
                Advance::Waits => self.interpreter.wait(pace).await?,
                Advance::Ended => break,
            }
        }
        let mut kept = is_kept.iter();
        pairs.retain(|_, _| kept.next().is_some_and(|kept| *kept));
        pace.keep().await;
        Ok(())
    }
}
