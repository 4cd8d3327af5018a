//! What EXPLAIN shows of pipelines: a line for each part, its source, its steps and its sink; and with ANALYZE what each has
//! done, in columns, and what its operator tells.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::Result as DfResult;
use weft_exec::compile::{Compilation, Compiler};
use weft_exec::profile::{Done, Fact, Facts, PartDone, PartName, Profile, Turns, Unit};
use weft_exec::spill::{Levels, SpillCounts, level_name, sum};

use super::description::Description;
use super::exec::PipelinesExec;
use crate::sizes::{grouped, human_bytes};

/// Spaces between columns.
const GAP: &str = "  ";

/// What all pipelines of a statement have done together, and what it has spilled.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Processor time.
    pub(crate) cpu: Duration,
    /// Time that workers could not go on for devices, and for memory.
    pub(crate) waited_for_devices: Duration,
    /// See [`Totals::waited_for_devices`].
    pub(crate) waited_for_memory: Duration,
    /// How long tasks have run until they let others run.
    pub(crate) turns: Turns,
    /// Most bytes that were reserved at a time.
    pub(crate) memory_peak: u64,
    /// Bytes spilled, before compression, on disk, and read back.
    pub(crate) raw_bytes: u64,
    /// See [`Totals::raw_bytes`].
    pub(crate) written_bytes: u64,
    /// See [`Totals::raw_bytes`].
    pub(crate) read_bytes: u64,
    /// Pages spilled at each level of compression.
    pub(crate) levels: Levels,
    /// Workers.
    pub(crate) workers: usize,
}

impl Totals {
    /// Adds what the pipelines of a node have done.
    pub(crate) fn add(&mut self, exec: &PipelinesExec) {
        self.memory_peak = self.memory_peak.max(exec.memory_peak());
        self.workers = exec.workers();
        for profile in exec.executions().iter().flat_map(|profiles| profiles.iter()) {
            let done = profile.done();
            self.cpu += done.cpu;
            self.waited_for_devices += done.waited_for_devices;
            self.waited_for_memory += done.waited_for_memory;
            self.turns.merge(done.turns);
            self.add_spilled(profile.spilled());
        }
    }

    /// Adds what some have spilled.
    pub(crate) fn add_spilled(&mut self, spilled: &SpillCounts) {
        self.raw_bytes += spilled.raw_bytes();
        self.written_bytes += spilled.written_bytes();
        self.read_bytes += spilled.read_bytes();
        self.levels = sum([self.levels, sum(spilled.levels_over_time().iter())].iter());
    }

    /// What was spilled, in words; `None` if nothing was.
    pub(crate) fn spilled(&self) -> Option<String> {
        let Totals { raw_bytes, written_bytes, read_bytes, .. } = *self;
        (raw_bytes > 0).then(|| spilled_in_words(raw_bytes, written_bytes, read_bytes))
    }

    /// How many pages were spilled at which level, in words; `None` if nothing was spilled.
    pub(crate) fn levels(&self) -> Option<String> {
        (self.raw_bytes > 0).then(|| levels_in_words(&self.levels))
    }
}

/// A line of the report.
enum Line {
    /// Of its own form.
    Whole(String),
    /// In columns, all but the last of the same width in each line.
    Cells { name: [String; 2], numbers: [String; 3], facts: String },
}

/// The pipelines of a node. `began` is when the statement did, if it was executed and measured.
pub(crate) fn lines(exec: &PipelinesExec, began: Option<Instant>) -> Vec<String> {
    let executions = exec.executions();
    let measured = began.filter(|_| !executions.is_empty());
    let mut lines = Vec::new();
    if measured.is_some() {
        let name = ["", ""].map(str::to_owned);
        let numbers = ["rows in", "rows out", "CPU"].map(str::to_owned);
        lines.push(Line::Cells { name, numbers, facts: String::new() });
    }
    for (number, description) in exec.descriptions().iter().enumerate() {
        let of_pipeline = executions.iter().filter_map(|profiles| profiles.get(number));
        let profiles: Vec<&Arc<Profile>> = of_pipeline.collect();
        let mut heading = format!("pipeline {number}");
        if !description.after.is_empty() {
            let after: Vec<String> = description.after.iter().map(usize::to_string).collect();
            write_to(&mut heading, format_args!(", after {}", after.join(", ")));
        }
        if let Some(began) = measured {
            heading.push_str(&times(&profiles, began));
        }
        lines.push(Line::Whole(heading));
        lines.extend(profiles.iter().filter_map(|profile| compiled(profile)).map(Line::Whole));
        parts(description, &profiles, measured.is_some(), &mut lines);
    }
    aligned(&lines)
}

