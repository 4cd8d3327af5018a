//! The program's code as a part of its resident memory.
//!
//! The system counts the pages of a program's file as resident once they were touched, and their neighbours
//! with them: of a large program, planning a statement brings in tens of MiB that are not needed while it
//! runs. They are copies of the file in the page cache, which the system may take away at any time. [`trim`]
//! has it take them away now; what still runs comes back with a page fault, without being read.

use std::fs;
use std::io;

/// What the system says of this process in a line of its status that gives a size.
pub(super) fn status_bytes(name: &str) -> Option<u64> {
    line_bytes(&fs::read_to_string("/proc/self/status").ok()?, name)
}

fn line_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Has the system forget the pages of this program's code and constants (or of the library that this is linked into) if
/// the process has more than `resident_max` bytes, those of files among them, or would have if it had `others_min` beside, and those of
/// files are more than `code_min`, so that there is something to be had. Takes some 20 µs, and a few ms later on if there was much to forget, so it is for programs that
/// have promised to stay small. True if something was forgotten.
///
/// # Errors
/// [`io::Error`] if the system does not tell where the code lies, or does not forget it.
pub fn trim(resident_max: u64, others_min: u64, code_min: u64) -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let bytes = |name| line_bytes(&status, name).unwrap_or(0);
    let (code, others) = (bytes("RssFile:"), bytes("RssAnon:").max(others_min));
    if code <= code_min || code + others <= resident_max {
        return Ok(false);
    }
    let maps = fs::read_to_string("/proc/self/maps")?;
    let own = trim as fn(u64, u64, u64) -> io::Result<bool> as usize;
    let mut code = maps.lines().filter_map(Mapping::of).filter(|mapping| mapping.is_code);
    let Some(code) = code.find(|mapping| (mapping.start..mapping.end).contains(&own)) else {
        return Ok(false);
    };
    code.forget()?;
    // Where linkers put constants before the code. What is written to once and then protected, as relocated addresses
    // are, lies behind it.
    let mut others = maps.lines().filter_map(Mapping::of);
    if let Some(constants) = others.find(|other| other.end == code.start && other.path == code.path)
    {
        constants.forget()?;
    }
    Ok(true)
}

/// A mapping of a file that cannot be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: usize,
    end: usize,
    /// It can be run, and not only read from the begin of the file on.
    is_code: bool,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    /// What a line of the system's list of mappings is about, if it is code, or what a file begins with.
    fn of(line: &'a str) -> Option<Mapping<'a>> {
        let mut words = line.split_whitespace();
        let (range, access, offset) = (words.next()?, words.next()?, words.next()?);
        let path = words.nth(2).filter(|path| path.starts_with('/'))?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let is_code = access == "r-xp";
        let is_begin = access == "r--p" && number(offset)? == 0;
        let (start, end) = (number(start)?, number(end)?);
        (is_code || is_begin).then_some(Mapping { start, end, is_code, path })
    }

    /// Has the system forget its pages.
    fn forget(self) -> io::Result<()> {
        let address = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the range is a mapping of the file that this function's code lies in, so it stays mapped while this runs. It
        // may be run or read but not written to, and was never, so its pages are those of the file: forgotten, they are the
        // same again when they are next touched, as if the system had reclaimed them.
        match unsafe { libc::madvise(address, self.end - self.start, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_everything_else() {
        let begin = "55a46fd33000-55a471667000 r--p 00000000 fe:00 1234    /usr/bin/weft";
        let code = "55a471667000-55a475f95000 r-xp 01933000 fe:00 1234    /usr/bin/weft";
        let path = "/usr/bin/weft";
        let (at, start, end) = (0x55a4_6fd3_3000, 0x55a4_7166_7000, 0x55a4_75f9_5000);
        let mapping = |start, end, is_code| Some(Mapping { start, end, is_code, path });
        assert_eq!(Mapping::of(begin), mapping(at, start, false));
        assert_eq!(Mapping::of(code), mapping(start, end, true));
        for other in [
            "55a475f95000-55a476095000 r--p 06261000 fe:00 1234    /usr/bin/weft",
            "55a475f95000-55a476095000 rw-p 00000000 fe:00 1234    /usr/bin/weft",
            "7ffd5b5e3000-7ffd5b5e5000 r-xp 00000000 00:00 0       [vdso]",
            "7f2a24000000-7f2a2469c000 rwxp 00000000 00:00 0",
            "7f2a24000000-7f2a2469c000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(Mapping::of(other), None, "{other}");
        }
    }

    #[test]
    fn code_is_forgotten_and_runs_on() {
        assert!(!trim(u64::MAX, 0, 0).unwrap() && !trim(0, 0, u64::MAX).unwrap());
        assert!(!trim(u64::MAX, u64::MAX / 2, 0).unwrap());
        // Other tests run meanwhile, and what they run comes back.
        let is_less = (0..100).any(|_| {
            let before = status_bytes("RssFile:").unwrap();
            assert!(trim(0, 0, 0).unwrap());
            status_bytes("RssFile:").unwrap() < before
        });
        assert!(is_less);
        // Everything works as before.
        let words: Vec<String> = (0..1_000).map(|word| format!("{word:>10}")).collect();
        assert_eq!(words.concat().len(), 10_000);
    }
}
