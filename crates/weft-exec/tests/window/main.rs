//! Window functions through the public interface.

mod case;
mod oracle;
mod random;
mod spilling;
