//! What the cells of a workbook refer to: sheets by their names, texts that cells share, and formats of numbers.

use std::borrow::Cow;

use quick_xml::events::{BytesStart, Event};

use super::archive::{Archive, Xml};
use super::cell::Format;
use crate::error::{FilesError, Result};
use crate::input::Input;

/// Styles of cells, at most: Excel has 65,490.
const STYLES_MAX: usize = 1 << 16;

/// Sheets and relations, at most.
const SHEETS_MAX: usize = 10_000;

/// A workbook.
#[derive(Debug)]
pub(super) struct Workbook {
    pub(super) archive: Archive,
    pub(super) sheets: Vec<Sheet>,
    pub(super) texts: Texts,
    /// The formats of styles, by number.
    pub(super) formats: Vec<Format>,
    /// Days count from 1904 on.
    pub(super) is_1904: bool,
}

/// A sheet's name and part.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) name: String,
    pub(super) part: String,
}

/// Texts that cells share, one after the other.
#[derive(Debug, Default)]
pub(super) struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) fn get(&self, number: usize) -> Option<&str> {
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    fn bytes(&self) -> u64 {
        (self.text.capacity() + self.ends.capacity() * size_of::<usize>()) as u64
    }
}

impl Workbook {
    /// Opens a workbook, whose shared texts may take `memory_bytes_max`.
    ///
    /// # Errors
    /// For what is no workbook, and for more texts than that.
    pub(super) fn open(input: &Input, memory_bytes_max: u64) -> Result<Workbook> {
        let archive = Archive::open(input)?;
        let related = |from: &str, wanted: &str| -> Result<Vec<(String, String)>> {
            let (directory, name) = from.rsplit_once('/').unwrap_or(("", from));
            let part = format!("{directory}/_rels/{name}.rels");
            relations(&archive, part.trim_start_matches('/'), directory, wanted)
        };
        let main = related("", "/officeDocument")?.into_iter().next();
        let main = main.map_or_else(|| "xl/workbook.xml".to_owned(), |(_, part)| part);
        let (mut sheets, is_1904) = read_sheets(archive.needed_part(&main)?)?;
        let parts = related(&main, "/worksheet")?;
        // Sheets that are charts have no cells.
        sheets.retain_mut(|sheet| match parts.iter().find(|(id, _)| *id == sheet.part) {
            Some((_, part)) => {
                sheet.part.clone_from(part);
                true
            }
            None => false,
        });
        if sheets.is_empty() {
            return Err(FilesError::data(input.path(), None, "it has no sheets"));
        }
        let one = |wanted: &str| -> Result<Option<Xml>> {
            match related(&main, wanted)?.into_iter().next() {
                Some((_, part)) => archive.part(&part),
                None => Ok(None),
            }
        };
        let texts = match one("/sharedStrings")? {
            Some(part) => read_texts(part, memory_bytes_max)?,
            None => Texts::default(),
        };
        let formats = one("/styles")?.map(read_formats).transpose()?.unwrap_or_default();
        Ok(Workbook { sheets, texts, formats, is_1904, archive })
    }

    /// The number of the sheet of this name, or of the first one.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn sheet(&self, input: &Input, name: Option<&str>) -> Result<usize> {
        let Some(name) = name else { return Ok(0) };
        let exact = self.sheets.iter().position(|sheet| sheet.name == name);
        let found = exact.or_else(|| {
            self.sheets.iter().position(|sheet| sheet.name.to_lowercase() == name.to_lowercase())
        });
        found.ok_or_else(|| {
            let names: Vec<&str> = self.sheets.iter().map(|sheet| sheet.name.as_str()).collect();
            FilesError::data(input.path(), None, format!("it has no sheet '{name}'"))
                .with_hint(format!("its sheets: {}", names.join(", ")))
        })
    }
}

