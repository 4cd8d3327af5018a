//! What a database keeps beside tables and views, such as macros and schemas. The store keeps each as it keeps views, by a name that no view can have.

use weft_store::Snapshot;

use crate::temporary::is_temporary;

/// The first character of the names of what is no view.
pub(crate) const MARK: char = '\u{1}';

/// What a definition is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A macro, whose text is its CREATE MACRO.
    Macro,
    /// A schema, whose text is its CREATE SCHEMA.
    Schema,
    /// A sequence, whose text has its options (`sequences/mod.rs`).
    Sequence,
    /// A comment on a table, view or column (`comments.rs`).
    Comment,
    /// The owner of a table or view, and rights on it (`access/acl.rs`).
    Access,
    /// Rights on a schema.
    SchemaAccess,
    /// The owner of a sequence.
    SequenceAccess,
    /// The groups that a role is a member of.
    Membership,
    /// A type, whose text is the type in words (`enums/marks.rs`).
    Type,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Macro => "macro",
            Kind::Schema => "schema",
            Kind::Sequence => "sequence",
            Kind::Comment => "comment",
            Kind::Access => "access",
            Kind::SchemaAccess => "schema_access",
            Kind::SequenceAccess => "sequence_access",
            Kind::Membership => "membership",
            Kind::Type => "type",
        }
    }
}

/// The name by which the store keeps a definition.
pub(crate) fn stored_name(kind: Kind, name: &str) -> String {
    format!("{MARK}{} {name}", kind.word())
}

/// The name that a stored definition, without its mark, is of.
pub(crate) fn named(marked: &str) -> Option<&str> {
    marked.split_once(' ').map(|(_, name)| name)
}

/// The text of a definition.
pub(crate) fn text<'a>(snapshot: &'a Snapshot, kind: Kind, name: &str) -> Option<&'a str> {
    snapshot.view(&stored_name(kind, name))
}

/// The names of all definitions of a kind, in order.
pub(crate) fn names(snapshot: &Snapshot, kind: Kind) -> impl Iterator<Item = &str> {
    let start = stored_name(kind, "");
    snapshot.views().filter_map(move |(name, _)| name.strip_prefix(start.as_str()))
}

/// The views, and their texts.
pub(crate) fn views(snapshot: &Snapshot) -> impl Iterator<Item = (&str, &str)> {
    snapshot.views().filter(|(name, _)| !name.starts_with(MARK))
}

/// The views that stay, and their texts.
pub(crate) fn lasting_views(snapshot: &Snapshot) -> impl Iterator<Item = (&str, &str)> {
    views(snapshot).filter(|(name, _)| !is_temporary(name))
}

/// The tables that stay.
pub(crate) fn lasting_tables(snapshot: &Snapshot) -> impl Iterator<Item = &str> {
    snapshot.tables().filter(|name| !is_temporary(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_their_own() {
        assert_eq!(stored_name(Kind::Macro, "f"), "\u{1}macro f");
    }
}
