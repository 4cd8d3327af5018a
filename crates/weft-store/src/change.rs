//! What a commit can change.

use crate::alter::Alteration;
use crate::index::{Check, ForeignKey, IndexDefinition};
use crate::row_set::RowSet;
use crate::schema::TableSchema;
use crate::writer::WrittenGroups;

/// One change of a commit. The changes of a commit apply in order, all or none.
#[derive(Debug)]
pub enum Change {
    /// Makes an empty table.
    CreateTable {
        /// Name and columns.
        schema: TableSchema,
        /// Takes the place of the table of that name, if there is one.
        or_replace: bool,
    },
    /// Removes a table.
    DropTable {
        /// Its name.
        name: String,
        /// The identity that it must have, if the statement relies on it.
        expected: Option<u64>,
    },
    /// Gives a table another name.
    RenameTable {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// Changes a table's columns.
    AlterTable {
        /// The table's name.
        table: String,
        /// The identity that the table must have; none if an earlier change of this commit made or altered it.
        expected: Option<u64>,
        /// What becomes of it.
        alteration: Alteration,
    },
    /// Gives an index, a condition or a foreign key another name.
    RenameConstraint {
        /// The table's name.
        table: String,
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// Makes a view.
    CreateView {
        /// Its name.
        name: String,
        /// The query, as SQL text.
        sql: String,
        /// Takes the place of the view of that name, if there is one.
        or_replace: bool,
    },
    /// Removes a view.
    DropView {
        /// Its name.
        name: String,
    },
    /// Adds rows to the end of a table.
    Append {
        /// The table's name.
        table: String,
        /// The identity that the table must have; none if an earlier change of this commit made it.
        expected: Option<u64>,
        /// The rows.
        groups: WrittenGroups,
    },
    /// Makes an index of a table, of all rows that it has by then.
    CreateIndex {
        /// The table's name.
        table: String,
        /// The identity that the table must have; none if an earlier change of this commit made it.
        expected: Option<u64>,
        /// The index.
        definition: IndexDefinition,
    },
    /// Removes an index.
    DropIndex {
        /// Its name.
        name: String,
    },
    /// Makes an index anew, whatever its pages hold.
    Reindex {
        /// Its name.
        name: String,
    },
    /// Gives a table a condition, which all its rows satisfy.
    AddCheck {
        /// The table's name.
        table: String,
        /// The condition.
        check: Check,
    },
    /// Gives a table a foreign key, which all its rows satisfy.
    AddForeignKey {
        /// The table's name.
        table: String,
        /// The name of the referenced table, whose identity counts by then.
        parent: String,
        /// The foreign key.
        key: ForeignKey,
    },
    /// Takes a condition or a foreign key from a table.
    DropConstraint {
        /// The table's name.
        table: String,
        /// The constraint's name.
        name: String,
    },
    /// Removes rows of a table. An update of rows removes them and appends their successors in one commit.
    Delete {
        /// The table's name.
        table: String,
        /// The identity that the table must have; none if an earlier change of this commit made it.
        expected: Option<u64>,
        /// The ids of the rows, all of which must be there.
        rows: RowSet,
    },
    /// Removes all rows of a table.
    Truncate {
        /// The table's name.
        table: String,
        /// The identity that the table must have; none if an earlier change of this commit made it.
        expected: Option<u64>,
    },
    /// Sets an option for good, or takes it back.
    SetOption {
        /// Its name.
        name: String,
        /// Its value; none to take it back.
        value: Option<String>,
    },
}
