//! What the rules of planning are told about one statement, among its options: none of these is a setting.

use std::any::Any;
use std::fmt::Debug;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{Result as DfResult, config_err};

/// What some rule is told.
pub(crate) trait Told: Clone + Debug + Send + Sync + 'static {
    /// A name of its own.
    const NAME: &'static str;
}

/// That, among the options.
#[derive(Clone, Debug)]
pub(crate) struct StatementOption<T>(pub(crate) T);

impl<T: Told> ConfigExtension for StatementOption<T> {
    const PREFIX: &'static str = T::NAME;
}

impl<T: Told> ExtensionOptions for StatementOption<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> DfResult<()> {
        config_err!("{key} is no setting")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
