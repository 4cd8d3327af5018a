//! The page: one self-contained HTML document with every figure inline, the papers' claims beside what
//! this run measured, the machine, the settings and all points. No scripts, nothing loaded from
//! elsewhere. Each figure is there twice, for wide and for narrow screens; the style sheet shows one.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::claims::{Claim, claims};
use super::figures::{Figure, Section, experiment_title};
use super::svg::Layout;
use super::table::{by_experiment, header};
use super::{Machine, Point, Settings, columns};

const STYLE: &str = include_str!("page.css");

/// The page as HTML text.
pub fn page(
    machine: &Machine,
    settings: &Settings,
    points: &[Point],
    figures: &[Figure],
) -> String {
    let sections: Vec<Section> = Section::ALL
        .into_iter()
        .filter(|section| points.iter().any(|point| point.experiment == section.experiment()))
        .collect();
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Weft: what asynchronous I/O buys on this machine" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(machine, settings, points))
                main {
                    @for section in &sections { (section_markup(*section, points, figures)) }
                    // A report of something else than the papers' experiments lacks nothing.
                    @if points.is_empty() || sections.iter().any(|section| section.is_of_asynchronous_io()) { (missing(&sections)) }
                    @if !points.is_empty() { (tables(points)) }
                }
                footer {
                    p {
                        "Figures and claims: L. von Merzljak, P. Fent, T. Neumann, J. Giceva, “What Are You \
                        Waiting For? Use Coroutines for Asynchronous I/O to Hide I/O Latencies and Maximize \
                        the Read Bandwidth!”, ADMS 2022, measured on 64 cores (AMD EPYC 7713), 512 GiB and \
                        eight Samsung PM9A3 SSDs. Prefetching: Y. He, J. Lu, T. Wang, “CoroBase”, 2020/2021. Spilling: M. Kuschewski, J. Giceva, T. Neumann, V. Leis, “High-Performance Query Processing with NVMe Arrays: Spilling without Killing Performance”, SIGMOD 2025."
                    }
                    p { "GB are 10⁹ bytes, KiB 1,024 bytes. The same points: points.csv, points.jsonl." }
                }
            }
        }
    };
    document.into_string()
}

fn head(machine: &Machine, settings: &Settings, points: &[Point]) -> Markup {
    let simulated = points.iter().filter(|point| point.simulated).count();
    let wrong: Vec<&str> = points
        .iter()
        .filter_map(|point| point.answer.as_deref().filter(|answer| *answer != "correct"))
        .collect();
    html! {
        header {
            h1 { "What asynchronous I/O buys on this machine" }
            p.lead { "The experiments of the papers behind Weft, synchronous and asynchronous side by side." }
            @if simulated > 0 {
                p.notice {
                    strong { (if simulated == points.len() { "Simulated device." } else { "Partly simulated." }) }
                    (format!(" {simulated} of {} points come from a simulated device and say nothing about \
                        the disks of this machine. They are labelled wherever they are shown.", points.len()))
                }
            }
            @if let Some(first) = wrong.first() {
                p.notice.wrong {
                    strong { "Wrong answers." }
                    (format!(" {} of {} points did not get the right answer; the first: {first}.", wrong.len(),
                        points.len()))
                }
            }
            div.facts {
                (facts("Machine", &machine.rows()))
                @if !settings.entries.is_empty() || !settings.command.is_empty() {
                    (facts("Settings", &setting_rows(settings)))
                }
            }
        }
    }
}

fn setting_rows(settings: &Settings) -> Vec<(&str, String)> {
    let command =
        Some(("Command", settings.command.clone())).filter(|(_, value)| !value.is_empty());
    let entries = settings.entries.iter().map(|(name, value)| (name.as_str(), value.clone()));
    command.into_iter().chain(entries).collect()
}

fn facts(title: &str, rows: &[(&str, String)]) -> Markup {
    html! {
        section {
            h2 { (title) }
            dl { @for (name, value) in rows { dt { (name) } dd { (value) } } }
        }
    }
}

