//! The operations of the API.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_api::axum::Router;
use thalweg_api::axum::extract::{Path, State as Of};
use thalweg_api::axum::http::{HeaderMap, StatusCode, header};
use thalweg_api::axum::response::{IntoResponse, Response};
use thalweg_api::metrics::Format;
use thalweg_api::{
    About, Body, Json, Mistake, Operation, Operations, Place, Problem, Query, Shared,
};
use thalweg_chain::{GraphNf, Plan};
use thalweg_engine::Report;
use thalweg_source::{names_or, shortened};
use time::format_description::well_known::Rfc3339;
use tokio::sync::Semaphore;

use crate::documents::{
    Direction, Level, LogLevel, NfState, Nfs, PortState, Ports, ProgressNow, RuleState, Rules,
    State, Status,
};
use crate::drops;
use crate::events::{self, MAX_READERS};
use crate::metrics::metrics;
use crate::reload::{self, Reloaded, Wanted};
use crate::snapshots::Snapshots;
use crate::subject::Subject;
use crate::trace;

/// The least time between two exports: each makes every NF write its files.
const BETWEEN_EXPORTS: Duration = Duration::from_secs(1);
/// The rules of an answer, if the request gives no limit.
const USUAL_RULES: usize = 100;
/// The most rules of an answer.
const MAX_RULES: usize = 1000;
/// The most characters of a name in a problem.
const QUOTED: usize = 100;

const ABOUT: About = About {
    title: "Thalweg control",
    version: env!("CARGO_PKG_VERSION"),
    description: "Observes and steers a run. Packets do not wait for requests. A report is that of \
                  one moment, at most 0.1 s ago, and balances: in + generated = out + drops.",
};

/// What the handlers share.
pub(crate) struct Api {
    pub(crate) subject: Subject,
    snapshots: Snapshots,
    last_export: Mutex<Option<Instant>>,
    /// The permit for the reload under way.
    pub(crate) reloading: Arc<Semaphore>,
    /// A permit for each client that reads events.
    pub(crate) readers: Arc<Semaphore>,
}

pub(crate) type Served<T> = Result<T, Problem>;

/// The router of the API about `subject`.
pub(crate) fn router(subject: Subject) -> Router {
    let api = Api {
        subject,
        snapshots: Snapshots::default(),
        last_export: Mutex::default(),
        reloading: Arc::new(Semaphore::new(1)),
        readers: Arc::new(Semaphore::new(MAX_READERS)),
    };
    operations().finish(DOCUMENT).0.with_state(Arc::new(api))
}

/// The OpenAPI document of the API.
pub fn document() -> Value {
    operations().finish(DOCUMENT).1
}

const DOCUMENT: &str = "/v1/openapi.json";

fn operations() -> Operations<Arc<Api>> {
    with_streams(with_requests(with_documents(Operations::new(ABOUT))))
}

/// The engine waits for a port, or ends.
const LATE: &str = "The engine does not answer.";

/// Adds the operations that return documents about the run.
fn with_documents(operations: Operations<Arc<Api>>) -> Operations<Arc<Api>> {
    operations
        .get(
            "/v1/status",
            Operation::new("status", "Returns the state and the progress of the run.")
                .answers::<Status>(200, "The state."),
            status,
        )
        .get(
            "/v1/report",
            Operation::new("report", "Returns the report of the run so far.")
                .answers::<Report>(200, "The report.")
                .fails(503, LATE),
            report,
        )
        .get(
            "/v1/ports",
            Operation::new("ports", "Returns the ports and their counts.")
                .answers::<Ports>(200, "The ports.")
                .fails(503, LATE),
            ports,
        )
        .get(
            "/v1/nfs",
            Operation::new("nfs", "Returns the NFs and their counts.")
                .answers::<Nfs>(200, "The NFs.")
                .fails(503, LATE),
            nfs,
        )
        .get(
            "/v1/nfs/{name}",
            Operation::new("nf", "Returns an NF and its counts.")
                .path::<NfName>()
                .answers::<NfState>(200, "The NF.")
                .fails(404, "The run has no NF of this name.")
                .fails(503, LATE),
            nf,
        )
        .get(
            "/v1/rules",
            Operation::new("rules", "Returns the rules that give packets their types.")
                .query::<Page>()
                .answers::<Rules>(200, "The rules.")
                .fails(400, "A parameter is wrong."),
            rules,
        )
}

