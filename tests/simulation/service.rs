//! The simulated service in this process: requests take time, fail, and never leave the thread.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::header::DATE;
use orgdata_exporter::api::Simulated;
use orgdata_exporter::machine::Machine as _;
use orgdata_exporter::simulator::{Fault, FaultKind, RetryAfter};
use tokio::time::sleep;

use super::plan::{fault, spread};
use super::world::World;

/// Not a fault of the simulator: behind another fault it would wait, and make two pages in a row empty.
const EMPTY_PAGE: &str = r#"{"items":[],"endCursor":null,"hasMore":false}"#;

/// Returns the way to the service of a world.
pub(super) fn transport(world: &Arc<World>) -> Simulated {
    let world = Arc::clone(world);
    Arc::new(move |request| Box::pin(answer(Arc::clone(&world), request)))
}

async fn answer(world: Arc<World>, request: reqwest::Request) -> Option<reqwest::Response> {
    world.pass().await;
    sleep(latency(&world)).await;
    let is_audit = request.url().path().ends_with("audit-logs");
    let query = request.url().query().unwrap_or_default().to_owned();
    let request = {
        let state = &mut *world.state();
        if state.has_crashed {
            return None;
        }
        world.tick(state);
        let calm = state.calm_at.is_some();
        let minute = state.now().as_secs() / 60;
        if state.requests_in_minute.0 != minute {
            state.requests_in_minute = (minute, 0);
        }
        state.requests_in_minute.1 += 1;
        let requests = state.requests_in_minute.1;
        let is_over = world.plan.quota.is_some_and(|quota| requests > quota);
        if is_over && !calm {
            let wait = RetryAfter::Seconds(60 - state.now().as_secs() % 60);
            let fault = Fault::new(FaultKind::TooManyRequests(wait));
            world.sim.fault(fault.once());
        } else if !calm && state.network.f64() < world.plan.api_trouble {
            let fault = fault(&mut state.network).once();
            state.note(&format!("{fault:?}"), 2, 0);
            world.sim.fault(fault);
        }
        if is_audit && world.is_beginning(state) && !query.contains("before=") {
            world.begins(state);
        }
        let is_old = state.now() < state.old_key_until;
        let key = if is_old { "old-key" } else { "demo-key" };
        let uri = format!("{}?{query}", request.url().path());
        let request = http::Request::get(uri).header("x-api-key", key);
        request.body(Body::empty()).unwrap()
    };
    let response = world.sim.answer(request).await;
    sleep(latency(&world)).await;
    world.pass().await;
    let state = &mut *world.state();
    let status = response.as_ref().map_or(0, |it| it.status().as_u16());
    state.note(&query, u64::from(is_audit), status.into());
    let mut response = response?;
    if world.plan.no_date {
        // What the client does then.
        let date = world.now().strftime("%a, %d %b %Y %H:%M:%S GMT");
        let date = date.to_string().parse().unwrap();
        response.headers_mut().insert(DATE, date);
    }
    let mut is_empty = false;
    if is_audit && state.begun && state.calm_at.is_none() && status == 200 {
        state.pages += 1;
        let which = world.plan.empty_page;
        let is_due = which.is_some_and(|which| state.pages.is_multiple_of(which));
        // Empty twice, it would be the end of the listing.
        let (_, cursor) = query.split_once("before=").unwrap_or_default();
        is_empty = is_due && state.emptied.insert(cursor.to_owned());
        state.is_misled |= is_empty && state.was_empty;
    }
    let body = |body: Body| match is_empty {
        true => EMPTY_PAGE.into(),
        false => reqwest::Body::wrap_stream(body.into_data_stream()),
    };
    Some(response.map(body).into())
}

fn latency(world: &World) -> Duration {
    let most = world.plan.latency.as_millis() as u64 + 2;
    spread(&mut world.state().network, 1, most)
}
