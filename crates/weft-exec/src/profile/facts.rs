//! What an operator tells of what it has done, in words and numbers.

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Hundredths.
    Percent,
}

/// A number worth knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is the number of, in the plural.
    pub name: &'static str,
    /// The number.
    pub value: u64,
    /// What it counts.
    pub unit: Unit,
}

/// What an operator tells.
pub type Facts = Vec<Fact>;

impl Fact {
    /// So many things.
    pub fn count(name: &'static str, value: u64) -> Fact {
        Fact { name, value, unit: Unit::Count }
    }

    /// So many hundredths.
    pub fn percent(name: &'static str, value: u64) -> Fact {
        Fact { name, value, unit: Unit::Percent }
    }

    /// So many bytes.
    pub fn bytes(name: &'static str, value: u64) -> Fact {
        Fact { name, value, unit: Unit::Bytes }
    }
}