/// Adds the operations that steer the run.
fn with_requests(operations: Operations<Arc<Api>>) -> Operations<Arc<Api>> {
    operations
        .post(
            "/v1/reload",
            Operation::new(
                "reload",
                "Reloads the chain file while packets pass, all of it or nothing, or returns what that \
                 would change. Takes up to five minutes; what is added, removed and changed is in the \
                 answer, and after it every packet takes the new chain.",
            )
            .accepts::<Wanted>()
            .answers::<Reloaded>(200, "What has changed, or would change.")
            .fails(400, "The body is not JSON.")
            .fails(409, "A port cannot be opened, or an NF cannot keep its state; nothing was changed.")
            .fails(415, "The body has another media type.")
            .fails(422, "The body or the chain file has mistakes; nothing was changed.")
            .fails(500, "A panic while the new chain was built; nothing was changed.")
            .fails(503, "Another reload is under way, or the run ends; nothing was changed."),
            reload::reload,
        )
        .get(
            "/v1/log",
            Operation::new("getLog", "Returns the level of the log.")
                .answers::<LogLevel>(200, "The level."),
            log_level,
        )
        .put(
            "/v1/log",
            Operation::new("setLog", "Sets the level of the log.")
                .accepts::<LogLevel>()
                .answers::<LogLevel>(200, "The new level.")
                .fails(400, "The body is not JSON.")
                .fails(415, "The body has another media type.")
                .fails(422, "The level is unknown."),
            set_log_level,
        )
        .post(
            "/v1/export",
            Operation::new("export", "Makes NFs and outputs write what they hold, at most once a second.")
                .answers::<Status>(202, "They will write.")
                .fails(429, "The last export was less than a second ago."),
            export,
        )
        .post(
            "/v1/stop",
            Operation::new("stop", "Ends the run: no more packets are received, and those under way finish.")
                .answers::<Status>(202, "The run ends."),
            stop,
        )
}

/// Adds the operations with answers of other formats.
fn with_streams(operations: Operations<Arc<Api>>) -> Operations<Arc<Api>> {
    operations
        .get(
            "/v1/events",
            Operation::new(
                "events",
                "Streams the progress or the report at an interval, as server-sent events `progress` \
                 or `report`; what happens to the interfaces of ports, as events `link`; devices of NFs that \
                 fail, as events `device`; and `end` with the end of the run. A client that reads too slowly \
                 receives an event `lost` with the number of events that it missed.",
            )
            .query::<events::Wish>()
            .answers_text("The events.", &["text/event-stream"])
            .fails(400, "A parameter is wrong.")
            .fails(503, "Too many clients read events."),
            events::events,
        )
        .get(
            "/v1/trace",
            Operation::new(
                "trace",
                "Streams traces of the next packets that match a pattern, as server-sent events `trace` \
                 (`thalweg.trace/1`), and `end` with their number. For a client that reads too slowly, \
                 packets are passed over and counted.",
            )
            .query::<trace::Wish>()
            .answers_text("The events.", &["text/event-stream"])
            .fails(400, "A parameter is wrong.")
            .fails(503, "Four clients read traces, or the run ends."),
            trace::trace,
        )
        .get(
            "/v1/drops",
            Operation::new(
                "drops",
                "Streams the packets that are dropped from now on, by NFs, between them and at outputs, as \
                 a pcapng capture: inputs are its interfaces, and each packet has its place and reason \
                 as a comment. For a client that reads too slowly, packets are left out and counted.",
            )
            .query::<drops::Wish>()
            .answers_bytes("The capture.", drops::PCAPNG)
            .fails(400, "A parameter is wrong.")
            .fails(503, "Four clients read dropped packets, or the run ends."),
            drops::drops,
        )
        .get(
            "/metrics",
            Operation::new("metrics", "Returns the report for Prometheus, in the format of header Accept.")
                .answers_text("The metrics.", &["application/openmetrics-text", "text/plain"])
                .fails(503, LATE),
            metrics_text,
        )
}

