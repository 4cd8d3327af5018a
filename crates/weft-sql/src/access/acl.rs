//! Who owns a table, view, sequence or schema, and which roles have which rights on it: its access control list.
//!
//! A list is kept among the definitions (`definitions.rs`) by the name of what it is about, follows that to another name, and goes with
//! it. Without one, [`OWNER`] owns it, and no other role has rights on it. The text has the owner in its first line, and a line for
//! each role with rights: their letters, a space, and the role's name, which is empty for PUBLIC.

use std::collections::BTreeMap;

use weft_store::{Change, Snapshot};

use crate::access::rights::Rights;
use crate::definitions::{self, Kind, stored_name};
use crate::postgres::OWNER;

/// The name of PUBLIC, all roles, in a list.
pub(crate) const PUBLIC: &str = "";

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) owner: String,
    /// Rights by the names of roles.
    pub(crate) granted: BTreeMap<String, Rights>,
}

impl Acl {
    /// The list of what has this name and is of this kind.
    pub(crate) fn of(snapshot: &Snapshot, kind: Kind, name: &str) -> Acl {
        match definitions::text(snapshot, kind, name) {
            Some(text) => Acl::parse(text),
            None => Acl::owned_by(OWNER),
        }
    }

    /// The list of what a role owns, without other roles.
    pub(crate) fn owned_by(owner: &str) -> Acl {
        Acl { owner: owner.to_owned(), granted: BTreeMap::new() }
    }

    fn parse(text: &str) -> Acl {
        let mut lines = text.lines();
        let owner = plain(lines.next().unwrap_or_default());
        let entry = |line: &str| {
            let (letters, role) = line.split_once(' ')?;
            Some((plain(role), Rights::of_letters(letters)))
        };
        Acl { owner, granted: lines.filter_map(entry).collect() }
    }

    fn text(&self) -> String {
        let mut text = escaped(&self.owner);
        for (role, rights) in &self.granted {
            text.push_str(&format!("\n{} {}", rights.letters(), escaped(role)));
        }
        text
    }

    /// The rights that a role has by its own name; [`PUBLIC`] for those of all roles.
    pub(crate) fn rights_of(&self, role: &str) -> Rights {
        self.granted.get(role).copied().unwrap_or_default()
    }

    /// Gives a role rights, or takes them away.
    pub(crate) fn change(&mut self, role: &str, rights: Rights, gives: bool) {
        let now = match gives {
            true => self.rights_of(role) | rights,
            false => self.rights_of(role).without(rights),
        };
        match now.is_empty() {
            true => drop(self.granted.remove(role)),
            false => drop(self.granted.insert(role.to_owned(), now)),
        }
    }

    /// The changes that keep the list of what has this name.
    pub(crate) fn kept(&self, snapshot: &Snapshot, kind: Kind, name: &str) -> Vec<Change> {
        if self.owner == OWNER && self.granted.is_empty() {
            return dropped(snapshot, kind, name);
        }
        vec![create(kind, name, self.text())]
    }

    /// The list as PostgreSQL shows it, the owner's own rights among it; `None` where only the owner has rights.
    pub(crate) fn items(&self, all: Rights) -> Option<Vec<String>> {
        if self.granted.is_empty() {
            return None;
        }
        let owner = item_name(&self.owner);
        let item = |role: &str, rights: Rights| {
            format!("{}={}/{owner}", item_name(role), rights.letters())
        };
        let own = item(&self.owner, all);
        let others = self.granted.iter().filter(|(role, _)| **role != self.owner);
        let others = others.map(|(role, rights)| item(role, *rights));
        Some(std::iter::once(own).chain(others).collect())
    }
}

/// The name of a role in a list as PostgreSQL shows it.
fn item_name(role: &str) -> String {
    let is_plain = role.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    match is_plain {
        true => role.to_owned(),
        false => format!("\"{}\"", role.replace('"', "\"\"")),
    }
}

/// A name without line breaks.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

/// The name that was escaped.
fn plain(escaped: &str) -> String {
    let mut name = String::with_capacity(escaped.len());
    let mut letters = escaped.chars();
    while let Some(letter) = letters.next() {
        name.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            letter => letter,
        });
    }
    name
}

fn create(kind: Kind, name: &str, text: String) -> Change {
    Change::CreateView { name: stored_name(kind, name), sql: text, or_replace: true }
}

/// The changes that drop the list of what is dropped.
pub(crate) fn dropped(snapshot: &Snapshot, kind: Kind, name: &str) -> Vec<Change> {
    let is_there = definitions::text(snapshot, kind, name).is_some();
    is_there.then(|| Change::DropView { name: stored_name(kind, name) }).into_iter().collect()
}

/// The changes that have the list of a table or view follow its new name.
pub(crate) fn renamed(snapshot: &Snapshot, from: &str, to: &str) -> Vec<Change> {
    let Some(text) = definitions::text(snapshot, Kind::Access, from) else { return Vec::new() };
    let mut changes = dropped(snapshot, Kind::Access, from);
    changes.push(create(Kind::Access, to, text.to_owned()));
    changes
}

/// The groups that a role is a member of by its own name.
pub(crate) fn memberships(snapshot: &Snapshot, role: &str) -> Vec<String> {
    let text = definitions::text(snapshot, Kind::Membership, role).unwrap_or_default();
    text.lines().map(plain).collect()
}

/// The changes that make a role a member of these groups alone.
pub(crate) fn set_memberships(snapshot: &Snapshot, role: &str, groups: &[String]) -> Vec<Change> {
    if groups.is_empty() {
        return dropped(snapshot, Kind::Membership, role);
    }
    let lines: Vec<String> = groups.iter().map(|group| escaped(group)).collect();
    vec![create(Kind::Membership, role, lines.join("\n"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_from_their_texts() {
        let mut acl = Acl::owned_by("ann");
        acl.change("b\nc\\d e", Rights::SELECT | Rights::DELETE, true);
        acl.change(PUBLIC, Rights::SELECT, true);
        assert_eq!(Acl::parse(&acl.text()), acl);
        acl.change("b\nc\\d e", Rights::SELECT | Rights::DELETE, false);
        assert_eq!(acl.text(), "ann\nr ");
    }

    #[test]
    fn lists_are_shown_as_those_of_postgresql() {
        let mut acl = Acl::owned_by("ann");
        assert_eq!(acl.items(Rights::OF_RELATION), None);
        acl.change("Bob", Rights::SELECT, true);
        acl.change("two words", Rights::INSERT, true);
        acl.change(PUBLIC, Rights::SELECT, true);
        let items = acl.items(Rights::OF_RELATION).unwrap();
        assert_eq!(items, ["ann=arwdDx/ann", "=r/ann", "Bob=r/ann", "\"two words\"=a/ann"]);
    }
}