/// The value of an attribute, by its name without a prefix.
pub(super) fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut found = element.attributes();
    let mut found = found.with_checks(false).flatten();
    let is_named = |key: quick_xml::name::QName<'_>| key.local_name().as_ref() == name.as_bytes();
    let value = found.find(|attribute| is_named(attribute.key))?;
    let text = String::from_utf8_lossy(&value.value);
    Some(
        quick_xml::escape::unescape(&text)
            .map(Cow::into_owned)
            .unwrap_or_else(|_| text.to_string()),
    )
}

/// The relations of a part whose type ends so, as their names and the parts that they lead to.
fn relations(
    archive: &Archive,
    part: &str,
    directory: &str,
    wanted: &str,
) -> Result<Vec<(String, String)>> {
    let Some(mut xml) = archive.part(part)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    loop {
        match xml.next()? {
            Event::Start(element) if element.local_name().as_ref() == b"Relationship" => {
                let get = |name: &str| attribute(&element, name);
                let is_wanted = get("Type").is_some_and(|kind| kind.ends_with(wanted));
                if let (true, Some(id), Some(target)) = (is_wanted, get("Id"), get("Target")) {
                    let place = match target.strip_prefix('/') {
                        Some(absolute) => absolute.to_owned(),
                        None => within(directory, &target),
                    };
                    found.push((id, place));
                }
                if found.len() > SHEETS_MAX {
                    return Err(xml.wrong("it has too many relations"));
                }
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

/// A relative path from a directory on.
fn within(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The sheets of a workbook, with the names of their relations, and whether days count from 1904 on.
fn read_sheets(mut xml: Xml) -> Result<(Vec<Sheet>, bool)> {
    let (mut sheets, mut is_1904) = (Vec::new(), false);
    loop {
        match xml.next()? {
            Event::Start(element) if element.local_name().as_ref() == b"sheet" => {
                let (name, id) = (attribute(&element, "name"), attribute(&element, "id"));
                if let (Some(name), Some(part)) = (name, id) {
                    sheets.push(Sheet { name, part });
                }
                if sheets.len() > SHEETS_MAX {
                    return Err(xml.wrong("it has too many sheets"));
                }
            }
            Event::Start(element) if element.local_name().as_ref() == b"workbookPr" => {
                let value = attribute(&element, "date1904");
                is_1904 = value.is_some_and(|value| value == "1" || value == "true");
            }
            Event::Eof => return Ok((sheets, is_1904)),
            _ => {}
        }
    }
}

/// Reads the texts that cells share.
fn read_texts(mut xml: Xml, memory_bytes_max: u64) -> Result<Texts> {
    let mut texts = Texts::default();
    loop {
        match xml.next()? {
            Event::Start(element) if element.local_name().as_ref() == b"si" => {
                read_text(&mut xml, b"si", &mut texts.text)?;
                texts.ends.push(texts.text.len());
                if texts.bytes() > memory_bytes_max {
                    let problem = "the texts of its cells take more memory than they may";
                    return Err(xml.wrong(problem).with_hint("raise the setting memory_limit"));
                }
            }
            Event::Eof => return Ok(texts),
            _ => {}
        }
    }
}

/// Appends the text of an element that has begun, up to its end: that of its parts `t`, without hints of pronunciation.
///
/// # Errors
/// If the element has no end, or more text than an event may have.
pub(super) fn read_text(xml: &mut Xml, name: &[u8], into: &mut String) -> Result<()> {
    let start = into.len();
    let (mut is_text, mut hints) = (false, 0_usize);
    loop {
        let too_long = into.len() - start > super::archive::EVENT_BYTES_MAX as usize;
        if too_long {
            return Err(xml.wrong("a text is too long"));
        }
        match xml.next()? {
            Event::Start(element) => match element.local_name().as_ref() {
                b"t" => is_text = true,
                b"rPh" => hints += 1,
                _ => {}
            },
            Event::End(element) => match element.local_name().as_ref() {
                b"t" => is_text = false,
                b"rPh" => hints = hints.saturating_sub(1),
                ended if ended == name => break,
                _ => {}
            },
            Event::Eof => return Err(xml.wrong("it ends within a text")),
            event if is_text && hints == 0 => append(&event, into),
            _ => {}
        }
    }
    unescape(into, start);
    Ok(())
}

/// Appends what an event within a text stands for.
pub(super) fn append(event: &Event<'_>, into: &mut String) {
    match event {
        Event::Text(text) => {
            let bytes: &[u8] = text;
            into.push_str(&String::from_utf8_lossy(bytes));
        }
        Event::CData(text) => {
            let bytes: &[u8] = text;
            into.push_str(&String::from_utf8_lossy(bytes));
        }
        Event::GeneralRef(reference) => {
            if let Ok(Some(character)) = reference.resolve_char_ref() {
                into.push(character);
                return;
            }
            let bytes: &[u8] = reference;
            let known = std::str::from_utf8(bytes).ok();
            let known = known.and_then(quick_xml::escape::resolve_predefined_entity);
            into.push_str(known.unwrap_or("\u{fffd}"));
        }
        _ => {}
    }
}

/// Puts characters in the place of `_x000D_`, as XML cannot have all of them.
fn unescape(text: &mut String, start: usize) {
    let is_escape = |part: &[u8]| {
        part.starts_with(b"_x") && part[6] == b'_' && part[2..6].iter().all(u8::is_ascii_hexdigit)
    };
    if !text.as_bytes()[start..].windows(7).any(is_escape) {
        return;
    }
    let escaped = text.split_off(start);
    let mut rest = escaped.as_str();
    while let Some(at) = rest.as_bytes().windows(7).position(is_escape) {
        text.push_str(&rest[..at]);
        let code = u32::from_str_radix(&rest[at + 2..at + 6], 16).ok();
        text.push(code.and_then(char::from_u32).unwrap_or('\u{fffd}'));
        rest = &rest[at + 7..];
    }
    text.push_str(rest);
}

/// Reads the formats of styles.
fn read_formats(mut xml: Xml) -> Result<Vec<Format>> {
    let (mut own, mut formats) = (Vec::new(), Vec::new());
    let mut is_within = false;
    loop {
        match xml.next()? {
            Event::Start(element) => match element.local_name().as_ref() {
                b"numFmt" => {
                    let id = attribute(&element, "numFmtId").and_then(|id| id.parse::<u32>().ok());
                    let code = attribute(&element, "formatCode");
                    if let (Some(id), Some(code)) = (id, code) {
                        own.push((id, Format::of_code(&code)));
                    }
                }
                b"cellXfs" => is_within = true,
                b"xf" if is_within => {
                    let id = attribute(&element, "numFmtId").and_then(|id| id.parse::<u32>().ok());
                    let id = id.unwrap_or(0);
                    let found = own.iter().find(|(known, _)| *known == id);
                    formats.push(found.map_or_else(|| Format::of_id(id), |(_, format)| *format));
                }
                _ => {}
            },
            Event::End(element) if element.local_name().as_ref() == b"cellXfs" => is_within = false,
            Event::Eof => return Ok(formats),
            _ => {}
        }
        if formats.len() > STYLES_MAX || own.len() > STYLES_MAX {
            return Err(xml.wrong("it has too many styles"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_characters_are_put_back() {
        for (given, expected) in [
            ("a_x000D_b", "a\rb"),
            ("_x0041__x0042_", "AB"),
            ("_x00", "_x00"),
            ("_xD800_", "\u{fffd}"),
            ("ä_x0041_ö", "äAö"),
            ("_x005F_x0041_", "_x0041_"),
        ] {
            let mut text = format!("before{given}");
            unescape(&mut text, 6);
            assert_eq!(text, format!("before{expected}"));
        }
    }

    #[test]
    fn relative_parts_are_found() {
        assert_eq!(within("xl", "worksheets/sheet1.xml"), "xl/worksheets/sheet1.xml");
        assert_eq!(within("xl", "../other/./a.xml"), "other/a.xml");
        assert_eq!(within("", "../../a.xml"), "a.xml");
    }
}
