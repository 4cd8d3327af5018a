//! The places of a spill area: directories, and block devices of the database.

use std::path::PathBuf;
use std::sync::Arc;

use crate::directory::Directory;
use crate::lock::Lock;
use crate::space::Space;

/// Where pieces of a spill area lie.
#[derive(Clone, Debug)]
pub struct SpillPlace {
    pub(super) kind: Kind,
    /// Pieces come here only when no other place has room.
    pub(super) is_last_resort: bool,
}

/// What a place is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// In a file without a name in this directory, made when it is first needed.
    Directory(Directory),
    /// On the block device of this number, in what the database does not use of it. No manifest names that, so a crash
    /// leaves nothing of it.
    Block {
        space: Arc<Space>,
        number: u8,
        /// Nobody else opens the database, and takes what is free of it, meanwhile.
        _lock: Arc<Lock>,
    },
}

impl From<Directory> for SpillPlace {
    fn from(directory: Directory) -> SpillPlace {
        SpillPlace { kind: Kind::Directory(directory), is_last_resort: false }
    }
}

impl SpillPlace {
    /// What is free of device `number` of a database, a block device.
    pub(crate) fn block(space: Arc<Space>, number: u8, lock: Arc<Lock>) -> SpillPlace {
        SpillPlace { kind: Kind::Block { space, number, _lock: lock }, is_last_resort: false }
    }

    /// The same, for when no other place has room.
    pub(crate) fn last_resort(self) -> SpillPlace {
        SpillPlace { is_last_resort: true, ..self }
    }

    /// The directory, or the block device.
    pub(super) fn path(&self) -> PathBuf {
        match &self.kind {
            Kind::Directory(directory) => directory.path().into(),
            Kind::Block { space, number, .. } => {
                space.device(*number).map(|device| device.file.path().into()).unwrap_or_default()
            }
        }
    }
}
