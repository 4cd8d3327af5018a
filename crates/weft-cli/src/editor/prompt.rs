//! The prompts.

/// Before a statement's first line.
pub const PROMPT: &str = "weft> ";
/// Before its other lines.
pub const CONTINUATION: &str = " ...> ";
