//! What DNS responses reveal about the hosts that send them.

use memchr::memmem;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Packet};

use super::text::Text;

/// The version of a name server (`version.bind`), or the description of a device in multicast DNS
/// (`NAME._device-info._tcp.local`).
pub(super) fn text(message: &[u8]) -> Option<(Text, String)> {
    // Both names are uncompressed in the question or in the first answer.
    let kind = if memmem::find(message, b"\x0c_device-info\x04_tcp").is_some() {
        Text::MdnsDevice
    } else if message.windows(13).any(|w| w.eq_ignore_ascii_case(b"\x07version\x04bind")) {
        Text::DnsVersion
    } else {
        return None;
    };
    let packet = Packet::parse(message).ok()?;
    let answers = packet.answers.iter().chain(&packet.additional_records);
    let mut texts = answers.filter_map(|record| {
        let name = record.name.to_string().to_ascii_lowercase();
        let fits = match kind {
            Text::MdnsDevice => name.contains("._device-info._tcp."),
            _ => name == "version.bind" && record.class == CLASS::CH,
        };
        match &record.rdata {
            RData::TXT(text) if fits => Some(text),
            _ => None,
        }
    });
    let words: Vec<_> = texts
        .next()?
        .iter_raw()
        .map(|(key, value)| {
            let key = String::from_utf8_lossy(key);
            value.map_or(key.to_string(), |v| format!("{key}={}", String::from_utf8_lossy(v)))
        })
        .collect();
    Some((kind, words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &[u8], class: u16, text: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        bytes.extend(name);
        bytes.extend([0, 16]);
        bytes.extend(class.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0, text.len() as u8 + 1, text.len() as u8]);
        bytes.extend(text);
        bytes
    }

    #[test]
    fn servers_and_devices_say_what_they_are() {
        let bind = answer(b"\x07VERSION\x04bind\0", 3, b"9.18.24");
        assert_eq!(text(&bind), Some((Text::DnsVersion, "9.18.24".into())));
        let device = answer(b"\x02tv\x0c_device-info\x04_tcp\x05local\0", 1, b"model=J33i");
        assert_eq!(text(&device), Some((Text::MdnsDevice, "model=J33i".into())));
        let other = answer(b"\x07version\x04bind\0", 1, b"9.18.24");
        assert_eq!(text(&other), None, "of class IN");
    }

    #[test]
    fn no_cut_makes_it_panic() {
        let device = answer(b"\x02tv\x0c_device-info\x04_tcp\x05local\0", 1, b"model=J33i");
        for cut in 0..device.len() {
            let _ = text(&device[..cut]);
        }
    }
}
