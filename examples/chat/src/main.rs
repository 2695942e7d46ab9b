//! Serves the chat.
//!
//! ```sh
//! cargo run -p apus-example-chat -- 127.0.0.1:8080
//! ```

#![forbid(unsafe_code)]

fn main() -> Result<(), apus::StartError> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    println!("http://{address}/");
    apus_example_chat::app().serve(address)
}
