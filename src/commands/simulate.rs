//! The command `simulate`: the simulator of the Organization Data API alone.

use std::io::Write as _;

use tokio::net::TcpListener;

use super::Failure;
use crate::shutdown;
use crate::simulator::{self, Simulator};

/// Serves the simulator until a signal.
///
/// # Errors
/// If it cannot listen.
pub async fn run(args: simulator::Args) -> Result<(), Failure> {
    let shutdown = shutdown::on_signal();
    let listen = args.listen;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::in_settings(format!(
            "--listen {listen}: cannot listen: {error}; give another address, or port 0 for any free port"
        ))
    })?;
    let address = listener.local_addr().unwrap_or(listen);
    let simulator = Simulator::new(args.config);
    // It serves also if nothing reads this line.
    let _ = writeln!(
        std::io::stdout(),
        "The simulator listens on http://{address}/ (that page lists its control endpoints)"
    );
    simulator::serve(simulator, listener, shutdown.cancelled_owned()).await;
    Ok(())
}