/// What was compiled of a pipeline, in words; `None` if nothing could be, or nothing was executed.
fn compiled(profile: &Profile) -> Option<String> {
    let Compilation { runs, runs_compiled, is_compiled, took, bytes, batches, batches_compiled } =
        profile.compilation()?;
    if !is_compiled || batches == 0 {
        return None;
    }
    let (took, bytes) = (took.as_secs_f64() * 1e3, human_bytes(bytes));
    let share = 100 * batches_compiled / batches;
    Some(format!(
        "{GAP}compiled in {took:.3} ms to {bytes}: {share} % of {} vectors, {runs_compiled} of {runs} runs of steps in the end",
        grouped(batches)
    ))
}

/// The code of the pipelines of a node.
///
/// # Errors
/// If the node has no pipelines.
pub(crate) fn code(exec: &PipelinesExec, compiler: &dyn Compiler) -> DfResult<Vec<String>> {
    let mut lines = Vec::new();
    for (number, code) in exec.code(compiler)?.into_iter().enumerate() {
        lines.push(format!("pipeline {number}"));
        if code.is_empty() {
            lines.push(format!("{GAP}nothing to compile"));
        }
        lines.extend(code.into_iter().map(|line| format!("{GAP}{line}")));
    }
    Ok(lines)
}

/// The lines of a pipeline's parts.
fn parts(
    description: &Description,
    profiles: &[&Arc<Profile>],
    is_measured: bool,
    lines: &mut Vec<Line>,
) {
    let steps = description.steps.iter().enumerate();
    let steps = steps.map(|(number, text)| (PartName::Step(number), text));
    let source = (PartName::Source, &description.source);
    let sink = (PartName::Sink, &description.sink);
    for (part, text) in [source].into_iter().chain(steps).chain([sink]) {
        let kind = match part {
            PartName::Source => "source",
            PartName::Step(_) => "step",
            PartName::Sink => "sink",
        };
        let name = [format!("{GAP}{kind}"), text.clone()];
        let (mut numbers, mut facts) = (<[String; 3]>::default(), String::new());
        if is_measured {
            let done = done(part, profiles);
            let PartDone { rows_in, rows_out, cpu, .. } = done;
            let of =
                |is_shown: bool, rows: u64| if is_shown { grouped(rows) } else { String::new() };
            let (is_source, is_sink) = (part == PartName::Source, part == PartName::Sink);
            numbers = [of(!is_source, rows_in), of(!is_sink, rows_out), seconds(cpu)];
            let told = profiles.last().map(|profile| profile.facts(part)).unwrap_or_default();
            let texts = [waits(&done), in_words(&told)];
            facts =
                texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
        }
        lines.push(Line::Cells { name, numbers, facts });
    }
    for profile in profiles {
        let spilled = profile.spilled();
        if spilled.raw_bytes() > 0 {
            let (raw_bytes, written_bytes) = (spilled.raw_bytes(), spilled.written_bytes());
            let bytes = spilled_in_words(raw_bytes, written_bytes, spilled.read_bytes());
            let slices = spilled.levels_over_time();
            let levels = levels_in_words(&sum(slices.iter()));
            let mut text = format!("{GAP}spilled {bytes}; pages by compression: {levels}");
            if let Some(course) = course(&slices) {
                write_to(&mut text, format_args!("; mostly, over time: {course}"));
            }
            lines.push(Line::Whole(text));
        }
    }
}

/// What a part has done in all executions.
fn done(part: PartName, profiles: &[&Arc<Profile>]) -> PartDone {
    profiles.iter().map(|profile| profile.part(part)).fold(PartDone::default(), |sum, done| {
        PartDone {
            rows_in: sum.rows_in + done.rows_in,
            rows_out: sum.rows_out + done.rows_out,
            cpu: sum.cpu + done.cpu,
            waited_for_devices: sum.waited_for_devices + done.waited_for_devices,
            waited_for_memory: sum.waited_for_memory + done.waited_for_memory,
        }
    })
}

/// When a pipeline ran, what it computed, and what it waited for.
fn times(profiles: &[&Arc<Profile>], began: Instant) -> String {
    let mut text = String::new();
    let dones: Vec<Done> = profiles.iter().map(|profile| profile.done()).collect();
    if let [done] = &dones[..] {
        let since = |at: Instant| seconds(at.saturating_duration_since(began));
        match (done.began, done.ended) {
            (Some(began), Some(ended)) => {
                write_to(&mut text, format_args!(": from {} to {}", since(began), since(ended)));
            }
            (Some(began), None) => write_to(&mut text, format_args!(": from {}", since(began))),
            _ => text.push_str(": not begun"),
        }
    } else {
        write_to(&mut text, format_args!(": {} times", dones.len()));
    }
    let total = |of: fn(&Done) -> Duration| seconds(dones.iter().map(of).sum());
    write_to(&mut text, format_args!(", CPU {}", total(|done| done.cpu)));
    let devices = total(|done| done.waited_for_devices);
    let memory = total(|done| done.waited_for_memory);
    write_to(&mut text, format_args!(", waited {devices} for SSD, {memory} for memory"));
    text
}

