//! The generated data of the experiments: made once, with a progress bar, opened on real or
//! simulated devices.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use weft_buffer::Devices;
use weft_rt::io::sim::SimDisk;
use weft_rt::io::{Access, File};

use crate::args::CommonArgs;
use crate::error::BenchError;
use crate::size_class::SizeClass;
use crate::tpch::{GenerateOptions, PageTable, Progress, Table, TableSpec, generate};

/// The table, generated if it is not there yet.
///
/// # Errors
/// [`BenchError::Tpch`] if it cannot be generated or what is there is not it.
pub fn table(
    table: Table,
    scale: f64,
    class: SizeClass,
    directories: &[PathBuf],
) -> Result<PageTable, BenchError> {
    let spec = TableSpec { table, scale_factor: scale, class, directories: directories.to_vec() };
    let bar = progress_bar("rows");
    let mut begun = false;
    let result = generate(&spec, GenerateOptions::default(), &mut |progress: Progress| {
        if !begun {
            begun = true;
            bar.set_message(format!("generating {} at scale {scale}", spec.table.name()));
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar.set_length(progress.rows_expected);
        bar.set_position(progress.rows_done);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    Ok(result?)
}

/// A directory of this process for the files of an experiment, gone with them when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below the directory for data; its name begins with `name`.
    ///
    /// # Errors
    /// [`BenchError::Io`] if it cannot be made.
    pub fn new(data: &Path, name: &str) -> Result<Scratch, BenchError> {
        let path = data.join(format!("{name}-{}", std::process::id()));
        let failed = |source| BenchError::Io { action: "create", path: path.clone(), source };
        std::fs::create_dir_all(&path).map_err(failed)?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// A bar for the runs of a sweep of `points` points. It is drawn between runs, never during one.
pub fn measuring(experiment: &'static str, points: usize, common: &CommonArgs) -> ProgressBar {
    let bar = progress_bar("runs").with_message(format!("measuring {experiment}"));
    bar.set_length(points as u64 * u64::from(common.repeat));
    bar
}

/// A bar on standard error that counts `unit`; hidden where that is no terminal, gone when dropped.
pub fn progress_bar(unit: &str) -> ProgressBar {
    let target = if stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let template = format!("{{msg}} {{wide_bar}} {{human_pos}}/{{human_len}} {unit}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).expect("the template is valid");
    ProgressBar::with_draw_target(None, target)
        .with_style(style)
        .with_finish(ProgressFinish::AndClear)
}

/// The table's files on the devices that they lie on.
///
/// # Errors
/// [`BenchError::File`] if one cannot be opened.
pub fn real_devices(table: &PageTable) -> Result<Devices, BenchError> {
    let files: Result<Vec<File>, _> =
        table.stripes.iter().map(|path| File::open(path, Access::Read)).collect();
    Ok(Devices::new(files?))
}

/// The table's files copied to a simulated disk, striped over its devices.
///
/// # Errors
/// [`BenchError::Io`] if one cannot be read.
pub fn simulated_devices(table: &PageTable, disk: &SimDisk) -> Result<Devices, BenchError> {
    let files: Result<Vec<File>, BenchError> = table
        .stripes
        .iter()
        .map(|path| {
            disk.load_from(path, path).map_err(|source| BenchError::Io {
                action: "load into the simulated disk",
                path: path.clone(),
                source,
            })
        })
        .collect();
    Ok(Devices::new(files?))
}
