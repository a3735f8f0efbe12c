//! An exporter of one metric: `cargo run -p exporter-web --example uptime -- --web.listen-address localhost:9999`

use std::io;
use std::time::Instant;

use axum::{Router, routing::get};
use clap::Parser;
use exporter_web::WebArgs;

#[derive(Parser)]
#[command(mut_arg("web.listen-address", |address| address.default_value(":9999")))]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) web: WebArgs,
}

pub(crate) fn router(metrics: &str) -> Router {
    let started = Instant::now();
    let scrape = async move || format!("uptime_seconds {}\n", started.elapsed().as_secs());
    let page = format!("The metrics are at {metrics}.\n");
    Router::new()
        .route(metrics, get(scrape))
        .route("/", get(page))
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let Flags { web } = Flags::parse();
    let config = web.config().map_err(io::Error::other)?;
    let bound = exporter_web::bind(&web, config).await?;
    println!("{}", bound.url().unwrap_or_default());
    let stop = async { _ = tokio::signal::ctrl_c().await };
    exporter_web::serve(bound, router(&web.telemetry_path), stop).await;
    Ok(())
}
