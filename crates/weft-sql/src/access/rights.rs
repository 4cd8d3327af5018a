//! Sets of rights on tables, views and schemas.

use std::ops::BitOr;

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u16);

/// Each right with its letter in PostgreSQL's lists, in the order of these lists, and its word.
const KNOWN: [(Rights, char, &str); 8] = [
    (Rights::INSERT, 'a', "INSERT"),
    (Rights::SELECT, 'r', "SELECT"),
    (Rights::UPDATE, 'w', "UPDATE"),
    (Rights::DELETE, 'd', "DELETE"),
    (Rights::TRUNCATE, 'D', "TRUNCATE"),
    (Rights::REFERENCES, 'x', "REFERENCES"),
    (Rights::USAGE, 'U', "USAGE"),
    (Rights::CREATE, 'C', "CREATE"),
];

impl Rights {
    /// No right.
    pub(crate) const NONE: Rights = Rights(0);
    /// Reading rows.
    pub(crate) const SELECT: Rights = Rights(1);
    /// Adding rows.
    pub(crate) const INSERT: Rights = Rights(2);
    /// Changing rows.
    pub(crate) const UPDATE: Rights = Rights(4);
    /// Deleting rows.
    pub(crate) const DELETE: Rights = Rights(8);
    /// Deleting all rows at once.
    pub(crate) const TRUNCATE: Rights = Rights(16);
    /// Foreign keys that refer to the table.
    pub(crate) const REFERENCES: Rights = Rights(32);
    /// Naming what is in a schema, which all roles may.
    pub(crate) const USAGE: Rights = Rights(64);
    /// Making tables, views and sequences in a schema.
    pub(crate) const CREATE: Rights = Rights(128);

    /// All rights on a table or view.
    pub(crate) const OF_RELATION: Rights = Rights(63);
    /// All rights on a schema.
    pub(crate) const OF_SCHEMA: Rights = Rights(192);

    /// The right of a word in any case.
    pub(crate) fn named(word: &str) -> Option<Rights> {
        KNOWN
            .iter()
            .find(|(_, _, known)| known.eq_ignore_ascii_case(word))
            .map(|(right, ..)| *right)
    }

    /// The rights of letters; letters of no right are skipped.
    pub(crate) fn of_letters(letters: &str) -> Rights {
        let of = |letter| KNOWN.iter().find(|(_, known, _)| *known == letter);
        letters.chars().filter_map(of).fold(Rights::NONE, |all, (right, ..)| all | *right)
    }

    /// The letters of the rights, in PostgreSQL's order.
    pub(crate) fn letters(self) -> String {
        self.known().map(|(_, letter, _)| *letter).collect()
    }

    /// The words of the rights.
    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        self.known().map(|(_, _, word)| *word)
    }

    fn known(self) -> impl Iterator<Item = &'static (Rights, char, &'static str)> {
        KNOWN.iter().filter(move |(right, ..)| self.has_all(*right))
    }

    /// True if all rights of another set are among these.
    pub(crate) fn has_all(self, others: Rights) -> bool {
        self.0 & others.0 == others.0
    }

    /// The rights that another set does not have.
    pub(crate) fn without(self, others: Rights) -> Rights {
        Rights(self.0 & !others.0)
    }

    /// True of no rights.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_rights() {
        let rights = Rights::SELECT | Rights::INSERT;
        assert_eq!(rights.letters(), "ar");
        assert_eq!(Rights::of_letters("ra"), rights);
        assert_eq!(Rights::OF_RELATION.letters(), "arwdDx");
        assert_eq!(Rights::named("truncate"), Some(Rights::TRUNCATE));
        assert_eq!(rights.without(Rights::SELECT).words().collect::<Vec<_>>(), ["INSERT"]);
        assert!(!rights.has_all(Rights::SELECT | Rights::DELETE));
    }
}