/// The name of an NF.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "axum reads it as a string; the schema describes it")]
struct NfName {
    /// The name of the NF in the chain file.
    name: String,
}

/// A part of a list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Page {
    /// The number of the first rule.
    #[serde(default)]
    #[schemars(range(max = 4_294_967_295_u32))]
    from: u32,
    /// The most rules to return.
    #[serde(default = "usual_rules")]
    #[schemars(range(min = 1, max = 1000))]
    limit: usize,
}

fn usual_rules() -> usize {
    USUAL_RULES
}

impl Api {
    pub(crate) fn progress(&self) -> ProgressNow {
        let progress = self.subject.control.progress();
        ProgressNow {
            uptime_s: self.subject.began.0.elapsed().as_secs_f64(),
            packets_in: progress.packets_in,
            bytes_in: progress.bytes_in,
            packets_out: progress.packets_out,
            packets_dropped: progress.drops,
            share: progress.share,
        }
    }

    pub(crate) async fn report(&self) -> Served<Arc<Report>> {
        self.snapshots.now(&self.subject.control).await
    }

    fn status(&self, shared: &Shared) -> Status {
        let Subject { name, chain, workers, cores, control, began, .. } = &self.subject;
        Status {
            schema: "thalweg.status/1",
            name: name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            chain: chain.clone(),
            state: if control.is_stopping() { State::Stopping } else { State::Running },
            started: began.1.format(&Rfc3339).unwrap_or_default(),
            workers: *workers,
            cores: cores.clone(),
            progress: self.progress(),
            log: log::max_level().into(),
            api: shared.counts().now(),
        }
    }

    /// The plan that packets take now.
    pub(crate) fn plan(&self) -> Served<Arc<Plan>> {
        self.subject.control.plan().ok_or_else(|| {
            let detail = "the run starts or ends: it has no chain at this moment";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(1)
        })
    }

    /// The NFs and their counts. One that a reload adds or removes meanwhile is left out.
    async fn nfs(&self) -> Served<Vec<NfState>> {
        let report = self.report().await?;
        let plan = self.plan()?;
        let graph = plan.graph();
        let of = |nf: &GraphNf| {
            let counts = report.nfs.iter().find(|counts| counts.name == nf.name)?.clone();
            let device = plan.nfs.iter().find(|planned| planned.name == nf.name)?.device.as_ref();
            let has_failed = counts.device.as_ref().is_some_and(|device| device.failed.is_some());
            let (failed, place) =
                device.map(|device| &device.place).map_or((None, None), |place| {
                    if has_failed { (Some(place), None) } else { (None, Some(place)) }
                });
            Some(NfState {
                what: nf.what.clone(),
                pinned: nf.pinned,
                core: nf.core,
                at: place.map_or("cpu".into(), |place| place.at.clone()),
                work_groups: place.map(|place| place.work_groups),
                failed_at: failed.map(|place| place.at.clone()),
                counts,
            })
        };
        Ok(graph.nfs().iter().filter_map(of).collect())
    }
}

async fn status(Of(api): Of<Arc<Api>>, shared: Shared) -> Json<Status> {
    Json(api.status(&shared))
}

async fn report(Of(api): Of<Arc<Api>>) -> Served<Response> {
    let report = api.report().await?;
    Ok(Json(&*report).into_response())
}

