//! SQL as the shell sees it: tokens, and where one statement ends and the next begins. What a
//! statement means is the database's business.

pub mod encoding;
pub mod lexer;
pub mod splitter;
