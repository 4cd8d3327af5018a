//! Data made by a process of its own: what an allocator keeps of the memory that this takes is not what is to be measured.

use std::path::Path;
use std::process::Command;

use crate::args::CommonArgs;
use crate::error::BenchError;

/// Has this program, as another process, make the files of a scale that are missing, and load them into a database, if one is given.
///
/// # Errors
/// [`BenchError::Io`] if the process cannot be started, [`BenchError::Generation`] if it fails.
pub fn make(
    common: &CommonArgs,
    scale: f64,
    threads: u32,
    database: Option<&Path>,
) -> Result<(), BenchError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| BenchError::Io { action: "run", path, source }
    };
    let program = std::env::current_exe().map_err(failed(Path::new("this program")))?;
    let mut command = Command::new(&program);
    command.args(["data", "--data"]).arg(&common.data);
    command.args(["--scale", &scale.to_string(), "--threads", &threads.to_string()]);
    if let Some(database) = database {
        command.args(["--load", "--db"]).arg(database);
    }
    let status = command.status().map_err(failed(&program))?;
    if status.success() { Ok(()) } else { Err(BenchError::Generation(status)) }
}