async fn ports(Of(api): Of<Arc<Api>>) -> Served<Json<Ports>> {
    let report = api.report().await?;
    let graph = api.plan()?.graph();
    let sides = [
        (Direction::In, graph.inputs(), &report.inputs),
        (Direction::Out, graph.outputs(), &report.outputs),
    ];
    let ports = sides.into_iter().flat_map(|(direction, ports, counts)| {
        // One that a reload adds or removes meanwhile is left out.
        ports.iter().filter_map(move |port| {
            let counts = counts.iter().find(|counts| counts.name == port.name)?.clone();
            let (kind, what, link) = (port.kind, port.what.clone(), port.link);
            Some(PortState { direction, kind, what, link, counts })
        })
    });
    Ok(Json(Ports { schema: "thalweg.ports/1", ports: ports.collect() }))
}

async fn nfs(Of(api): Of<Arc<Api>>) -> Served<Json<Nfs>> {
    Ok(Json(Nfs { schema: "thalweg.nfs/1", nfs: api.nfs().await? }))
}

async fn nf(Of(api): Of<Arc<Api>>, Path(name): Path<String>) -> Served<Json<NfState>> {
    let nfs = api.nfs().await?;
    let names: Vec<_> = nfs.iter().map(|nf| &*nf.counts.name).collect();
    let expected = names_or(&names, "no name: the chain has no NF");
    let nf = nfs.iter().find(|nf| nf.counts.name == name).cloned();
    nf.map(Json).ok_or_else(|| {
        let detail = format!("no NF '{}'; expected {expected}", shortened(&name, QUOTED));
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

async fn rules(Of(api): Of<Arc<Api>>, Query(page): Query<Page>) -> Served<Json<Rules>> {
    if !(1..=MAX_RULES).contains(&page.limit) {
        let mistake = Mistake {
            place: Place::Parameter("limit".into()),
            message: format!("limit {}", page.limit),
            expected: format!("1 to {MAX_RULES}"),
        };
        return Err(Problem::mistake(StatusCode::BAD_REQUEST, mistake));
    }
    let plan = api.plan()?;
    let table = plan.rules.load();
    let name = |number: u16| plan.types.get_index(usize::from(number)).cloned().unwrap_or_default();
    // Numbers may have gaps: each that is visited counts, so that the work is bounded.
    let last = table.next_id().0.min(page.from.saturating_add(page.limit as u32));
    let found = (page.from..last).filter_map(|id| table.rule(thalweg_classify::RuleId(id)));
    let rules = found.map(|rule| RuleState {
        id: rule.id.0,
        priority: rule.priority,
        packet_type: name(rule.packet_type.0),
        text: rule.text.clone(),
    });
    Ok(Json(Rules {
        schema: "thalweg.rules/1",
        default_type: name(table.default_type().0),
        total: table.len(),
        rules: rules.collect(),
    }))
}

async fn log_level() -> Json<LogLevel> {
    Json(LogLevel { level: log::max_level().into() })
}

async fn set_log_level(Body(wish): Body<LogLevel>) -> Json<LogLevel> {
    let before = Level::from(log::max_level());
    log::set_max_level(wish.level.into());
    if before != wish.level {
        log::info!("log level {}, as requested by the control API", log::max_level());
    }
    Json(wish)
}

async fn export(Of(api): Of<Arc<Api>>, shared: Shared) -> Served<(StatusCode, Json<Status>)> {
    let mut last = api.last_export.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|last| last.elapsed() < BETWEEN_EXPORTS) {
        let detail = "the last export was less than a second ago";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(1));
    }
    *last = Some(Instant::now());
    drop(last);
    api.subject.control.request_export();
    Ok((StatusCode::ACCEPTED, Json(api.status(&shared))))
}

async fn stop(Of(api): Of<Arc<Api>>, shared: Shared) -> (StatusCode, Json<Status>) {
    log::info!("stopping, as requested by the control API");
    api.subject.control.stop();
    (StatusCode::ACCEPTED, Json(api.status(&shared)))
}

async fn metrics_text(
    Of(api): Of<Arc<Api>>,
    shared: Shared,
    headers: HeaderMap,
) -> Served<Response> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept);
    let report = api.report().await?;
    let text = metrics(&api.subject, &report, &shared.counts().now()).to_text(format);
    let headers = [
        (header::CONTENT_TYPE, format.media_type()),
        (header::VARY, "accept"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, text).into_response())
}
