//! Copies of few bytes, whose number is not known before: most texts are short.

/// Copies `bytes`, up to 64 of them without a call: pieces from the front and from the end, which may overlap.
///
/// # Safety
/// There are so many at `from`, and room for them at `to`; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_exactly(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as promised; a piece is not longer than all bytes.
    unsafe {
        match bytes {
            0 => {}
            1..4 => {
                to.write(from.read());
                to.add(bytes / 2).write(from.add(bytes / 2).read());
                to.add(bytes - 1).write(from.add(bytes - 1).read());
            }
            4..8 => copy_ends::<4>(from, to, bytes),
            8..16 => copy_ends::<8>(from, to, bytes),
            16..=32 => copy_ends::<16>(from, to, bytes),
            33..=64 => copy_ends::<32>(from, to, bytes),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// Copies the first and the last `PIECE` of `bytes`, which are all of them.
///
/// # Safety
/// There are so many at `from`, and room for them at `to`; they do not overlap, and are a piece at least.
#[inline(always)]
unsafe fn copy_ends<const PIECE: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as promised.
    unsafe {
        let first = from.cast::<[u8; PIECE]>().read();
        let last = from.add(bytes - PIECE).cast::<[u8; PIECE]>().read();
        to.cast::<[u8; PIECE]>().write(first);
        to.add(bytes - PIECE).cast::<[u8; PIECE]>().write(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_written() {
        for bytes in 0..200 {
            let from: Vec<u8> = (1..=bytes as u8).collect();
            let mut to = vec![0; bytes + 2];
            // SAFETY: there are so many bytes, and room for them.
            unsafe { copy_exactly(from.as_ptr(), to.as_mut_ptr().add(1), bytes) };
            assert_eq!((to[0], &to[1..=bytes], to[bytes + 1]), (0, &from[..], 0));
        }
    }
}
