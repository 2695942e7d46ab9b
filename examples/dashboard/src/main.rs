//! Serves the dashboard, with new values each second.
//!
//! ```sh
//! cargo run -p apus-example-dashboard -- 127.0.0.1:8080
//! ```

#![forbid(unsafe_code)]

use std::time::Duration;

use apus::Server;

fn main() -> Result<(), apus::StartError> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    println!("http://{address}/");
    let figures = apus_example_dashboard::figures();
    Server::new(apus_example_dashboard::app(figures.clone()))
        .listen(address)?
        .every("figures", Duration::from_secs(1), move || {
            apus_example_dashboard::measure(&figures);
            std::future::ready(())
        })
        .run()
}
