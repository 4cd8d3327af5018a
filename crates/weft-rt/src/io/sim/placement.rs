//! Which device of an array holds which bytes of a file.

/// Round-robin striping of one file over some of the array's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The device that holds the file's first stripe.
    pub first_device: usize,
    /// How many devices the file is spread over, from the first one on.
    pub devices: usize,
    /// Bytes in a row on one device.
    pub stripe_bytes: u64,
}

impl Placement {
    /// All bytes on one device.
    pub fn on_device(device: usize) -> Placement {
        Placement { first_device: device, devices: 1, stripe_bytes: u64::MAX }
    }

    /// Spread over the first `devices` devices.
    pub fn striped(devices: usize, stripe_bytes: u64) -> Placement {
        Placement { first_device: 0, devices, stripe_bytes }
    }

    /// Calls `visit(device, bytes)` for each piece of `[offset, offset + len)`; once, with 0 bytes,
    /// for an empty range.
    pub(crate) fn for_each_piece(&self, offset: u64, len: u64, mut visit: impl FnMut(usize, u64)) {
        let end = offset.saturating_add(len);
        let mut at = offset;
        loop {
            let stripe = at / self.stripe_bytes;
            let next = (stripe + 1).saturating_mul(self.stripe_bytes);
            let device = self.first_device + (stripe % self.devices as u64) as usize;
            visit(device, next.min(end) - at);
            if next >= end {
                return;
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(placement: Placement, offset: u64, len: u64) -> Vec<(usize, u64)> {
        let mut pieces = Vec::new();
        placement.for_each_piece(offset, len, |device, bytes| pieces.push((device, bytes)));
        pieces
    }

    #[test]
    fn ranges_are_cut_at_stripes() {
        let striped = Placement { first_device: 1, devices: 3, stripe_bytes: 100 };
        assert_eq!(pieces(striped, 0, 100), [(1, 100)]);
        assert_eq!(pieces(striped, 150, 300), [(2, 50), (3, 100), (1, 100), (2, 50)]);
        assert_eq!(pieces(striped, 200, 0), [(3, 0)]);
        assert_eq!(pieces(Placement::on_device(5), 1 << 40, 1 << 20), [(5, 1 << 20)]);
    }
}
