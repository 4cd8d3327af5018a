//! Open pipelines: what a part of a plan gives, before it is known where it goes.
//!
//! Rows may come from several heads, the branches of a UNION ALL or what a join matches and what it leaves over. Each
//! has a source and steps of its own, and puts the columns into the same registers; the steps after that are the same
//! for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_exec::Lane;
use weft_exec::pipeline::{Pipeline, Sink, Source};
use weft_exec::profile::Parts;
use weft_exec::program::{Operand, Program, Register, Step};
use weft_exec::sink::{Limit, Shared};

use super::description::Description;
use super::term::{Place, Term, common_lane, in_lane};

/// Where rows come from.
#[derive(Debug)]
pub(super) struct Head {
    source: Box<dyn Source>,
    inputs: Vec<Register>,
    /// The lanes of its own registers, which are the first ones.
    registers: Vec<Lane>,
    steps: Vec<Step>,
    /// Pipelines that must have ended.
    after: Vec<usize>,
    /// Heads before it, by their distance, whose pipelines must have ended.
    after_heads: Vec<usize>,
    label: String,
    labels: Vec<Label>,
}

/// What some steps do, in words.
#[derive(Clone, Debug)]
struct Label {
    text: String,
    /// The first of them; they go on to the next label's, or the sink's.
    start: usize,
}

/// Rows to be left out, and most rows that are wanted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) skip: u64,
    pub(super) fetch: Option<u64>,
}

impl Window {
    /// The rows of this window that another one, which looks at them only, lets through.
    pub(super) fn within(self, outer: Window) -> Window {
        let left = self.fetch.map(|fetch| fetch.saturating_sub(outer.skip));
        let fetch = match (left, outer.fetch) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Window { skip: self.skip.saturating_add(outer.skip), fetch }
    }
}

/// Whether rows come one after the other in the order that the plan promises, if it promises one.
#[derive(Debug)]
pub(super) enum InOrder {
    Yes,
    No,
    /// If the source is told so.
    OnRequest(Arc<AtomicBool>),
}

impl InOrder {
    /// Rows come in their order from now on, if they can; false if they do not.
    pub(super) fn request(&mut self) -> bool {
        if let InOrder::OnRequest(is_ordered) = self {
            is_ordered.store(true, Ordering::Relaxed);
            *self = InOrder::Yes;
        }
        matches!(self, InOrder::Yes)
    }
}

/// An open pipeline, or several.
#[derive(Debug)]
pub(super) struct Open {
    heads: Vec<Head>,
    /// The steps of all heads.
    pub(super) program: Program,
    pub(super) columns: Vec<Term>,
    pub(super) order: InOrder,
    /// What is let through to the sink.
    pub(super) window: Option<Window>,
    /// What the steps do, for EXPLAIN.
    labels: Vec<Label>,
    /// The first step that the sink needs, if it was told.
    sink_start: Option<usize>,
}

/// Pipelines in the order of their dependencies.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Those that are closed, and places for others.
    pipelines: Vec<Option<(Pipeline, Description)>>,
    /// Those that all later ones wait for.
    pub(super) first: Vec<usize>,
}

/// The numbers of pipelines that are still open: others can be made to wait for them.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) numbers: Vec<usize>,
    first: Vec<usize>,
}

impl Closed {
    /// The pipelines, and what they are in words.
    ///
    /// # Panics
    /// If one was not closed.
    pub(super) fn finish(self) -> (Vec<Pipeline>, Vec<Description>) {
        self.pipelines.into_iter().map(|closed| closed.expect("all pipelines are closed")).unzip()
    }
}

impl Open {
    /// The rows of a source with a column for each of `columns`, which are of a lane and something that is to be known
    /// of it.
    pub(super) fn new(
        source: Box<dyn Source>,
        label: impl Into<String>,
        lanes: &[Lane],
        columns: impl FnOnce(&[Register]) -> Vec<Term>,
    ) -> Open {
        let mut program = Program::default();
        let inputs: Vec<Register> = lanes.iter().map(|lane| program.register(*lane)).collect();
        let columns = columns(&inputs);
        let head = Head {
            source,
            inputs,
            registers: Vec::new(),
            steps: Vec::new(),
            after: Vec::new(),
            after_heads: Vec::new(),
            label: label.into(),
            labels: Vec::new(),
        };
        Open {
            heads: vec![head],
            program,
            columns,
            order: InOrder::No,
            window: None,
            labels: Vec::new(),
            sink_start: None,
        }
    }

