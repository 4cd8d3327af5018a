//! The pull parser: it goes through a text token by token, and checks each.

use crate::number::{BadNumber, Number};
use crate::words::special_from;
use crate::{DEPTH_MAX, JsonError, Result};

/// What a value begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peek {
    Null,
    True,
    False,
    Number,
    Text,
    Array,
    Object,
}

/// A parser within a text.
pub(crate) struct Pull<'a> {
    text: &'a str,
    at: usize,
    /// A text value whose escapes are replaced.
    unescaped: String,
}

impl<'a> Pull<'a> {
    /// A parser at the start of a text.
    pub(crate) fn new(text: &'a str) -> Pull<'a> {
        Pull { text, at: 0, unescaped: String::new() }
    }

    /// The byte of the text that comes next.
    pub(crate) fn current_index(&self) -> usize {
        self.at
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    #[cold]
    #[inline(never)]
    fn fail<T>(&self, problem: &str) -> Result<T> {
        match self.bytes().get(self.at) {
            None => Err(JsonError::at(self.at, format!("{problem}, but the text ends"))),
            Some(_) => Err(JsonError::at(self.at, problem)),
        }
    }

    /// Skips blanks, and looks at the byte after them.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Skips blanks, and tells what the next value is.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Peek> {
        Ok(match self.next_byte() {
            Some(b'{') => Peek::Object,
            Some(b'[') => Peek::Array,
            Some(b'"') => Peek::Text,
            Some(b't') => Peek::True,
            Some(b'f') => Peek::False,
            Some(b'n') => Peek::Null,
            Some(b'-' | b'0'..=b'9') => Peek::Number,
            _ => return self.fail("a value is expected"),
        })
    }

    #[inline]
    fn word(&mut self, word: &str) -> Result<()> {
        match self.bytes()[self.at..].starts_with(word.as_bytes()) {
            true => {
                self.at += word.len();
                Ok(())
            }
            false => self.fail("a value is expected"),
        }
    }

    /// Takes `null`.
    pub(crate) fn known_null(&mut self) -> Result<()> {
        self.word("null")
    }

    /// Takes `true` or `false`.
    pub(crate) fn known_bool(&mut self, peek: Peek) -> Result<bool> {
        let is_true = peek == Peek::True;
        self.word(if is_true { "true" } else { "false" })?;
        Ok(is_true)
    }

    /// Takes a number.
    #[inline]
    pub(crate) fn known_number(&mut self) -> Result<Number<'a>> {
        let start = self.at;
        match Number::parse(&self.text[start..]) {
            Ok(number) => {
                self.at += number.text.len();
                Ok(number)
            }
            Err(BadNumber::LeadingZero) => Err(JsonError::at(start, "a number begins with 0")),
            Err(BadNumber::NoDigit(at)) => {
                self.at += at;
                self.fail("a digit is expected")
            }
        }
    }

    /// Takes a text without replacing its escapes: what stands between the quotes, and whether it has some.
    #[inline]
    fn raw_text(&mut self) -> Result<(&'a str, bool)> {
        let bytes = self.bytes();
        let (start, mut has_escapes) = (self.at + 1, false);
        self.at = start;
        loop {
            self.at = special_from(bytes, self.at);
            match bytes.get(self.at) {
                None => return self.fail("the end of a text is expected"),
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(_) => return self.fail("a control character stands in a text"),
            }
        }
        self.at += 1;
        Ok((&self.text[start..self.at - 1], has_escapes))
    }

