//! The files that records are exported to.

use thalweg_nf::NfError;
use thalweg_nf::toolkit::output::{LineFile, OutputFile, RecordFile, Rotation, json_line};

use super::ipfix::{Form, Messages};
use super::record::{JsonRecord, Labels, Record};

/// The most records that are written at once: about 3 MB as JSON.
const AT_ONCE: usize = 8192;

/// The record files of a monitor. The run creates them; each write holds whole records only.
#[derive(Clone, Debug)]
pub(super) struct Exporter {
    json: LineFile,
    ipfix: RecordFile<Form>,
    messages: Messages,
    labels: Labels,
}

impl Exporter {
    pub(super) fn new(
        json: Option<OutputFile>,
        ipfix: Option<OutputFile>,
        rotation: Option<Rotation>,
        labels: Labels,
    ) -> Self {
        let (json, ipfix) = (RecordFile::new(json, rotation), RecordFile::new(ipfix, rotation));
        Self { json, ipfix, messages: Messages::default(), labels }
    }

    /// Whether `other` writes to the same files.
    pub(super) fn writes_as(&self, other: &Self) -> bool {
        self.json.is_same_file(&other.json) && self.ipfix.is_same_file(&other.ipfix)
    }

    pub(super) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Goes on as `new`, which writes to the same files; with other `labels` than its own, if any
    /// are given.
    pub(super) fn renew(&mut self, new: Self, labels: Option<Labels>) {
        let Self { json, ipfix, labels: own, .. } = new;
        (self.json, self.ipfix, self.labels) = (json, ipfix, labels.unwrap_or(own));
    }

    /// Appends records; bounds the memory that their texts take meanwhile.
    pub(super) fn write(&mut self, records: &[Record]) -> Result<(), NfError> {
        records.chunks(AT_ONCE).try_for_each(|some| self.write_some(some))
    }

    fn write_some(&mut self, records: &[Record]) -> Result<(), NfError> {
        if self.json.is_wanted() {
            self.json.write(&lines(records, &self.labels))?;
        }
        if self.ipfix.is_wanted() {
            self.ipfix.write(&self.messages.data(records))?;
        }
        Ok(())
    }

    /// Creates the files even if there is no record.
    pub(super) fn flush(&mut self) -> Result<(), NfError> {
        self.write_some(&[])
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
