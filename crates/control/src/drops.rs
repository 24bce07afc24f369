//! `/v1/drops`: copies of dropped packets, as a capture.

use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_api::axum::extract::State as Of;
use thalweg_api::axum::response::Response;
use thalweg_api::{Closed, Query, Shared, Stream, stream};
use thalweg_engine::{DropRecord, Drops, DropsWanted};
use thalweg_io::{CommentedCapture, CommentedPacket};

use crate::handlers::{Api, Served};
use crate::watching::{Looks, mistake, refused};

/// The media type of pcapng, as Wireshark registers it with desktops.
pub(crate) const PCAPNG: &str = "application/x-pcapng";
/// The bytes that are sent at once, about.
const PIECE: usize = 64 << 10;
/// The most packets between two looks at the clock: they may be dropped as fast as they are read.
const AT_ONCE: usize = 4096;

/// Which dropped packets are copied.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    /// A flow in the syntax of rules, whose `in_port` is the name of an input, that packets match when
    /// they are dropped; all packets if absent.
    #[serde(default)]
    pattern: String,
    /// The NF that drops them; all places if absent.
    nf: Option<String>,
    /// The most packets; all if absent.
    #[schemars(range(min = 1))]
    count: Option<u64>,
    /// How long, in seconds.
    #[serde(default = "minute")]
    #[schemars(range(min = 0.1, max = 3600.0))]
    seconds: f64,
}

fn minute() -> f64 {
    60.0
}

pub(crate) async fn drops(
    Of(api): Of<Arc<Api>>,
    shared: Shared,
    Query(wish): Query<Wish>,
) -> Served<Response> {
    let Wish { pattern, nf, count, seconds } = wish;
    if count == Some(0) {
        return Err(mistake("count", "0 packets".into(), "a number from 1 on".into()));
    }
    let looks = Looks::new(seconds, shared)?;
    let drops = api.subject.control.drops(&DropsWanted { pattern, nf }).map_err(refused)?;
    let (stream, response) = stream(PCAPNG);
    let copies = Copies { drops, capture: CommentedCapture::default(), copied: 0, count };
    tokio::spawn(copies.send(looks, stream));
    Ok(response)
}

/// The copies of dropped packets that a client reads.
struct Copies {
    drops: Drops,
    capture: CommentedCapture,
    copied: u64,
    /// The most packets.
    count: Option<u64>,
}

impl Copies {
    /// Sends the packets as they come.
    async fn send(mut self, mut looks: Looks, stream: Stream) {
        while let Some(ends) = looks.next(stream.closed()).await {
            let Ok(over) = self.pass(&stream).await else { return };
            if over || ends.is_some() {
                let missed = self.drops.missed();
                let comment = format!(
                    "{} dropped packets recorded, {missed} not recorded because the reader was slow",
                    self.copied
                );
                self.capture.end(missed, &comment);
                // The client may have gone meanwhile.
                let _ = stream.send(self.capture.take()).await;
                return;
            }
        }
    }

    /// Sends the packets that are there, up to a number; returns whether there will be no more.
    async fn pass(&mut self, stream: &Stream) -> Result<bool, Closed> {
        let mut over = false;
        for _ in 0..AT_ONCE {
            over = self.count.is_some_and(|count| self.copied >= count);
            if over {
                break;
            }
            match self.drops.try_next() {
                Ok(record) => self.add(&record),
                Err(end) => {
                    over = end == TryRecvError::Disconnected;
                    break;
                }
            }
            if self.capture.pending() >= PIECE {
                stream.send(self.capture.take()).await?;
            }
        }
        // At first, the header of the file.
        if self.capture.pending() > 0 {
            stream.send(self.capture.take()).await?;
        }
        Ok(over)
    }

    fn add(&mut self, record: &DropRecord) {
        let DropRecord { place, reason, input, time, bytes, wire_len, missed } = record;
        self.capture.write(&CommentedPacket {
            interface: input,
            time: *time,
            bytes,
            wire_len: *wire_len,
            comment: &format!("dropped by {place}: {reason}"),
            missing: *missed,
        });
        self.copied += 1;
    }
}
