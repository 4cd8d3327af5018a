//! Conditions on strings and binaries.

use crate::predicate::Op;

/// A condition on bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Text<'a> {
    /// The bytes compare so with these.
    Compare(Op, &'a [u8]),
    /// The bytes are one of these, which are sorted.
    Among(Vec<&'a [u8]>),
    /// The bytes begin with these.
    Prefix(&'a [u8]),
}

impl Text<'_> {
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Compare(Op::Eq, value) => bytes == *value,
            Self::Compare(Op::NotEq, value) => bytes != *value,
            Self::Compare(op, value) => op.holds(bytes.cmp(value)),
            Self::Among(values) => values.binary_search(&bytes).is_ok(),
            Self::Prefix(prefix) => bytes.starts_with(prefix),
        }
    }

    /// What holds for every string of `len` bytes, if their length alone decides.
    pub(crate) fn decide(&self, len: usize) -> Option<bool> {
        match self {
            Self::Compare(Op::Eq, value) => (value.len() != len).then_some(false),
            Self::Compare(Op::NotEq, value) => (value.len() != len).then_some(true),
            Self::Compare(..) => None,
            Self::Among(values) => values.iter().all(|value| value.len() != len).then_some(false),
            Self::Prefix(prefix) => (prefix.len() > len).then_some(false),
        }
    }
}
