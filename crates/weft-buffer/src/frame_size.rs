//! Frame sizes: four per octave from 4 KiB to 1 MiB, so that a page wastes at most a quarter of its frame.

use crate::page::PAGE_UNIT_BYTES;

/// Number of frame sizes.
pub(crate) const FRAME_SIZES: usize = 28;

/// Units of 4 KiB of each size: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …, 256.
const UNITS: [u16; FRAME_SIZES] = {
    let mut units = [1; FRAME_SIZES];
    let mut size = 1;
    while size < FRAME_SIZES {
        // The step is a quarter of the octave that it is in.
        let mut step = 1;
        while step * 8 <= units[size - 1] {
            step *= 2;
        }
        units[size] = units[size - 1] + step;
        size += 1;
    }
    units
};

/// The smallest size for each number of units, from 0 to 256.
const SIZE_OF: [u8; 257] = {
    let mut sizes = [0; 257];
    let (mut units, mut size) = (1, 0);
    while units < sizes.len() {
        if UNITS[size] < units as u16 {
            size += 1;
        }
        sizes[units] = size as u8;
        units += 1;
    }
    sizes
};

/// A size of frames, by its number: smaller sizes have smaller numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameSize(u8);

impl FrameSize {
    /// The smallest one that a page of `units` times 4 KiB fits.
    #[inline]
    pub(crate) fn of_units(units: usize) -> FrameSize {
        FrameSize(SIZE_OF[units])
    }

    /// The size with this number.
    #[inline]
    pub(crate) fn of_index(index: usize) -> FrameSize {
        assert!(index < FRAME_SIZES, "frame size {index}");
        FrameSize(index as u8)
    }

    /// All sizes, the smallest first.
    pub(crate) fn all() -> impl Iterator<Item = FrameSize> {
        (0..FRAME_SIZES).map(FrameSize::of_index)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub(crate) fn units(self) -> usize {
        usize::from(UNITS[self.index()])
    }

    #[inline]
    pub(crate) fn bytes(self) -> usize {
        self.units() * PAGE_UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_the_smallest_frame_that_fits() {
        let all: Vec<usize> = FrameSize::all().map(FrameSize::units).collect();
        let expected = [
            1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112,
            128, 160, 192, 224, 256,
        ];
        assert_eq!(all, expected);
        for units in 1..=256 {
            let size = FrameSize::of_units(units).units();
            let smallest = all.iter().find(|&&size| size >= units);
            assert_eq!(Some(&size), smallest, "{units} units");
            assert!(size * 4 <= units * 5, "{units} units waste more than a quarter of {size}");
        }
    }
}
