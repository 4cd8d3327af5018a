//! The script that runs before anything else: `~/.weftrc`, or the one that `--init` names.

use std::env;
use std::path::{Path, PathBuf};

use super::{Flow, Shell, explain};
use crate::args::ShellArgs;
use crate::error::ShellError;

/// The name of the script in the home directory.
const FILE: &str = ".weftrc";

/// Which script runs first.
#[derive(Clone, Debug)]
pub enum Init {
    /// None.
    None,
    /// The one in the home directory, if there is one.
    Home,
    /// The one that the command line names.
    File(PathBuf),
}

impl Init {
    /// As the command line says.
    pub fn of(args: &ShellArgs) -> Init {
        match &args.init {
            Some(path) => Init::File(path.clone()),
            None if args.no_init => Init::None,
            None => Init::Home,
        }
    }
}

impl Shell {
    /// Runs the script. At the keyboard, what fails in the one in the home directory is told and no more.
    ///
    /// # Errors
    /// If it fails.
    pub(super) fn run_init(&mut self) -> Result<Flow, ShellError> {
        match self.init.clone() {
            Init::None => Ok(Flow::Continue),
            Init::File(path) => self.run_file(&path),
            Init::Home => {
                let home = env::var_os("HOME").filter(|home| !home.is_empty());
                match home.map(|home| Path::new(&home).join(FILE)).filter(|path| path.exists()) {
                    Some(path) => self.run_home(&path),
                    None => Ok(Flow::Continue),
                }
            }
        }
    }

    fn run_home(&mut self, path: &Path) -> Result<Flow, ShellError> {
        if self.interactive {
            self.say(&format!("Running {}", path.display()));
        }
        match self.run_file(path) {
            Err(ShellError::Reported) if self.interactive => {
                self.failed = false;
                Ok(Flow::Continue)
            }
            Err(error @ ShellError::File { .. }) if self.interactive => {
                self.say(explain(&error).trim_end());
                Ok(Flow::Continue)
            }
            other => other,
        }
    }
}
