//! Random bytes, as hostile clients send them.

/// So many bytes; a third of them are zeros, which texts end with and lengths begin with.
pub fn noise(random: &mut fastrand::Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| if random.u8(..3) == 0 { 0 } else { random.u8(..) }).collect()
}
