//! The devices that pages lie on, by the number that page ids name them with.

use weft_rt::io::File;

use crate::page::PageId;

/// Files or block devices, opened, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Devices {
    files: Vec<File>,
}

impl Devices {
    /// Devices 0, 1, ….
    ///
    /// # Panics
    /// If there are none or more than 256.
    pub fn new(files: Vec<File>) -> Devices {
        assert!((1..=256).contains(&files.len()), "{} devices", files.len());
        Devices { files }
    }

    /// The device that a page lies on.
    ///
    /// # Panics
    /// If there is no device of that number: page ids come from whoever set up the devices.
    pub fn of(&self, id: PageId) -> &File {
        &self.files[usize::from(id.device())]
    }

    /// All of them.
    pub fn files(&self) -> &[File] {
        &self.files
    }
}