/// What a part has waited for, if it has for long enough to be shown.
fn waits(done: &PartDone) -> String {
    let waits = [(done.waited_for_devices, "SSD"), (done.waited_for_memory, "memory")];
    let shown = waits.into_iter().filter(|(time, _)| time.as_micros() >= 500);
    let words: Vec<String> =
        shown.map(|(time, what)| format!("waited {} for {what}", seconds(time))).collect();
    words.join(", ")
}

fn in_words(facts: &Facts) -> String {
    let word = |Fact { name, value, unit }: &Fact| match unit {
        Unit::Count => format!("{name} {}", grouped(*value)),
        Unit::Bytes => format!("{name} {}", human_bytes(*value)),
        Unit::Percent => format!("{name} {value} %"),
    };
    let words: Vec<String> = facts.iter().map(word).collect();
    words.join(", ")
}

fn spilled_in_words(raw_bytes: u64, written_bytes: u64, read_bytes: u64) -> String {
    let [raw, written, read] = [raw_bytes, written_bytes, read_bytes].map(human_bytes);
    format!("{raw} as {written} on disk, read back {read}")
}

fn levels_in_words(levels: &Levels) -> String {
    let levels = levels.iter().enumerate().filter(|(_, pages)| **pages > 0);
    let words: Vec<String> =
        levels.map(|(level, pages)| format!("{} {}", level_name(level), grouped(*pages))).collect();
    words.join(", ")
}

/// The level that most pages had, as it changed over time; `None` if it did not.
fn course(slices: &[Levels]) -> Option<String> {
    let written = slices.iter().filter(|levels| levels.iter().any(|pages| *pages > 0));
    let mut course: Vec<usize> = written
        .filter_map(|levels| {
            (0..levels.len()).max_by_key(|level| (levels[*level], usize::MAX - level))
        })
        .collect();
    course.dedup();
    let names: Vec<String> = course.into_iter().map(level_name).collect();
    (names.len() > 1).then(|| names.join(" → "))
}

/// A time in seconds.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

fn write_to(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let written = text.write_fmt(arguments);
    debug_assert!(written.is_ok(), "writing to a string never fails");
}

/// The lines as texts: names to the left of their columns, numbers to the right.
fn aligned(lines: &[Line]) -> Vec<String> {
    let mut widths = [0; 5];
    for line in lines {
        if let Line::Cells { name, numbers, .. } = line {
            for (width, cell) in widths.iter_mut().zip(name.iter().chain(numbers)) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }
    let text = |line: &Line| match line {
        Line::Whole(text) => text.clone(),
        Line::Cells { name, numbers, facts } => {
            let mut text = String::new();
            for (cell, width) in name.iter().zip(widths) {
                write_to(&mut text, format_args!("{cell:<width$}{GAP}"));
            }
            for (cell, width) in numbers.iter().zip(&widths[2..]) {
                write_to(&mut text, format_args!("{cell:>width$}{GAP}"));
            }
            text.push_str(facts);
            text.trim_end().to_owned()
        }
    };
    lines.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let cells = |name: [&str; 2], number: &str, facts: &str| Line::Cells {
            name: name.map(str::to_owned),
            numbers: [number.into(), String::new(), "1.000 s".into()],
            facts: facts.into(),
        };
        let lines = [
            cells(["  source", "scan"], "", "pages 3"),
            Line::Whole("pipeline 1".into()),
            cells(["  sink", "gröup"], "1,234", ""),
        ];
        assert_eq!(
            aligned(&lines),
            [
                "  source  scan            1.000 s  pages 3",
                "pipeline 1",
                "  sink    gröup  1,234    1.000 s"
            ]
        );
    }

    #[test]
    fn levels_over_time_are_told_where_they_change() {
        let slice = |level: usize, pages: u64| {
            let mut levels = Levels::default();
            levels[level] = pages;
            levels
        };
        let slices = [slice(0, 3), slice(0, 1), slice(2, 0), slice(1, 7)];
        assert_eq!(course(&slices).as_deref(), Some("off → lz4"));
        assert_eq!(course(&slices[..2]), None);
        assert_eq!(levels_in_words(&sum(slices.iter())), "off 4, lz4 7");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(seconds(Duration::from_micros(1_234_567)), "1.235 s");
    }
}
