//! The parts of a pipeline that are told apart: its source, groups of steps, its sink.

/// A part of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartName {
    /// Where tuples come from.
    Source,
    /// A group of steps, by its number.
    Step(usize),
    /// Where they go.
    Sink,
}

/// Which steps belong to which part. Those before the first group are the source's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The first step of each group.
    groups: Vec<usize>,
    /// The first step that is the sink's.
    sink: usize,
}

impl Parts {
    /// Groups of steps that begin at these steps, and the first step behind them that is the sink's.
    ///
    /// # Panics
    /// If a group has no steps.
    pub fn new(groups: Vec<usize>, sink: usize) -> Parts {
        assert!(groups.windows(2).all(|pair| pair[0] < pair[1]), "groups in their order");
        assert!(groups.last().is_none_or(|last| *last < sink), "a group has steps");
        Parts { groups, sink }
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of parts.
    pub(super) fn count(&self) -> usize {
        self.groups.len() + 2
    }

    /// The place of a part among all.
    pub(super) fn place(&self, name: PartName) -> usize {
        match name {
            PartName::Source => 0,
            PartName::Step(group) => group + 1,
            PartName::Sink => self.count() - 1,
        }
    }

    /// The part that a step belongs to.
    pub(super) fn of_step(&self, step: usize) -> PartName {
        if step >= self.sink {
            return PartName::Sink;
        }
        match self.groups.partition_point(|start| *start <= step) {
            0 => PartName::Source,
            group => PartName::Step(group - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_belong_to_parts() {
        let parts = Parts::new(vec![1, 3], 4);
        let names: Vec<PartName> = (0..6).map(|step| parts.of_step(step)).collect();
        let [first, second] = [PartName::Step(0), PartName::Step(1)];
        assert_eq!(names, [PartName::Source, first, first, second, PartName::Sink, PartName::Sink]);
        assert_eq!(parts.place(PartName::Sink), 3);
        assert_eq!(Parts::default().of_step(0), PartName::Sink);
    }
}
