//! Which partitions of an operator go to disk when memory is short.

/// A choice of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpillMode {
    /// No more than have to (Spilly, section 4.3).
    #[default]
    Hybrid,
    /// All of them, once one has to, those of a join's probe side with those of its build side; to be measured against (Spilly,
    /// section 6.5).
    All,
}

impl SpillMode {
    /// All modes.
    pub const ALL: [SpillMode; 2] = [SpillMode::Hybrid, SpillMode::All];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SpillMode::Hybrid => "hybrid",
            SpillMode::All => "all",
        }
    }
}
