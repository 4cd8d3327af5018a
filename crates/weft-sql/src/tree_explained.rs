//! EXPLAIN (FORMAT tree): DataFusion's drawing of a plan as boxes.
//!
//! It cuts texts at bytes that it takes for characters, and panics within a character of several. So it is given a copy
//! of the plan that only shows itself, with everything beyond ASCII written as an escape.

use std::fmt::{self, Write};
use std::sync::Arc;

use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::plan_node::{Plan, plan_node, sources};

/// The drawing of a plan, so many characters wide at most; as wide as it is with 0.
pub(crate) fn tree(plan: &Plan, width_max: usize) -> String {
    let shown = Shown::of(plan);
    DisplayableExecutionPlan::new(&shown)
        .set_tree_maximum_render_width(width_max)
        .tree_render()
        .to_string()
}

/// A node that shows itself as another does, in ASCII.
#[derive(Debug)]
struct Shown {
    name: String,
    plan: Plan,
    inputs: Vec<Plan>,
}

impl Shown {
    fn of(plan: &Plan) -> Shown {
        let input = |input: &Plan| Arc::new(Shown::of(input)) as Plan;
        let inputs = sources(plan).into_iter().map(input).collect();
        Shown { name: escaped(plan.name()), plan: Arc::clone(plan), inputs }
    }
}

/// A node's part of the text.
struct Details<'a>(&'a Plan);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as(DisplayFormatType::TreeRender, f)
    }
}

impl DisplayAs for Shown {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&Details(&self.plan).to_string()))
    }
}

impl ExecutionPlan for Shown {
    fn name(&self) -> &str {
        &self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Plan> {
        self.inputs.iter().collect()
    }

    fn replace_children(
        self: Arc<Self>,
        inputs: Vec<Plan>,
        _: datafusion::physical_plan::ReplaceChildrenOptions,
    ) -> DfResult<Plan> {
        let (name, plan) = (self.name.clone(), Arc::clone(&self.plan));
        Ok(Arc::new(Shown { name, plan, inputs }))
    }

    plan_node!();

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        internal_err!("a node that is shown is not executed")
    }
}

/// A text in ASCII: an arrow as one, other characters by their numbers.
fn escaped(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '→' => ascii.push_str("->"),
            '…' => ascii.push_str("..."),
            character if character.is_ascii() => ascii.push(character),
            character => {
                let written = write!(ascii, "{}", character.escape_unicode());
                debug_assert!(written.is_ok(), "writing to a string never fails");
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_ascii() {
        assert_eq!(escaped("a → b…\nz"), "a -> b...\nz");
        assert_eq!(escaped("Zürich 🦀"), "Z\\u{fc}rich \\u{1f980}");
    }
}
