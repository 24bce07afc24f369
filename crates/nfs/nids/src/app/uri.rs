//! Normalises a request's target to the form in which servers resolve it and rules inspect it.

/// The normalised form of a target: escapes decoded once, `\` as `/`, no empty and no dot
/// segments in the path. For an absolute target, its path and query.
pub(super) fn normalise(target: &[u8]) -> Vec<u8> {
    let local = without_authority(target);
    let end = local.iter().position(|b| *b == b'?').unwrap_or(local.len());
    let (path, query) = local.split_at(end);
    let mut out = segments(&decode(path));
    out.extend(decode(query));
    out
}

/// The host in an absolute target.
pub(super) fn host(target: &[u8]) -> Option<&[u8]> {
    let rest = &target[authority(target)?..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let authority = &rest[..end];
    // The user information precedes an @.
    let at = authority.iter().rposition(|b| *b == b'@').map_or(0, |at| at + 1);
    Some(&authority[at..])
}

/// Where the authority of an absolute target begins.
fn authority(target: &[u8]) -> Option<usize> {
    let colon = memchr::memmem::find(target, b"://")?;
    target[..colon].iter().all(u8::is_ascii_alphabetic).then_some(colon + 3).filter(|_| colon > 0)
}

fn without_authority(target: &[u8]) -> &[u8] {
    let Some(from) = authority(target) else { return target };
    let rest = &target[from..];
    rest.iter().position(|b| matches!(b, b'/' | b'?')).map_or(b"/", |at| &rest[at..])
}

/// Decodes `%xy` and `%uxxyy` once; leaves everything else.
fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|b| (*b as char).to_digit(16));
    let pair = |at: usize| Some((digit(at)? << 4 | digit(at + 1)?) as u8);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == b'%' {
            if let Some(decoded) = pair(at + 1) {
                out.push(decoded);
                at += 3;
                continue;
            }
            if matches!(text.get(at + 1), Some(b'u' | b'U'))
                && let (Some(high), Some(low)) = (pair(at + 2), pair(at + 4))
            {
                // Servers substitute the closest letter; for full-width Latin letters it is known.
                out.push(if high == 0xff { low.wrapping_add(0x20) } else { low });
                at += 6;
                continue;
            }
        }
        out.push(byte);
        at += 1;
    }
    out
}

/// The path without empty segments, `.` and `..` (RFC 3986, section 5.2.4, and more leniently).
fn segments(path: &[u8]) -> Vec<u8> {
    let slash = |b: &u8| matches!(b, b'/' | b'\\');
    let mut out = Vec::with_capacity(path.len());
    let rooted = path.first().is_some_and(slash);
    let mut kept: Vec<&[u8]> = Vec::new();
    let count = path.split(slash).count();
    let mut open = false;
    for (i, segment) in path.split(slash).enumerate() {
        // A path that ends in a slash, or in a dot segment, keeps its slash.
        open = i + 1 == count && count > 1 && matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." if rooted => _ = kept.pop(),
            other => kept.push(other),
        }
    }
    if rooted {
        out.push(b'/');
    }
    out.extend(kept.join(&b'/'));
    if open && !kept.is_empty() {
        out.push(b'/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_seen_as_servers_see_it() {
        for (target, expected) in [
            ("/a/b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("//a///b//", "/a/b/"),
            ("/a\\b", "/a/b"),
            ("/%61%2fb?x=%41%zz", "/a/b?x=A%zz"),
            ("/%2561", "/%61"),
            ("/%uff41", "/a"),
            ("http://user@host:80/x?y", "/x?y"),
            ("http://host", "/"),
            ("*", "*"),
            ("/a?b/../c", "/a?b/../c"),
            ("/", "/"),
            ("/a/..", "/"),
            ("", ""),
        ] {
            let seen = normalise(target.as_bytes());
            assert_eq!(String::from_utf8_lossy(&seen), expected, "{target}");
        }
        assert_eq!(host(b"http://user@Host:80/x"), Some(&b"Host:80"[..]));
        assert_eq!(host(b"/x?u=http://y/"), None);
    }
}