    /// The same, when these pipelines have ended.
    pub(super) fn after(mut self, pipelines: &[usize]) -> Open {
        self.wait_for(pipelines);
        self
    }

    /// Begins when these pipelines have ended.
    pub(super) fn wait_for(&mut self, pipelines: &[usize]) {
        self.heads.iter_mut().for_each(|head| head.after.extend_from_slice(pipelines));
    }

    /// Number of steps so far.
    pub(super) fn steps(&self) -> usize {
        self.program.steps.len()
    }

    /// Says for EXPLAIN what the steps from `start` on do.
    pub(super) fn label(&mut self, start: usize, text: impl Into<String>) {
        self.labels.push(Label { text: text.into(), start });
    }

    /// The steps from here on are the sink's.
    pub(super) fn begin_sink(&mut self) {
        self.sink_start = Some(self.steps());
    }

    /// Gives the rows of all in one, those of `later` after the pipelines of those before have ended if it `waits`.
    ///
    /// # Panics
    /// If some have other columns than others, or a window.
    pub(super) fn union(mut opens: Vec<Open>, waits: bool) -> Open {
        debug_assert!(opens.iter().all(|open| open.window.is_none()), "windows come first");
        let width = opens.first().map_or(0, |open| open.columns.len());
        let lanes: Vec<Lane> = (0..width)
            .map(|column| {
                let not_null = opens
                    .iter()
                    .map(|open| &open.columns[column])
                    .filter(|term| term.place != Place::Null);
                let lane = common_lane(not_null.map(|term| term.lane));
                lane.unwrap_or(opens[0].columns[column].lane)
            })
            .collect();
        for open in &mut opens {
            let terms = std::mem::take(&mut open.columns);
            let in_lanes = terms.into_iter().zip(&lanes);
            open.columns =
                in_lanes.map(|(term, lane)| in_lane(&mut open.program, term, *lane)).collect();
        }
        let base = opens.iter().map(|open| open.program.registers.len()).max().unwrap_or(0);
        let mut program = Program::default();
        (0..base).for_each(|_| {
            program.register(Lane::Bool);
        });
        let registers: Vec<Register> = lanes.iter().map(|lane| program.register(*lane)).collect();
        let columns = (0..width)
            .map(|column| {
                let terms = opens.iter().map(|open| &open.columns[column]);
                joined(terms, registers[column], lanes[column])
            })
            .collect();
        let mut heads = Vec::new();
        for (number, mut open) in opens.into_iter().enumerate() {
            for (term, out) in open.columns.iter().zip(&registers) {
                open.program.steps.push(moved(term, *out));
            }
            for mut head in open.heads {
                if waits && number > 0 {
                    head.after_heads.extend(1..=heads.len());
                }
                head.absorb(&open.program, &open.labels);
                heads.push(head);
            }
        }
        let (window, labels, sink_start) = (None, Vec::new(), None);
        Open { heads, program, columns, order: InOrder::No, window, labels, sink_start }
    }

    /// Takes the next numbers for the pipelines, which are to be closed later. From here on, no head is added to them
    /// that waits for others.
    pub(super) fn reserve(&self, closed: &mut Closed) -> Reserved {
        let start = closed.pipelines.len();
        closed.pipelines.extend(self.heads.iter().map(|_| None));
        Reserved { numbers: (start..closed.pipelines.len()).collect(), first: closed.first.clone() }
    }

    /// Ends the pipelines in a sink; gives their numbers.
    pub(super) fn close(self, sink: Box<dyn Sink>, label: &str, closed: &mut Closed) -> Vec<usize> {
        let reserved = self.reserve(closed);
        self.close_as(&reserved, sink, label, closed);
        reserved.numbers
    }