fn section_title(section: Section) -> &'static str {
    match section {
        Section::Table1 => "Table 1: what the devices can do",
        Section::Figure5 => "Figure 5: more throughput with fewer threads",
        Section::Figures6And7 => "Figures 6 and 7: no cliff when the data exceeds memory",
        Section::Figure8 => "Figure 8: index lookups",
        Section::Figure10 => "Figure 10: index-nested-loop joins",
        Section::Prefetch => "Prefetching: the same coroutines hide memory latency",
        Section::Probes => "Figure 5.1 of CoroBase: index probing",
        Section::Transactions => "Table 5.1, Figures 5.10 and 5.11 of CoroBase: TPC-C",
        Section::Ycsb => "Figures 5.2 to 5.8 of CoroBase: YCSB",
        Section::SpilledAggregation => "An aggregation that outgrows memory",
        Section::SpilledJoins => "Joins that outgrow memory",
        Section::SpilledSort => "A sort that outgrows memory",
        Section::Compression => "Compression of what is spilled",
        Section::Tpch => "TPC-H",
        Section::Tpcds => "TPC-DS",
    }
}

fn section_text(section: Section) -> &'static str {
    match section {
        Section::Table1 => "Plain reads, without a database: the bounds for everything below.",
        Section::Figure5 => {
            "TPC-H Q1 scans lineitem while a part of its pages is cached. A blocking thread has one read in \
            flight; an asynchronous one as many as its depth."
        }
        Section::Figures6And7 => "TPC-H Q1 again, from nothing cached to everything cached.",
        Section::Figure8 => {
            "TPC-H Q14 joins a selection of lineitem with part by index lookups: random reads of single pages."
        }
        Section::Figure10 => {
            "TPC-H Q4, Q5 and Q10, whose joins look rows up in indexes, from nothing cached to everything cached."
        }
        Section::Prefetch => {
            "A coroutine that prefetches and suspends lets others run during the cache miss."
        }
        Section::Probes => {
            "Requests of ten random keys, looked up in a B+tree in memory: by coroutines that prefetch and suspend, and by what they are compared with."
        }
        Section::Transactions => {
            "TPC-C without think times, read-only (TPC-CR) and with a query over stock and suppliers (TPC-CH), in memory: batches of transactions \
            whose coroutines prefetch and suspend, and what they are compared with. The twelve consistency conditions hold at the end."
        }
        Section::Ycsb => {
            "Transactions of some reads, updates, insertions or scans of one table: batches of them whose coroutines prefetch and suspend, and what \
            they are compared with; in memory, and where memory holds a part of the table. No update is lost at the end."
        }
        Section::SpilledAggregation => {
            "lineitem grouped by order and part, the least comment and instruction of each group: about as many groups as rows."
        }
        Section::SpilledJoins => {
            "lineitem with partsupp, whose wide columns go along, and lineitem with itself: two large sides."
        }
        Section::SpilledSort => "Every row of lineitem gets its number in the order of comments.",
        Section::Compression => {
            "What compression makes of the pages that the aggregation, the joins and the sort spill, and the processor time that it takes there."
        }
        Section::Tpch => {
            "The 22 queries: how much they get done over memory limits and scales, and what the longest of them do over their time."
        }
        Section::Tpcds => {
            "The 99 queries: how much they get done over memory limits and scales, and what the longest of them do over their time."
        }
    }
}

fn section_markup(section: Section, points: &[Point], figures: &[Figure]) -> Markup {
    html! {
        section.experiment {
            h2 { (section_title(section)) }
            p { (section_text(section)) }
            @if !claims(section).is_empty() { (claim_table(section, points)) }
            @for figure in figures.iter().filter(|figure| figure.section == section) {
                figure id=(figure.name) {
                    div.wide { (figure.chart.render(Layout::Wide)) }
                    div.narrow { (figure.chart.render(Layout::Narrow)) }
                }
            }
        }
    }
}

