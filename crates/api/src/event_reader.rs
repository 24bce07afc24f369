//! Server-sent events, as a client reads them.

/// The most bytes of an event.
const MAX_EVENT: usize = 64 << 20;

/// Reads server-sent events from the bytes of an answer.
///
/// Of the format (WHATWG HTML, section 9.2) it knows what our servers write: fields `event` and
/// `data`, each in one line.
#[derive(Clone, Debug, Default)]
pub struct EventReader {
    /// What has arrived of a line.
    line: Vec<u8>,
    name: String,
    data: String,
}

/// An event, or a line of one, is longer than 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than 64 MiB; expected a shorter one")]
pub struct EventTooLong;

impl EventReader {
    /// Reads bytes; returns the events that they complete, each with its name and data.
    ///
    /// # Errors
    /// When an event is too long.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Vec<(String, String)>, EventTooLong> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.len() > MAX_EVENT {
                return Err(EventTooLong);
            }
            if let Some(line) = self.line.strip_suffix(b"\n") {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let text = String::from_utf8_lossy(line).into_owned();
                self.line.clear();
                events.extend(self.field(&text));
            }
        }
        Ok(events)
    }

    /// Reads a line; returns the event that it ends.
    fn field(&mut self, line: &str) -> Option<(String, String)> {
        if line.is_empty() {
            let event = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            return (!event.1.is_empty()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => value.clone_into(&mut self.data),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_their_bytes_arrive() {
        let text =
            ": a comment\n\nevent: trace\ndata: {\"a\": 1}\n\nevent:end\r\ndata:2\r\n\r\nid: 7\n\n";
        let expected = [("trace", "{\"a\": 1}"), ("end", "2")];
        let expected = expected.map(|(name, data)| (name.to_owned(), data.to_owned()));
        for size in [1, 3, 7, 1000] {
            let mut reader = EventReader::default();
            let found: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|c| reader.read(c).unwrap()).collect();
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut reader = EventReader::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..100).position(|_| reader.read(&piece).is_err());
        assert_eq!(refused, Some(64));
    }
}