    /// Takes an escape, which begins here, and returns what it stands for.
    fn escape(&mut self) -> Result<char> {
        let simple = match self.bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return self.fail("an escape is unknown"),
        };
        self.at += 2;
        Ok(simple)
    }

    fn unicode(&mut self) -> Result<char> {
        let high = self.code_unit()?;
        let code = match high {
            0xd800..0xdc00 => match self.code_unit()? {
                low @ 0xdc00..0xe000 => 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00),
                _ => return self.fail("half of a surrogate pair stands alone"),
            },
            code => code,
        };
        match char::from_u32(code) {
            Some(character) => Ok(character),
            None => self.fail("half of a surrogate pair stands alone"),
        }
    }

    fn code_unit(&mut self) -> Result<u32> {
        let rest = self.bytes()[self.at..].strip_prefix(b"\\u");
        let digits = rest.and_then(|rest| rest.get(..4));
        let is_hex = |digits: &&[u8]| digits.iter().all(u8::is_ascii_hexdigit);
        let digits = digits.filter(is_hex).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 6;
                Ok(unit)
            }
            None => self.fail("\\u and four hexadecimal digits are expected"),
        }
    }

    /// Takes a text, with its escapes replaced.
    #[inline]
    pub(crate) fn known_str(&mut self) -> Result<&str> {
        let start = self.at;
        let (raw, has_escapes) = self.raw_text()?;
        if !has_escapes {
            return Ok(raw);
        }
        let end = self.at;
        self.unescaped.clear();
        self.at = start + 1;
        while self.at + 1 < end {
            let rest = &self.text[self.at..end - 1];
            let plain = rest.find('\\').unwrap_or(rest.len());
            self.unescaped.push_str(&rest[..plain]);
            self.at += plain;
            if self.at + 1 < end {
                let character = self.escape()?;
                self.unescaped.push(character);
            }
        }
        self.at = end;
        Ok(&self.unescaped)
    }

    /// Takes a value, and checks it.
    pub(crate) fn known_skip(&mut self, peek: Peek) -> Result<()> {
        self.skip(peek, 0)
    }

    fn skip(&mut self, peek: Peek, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(JsonError::too_deep(self.at));
        }
        match peek {
            Peek::Null => self.known_null(),
            Peek::True | Peek::False => self.known_bool(peek).map(|_| ()),
            Peek::Number => self.known_number().map(|_| ()),
            Peek::Text => self.raw_text().map(|_| ()),
            Peek::Array => {
                let mut next = self.known_array()?;
                while let Some(peek) = next {
                    self.skip(peek, depth + 1)?;
                    next = self.array_step()?;
                }
                Ok(())
            }
            Peek::Object => {
                let mut next = self.object_raw()?;
                while next.is_some() {
                    let peek = self.peek()?;
                    self.skip(peek, depth + 1)?;
                    next = self.next_key_raw()?;
                }
                Ok(())
            }
        }
    }

    /// Takes the bracket that opens an array, and looks at the first element.
    pub(crate) fn known_array(&mut self) -> Result<Option<Peek>> {
        self.at += 1;
        if self.next_byte() == Some(b']') {
            self.at += 1;
            return Ok(None);
        }
        self.peek().map(Some)
    }

    /// Takes what follows an element, and looks at the next one.
    pub(crate) fn array_step(&mut self) -> Result<Option<Peek>> {
        match self.next_byte() {
            Some(b',') => {
                self.at += 1;
                self.peek().map(Some)
            }
            Some(b']') => {
                self.at += 1;
                Ok(None)
            }
            _ => self.fail("a comma or ] is expected"),
        }
    }

    /// Takes the brace that opens an object and the first key, as it is written, and its colon.
    pub(crate) fn object_raw(&mut self) -> Result<Option<&'a str>> {
        self.at += 1;
        if self.next_byte() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        self.key_raw().map(|(key, _)| Some(key))
    }

    /// Takes what follows a value, and the next key, as it is written.
    pub(crate) fn next_key_raw(&mut self) -> Result<Option<&'a str>> {
        match self.has_next_key()? {
            true => self.key_raw().map(|(key, _)| Some(key)),
            false => Ok(None),
        }
    }

    /// Takes `key`, a text in its quotes, and the colon after it, if that is what comes next.
    ///
    /// # Errors
    /// If there is no colon after it.
    #[inline]
    pub(crate) fn takes_key(&mut self, key: &[u8]) -> Result<bool> {
        let is_next = self.bytes()[self.at..].starts_with(key);
        if is_next {
            self.at += key.len();
            self.colon()?;
        }
        Ok(is_next)
    }

    /// Takes the brace that opens an object; true if it has a member, which comes next.
    #[inline]
    pub(crate) fn opens_members(&mut self) -> bool {
        self.at += 1;
        let has_member = self.next_byte() != Some(b'}');
        self.at += usize::from(!has_member);
        has_member
    }

    /// Takes what follows a value in an object; true if another member comes next, after blanks that are taken, too.
    ///
    /// # Errors
    /// If neither a comma nor the end of the object follows.
    #[inline]
    pub(crate) fn has_next_member(&mut self) -> Result<bool> {
        let has_next = self.has_next_key()?;
        if has_next {
            self.next_byte();
        }
        Ok(has_next)
    }

    #[inline]
    fn has_next_key(&mut self) -> Result<bool> {
        match self.next_byte() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b'}') => {
                self.at += 1;
                Ok(false)
            }
            _ => self.fail("a comma or } is expected"),
        }
    }

    fn key_raw(&mut self) -> Result<(&'a str, bool)> {
        if self.next_byte() != Some(b'"') {
            return self.fail("a key in double quotes is expected");
        }
        let key = self.raw_text()?;
        self.colon()?;
        Ok(key)
    }

    #[inline]
    fn colon(&mut self) -> Result<()> {
        if self.next_byte() != Some(b':') {
            return self.fail("a colon is expected");
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the brace that opens an object and the first key.
    pub(crate) fn known_object(&mut self) -> Result<Option<&str>> {
        self.at += 1;
        if self.next_byte() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        self.key().map(Some)
    }

    /// Takes what follows a value, and the next key.
    pub(crate) fn next_key(&mut self) -> Result<Option<&str>> {
        match self.has_next_key()? {
            true => self.key().map(Some),
            false => Ok(None),
        }
    }

    /// Takes a key and its colon.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn key(&mut self) -> Result<&str> {
        if self.next_byte() != Some(b'"') {
            return self.fail("a key in double quotes is expected");
        }
        let start = self.at;
        let (raw, has_escapes) = self.key_raw()?;
        if !has_escapes {
            return Ok(raw);
        }
        let end = std::mem::replace(&mut self.at, start);
        self.known_str()?;
        self.at = end;
        Ok(&self.unescaped)
    }

    /// Checks that only blanks follow.
    ///
    /// # Errors
    /// If more does.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.next_byte() {
            None => Ok(()),
            Some(_) => self.fail("there is more after the value"),
        }
    }
}
