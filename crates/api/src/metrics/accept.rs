//! The text format that a client prefers, by its header `Accept` (RFC 9110, section 12.5.1).

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Text,
}

/// The most entries of the header that are considered.
const MAX_ENTRIES: usize = 32;

impl Format {
    /// The media type of a text in this format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format that a client prefers: OpenMetrics if it names that with at least the quality of
    /// the text format, which everything else gets.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let entries = accept.unwrap_or_default().split(',').take(MAX_ENTRIES).map(Entry::parse);
        let (mut open_metrics, mut text) = (0, 0);
        for Entry { media_type, version, quality } in entries {
            if media_type.eq_ignore_ascii_case("application/openmetrics-text") {
                // Version 0.0.1 is a draft.
                if version.is_none_or(|version| version == "1.0.0") {
                    open_metrics = open_metrics.max(quality);
                }
            } else if media_type.eq_ignore_ascii_case("text/plain") {
                text = text.max(quality);
            }
        }
        if open_metrics > 0 && open_metrics >= text { Self::OpenMetrics } else { Self::Text }
    }
}

/// A media range.
struct Entry<'a> {
    media_type: &'a str,
    version: Option<&'a str>,
    /// Thousandths.
    quality: u16,
}

impl<'a> Entry<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut entry = Self { media_type, version: None, quality: 1000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "version" => entry.version = Some(value),
                "q" | "Q" => {
                    // One that is no number is not a wish.
                    let quality = value.parse().unwrap_or(0.0_f32);
                    entry.quality = (quality.clamp(0.0, 1.0) * 1000.0) as u16;
                }
                _ => {}
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Prometheus 2.42 sends.
    const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,\
        application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

    #[test]
    fn the_format_with_the_higher_quality_is_chosen() {
        use Format::{OpenMetrics, Text};
        for (accept, format) in [
            (Some(PROMETHEUS), OpenMetrics),
            (Some("application/openmetrics-text"), OpenMetrics),
            (Some("APPLICATION/OPENMETRICS-TEXT ; version=\"1.0.0\""), OpenMetrics),
            (Some("application/openmetrics-text;q=0.4, text/plain;q=0.5"), Text),
            (Some("application/openmetrics-text;q=0"), Text),
            (Some("application/openmetrics-text;q=x"), Text),
            (Some("application/openmetrics-text;version=0.0.1"), Text),
            (Some("text/plain"), Text),
            (Some("*/*"), Text),
            (Some(""), Text),
            (Some(";;;,=,q=1;q"), Text),
            (None, Text),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept:?}");
        }
    }
}
