//! Every path, with its OpenAPI text beside it.

use std::sync::OnceLock;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::query::Query;
use super::{Shared, metrics, network, stream};
use crate::backend::Backend;
use crate::failure::{ErrorBody, Failure, Kind};
use crate::filter::{
    CounterQuery, DeleteQuery, DeterministicQuery, EventQuery, NetworkQuery, NoQuery, PacketQuery,
    PortMappingDelete, PortMappingQuery, RowFilter,
};
use crate::params::nearest;
use crate::pcapng;
use crate::types::{
    BatchDelete, ConfigText, Counters, Deleted, Deterministic, Event, Graph, Health, Instance, Interface,
    Mapping, Memory, Neighbour, PoolAddress, PortMapping, ReloadReport, Route, Session, Subscriber, Thread,
    TraceRecord, Translator, Version, Worker,
};

/// Most sessions of one batch.
const BATCH_MAX: usize = 10_000;
/// Largest request body, bytes.
const BODY_BYTES_MAX: usize = 4 << 20;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Carrack management API",
        version = "1",
        description = "HTTP and JSON on the daemon's local socket; on TCP with TLS and a bearer token. \
            Lists of rows are streamed: a JSON array with one element a line, or one object a line when the request \
            accepts application/x-ndjson. Unknown parameters are errors. Every error is {error, hint}.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "network", description = "Interfaces, neighbours, routes."),
        (name = "nat", description = "Pools, subscribers, mappings, sessions."),
        (name = "packets", description = "Counters, workers, captures, traces."),
        (name = "daemon", description = "Configuration, health, metrics.")
    )
)]
struct Document;

fn documented() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(interfaces))
        .routes(routes!(neighbours))
        .routes(routes!(route_table))
        .routes(routes!(instances))
        .routes(routes!(translators))
        .routes(routes!(pools))
        .routes(routes!(subscribers))
        .routes(routes!(mappings))
        .routes(routes!(sessions, delete_sessions))
        .routes(routes!(delete_batch))
        .routes(routes!(port_mappings, delete_port_mappings))
        .routes(routes!(memory))
        .routes(routes!(deterministic))
        .routes(routes!(counters))
        .routes(routes!(workers))
        .routes(routes!(threads))
        .routes(routes!(graph))
        .routes(routes!(events))
        .routes(routes!(capture))
        .routes(routes!(trace))
        .routes(routes!(config))
        .routes(routes!(reload))
        .routes(routes!(version))
        .routes(routes!(health))
        .routes(routes!(metrics_text))
        .routes(routes!(openapi))
}

/// The OpenAPI document, pretty-printed, with a newline at its end.
#[must_use]
pub fn openapi_json() -> String {
    let document = documented().split_for_parts().1;
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn document() -> &'static (String, Vec<String>) {
    static DOCUMENT: OnceLock<(String, Vec<String>)> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let paths = documented().split_for_parts().1.paths.paths.keys().cloned().collect();
        (openapi_json(), paths)
    })
}

