//! The files that records are exported to.

use thalweg_nf::NfError;
use thalweg_nf::toolkit::output::{LineFile, OutputFile, failed, json_line};

use super::ipfix::Messages;
use super::record::{JsonRecord, Labels, Record};

/// The record files of a monitor. The run creates them; each write holds whole records only.
#[derive(Clone, Debug)]
pub(super) struct Exporter {
    json: LineFile,
    ipfix: Option<OutputFile>,
    messages: Messages,
    labels: Labels,
    /// Whether the IPFIX file has the templates.
    has_templates: bool,
}

impl Exporter {
    pub(super) fn new(json: Option<OutputFile>, ipfix: Option<OutputFile>, labels: Labels) -> Self {
        let json = LineFile::new(json);
        Self { json, ipfix, messages: Messages::default(), labels, has_templates: false }
    }

    /// Whether `other` writes to the same files.
    pub(super) fn writes_as(&self, other: &Self) -> bool {
        (&self.json, &self.ipfix) == (&other.json, &other.ipfix)
    }

    pub(super) fn labels(&self) -> &Labels {
        &self.labels
    }

    pub(super) fn set_labels(&mut self, labels: Labels) {
        self.labels = labels;
    }

    /// Appends records.
    pub(super) fn write(&mut self, records: &[Record]) -> Result<(), NfError> {
        if self.json.is_wanted() {
            self.json.write(&lines(records, &self.labels))?;
        }
        let Some(file) = &self.ipfix else { return Ok(()) };
        let mut messages = if self.has_templates { Vec::new() } else { self.messages.templates() };
        messages.extend(self.messages.data(records));
        // A message is written as a whole or not at all.
        file.append(&messages, |_| 0).map_err(|e| failed(file, e.error))?;
        self.has_templates = true;
        Ok(())
    }

    /// Creates the files even if there is no record.
    pub(super) fn flush(&mut self) -> Result<(), NfError> {
        self.write(&[])
    }
}

fn lines(records: &[Record], labels: &Labels) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records {
        // Writing to memory does not fail, and every field has a JSON form.
        let _ = json_line(&mut lines, &JsonRecord::new(record, labels));
    }
    lines
}