fn claim_table(section: Section, points: &[Point]) -> Markup {
    html! {
        table.claims {
            thead { tr { th { "The paper" } th { "This run" } } }
            tbody { @for claim in claims(section) { (claim_row(claim, section, points)) } }
        }
    }
}

fn claim_row(claim: &Claim, section: Section, points: &[Point]) -> Markup {
    let findings = claim.findings(section, points);
    let devices: std::collections::BTreeSet<_> = points
        .iter()
        .filter(|point| point.experiment == section.experiment())
        .map(columns::device)
        .collect();
    let simulated = points.iter().any(|point| point.simulated);
    html! {
        tr {
            td { (claim.paper) }
            td {
                @if findings.is_empty() { span.absent { "not measured in this run" } }
                @for finding in &findings {
                    div {
                        (finding.text)
                        @if devices.len() > 1 || simulated { " " span.device { "on " (finding.device) } }
                    }
                }
            }
        }
    }
}

fn missing(sections: &[Section]) -> Markup {
    let absent: Vec<Section> = Section::ALL
        .into_iter()
        .filter(|section| section.is_of_asynchronous_io() && !sections.contains(section))
        .collect();
    html! {
        @if !absent.is_empty() {
            section.experiment {
                h2 { "Not measured in this run" }
                ul { @for section in &absent { li { (section_title(*section)) } } }
            }
        }
    }
}

fn tables(points: &[Point]) -> Markup {
    html! {
        section.experiment {
            h2 { "All points" }
            @for (experiment, members) in by_experiment(points) {
                @let selection = columns::select(&members);
                details {
                    summary {
                        (experiment_title(experiment)) " · "
                        (super::units::plural(members.len() as u32, "point"))
                    }
                    p { (columns::caption(&selection.shared)) }
                    div.scroll { (table(&selection, &members)) }
                }
            }
        }
    }
}

fn table(selection: &columns::Selection, points: &[&Point]) -> Markup {
    let class = |column: &columns::Column| column.numeric.then_some("number");
    html! {
        table.points {
            thead {
                tr { @for column in &selection.columns { th class=[class(column)] { (header(column)) } } }
            }
            tbody {
                @for point in points {
                    tr {
                        @for column in &selection.columns {
                            td class=[class(column)] { ((column.cell)(point).unwrap_or_else(|| "–".into())) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{figures, synthetic};

    fn page_of(points: &[Point]) -> String {
        let machine = Machine { cpu: "CPU <&> model".into(), ..Machine::default() };
        let entries = vec![("Seed".to_string(), "42".to_string())];
        let settings = Settings { command: "weft-bench".into(), entries };
        page(&machine, &settings, points, &figures::figures(points))
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let text = page_of(&synthetic::paper_points());
        let text = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for reference in
            ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link"]
        {
            assert!(!text.contains(reference), "{reference}");
        }
    }

    #[test]
    fn claims_stand_beside_measurements() {
        let text = page_of(&synthetic::paper_points());
        assert!(text.contains("almost 15x") && text.contains("1,607,774"));
        assert!(text.contains("with 1 thread at depth 512"));
        assert!(text.contains("not measured in this run"));
        assert!(text.contains("Partly simulated."));
        assert!(text.contains("CPU &lt;&amp;&gt; model") && text.contains("weft-bench"));
    }

    #[test]
    fn no_points_is_a_page_that_says_so() {
        let text = page_of(&[]);
        assert!(text.contains("Not measured in this run") && !text.contains("<svg"));
        assert!(page_of(&[synthetic::complete_point()]).contains("<svg"));
    }

    #[test]
    fn wrong_answers_are_announced() {
        let answer = Some("sum differs".to_string());
        let text = page_of(&[Point { answer, ..synthetic::complete_point() }]);
        assert!(text.contains("Wrong answers.") && text.contains("sum differs"));
    }
}
