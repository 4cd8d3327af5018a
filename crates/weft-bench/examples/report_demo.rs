//! Writes reports of SYNTHETIC points, invented numbers of plausible shape, to look at the figures:
//! `cargo run -p weft-bench --example report_demo -- DIRECTORY`. Nothing here was measured.

#[path = "../src/report/synthetic.rs"]
mod synthetic;

use std::path::Path;

use weft_bench::report::{self, LatencyUs, Machine, OverTime, Point, Settings, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: report_demo DIRECTORY")?;
    let target = Path::new(&target);
    let machine = Machine {
        date: "never: synthetic demo data".into(),
        ..Machine::detect(&[target.to_owned()])
    };
    let entries = [("Data", "synthetic, nothing was measured"), ("Repetitions", "5")];
    let settings = Settings {
        command: "report_demo".into(),
        entries: entries.map(|(name, value)| (name.to_string(), value.to_string())).to_vec(),
    };
    let mut mixed = synthetic::laptop_points();
    mixed.extend(synthetic::paper_points());
    let demos = [
        ("paper", synthetic::paper_points()),
        ("laptop", synthetic::laptop_points()),
        ("mixed", mixed),
        ("one", vec![synthetic::complete_point()]),
        ("none", Vec::new()),
    ];
    for (name, points) in demos {
        let written = report::write(&target.join(name), &machine, &settings, &points)?;
        println!("SYNTHETIC demo data, {name}: {} files", written.len());
        if name == "laptop" {
            print!("{}", table::render(&points, table::Layout::of_stdout()));
        }
    }
    Ok(())
}
