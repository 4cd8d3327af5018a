//! Where something lies in a spill area: device, offset and size in 64 bits.

use crate::extent::Extent;

const UNITS_BITS: u32 = 20;
const START_BITS: u32 = 36;

/// Units that one piece can have: 4 GiB.
pub(super) const PIECE_UNITS_MAX: u64 = (1 << UNITS_BITS) - 1;

/// Units that a device can have: 256 TiB.
pub(super) const DEVICE_UNITS_MAX: u64 = 1 << START_BITS;

/// A device (8 bits), its first unit there (36 bits), and how many units it has (20 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(u64);

impl Address {
    /// The address of an extent.
    ///
    /// # Panics
    /// If it lies farther behind, or is larger, than there are bits for.
    pub(super) fn of(extent: Extent) -> Address {
        let Extent { device, start, units } = extent;
        assert!(start < DEVICE_UNITS_MAX && units <= PIECE_UNITS_MAX, "{extent:?}");
        Address(u64::from(device) << (START_BITS + UNITS_BITS) | start << UNITS_BITS | units)
    }

    /// The extent at the address.
    pub(super) fn extent(self) -> Extent {
        Extent {
            device: (self.0 >> (START_BITS + UNITS_BITS)) as u8,
            start: (self.0 >> UNITS_BITS) & (DEVICE_UNITS_MAX - 1),
            units: self.0 & PIECE_UNITS_MAX,
        }
    }

    /// As it is written.
    pub(super) fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_come_back() {
        for device in [0, 1, 255] {
            for start in [0, 1, DEVICE_UNITS_MAX - 1] {
                for units in [1, 16, PIECE_UNITS_MAX] {
                    let extent = Extent { device, start, units };
                    assert_eq!(Address::of(extent).extent(), extent);
                }
            }
        }
    }
}