    /// Ends the pipelines, which have numbers, in a sink.
    pub(super) fn close_as(
        self,
        reserved: &Reserved,
        sink: Box<dyn Sink>,
        label: &str,
        closed: &mut Closed,
    ) {
        let sink_steps = self.sink_start.map_or(0, |start| self.steps() - start);
        let Open { heads, program, window, labels, .. } = self;
        let mut label = label.to_owned();
        let sink = match window {
            None => sink,
            Some(Window { skip, fetch }) => {
                label.push_str(&match fetch {
                    Some(fetch) => format!(", rows {skip} to {}", skip.saturating_add(fetch)),
                    None => format!(", rows from {skip}"),
                });
                Box::new(Limit::new(sink, skip, fetch))
            }
        };
        let sinks = Shared::split(sink, heads.len());
        debug_assert_eq!(heads.len(), reserved.numbers.len(), "numbers for all pipelines");
        for (at, (mut head, sink)) in heads.into_iter().zip(sinks).enumerate() {
            head.absorb(&program, &labels);
            let before = head.after_heads.iter().map(|back| reserved.numbers[at - back]);
            let mut after: Vec<usize> =
                head.after.iter().chain(&reserved.first).copied().chain(before).collect();
            after.sort_unstable();
            after.dedup();
            let sink_start = head.steps.len() - sink_steps;
            let mut labels = head.labels;
            // Some do nothing.
            for at in (0..labels.len()).rev() {
                let end = labels.get(at + 1).map_or(sink_start, |next: &Label| next.start);
                if labels[at].start >= end {
                    labels.remove(at);
                }
            }
            let starts = labels.iter().map(|label| label.start).collect();
            let description = Description {
                source: head.label,
                steps: labels.into_iter().map(|label| label.text).collect(),
                sink: label.clone(),
                after: after.clone(),
                parts: Parts::new(starts, sink_start),
            };
            let program =
                Program { registers: head.registers, inputs: head.inputs, steps: head.steps };
            let pipeline = Pipeline { source: head.source, program, sink, after };
            closed.pipelines[reserved.numbers[at]] = Some((pipeline, description));
        }
    }
}

impl Head {
    /// Goes on with the steps of a program, whose registers begin behind its own.
    fn absorb(&mut self, program: &Program, labels: &[Label]) {
        let own = std::mem::take(&mut self.registers);
        self.registers = program.registers.clone();
        self.registers[..own.len()].copy_from_slice(&own);
        let before = self.steps.len();
        self.steps.extend_from_slice(&program.steps);
        let moved = |label: &Label| Label { text: label.text.clone(), start: before + label.start };
        self.labels.extend(labels.iter().map(moved));
    }
}

/// What is known of a column of all branches.
fn joined<'a>(terms: impl Iterator<Item = &'a Term>, out: Register, lane: Lane) -> Term {
    let joined = terms.cloned().reduce(|a, b| Term {
        is_nullable: a.is_nullable || b.is_nullable,
        bounds: match (&a.place, &b.place) {
            (Place::Null, _) => b.bounds,
            (_, Place::Null) => a.bounds,
            _ => a.bounds.zip(b.bounds).map(|(a, b)| a.join(b)),
        },
        has_few: [&a, &b].iter().all(|term| term.has_few || term.place == Place::Null),
        // Whatever it is, it is no null any more.
        place: if a.place == Place::Null { b.place } else { a.place },
        ..a
    });
    let joined = joined.expect("a branch at least");
    Term { lane, ..joined.moved(out) }
}

/// The step that puts a term into a register.
fn moved(term: &Term, out: Register) -> Step {
    match &term.place {
        Place::Register(a) => Step::Assign { a: Operand::Register(*a), out },
        Place::Constant(constant) => Step::Fill { value: Some(constant.clone()), out },
        Place::Null => Step::Fill { value: None, out },
    }
}

#[cfg(test)]
mod tests {
    use weft_exec::sink::Nothing;
    use weft_exec::source::Batches;

    use super::*;
    use datafusion::arrow::datatypes::DataType;