pub(super) fn router(shared: Shared) -> Router {
    documented()
        .split_for_parts()
        .0
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

async fn no_such_path(uri: Uri) -> Failure {
    let failure = Failure::not_found(format!("there is no {}", uri.path()));
    match nearest(uri.path(), document().1.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure.hint("GET /openapi.json lists every path"),
    }
}

async fn no_such_method(uri: Uri) -> Response {
    let failure = Failure::bad_request(format!("{} does not take this method", uri.path()))
        .hint("GET /openapi.json lists the methods of every path");
    let mut response = failure.into_response();
    *response.status_mut() = axum::http::StatusCode::METHOD_NOT_ALLOWED;
    response
}

type Answer<T> = Result<Json<T>, Failure>;

/// Asks the backend on a thread that may block.
async fn ask<T, F>(shared: Shared, question: F) -> Answer<T>
where
    T: Send + 'static,
    F: FnOnce(&dyn Backend) -> Result<T, Failure> + Send + 'static,
{
    tokio::task::spawn_blocking(move || question(shared.backend.as_ref()))
        .await
        .map_err(|_| Failure::internal("the daemon failed while it answered").hint("see its log"))?
        .map(Json)
}

#[utoipa::path(get, path = "/v1/interfaces", tag = "network", params(NetworkQuery), responses(
    (status = 200, description = "Interfaces in config order.", body = Vec<Interface>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn interfaces(
    State(shared): State<Shared>,
    Query(query): Query<NetworkQuery>,
) -> Answer<Vec<Interface>> {
    ask(shared, move |backend| network::interfaces(backend, &query)).await
}

#[utoipa::path(get, path = "/v1/neighbours", tag = "network", params(NetworkQuery), responses(
    (status = 200, description = "Neighbours.", body = Vec<Neighbour>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn neighbours(
    State(shared): State<Shared>,
    Query(query): Query<NetworkQuery>,
) -> Answer<Vec<Neighbour>> {
    ask(shared, move |backend| network::neighbours(backend, &query)).await
}

#[utoipa::path(get, path = "/v1/routes", tag = "network", params(NetworkQuery), responses(
    (status = 200, description = "Routes, streamed.", body = Vec<Route>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn route_table(
    State(shared): State<Shared>,
    Query(query): Query<NetworkQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::json(shared, &headers, move |backend| network::routes(backend, query)).await
}

#[utoipa::path(get, path = "/v1/nat/pools", tag = "nat", params(RowFilter), responses(
    (status = 200, description = "Every pool address; `instance`, `outside` and `limit` are asked.", body = Vec<PoolAddress>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn pools(State(shared): State<Shared>, Query(filter): Query<RowFilter>) -> Answer<Vec<PoolAddress>> {
    ask(shared, move |backend| backend.pools(&filter)).await
}

#[utoipa::path(get, path = "/v1/nat/subscribers", tag = "nat", params(RowFilter), responses(
    (status = 200, description = "Subscribers, streamed; `instance`, `inside`, `outside` and `limit` are asked.", body = Vec<Subscriber>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn subscribers(
    State(shared): State<Shared>,
    Query(filter): Query<RowFilter>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::json(shared, &headers, move |backend| backend.subscribers(&filter)).await
}

#[utoipa::path(get, path = "/v1/nat/mappings", tag = "nat", params(RowFilter), responses(
    (status = 200, description = "Mappings, streamed; remote and TCP state are not asked.", body = Vec<Mapping>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn mappings(
    State(shared): State<Shared>,
    Query(filter): Query<RowFilter>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::json(shared, &headers, move |backend| backend.mappings(&filter)).await
}

#[utoipa::path(get, path = "/v1/nat/sessions", tag = "nat", params(RowFilter), responses(
    (status = 200, description = "Sessions, streamed. Rows are copied between bursts of packets: traffic goes on, and a \
        session that comes or goes during the walk may or may not be in it.", body = Vec<Session>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn sessions(
    State(shared): State<Shared>,
    Query(filter): Query<RowFilter>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::json(shared, &headers, move |backend| backend.sessions(&filter)).await
}

#[utoipa::path(delete, path = "/v1/nat/sessions", tag = "nat", params(DeleteQuery), responses(
    (status = 200, description = "How many sessions are gone.", body = Deleted),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn delete_sessions(State(shared): State<Shared>, Query(query): Query<DeleteQuery>) -> Answer<Deleted> {
    if !query.narrows() && query.all != Some(true) {
        return Err(Failure::bad_request("this would delete every session")
            .hint("give a filter, or all=true when that is what you want"));
    }
    let filter = query.filter();
    ask(shared, move |backend| backend.delete_sessions(&filter)).await
}

#[utoipa::path(post, path = "/v1/nat/sessions/delete", tag = "nat", params(NoQuery), request_body = BatchDelete, responses(
    (status = 200, description = "How many of them existed and are gone.", body = Deleted),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn delete_batch(
    State(shared): State<Shared>,
    Query(_): Query<NoQuery>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Deleted> {
    let body = body.map_err(|rejection| {
        Failure::bad_request(format!("the request's body cannot be taken: {rejection}"))
            .hint(format!("send at most {BATCH_MAX} sessions and {BODY_BYTES_MAX} bytes a request"))
    })?;
    let batch: BatchDelete = serde_json::from_slice(&body).map_err(|error| {
        Failure::bad_request(format!("the request's body is no batch: {error}"))
            .hint("send {\"sessions\": [{instance, protocol, inside, inside_port, remote, remote_port}, …]}")
    })?;
    if batch.sessions.len() > BATCH_MAX {
        return Err(Failure::bad_request(format!(
            "{} sessions are too many for one batch",
            batch.sessions.len()
        ))
        .hint(format!("send at most {BATCH_MAX} a request")));
    }
    if let Some(key) =
        batch.sessions.iter().find(|key| carrack_base::Proto::from_name(&key.protocol).is_none())
    {
        return Err(Failure::bad_request(format!("`{}` is no protocol", key.protocol))
            .hint("write tcp, udp, icmp or other"));
    }
    ask(shared, move |backend| backend.delete_session_keys(&batch.sessions)).await
}

#[utoipa::path(get, path = "/v1/nat/instances", tag = "nat", params(NoQuery), responses(
    (status = 200, description = "Every NAT instance with what is in use of it.", body = Vec<Instance>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn instances(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Vec<Instance>> {
    ask(shared, |backend| backend.instances()).await
}

#[utoipa::path(get, path = "/v1/siit", tag = "nat", params(NoQuery), responses(
    (status = 200, description = "Every stateless translator.", body = Vec<Translator>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn translators(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Vec<Translator>> {
    ask(shared, |backend| backend.translators()).await
}

#[utoipa::path(get, path = "/v1/pcp/mappings", tag = "nat", params(PortMappingQuery), responses(
    (status = 200, description = "Mappings that hosts asked for by PCP or NAT-PMP.", body = Vec<PortMapping>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn port_mappings(
    State(shared): State<Shared>,
    Query(query): Query<PortMappingQuery>,
) -> Answer<Vec<PortMapping>> {
    ask(shared, move |backend| backend.port_mappings(&query)).await
}

#[utoipa::path(delete, path = "/v1/pcp/mappings", tag = "nat", params(PortMappingDelete), responses(
    (status = 200, description = "How many are gone; sessions over them go on.", body = Deleted),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn delete_port_mappings(
    State(shared): State<Shared>,
    Query(query): Query<PortMappingDelete>,
) -> Answer<Deleted> {
    if query.inside.is_none() && query.all != Some(true) {
        return Err(Failure::bad_request("this would end every mapping that a host asked for")
            .hint("give inside, or all=true when that is what you want"));
    }
    ask(shared, move |backend| backend.delete_port_mappings(&query)).await
}

#[utoipa::path(get, path = "/v1/nat/memory", tag = "nat", params(NoQuery), responses(
    (status = 200, description = "Every table on every NUMA socket, the workers there added up.", body = Vec<Memory>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn memory(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Vec<Memory>> {
    ask(shared, |backend| backend.memory()).await
}

#[utoipa::path(get, path = "/v1/nat/deterministic", tag = "nat", params(DeterministicQuery), responses(
    (status = 200, description = "The arithmetic of deterministic instances (RFC 7422), either way; no match is an \
        empty list.", body = Vec<Deterministic>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn deterministic(
    State(shared): State<Shared>,
    Query(query): Query<DeterministicQuery>,
) -> Answer<Vec<Deterministic>> {
    let forward = query.inside.is_some();
    let inverse = query.outside.is_some() && query.outside_port.is_some();
    if forward == inverse || (forward && (query.outside.is_some() || query.outside_port.is_some())) {
        return Err(Failure::bad_request("it is not clear which way to look")
            .hint("give `inside`, or `outside` and `outside_port` together"));
    }
    ask(shared, move |backend| backend.deterministic(&query)).await
}

#[utoipa::path(get, path = "/v1/counters", tag = "packets", params(CounterQuery), responses(
    (status = 200, description = "The conservation equation and every drop reason.", body = Counters),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn counters(State(shared): State<Shared>, Query(query): Query<CounterQuery>) -> Answer<Counters> {
    ask(shared, move |backend| {
        let mut counters = backend.counters()?;
        if query.nonzero == Some(true) {
            counters.reasons.retain(|reason| reason.count != 0);
            counters.engine.retain(|counter| counter.count != 0);
        }
        Ok(counters)
    })
    .await
}

#[utoipa::path(get, path = "/v1/workers", tag = "packets", params(NoQuery), responses(
    (status = 200, description = "Every worker with its CPUs and clocks per stage.", body = Vec<Worker>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn workers(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Vec<Worker>> {
    ask(shared, |backend| backend.workers()).await
}

#[utoipa::path(get, path = "/v1/threads", tag = "packets", params(NoQuery), responses(
    (status = 200, description = "Every thread with its role and CPUs.", body = Vec<Thread>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn threads(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Vec<Thread>> {
    ask(shared, |backend| backend.threads()).await
}

#[utoipa::path(get, path = "/v1/graph", tag = "packets", params(NoQuery), responses(
    (status = 200, description = "The stages in order with counts.", body = Graph),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn graph(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Graph> {
    ask(shared, |backend| backend.graph()).await
}

#[utoipa::path(get, path = "/v1/events", tag = "packets", params(EventQuery), responses(
    (status = 200, description = "The events still kept, oldest first.", body = Vec<Event>),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn events(State(shared): State<Shared>, Query(query): Query<EventQuery>) -> Answer<Vec<Event>> {
    ask(shared, move |backend| backend.events(&query)).await
}

#[utoipa::path(get, path = "/v1/capture", tag = "packets", params(PacketQuery), responses(
    (status = 200, description = "Packets as pcapng, as they pass, until `count` or until the client goes away. One \
        interface block for each interface and point (`NAME.rx`, `NAME.tx`, `NAME.drop`); the drop reason is the \
        packet's comment.", content_type = "application/x-pcapng"),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn capture(
    State(shared): State<Shared>,
    Query(query): Query<PacketQuery>,
) -> Result<Response, Failure> {
    let writer = pcapng::Writer::new()?;
    stream::respond(shared, writer, move |backend| backend.capture(&query)).await
}

#[utoipa::path(get, path = "/v1/trace", tag = "packets", params(PacketQuery), responses(
    (status = 200, description = "What each stage did to the next `count` matching packets (10 unless told), one JSON \
        object a line.", body = TraceRecord, content_type = "application/x-ndjson"),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn trace(State(shared): State<Shared>, Query(query): Query<PacketQuery>) -> Result<Response, Failure> {
    stream::respond(shared, stream::JsonLines::new(), move |backend| backend.trace(&query)).await
}

#[utoipa::path(get, path = "/v1/config", tag = "daemon", params(NoQuery), responses(
    (status = 200, description = "The configuration that runs.", body = ConfigText),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn config(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<ConfigText> {
    ask(shared, |backend| backend.config()).await
}

#[utoipa::path(post, path = "/v1/reload", tag = "daemon", params(NoQuery), responses(
    (status = 200, description = "Applied: what in place, what re-derived.", body = ReloadReport),
    (status = 409, description = "Refused because it needs a restart; nothing changed.", body = ReloadReport),
    (status = 422, description = "Refused because the file has errors; nothing changed.", body = ReloadReport),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn reload(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Result<Response, Failure> {
    let Json(report) = ask(shared, |backend| backend.reload()).await?;
    let kind = if report.changes.iter().any(|change| change.effect == "needs-restart") {
        Kind::Conflict
    } else {
        Kind::Invalid
    };
    let status = if report.applied { 200 } else { kind.status() };
    let status = axum::http::StatusCode::from_u16(status).unwrap_or(axum::http::StatusCode::OK);
    Ok((status, Json(report)).into_response())
}

#[utoipa::path(get, path = "/v1/version", tag = "daemon", params(NoQuery), responses(
    (status = 200, description = "What is running.", body = Version),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn version(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Version> {
    ask(shared, |backend| Ok(backend.version())).await
}

#[utoipa::path(get, path = "/v1/health", tag = "daemon", params(NoQuery), responses(
    (status = 200, description = "Is it well?", body = Health),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn health(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Answer<Health> {
    ask(shared, |backend| Ok(backend.health())).await
}

#[utoipa::path(get, path = "/metrics", tag = "daemon", params(NoQuery), responses(
    (status = 200, description = "Prometheus text format.", body = String, content_type = "text/plain"),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn metrics_text(State(shared): State<Shared>, Query(_): Query<NoQuery>) -> Result<Response, Failure> {
    let Json(text) = ask(shared, metrics::text).await?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

#[utoipa::path(get, path = "/openapi.json", tag = "daemon", params(NoQuery), responses(
    (status = 200, description = "This document.", content_type = "application/json"),
    (status = "default", description = "What went wrong.", body = ErrorBody)))]
async fn openapi(Query(_): Query<NoQuery>) -> Response {
    ([(CONTENT_TYPE, "application/json")], document().0.as_str()).into_response()
}
