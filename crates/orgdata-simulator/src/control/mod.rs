//! The control endpoint: what a test in the same process can do, over HTTP. It asks for no key.
//!
//! Bodies and answers are JSON, durations as `90s` or `1h 30m`, times as RFC 3339. What is wrong with a request is
//! answered with 400 and `{"message": …, "field": …}`; nothing has been done then.

mod data;
mod events;
mod faults;
mod input;
mod show;
mod tickets;

use axum::Router;
use axum::routing::{delete, get, patch, post};
use http::header;

use super::server::Server;

/// What the control endpoint can do.
const HELP: &str = "\
Control endpoint of the simulator. Bodies are JSON; no key is needed.

GET    /control/truth?since=MARK|TIME&removed=true&open=OPEN,IN_PROGRESS
                                  numbers to compare with; since a mark: what arrived since, late rows among it
GET    /control/entries?since=MARK|TIME&removed=true
                                  every entry, oldest first, one JSON line each, exactly as it is served
GET    /control/users             the users and their e-mail addresses
POST   /control/events            {\"count\": 10} and/or {\"entries\": [{\"type\": \"DEAL_WON\", \"createdAt\": \"...\"}]};
                                  \"createdAt\" for count; \"unchecked\": true and \"omit\": [\"id\"] for malformed entries
POST   /control/late              {\"count\": 3, \"behind\": \"10m\"}   arrive now, created so long before the newest
POST   /control/retention         {\"keep\": 1000} or {\"within\": \"24h\"}
POST   /control/restore           {\"drop\": 50}                     the newest entries never happened
POST   /control/clear             {}                               no entries at all
POST   /control/rate              {\"events\": 5, \"ticketChanges\": 0}  per second
GET    /control/clock             the time by the simulator's clock
POST   /control/clock             {\"advance\": \"1h\"}, {\"back\": \"1h\"} or {\"set\": \"2030-01-01T00:00:00Z\"}
GET    /control/readings          how silent spots of the specification are read
PATCH  /control/readings          {\"after\": \"newest\", \"pageCap\": 50}
GET    /control/faults            faults in force
POST   /control/faults            {\"fault\": \"503,on=audit,times=3\"} or {\"faults\": [...]}
DELETE /control/faults            all of them; /control/faults/ID: one
GET    /control/tickets           every ticket, one JSON line each
POST   /control/tickets           {\"count\": 5} and/or {\"tickets\": [{\"state\": \"OPEN\"}]}; \"omit\", \"unchecked\" as above
PATCH  /control/tickets/ID        {\"fields\": {\"state\": \"CLOSED\"}, \"omit\": [\"targetDueDate\"]}
DELETE /control/tickets/ID        remove one; /control/tickets: all
POST   /control/tickets/shuffle   {\"seed\": 1}
GET    /control/requests          counters, and the last requests
DELETE /control/requests          forget them
";

/// The routes below `/control`.
pub(super) fn routes() -> Router<Server> {
    Router::new()
        .route("/control", get(help))
        .route("/control/", get(help))
        .route("/control/truth", get(show::truth))
        .route("/control/entries", get(show::entries))
        .route("/control/users", get(show::users))
        .route("/control/events", post(events::add))
        .route("/control/late", post(events::late))
        .route("/control/retention", post(events::retention))
        .route("/control/restore", post(events::restore))
        .route("/control/clear", post(events::clear))
        .route("/control/rate", post(data::rate))
        .route("/control/clock", get(data::clock).post(data::set_clock))
        .route(
            "/control/readings",
            get(data::readings).patch(data::set_readings),
        )
        .route(
            "/control/requests",
            get(data::requests).delete(data::clear_requests),
        )
        .route(
            "/control/faults",
            get(faults::list).post(faults::add).delete(faults::clear),
        )
        .route("/control/faults/{id}", delete(faults::remove))
        .route(
            "/control/tickets",
            get(show::tickets).post(tickets::add).delete(tickets::clear),
        )
        .route("/control/tickets/shuffle", post(tickets::shuffle))
        .route(
            "/control/tickets/{id}",
            patch(tickets::change).delete(tickets::remove),
        )
}

async fn help() -> ([(header::HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], HELP)
}
