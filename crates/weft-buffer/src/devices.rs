//! The devices that pages lie on, by the number that page ids name them with.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weft_rt::io::File;

use crate::page::PageId;

/// Most devices that page ids can tell apart.
pub const DEVICES_MAX: usize = 256;

/// Files or block devices, opened, in the order of their numbers. Clones are the same set, which only
/// grows.
#[derive(Clone)]
pub struct Devices {
    slots: Arc<Slots>,
}

struct Slots {
    files: Box<[OnceLock<File>]>,
    count: Mutex<usize>,
}

impl Devices {
    /// Devices 0, 1, …; there may be none yet.
    ///
    /// # Panics
    /// If there are more than [`DEVICES_MAX`].
    pub fn new(files: Vec<File>) -> Devices {
        assert!(files.len() <= DEVICES_MAX, "{} devices", files.len());
        let slots = (0..DEVICES_MAX).map(|_| OnceLock::new()).collect();
        let devices = Devices { slots: Arc::new(Slots { files: slots, count: Mutex::new(0) }) };
        for file in files {
            devices.add(file).expect("not too many");
        }
        devices
    }

    /// Adds a device and returns its number; `None` if there are [`DEVICES_MAX`] already.
    pub fn add(&self, file: File) -> Option<u8> {
        let mut count = self.slots.count.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u8::try_from(*count).ok()?;
        self.slots.files[*count].set(file).expect("numbers are given out once");
        *count += 1;
        Some(number)
    }

    /// The device that a page lies on, if there is one of that number.
    #[inline]
    pub fn get(&self, id: PageId) -> Option<&File> {
        self.slots.files[usize::from(id.device())].get()
    }

    /// The device that a page lies on.
    ///
    /// # Panics
    /// If there is no device of that number.
    pub fn of(&self, id: PageId) -> &File {
        self.get(id).expect("the page's device was added")
    }

    /// Number of devices.
    pub fn count(&self) -> usize {
        *self.slots.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.slots.files.iter().map_while(OnceLock::get)
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files()).finish()
    }
}