    /// An open pipeline with a column of integers, and other registers before it.
    fn open(others: usize) -> Open {
        let source = Box::new(Batches::new(Vec::new(), vec![Lane::I64]));
        let mut open = Open::new(source, "rows", &[Lane::I64], |registers| {
            vec![Term::new(registers[0], Lane::I64, &DataType::Int64, false)]
        });
        for _ in 0..others {
            open.program.register(Lane::Str);
        }
        open
    }

    #[test]
    fn windows_lie_within_windows() {
        let window = |skip, fetch| Window { skip, fetch };
        let inner = window(2, Some(10));
        assert_eq!(inner.within(window(3, Some(4))), window(5, Some(4)));
        assert_eq!(inner.within(window(3, Some(40))), window(5, Some(7)));
        assert_eq!(inner.within(window(30, None)), window(32, Some(0)));
        assert_eq!(window(2, None).within(window(3, None)), window(5, None));
    }

    #[test]
    fn branches_put_columns_into_the_same_registers() {
        let mut nulls = open(0);
        nulls.columns = vec![Term::null(&DataType::Int64)];
        let union = Open::union(vec![open(3), nulls, open(0)], false);
        assert!(union.columns[0].is_nullable);
        let mut closed = Closed::default();
        assert_eq!(union.close(Box::new(Nothing), "nothing", &mut closed), [0, 1, 2]);
        let (pipelines, descriptions) = closed.finish();
        let programs: Vec<&Program> = pipelines.iter().map(|pipeline| &pipeline.program).collect();
        assert!(programs.iter().all(|program| program.registers.len() == 5));
        assert!(programs.iter().all(|program| program.registers[4] == Lane::I64));
        assert_eq!(programs[0].registers[1], Lane::Str);
        assert!(matches!(programs[1].steps[..], [Step::Fill { value: None, out: Register(4) }]));
        assert!(matches!(programs[2].steps[..], [Step::Assign { out: Register(4), .. }]));
        assert_eq!(descriptions[0].to_string(), "rows → nothing");
    }

    #[test]
    fn steps_have_labels() {
        let mut open = open(1);
        let step = || Step::Fill { value: None, out: Register(1) };
        open.program.steps.push(step());
        open.label(1, "first");
        open.program.steps.extend([step(), step()]);
        open.label(3, "nothing to do");
        open.label(3, "second");
        open.program.steps.push(step());
        open.begin_sink();
        open.program.steps.push(step());
        let union = Open::union(vec![open], false);
        let mut closed = Closed::default();
        union.close(Box::new(Nothing), "nothing", &mut closed);
        let (_, descriptions) = closed.finish();
        assert_eq!(descriptions[0].to_string(), "rows → first → second → nothing");
        // The branch is put into the registers of all by one more step.
        assert_eq!(descriptions[0].parts, Parts::new(vec![1, 3], 6));
    }

    #[test]
    fn what_is_left_over_comes_last() {
        let both = Open::union(vec![open(0), open(0)], false);
        let rest = Open::union(vec![both, open(0)], true);
        let mut closed = Closed::default();
        closed.first = open(0).close(Box::new(Nothing), "nothing", &mut closed);
        assert_eq!(closed.first, [0]);
        assert_eq!(rest.close(Box::new(Nothing), "nothing", &mut closed), [1, 2, 3]);
        let (pipelines, _) = closed.finish();
        let after: Vec<&[usize]> = pipelines.iter().map(|pipeline| &pipeline.after[..]).collect();
        assert_eq!(after[1..], [&[0][..], &[0], &[0, 1, 2]]);
    }

    #[test]
    fn pipelines_are_waited_for_before_they_are_closed() {
        let mut closed = Closed::default();
        let build = open(0);
        let reserved = build.reserve(&mut closed);
        let asking = open(0).after(&reserved.numbers);
        assert_eq!(asking.close(Box::new(Nothing), "nothing", &mut closed), [1]);
        closed.first.push(1);
        build.close_as(&reserved, Box::new(Nothing), "build", &mut closed);
        let (pipelines, descriptions) = closed.finish();
        let texts: Vec<String> = descriptions.iter().map(Description::to_string).collect();
        assert_eq!(texts, ["rows → build", "rows → nothing"]);
        assert!(pipelines[0].after.is_empty());
        assert_eq!(pipelines[1].after, [0]);
    }
}
